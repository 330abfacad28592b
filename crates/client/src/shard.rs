//! A loop of a mount: a thread that drives one [`Engine`], and the door through which other threads reach it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use paths::PathStatus;
use slab::Slab;
use transport::busy::BusyPoll;
use transport::poll::{Events, Poller, Waker};

use crate::call::{Caller, Done, Op, Owner};
use crate::engine::{Engine, FIRST_LINE_TOKEN, Setup};
use crate::slot::{Pending, Promise};
use crate::statistics::{PathCounters, Replays};

const WAKER_TOKEN: u64 = 0;
const _: () = assert!(WAKER_TOKEN < FIRST_LINE_TOKEN);

/// Work that runs on a loop itself: it submits operations and is called as they finish, without a change of
/// threads. Its methods must not block.
pub trait Task: Send {
    /// Called once, on the loop.
    fn start(&mut self, io: &mut Io<'_>);

    /// One of its operations finished.
    fn finished(&mut self, io: &mut Io<'_>, token: u64, done: Done);

    /// When it wants [`Task::woken`] to be called, in the time of [`Io::now`]. Asked for in each round, so that the
    /// answer should be at hand; `None`: only what it submitted wakes it.
    fn wakes_at(&self) -> Option<Duration> {
        None
    }

    /// The time that [`Task::wakes_at`] named has come.
    fn woken(&mut self, _io: &mut Io<'_>) {}

    /// Whether it has no operation in flight and will submit no more: it is dropped then.
    fn ended(&self) -> bool;
}

/// What a task may do.
#[derive(Debug)]
pub struct Io<'a> {
    engine: &'a mut Engine,
    task: usize,
}

impl Io<'_> {
    /// Submits an operation; `token` comes back with its outcome.
    #[inline]
    pub fn submit(&mut self, op: Op, token: u64) {
        self.engine.submit(op, None, Owner::Task(self.task, token));
    }

    /// Time since the loop started, as of this round.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.engine.now()
    }
}

/// What one loop counts.
#[derive(Debug, Clone)]
pub(crate) struct ShardStatistics {
    pub counters: Vec<PathCounters>,
    pub status: Vec<Option<PathStatus>>,
    pub replays: Replays,
    pub rdma: transport::rdma::Counters,
    pub cpu: Duration,
}

enum Message {
    Submit(Op, Option<Arc<Caller>>, Promise),
    Task(Box<dyn Task>),
    Statistics(mpsc::Sender<ShardStatistics>),
    Close,
}

impl Message {
    /// The loop has ended: whoever waits for an answer is told. What is dropped tells its owner itself.
    fn refuse(self) {
        if let Self::Submit(op, _, promise) = self {
            promise.refuse(op.into_buffer());
        }
    }
}

/// What other threads leave for a loop.
struct Inbox {
    messages: Mutex<Messages>,
    waker: Waker,
    /// The loop is about to sleep, or sleeps: it must be woken.
    asleep: AtomicBool,
    /// There are messages, for a loop that looks for them while it does not sleep.
    filled: AtomicBool,
}

#[derive(Default)]
struct Messages {
    waiting: Vec<Message>,
    /// The loop has ended: nobody would take another one.
    closed: bool,
}

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, Messages> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, message: Message) {
        let mut messages = self.lock();
        if messages.closed {
            drop(messages);
            message.refuse();
            return;
        }
        messages.waiting.push(message);
        self.filled.store(true, Ordering::Release);
        drop(messages);
        // The loop sets `asleep` before it looks into the inbox for the last time, so one of the two sees
        // the other.
        if self.asleep.swap(false, Ordering::SeqCst) {
            self.waker.wake();
        }
    }
}

/// Closes the door when the loop ends, by a panic too.
struct Ending(Arc<Inbox>);

impl Drop for Ending {
    fn drop(&mut self) {
        let mut messages = self.0.lock();
        messages.closed = true;
        let left = std::mem::take(&mut messages.waiting);
        drop(messages);
        left.into_iter().for_each(Message::refuse);
    }
}

/// A handle to a loop; dropping it ends the loop.
pub(crate) struct Shard {
    inbox: Arc<Inbox>,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Shard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shard").finish_non_exhaustive()
    }
}

impl Shard {
    pub(crate) fn start(index: usize, setup: Setup, busy_poll: Duration) -> std::io::Result<Self> {
        let poller = Arc::new(Poller::new()?);
        let inbox = Arc::new(Inbox {
            messages: Mutex::default(),
            waker: Waker::new(&poller, WAKER_TOKEN)?,
            asleep: AtomicBool::new(false),
            filled: AtomicBool::new(false),
        });
        let ours = Arc::clone(&inbox);
        let thread = std::thread::Builder::new().name(format!("tl-mount-{index}")).spawn(move || {
            let _ending = Ending(Arc::clone(&ours));
            let engine = Engine::new(setup, Arc::clone(&poller));
            Driver {
                engine,
                inbox: ours,
                poller,
                busy: BusyPoll::new(busy_poll),
                tasks: Slab::new(),
                messages: Vec::new(),
                closing: false,
            }
            .run();
        })?;
        Ok(Self { inbox, thread: Some(thread) })
    }

    pub(crate) fn submit(&self, op: Op, caller: Option<Arc<Caller>>) -> Pending {
        let (pending, promise) = Pending::new();
        self.inbox.send(Message::Submit(op, caller, promise));
        pending
    }

