//! Being found by a program's number: answers on port 111 itself, or registers with the host's rpcbind. RFC 1833
//!
//! Where port 111 is free its listeners are the first node's, and every loop answers program 100000; so its
//! connections have the bounds of all others. Where another program has it, NFS and MOUNT are registered there by
//! version 2, over IPv4 on loopback, and removed at the end.
//!
//! Left out: registering IPv6, which the host's rpcbind takes over a local socket only.

use crate::config::Config;
use crate::datagram::bind_datagrams;
use crate::error::Error;
use crate::event_loop::{BoundListener, bind};
use rpc::Xid;
use rpc::portmap::{self, Entry, Protocol};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;
use xdr::{Reader, Writer};

/// The host's rpcbind answers within this, or the call is sent again.
const ANSWER: Duration = Duration::from_secs(2);
const TRIES: u32 = 3;

/// How the server is found.
#[derive(Debug, Default)]
pub(crate) struct Rpcbind {
    /// What is found.
    pub entries: Vec<Entry>,
    /// Where datagrams are answered: MOUNT's on each address, and port 111's where it is ours.
    pub sockets: Vec<UdpSocket>,
    /// Registered with the host's rpcbind there, until the end.
    registered: Vec<Entry>,
    host: Option<SocketAddr>,
}

impl Rpcbind {
    /// Takes port 111, or registers with whoever has it; adds its listeners to `bound`.
    pub fn start(config: &Config, bound: &mut Vec<BoundListener>) -> Result<Self, Error> {
        let Some(port) = config.rpcbind else { return Ok(Self::default()) };
        let mut this = Self::default();
        for listener in &*bound {
            this.sockets.extend(bind_datagrams(listener.address)?);
            let entry = |program, protocol| Entry {
                program,
                version: nfs3::VERSION,
                protocol,
                address: listener.address,
            };
            this.entries.push(entry(nfs3::PROGRAM, Protocol::Tcp));
            this.entries.push(entry(nfs3::mount::PROGRAM, Protocol::Tcp));
            this.entries.push(entry(nfs3::mount::PROGRAM, Protocol::Udp));
        }
        let v4 = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port);
        match bind(0, v4) {
            Ok(listener) => this.answer_on(listener, bound)?,
            Err(Error::Listen { error, .. }) if error.kind() == io::ErrorKind::AddrInUse => {
                this.register(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port))?;
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

    /// Registers with the host's rpcbind. It has one port for each program: that of the first node.
    fn register(&mut self, host: SocketAddr) -> Result<(), Error> {
        self.host = Some(host);
        for entry in self.entries.iter().filter(|entry| entry.address.is_ipv4()) {
            let same = |other: &Entry| other.program == entry.program && other.protocol == entry.protocol;
            if self.registered.iter().any(same) {
                continue;
            }
            match ask(host, portmap::SET, entry) {
                Ok(true) => self.registered.push(*entry),
                Ok(false) => {
                    let what = format!(
                        "rpcbind has another server for program {}: rpcinfo -p shows which",
                        entry.program
                    );
                    return Err(Error::Rpcbind { host, error: io::Error::other(what) });
                }
                Err(error) => return Err(Error::Rpcbind { host, error }),
            }
        }
        Ok(())
    }
}

impl Drop for Rpcbind {
    fn drop(&mut self) {
        let Some(host) = self.host else { return };
        for entry in self.registered.drain(..) {
            if let Err(error) = ask(host, portmap::UNSET, &entry) {
                tracing::warn!(%error, program = entry.program, "rpcbind keeps a program that has ended");
                return;
            }
        }
    }
}

/// Asks the host's rpcbind to set or unset an entry; it says whether it did.
fn ask(host: SocketAddr, procedure: u32, entry: &Entry) -> io::Result<bool> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.connect(host)?;
    socket.set_read_timeout(Some(ANSWER))?;
    let (xid, mut call) = (Xid(std::process::id() ^ entry.program << 8 ^ procedure), Vec::new());
    // AUTH_NONE, with no body. RFC 5531 s8.1
    let version = portmap::VERSION_PORTMAP;
    rpc::call::encode(&mut Writer::new(&mut call), xid, portmap::PROGRAM, version, procedure, &[0; 8]);
    portmap::encode_mapping(&mut Writer::new(&mut call), entry);
    let mut last = io::Error::from(io::ErrorKind::TimedOut);
    for _ in 0..TRIES {
        socket.send(&call)?;
        let mut reply = [0; 256];
        let len = match socket.recv(&mut reply) {
            Ok(len) => len,
            Err(error) => {
                last = error;
                continue;
            }
        };
        let mut reader = Reader::new(reply.get(..len).unwrap_or_default());
        // Another call's answer, or a refusal, is no answer to this one.
        if let Ok(answer) = rpc::reply::decode(&mut reader)
            && answer.xid == xid
            && matches!(answer.body, rpc::reply::Body::Accepted(rpc::reply::Accept::Success))
        {
            return reader.bool().map_err(|_| io::ErrorKind::InvalidData.into());
        }
        last = io::ErrorKind::InvalidData.into();
    }
    Err(last)
}
