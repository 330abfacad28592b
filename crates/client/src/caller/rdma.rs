//! What a [`Caller`](super::Caller) over RDMA needs: connecting, and what went wrong.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use transport::Address;
use transport::poll::{Events, Interest, Poller};
use transport::rdma::{Connecting, Error, Requester};

use crate::error::MountError;

/// An address that is not connected within this time is given up. Over RDMA there is more to do
/// than over TCP, and the connection manager retries several times before it reports that there is
/// no answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
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

/// Connects, and waits until that is done.
pub(super) fn connect(local: Option<Address>, address: SocketAddr) -> Result<Requester<()>, MountError> {
    let wait = || {
        let mut connecting = Connecting::start(local, address, 0)?;
        let poller = Poller::new()?;
        poller.add(connecting.fd(), super::TOKEN, Interest::READ)?;
        let deadline = Instant::now() + CONNECT_TIMEOUT;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Error::Unreachable(address));
            }
            poller.wait(&mut Events::new(), Some(left))?;
            match connecting.advance()? {
                Ok(requester) => return Ok(requester),
                Err(unfinished) => connecting = unfinished,
            }
        }
    };
    wait().map_err(|cause| failed(address, local, cause))
}

/// Builds the error, which names the local devices if they are the problem.
pub(super) fn failed(address: SocketAddr, local: Option<Address>, cause: Error) -> MountError {
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
