//! Bounds the bytes in flight of all files together.

use std::sync::{Condvar, Mutex, PoisonError};

/// Bytes in flight: enough for several large files at once, or for very many small ones.
pub(crate) const BYTES_MAX: usize = 192 << 20;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Budget {
    available: Mutex<usize>,
    released: Condvar,
}

impl Budget {
    pub(crate) const fn new() -> Self {
        Self { available: Mutex::new(BYTES_MAX), released: Condvar::new() }
    }

    /// Waits until this many bytes are free. A request above the whole budget waits for the whole
    /// budget.
    pub(crate) fn take(&self, bytes: usize) -> Reservation<'_> {
        let bytes = bytes.min(BYTES_MAX);
        let available = self.available.lock().unwrap_or_else(PoisonError::into_inner);
        let mut available = self
            .released
            .wait_while(available, |available| *available < bytes)
            .unwrap_or_else(PoisonError::into_inner);
        *available -= bytes;
        Reservation { budget: self, bytes }
    }
}

/// A part of the budget, returned when dropped.
#[derive(Debug)]
pub(crate) struct Reservation<'a> {
    budget: &'a Budget,
    bytes: usize,
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        *self.budget.available.lock().unwrap_or_else(PoisonError::into_inner) += self.bytes;
        self.budget.released.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_there_is_waits_for_all_of_it() {
        let budget = Budget::new();
        let first = budget.take(BYTES_MAX - 1);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| budget.take(usize::MAX).bytes);
            drop(first);
            assert_eq!(waiter.join().unwrap(), BYTES_MAX);
        });
        assert_eq!(*budget.available.lock().unwrap(), BYTES_MAX);
    }
}
