//! Registers with the host's rpcbind, and unregisters at the end. RFC 1833 s2.2.1, s3.2
//!
//! Uses version 4 over the local socket, the only way in which rpcbind trusts the caller's identity
//! and accepts every netid. Without such a socket it uses version 2 on loopback, which supports
//! only IPv4. rpcbind has one address for each program, version and netid: that of
//! the first node.
//!
//! Answers come from another program: their length is bounded, and an answer that does not belong
//! to the call is an error.

use super::group_lock::GroupLock;
use crate::dispatch::PROGRAMS;
use crate::error::Error;
use rpc::Xid;
use rpc::portmap::{self, Entry};
use rpc::record_marking::{MARK_BYTES, Mark};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use xdr::{Reader, Writer};

/// The local socket of the host's rpcbind.
const SOCKET: &str = "/run/rpcbind.sock";
/// rpcbind answers within this time, or the call is sent again.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
const TRIES_MAX: u32 = 3;
/// An answer is one word after the reply header, which may carry a verifier.
const ANSWER_BYTES_MAX: usize = 1024;

/// How to reach the host's rpcbind.
#[derive(Debug, Clone)]
enum RpcbindAddress {
    Local(PathBuf),
    Loopback(SocketAddr),
}

/// The registered entries; dropping this removes them.
#[derive(Debug)]
pub(super) struct Registered {
    rpcbind: RpcbindAddress,
    entries: Vec<Entry>,
    /// Why the programs for locks are not among these.
    pub nlm_refused: Option<String>,
}

/// Whether a program is a part of what locks files: of these a host may have another one.
fn is_for_locks(entry: &Entry) -> bool {
    PROGRAMS.iter().any(|program| program.number() == entry.program && program.is_for_locks())
}

impl Registered {
    /// Registers with the rpcbind on this port. A port other than rpcbind's own is used by tests,
    /// and has no local socket. Entries that a process of the same group left there are replaced.
    pub fn register(port: u16, entries: &[Entry], group_lock: Option<&GroupLock>) -> Result<Self, Error> {
        let socket = Some(Path::new(SOCKET)).filter(|_| port == portmap::PORT);
        // A socket on which nobody listens is stale.
        let local = socket.filter(|socket| UnixStream::connect(socket).is_ok());
        let loopback = || RpcbindAddress::Loopback(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port));
        Self::register_by(
            local.map_or_else(loopback, |socket| RpcbindAddress::Local(socket.to_owned())),
            entries,
            group_lock,
        )
    }

    fn register_by(
        rpcbind: RpcbindAddress,
        entries: &[Entry],
        group_lock: Option<&GroupLock>,
    ) -> Result<Self, Error> {
        let note = |entries: &[Entry]| group_lock.map_or(Ok(()), |group_lock| group_lock.note(entries));
        let mut this = Self { rpcbind, entries: Vec::new(), nlm_refused: None };
        let (for_locks, others): (Vec<_>, Vec<_>) = entries.iter().partition(|entry| is_for_locks(entry));
        let registered = match this.register_each(&others, group_lock, note) {
            Ok(None) => this.register_for_locks(&for_locks, group_lock, note),
            Ok(Some(taken)) => Err(io::Error::other(taken)),
            Err(error) => Err(error),
        };
        if let Err(error) = registered {
            if this.unset() {
                // A note that stays lists too much; the entries it names are removed only if our
                // registration is refused.
                let _ = note(&[]);
            }
            return Err(Error::Rpcbind { error });
        }
        Ok(this)
    }

    /// Registers all programs for locks, or none: a host's lock manager goes with its status
    /// monitor.
    fn register_for_locks(
        &mut self,
        entries: &[&Entry],
        group_lock: Option<&GroupLock>,
        note: impl Fn(&[Entry]) -> io::Result<()>,
    ) -> io::Result<()> {
        // Version 2 of rpcbind removes a program's entries of all transports at once. So all are
        // looked at first, and nothing of another server is removed together with one of ours.
        for entry in entries.iter().filter(|entry| self.rpcbind.can_express(entry)) {
            let is_ours = group_lock.is_some_and(|group_lock| group_lock.was_left(entry));
            if !is_ours && self.rpcbind.has(entry)? {
                self.nlm_refused = Some(taken(entry));
                return Ok(());
            }
        }
        let before = self.entries.len();
        let refused = self.register_each(entries, group_lock, &note)?;
        if refused.is_some() {
            self.nlm_refused = refused;
            for entry in self.entries.split_off(before) {
                self.rpcbind.ask(portmap::UNSET, &entry)?;
            }
            note(&self.entries)?;
        }
        Ok(())
    }

    /// Registers entries up to one of which rpcbind has another server; then says so.
    fn register_each(
        &mut self,
        entries: &[&Entry],
        group_lock: Option<&GroupLock>,
        note: impl Fn(&[Entry]) -> io::Result<()>,
    ) -> io::Result<Option<String>> {
        for entry in entries.iter().copied().filter(|entry| self.rpcbind.can_express(entry)) {
            let name = |of: &Entry| (of.program, of.version, of.netid());
            let same = |other: &Entry| name(other) == name(entry);
            if self.entries.iter().any(same) {
                continue;
            }
            if !self.rpcbind.set(entry, group_lock.is_some_and(|group_lock| group_lock.was_left(entry)))? {
                return Ok(Some(taken(entry)));
            }
            self.entries.push(*entry);
            note(&self.entries)?;
        }
        Ok(None)
    }

    /// Removes the entries. Returns whether that was possible.
    pub fn remove(mut self) -> bool {
        self.unset()
    }

    fn unset(&mut self) -> bool {
        for entry in self.entries.drain(..) {
            if let Err(error) = self.rpcbind.ask(portmap::UNSET, &entry) {
                tracing::warn!(%error, program = entry.program, "rpcbind keeps a program that has ended");
                return false;
            }
        }
        true
    }
}

