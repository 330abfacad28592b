//! Files of which the kernel is to drop pages, with their attributes.
//!
//! One thread tells it so, and none that a request waits for: the kernel may first have to finish a
//! read or a write of such pages, which waits for us. So a notice waits until what had come for its
//! range is done, and others pass it meanwhile: a server that answers nothing for one file holds up
//! no other's. What is wished for a file while it waits is told after it, in one. Until the kernel
//! has heeded a notice it may give out old pages to a program that does not ask for the file's
//! attributes first; so those are given only after it, and are to be asked for again each time
//! until then.

use fuser::{INodeNo, Notifier};
use std::ops::Range;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Notices(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    wishes: Mutex<Wishes>,
    some: Condvar,
}

/// What a notice waits for has come.
impl Wake for Shared {
    fn wake(self: Arc<Self>) {
        self.lock().woken = true;
        self.some.notify_one();
    }
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
    waiting: Vec<Notice>,
    /// Those that the thread has: they wait for what had come before them, or the kernel is being
    /// told.
    taken: Vec<Notice>,
    /// One of those may be ready.
    woken: bool,
    /// Counts wishes.
    number: u64,
    wakers: Vec<Waker>,
    closed: bool,
}

impl Wishes {
    /// Whether one of a file that was wished up to a number is not heeded yet.
    fn has(&self, ino: u64, number: u64) -> bool {
        let mut all = self.taken.iter().chain(&self.waiting);
        !self.closed && all.any(|notice| notice.ino == ino && notice.number <= number)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Wishes> {
        self.wishes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Notices {
    fn lock(&self) -> MutexGuard<'_, Wishes> {
        self.0.lock()
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
            None => wishes.waiting.push(Notice { ino, range, number }),
        }
        drop(wishes);
        self.0.some.notify_one();
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

    /// Tells the kernel of what is wished, until [`Notices::close`]; each once `ready` gives what
    /// is to come before it. While the kernel waits for a page not even SIGKILL ends this thread,
    /// nor the mount before it.
    pub(crate) fn tell<W: Future<Output = ()>>(
        &self,
        notifier: &Notifier,
        ready: impl Fn(u64, Range<u64>) -> W,
    ) {
        self.serve(ready, |Notice { ino, range, .. }| {
            let offset = i64::try_from(range.start).unwrap_or(i64::MAX);
            // No length stands for all that there is.
            let len = i64::try_from(range.end - range.start).unwrap_or(0);
            if let Err(error) = notifier.inval_inode(INodeNo(*ino), offset, len) {
                tracing::debug!(ino, %error, "the kernel dropped no pages");
            }
        });
    }

    fn serve<W: Future<Output = ()>>(
        &self,
        ready: impl Fn(u64, Range<u64>) -> W,
        mut drop_pages: impl FnMut(&Notice),
    ) {
        let waker = Waker::from(Arc::clone(&self.0));
        let mut context = Context::from_waker(&waker);
        let mut taken: Vec<(Notice, Pin<Box<W>>)> = Vec::new();
        while let Some(new) = self.next() {
            taken.extend(new.into_iter().map(|notice| {
                let ready = Box::pin(ready(notice.ino, notice.range.clone()));
                (notice, ready)
            }));
            taken.retain_mut(|(notice, ready)| {
                let is_ready = ready.as_mut().poll(&mut context).is_ready();
                if is_ready {
                    drop_pages(notice);
                    self.told(notice.number);
                }
                !is_ready
            });
        }
    }

    /// Waits for new notices, or until one that was taken may be ready; nothing once they are
    /// closed.
    fn next(&self) -> Option<Vec<Notice>> {
        let mut wishes = self.lock();
        loop {
            if wishes.closed {
                return None;
            }
            if wishes.woken || !wishes.waiting.is_empty() {
                wishes.woken = false;
                let new = std::mem::take(&mut wishes.waiting);
                wishes.taken.extend(new.iter().cloned());
                return Some(new);
            }
            wishes = self.0.some.wait(wishes).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The kernel has heeded one.
    fn told(&self, number: u64) {
        let mut wishes = self.lock();
        wishes.taken.retain(|notice| notice.number != number);
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
        self.0.some.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::sync::atomic::{AtomicBool, Ordering};

    fn next(notices: &Notices) -> Vec<(u64, Range<u64>)> {
        let all = notices.next().unwrap_or_default();
        all.into_iter().map(|notice| (notice.ino, notice.range)).collect()
    }

    #[test]
    fn a_file_is_told_once_however_often_it_is_wished_before() {
        let notices = Notices::default();
        for (ino, range) in [(7, 5..6), (7, 1..3), (3, 0..9), (7, 2..4)] {
            notices.wish_range(ino, range);
        }
        assert_eq!(next(&notices), [(7, 1..6), (3, 0..9)]);
        notices.wish(7);
        assert_eq!(next(&notices), [(7, 0..u64::MAX)]);
        notices.close();
        assert_eq!(notices.next(), None);
    }

    #[test]
    fn who_waits_for_a_file_waits_for_what_was_wished_before_and_no_longer() {
        let (notices, mut context) = (Notices::default(), Context::from_waker(Waker::noop()));
        notices.wish(7);
        let mut heeded = pin!(notices.heeded(7));
        assert!(heeded.as_mut().poll(&mut context).is_pending() && notices.has_some_for(7));
        assert!(pin!(notices.heeded(8)).poll(&mut context).is_ready() && !notices.has_some_for(8));
        let taken = notices.next().unwrap();
        notices.wish(7);
        assert!(heeded.as_mut().poll(&mut context).is_pending(), "the kernel is being told");
        notices.told(taken[0].number);
        assert!(heeded.as_mut().poll(&mut context).is_ready() && notices.has_some_for(7));
        let mut late = pin!(notices.heeded(7));
        assert!(late.as_mut().poll(&mut context).is_pending());
        notices.close();
        assert!(late.as_mut().poll(&mut context).is_ready(), "nobody tells it any more");
    }

    #[test]
    fn a_file_whose_requests_are_not_answered_holds_up_no_other() {
        let (notices, answered) = (Notices::default(), AtomicBool::new(false));
        let (told, tell) = std::sync::mpsc::channel();
        let ready = |ino, _| {
            let answered = &answered;
            std::future::poll_fn(move |context| {
                // Woken again by the next notice.
                let _ = context;
                if ino == 7 && !answered.load(Ordering::Acquire) { Poll::Pending } else { Poll::Ready(()) }
            })
        };
        notices.wish(7);
        std::thread::scope(|scope| {
            scope.spawn(|| notices.serve(ready, |notice| told.send(notice.ino).unwrap()));
            notices.wish(8);
            assert_eq!(tell.recv(), Ok(8));
            assert!(notices.has_some_for(7));
            answered.store(true, Ordering::Release);
            Waker::from(Arc::clone(&notices.0)).wake();
            assert_eq!(tell.recv(), Ok(7));
            notices.close();
        });
    }
}
