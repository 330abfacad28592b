//! The fault campaign: a load over four shaped links while links, connections and the server fail,
//! in namespaces of this machine. Every block that is read must be the last acknowledged or a newer
//! one, and every name must be created or removed once. The cost of the faults is printed, and
//! never asserted on.
//!
//! Needs root, `ip`, `tc` and `nft`. `cargo xtask test faults` runs these tests;
//! `cargo xtask faults` runs the campaign on an optimised build and writes a record.
//! docs/FAILOVER.md says which faults are tried and what the figures mean.

#[path = "faults/campaign.rs"]
mod campaign;
#[path = "once/check.rs"]
mod check;
#[path = "once/cuts.rs"]
mod cuts;
#[path = "faults/figures.rs"]
mod figures;
#[path = "faults/frames.rs"]
mod frames;
#[path = "faults/history.rs"]
mod history;
#[path = "faults/load.rs"]
mod load;
#[path = "faults/mounted.rs"]
mod mounted;
#[path = "mount/mounts.rs"]
#[allow(dead_code, reason = "the suite of mounts uses the rest")]
mod mounts;
#[path = "faults/once.rs"]
mod once;
#[path = "once/operations.rs"]
mod operations;
#[path = "faults/program.rs"]
mod program;
#[path = "faults/testbed.rs"]
#[allow(dead_code, reason = "the soak uses the rest")]
mod testbed;
