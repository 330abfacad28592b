//! Payload in transit: out of a store as a [`Segment`], into it as a [`ReceiveBuffer`].

use crate::dir::Mapped;
use crate::mem;
use memory::{Buffer, Piece, Registrar, Scatter};
use smallvec::SmallVec;
use std::io::{IoSlice, IoSliceMut};

/// Bytes of a file, on their way out.
///
/// A segment of a memory store is a view of the store's own pages, and may outlive the store; other
/// segments are buffers that return to their pool. Neither changes until dropped, and
/// [`Segment::as_bytes`] gives their bytes.
///
/// A loop with a receive batch ([`ReceiveBatch`](crate::ReceiveBatch)) may also be given the mapped
/// pages of a file, which only the kernel may access: they hold the file's content at the time they
/// are sent, or are gone by then, and a read in this process would end it by a signal. They have no
/// bytes for this process, only a place in a gathered send ([`Segment::for_kernel`]).
pub struct Segment(Bytes);

impl std::fmt::Debug for Segment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}

enum Bytes {
    Pinned(mem::PinnedBytes),
    Read(Buffer),
    Mapped(Mapped),
}

impl Segment {
    /// The length in bytes.
    #[must_use]
    #[inline]
    #[allow(clippy::len_without_is_empty)] // There is no empty segment.
    pub fn len(&self) -> usize {
        match &self.0 {
            Bytes::Pinned(pinned) => pinned.len(),
            Bytes::Read(buffer) => buffer.len(),
            Bytes::Mapped(mapped) => mapped.len(),
        }
    }

    /// The bytes; `None` for pages that only the kernel may access.
    #[must_use]
    #[inline]
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match &self.0 {
            Bytes::Pinned(pinned) => Some(pinned),
            Bytes::Read(buffer) => Some(buffer),
            Bytes::Mapped(_) => None,
        }
    }

    /// The bytes, and how a device addresses them, where it is given and they can be registered;
    /// `None` for pages that only the kernel may access. A caller that gives them to a device keeps
    /// the segment until the device is done.
    #[must_use]
    pub fn piece(&self, with: Option<&Registrar>) -> Option<Piece<'_>> {
        let registered = with.and_then(|with| match &self.0 {
            Bytes::Pinned(pinned) => pinned.registered(with),
            Bytes::Read(buffer) => buffer.registered(with),
            Bytes::Mapped(_) => None,
        });
        Some(Piece { bytes: self.as_bytes()?, registered })
    }

    /// The memory, for a system call that gathers and for nothing else: a call whose pages are gone
    /// fails with `EFAULT`.
    #[must_use]
    #[inline]
    pub fn for_kernel(&self) -> IoSlice<'_> {
        match &self.0 {
            Bytes::Pinned(pinned) => IoSlice::new(pinned),
            Bytes::Read(buffer) => IoSlice::new(buffer),
            Bytes::Mapped(mapped) => mapped.for_kernel(),
        }
    }
}

impl From<mem::PinnedBytes> for Segment {
    #[inline]
    fn from(pinned: mem::PinnedBytes) -> Self {
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
pub struct ReceiveBuffer(pub(crate) Backing);

pub(crate) enum Backing {
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
            Backing::Pages(pages) => pages.offset(),
            Backing::Buffer(_, offset) => *offset,
        }
    }

    /// The length of the buffer in bytes.
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // There is no empty buffer.
    pub fn len(&self) -> usize {
        match &self.0 {
            Backing::Pages(pages) => pages.len(),
            Backing::Buffer(buffer, _) => buffer.len(),
        }
    }

    /// Appends the memory as a device addresses it; false where some of it cannot be registered.
    /// A caller that has a device fill the buffer keeps it, and leaves it alone, until the device
    /// is done.
    #[must_use]
    pub fn registered(&mut self, with: &Registrar, out: &mut Scatter) -> bool {
        match &mut self.0 {
            Backing::Pages(pages) => pages.registered(with, out),
            Backing::Buffer(buffer, _) => {
                let part = buffer.registered(with);
                out.extend(part);
                part.is_some()
            }
        }
    }

    /// Appends the slices of memory still to be filled, after the first `from` bytes have been
    /// received.
    pub fn unfilled<'a>(&'a mut self, from: usize, out: &mut SmallVec<[IoSliceMut<'a>; 20]>) {
        match &mut self.0 {
            Backing::Pages(pages) => pages.unfilled(from, out),
            Backing::Buffer(buffer, _) => {
                out.extend(buffer.get_mut(from..).filter(|rest| !rest.is_empty()).map(IoSliceMut::new));
            }
        }
    }
}
