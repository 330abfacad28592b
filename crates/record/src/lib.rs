//! What an experiment measured: the record's types, its JSON, histograms and statistics.
//!
//! `bench` fills a [`Record`] and writes it; `report` only reads it. docs/RECORD.md describes each
//! field. Pure: no I/O, no clock, no threads; time and randomness come in as arguments.
//!
//! Invariants: a record of another major version is refused; fields that a newer build added are
//! ignored; what [`Record::write`] returns can be read again, even where a computed number was not
//! finite.

#![forbid(unsafe_code)]

mod cell;
mod environment;
mod json;
mod latency;
mod limits;
mod model;
mod rng;
pub mod stats;
mod time;
mod verdict;

pub use cell::{Binding, Cell, CpuPerByte, CpuPerOp, LatencyUs, Repeat, Stage};
pub use environment::{Environment, Experiment, Pattern, Procedure, Shape};
pub use json::Error;
pub use latency::Latency;
pub use limits::{Calibration, LIMIT_TOLERANCE, Try};
pub use model::{
    Counters, Direction, Half, Pace, PathCounters, PortCounters, Record, Route, VERSION, Verified, Workload,
};
pub use rng::SplitMix64;
pub use time::rfc3339;
pub use verdict::{Comparison, Measure, Verdict};
