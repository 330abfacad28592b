//! Makes the server discoverable by program number: answers on port 111, or registers with the
//! host's rpcbind. RFC 1833
//!
//! If port 111 is free, its listeners belong to the first node, and every loop answers program
//! 100000; so its connections have the same bounds as all others. If another program has the port,
//! NFS and MOUNT are registered there and removed at the end ([`host`]).
//!
//! Only one process of a group at a time is registered ([`group_lock`]); when it ends, the next
//! process is registered.
//!
//! If the host has another server for NLM or NSM, such as its kernel's or rpc.statd, that one keeps
//! its registration, and this server serves no NLM.
//!
//! The netids follow the addresses on which the nodes listen: tcp and tcp6, rdma and rdma6 for NFS,
//! udp and udp6 for MOUNT, NLM and NSM.

mod advertisement;
mod group_lock;
mod host;

pub(crate) use advertisement::Advertisement;

use crate::config::{Config, NfsVersions};
use crate::dispatch::PROGRAMS;
use crate::error::Error;
use crate::program::Program;
use crate::runtime::bind_datagrams;
use crate::runtime::{BoundListener, bind};
use group_lock::GroupLock;
use host::Registered;
use rpc::portmap::{self, Entry, Protocol};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};

/// How clients find the server.
#[derive(Debug, Default)]
pub(crate) struct Rpcbind {
    /// The sockets on which MOUNT answers datagrams.
    pub sockets: Vec<UdpSocket>,
    /// `None` without `rpcbind`, and while another process of the group is registered.
    pub registration: Option<Registration>,
    /// What to register when that process ends.
    pub pending: Option<PendingRegistration>,
}

/// A registration, valid while this exists.
#[derive(Debug)]
pub(crate) struct Registration {
    /// The entries that are answered on port 111.
    pub entries: Vec<Entry>,
    /// The listeners on port 111, if this process has it.
    pub listeners: Vec<BoundListener>,
    pub sockets: Vec<UdpSocket>,
    /// Why the host's rpcbind does not take the programs for locks.
    pub nlm_refused: Option<String>,
    /// The registration with the host's rpcbind.
    registered: Option<Registered>,
    group_lock: Option<GroupLock>,
}

/// Waits while another process of the group is registered.
#[derive(Debug, Clone)]
pub(crate) struct PendingRegistration {
    group: PathBuf,
    port: u16,
    entries: Vec<Entry>,
}

/// The entries of listeners over TCP and RDMA.
fn entries_of(versions: NfsVersions, nlm: bool, streams: &[SocketAddr], rdma: &[SocketAddr]) -> Vec<Entry> {
    // The port mapper does not list itself here.
    let entries_at = |address: &SocketAddr, over: &[Protocol]| -> Vec<Entry> {
        let mut entries = Vec::new();
        let listed = |program: &&&dyn Program| {
            program.number() != portmap::PROGRAM && (nlm || !program.is_for_locks())
        };
        for program in PROGRAMS.iter().filter(listed) {
            for protocol in program.protocols().iter().filter(|protocol| over.contains(protocol)) {
                let is_served = |version: &u32| !program.serves_files() || versions.has(*version);
                entries.extend(program.versions().filter(is_served).map(|version| Entry {
                    program: program.number(),
                    version,
                    protocol: *protocol,
                    address: *address,
                }));
            }
        }
        entries
    };
    let of_streams = streams.iter().flat_map(|address| entries_at(address, &[Protocol::Tcp, Protocol::Udp]));
    of_streams.chain(rdma.iter().flat_map(|address| entries_at(address, &[Protocol::Rdma]))).collect()
}

impl Rpcbind {
    /// Takes port 111, or registers with the program that has it. The server listens over TCP at
    /// `streams`, over RDMA at `rdma`.
    pub fn start(
        config: &Config,
        (versions, serves_nlm): (NfsVersions, bool),
        streams: &[SocketAddr],
        rdma: &[SocketAddr],
    ) -> Result<Self, Error> {
        let Some(port) = config.rpcbind else { return Ok(Self::default()) };
        let entries = entries_of(versions, serves_nlm, streams, rdma);
        let mut sockets = Vec::new();
        for address in streams {
            sockets.extend(bind_datagrams(*address)?);
        }
        let Some(group) = &config.group else {
            let registration = Some(Registration::begin(port, entries, None)?);
            return Ok(Self { sockets, registration, pending: None });
        };
        let pending = PendingRegistration { group: group.clone(), port, entries };
        match pending.try_register()? {
            Some(registration) => Ok(Self { sockets, registration: Some(registration), pending: None }),
            None => Ok(Self { sockets, registration: None, pending: Some(pending) }),
        }
    }
}

