//! The file size that the kernel may receive while a write that bypasses its pages makes the file
//! longer.
//!
//! The kernel learns the new size from the reply to the write. If attributes have that size
//! earlier, it truncates its pages there. That may take long, because a page may have to be read
//! first. Meanwhile the write may end, and another write may put data behind that size into the
//! kernel's pages. The truncation then zeroes those data before they are sent. A write that uses
//! the kernel's pages does not need this, because the kernel accepts no size while such a write is
//! under way.

use crate::inode::Inode;
use std::sync::Arc;

/// The writes under way that make a file longer.
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

    /// The size of the file before these writes; `None` if there are none.
    pub(crate) fn size_before(&self) -> Option<u64> {
        (self.writes > 0).then_some(self.from)
    }

    /// The size that the kernel may receive, if the file has this size.
    pub(crate) fn visible_size(&self, size: u64) -> u64 {
        self.size_before().map_or(size, |from| size.min(from))
    }
}

/// A write that makes a file longer. Must be dropped before the write is answered, because with the
/// reply the kernel learns the size.
#[derive(Debug)]
pub(crate) struct GrowthGuard(pub(crate) Arc<Inode>);

impl Drop for GrowthGuard {
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
        assert_eq!((growth.size_before(), growth.visible_size(7)), (None, 7));
        growth.begin(100);
        growth.begin(150);
        assert_eq!((growth.visible_size(200), growth.visible_size(60)), (100, 60));
        growth.end();
        assert_eq!(growth.visible_size(200), 100);
        growth.end();
        assert_eq!(growth.visible_size(200), 200);
        growth.begin(200);
        assert_eq!(growth.size_before(), Some(200));
    }
}
