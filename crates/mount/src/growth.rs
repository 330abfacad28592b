//! How long a file is told to be while a write past the kernel's pages makes it longer.
//!
//! The kernel counts such a write in once it is answered. Told of the new size before, by
//! attributes, it cuts its pages there, and that may take until some page has been read: long
//! enough for the write to end and for another, through the pages, to have put data behind that
//! size, which are then zeroed before they are sent. A write through the pages needs none of this,
//! as the kernel takes no size while one is under way.

use crate::inode::Inode;
use std::sync::Arc;

/// Writes that make a file longer, and are not answered.
#[derive(Debug, Default)]
pub(crate) struct Growth {
    writes: u32,
    /// Where the file ended before the first of them.
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

    /// Where the file ended before; nothing where none makes it longer.
    pub(crate) fn since(&self) -> Option<u64> {
        (self.writes > 0).then_some(self.from)
    }

    /// As much of a size as the kernel may be told.
    pub(crate) fn known_of(&self, size: u64) -> u64 {
        self.since().map_or(size, |from| size.min(from))
    }
}

/// A write that makes a file longer. To be dropped before the write is answered: by then the kernel
/// knows.
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
