//! The embedded target: a subsystem in this process with a volume in memory, on loopback, and on
//! the addresses of RDMA devices if a route needs them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use initiator::{Address, Nqn, Transport};
use target::{Access, BlockSize, Config, Drive, Export, Identity, Listen, Node, Target, Volume};

use super::options::{EMBEDDED_ADDRESSES, VolumeTarget};
use super::route::VolumeRoute;
use crate::error::{Error, Result};
use crate::experiment::{Experiment, RouteSpec};
use crate::workload::PlannedWorkload;

/// Host and target share the processors here, so a loop may wait for a processor. That is not a
/// stall.
const STALL: Duration = Duration::from_secs(60);
/// A target without a file to measure has a volume all the same.
const BYTES_MIN: u64 = 1 << 20;

/// A target that serves.
#[derive(Debug)]
pub(crate) struct EmbeddedVolume {
    target: Target,
    /// Where it listens.
    addresses: Vec<Address>,
    /// The name of its subsystem.
    pub(crate) subsystem: Nqn,
}

impl EmbeddedVolume {
    /// The target of these routes, with room for these workloads; `None` if no route leads to it.
    ///
    /// # Errors
    /// [`Error::Target`].
    pub(crate) fn of(
        specs: &[&RouteSpec],
        experiment: &Experiment,
        workloads: &[PlannedWorkload],
    ) -> Result<Option<Self>> {
        let paths = |over| {
            let volumes = specs.iter().filter_map(|spec| spec.volume(experiment));
            let embedded = volumes.filter(|(target, _)| **target == VolumeTarget::Embedded);
            embedded.map(|(_, options)| options).filter(|it| it.transport() == over).map(|it| it.paths).max()
        };
        let (over_tcp, over_rdma) = (paths(Transport::Tcp), paths(Transport::Rdma));
        if over_tcp.is_none() && over_rdma.is_none() {
            return Ok(None);
        }
        let of_loopback =
            |path| Address::from(SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, path)), 0));
        let mut listen: Vec<Address> =
            (1..=over_tcp.unwrap_or(1).max(EMBEDDED_ADDRESSES)).map(of_loopback).collect();
        if let Some(paths) = over_rdma {
            let devices = crate::rdma::addresses().map_err(|reason| Error::Target(reason.into()))?;
            let of_device = |ip| Address { socket: SocketAddr::new(ip, 0), transport: Transport::Rdma };
            listen.extend(devices.into_iter().map(of_device).cycle().take(paths.into()));
        }
        Self::start(VolumeRoute::needed_bytes(workloads, &|_| true), listen).map(Some)
    }

    /// Starts a target with a volume of this size. All of its addresses are the best way to the
    /// volume.
    ///
    /// # Errors
    /// [`Error::Target`].
    fn start(bytes: u64, mut addresses: Vec<Address>) -> Result<Self> {
        let failed = |cause: Box<dyn std::error::Error + Send + Sync>| Error::Target(cause);
        let mut uuid = [[0; 16]; 2];
        for one in &mut uuid {
            getrandom::fill(one).map_err(|error| failed(Box::new(error)))?;
            // A volume has an identity other than zeroes.
            *one.last_mut().unwrap_or(&mut 0) |= 1;
        }
        let [of_subsystem, of_volume] = uuid;
        let bytes = bytes.max(BYTES_MIN);
        let drive = Drive::memory(bytes, bytes);
        let volume = Volume::new("bench", Identity::of_uuid(of_volume), &drive, Some(BlockSize::B4096));
        let volume = volume.map_err(|error| failed(Box::new(error)))?;
        let subsystem = Nqn::of_uuid(of_subsystem);
        let mut config = Config::new(subsystem.clone(), "BENCH", Access::Any, Vec::new());
        let listen = |address: &Address| Listen {
            address: address.socket,
            transport: address.transport,
            node: Node::A,
        };
        config.listen = addresses.iter().map(listen).collect();
        config.limits.stall = STALL;
        let export = Export { nsid: 1, volume, hosts: Access::Any, owner: Node::A };
        let target = Target::start(&config, &[export]).map_err(|error| failed(Box::new(error)))?;
        for (address, bound) in addresses.iter_mut().zip(target.addresses()) {
            address.socket = *bound;
        }
        Ok(Self { target, addresses, subsystem })
    }

    /// Where it listens for this transport.
    pub(crate) fn addresses(&self, over: Transport) -> impl Iterator<Item = Address> + '_ {
        self.addresses.iter().copied().filter(move |address| address.transport == over)
    }

    /// The processor time of its loops so far.
    pub(crate) fn cpu(&self) -> Duration {
        self.target.overview().loops.iter().sum()
    }
}
