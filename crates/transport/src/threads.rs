//! Information about the threads of this process.

use std::time::Duration;

/// The system's id of the calling thread.
#[must_use]
pub fn own() -> u32 {
    u32::try_from(rustix::thread::gettid().as_raw_nonzero().get()).unwrap_or(0)
}

/// The CPU time that a thread has used; `None` if the thread has ended, or the system does not
/// account CPU time.
///
/// Only the system is asked, so the answer is current however busy the thread is.
#[must_use]
pub fn cpu(thread: u32) -> Option<Duration> {
    // The first number of schedstat is the CPU time in nanoseconds.
    let account = std::fs::read_to_string(format!("/proc/self/task/{thread}/schedstat")).ok()?;
    account.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}

/// The processor on which the calling thread is running.
#[must_use]
pub fn processor() -> Option<u32> {
    u32::try_from(rustix::thread::sched_getcpu()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_thread_uses_processor_time_and_an_absent_thread_has_none() {
        let before = cpu(own()).unwrap();
        let mut sum = 0_u64;
        while cpu(own()).unwrap() == before {
            sum = std::hint::black_box(sum.wrapping_mul(3) + 1);
        }
        assert_eq!(cpu(0), None);
    }
}
