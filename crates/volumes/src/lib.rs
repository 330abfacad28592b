//! Block volumes: what an NVMe controller reads and writes, behind one interface.
//!
//! - [`RangeLock`] orders commands that touch the same blocks, over all controllers of a volume.
//!
//! This crate knows neither NVMe nor a connection: a command names its owner by a number.
#![forbid(unsafe_code)]

pub mod range_lock;

pub use range_lock::{Access, Acquired, Owner, RangeLock, Refusal, Ticket};
