//! A blocking connection that makes one call at a time: used to start a mount, before it has paths.

mod rdma;

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use rpc::Xid;
use rpc::reply::{Accept, Body};
use transport::poll::{Events, Interest, Poller};
use transport::rdma::Requester;
use transport::{
    Address, AnyTransport, Error, Expect, Flushed, Limits, PayloadPlace, ReceiveBuffer, Scratch, Sink,
    Slices, SlicesMut, Source, Stream, Transport, socket,
};
use xdr::{Reader, Writer};

use crate::error::MountError;
use crate::protocol::nfs4;
use crate::route::from_reserved_port;
pub(crate) use rdma::require as require_rdma;

/// An address that does not accept a connection within this time is given up.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// An address that accepts a connection but sends no reply for this long is given up.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest reply over TCP: EXPORT lists all exports and the hosts that may mount them; all
/// other replies are short.
const REPLY_BYTES_MAX: usize = 4 << 20;
/// Over RDMA, where MOUNT is not called, no reply is longer than this.
const EXPECT: Expect = Expect { payload_max: 0, reply_max: 640 };
/// The same of version 4, where names of servers and attributes may be long.
const EXPECT_COMPOUND: Expect = Expect { payload_max: 0, reply_max: 4096 };
const TOKEN: u64 = 0;

/// A program and its version. RFC 5531 s9
#[derive(Debug, Clone, Copy)]
pub(crate) struct Program {
    pub number: u32,
    pub version: u32,
}

type Wire = AnyTransport<(), NoPayload, Requester<()>>;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Caller {
    address: SocketAddr,
    /// The local address, if one was asked for.
    local: Option<Address>,
    wire: Wire,
    poller: Poller,
    credential: Vec<u8>,
    next_xid: u32,
}

/// These calls carry no payload.
#[derive(Debug)]
struct NoPayload;

impl ReceiveBuffer for NoPayload {
    fn unfilled<'a>(&'a mut self, _from: usize, _out: &mut SlicesMut<'a>) {}
}

impl Source<()> for NoPayload {
    fn slices<'a>(&'a self, (): &'a (), _out: &mut Slices<'a>) {}
}

/// The reply, or why there will be none.
#[derive(Default)]
struct Reply(Option<Result<Vec<u8>, String>>);

impl Sink for Reply {
    type ReceiveBuffer = NoPayload;
    fn choose_receive_buffer(&mut self, _head: &[u8], _record_len: usize) -> Option<PayloadPlace<NoPayload>> {
        None
    }
    fn record(&mut self, record: &[u8]) {
        if crate::call_backs::is_call(record) {
            // The server sends it again on a connection that carries call-backs for longer.
            return;
        }
        self.0 = Some(Ok(record.to_vec()));
    }
    fn received(&mut self, _head: &[u8], _receive_buffer: NoPayload, _tail: &[u8]) {}
    fn refused(&mut self, _xid: u32, reason: &dyn std::fmt::Display) {
        self.0 = Some(Err(reason.to_string()));
    }
    fn wants_more(&self) -> bool {
        self.0.is_none()
    }
}

impl Caller {
    /// Connects, from this local address if given, and from a reserved port if `reserved` is true,
    /// or if it is `None` and this is permitted: like NFS, mountd may refuse other addresses and
    /// ports.
    pub(crate) fn connect(
        local: Option<Address>,
        address: SocketAddr,
        credential: &[u8],
        reserved: Option<bool>,
    ) -> Result<Self, MountError> {
        let from = |local: Option<SocketAddr>| socket::connect_within(local, address, CONNECT_TIMEOUT);
        let anywhere = || from(local.map(|local| local.with_port(0)));
        let any: IpAddr = if address.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
        let here = local.unwrap_or_else(|| any.into());
        let at_reserved = || from_reserved_port(|port| from(Some(here.with_port(port))));
        let stream = match reserved {
            Some(true) => at_reserved(),
            None if rustix::process::geteuid().is_root() => {
                at_reserved().or_else(|error| if is_local(&error) { anywhere() } else { Err(error) })
            }
            None | Some(false) => anywhere(),
        };
        let stream = stream.and_then(|stream| stream.set_nonblocking(true).map(|()| stream));
        let stream = stream.map_err(|source| MountError::Connect { address, source })?;
        let limits = Limits { record_bytes_max: REPLY_BYTES_MAX };
        Self::over(Wire::Tcp(Stream::new(stream.into(), limits)), (local, address), credential)
    }

