//! Where another thread waits for a call: a future, or a blocking wait.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::call::Done;

/// The meeting place of a waiting thread and a loop.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    state: Mutex<State>,
    finished: Condvar,
}

#[derive(Debug, Default)]
struct State {
    done: Option<Done>,
    waker: Option<Waker>,
}

impl Slot {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands the outcome over, in the loop.
    pub(crate) fn finish(&self, done: Done) {
        let mut state = self.lock();
        state.done = Some(done);
        let waker = state.waker.take();
        drop(state);
        self.finished.notify_one();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// An operation under way. It owns the caller's buffer until it ends, and goes on when it is dropped.
#[derive(Debug)]
#[must_use = "an operation's outcome is lost unless it is waited for"]
pub struct Pending {
    slot: Arc<Slot>,
}

impl Pending {
    pub(crate) fn new() -> (Self, Arc<Slot>) {
        let slot = Arc::new(Slot::default());
        (Self { slot: Arc::clone(&slot) }, slot)
    }

    /// Blocks until the operation has ended. Not to be called on a loop's own thread.
    #[must_use]
    pub fn wait(self) -> Done {
        let mut state = self.slot.lock();
        loop {
            if let Some(done) = state.done.take() {
                return done;
            }
            state = self.slot.finished.wait(state).unwrap_or_else(PoisonError::into_inner);
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
