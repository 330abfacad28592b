//! The record of an experiment: its types, JSON, histograms and statistics.
//!
//! `bench` fills a [`Record`] and writes it; `report` only reads it. docs/RECORD.md describes each
//! field. The crate is pure: it has no I/O, clock or threads; time and randomness are arguments.
//!
//! Invariants: a record of another version is refused; unknown fields, from newer builds, are
//! ignored; the text of [`Record::write`] can always be read again, even if a computed number was
//! not finite.

#![forbid(unsafe_code)]

mod cell;
pub mod clients;
mod environment;
mod json;
mod latency;
mod latency_over_time;
mod limits;
mod model;
pub mod number;
mod rng;
pub mod stats;
pub mod steps;
mod time;
mod verdict;

pub use cell::{Binding, Cell, CpuPerByte, CpuPerOp, LatencyUs, Repeat, RepeatThroughput, Stage, Throughput};
pub use clients::ClientResult;
pub use environment::{Environment, Experiment, Pattern, Procedure, Shape};
pub use json::Error;
pub use latency::Latency;
pub use latency_over_time::{LatencyCounts, LatencyOverTime, RepeatLatency, bin_start_us};
pub use limits::{Calibration, LIMIT_SECONDS_MIN, LIMIT_TOLERANCE, Try};
pub use model::{
    Counters, Direction, Half, Pace, PathCounters, PortCounters, Record, Route, Step, VERSION, Verified,
    Workload,
};
pub use rng::SplitMix64;
pub use time::rfc3339;
pub use verdict::{Comparison, Measure, Verdict};
