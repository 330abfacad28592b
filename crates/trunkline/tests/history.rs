//! Histories: processes and threads read and write files of a mount beside each other, by all kinds
//! of I/O, and what each read gave is held against when each write began and returned. One mount
//! must be as a local file system: what has returned is seen. Several mounts agree from close to
//! open, and under a lock. The checker itself is tried on histories made by hand, and on a local
//! directory.
//!
//! Needs root and FUSE. `cargo xtask history --minutes N [--seed S]` runs it on an optimised build,
//! the suite `history` for a minute. Each round prints its seed, and a run that is given that seed
//! begins with that round. TRUNKLINE_HISTORY_OPTIONS asks for mount options instead of those that
//! the seed draws.

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

use places::Place;

/// For each place, where nothing else is asked for.
const MINUTES: f64 = 0.5;

#[test]
fn reads_on_mem_see_what_was_written() {
    rounds::run("reads_on_mem_see_what_was_written", Place::of_memory, MINUTES);
}

#[test]
fn reads_on_dir_see_what_was_written() {
    rounds::run("reads_on_dir_see_what_was_written", Place::of_a_directory, MINUTES);
}

#[test]
fn reads_on_nfs_ganesha_see_what_was_written() {
    rounds::run("reads_on_nfs_ganesha_see_what_was_written", Place::of_ganesha, MINUTES);
}

#[test]
fn reads_in_a_local_directory_see_what_was_written() {
    rounds::run("reads_in_a_local_directory_see_what_was_written", Place::local, MINUTES / 5.0);
}
