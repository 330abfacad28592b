//! Asks a host's rpcbind for the port of a program: version 2 (GETPORT) over IPv4, by TCP and then
//! UDP; version 4 (GETADDR) over IPv6, which version 2 does not support. RFC 1833 s2.2.1, s3.2

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use rpc::Xid;
use rpc::reply::{Accept, Body};
use xdr::{Reader, Writer};

use crate::caller::{Caller, Program};

/// The port of rpcbind. RFC 1833 s2
pub(crate) const PORT: u16 = 111;
/// RFC 1833 s2, s3.1
const PROGRAM: u32 = 100_000;
/// PMAPPROC_GETPORT and RPCBPROC_GETADDR. RFC 1833 s2.1, s3.1
const GETPORT: u32 = 3;
/// IPPROTO_TCP
const TCP: u32 = 6;
/// No credential and no verifier: rpcbind answers everyone, or decides by address. RFC 5531 s10
const AUTH_NONE: [u8; 8] = [0; 8];
/// A datagram may be lost; the second one is the last attempt.
const DATAGRAMS: usize = 2;
const DATAGRAM_TIMEOUT: Duration = Duration::from_secs(1);
/// The longest universal address: an IPv6 address with a zone, and two numbers.
const UNIVERSAL_BYTES_MAX: u32 = 256;

/// Why the port of a program is not known.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PortError {
    /// rpcbind does not answer.
    #[error("{0}")]
    Away(String),
    /// rpcbind answers, but the program is not registered.
    #[error("{0}")]
    Unregistered(String),
}

/// Returns the TCP port of a program, which `name` calls in an error.
pub(crate) fn port_of(rpcbind: SocketAddr, program: Program, name: &str) -> Result<u16, PortError> {
    let port = match rpcbind.ip() {
        IpAddr::V4(_) => {
            over_tcp(rpcbind, 2, program).or_else(|reason| over_udp(rpcbind, program).map_err(|_| reason))
        }
        IpAddr::V6(_) => over_tcp(rpcbind, 4, program),
    }
    .map_err(PortError::Away)?;
    if port == 0 {
        let version = program.version;
        let reason = format!("rpcbind at {rpcbind} knows no {name} version {version} over TCP");
        return Err(PortError::Unregistered(reason));
    }
    Ok(port)
}

fn over_tcp(rpcbind: SocketAddr, version: u32, asked: Program) -> Result<u16, String> {
    let said = |error: crate::MountError| {
        let because = std::error::Error::source(&error).map(|source| format!(": {source}"));
        format!("rpcbind is not there: {error}{}", because.unwrap_or_default())
    };
    let mut caller = Caller::connect(None, rpcbind, &AUTH_NONE, Some(false)).map_err(said)?;
    let program = Program { number: PROGRAM, version };
    let results = caller.call(program, GETPORT, |writer| arguments(writer, version, asked)).map_err(said)?;
    result(&results, version).ok_or_else(|| format!("rpcbind at {rpcbind} answers something else"))
}

fn arguments(writer: &mut Writer<'_>, version: u32, asked: Program) {
    writer.u32(asked.number);
    writer.u32(asked.version);
    if version == 2 {
        writer.u32(TCP);
        writer.u32(0);
    } else {
        for text in ["tcp6", "", ""] {
            writer.opaque(text.as_bytes());
        }
    }
}

fn result(results: &[u8], version: u32) -> Option<u16> {
    let mut reader = Reader::new(results);
    if version == 2 {
        return u16::try_from(reader.u32().ok()?).ok();
    }
    // A universal address ends with the two bytes of the port as decimal numbers. RFC 5665 s5.2.3.3
    let address = std::str::from_utf8(reader.opaque(UNIVERSAL_BYTES_MAX).ok()?).ok()?;
    if address.is_empty() {
        return Some(0);
    }
    let mut parts = address.rsplit('.');
    let low: u8 = parts.next()?.parse().ok()?;
    let high: u8 = parts.next()?.parse().ok()?;
    Some(u16::from_be_bytes([high, low]))
}

fn over_udp(rpcbind: SocketAddr, asked: Program) -> std::io::Result<u16> {
    let socket = UdpSocket::bind(SocketAddr::new(IpAddr::from([0; 4]), 0))?;
    socket.connect(rpcbind)?;
    socket.set_read_timeout(Some(DATAGRAM_TIMEOUT))?;
    let xid = Xid(crate::random_u64() as u32);
    let mut call = Vec::new();
    let mut writer = Writer::new(&mut call);
    rpc::call::encode(&mut writer, xid, PROGRAM, 2, GETPORT, &AUTH_NONE);
    arguments(&mut writer, 2, asked);
    let mut last = std::io::ErrorKind::TimedOut.into();
    for _ in 0..DATAGRAMS {
        socket.send(&call)?;
        let mut answer = [0; 512];
        match socket.recv(&mut answer) {
            Ok(length) => {
                let mut reader = Reader::new(answer.get(..length).unwrap_or_default());
                if let Ok(head) = rpc::reply::decode(&mut reader)
                    && head.xid == xid
                    && matches!(head.body, Body::Accepted(Accept::Success))
                    && let Some(port) = result(reader.rest(), 2)
                {
                    return Ok(port);
                }
                last = std::io::ErrorKind::InvalidData.into();
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_universal_address_ends_with_its_port() {
        let encoded = |text: &str| {
            let mut bytes = Vec::new();
            Writer::new(&mut bytes).opaque(text.as_bytes());
            bytes
        };
        assert_eq!(result(&encoded("::1.78.80"), 4), Some(78 * 256 + 80));
        assert_eq!(result(&encoded(""), 4), Some(0));
        for bad in ["::1", "1.2.3.4.256.1", "x", "."] {
            assert_eq!(result(&encoded(bad), 4), None, "{bad}");
        }
        assert_eq!(result(&20048_u32.to_be_bytes(), 2), Some(20048));
        assert_eq!(result(&65536_u32.to_be_bytes(), 2), None);
        assert_eq!(result(&[0, 0], 2), None);
    }
}
