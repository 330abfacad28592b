//! The memory of a READ or a WRITE.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use memory::{Buffers, Registered, Registrar};

/// Shorter payload is copied over RDMA: to bind a memory window, to invalidate it and to wait for
/// that takes a device longer than this machine needs to copy so much.
const REGISTRABLE_BYTES_MIN: usize = 64 << 10;

/// The memory of a READ or a WRITE: bytes of the heap (`Vec<u8>`, by [`From`]), or memory that an
/// RDMA device can be given ([`Mount::buffer`](crate::Mount::buffer)). Over RDMA a server reads and
/// writes the latter where it is, and the former is copied; over TCP there is no difference.
#[derive(Default)]
pub struct Buffer(Memory);

enum Memory {
    Heap(Vec<u8>),
    Registrable(memory::Buffer),
}

impl Default for Memory {
    fn default() -> Self {
        Self::Heap(Vec::new())
    }
}

impl Buffer {
    /// A buffer of `len` bytes with unspecified content, if the length is worth it.
    pub(crate) fn registrable(pool: &Arc<Buffers>, len: usize) -> Option<Self> {
        (len >= REGISTRABLE_BYTES_MIN).then(|| Self(Memory::Registrable(pool.take(len))))
    }

    /// Shortens the buffer.
    pub fn truncate(&mut self, len: usize) {
        match &mut self.0 {
            Memory::Heap(bytes) => bytes.truncate(len),
            Memory::Registrable(bytes) => bytes.truncate(len),
        }
    }

    /// The bytes on the heap: a copy if they are not there.
    #[must_use]
    pub fn into_vec(self) -> Vec<u8> {
        match self.0 {
            Memory::Heap(bytes) => bytes,
            Memory::Registrable(bytes) => bytes.to_vec(),
        }
    }

    /// The bytes on the heap, where they are copied to if they are not there.
    pub fn on_heap(&mut self) -> &mut Vec<u8> {
        if let Memory::Registrable(bytes) = &self.0 {
            self.0 = Memory::Heap(bytes.to_vec());
        }
        match &mut self.0 {
            Memory::Heap(bytes) => bytes,
            Memory::Registrable(_) => unreachable!("it was replaced just now"),
        }
    }

    /// Whether an RDMA device can be given this memory.
    #[must_use]
    pub const fn is_registrable(&self) -> bool {
        matches!(self.0, Memory::Registrable(_))
    }

    /// The bytes from `from` on, as a device addresses them; `None` where they cannot be registered
    /// or are too few.
    pub(crate) fn registered(&self, from: usize, with: &Registrar) -> Option<Registered> {
        let Memory::Registrable(bytes) = &self.0 else { return None };
        let left = bytes.len().checked_sub(from).filter(|left| *left >= REGISTRABLE_BYTES_MIN)?;
        Some(bytes.registered(with)?.part(from, left))
    }
}

impl From<Vec<u8>> for Buffer {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Memory::Heap(bytes))
    }
}

impl Deref for Buffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Memory::Heap(bytes) => bytes,
            Memory::Registrable(bytes) => bytes,
        }
    }
}

impl DerefMut for Buffer {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Memory::Heap(bytes) => bytes,
            Memory::Registrable(bytes) => bytes,
        }
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl<T: AsRef<[u8]> + ?Sized> PartialEq<T> for Buffer {
    fn eq(&self, other: &T) -> bool {
        **self == *other.as_ref()
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_has_the_same_bytes_wherever_they_are() {
        let pool = Arc::new(Buffers::apart());
        assert!(Buffer::registrable(&pool, REGISTRABLE_BYTES_MIN - 1).is_none());
        let long = Buffer::registrable(&pool, REGISTRABLE_BYTES_MIN).unwrap();
        let heap = Buffer::from(vec![0; REGISTRABLE_BYTES_MIN]);
        assert!(long.is_registrable() && !heap.is_registrable());
        for mut buffer in [long, heap] {
            assert_eq!(buffer.len(), REGISTRABLE_BYTES_MIN);
            buffer.fill(7);
            buffer.truncate(100);
            assert_eq!(buffer, [7; 100]);
            assert_eq!(buffer.into_vec(), [7; 100]);
        }
    }
}
