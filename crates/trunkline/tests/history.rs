//! Histories: processes and threads read and write files of a mount concurrently, with all kinds of
//! I/O, and the checker compares the result of each read with the times at which each write began
//! and returned. One mount must behave like a local file system: a read sees each write that has
//! returned. Several mounts must be consistent from close to open, and under a lock. The checker
//! itself is tested with histories written by hand, and on a local directory.
//!
//! Needs root and FUSE. `cargo xtask history --minutes N [--seed S]` runs an optimised build, the
//! suite `history` a minute. Each round prints its seed; a run that is given a seed begins with the
//! round of that seed. TRUNKLINE_HISTORY_OPTIONS sets mount options instead of those that the seed
//! draws.

#[path = "history/access.rs"]
mod access;
#[path = "history/appends.rs"]
mod appends;
#[path = "history/check.rs"]
mod check;
#[path = "history/examples.rs"]
mod examples;
#[path = "history/excerpt.rs"]
mod excerpt;
#[path = "peers/fixtures.rs"]
#[allow(dead_code, reason = "the suite of peers uses the rest")]
mod fixtures;
#[path = "peers/ganesha.rs"]
#[allow(dead_code, reason = "the suite of peers uses the rest")]
mod ganesha;
#[path = "peers/libnfs.rs"]
#[allow(dead_code, reason = "the suite of peers uses it")]
mod libnfs;
#[path = "history/mapped.rs"]
mod mapped;
#[path = "mount/mounts.rs"]
#[allow(dead_code, reason = "the suite of mounts uses the rest")]
mod mounts;
#[path = "history/op.rs"]
mod op;
#[path = "history/order.rs"]
mod order;
#[path = "history/places.rs"]
mod places;
#[path = "history/plan.rs"]
mod plan;
#[path = "history/rounds.rs"]
mod rounds;
#[path = "history/stamp.rs"]
mod stamp;
#[path = "history/worker.rs"]
mod worker;

use places::TestTarget;

/// The time for each place, unless the environment sets another.
const MINUTES: f64 = 0.5;

#[test]
fn reads_on_mem_see_what_was_written() {
    rounds::run("reads_on_mem_see_what_was_written", TestTarget::of_memory, MINUTES);
}

#[test]
fn reads_on_dir_see_what_was_written() {
    rounds::run("reads_on_dir_see_what_was_written", TestTarget::of_a_directory, MINUTES);
}

#[test]
fn reads_on_nfs_ganesha_see_what_was_written() {
    rounds::run("reads_on_nfs_ganesha_see_what_was_written", TestTarget::of_ganesha, MINUTES);
}

#[test]
fn reads_in_a_local_directory_see_what_was_written() {
    rounds::run("reads_in_a_local_directory_see_what_was_written", TestTarget::local, MINUTES / 5.0);
}
