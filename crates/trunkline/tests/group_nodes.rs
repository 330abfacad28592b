//! Tests a group of node processes that lose each other: killed under load and during a call, and
//! short of space.
//!
//! Needs root, to mount a file system, and strace, which kills a process at a chosen system call;
//! `cargo xtask test group` runs these tests. Tests that need neither are in `group.rs`.

#[path = "once/check.rs"]
mod check;
#[path = "once/cuts.rs"]
mod cuts;
#[path = "group/fixtures.rs"]
#[allow(dead_code, reason = "each test program uses a part of it")]
mod fixtures;
#[path = "faults/history.rs"]
mod history;
#[path = "faults/load.rs"]
#[allow(dead_code, reason = "what it measures is the campaign's affair")]
mod load;
#[path = "once/operations.rs"]
mod operations;
#[path = "../../server/tests/support/peer.rs"]
mod peer;
#[path = "group/session.rs"]
#[allow(dead_code, reason = "each test program uses a part of it")]
mod session;
#[path = "group/space.rs"]
mod space;
#[path = "group/struck.rs"]
mod struck;
#[path = "group/under_load.rs"]
mod under_load;
#[path = "group/version_4.rs"]
mod version_4;
