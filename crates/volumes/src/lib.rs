//! Block volumes: what an NVMe controller reads and writes, behind one interface.
//!
//! - [`Volume`] is a number of logical blocks on a [`drives::Drive`], with an identity that its
//!   owner
//!   gives.
//! - [`Queue`] belongs to one loop and takes [`Command`]s for any number of volumes. A
//!   [turn](Queue::turn) of it starts what may start and gives the [`Event`]s; nothing waits.
//! - [`RangeLock`] orders commands that touch the same blocks, over all queues and so over all
//!   controllers of a volume.
//!
//! Invariants: a command is checked before anything happens; of two commands that touch the same
//! blocks and of which one writes, the one that arrived first is executed first, and wholly; a
//! command that was cancelled has done nothing; the blocks of a command stay locked until no device
//! executes it any more.
//!
//! This crate knows neither NVMe nor a connection: a command names its owner, which stands for a
//! connection of a controller.
#![forbid(unsafe_code)]

mod command;
mod queue;
pub mod range_lock;
mod statistics;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod volume;

pub use command::{Command, Event, Fault, RANGES_MAX, Refusal, Rejected};
pub use queue::Queue;
pub use range_lock::{Access, Acquired, Owner, RangeLock, Ticket};
pub use statistics::IoCounts;
pub use volume::{BlockSize, Error, Identity, Volume};

pub use drives::{Choice, Engine, Payload, Segment};
