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
pub(crate) struct Invalidations(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

/// Wakes the thread when what an invalidation waits for is done.
impl Wake for Shared {
    fn wake(self: Arc<Self>) {
        self.lock().woken = true;
        self.changed.notify_one();
    }
}

/// The bytes of a file that the kernel is to drop.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Invalidation {
    ino: u64,
    range: Range<u64>,
    /// The number of the first request merged into this invalidation.
    number: u64,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: Vec<Invalidation>,
    /// Invalidations that the thread has taken: they wait for earlier requests, or are being sent
    /// to the kernel.
    taken: Vec<Invalidation>,
    /// A taken invalidation may be ready.
    woken: bool,
    /// The number of invalidations requested so far.
    number: u64,
    wakers: Vec<Waker>,
    closed: bool,
}

impl Queue {
    /// Whether an invalidation of a file, requested up to this number, is not done yet.
    fn has_unfinished(&self, ino: u64, number: u64) -> bool {
        let mut all = self.taken.iter().chain(&self.waiting);
        !self.closed && all.any(|invalidation| invalidation.ino == ino && invalidation.number <= number)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Invalidations {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.0.lock()
    }

    /// Requests that the kernel drop all that it has of a file.
    pub(crate) fn request(&self, ino: u64) {
        self.request_range(ino, 0..u64::MAX);
    }

    /// Requests that the kernel drop the pages of a range.
    pub(crate) fn request_range(&self, ino: u64, range: Range<u64>) {
        let mut queue = self.lock();
        queue.number += 1;
        let number = queue.number;
        match queue.waiting.iter_mut().find(|invalidation| invalidation.ino == ino) {
            Some(Invalidation { range: all, .. }) => {
                *all = all.start.min(range.start)..all.end.max(range.end)
            }
            None => queue.waiting.push(Invalidation { ino, range, number }),
        }
        drop(queue);
        self.0.changed.notify_one();
    }

    /// Whether the kernel has yet to drop pages of a file.
    pub(crate) fn is_pending(&self, ino: u64) -> bool {
        self.lock().has_unfinished(ino, u64::MAX)
    }

    /// Waits until the kernel has carried out all invalidations of a file requested by now.
    pub(crate) async fn completed(&self, ino: u64) {
        let number = self.lock().number;
        std::future::poll_fn(|context| {
            let mut queue = self.lock();
            if !queue.has_unfinished(ino, number) {
                return Poll::Ready(());
            }
            queue.wakers.push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Sends invalidations to the kernel until [`Invalidations::close`]. Each is sent once the
    /// future that `ready` returns has completed. While the kernel waits for a page, not even
    /// SIGKILL ends this thread, and so not the process either.
    pub(crate) fn run<W: Future<Output = ()>>(
        &self,
        notifier: &Notifier,
        ready: impl Fn(u64, Range<u64>) -> W,
    ) {
        self.run_with(ready, |Invalidation { ino, range, .. }| {
            let offset = i64::try_from(range.start).unwrap_or(i64::MAX);
            // A length of zero stands for the whole file.
            let len = i64::try_from(range.end - range.start).unwrap_or(0);
            if let Err(error) = notifier.inval_inode(INodeNo(*ino), offset, len) {
                tracing::debug!(ino, %error, "the kernel did not drop pages");
            }
        });
    }

    fn run_with<W: Future<Output = ()>>(
        &self,
        ready: impl Fn(u64, Range<u64>) -> W,
        mut drop_pages: impl FnMut(&Invalidation),
    ) {
        let waker = Waker::from(Arc::clone(&self.0));
        let mut context = Context::from_waker(&waker);
        let mut taken: Vec<(Invalidation, Pin<Box<W>>)> = Vec::new();
        while let Some(new) = self.next() {
            taken.extend(new.into_iter().map(|invalidation| {
                let ready = Box::pin(ready(invalidation.ino, invalidation.range.clone()));
                (invalidation, ready)
            }));
            taken.retain_mut(|(invalidation, ready)| {
                let is_ready = ready.as_mut().poll(&mut context).is_ready();
                if is_ready {
                    drop_pages(invalidation);
                    self.complete(invalidation.number);
                }
                !is_ready
            });
        }
    }

    /// Waits for new invalidations, or until a taken invalidation may be ready. Returns `None`
    /// after close.
    fn next(&self) -> Option<Vec<Invalidation>> {
        let mut queue = self.lock();
        loop {
            if queue.closed {
                return None;
            }
            if queue.woken || !queue.waiting.is_empty() {
                queue.woken = false;
                let new = std::mem::take(&mut queue.waiting);
                queue.taken.extend(new.iter().cloned());
                return Some(new);
            }
            queue = self.0.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The kernel has carried out an invalidation.
    fn complete(&self, number: u64) {
        let mut queue = self.lock();
        queue.taken.retain(|invalidation| invalidation.number != number);
        let wakers = std::mem::take(&mut queue.wakers);
        drop(queue);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Ends the sending thread after the invalidation that is under way.
    pub(crate) fn close(&self) {
        let mut queue = self.lock();
        queue.closed = true;
        let wakers = std::mem::take(&mut queue.wakers);
        drop(queue);
        wakers.into_iter().for_each(Waker::wake);
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::sync::atomic::{AtomicBool, Ordering};

    fn next(invalidations: &Invalidations) -> Vec<(u64, Range<u64>)> {
        let all = invalidations.next().unwrap_or_default();
        all.into_iter().map(|invalidation| (invalidation.ino, invalidation.range)).collect()
    }

    #[test]
    fn requests_for_a_file_are_merged_into_one_invalidation() {
        let invalidations = Invalidations::default();
        for (ino, range) in [(7, 5..6), (7, 1..3), (3, 0..9), (7, 2..4)] {
            invalidations.request_range(ino, range);
        }
        assert_eq!(next(&invalidations), [(7, 1..6), (3, 0..9)]);
        invalidations.request(7);
        assert_eq!(next(&invalidations), [(7, 0..u64::MAX)]);
        invalidations.close();
        assert_eq!(invalidations.next(), None);
    }

    #[test]
    fn a_waiter_waits_for_what_was_requested_before_and_no_longer() {
        let (invalidations, mut context) = (Invalidations::default(), Context::from_waker(Waker::noop()));
        invalidations.request(7);
        let mut completed = pin!(invalidations.completed(7));
        assert!(completed.as_mut().poll(&mut context).is_pending() && invalidations.is_pending(7));
        assert!(
            pin!(invalidations.completed(8)).poll(&mut context).is_ready() && !invalidations.is_pending(8)
        );
        let taken = invalidations.next().unwrap();
        invalidations.request(7);
        assert!(completed.as_mut().poll(&mut context).is_pending(), "the invalidation is being sent");
        invalidations.complete(taken[0].number);
        assert!(completed.as_mut().poll(&mut context).is_ready() && invalidations.is_pending(7));
        let mut late = pin!(invalidations.completed(7));
        assert!(late.as_mut().poll(&mut context).is_pending());
        invalidations.close();
        assert!(late.as_mut().poll(&mut context).is_ready(), "no thread sends it any more");
    }

    #[test]
    fn a_file_whose_requests_are_not_answered_holds_up_no_other() {
        let (invalidations, answered) = (Invalidations::default(), AtomicBool::new(false));
        let (sender, receiver) = std::sync::mpsc::channel();
        let ready = |ino, _| {
            let answered = &answered;
            std::future::poll_fn(move |context| {
                // The test wakes the serving thread itself.
                let _ = context;
                if ino == 7 && !answered.load(Ordering::Acquire) { Poll::Pending } else { Poll::Ready(()) }
            })
        };
        invalidations.request(7);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                invalidations.run_with(ready, |invalidation| sender.send(invalidation.ino).unwrap())
            });
            invalidations.request(8);
            assert_eq!(receiver.recv(), Ok(8));
            assert!(invalidations.is_pending(7));
            answered.store(true, Ordering::Release);
            Waker::from(Arc::clone(&invalidations.0)).wake();
            assert_eq!(receiver.recv(), Ok(7));
            invalidations.close();
        });
    }
}
