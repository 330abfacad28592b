//! Payload in transit: out of a store as a [`Segment`], into it as a [`ReceiveBuffer`].

use crate::buffer::Buffer;
use crate::dir::Mapped;
use crate::mem;
use smallvec::SmallVec;
use std::io::IoSliceMut;
use std::ops::Deref;

/// Bytes of a file that do not change until dropped.
///
/// A segment of a memory store is a view of the store's own pages, and may outlive the store; other
/// segments are buffers that return to their pool.
///
/// A loop with a receive batch ([`ReceiveBatch`](crate::ReceiveBatch)) may also be given the mapped
/// pages of a file. It passes those to the kernel and does not access them: they hold the file's
/// content at the time they are sent, or are gone by then, which only the kernel can handle.
pub struct Segment(Bytes);

impl std::fmt::Debug for Segment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}

enum Bytes {
    Pinned(mem::Pinned),
    Read(Buffer),
    Mapped(Mapped),
}

impl Deref for Segment {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Bytes::Pinned(pinned) => pinned,
            Bytes::Read(buffer) => buffer,
            Bytes::Mapped(mapped) => mapped.bytes(),
        }
    }
}

impl From<mem::Pinned> for Segment {
    #[inline]
    fn from(pinned: mem::Pinned) -> Self {
        Self(Bytes::Pinned(pinned))
    }
}

impl From<Mapped> for Segment {
    #[inline]
    fn from(mapped: Mapped) -> Self {
        Self(Bytes::Mapped(mapped))
    }
}

impl From<Buffer> for Segment {
    fn from(buffer: Buffer) -> Self {
        Self(Bytes::Read(buffer))
    }
}

/// Memory for one WRITE that is still being received.
///
/// Dropping it returns its memory and changes nothing. A caller of
/// [`Store::write_received`](crate::Store::write_received) has filled all of it: an unfilled part
/// holds what the memory held before.
pub struct ReceiveBuffer(pub(crate) Place);

pub(crate) enum Place {
    /// Fresh pages of a memory store, which will be swapped in.
    Pages(mem::Pages),
    /// A buffer to write from, and the offset it is for.
    Buffer(Buffer, u64),
}

impl ReceiveBuffer {
    /// The offset in the file at which the bytes are written.
    #[must_use]
    pub fn offset(&self) -> u64 {
        match &self.0 {
            Place::Pages(pages) => pages.offset(),
            Place::Buffer(_, offset) => *offset,
        }
    }

    /// The length of the buffer in bytes.
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // There is no empty landing.
    pub fn len(&self) -> usize {
        match &self.0 {
            Place::Pages(pages) => pages.len(),
            Place::Buffer(buffer, _) => buffer.len(),
        }
    }

    /// Appends the slices of memory still to be filled, after the first `from` bytes have been
    /// received.
    pub fn unfilled<'a>(&'a mut self, from: usize, out: &mut SmallVec<[IoSliceMut<'a>; 20]>) {
        match &mut self.0 {
            Place::Pages(pages) => pages.unfilled(from, out),
            Place::Buffer(buffer, _) => {
                out.extend(buffer.get_mut(from..).filter(|rest| !rest.is_empty()).map(IoSliceMut::new));
            }
        }
    }
}
