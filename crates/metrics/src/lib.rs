//! What a running process counts, in the form in which others see it: operations by dimension
//! ([`Operations`]), paths and gauges, together a [`Snapshot`].
//!
//! A server, a mount and a bench fill the same types. `trunkline top` and the metrics page compute
//! the difference of two snapshots ([`Interval`]), and [`History`] keeps that of each second;
//! Prometheus gets one as text ([`prometheus`]).
//!
//! Pure: no clock, no I/O. It does not know how anything was counted.
#![forbid(unsafe_code)]

pub mod history;
pub mod interval;
pub mod key;
pub mod latency;
pub mod operations;
pub mod prometheus;
pub mod snapshot;

pub use history::History;
pub use interval::{FileActivity, Interval, IntervalError, PathActivity, Rates};
pub use key::{Dimension, Key, OTHER_CLIENTS, SizeClass};
pub use latency::Latency;
pub use operations::{Operations, Tally};
pub use snapshot::{FORMAT, Files, Gauge, Kind, LoopTime, PathState, Process, Snapshot, SnapshotError};
