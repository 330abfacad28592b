//! The embedded target: a subsystem in this process with a volume in memory, on loopback.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use initiator::Nqn;
use target::{Access, BlockSize, Config, Drive, Export, Identity, Node, Target, Volume};

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
        let volumes = specs.iter().filter_map(|spec| spec.volume(experiment));
        let paths = volumes.filter(|(target, _)| **target == VolumeTarget::Embedded).map(|(_, it)| it.paths);
        let Some(addresses) = paths.max() else { return Ok(None) };
        Self::start(VolumeRoute::needed_bytes(workloads, &|_| true), addresses).map(Some)
    }

    /// Starts a target with a volume of this size, with at least so many addresses. All of them are
    /// the best way to the volume.
    ///
    /// # Errors
    /// [`Error::Target`].
    fn start(bytes: u64, addresses: u8) -> Result<Self> {
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
        let listen = (1..=addresses.max(EMBEDDED_ADDRESSES))
            .map(|path| SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, path)), 0));
        let mut config = Config::new(subsystem.clone(), "BENCH", Access::Any, listen.collect());
        config.limits.stall = STALL;
        let export = Export { nsid: 1, volume, hosts: Access::Any, owner: Node::A };
        let target = Target::start(&config, &[export]).map_err(|error| failed(Box::new(error)))?;
        Ok(Self { target, subsystem })
    }

    /// Where it listens.
    pub(crate) fn addresses(&self) -> &[SocketAddr] {
        self.target.addresses()
    }

    /// The processor time of its loops so far.
    pub(crate) fn cpu(&self) -> Duration {
        self.target.overview().loops.iter().sum()
    }
}