    pub(crate) fn spawn(&self, task: Box<dyn Task>) {
        self.inbox.send(Message::Task(task));
    }

    pub(crate) fn statistics(&self) -> Option<ShardStatistics> {
        let (sender, receiver) = mpsc::channel();
        self.inbox.send(Message::Statistics(sender));
        receiver.recv_timeout(Duration::from_secs(1)).ok()
    }
}

impl Drop for Shard {
    fn drop(&mut self) {
        self.inbox.send(Message::Close);
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            // A loop that panicked has said so already.
            let _ = thread.join();
        }
    }
}

/// The thread's side.
struct Driver {
    engine: Engine,
    inbox: Arc<Inbox>,
    poller: Arc<Poller>,
    busy: BusyPoll,
    tasks: Slab<Box<dyn Task>>,
    /// Taken from the inbox; its memory is used again.
    messages: Vec<Message>,
    closing: bool,
}

impl Driver {
    fn run(mut self) {
        let mut events = Events::new();
        let mut finished = Vec::new();
        loop {
            self.engine.refresh_clock();
            self.read_inbox();
            self.wake_tasks();
            self.work(&mut finished);
            if self.closing {
                break;
            }
            if let Err(error) = self.wait(&mut events) {
                tracing::error!(%error, "the loop cannot wait; the mount is closed");
                break;
            }
            self.engine.refresh_clock();
            for event in events.iter() {
                if event.token == WAKER_TOKEN {
                    self.inbox.waker.clear();
                } else {
                    self.engine.ready(event);
                }
            }
            self.engine.advance();
        }
        self.close(&mut finished);
    }

    /// Waits for what is to be done next: looks for it first, while that pays, then sleeps.
    fn wait(&mut self, events: &mut Events) -> std::io::Result<()> {
        let timeout = self.wait_time();
        let inbox = &self.inbox;
        let came = || inbox.filled.load(Ordering::Acquire);
        if self.busy.look(&self.poller, events, Some(timeout), came)? {
            return Ok(());
        }
        inbox.asleep.store(true, Ordering::SeqCst);
        let timeout = if inbox.lock().waiting.is_empty() { timeout } else { Duration::ZERO };
        self.busy.sleep(&self.poller, events, Some(timeout))?;
        inbox.asleep.store(false, Ordering::SeqCst);
        Ok(())
    }

    /// How long the loop may wait: until its engine or a task has something to do.
    fn wait_time(&self) -> Duration {
        let wakes = self.tasks.iter().filter_map(|(_, work)| work.wakes_at()).min();
        let until_task = wakes.map(|at| at.saturating_sub(self.engine.now()));
        until_task.unwrap_or(Duration::MAX).min(self.engine.wait_time())
    }

    /// Wakes the tasks whose time has come.
    fn wake_tasks(&mut self) {
        let now = self.engine.now();
        let engine = &mut self.engine;
        self.tasks.retain(|task, work| {
            if work.wakes_at().is_some_and(|at| at <= now) {
                work.woken(&mut Io { engine: &mut *engine, task });
            }
            !work.ended()
        });
    }

    /// Settles what the inputs have led to, hands out what has finished, and sends, until nothing is left to do.
    ///
    /// Sending comes last: the calls that follow finished ones leave with the COMMITs that the same answers have led
    /// to, and both ends are spared a send, a wake-up and a receive.
    fn work(&mut self, finished: &mut Vec<(Owner, Done)>) {
        loop {
            self.engine.settle();
            self.engine.take_finished(finished);
            if finished.is_empty() {
                if self.engine.flush() {
                    continue;
                }
                return;
            }
            for (owner, done) in finished.drain(..) {
                match owner {
                    Owner::Task(task, token) => {
                        if let Some(work) = self.tasks.get_mut(task) {
                            work.finished(&mut Io { engine: &mut self.engine, task }, token, done);
                            if work.ended() {
                                self.tasks.remove(task);
                            }
                        }
                    }
                    Owner::Slot(promise) => promise.keep(done),
                    Owner::Engine => {}
                }
            }
        }
    }

    fn read_inbox(&mut self) {
        let mut inbox = self.inbox.lock();
        std::mem::swap(&mut inbox.waiting, &mut self.messages);
        self.inbox.filled.store(false, Ordering::Release);
        drop(inbox);
        for message in self.messages.drain(..) {
            match message {
                Message::Submit(op, caller, promise) => {
                    self.engine.submit(op, caller, Owner::Slot(promise));
                }
                Message::Task(mut work) => {
                    let slot = self.tasks.vacant_entry();
                    work.start(&mut Io { engine: &mut self.engine, task: slot.key() });
                    if !work.ended() {
                        slot.insert(work);
                    }
                }
                Message::Statistics(sender) => {
                    // Whoever asked may have given up.
                    let _ = sender.send(self.engine.statistics());
                }
                Message::Close => self.closing = true,
            }
        }
    }

    /// Ends every call that still waits.
    fn close(mut self, finished: &mut Vec<(Owner, Done)>) {
        self.engine.fail_all();
        self.engine.take_finished(finished);
        for (owner, done) in finished.drain(..) {
            if let Owner::Slot(promise) = owner {
                promise.keep(done);
            }
        }
    }
}
