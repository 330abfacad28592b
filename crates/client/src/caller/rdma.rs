//! The RDMA variant of a [`Caller`](super::Caller): one connection, used blocking.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rpc::Xid;
use transport::poll::{Events, Poller};
use transport::rdma::{Error, Expect, Requester};
use transport::{Address, Place, ReceiveBuffer, Sink, Slices, SlicesMut, Source};

use super::ANSWER_TIMEOUT;
use crate::error::MountError;

/// An address that is not connected within this time is given up. Over RDMA there is more to do
/// than over TCP, and the connection manager retries several times before it reports that there is
/// no answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest reply to the calls that start a mount.
const REPLY_BYTES: u32 = 640;
const TOKEN: u64 = 0;
/// ENODEV
const NO_SUCH_DEVICE: i32 = 19;

/// Whether this machine has what RDMA needs.
pub(crate) fn require() -> Result<(), MountError> {
    let no_rdma = |cause: verbs::Error| MountError::NoRdma { cause: cause.into() };
    if verbs::devices().map_err(no_rdma)?.is_empty() {
        return Err(no_rdma(verbs::Error::NoDevice));
    }
    Ok(())
}

#[derive(Debug)]
pub(super) struct Wire {
    requester: Requester<()>,
    poller: Poller,
    address: SocketAddr,
    local: Option<Address>,
}

/// These calls carry no payload.
struct Nothing;

impl ReceiveBuffer for Nothing {
    fn unfilled<'a>(&'a mut self, _from: usize, _out: &mut SlicesMut<'a>) {}
}

impl Source<()> for Nothing {
    fn slices<'a>(&'a self, (): &'a (), _out: &mut Slices<'a>) {}
}

#[derive(Default)]
struct Reply(Option<Vec<u8>>);

impl Sink for Reply {
    type ReceiveBuffer = Nothing;
    fn place(&mut self, _head: &[u8], _record_len: usize) -> Option<Place<Nothing>> {
        None
    }
    fn record(&mut self, record: &[u8]) {
        self.0 = Some(record.to_vec());
    }
    fn received(&mut self, _head: &[u8], _landing: Nothing, _tail: &[u8]) {}
}

impl Wire {
    pub(super) fn connect(local: Option<Address>, address: SocketAddr) -> Result<Self, MountError> {
        let failed = |cause: Error| failed(address, local, cause);
        let poller = Poller::new().map_err(|error| failed(error.into()))?;
        let requester = Requester::connect(&poller, TOKEN, local, address).map_err(failed)?;
        let mut wire = Self { requester, poller, address, local };
        let deadline = Instant::now() + CONNECT_TIMEOUT;
        while !wire.requester.is_open() {
            wire.wait(deadline)?;
            wire.requester.advance(&wire.poller, TOKEN, &mut Reply::default()).map_err(failed)?;
        }
        Ok(wire)
    }

    /// Waits for the next event.
    fn wait(&self, deadline: Instant) -> Result<(), MountError> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(failed(self.address, self.local, Error::Unreachable(self.address)));
        }
        let waited = self.poller.wait(&mut Events::new(), Some(left));
        waited.map_err(|error| failed(self.address, self.local, error.into()))
    }

    pub(super) fn exchange(&mut self, xid: Xid, record: &[u8]) -> Result<Vec<u8>, MountError> {
        let (address, local) = (self.address, self.local);
        let failed = |cause: Error| failed(address, local, cause);
        let expect = Expect { lands: 0, reply_max: REPLY_BYTES };
        self.requester.push(xid.0, (), 0, expect, |head| head.extend_from_slice(record));
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        let mut reply = Reply::default();
        loop {
            self.requester.flush(&Nothing).map_err(failed)?;
            self.requester.advance(&self.poller, TOKEN, &mut reply).map_err(failed)?;
            if let Some(reply) = reply.0.take() {
                return Ok(reply);
            }
            if let Some((_, reason)) = self.requester.take_refused().pop() {
                return Err(MountError::Protocol { address, reason: reason.to_string() });
            }
            if Instant::now() >= deadline {
                let source = std::io::ErrorKind::TimedOut.into();
                return Err(MountError::Silent { address, source });
            }
            self.wait(deadline)?;
        }
    }
}

/// Builds the error, which names the local devices if they are the problem.
fn failed(address: SocketAddr, local: Option<Address>, cause: Error) -> MountError {
    // Some kernels find out only while connecting that a device has no RDMA.
    let cause = match cause {
        Error::Verbs(verbs::Error::Io { source, .. }) if source.raw_os_error() == Some(NO_SUCH_DEVICE) => {
            verbs::Error::NoRoute(address).into()
        }
        other => other,
    };
    let matters = matches!(cause, Error::Verbs(verbs::Error::NoRoute(_)));
    let from = local.map(|local| format!(" from {local}")).unwrap_or_default();
    let here = if matters { format!("{from} (looked at: {})", devices()) } else { from };
    MountError::Rdma { address, here, cause }
}

/// The devices of this machine with their addresses, for display.
fn devices() -> String {
    let all = verbs::devices().unwrap_or_default();
    let shown = all.iter().map(|device| {
        let mut addresses: Vec<String> = device
            .ports
            .iter()
            .flat_map(|port| &port.addresses)
            .filter(|known| known.roce_v2 || !device.ports.iter().any(|port| port.ethernet))
            .map(|known| known.address.to_string())
            .collect();
        addresses.dedup();
        format!("{} {}", device.name, addresses.join(" "))
    });
    shown.collect::<Vec<_>>().join(", ")
}
