//! Files whose pages and attributes the kernel is to drop.
//!
//! One thread tells it so, and none that a request waits for: the kernel may first have to finish a read of such a file,
//! which waits for us. A file that is wished for again meanwhile is told once more after that.

use fuser::{INodeNo, Notifier};
use std::collections::BTreeSet;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    wishes: Mutex<Wishes>,
    some: Condvar,
}

#[derive(Debug, Default)]
struct Wishes {
    inodes: BTreeSet<u64>,
    closed: bool,
}

impl Notices {
    fn lock(&self) -> MutexGuard<'_, Wishes> {
        self.wishes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The kernel shall drop what it has of a file.
    pub(crate) fn wish(&self, ino: u64) {
        self.lock().inodes.insert(ino);
        self.some.notify_one();
    }

    /// Tells the kernel of what is wished, until [`Notices::close`].
    pub(crate) fn tell(&self, notifier: &Notifier) {
        while let Some(ino) = self.next() {
            if let Err(error) = notifier.inval_inode(INodeNo(ino), 0, 0) {
                tracing::debug!(ino, %error, "the kernel dropped no pages");
            }
        }
    }

    fn next(&self) -> Option<u64> {
        let mut wishes = self.lock();
        loop {
            if wishes.closed {
                return None;
            }
            if let Some(ino) = wishes.inodes.pop_first() {
                return Some(ino);
            }
            wishes = self.some.wait(wishes).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Ends the thread that tells, once it has no notice under way.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.some.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_told_once_however_often_it_is_wished_before() {
        let notices = Notices::default();
        for ino in [7, 7, 3, 7] {
            notices.wish(ino);
        }
        assert_eq!((notices.next(), notices.next()), (Some(3), Some(7)));
        notices.wish(7);
        assert_eq!(notices.next(), Some(7));
        notices.close();
        assert_eq!(notices.next(), None);
    }
}
