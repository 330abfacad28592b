//! Requests as tasks: a request waits for the server without occupying a thread.
//!
//! A task is first polled on the thread that received the request, so that a request that needs no
//! reply from the server is answered there. Later a free worker polls the task or, if the task is
//! short, the thread that wakes it. This module does not know what a task does.

use std::collections::VecDeque;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::task::{Context, Poll, Wake, Waker};

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The executor of tasks.
#[derive(Debug, Clone)]
pub(crate) struct Executor {
    queue: Arc<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    ready: Mutex<Ready>,
    available: Condvar,
}

#[derive(Debug, Default)]
struct Ready {
    tasks: VecDeque<Arc<Task>>,
    /// Idle workers that wait for a notification. While there are none, a notification would be a
    /// useless system call.
    idle: usize,
    closed: bool,
}

struct Task {
    work: Mutex<Option<Work>>,
    /// The task is in the queue, or about to be polled.
    queued: AtomicBool,
    /// The task is short, and continues on the thread that wakes it.
    short: bool,
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
            // If the task is being polled now, perhaps by the very thread that wakes it, another
            // poll has to wait.
            if self.short && self.poll_unless_polled() {
                return;
            }
            let queue = Arc::clone(&self.queue);
            let mut ready = queue.ready.lock().unwrap_or_else(PoisonError::into_inner);
            ready.tasks.push_back(self);
            let has_idle = ready.idle > 0;
            drop(ready);
            if has_idle {
                queue.available.notify_one();
            }
        }
    }
}

impl Task {
    fn poll(self: &Arc<Self>) {
        // Cleared before the poll: a wake during the poll queues the task again.
        self.queued.store(false, Ordering::Release);
        self.poll_locked(&mut self.work.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Like [`Self::poll`], but returns false if the task is being polled already.
    fn poll_unless_polled(self: &Arc<Self>) -> bool {
        let mut work = match self.work.try_lock() {
            Ok(work) => work,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        self.queued.store(false, Ordering::Release);
        self.poll_locked(&mut work);
        true
    }

    fn poll_locked(self: &Arc<Self>, work: &mut Option<Work>) {
        if let Some(future) = work.as_mut() {
            let waker = Waker::from(Arc::clone(self));
            let mut context = Context::from_waker(&waker);
            let poll = AssertUnwindSafe(|| future.as_mut().poll(&mut context).is_ready());
            // A task that panics is a bug, and the panic was logged. It costs its own request
            // (whose reply becomes EIO when dropped), not the mount.
            if catch_unwind(poll).unwrap_or(true) {
                *work = None;
            }
        }
    }
}

impl Executor {
    /// Starts the workers; they end after [`Executor::close`].
    pub(crate) fn start(workers: usize) -> std::io::Result<Self> {
        let queue = Arc::new(Queue::default());
        for index in 0..workers.max(1) {
            let queue = Arc::clone(&queue);
            std::thread::Builder::new().name(format!("tl-fuse-work-{index}")).spawn(move || queue.work())?;
        }
        Ok(Self { queue })
    }

    /// Runs a task to completion, starting on this thread as far as it gets without waiting.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.begin(work, false);
    }

    /// Like [`Self::spawn`], for a task that has little to do once woken. The task continues on the
    /// thread that wakes it, which saves handing it to a worker. That may be a connection's thread,
    /// so the task must neither block nor take long.
    pub(crate) fn spawn_short(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.begin(work, true);
    }

    /// Runs a short task to completion even if its caller stops waiting. Returns its output, or
    /// `None` if it panics.
    pub(crate) async fn detach_short<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        self.detached(work, true).await
    }

    /// Like [`Self::detach_short`], for any task.
    pub(crate) async fn detach<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        self.detached(work, false).await
    }

