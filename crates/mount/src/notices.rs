//! Files of which the kernel is to drop pages, with their attributes.
//!
//! One thread tells it so, and none that a request waits for: the kernel may first have to finish a read or a write of such
//! pages, which waits for us. What is wished for a file meanwhile is told after that, in one. Until the kernel has heeded a
//! notice it may give out old pages to whoever does not ask for the file's attributes first; so those are given only after
//! it, and are to be asked for again each time until then.

use fuser::{INodeNo, Notifier};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    wishes: Mutex<Wishes>,
    some: Condvar,
}

/// Which bytes of a file the kernel is to drop.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Notice {
    ino: u64,
    range: Range<u64>,
    /// When the first of its wishes was made.
    number: u64,
}

#[derive(Debug, Default)]
struct Wishes {
    waiting: VecDeque<Notice>,
    telling: Option<Notice>,
    /// Counts wishes.
    number: u64,
    wakers: Vec<Waker>,
    closed: bool,
}

impl Wishes {
    /// Whether one of a file that was wished up to a number is not heeded yet.
    fn has(&self, ino: u64, number: u64) -> bool {
        let mut all = self.telling.iter().chain(&self.waiting);
        !self.closed && all.any(|notice| notice.ino == ino && notice.number <= number)
    }
}

impl Notices {
    fn lock(&self) -> MutexGuard<'_, Wishes> {
        self.wishes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The kernel shall drop what it has of a file.
    pub(crate) fn wish(&self, ino: u64) {
        self.wish_range(ino, 0..u64::MAX);
    }

    /// The kernel shall drop the pages of a range.
    pub(crate) fn wish_range(&self, ino: u64, range: Range<u64>) {
        let mut wishes = self.lock();
        wishes.number += 1;
        let number = wishes.number;
        match wishes.waiting.iter_mut().find(|notice| notice.ino == ino) {
            Some(Notice { range: all, .. }) => *all = all.start.min(range.start)..all.end.max(range.end),
            None => wishes.waiting.push_back(Notice { ino, range, number }),
        }
        drop(wishes);
        self.some.notify_one();
    }

    /// Whether the kernel is still to drop pages of a file.
    pub(crate) fn has_some_for(&self, ino: u64) -> bool {
        self.lock().has(ino, u64::MAX)
    }

    /// Waits until the kernel has dropped what was wished of a file by now.
    pub(crate) async fn heeded(&self, ino: u64) {
        let number = self.lock().number;
        std::future::poll_fn(|context| {
            let mut wishes = self.lock();
            if !wishes.has(ino, number) {
                return Poll::Ready(());
            }
            wishes.wakers.push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Tells the kernel of what is wished, until [`Notices::close`]; each when it is time for it. While the kernel waits for a
    /// page not even SIGKILL ends this thread, nor the mount before it.
    pub(crate) fn tell(&self, notifier: &Notifier, wait_for: impl Fn(u64, &Range<u64>)) {
        while let Some(Notice { ino, range, .. }) = self.next() {
            wait_for(ino, &range);
            let offset = i64::try_from(range.start).unwrap_or(i64::MAX);
            // No length stands for all that there is.
            let len = i64::try_from(range.end - range.start).unwrap_or(0);
            if let Err(error) = notifier.inval_inode(INodeNo(ino), offset, len) {
                tracing::debug!(ino, %error, "the kernel dropped no pages");
            }
            self.told();
        }
    }

    fn next(&self) -> Option<Notice> {
        let mut wishes = self.lock();
        loop {
            if wishes.closed {
                return None;
            }
            if let Some(notice) = wishes.waiting.pop_front() {
                wishes.telling = Some(notice.clone());
                return Some(notice);
            }
            wishes = self.some.wait(wishes).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The last one is heeded.
    fn told(&self) {
        let mut wishes = self.lock();
        wishes.telling = None;
        let wakers = std::mem::take(&mut wishes.wakers);
        drop(wishes);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Ends the thread that tells, once it has no notice under way.
    pub(crate) fn close(&self) {
        let mut wishes = self.lock();
        wishes.closed = true;
        let wakers = std::mem::take(&mut wishes.wakers);
        drop(wishes);
        wakers.into_iter().for_each(Waker::wake);
        self.some.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::Context;

    fn next(notices: &Notices) -> Option<(u64, Range<u64>)> {
        notices.next().map(|notice| (notice.ino, notice.range))
    }

    #[test]
    fn a_file_is_told_once_however_often_it_is_wished_before() {
        let notices = Notices::default();
        for (ino, range) in [(7, 5..6), (7, 1..3), (3, 0..9), (7, 2..4)] {
            notices.wish_range(ino, range);
        }
        assert_eq!((next(&notices), next(&notices)), (Some((7, 1..6)), Some((3, 0..9))));
        notices.wish(7);
        assert_eq!(next(&notices), Some((7, 0..u64::MAX)));
        notices.close();
        assert_eq!(next(&notices), None);
    }

    #[test]
    fn who_waits_for_a_file_waits_for_what_was_wished_before_and_no_longer() {
        let (notices, mut context) = (Notices::default(), Context::from_waker(Waker::noop()));
        notices.wish(7);
        let mut heeded = pin!(notices.heeded(7));
        assert!(heeded.as_mut().poll(&mut context).is_pending() && notices.has_some_for(7));
        assert!(pin!(notices.heeded(8)).poll(&mut context).is_ready() && !notices.has_some_for(8));
        next(&notices);
        notices.wish(7);
        assert!(heeded.as_mut().poll(&mut context).is_pending(), "the kernel is being told");
        notices.told();
        assert!(heeded.as_mut().poll(&mut context).is_ready() && notices.has_some_for(7));
        let mut late = pin!(notices.heeded(7));
        assert!(late.as_mut().poll(&mut context).is_pending());
        notices.close();
        assert!(late.as_mut().poll(&mut context).is_ready(), "nobody tells it any more");
    }
}
