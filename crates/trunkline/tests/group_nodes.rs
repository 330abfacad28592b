//! A group of node processes that lose one another: killed under load and in the middle of a call,
//! and short of space.
//!
//! Needs root for a file system of its own, and strace, which ends a process at a chosen system
//! call; `cargo xtask test group` runs it. What needs neither is in `group.rs`.

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
#[path = "group/space.rs"]
mod space;
#[path = "group/struck.rs"]
mod struck;
#[path = "group/under_load.rs"]
mod under_load;
