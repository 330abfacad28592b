//! Requests as tasks: a request waits for the server without a thread that waits with it.
//!
//! A task is polled at once on the thread that received the request, so that what needs no answer of the
//! server is answered there. Later it is polled by whichever worker is free. Nothing here knows what a task does.

use std::collections::VecDeque;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Wake, Waker};

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Where tasks run.
#[derive(Debug, Clone)]
pub(crate) struct Executor {
    queue: Arc<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    ready: Mutex<Ready>,
    some: Condvar,
}

#[derive(Debug, Default)]
struct Ready {
    tasks: VecDeque<Arc<Task>>,
    closed: bool,
}

struct Task {
    work: Mutex<Option<Work>>,
    /// It is in the queue, or about to be polled.
    queued: AtomicBool,
    queue: Arc<Queue>,
}

impl std::fmt::Debug for Task {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Task").field("queued", &self.queued).finish_non_exhaustive()
    }
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        if !self.queued.swap(true, Ordering::AcqRel) {
            let queue = Arc::clone(&self.queue);
            let mut ready = queue.ready.lock().unwrap_or_else(PoisonError::into_inner);
            ready.tasks.push_back(self);
            drop(ready);
            queue.some.notify_one();
        }
    }
}

impl Task {
    fn poll(self: &Arc<Self>) {
        // Cleared before the poll: a wake that comes during it queues the task once more.
        self.queued.store(false, Ordering::Release);
        let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(future) = work.as_mut() {
            let waker = Waker::from(Arc::clone(self));
            let mut context = Context::from_waker(&waker);
            let poll = AssertUnwindSafe(|| future.as_mut().poll(&mut context).is_ready());
            // A task that panics is a fault of ours, which was logged; it costs its own request (its reply says EIO
            // when it is dropped), not the mount.
            if catch_unwind(poll).unwrap_or(true) {
                *work = None;
            }
        }
    }
}

impl Executor {
    /// Starts the workers; they end when [`Executor::close`] is called.
    pub(crate) fn start(workers: usize) -> std::io::Result<Self> {
        let queue = Arc::new(Queue::default());
        for index in 0..workers.max(1) {
            let queue = Arc::clone(&queue);
            std::thread::Builder::new().name(format!("tl-fuse-work-{index}")).spawn(move || queue.work())?;
        }
        Ok(Self { queue })
    }

    /// Runs a task to its end, as far as it goes at once on this thread.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let work: Work = Box::pin(work);
        let queue = Arc::clone(&self.queue);
        Arc::new(Task { work: Mutex::new(Some(work)), queued: AtomicBool::new(true), queue }).poll();
    }

    /// Ends the workers once nothing is ready any more.
    pub(crate) fn close(&self) {
        self.queue.ready.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        self.queue.some.notify_all();
    }
}

impl Queue {
    fn work(&self) {
        let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(task) = ready.tasks.pop_front() {
                drop(ready);
                task.poll();
                ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
            } else if ready.closed {
                return;
            } else {
                ready = self.some.wait(ready).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

/// Runs a future to its end on this thread.
pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> T {
    struct Thread(std::thread::Thread);
    impl Wake for Thread {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Thread(std::thread::current())));
    let mut work = std::pin::pin!(work);
    loop {
        if let std::task::Poll::Ready(done) = work.as_mut().poll(&mut Context::from_waker(&waker)) {
            return done;
        }
        std::thread::park();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::task::Poll;

    #[test]
    fn a_task_that_panics_takes_nobody_with_it() {
        let executor = Executor::start(1).unwrap();
        executor.spawn(async { panic!("on purpose") });
        let (sender, receiver) = mpsc::channel();
        executor.spawn(async move { sender.send(()).unwrap() });
        receiver.recv().unwrap();
        executor.close();
    }

    #[test]
    fn a_task_that_waits_is_finished_by_a_worker_after_it_is_woken() {
        let executor = Executor::start(2).unwrap();
        let (sender, receiver) = mpsc::channel();
        let shared: Arc<Mutex<(bool, Option<Waker>)>> = Arc::default();
        let seen = Arc::clone(&shared);
        let wait = std::future::poll_fn(move |context| {
            let mut state = seen.lock().unwrap();
            if state.0 {
                return Poll::Ready(());
            }
            state.1 = Some(context.waker().clone());
            Poll::Pending
        });
        executor.spawn(async move {
            wait.await;
            sender.send(7).unwrap();
        });
        assert!(receiver.try_recv().is_err());
        let mut state = shared.lock().unwrap();
        state.0 = true;
        let waker = state.1.take().unwrap();
        drop(state);
        waker.wake();
        assert_eq!(receiver.recv().unwrap(), 7);
        executor.close();
    }
}
