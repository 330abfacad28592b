//! What is behind an export: one interface, [`Store`], and the stores that fill it.
//!
//! The interface speaks of a POSIX tree, not of a protocol: the server maps [`Attributes`] and
//! [`Error`] to the wire. Every operation is synchronous; a store whose operations may wait for a
//! device says so with [`Store::may_block`], and the server then runs them away from its loops.
//!
//! A memory store never copies payload on its way out: a read gives [`Segment`]s, pinned views of
//! its own memory. On its way in it may be received straight into a [`ReceiveBuffer`] and swapped
//! in when complete.

mod buffer;
pub mod dir;
pub mod interface;
pub mod mem;
mod payload;

pub use dir::{DirOptions, DirStore, OpenError, ReceiveBatch, distrust, keep_identity};
pub use interface::{
    Attributes, Caller, Change, DirectoryEnd, Entry, Error, Kind, Limits, NAME_BYTES_MAX, NewObject,
    ObjectId, ReadEnd, Result, SetAttributes, SetTime, Space, Stability, Store, Time, WeakAttributes,
    Written,
};
pub use mem::MemStore;
pub use payload::{ReceiveBuffer, Segment};
