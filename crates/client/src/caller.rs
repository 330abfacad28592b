//! A blocking connection that makes one call at a time: used to start a mount, before it has paths.

mod rdma;

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rpc::Xid;
use rpc::record::{Assembler, Mark};
use rpc::reply::{Accept, Body};
use transport::{Address, socket};
use xdr::{Reader, Writer};

use crate::error::MountError;
use crate::route::from_reserved_port;
pub(crate) use rdma::require as require_rdma;

/// An address that does not accept a connection within this time is given up.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// An address that accepts a connection but sends no reply for this long is given up.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest reply: EXPORT lists all exports and the hosts that may mount them; all other replies
/// are short.
const REPLY_BYTES_MAX: usize = 4 << 20;

/// A program and its version. RFC 5531 s9
#[derive(Debug, Clone, Copy)]
pub(crate) struct Program {
    pub number: u32,
    pub version: u32,
}

#[derive(Debug)]
enum Wire {
    Tcp(TcpStream),
    Rdma(Box<rdma::Wire>),
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Caller {
    address: SocketAddr,
    wire: Wire,
    credential: Vec<u8>,
    next_xid: u32,
}

impl Caller {
    /// Connects, from a reserved port if `reserved` is true, or if it is `None` and this is
    /// permitted: like NFS, mountd may refuse other ports.
    pub(crate) fn connect(
        address: SocketAddr,
        credential: &[u8],
        reserved: Option<bool>,
    ) -> Result<Self, MountError> {
        let anywhere = || TcpStream::connect_timeout(&address, CONNECT_TIMEOUT);
        let stream = match reserved {
            Some(true) => connect_reserved(address),
            None if rustix::process::geteuid().is_root() => connect_reserved(address)
                .or_else(|error| if is_local(&error) { anywhere() } else { Err(error) }),
            None | Some(false) => anywhere(),
        };
        let stream = stream.map_err(|source| MountError::Connect { address, source })?;
        stream
            .set_write_timeout(Some(ANSWER_TIMEOUT))
            .map_err(|source| MountError::Connect { address, source })?;
        Ok(Self::over(Wire::Tcp(stream), address, credential))
    }

    /// Connects over RDMA, from this local address if given.
    pub(crate) fn connect_rdma(
        local: Option<Address>,
        address: SocketAddr,
        credential: &[u8],
    ) -> Result<Self, MountError> {
        let wire = rdma::Wire::connect(local, address)?;
        Ok(Self::over(Wire::Rdma(Box::new(wire)), address, credential))
    }

    fn over(wire: Wire, address: SocketAddr, credential: &[u8]) -> Self {
        Self { address, wire, credential: credential.to_vec(), next_xid: crate::random_u64() as u32 }
    }

    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Makes a call and returns the bytes of its results.
    pub(crate) fn call(
        &mut self,
        program: Program,
        procedure: u32,
        args: impl FnOnce(&mut Writer<'_>),
    ) -> Result<Vec<u8>, MountError> {
        let xid = Xid(self.next_xid);
        self.next_xid = self.next_xid.wrapping_add(1);
        let mut record = Vec::new();
        let mut writer = Writer::new(&mut record);
        rpc::call::encode(&mut writer, xid, program.number, program.version, procedure, &self.credential);
        args(&mut writer);
        let address = self.address;
        let reply = match &mut self.wire {
            Wire::Tcp(stream) => exchange(stream, &record).map_err(|source| match source.kind() {
                std::io::ErrorKind::InvalidData => {
                    MountError::Protocol { address, reason: source.to_string() }
                }
                _ => MountError::Silent { address, source },
            }),
            Wire::Rdma(wire) => wire.exchange(xid, &record),
        }?;
        let mut reader = Reader::new(&reply);
        let head = rpc::reply::decode(&mut reader).map_err(|error| self.protocol(error.to_string()))?;
        match head.body {
            Body::Accepted(Accept::Success) if head.xid == xid => Ok(reader.rest().to_vec()),
            Body::Accepted(Accept::Success) => Err(self.protocol("an answer to no call of ours".into())),
            other => Err(self.protocol(format!("{other:?}"))),
        }
    }

    pub(crate) fn protocol(&self, reason: String) -> MountError {
        MountError::Protocol { address: self.address, reason }
    }
}

fn exchange(stream: &mut TcpStream, record: &[u8]) -> std::io::Result<Vec<u8>> {
    let invalid = |error: String| std::io::Error::new(std::io::ErrorKind::InvalidData, error);
    let mark = Mark::whole(record.len()).ok_or_else(|| invalid("call too long".into()))?;
    stream.write_all(&[&mark.encode()[..], record].concat())?;
    let mut assembler = Assembler::new(REPLY_BYTES_MAX);
    let deadline = Instant::now() + ANSWER_TIMEOUT;
    loop {
        // One deadline for the whole reply, which may arrive byte by byte.
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(std::io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        let mut chunk = [0; 4096];
        let got = stream.read(&mut chunk)?;
        if got == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let mut rest = chunk.get(..got).unwrap_or_default();
        if let Some(reply) = assembler.feed(&mut rest).map_err(|error| invalid(error.to_string()))? {
            return Ok(reply.to_vec());
        }
    }
}

/// Whether the local machine refused this port, so that another port may work.
fn is_local(error: &std::io::Error) -> bool {
    use std::io::ErrorKind;
    matches!(error.kind(), ErrorKind::AddrInUse | ErrorKind::PermissionDenied)
}

fn connect_reserved(remote: SocketAddr) -> std::io::Result<TcpStream> {
    let any: IpAddr = if remote.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
    from_reserved_port(|port| {
        socket::connect_within(Some(SocketAddr::new(any, port)), remote, CONNECT_TIMEOUT)
    })
}
