//! The size of a file that the kernel may be told while a write past its pages makes the file
//! longer.
//!
//! The kernel counts such a write in once it is answered. If attributes tell it the new size
//! earlier, it truncates its pages there, and that may take until some page has been read: long
//! enough for the write to end and for another write, through the pages, to have put data behind
//! that size, which are then zeroed before they are sent. A write through the pages needs none of
//! this, because the kernel accepts no size while such a write is under way.

use crate::inode::Inode;
use std::sync::Arc;

/// Writes that make a file longer and are not answered yet.
#[derive(Debug, Default)]
pub(crate) struct Growth {
    writes: u32,
    /// The size of the file before the first of them.
    from: u64,
}

impl Growth {
    pub(crate) const fn begin(&mut self, before: u64) {
        if self.writes == 0 {
            self.from = before;
        }
        self.writes += 1;
    }

    const fn end(&mut self) {
        self.writes -= 1;
    }

    /// The size of the file before; `None` if no write makes it longer.
    pub(crate) fn since(&self) -> Option<u64> {
        (self.writes > 0).then_some(self.from)
    }

    /// The part of a size that the kernel may be told.
    pub(crate) fn known_of(&self, size: u64) -> u64 {
        self.since().map_or(size, |from| size.min(from))
    }
}

/// A write that makes a file longer. Must be dropped before the write is answered: after that the
/// kernel knows the size.
#[derive(Debug)]
pub(crate) struct Growing(pub(crate) Arc<Inode>);

impl Drop for Growing {
    fn drop(&mut self) {
        self.0.lock().growth.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_grows_is_as_long_as_it_was_until_the_last_write_is_answered() {
        let mut growth = Growth::default();
        assert_eq!((growth.since(), growth.known_of(7)), (None, 7));
        growth.begin(100);
        growth.begin(150);
        assert_eq!((growth.known_of(200), growth.known_of(60)), (100, 60));
        growth.end();
        assert_eq!(growth.known_of(200), 100);
        growth.end();
        assert_eq!(growth.known_of(200), 200);
        growth.begin(200);
        assert_eq!(growth.since(), Some(200));
    }
}
