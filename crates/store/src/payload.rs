//! Payload on its way: out of a store as a [`Segment`], into it as a [`ReceiveBuffer`].

use crate::buffer::Buffer;
use crate::dir::Mapped;
use crate::mem;
use smallvec::SmallVec;
use std::io::IoSliceMut;
use std::ops::Deref;

/// Bytes of a file that stay as they are until dropped.
///
/// Of a memory store they are a view of its own pages, and may outlive the store; else they are a
/// buffer that goes back to its pool.
///
/// A loop that said so ([`ReceiveBatch`](crate::ReceiveBatch)) may also be given the mapped pages
/// of a file. Those it hands to the kernel and does not look at: they are the file's as it is when
/// they are sent, or gone by then, which only the kernel survives.
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
/// Dropped, it gives its memory back and changes nothing. Whoever hands it to
/// [`Store::write_landed`](crate::Store::write_landed) has filled all of it: what was not filled
/// holds what the memory held before.
pub struct ReceiveBuffer(pub(crate) Place);

pub(crate) enum Place {
    /// Fresh pages of a memory store, which will be swapped in.
    Pages(mem::Pages),
    /// A buffer to write from, and the offset it is for.
    Buffer(Buffer, u64),
}

impl ReceiveBuffer {
    /// Where in the file the bytes go.
    #[must_use]
    pub fn offset(&self) -> u64 {
        match &self.0 {
            Place::Pages(pages) => pages.offset(),
            Place::Buffer(_, offset) => *offset,
        }
    }

    /// How many bytes it takes.
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // There is no empty landing.
    pub fn len(&self) -> usize {
        match &self.0 {
            Place::Pages(pages) => pages.len(),
            Place::Buffer(buffer, _) => buffer.len(),
        }
    }

    /// Appends the slices of memory still to be filled, when the first `from` bytes are in.
    pub fn unfilled<'a>(&'a mut self, from: usize, out: &mut SmallVec<[IoSliceMut<'a>; 20]>) {
        match &mut self.0 {
            Place::Pages(pages) => pages.unfilled(from, out),
            Place::Buffer(buffer, _) => {
                out.extend(buffer.get_mut(from..).filter(|rest| !rest.is_empty()).map(IoSliceMut::new));
            }
        }
    }
}
