//! The storage behind an export: one interface, [`Store`], and its implementations.
//!
//! The interface describes a POSIX tree, not a protocol. It uses the types of [`fs`], which the
//! server maps to the wire. Every operation is synchronous; a store whose operations may wait for a
//! device says so with [`Store::may_block`], and the server then runs them in its worker pool.
//!
//! A memory store never copies payload for a read: a read returns [`Segment`]s, pinned views of the
//! store's own memory. Payload of a write may be received straight into a [`ReceiveBuffer`] and
//! swapped in when complete.

pub mod dir;
pub mod interface;
pub mod mem;
mod payload;

pub use dir::{DirOptions, DirStore, OpenError, ReceiveBatch, distrust, keep_identity};
pub use interface::{
    Attempt, Attributes, Caller, Capabilities, CreateMode, Device, DirectoryEnd, Effect, Entry, FileKind,
    Found, Limits, NAME_BYTES_MAX, NewObject, ObjectId, ReadEnd, Result, Rights, Seek, SetAttributes,
    SetTime, SetXattr, Sought, Space, Special, Stability, Status, Store, Time, Version, Wait, WouldBlock,
    Written, XATTR_NAME_BYTES_MAX, XATTR_VALUE_BYTES_MAX,
};
pub use mem::MemStore;
pub use payload::{ReceiveBuffer, Segment};
