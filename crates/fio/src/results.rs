//! fio's JSON results (`--output-format=json` and `json+` of fio 3.33): written, and read into a
//! record.
//!
//! Only what fio's own readers and a record need is here: bytes, operations, times and latencies by
//! direction. Fields that were not measured are zero, as fio writes them.

mod bins;
mod latency_log;
mod moved;
mod read;
mod write;

pub use latency_log::{COARSENESS, Interval, latency_log};
pub use moved::{JobMoved, Moved, jobs};
pub use read::{Host, Imported, ReadError, is_of_fio, json, read, read_of};
pub use write::{JobResult, Results, write};

#[cfg(test)]
mod tests;
