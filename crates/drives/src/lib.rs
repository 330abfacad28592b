//! Memory, files and block devices behind one queue.
//!
//! - [`Drive`] is what bytes are on: [memory](Drive::memory), or a [file or block
//!   device](Drive::open). [`Info`] says what it is and what it promises.
//! - [`Queue`] belongs to one thread, usually an event loop, and takes operations for any number of
//!   drives. Nothing in it waits for a device: completions are [reaped](Queue::reap), and its
//!   descriptor is readable while there are some.
//! - [`Payload`] is what is read and written: segments of pooled buffers or of the memory drive
//!   itself, so that payload is not copied on its way to a connection.
//!
//! Files and devices are read and written with `O_DIRECT`, through io_uring where the system
//! permits it, otherwise by worker threads. Both give the same results.
//!
//! Invariants: an operation is checked against the size and the alignment of its drive before
//! anything happens; the operations of a queue are bounded; memory that a device may still access
//! is never freed; a file or device is held by a lock of the open file that carries its operations.
//!
//! This crate does not order operations: overlapping ones that are under way at the same time may
//! be executed in any order. Nor does it know volumes or arrays.

mod disk;
mod drive;
mod error;
mod mem;
mod operation;
mod payload;
mod queue;
mod ring;
mod signature;
mod sys;
mod sysfs;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod waker;
mod workers;

pub use disk::open::How;
pub use drive::{Claim, Drive, Info, Kind, Warning};
pub use error::{Error, Result};
pub use operation::{Completion, Fault, Operation, Refusal, Rejected, TRANSFER_BYTES_MAX};
pub use payload::{Payload, Segment, payload_bytes};
pub use queue::{Choice, Engine, QUEUE_DEPTH_MAX, Queue};
pub use signature::Signature;
pub use waker::Waker;
