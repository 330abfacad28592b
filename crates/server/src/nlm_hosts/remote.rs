//! Calls to programs of other hosts: their port is asked of the host's rpcbind, and each step has a
//! time within which it ends. RFC 1833 s2.2.1, s3.2
//!
//! What answers is another host: lengths are bounded, and an answer that does not belong to the
//! call is an error.

use rpc::Xid;
use rpc::portmap::{self, Protocol};
use rpc::record_marking::{MARK_BYTES, Mark};
use rpc::reply::{Accept, Body};
use socket2::{Domain, Socket, Type};
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use xdr::{Reader, Writer};

/// A host that lives connects and answers within this time, or the attempt has failed.
const STEP_TIMEOUT: Duration = Duration::from_secs(2);
/// The same for a datagram, which may be lost: it is sent again.
const DATAGRAM_TIMEOUT: Duration = Duration::from_secs(1);
const DATAGRAMS: usize = 2;
/// The longest reply: a cookie and a status, or an address, after a header with a verifier.
const REPLY_BYTES_MAX: usize = 2048;
/// The longest universal address: an IPv6 address with a zone, and two numbers.
const UNIVERSAL_BYTES_MAX: u32 = 256;
/// AUTH_NONE without a body. RFC 5531 s10.1
const AUTH_NONE: [u8; 8] = [0; 8];

/// A version of a program.
#[derive(Debug, Clone, Copy)]
pub(super) struct Program {
    pub number: u32,
    pub version: u32,
}

