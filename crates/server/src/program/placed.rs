//! A WRITE whose data are received directly into memory of its store.
//!
//! Its arguments are decoded once, when the receive buffer is chosen, and kept beside the buffer in
//! the types of `fs`: so neither transports nor workers know a protocol version.

use fs::{FileHandle, Stability};
use store::ReceiveBuffer;

/// The arguments of a WRITE, except its data.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WriteHead {
    pub file: FileHandle,
    pub offset: u64,
    /// The number of bytes of the data.
    pub count: u32,
    pub stability: Stability,
}

/// See the module's documentation.
pub(crate) struct PlacedWrite {
    pub head: WriteHead,
    /// Memory for exactly the bytes that `head` announces.
    pub buffer: ReceiveBuffer,
}
