//! Binds a test to a processor.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Binds this thread, and those that it starts from now on, to one processor, so that counts of
/// wake-ups and system calls do not depend on the number of processors.
///
/// # Panics
/// If the system refuses.
pub fn stay_on_one_cpu() {
    let allowed = sched_getaffinity(None).expect("the processors of this thread");
    let first = (0..CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu)).expect("a processor");
    let mut one = CpuSet::new();
    one.set(first);
    sched_setaffinity(None, &one).expect("a processor that this thread may use");
}
