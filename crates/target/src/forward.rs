//! Commands that are forwarded to the process of the other node, which owns their volumes.
//!
//! ```text
//!  this process: connection ── Outlet ── UNIX socket ── Inlet ── volumes    the owner's process
//!                              (one of each loop)       (on one of its loops)
//! ```
//!
//! - [`wire`] is what they say: heads of 64 bytes, with the payload behind them.
//! - [`Flights`] knows, without sockets, what was forwarded and not answered, how much more the owner
//!   takes, and what becomes of it when the owner's process ends.
//! - [`Outlet`] is the end of a loop that forwards, [`Inlet`] that of a loop which executes.
//! - [`door`] opens the connections, so that the owner sees the end of this process before a host
//!   can.
//!
//! A command carries the epoch under which it was sent, and when its host was last known to be
//! connected: one that is older than [`FRESH`] when it takes its place in the order of its blocks
//! may have been sent again elsewhere meanwhile, and is not executed. The owner asks the system
//! whether the other process is still there before it begins what it sent. What is answered as not
//! executed is answered with ANA transition.
//!
//! docs/decisions/0022-pair.md, "Forwarding"
//!
pub(crate) mod door;
mod flights;
mod inlet;
mod outlet;
mod stream;
pub(crate) mod wire;

pub(crate) use door::Numbers;
pub(crate) use flights::Flight;
pub(crate) use inlet::Inlet;
pub(crate) use outlet::{Answered, Outlet, Partner, Sending, Sent};

use std::time::{Duration, Instant};

/// Commands of one connection at a time.
pub(crate) const COMMANDS_MAX: usize = 256;
/// Payload of the commands of one connection at a time, in bytes, in both directions: what each
/// process sets aside for a loop of the other one. A link of 100 Gb/s needs less for its delay.
pub(crate) const WINDOW_BYTES: usize = 8 << 20;
/// Hosts that one connection knows at a time. More than commands, so that there is always one
/// without a command, which can be forgotten.
pub(crate) const HOSTS_MAX: usize = 1024;

const _: () = assert!(HOSTS_MAX > COMMANDS_MAX);

/// Where the volume at a place is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    /// Here, taken for this time.
    Here(u64),
    /// With the process of the other node.
    There(u64),
    /// Nobody is known to serve it.
    Nowhere,
}

impl Route {
    pub(crate) const fn epoch(self) -> Option<u64> {
        match self {
            Self::Here(epoch) | Self::There(epoch) => Some(epoch),
            Self::Nowhere => None,
        }
    }
}

/// A forwarded command that is older than this at the owner has the other process asked whether its
/// host is still connected. More than for a command of this process: it takes a way through both.
pub(crate) const FRESH: Duration = Duration::from_millis(50);

/// The time that both processes know, in nanoseconds.
pub(crate) fn clock() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let part = |value: i64| u64::try_from(value).unwrap_or_default();
    part(now.tv_sec).saturating_mul(1_000_000_000).saturating_add(part(now.tv_nsec))
}

/// A time that has passed, by [`clock`]. It is too early, never too late, if this process stands
/// still meanwhile.
pub(crate) fn stamp(at: Instant) -> u64 {
    let now = clock();
    now.saturating_sub(u64::try_from(at.elapsed().as_nanos()).unwrap_or(u64::MAX))
}
