//! Memory for long READs and WRITEs, used again: fresh memory would have to be mapped and zeroed for each.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A shorter one costs less in fresh memory.
const LONG_BYTES_MIN: usize = 64 << 10;
/// What is kept for the next ones at most.
const KEPT_BYTES_MAX: usize = 32 << 20;

/// Memory that is not in use.
#[derive(Debug, Default)]
pub(crate) struct Buffers(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    free: Vec<Vec<u8>>,
    bytes: usize,
}

/// Bytes whose memory goes back when they are dropped.
#[derive(Debug)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    home: Arc<Buffers>,
}

impl Buffers {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Memory of so many bytes, whatever they hold.
    pub(crate) fn take(&self, len: usize) -> Vec<u8> {
        if len < LONG_BYTES_MIN {
            return vec![0; len];
        }
        let mut kept = self.lock();
        let Some(mut bytes) = kept.free.pop() else {
            drop(kept);
            return vec![0; len];
        };
        kept.bytes -= bytes.capacity();
        drop(kept);
        bytes.resize(len, 0);
        bytes
    }

    /// The same bytes, in memory of their own.
    pub(crate) fn copy_of(&self, bytes: &[u8]) -> Vec<u8> {
        if bytes.len() < LONG_BYTES_MIN {
            return bytes.to_vec();
        }
        let mut copy = self.take(bytes.len());
        copy.copy_from_slice(bytes);
        copy
    }

    /// Bytes that are kept, and known by this pool from now on.
    pub(crate) fn own(self: &Arc<Self>, bytes: Vec<u8>) -> Buffer {
        Buffer { bytes, home: Arc::clone(self) }
    }
}

impl Deref for Buffer {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        &self.bytes
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let capacity = self.bytes.capacity();
        if capacity < LONG_BYTES_MIN {
            return;
        }
        let mut kept = self.home.lock();
        if kept.bytes + capacity <= KEPT_BYTES_MAX {
            kept.bytes += capacity;
            kept.free.push(std::mem::take(&mut self.bytes));
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
        let place = bytes.as_ptr();
        drop(buffers.own(bytes));
        let again = buffers.take(100_000);
        assert_eq!((again.as_ptr(), again.len()), (place, 100_000));
        let all: Vec<Buffer> = (0..64).map(|_| buffers.own(buffers.take(1 << 20))).collect();
        drop(all);
        assert!(buffers.lock().bytes <= KEPT_BYTES_MAX);
        assert_eq!(buffers.lock().free.len(), KEPT_BYTES_MAX >> 20);
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
