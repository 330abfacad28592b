//! Being found by a program's number: answers on port 111 itself, or registers with the host's rpcbind. RFC 1833
//!
//! Where port 111 is free its listeners are the first node's, and every loop answers program 100000; so its
//! connections have the bounds of all others. Where another program has it, NFS and MOUNT are registered there and
//! removed at the end ([`host`]).
//!
//! Netids are those of where the nodes listen: tcp and tcp6, rdma and rdma6 for NFS, udp and udp6 for MOUNT.

mod host;

use crate::config::Config;
use crate::datagram::bind_datagrams;
use crate::error::Error;
use crate::event_loop::{BoundListener, bind};
use host::Registered;
use rpc::portmap::{self, Entry, Protocol};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// How the server is found.
#[derive(Debug, Default)]
pub(crate) struct Rpcbind {
    /// What is found.
    pub entries: Vec<Entry>,
    /// Where datagrams are answered: MOUNT's on each address, and port 111's where it is ours.
    pub sockets: Vec<UdpSocket>,
    /// With the host's rpcbind, until the end.
    _registered: Option<Registered>,
}

/// What listeners of streams and of RDMA are found by.
fn entries_of(streams: &[SocketAddr], rdma: &[SocketAddr]) -> Vec<Entry> {
    let entry = |program, protocol, address: &SocketAddr| Entry {
        program,
        version: nfs3::VERSION,
        protocol,
        address: *address,
    };
    let of_stream = |address| {
        [
            entry(nfs3::PROGRAM, Protocol::Tcp, address),
            entry(nfs3::mount::PROGRAM, Protocol::Tcp, address),
            entry(nfs3::mount::PROGRAM, Protocol::Udp, address),
        ]
    };
    let of_rdma = rdma.iter().map(|address| entry(nfs3::PROGRAM, Protocol::Rdma, address));
    streams.iter().flat_map(of_stream).chain(of_rdma).collect()
}

impl Rpcbind {
    /// Takes port 111, or registers with whoever has it; adds its listeners to `bound`, which has those of streams, while
    /// those over RDMA are at `rdma`.
    pub fn start(
        config: &Config,
        bound: &mut Vec<BoundListener>,
        rdma: &[SocketAddr],
    ) -> Result<Self, Error> {
        let Some(port) = config.rpcbind else { return Ok(Self::default()) };
        let streams: Vec<_> = bound.iter().map(|listener| listener.address).collect();
        let mut this = Self { entries: entries_of(&streams, rdma), ..Self::default() };
        for address in streams {
            this.sockets.extend(bind_datagrams(address)?);
        }
        let v4 = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port);
        match bind(0, v4) {
            Ok(listener) => this.answer_on(listener, bound)?,
            Err(Error::Listen { error, .. }) if error.kind() == io::ErrorKind::AddrInUse => {
                this._registered = Some(Registered::register(port, &this.entries)?);
                return Ok(this);
            }
            Err(error) => return Err(error),
        }
        // A host without IPv6 does without.
        if let Ok(listener) = bind(0, SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port)) {
            this.answer_on(listener, bound)?;
        }
        Ok(this)
    }

    /// Answers on port 111 itself.
    fn answer_on(&mut self, listener: BoundListener, bound: &mut Vec<BoundListener>) -> Result<(), Error> {
        let address = listener.address;
        self.sockets.extend(bind_datagrams(address)?);
        for version in portmap::VERSION_PORTMAP..=portmap::VERSION_MAX {
            for protocol in [Protocol::Tcp, Protocol::Udp] {
                self.entries.push(Entry { program: portmap::PROGRAM, version, protocol, address });
            }
        }
        bound.push(listener);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_listener_has_the_netids_of_its_family_and_mount_is_not_on_rdma() {
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        let entries = entries_of(
            &[at("10.0.0.1:2049"), at("[fd00::1]:2049")],
            &[at("10.0.0.1:20049"), at("[fd00::1]:20050")],
        );
        let netids = |program| {
            let of_program = entries.iter().filter(move |entry| entry.program == program);
            of_program.map(|entry| (entry.netid(), entry.address.port())).collect::<Vec<_>>()
        };
        assert_eq!(netids(nfs3::PROGRAM), [("tcp", 2049), ("tcp6", 2049), ("rdma", 20049), ("rdma6", 20050)]);
        let expected = [("tcp", 2049), ("udp", 2049), ("tcp6", 2049), ("udp6", 2049)];
        assert_eq!(netids(nfs3::mount::PROGRAM), expected);
        assert!(entries.iter().all(|entry| entry.version == 3));
    }
}