    async fn detached<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
        short: bool,
    ) -> Option<T> {
        let outcome: Arc<Mutex<Outcome<T>>> = Arc::default();
        let guard = OutcomeGuard(Arc::clone(&outcome));
        let task = async move {
            let output = work.await;
            guard.lock().output = Some(output);
        };
        self.begin(task, short);
        std::future::poll_fn(|context| {
            let mut outcome = outcome.lock().unwrap_or_else(PoisonError::into_inner);
            if outcome.ended {
                return Poll::Ready(outcome.output.take());
            }
            outcome.waker = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }

    fn begin(&self, work: impl Future<Output = ()> + Send + 'static, short: bool) {
        let work: Work = Box::pin(work);
        let queue = Arc::clone(&self.queue);
        let task = Task { work: Mutex::new(Some(work)), queued: AtomicBool::new(true), short, queue };
        Arc::new(task).poll();
    }

    /// Ends the workers once no task is ready.
    pub(crate) fn close(&self) {
        self.queue.ready.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        self.queue.available.notify_all();
    }
}

/// The result of a detached task.
#[derive(Debug)]
struct Outcome<T> {
    output: Option<T>,
    ended: bool,
    waker: Option<Waker>,
}

impl<T> Default for Outcome<T> {
    fn default() -> Self {
        Self { output: None, ended: false, waker: None }
    }
}

/// The task's side of the result: when it is dropped, the task has ended.
#[derive(Debug)]
struct OutcomeGuard<T>(Arc<Mutex<Outcome<T>>>);

impl<T> OutcomeGuard<T> {
    fn lock(&self) -> MutexGuard<'_, Outcome<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Drop for OutcomeGuard<T> {
    fn drop(&mut self) {
        let mut outcome = self.lock();
        outcome.ended = true;
        let waker = outcome.waker.take();
        drop(outcome);
        if let Some(waker) = waker {
            waker.wake();
        }
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
                ready.idle += 1;
                ready = self.available.wait(ready).unwrap_or_else(PoisonError::into_inner);
                ready.idle -= 1;
            }
        }
    }
}

/// Runs a future to completion on this thread.
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
        if let Poll::Ready(done) = work.as_mut().poll(&mut Context::from_waker(&waker)) {
            return done;
        }
        std::thread::park();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::sync::mpsc;

    #[test]
    fn a_task_that_panics_does_not_stop_the_executor() {
        let executor = Executor::start(1).unwrap();
        executor.spawn(async { panic!("on purpose") });
        let (sender, receiver) = mpsc::channel();
        executor.spawn(async move { sender.send(()).unwrap() });
        receiver.recv().unwrap();
        executor.close();
    }

    #[test]
    fn a_detached_task_continues_when_its_caller_stops_waiting() {
        let executor = Executor::start(1).unwrap();
        let (sender, receiver) = mpsc::channel();
        let (waker, mut context) =
            (Arc::<Mutex<Option<Waker>>>::default(), Context::from_waker(Waker::noop()));
        let (seen, mut polls) = (Arc::clone(&waker), 0);
        let wait = std::future::poll_fn(move |context| {
            polls += 1;
            *seen.lock().unwrap() = Some(context.waker().clone());
            if polls > 1 { Poll::Ready(()) } else { Poll::Pending }
        });
        {
            let waiting = executor.detach_short(async move {
                wait.await;
                sender.send(7).unwrap();
            });
            assert!(pin!(waiting).poll(&mut context).is_pending());
        }
        assert!(receiver.try_recv().is_err());
        let waker = waker.lock().unwrap().take().unwrap();
        waker.wake();
        assert_eq!(receiver.recv().unwrap(), 7);
        assert_eq!(block_on(executor.detach_short(async { 8 })), Some(8));
        assert_eq!(block_on(executor.detach_short(async { panic!("on purpose") })), None::<()>);
        executor.close();
    }

    #[test]
    fn a_short_task_continues_on_the_thread_that_wakes_it_but_never_within_itself() {
        let executor = Executor::start(1).unwrap();
        let (sender, receiver) = mpsc::channel();
        let waker: Arc<Mutex<Option<Waker>>> = Arc::default();
        let seen = Arc::clone(&waker);
        let mut polls = 0;
        executor.spawn_short(std::future::poll_fn(move |context| {
            polls += 1;
            sender.send(std::thread::current().id()).unwrap();
            match polls {
                1 => *seen.lock().unwrap() = Some(context.waker().clone()),
                // A poll within this poll would wait for itself, so a worker does it.
                2 => context.waker().wake_by_ref(),
                _ => return Poll::Ready(()),
            }
            Poll::Pending
        }));
        let here = std::thread::current().id();
        assert_eq!(receiver.recv().unwrap(), here);
        let waker = waker.lock().unwrap().take().unwrap();
        waker.wake();
        assert_eq!(receiver.recv().unwrap(), here);
        assert_ne!(receiver.recv().unwrap(), here);
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
