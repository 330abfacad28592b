//! The server that hostile clients attack, and what they have in common.

use crate::peer::{Peer, encoded};
use nfs3::{FileHandle, proc};
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long a hostile client waits in one call of the system; afterwards it looks whether the round
/// is over.
pub const PATIENCE: Duration = Duration::from_millis(100);
/// The longest READ and WRITE.
pub const BLOCK: u32 = 1 << 20;

/// A server under attack.
pub struct Target {
    pub address: SocketAddr,
    /// A file of some megabytes on each export, which the good client leaves alone.
    pub files: Vec<FileHandle>,
    /// The roots of the exports.
    pub roots: Vec<FileHandle>,
    /// How many connections the server may have.
    pub connections_max: usize,
    pub is_over: AtomicBool,
    /// Which clients have done their first harm.
    pub at_work: Vec<AtomicBool>,
}

/// An address of this host that the exports admit, or one that they do not.
pub fn address_of(number: usize, admitted: bool) -> Ipv4Addr {
    let network = if admitted { 0 } else { 1 };
    Ipv4Addr::new(127, 0, network, 2 + (number % 4) as u8)
}

impl Target {
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Notes that the client with this number has begun.
    pub fn at_work(&self, number: usize) {
        self.at_work[number].store(true, Ordering::Relaxed);
    }

    /// Whether all clients have begun.
    pub fn is_under_attack(&self) -> bool {
        self.at_work.iter().all(|at_work| at_work.load(Ordering::Relaxed))
    }

    /// The file and the root of one of the exports.
    pub fn export(&self, number: usize) -> (FileHandle, FileHandle) {
        let at = number % self.files.len();
        (self.files[at], self.roots[at])
    }

    /// A connection of the client with this number; `None` if the server refuses it.
    pub fn connect(&self, number: usize) -> Option<Peer> {
        self.connect_from(address_of(number, true))
    }

    pub fn connect_from(&self, source: Ipv4Addr) -> Option<Peer> {
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).ok()?;
        bind(&socket, &SocketAddr::from((source, 0))).ok()?;
        let stream = TcpStream::from(socket);
        connect(&stream, &self.address).ok()?;
        let peer = Peer::over(stream, 7, b"hostile");
        peer.stream.set_read_timeout(Some(PATIENCE)).ok()?;
        peer.stream.set_write_timeout(Some(PATIENCE)).ok()?;
        Some(peer)
    }

    /// Calls `use_connection` with one connection after the other until the round is over. It
    /// returns when a connection has ended.
    pub fn reconnecting(&self, number: usize, mut use_connection: impl FnMut(&mut Peer)) {
        while !self.is_over() {
            if let Some(mut peer) = self.connect(number) {
                use_connection(&mut peer);
            }
        }
    }

    /// The same on several connections at once.
    pub fn reconnecting_each(&self, number: usize, connections: usize, attack: impl Fn(&mut Peer) + Sync) {
        std::thread::scope(|scope| {
            for _ in 0..connections {
                scope.spawn(|| self.reconnecting(number, &attack));
            }
        });
    }

    /// The connections of each client with which all clients together want twice as many as the
    /// server may have.
    pub fn too_many_connections(&self) -> usize {
        2 * self.connections_max / self.at_work.len() + 1
    }

    /// Sends all bytes, however long the server does not take them. Returns false if the connection
    /// or the round ends first.
    pub fn send(&self, mut stream: &TcpStream, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() && !self.is_over() {
            match stream.write(bytes) {
                Ok(sent) => bytes = &bytes[sent..],
                Err(error) if is_timeout(&error) => {}
                Err(_) => return false,
            }
        }
        bytes.is_empty()
    }

    /// Receives and drops bytes until there is nothing for a moment. Returns how many there were,
    /// or `None` when the connection has ended.
    pub fn receive(&self, mut stream: &TcpStream, bytes_max: usize) -> Option<usize> {
        match stream.read(&mut vec![0; bytes_max]) {
            Ok(0) => None,
            Ok(received) => Some(received),
            Err(error) if is_timeout(&error) => Some(0),
            Err(_) => None,
        }
    }

    /// Whether the server has ended a connection on which nothing is received.
    pub fn has_ended(&self, peer: &Peer) -> bool {
        transport::socket::tcp_info(peer.stream.as_fd()).is_ok_and(|info| !info.is_established)
    }

    /// Waits silently until the connection or the round ends.
    pub fn hold(&self, peer: &Peer) {
        while !self.is_over() && matches!(peer.stream.peek(&mut [0]), Err(error) if is_timeout(&error)) {}
    }
}

fn is_timeout(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// READs of the largest size, one after the other through a file.
pub fn reads(peer: &Peer, file: FileHandle, count: u32) -> Vec<u8> {
    let read = |xid| {
        let args = encoded(&proc::read::Args { file, offset: 0, count: BLOCK });
        peer.record(xid, nfs3::PROGRAM, nfs3::Procedure::Read.number(), &args)
    };
    (0..count).flat_map(read).collect()
}
