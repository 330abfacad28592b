//! Reusable buffers, for stores whose data come from system calls.
//!
//! A buffer is zeroed once, when it is allocated, and keeps the bytes of its last use: its user
//! must fill the bytes that it exposes. Kept buffers are bounded here; buffers in use are bounded
//! by their users.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};

/// The sizes buffers come in: of small, usual and the largest transfers.
const CLASSES: [usize; 4] = [4 << 10, 64 << 10, 256 << 10, 1 << 20];
/// The most bytes of kept buffers in each class: as many of the largest transfers as one connection
/// may have in flight.
const KEPT_BYTES_MAX: usize = 64 << 20;

/// Buffers kept for reuse.
#[derive(Debug, Default)]
pub(crate) struct Buffers([Mutex<Vec<Box<[u8]>>>; CLASSES.len()]);

impl Buffers {
    /// A buffer that exposes `len` bytes of unspecified content.
    pub fn take(self: &Arc<Self>, len: usize) -> Buffer {
        let class = CLASSES.iter().position(|bytes| len <= *bytes);
        let kept = class.and_then(|class| self.0.get(class)).and_then(|kept| {
            let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.pop()
        });
        let bytes = class.and_then(|class| CLASSES.get(class).copied()).unwrap_or(len);
        let whole = kept.unwrap_or_else(|| vec![0; bytes].into_boxed_slice());
        Buffer { whole, len, home: Arc::clone(self) }
    }

    /// Returns half of the kept buffers to the system; called while the store is idle.
    pub fn shrink(&self) {
        for kept in &self.0 {
            let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            let half = kept.len() / 2;
            kept.truncate(half);
        }
    }

    fn put(&self, whole: Box<[u8]>) {
        let Some(class) = CLASSES.iter().position(|bytes| *bytes == whole.len()) else { return };
        let Some(kept) = self.0.get(class) else { return };
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        if (kept.len() + 1) * whole.len() <= KEPT_BYTES_MAX {
            kept.push(whole);
        }
    }
}

/// One buffer; dropping it returns it to its pool.
pub(crate) struct Buffer {
    whole: Box<[u8]>,
    len: usize,
    home: Arc<Buffers>,
}

impl Buffer {
    /// Exposes fewer bytes.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.whole.get(..self.len).unwrap_or_default()
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.whole.get_mut(..self.len).unwrap_or_default()
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.home.put(std::mem::take(&mut self.whole));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_and_is_used_again() {
        let buffers = Arc::new(Buffers::default());
        let mut first = buffers.take(5000);
        first[4999] = 7;
        let place = first.as_ptr();
        first.truncate(10);
        assert_eq!(first.len(), 10);
        drop(first);
        let again = buffers.take(6000);
        assert_eq!((again.as_ptr(), again.len()), (place, 6000));
        assert_eq!(buffers.take(3 << 20).len(), 3 << 20, "above the classes, made for the occasion");
    }

    #[test]
    fn no_more_is_kept_than_the_bound() {
        let buffers = Arc::new(Buffers::default());
        let out: Vec<Buffer> = (0..70).map(|_| buffers.take(1 << 20)).collect();
        drop(out);
        assert_eq!(buffers.0[3].lock().unwrap().len(), KEPT_BYTES_MAX >> 20);
        buffers.shrink();
        assert_eq!(buffers.0[3].lock().unwrap().len(), KEPT_BYTES_MAX >> 21);
    }
}