    /// Connects over RDMA, from this local address if given.
    pub(crate) fn connect_rdma(
        local: Option<Address>,
        address: SocketAddr,
        credential: &[u8],
    ) -> Result<Self, MountError> {
        let requester = rdma::connect(local, address)?;
        Self::over(Wire::Rdma(Box::new(requester)), (local, address), credential)
    }

    fn over(
        wire: Wire,
        (local, address): (Option<Address>, SocketAddr),
        credential: &[u8],
    ) -> Result<Self, MountError> {
        let poller = Poller::new().and_then(|poller| wire.register(&poller, TOKEN).map(|()| poller));
        let poller = poller.map_err(|source| MountError::Connect { address, source })?;
        let (credential, next_xid) = (credential.to_vec(), crate::random_u64() as u32);
        Ok(Self { address, local, wire, poller, credential, next_xid })
    }

    /// Sets the credential of the next calls; returns that of the last.
    pub(crate) fn replace_credential(&mut self, credential: Vec<u8>) -> Vec<u8> {
        std::mem::replace(&mut self.credential, credential)
    }

    /// Whether the server may send calls on the connection. Over RDMA nothing is posted for them.
    pub(crate) const fn takes_calls(&self) -> bool {
        matches!(self.wire, Wire::Tcp(_))
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
        match self.reply(program, procedure, args)? {
            (Body::Accepted(Accept::Success), results) => Ok(results),
            (other, _) => Err(self.protocol(format!("{other:?}"))),
        }
    }

    /// Makes a call and returns how it was taken, and the bytes of its results.
    pub(crate) fn reply(
        &mut self,
        program: Program,
        procedure: u32,
        args: impl FnOnce(&mut Writer<'_>),
    ) -> Result<(Body, Vec<u8>), MountError> {
        let xid = Xid(self.next_xid);
        self.next_xid = self.next_xid.wrapping_add(1);
        let credential = &self.credential;
        let expect = if program.version == nfs4::PROGRAM.version { EXPECT_COMPOUND } else { EXPECT };
        self.wire.push((), 0, expect, |record| {
            let mut writer = Writer::new(record);
            rpc::call::encode(&mut writer, xid, program.number, program.version, procedure, credential);
            args(&mut writer);
        });
        let reply = self.exchange().map_err(|error| self.why(error))?;
        let reply = reply.map_err(|reason| self.protocol(reason))?;
        let mut reader = Reader::new(&reply);
        let head = rpc::reply::decode(&mut reader).map_err(|error| self.protocol(error.to_string()))?;
        if head.xid != xid {
            return Err(self.protocol("an answer to no call of ours".into()));
        }
        Ok((head.body, reader.rest().to_vec()))
    }

    pub(crate) fn protocol(&self, reason: String) -> MountError {
        MountError::Protocol { address: self.address, reason }
    }

    /// Sends what was pushed and waits for the reply. One deadline for the whole reply, which may
    /// arrive byte by byte.
    fn exchange(&mut self) -> Result<Result<Vec<u8>, String>, Error> {
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        let (mut events, mut scratch, mut reply) = (Events::new(), Scratch::new(), Reply::default());
        loop {
            self.wire.wake();
            let flushed = self.wire.flush(&NoPayload, usize::MAX)?;
            self.wire.receive(&mut scratch, &mut reply, usize::MAX)?;
            if let Some(outcome) = reply.0 {
                return Ok(outcome);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into());
            }
            let interest = if flushed == Flushed::All { Interest::READ } else { Interest::BOTH };
            self.wire.set_interest(&self.poller, TOKEN, interest)?;
            self.poller.wait(&mut events, Some(left))?;
        }
    }

    /// What is wrong with the address, which this error tells.
    fn why(&self, error: Error) -> MountError {
        let address = self.address;
        let source = match error {
            Error::Rdma(cause) => return rdma::failed(address, self.local, cause),
            Error::Record(error) => return self.protocol(error.to_string()),
            Error::Io(source) => source,
            Error::Closed | Error::Truncated => std::io::ErrorKind::UnexpectedEof.into(),
            error @ Error::Injected => std::io::Error::other(error),
        };
        MountError::Silent { address, source }
    }
}

/// Whether the local machine refused this port, so that another port may work.
fn is_local(error: &std::io::Error) -> bool {
    use std::io::ErrorKind;
    matches!(error.kind(), ErrorKind::AddrInUse | ErrorKind::PermissionDenied)
}
