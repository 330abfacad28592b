//! Threads of this process: what the system says of one, and how it treats one.

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

/// From now on this thread takes its turn when it is woken, and does not take the processor from whoever has it
/// (`SCHED_BATCH`, sched(7)). So more has come for it when it runs. Its share of a processor stays as it was. A thread that
/// has another policy than the usual one keeps it: somebody chose it.
///
/// # Errors
/// When the system refuses.
#[allow(unsafe_code)]
pub fn take_turns() -> io::Result<()> {
    // SAFETY: it reads a number of the thread that calls.
    match unsafe { libc::sched_getscheduler(0) } {
        libc::SCHED_OTHER => {}
        -1 => return Err(io::Error::last_os_error()),
        _ => return Ok(()),
    }
    // SAFETY: a structure of numbers, of which some systems have more than one.
    let priority: libc::sched_param = unsafe { std::mem::zeroed() };
    // SAFETY: it reads the structure, which outlives the call, and changes the policy of the thread that calls.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const priority) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The policy of the thread that asks, by the system's number. proc_pid_stat(5)
    fn policy() -> i32 {
        let stat = std::fs::read_to_string(format!("/proc/self/task/{}/stat", own())).unwrap();
        // The 41st field; the second is a name in brackets, which may have spaces in it.
        stat.rsplit(") ").next().unwrap().split_whitespace().nth(38).unwrap().parse().unwrap()
    }

    #[test]
    fn a_thread_takes_turns_unless_somebody_chose_another_policy() {
        assert_eq!(policy(), libc::SCHED_OTHER);
        take_turns().unwrap();
        assert_eq!(policy(), libc::SCHED_BATCH);
        std::thread::spawn(|| {
            let idle = std::process::Command::new("chrt")
                .args(["--idle", "--pid", "0", &own().to_string()])
                .status();
            assert!(idle.unwrap().success());
            take_turns().unwrap();
            assert_eq!(policy(), libc::SCHED_IDLE);
        })
        .join()
        .unwrap();
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
