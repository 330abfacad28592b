//! Reused memory for READs and WRITEs. Fresh memory would have to be mapped and zeroed for each
//! long request, and allocated and zeroed for each short one.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};

/// For a shorter buffer, fresh memory costs less.
const SHORT_BYTES_MIN: usize = 1 << 10;
/// The smallest capacity of a short buffer, whatever is asked for, so that the next request can
/// reuse it.
const SHORT_BYTES: usize = 16 << 10;
/// The smallest long buffer. A request between the two sizes gets fresh memory, which is reused as
/// a short buffer.
const LONG_BYTES_MIN: usize = 64 << 10;
/// The most bytes that are kept for later requests.
const POOLED_SHORT_BYTES_MAX: usize = 2 << 20;
const POOLED_LONG_BYTES_MAX: usize = 32 << 20;

/// Memory that is not in use.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    short: Pool<POOLED_SHORT_BYTES_MAX>,
    long: Pool<POOLED_LONG_BYTES_MAX>,
}

/// Memory of one kind, up to a limit in bytes.
#[derive(Debug, Default)]
struct Pool<const BYTES_MAX: usize>(Mutex<FreeList>);

#[derive(Debug, Default)]
struct FreeList {
    free: Vec<Vec<u8>>,
    bytes: usize,
}

impl<const BYTES_MAX: usize> Pool<BYTES_MAX> {
    fn bytes(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).bytes
    }

    fn take(&self) -> Option<Vec<u8>> {
        let mut pooled = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = pooled.free.pop()?;
        pooled.bytes -= bytes.capacity();
        Some(bytes)
    }

    fn put(&self, bytes: Vec<u8>) {
        let mut pooled = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if pooled.bytes + bytes.capacity() <= BYTES_MAX {
            pooled.bytes += bytes.capacity();
            pooled.free.push(bytes);
        }
    }
}

/// Bytes whose memory returns to the pool when they are dropped.
#[derive(Debug)]
pub(crate) struct Buffer {
    bytes: client::Buffer,
    pool: Arc<Buffers>,
}

impl Buffers {
    /// Returns a buffer of `len` bytes with unspecified content.
    pub(crate) fn take(&self, len: usize) -> Vec<u8> {
        let mut bytes = match len {
            SHORT_BYTES_MIN..=SHORT_BYTES => {
                self.short.take().unwrap_or_else(|| Vec::with_capacity(SHORT_BYTES))
            }
            LONG_BYTES_MIN.. => match self.long.take() {
                Some(bytes) => bytes,
                None => return vec![0; len],
            },
            _ => return vec![0; len],
        };
        bytes.resize(len, 0);
        bytes
    }

    /// The number of bytes that the pool keeps.
    pub(crate) fn pooled_bytes(&self) -> usize {
        self.short.bytes() + self.long.bytes()
    }

    /// Copies bytes into memory of the pool.
    pub(crate) fn copy_of(&self, bytes: &[u8]) -> Vec<u8> {
        let mut copy = self.take(bytes.len());
        copy.copy_from_slice(bytes);
        copy
    }

    /// Wraps bytes so that their memory goes to this pool when they are dropped, or to the client
    /// if it is from there.
    pub(crate) fn own(self: &Arc<Self>, bytes: impl Into<client::Buffer>) -> Buffer {
        Buffer { bytes: bytes.into(), pool: Arc::clone(self) }
    }
}

impl Buffer {
    /// Keeps the first bytes only.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.bytes.truncate(len);
    }

    /// The bytes as memory that can grow.
    pub(crate) fn growing(&mut self) -> &mut Vec<u8> {
        self.bytes.on_heap()
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        if bytes.is_registrable() {
            return;
        }
        let bytes = bytes.into_vec();
        match bytes.capacity() {
            SHORT_BYTES..LONG_BYTES_MIN => self.pool.short.put(bytes),
            LONG_BYTES_MIN.. => self.pool.long.put(bytes),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again_and_no_more_is_kept_than_its_bound() {
        let buffers = Arc::new(Buffers::default());
        let bytes = buffers.take(1 << 20);
        let address = bytes.as_ptr();
        drop(buffers.own(bytes));
        let again = buffers.take(100_000);
        assert_eq!((again.as_ptr(), again.len()), (address, 100_000));
        let all: Vec<Buffer> = (0..64).map(|_| buffers.own(buffers.take(1 << 20))).collect();
        drop(all);
        assert_eq!(buffers.long.0.lock().unwrap().free.len(), POOLED_LONG_BYTES_MAX >> 20);
    }

    #[test]
    fn short_ones_are_kept_by_themselves() {
        let buffers = Arc::new(Buffers::default());
        let bytes = buffers.take(4096);
        let address = bytes.as_ptr();
        drop(buffers.own(bytes));
        let long = buffers.take(LONG_BYTES_MIN);
        assert_ne!(long.as_ptr(), address);
        drop(buffers.own(long));
        let again = buffers.take(SHORT_BYTES);
        assert_eq!((again.as_ptr(), again.len()), (address, SHORT_BYTES));
        let all: Vec<Buffer> = (0..1000).map(|_| buffers.own(buffers.take(4096))).collect();
        drop(all);
        assert_eq!(buffers.short.0.lock().unwrap().free.len(), POOLED_SHORT_BYTES_MAX / SHORT_BYTES);
    }

    #[test]
    fn a_short_read_leaves_its_memory_long() {
        let buffers = Arc::new(Buffers::default());
        let mut bytes = buffers.take(1 << 20);
        bytes.fill(7);
        bytes.truncate(5);
        drop(buffers.own(bytes));
        let again = buffers.take(1 << 20);
        assert_eq!((again.len(), again.get(5)), (1 << 20, Some(&0)));
        assert_eq!(buffers.take(10), [0; 10]);
    }
}
