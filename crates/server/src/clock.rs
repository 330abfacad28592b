//! The one clock of the server: time since the host started, sleep included.
//!
//! A loop that was stopped, or a host that was suspended, must notice: clients have sent their
//! calls to other nodes meanwhile. The monotonic clock stands still while a host is suspended, but
//! this clock does not.

use std::time::Duration;

/// Time since the host started.
#[inline]
pub fn now() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}