impl PendingRegistration {
    /// Registers now, unless another process of the group is still registered.
    pub fn try_register(&self) -> Result<Option<Registration>, Error> {
        let group_lock = try_lock(&self.group)?;
        group_lock
            .map(|group_lock| Registration::begin(self.port, self.entries.clone(), Some(group_lock)))
            .transpose()
    }
}

fn try_lock(group: &Path) -> Result<Option<GroupLock>, Error> {
    GroupLock::try_lock(group).map_err(|error| Error::System { what: "the group's turn at rpcbind", error })
}

impl Registration {
    fn begin(port: u16, entries: Vec<Entry>, group_lock: Option<GroupLock>) -> Result<Self, Error> {
        let mut this = Self {
            entries,
            listeners: Vec::new(),
            sockets: Vec::new(),
            nlm_refused: None,
            registered: None,
            group_lock,
        };
        match bind(0, SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port)) {
            Ok(listener) => this.answer_on(listener)?,
            Err(Error::Listen { error, .. }) if error.kind() == io::ErrorKind::AddrInUse => {
                let mut registered = Registered::register(port, &this.entries, this.group_lock.as_ref())?;
                this.nlm_refused = registered.nlm_refused.take();
                this.registered = Some(registered);
                return Ok(this);
            }
            Err(error) => return Err(error),
        }
        // A host without IPv6 does without this listener.
        if let Ok(listener) = bind(0, SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port)) {
            this.answer_on(listener)?;
        }
        Ok(this)
    }

    /// Answers on port 111 in this process.
    fn answer_on(&mut self, listener: BoundListener) -> Result<(), Error> {
        let address = listener.address;
        self.sockets.extend(bind_datagrams(address)?);
        for version in portmap::VERSION_PORTMAP..=portmap::VERSION_MAX {
            for protocol in [Protocol::Tcp, Protocol::Udp] {
                self.entries.push(Entry { program: portmap::PROGRAM, version, protocol, address });
            }
        }
        self.listeners.push(listener);
        Ok(())
    }

    /// Ends the registration, so that no client is directed here any more. The lock is held until
    /// this is dropped: port 111 may still be listened on.
    pub fn leave(&mut self) {
        let removed = self.registered.take().is_none_or(Registered::remove);
        if let Some(group_lock) = self.group_lock.as_ref().filter(|_| removed) {
            group_lock.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_listener_has_the_netids_of_its_family_and_mount_is_not_on_rdma() {
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        let listening = |versions| {
            entries_of(
                versions,
                true,
                &[at("10.0.0.1:2049"), at("[fd00::1]:2049")],
                &[at("10.0.0.1:20049"), at("[fd00::1]:20050")],
            )
        };
        let entries = listening(NfsVersions::V3);
        let netids = |program| {
            let of_program = entries.iter().filter(move |entry| entry.program == program);
            of_program.map(|entry| (entry.netid(), entry.address.port())).collect::<Vec<_>>()
        };
        assert_eq!(netids(nfs3::PROGRAM), [("tcp", 2049), ("tcp6", 2049), ("rdma", 20049), ("rdma6", 20050)]);
        let expected = [("tcp", 2049), ("udp", 2049), ("tcp6", 2049), ("udp6", 2049)];
        assert_eq!(netids(nfs3::mount::PROGRAM), expected);
        assert_eq!(netids(nlm::PROGRAM), expected);
        assert_eq!(netids(nlm::nsm::PROGRAM), expected);
        let files = [nfs3::PROGRAM, nfs3::mount::PROGRAM];
        assert!(entries.iter().all(|entry| !files.contains(&entry.program) || entry.version == 3));
        let without = entries_of(NfsVersions::V3, false, &[at("10.0.0.1:2049")], &[]);
        assert!(without.iter().all(|entry| files.contains(&entry.program)));
        let both = listening("3,4.2".parse().unwrap());
        let fourth = both
            .iter()
            .filter(|entry| (entry.program, entry.version) == (nfs3::PROGRAM, 4))
            .map(|entry| (entry.program, entry.netid()));
        let expected = ["tcp", "tcp6", "rdma", "rdma6"].map(|netid| (nfs3::PROGRAM, netid));
        assert_eq!(fourth.collect::<Vec<_>>(), expected);
        assert_eq!(both.len(), entries.len() + expected.len());
    }
}