/// One host, as it is reached from an address of ours.
#[derive(Debug, Clone, Copy)]
pub(super) struct Remote {
    pub host: IpAddr,
    /// Where the calls come from.
    pub from: IpAddr,
    /// The port of the host's rpcbind.
    pub rpcbind: u16,
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// The transports of a call, from the first to be tried.
pub(super) const STREAM_FIRST: [Protocol; 2] = [Protocol::Tcp, Protocol::Udp];
pub(super) const DATAGRAM_FIRST: [Protocol; 2] = [Protocol::Udp, Protocol::Tcp];

impl Remote {
    /// Calls a procedure, by the first of two transports by which the host has the program. Returns
    /// its results.
    pub fn call(
        &self,
        program: Program,
        procedure: u32,
        args: &[u8],
        protocols: [Protocol; 2],
    ) -> io::Result<Vec<u8>> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "its rpcbind does not know the program");
        for protocol in protocols {
            let port = match self.port_of(program, protocol) {
                Ok(0) => continue,
                Ok(port) => port,
                Err(error) => {
                    last = error;
                    continue;
                }
            };
            match self.exchange(port, protocol, program, procedure, args) {
                Ok(results) => return Ok(results),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// The port of a program; 0 if there is none.
    fn port_of(&self, program: Program, protocol: Protocol) -> io::Result<u16> {
        let version = if self.host.is_ipv4() { portmap::VERSION_PORTMAP } else { portmap::VERSION_MAX };
        let rpcbind = Program { number: portmap::PROGRAM, version };
        let mut args = Vec::new();
        encode_get(&mut Writer::new(&mut args), version, program, protocol);
        let by = |protocol| self.exchange(self.rpcbind, protocol, rpcbind, portmap::GET, &args);
        let results = match self.host {
            IpAddr::V4(_) => by(Protocol::Udp).or_else(|_| by(Protocol::Tcp))?,
            // Version 4 answers for the transport by which it is asked. RFC 1833 s2.2.1
            IpAddr::V6(_) => by(protocol)?,
        };
        decode_get(&results, version).ok_or_else(|| invalid("its rpcbind answers something else"))
    }

    fn socket(&self, kind: Type) -> io::Result<Socket> {
        let socket = Socket::new(Domain::for_address(SocketAddr::new(self.host, 0)), kind, None)?;
        socket.bind(&SocketAddr::new(self.from, 0).into())?;
        Ok(socket)
    }

    fn exchange(
        &self,
        port: u16,
        protocol: Protocol,
        program: Program,
        procedure: u32,
        args: &[u8],
    ) -> io::Result<Vec<u8>> {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let xid = Xid(std::process::id().rotate_left(16) ^ NEXT.fetch_add(1, Ordering::Relaxed));
        let mut call = Vec::new();
        let writer = &mut Writer::new(&mut call);
        rpc::call::encode(writer, xid, program.number, program.version, procedure, &AUTH_NONE);
        writer.bytes(args);
        let to = SocketAddr::new(self.host, port);
        match protocol {
            Protocol::Udp => self.by_datagrams(to, xid, &call),
            Protocol::Tcp | Protocol::Rdma => self.by_stream(to, xid, &call),
        }
    }

    /// One call and its reply as records. RFC 5531 s11
    fn by_stream(&self, to: SocketAddr, xid: Xid, call: &[u8]) -> io::Result<Vec<u8>> {
        let mut stream = self.socket(Type::STREAM)?;
        stream.connect_timeout(&to.into(), STEP_TIMEOUT)?;
        stream.set_read_timeout(Some(STEP_TIMEOUT))?;
        stream.set_write_timeout(Some(STEP_TIMEOUT))?;
        let mark = Mark::whole(call.len()).ok_or_else(|| invalid("a call that is too long"))?;
        stream.write_all(&[&mark.encode(), call].concat())?;
        let mut mark = [0; MARK_BYTES];
        stream.read_exact(&mut mark)?;
        let mark = Mark::decode(mark);
        let len = usize::try_from(mark.len).ok().filter(|len| mark.last && *len <= REPLY_BYTES_MAX);
        let mut reply = vec![0; len.ok_or_else(|| invalid("a reply that is too long"))?];
        stream.read_exact(&mut reply)?;
        results_of(xid, &reply)
    }

    fn by_datagrams(&self, to: SocketAddr, xid: Xid, call: &[u8]) -> io::Result<Vec<u8>> {
        let socket = self.socket(Type::DGRAM)?;
        // Only the host itself can answer then.
        socket.connect(&to.into())?;
        socket.set_read_timeout(Some(DATAGRAM_TIMEOUT))?;
        let mut last = io::Error::from(io::ErrorKind::TimedOut);
        for _ in 0..DATAGRAMS {
            socket.send(call)?;
            let mut reply = [0; REPLY_BYTES_MAX];
            let answer = (&socket).read(&mut reply);
            match answer.and_then(|len| results_of(xid, reply.get(..len).unwrap_or_default())) {
                Ok(results) => return Ok(results),
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

/// The results of a call that was accepted.
fn results_of(xid: Xid, reply: &[u8]) -> io::Result<Vec<u8>> {
    let mut reader = Reader::new(reply);
    let head = rpc::reply::decode(&mut reader).map_err(|_| invalid("a message that is not a reply"))?;
    if head.xid != xid {
        return Err(invalid("a reply to another call"));
    }
    match head.body {
        Body::Accepted(Accept::Success) => Ok(reader.rest().to_vec()),
        _ => Err(io::Error::new(io::ErrorKind::ConnectionRefused, "it does not accept the call")),
    }
}

/// The arguments of GETPORT or GETADDR.
fn encode_get(writer: &mut Writer<'_>, version: u32, program: Program, protocol: Protocol) {
    writer.u32(program.number);
    writer.u32(program.version);
    let is_udp = protocol == Protocol::Udp;
    if version == portmap::VERSION_PORTMAP {
        // IPPROTO_UDP, IPPROTO_TCP; and a port that is not looked at. RFC 1833 s3.1
        writer.u32(if is_udp { 17 } else { 6 });
        writer.u32(0);
    } else {
        for text in [if is_udp { "udp6" } else { "tcp6" }, "", ""] {
            writer.opaque(text.as_bytes());
        }
    }
}

fn decode_get(results: &[u8], version: u32) -> Option<u16> {
    let mut reader = Reader::new(results);
    if version == portmap::VERSION_PORTMAP {
        return u16::try_from(reader.u32().ok()?).ok();
    }
    // A universal address ends with the bytes of the port as decimal numbers. RFC 5665 s5.2.3.3
    let address = std::str::from_utf8(reader.opaque(UNIVERSAL_BYTES_MAX).ok()?).ok()?;
    if address.is_empty() {
        return Some(0);
    }
    let mut parts = address.rsplit('.');
    let (low, high) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    Some(u16::from_be_bytes([high, low]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_read_from_numbers_and_universal_addresses() {
        let encoded = |text: &str| {
            let mut bytes = Vec::new();
            Writer::new(&mut bytes).opaque(text.as_bytes());
            bytes
        };
        assert_eq!(decode_get(&encoded("::1.8.1"), 4), Some(2049));
        assert_eq!(decode_get(&encoded(""), 4), Some(0));
        assert_eq!(decode_get(&2049_u32.to_be_bytes(), 2), Some(2049));
        for bad in ["::1", "x", "1.2.3.4.256.1", "."] {
            assert_eq!(decode_get(&encoded(bad), 4), None, "{bad}");
        }
        assert_eq!(decode_get(&65_536_u32.to_be_bytes(), 2), None);
        assert_eq!(decode_get(&[0, 0], 2), None);
    }

    #[test]
    fn a_reply_that_is_not_the_calls_own_has_no_results() {
        let mut reply = Vec::new();
        rpc::reply::encode_success(&mut Writer::new(&mut reply), Xid(7));
        reply.extend(b"word");
        assert_eq!(results_of(Xid(7), &reply).unwrap(), b"word");
        assert!(results_of(Xid(8), &reply).is_err());
        assert!(results_of(Xid(7), &reply[..9]).is_err());
        let mut refused = Vec::new();
        rpc::reply::encode_accept(&mut Writer::new(&mut refused), Xid(7), Accept::ProgUnavail);
        assert!(results_of(Xid(7), &refused).is_err());
    }
}
