//! The change attribute of an object, made from the time of its last change (ctime). RFC 8881
//! s5.8.1.4
//!
//! Most kernels take that time from a clock that ticks every 1 to 10 ms, so two changes within one
//! tick leave the same time. So an object has a *settled* value, [`SETTLED`] after its ctime, which
//! it has for good once that moment has passed: then no later change can leave the same ctime. An
//! object that is looked at before that moment gets the moment of the look, made unique by a number
//! that all processes of the host share. It is less than the settled value, and no other look gets
//! it. So no two states have the same value, and values grow, as long as the clock does.
//!
//! Where the kernel stamps each change that follows a look with a finer clock (Linux 6.13 and
//! later, on ext4, xfs, btrfs and tmpfs), the ctime alone tells states apart, and every value is
//! settled.
//!
//! docs/decisions/0005-dir-store.md has the limits.

use super::state::SharedNumber;
use rustix::fs::{Mode, OFlags, Stat};
use rustix::time::ClockId;
use std::ops::Deref;
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long after its ctime an object cannot get the same ctime again: two ticks of the slowest
/// kernel clock (100 Hz), and as much again for file systems that keep hundredths of a second. The
/// same on all kernels, because a settled value must survive the next kernel.
pub(super) const SETTLED: Duration = Duration::from_millis(40);
/// The same for a ctime in whole seconds, which may come from a file system that keeps no more: FAT
/// keeps every second one.
const SETTLED_SECONDS: Duration = Duration::from_millis(2_040);
/// A number that is this far ahead of the clock shows that the clock was set back.
const CLOCK_SET_BACK: Duration = Duration::from_secs(1);
/// How many changes are made to find out how the kernel stamps them. Some happen to follow a tick,
/// or a fine stamp of another program, and so differ even where the kernel's stamps are coarse.
const PROBES: u32 = 64;

/// The state of an object at one moment, with its change attribute.
#[derive(Clone, Copy)]
pub(super) struct Looked {
    stat: Stat,
    /// See the module's documentation.
    pub change: u64,
}

impl Deref for Looked {
    type Target = Stat;

    fn deref(&self) -> &Stat {
        &self.stat
    }
}

/// Makes the change attributes of a store.
pub(super) struct Changes {
    /// The last value that was made from the clock.
    last: SharedNumber,
    /// Whether the ctime alone tells states apart.
    fine: bool,
    /// Whether the clock of the ctimes is this machine's.
    local: bool,
}

impl Changes {
    /// `fine`: see [`is_fine`]. `local`: the clock of the ctimes is this machine's.
    pub fn new(last: SharedNumber, fine: bool, local: bool) -> Self {
        Self { last, fine, local }
    }

    #[cfg(test)]
    pub fn of_tests() -> std::sync::Arc<Self> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::sync::Arc::new(Self::new(SharedNumber::open(file.path()).unwrap(), false, true))
    }

    /// Looks at an object. `stat` may be called more than once.
    pub fn look<E>(&self, stat: impl Fn() -> Result<Stat, E>) -> Result<Looked, E> {
        self.look_by(stat, clock)
    }

    fn look_by<E>(
        &self,
        stat: impl Fn() -> Result<Stat, E>,
        clock: impl Fn(ClockId) -> u64,
    ) -> Result<Looked, E> {
        // Read before the object is looked at, or the object could change in between with the ctime
        // that counts as settled. The coarse clock costs next to nothing, and is never ahead.
        let mut asked = if self.fine { 0 } else { clock(ClockId::RealtimeCoarse) };
        loop {
            let stat = stat()?;
            let ctime = nanoseconds(stat.st_ctime, stat.st_ctime_nsec);
            let settled = settled(ctime);
            if self.fine || self.is_settled(asked, ctime, settled) {
                return Ok(Looked { stat, change: settled });
            }
            let change = self.next(clock(ClockId::Realtime));
            if change < settled {
                return Ok(Looked { stat, change });
            }
            // The object has settled meanwhile, or nearly.
            asked = clock(ClockId::Realtime);
        }
    }

    fn is_settled(&self, now: u64, ctime: u64, settled: u64) -> bool {
        // No change can leave a ctime of the future before the clock has come there. So an object
        // has one state with it until then: the clock was set back.
        let future = self.local && ctime > now.saturating_add(span(SETTLED));
        now > settled || future
    }

    /// A value that no other look gets, from the clock.
    fn next(&self, now: u64) -> u64 {
        let after = |last: u64| {
            let set_back = last > now.saturating_add(span(CLOCK_SET_BACK));
            if set_back { now } else { now.max(last.saturating_add(1)) }
        };
        let number = self.last.number();
        let mut last = number.load(Ordering::Relaxed);
        loop {
            let next = after(last);
            match number.compare_exchange_weak(last, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return next,
                Err(other) => last = other,
            }
        }
    }
}

/// Whether each change that follows a look has a ctime of its own in the file system of a
/// directory. Only for file systems whose ctimes come from this machine's clock.
///
/// It is tried: all changes must differ, and most of them must follow another one within one tick.
pub(super) fn is_fine(directory: BorrowedFd<'_>) -> bool {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    let Ok(file) = rustix::fs::openat(directory, c".", flags, mode) else { return false };
    let (mut last, mut began, mut within_tick) = (0, 0, 0);
    for _ in 0..PROBES {
        let tick = clock(ClockId::RealtimeCoarse);
        let looked = rustix::fs::fchmod(&file, mode).and_then(|()| rustix::fs::fstat(&file));
        let ctime = looked.map_or(last, |stat| nanoseconds(stat.st_ctime, stat.st_ctime_nsec));
        if ctime == last {
            return false;
        }
        within_tick += u32::from(began == clock(ClockId::RealtimeCoarse));
        (last, began) = (ctime, tick);
    }
    within_tick > PROBES / 2
}

/// A clock, in nanoseconds since 1970.
fn clock(id: ClockId) -> u64 {
    let now = rustix::time::clock_gettime(id);
    nanoseconds(now.tv_sec, now.tv_nsec)
}

/// The value that an object with this ctime has for good.
fn settled(ctime: u64) -> u64 {
    const SECOND: u64 = 1_000_000_000;
    let after = if ctime.is_multiple_of(SECOND) { SETTLED_SECONDS } else { SETTLED };
    ctime.saturating_add(span(after))
}

fn span(of: Duration) -> u64 {
    u64::try_from(of.as_nanos()).unwrap_or(u64::MAX)
}

fn nanoseconds(seconds: i64, nanoseconds: impl TryInto<u64>) -> u64 {
    let seconds = u64::try_from(seconds).unwrap_or_default();
    seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds.try_into().unwrap_or_default())
}

#[cfg(test)]
mod tests;
