//! How another thread waits for a call: with a future, or blocking.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use crate::buffer::Buffer;
use crate::call::Done;
use crate::error::Error;

/// The state shared by a waiting thread and a loop.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    state: Mutex<State>,
    finished: Condvar,
}

#[derive(Debug, Default)]
struct State {
    done: Option<Done>,
    waker: Option<Waker>,
    /// A thread is blocked: without one, a notification would be a useless system call.
    blocks: bool,
}

impl Slot {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands over the outcome; called by the loop.
    fn finish(&self, done: Done) {
        let mut state = self.lock();
        state.done = Some(done);
        let (waker, blocks) = (state.waker.take(), state.blocks);
        drop(state);
        if blocks {
            self.finished.notify_one();
        }
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// The loop's end of an operation. The waiting thread is notified even if the loop ends
/// unexpectedly: a dropped promise reports that the mount is closed.
#[derive(Debug)]
pub(crate) struct Promise(Option<Arc<Slot>>);

impl Promise {
    /// Hands over the outcome.
    pub(crate) fn fulfill(mut self, done: Done) {
        if let Some(slot) = self.0.take() {
            slot.finish(done);
        }
    }

    /// Returns the buffer of an operation that never started because the mount is closed.
    pub(crate) fn refuse(self, buffer: Buffer) {
        self.fulfill(Done::failed(Error::Closed, buffer, Duration::ZERO));
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        if let Some(slot) = self.0.take() {
            slot.finish(Done::failed(Error::Closed, Buffer::default(), Duration::ZERO));
        }
    }
}

/// An operation in flight. The operation owns the caller's buffer until it ends, and continues if
/// this is dropped.
#[derive(Debug)]
#[must_use = "an operation's outcome is lost unless it is waited for"]
pub struct Pending {
    slot: Arc<Slot>,
}

impl Pending {
    pub(crate) fn new() -> (Self, Promise) {
        let slot = Arc::new(Slot::default());
        (Self { slot: Arc::clone(&slot) }, Promise(Some(slot)))
    }

    /// Blocks until the operation has ended. Must not be called on a loop's own thread.
    #[must_use]
    pub fn wait(self) -> Done {
        let mut state = self.slot.lock();
        loop {
            if let Some(done) = state.done.take() {
                return done;
            }
            state.blocks = true;
            state = self.slot.finished.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Pending {
    /// Like [`Pending::wait`], but no longer than this. The operation goes on.
    pub(crate) fn wait_until(self, deadline: Instant) -> Option<Done> {
        let mut state = self.slot.lock();
        loop {
            if let Some(done) = state.done.take() {
                return Some(done);
            }
            let left = deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())?;
            state.blocks = true;
            let waited = self.slot.finished.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Future for Pending {
    type Output = Done;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Done> {
        let mut state = self.slot.lock();
        if let Some(done) = state.done.take() {
            return Poll::Ready(done);
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

/// Wakes a thread that waits for a future.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Blocks until a future is ready. Must not be called on a loop's own thread.
pub(crate) fn wait<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let (mut future, mut context) = (pin!(future), Context::from_waker(&waker));
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(outcome) => return outcome,
            // A spurious unpark causes another poll, and the thread parks again.
            Poll::Pending => thread::park(),
        }
    }
}