fn taken(entry: &Entry) -> String {
    let (program, netid) = (entry.program, entry.netid());
    format!("it has another server for program {program} by {netid}: rpcinfo shows which")
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.unset();
    }
}

impl RpcbindAddress {
    /// Whether this protocol version can express the entry.
    fn can_express(&self, entry: &Entry) -> bool {
        matches!(self, Self::Local(_)) || portmap::encode_mapping(&mut Writer::new(&mut Vec::new()), entry)
    }

    /// Sets an entry. With `in_place`, an existing entry may be removed first.
    fn set(&self, entry: &Entry, in_place: bool) -> io::Result<bool> {
        if self.ask(portmap::SET, entry)? {
            return Ok(true);
        }
        Ok(in_place && self.ask(portmap::UNSET, entry)? && self.ask(portmap::SET, entry)?)
    }

    /// Asks to set or unset an entry. Returns whether that was done.
    fn ask(&self, procedure: u32, entry: &Entry) -> io::Result<bool> {
        let results = self.results(procedure, entry)?;
        Reader::new(&results).bool().map_err(|_| io::ErrorKind::InvalidData.into())
    }

    /// Whether there is an entry of this program, version and transport, as far as that must be
    /// known: version 4 removes single entries, and answers only for the transport that asks.
    fn has(&self, entry: &Entry) -> io::Result<bool> {
        if matches!(self, Self::Local(_)) {
            return Ok(false);
        }
        let port = Reader::new(&self.results(portmap::GET, entry)?).u32();
        port.map(|port| port != 0).map_err(|_| io::ErrorKind::InvalidData.into())
    }

    /// The results of a procedure that takes an entry.
    fn results(&self, procedure: u32, entry: &Entry) -> io::Result<Vec<u8>> {
        let xid = Xid(std::process::id() ^ entry.program << 8 ^ procedure);
        let version = match self {
            Self::Local(_) => portmap::VERSION_MAX,
            Self::Loopback(_) => portmap::VERSION_PORTMAP,
        };
        let mut call = Vec::new();
        let writer = &mut Writer::new(&mut call);
        // AUTH_NONE, with no body. RFC 5531 s8.1
        rpc::call::encode(writer, xid, portmap::PROGRAM, version, procedure, &[0; 8]);
        match self {
            Self::Local(socket) => {
                portmap::encode_binding(writer, entry);
                results_of(xid, &by_stream(socket, &call)?)
            }
            Self::Loopback(host) => {
                portmap::encode_mapping(writer, entry);
                by_datagrams(*host, xid, &call)
            }
        }
    }
}

/// One call and its answer as records. RFC 5531 s11
fn by_stream(socket: &Path, call: &[u8]) -> io::Result<Vec<u8>> {
    let invalid = || io::Error::from(io::ErrorKind::InvalidData);
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
    let mark = Mark::whole(call.len()).ok_or_else(invalid)?;
    stream.write_all(&[&mark.encode(), call].concat())?;
    let mut mark = [0; MARK_BYTES];
    stream.read_exact(&mut mark)?;
    let mark = Mark::decode(mark);
    let len = usize::try_from(mark.len).ok().filter(|len| mark.last && *len <= ANSWER_BYTES_MAX);
    let mut answer = vec![0; len.ok_or_else(invalid)?];
    stream.read_exact(&mut answer)?;
    Ok(answer)
}

fn by_datagrams(host: SocketAddr, xid: Xid, call: &[u8]) -> io::Result<Vec<u8>> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.connect(host)?;
    socket.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    let mut last = io::Error::from(io::ErrorKind::TimedOut);
    for _ in 0..TRIES_MAX {
        socket.send(call)?;
        let mut reply = [0; ANSWER_BYTES_MAX];
        let answer = socket.recv(&mut reply);
        match answer.and_then(|len| results_of(xid, reply.get(..len).unwrap_or_default())) {
            Ok(done) => return Ok(done),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// The results. The answer to another call, or a refusal, is an error.
fn results_of(xid: Xid, reply: &[u8]) -> io::Result<Vec<u8>> {
    let invalid = || io::Error::from(io::ErrorKind::InvalidData);
    let mut reader = Reader::new(reply);
    let answer = rpc::reply::decode(&mut reader).map_err(|_| invalid())?;
    let accepted = matches!(answer.body, rpc::reply::Body::Accepted(rpc::reply::Accept::Success));
    if answer.xid != xid || !accepted {
        return Err(invalid());
    }
    Ok(reader.rest().to_vec())
}

#[cfg(test)]
mod tests;
