//! Invalidations: files whose pages and attributes the kernel is to drop.
//!
//! A thread of its own sends them, and never a thread that serves requests: the kernel may first
//! have to finish a read or a write of such pages, which waits for this process. So an invalidation
//! waits until the requests already received for its range are done. Invalidations of other files
//! pass it meanwhile: a server that does not answer for one file does not delay those of another.
//! Further requests for a file that waits are merged and sent afterwards, as one. Until the kernel
//! has carried out an invalidation, it may give old pages to a program that does not ask for the
//! file's attributes first. So attributes are given to the kernel only after the invalidation, and
//! until then the kernel has to ask for them each time.

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

/// Wakes the thread when what an invalidation waits for is done.
impl Wake for Shared {
    fn wake(self: Arc<Self>) {
        self.lock().woken = true;
        self.some.notify_one();
    }
}

/// The bytes of a file that the kernel is to drop.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Notice {
    ino: u64,
    range: Range<u64>,
    /// The number of the first request merged into this invalidation.
    number: u64,
}

#[derive(Debug, Default)]
struct Wishes {
    waiting: Vec<Notice>,
    /// Invalidations that the thread has taken: they wait for earlier requests, or are being sent
    /// to the kernel.
    taken: Vec<Notice>,
    /// A taken invalidation may be ready.
    woken: bool,
    /// The number of invalidations requested so far.
    number: u64,
    wakers: Vec<Waker>,
    closed: bool,
}

impl Wishes {
    /// Whether an invalidation of a file, requested up to this number, is not done yet.
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

    /// Requests that the kernel drop all that it has of a file.
    pub(crate) fn wish(&self, ino: u64) {
        self.wish_range(ino, 0..u64::MAX);
    }

    /// Requests that the kernel drop the pages of a range.
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

    /// Whether the kernel has yet to drop pages of a file.
    pub(crate) fn has_some_for(&self, ino: u64) -> bool {
        self.lock().has(ino, u64::MAX)
    }

    /// Waits until the kernel has carried out all invalidations of a file requested by now.
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

    /// Sends invalidations to the kernel until [`Notices::close`]. Each is sent once the future
    /// that `ready` returns has completed. While the kernel waits for a page, not even SIGKILL ends
    /// this thread, and so not the process either.
    pub(crate) fn tell<W: Future<Output = ()>>(
        &self,
        notifier: &Notifier,
        ready: impl Fn(u64, Range<u64>) -> W,
    ) {
        self.serve(ready, |Notice { ino, range, .. }| {
            let offset = i64::try_from(range.start).unwrap_or(i64::MAX);
            // A length of zero stands for the whole file.
            let len = i64::try_from(range.end - range.start).unwrap_or(0);
            if let Err(error) = notifier.inval_inode(INodeNo(*ino), offset, len) {
                tracing::debug!(ino, %error, "the kernel did not drop pages");
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

    /// Waits for new invalidations, or until a taken invalidation may be ready. Returns `None`
    /// after close.
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

    /// The kernel has carried out an invalidation.
    fn told(&self, number: u64) {
        let mut wishes = self.lock();
        wishes.taken.retain(|notice| notice.number != number);
        let wakers = std::mem::take(&mut wishes.wakers);
        drop(wishes);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Ends the sending thread after the invalidation that is under way.
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
                // The test wakes the serving thread itself.
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
