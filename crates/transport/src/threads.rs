//! Threads of this process: what the system says of one, and how it treats one.

use rustix::thread::CpuSet;
use std::io;
use std::time::Duration;

/// The system's number of the thread that asks.
#[must_use]
pub fn own() -> u32 {
    u32::try_from(rustix::thread::gettid().as_raw_nonzero().get()).unwrap_or(0)
}

/// Processor time that a thread has used; `None` where it has ended, or the system keeps no such account.
///
/// Nobody is asked but the system, so the answer is of this moment however busy the thread is.
#[must_use]
pub fn cpu(thread: u32) -> Option<Duration> {
    // The first number of schedstat is the time spent on the processor, in nanoseconds.
    let account = std::fs::read_to_string(format!("/proc/self/task/{thread}/schedstat")).ok()?;
    account.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}

/// The processor that the thread which calls runs on right now.
#[must_use]
pub fn processor() -> Option<u32> {
    u32::try_from(rustix::thread::sched_getcpu()).ok()
}

/// Moves the thread that calls to a processor; the system may move it on from there, to those where it might run before. To the
/// system these are chosen from then on: one that a cpuset gains later is not among them.
///
/// # Errors
/// When it may not run there, or the system refuses; in the worst case it may run nowhere else from then on.
pub fn hop_to(processor: u32) -> io::Result<()> {
    let may_run_on = rustix::thread::sched_getaffinity(None)?;
    let processor = usize::try_from(processor).unwrap_or(usize::MAX);
    if processor >= CpuSet::MAX_CPU || !may_run_on.is_set(processor) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let mut there = CpuSet::new();
    there.set(processor);
    rustix::thread::sched_setaffinity(None, &there)?;
    Ok(rustix::thread::sched_setaffinity(None, &may_run_on)?)
}

/// A thread that has hopped stays there for so long, and for twice as long each time that it was moved away again,
const HOP_REST: Duration = Duration::from_millis(40);
/// up to this.
const HOP_REST_MAX: Duration = Duration::from_secs(2);

/// How often a thread moves itself to another processor with [`hop_to`]: the system may have its reasons to move it away.
#[derive(Debug)]
pub struct Hops {
    /// It stays until then,
    next: Duration,
    /// and after the next one for so long.
    rest: Duration,
}

impl Default for Hops {
    fn default() -> Self {
        Self { next: Duration::ZERO, rest: HOP_REST }
    }
}

impl Hops {
    /// Whether it may hop now; that counts as a hop.
    pub fn take_hop(&mut self, now: Duration) -> bool {
        let may = now >= self.next;
        if may {
            self.next = now + self.rest;
            self.rest = (self.rest * 2).min(HOP_REST_MAX);
        }
        may
    }

    /// It is where it belongs. If it stayed there since it might have hopped again, what was before is forgotten.
    pub fn settled(&mut self, now: Duration) {
        if now >= self.next {
            self.rest = HOP_REST;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_hops_to_where_it_may_run_and_may_run_on_from_there() {
        let before = rustix::thread::sched_getaffinity(None).unwrap();
        let may = |processor: &u32| before.is_set(usize::try_from(*processor).unwrap());
        let all = 0..u32::try_from(CpuSet::MAX_CPU).unwrap();
        for processor in all.clone().filter(may) {
            let hops = || {
                hop_to(processor).unwrap();
                super::processor() == Some(processor)
            };
            assert!((0..1000).any(|_| hops()), "it is moved away at once each time");
            assert_eq!(rustix::thread::sched_getaffinity(None).unwrap(), before);
        }
        for processor in all.filter(|processor| !may(processor)).take(1).chain([u32::MAX]) {
            assert_eq!(hop_to(processor).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        }
        assert_eq!(rustix::thread::sched_getaffinity(None).unwrap(), before);
    }

    #[test]
    fn a_thread_that_is_moved_away_each_time_hops_less_and_less() {
        let mut hops = Hops::default();
        let mut now = Duration::from_secs(1);
        assert!(hops.take_hop(now) && !hops.take_hop(now));
        now += HOP_REST;
        assert!(hops.take_hop(now) && !hops.take_hop(now + HOP_REST));
        hops.settled(now);
        now += 2 * HOP_REST;
        assert!(hops.rest > HOP_REST, "it had only just come");
        hops.settled(now);
        assert!(hops.take_hop(now) && hops.take_hop(now + HOP_REST), "it had settled");
        (0..10).for_each(|_| {
            now += HOP_REST_MAX;
            hops.take_hop(now);
        });
        assert!(hops.take_hop(now + HOP_REST_MAX) && hops.rest == HOP_REST_MAX);
    }

    #[test]
    fn a_thread_that_works_uses_time_and_one_that_is_not_there_has_none() {
        let before = cpu(own()).unwrap();
        let mut sum = 0_u64;
        while cpu(own()).unwrap() == before {
            sum = std::hint::black_box(sum.wrapping_mul(3) + 1);
        }
        assert_eq!(cpu(0), None);
    }
}
