//! A loop of a mount: a thread that drives one [`Engine`], and the inbox through which other
//! threads reach it.
//!
//! Another thread may drive the loop for a time: [`loop_driver`].

mod loop_driver;

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use paths::PathStatus;
use slab::Slab;
use transport::busy::BusyPoll;
use transport::poll::{Events, Poller, Waker};

use crate::buffer::Buffer;
use crate::call::{Caller, Done, Op, Owner};
use crate::engine::{Engine, FIRST_CONNECTION_TOKEN, Setup};
use crate::slot::{Pending, Promise};
use crate::statistics::{PathCounters, Replays};

pub use loop_driver::ExternalDriver;
use loop_driver::LoopDriver;

const WAKER_TOKEN: u64 = 0;
const _: () = assert!(WAKER_TOKEN < FIRST_CONNECTION_TOKEN);
/// Token of the external driver's descriptor. No connection or probe ever has this token: theirs
/// count up from [`FIRST_CONNECTION_TOKEN`].
const EXTERNAL_DRIVER_TOKEN: u64 = u64::MAX;

/// Work that runs on a loop itself: it submits operations and is called back as they finish,
/// without a context switch. Its methods must not block.
pub trait Task: Send {
    /// Called once, on the loop.
    fn start(&mut self, io: &mut Io<'_>);

    /// Called when an operation of the task has finished.
    fn finished(&mut self, io: &mut Io<'_>, token: u64, done: Done);

    /// When [`Task::woken`] is to be called, on the clock of [`Io::now`]. Called in every round, so
    /// it should be cheap. `None` means that only finished operations wake the task.
    fn wakes_at(&self) -> Option<Duration> {
        None
    }

    /// Called when the time returned by [`Task::wakes_at`] has come.
    fn woken(&mut self, _io: &mut Io<'_>) {}

    /// Whether the task has no operation in flight and will submit no more; the task is then
    /// dropped.
    fn ended(&self) -> bool;
}

/// The interface of a task to its loop.
#[derive(Debug)]
pub struct Io<'a> {
    engine: &'a mut Engine,
    task: usize,
}

impl Io<'_> {
    /// Submits an operation; `token` is returned with its outcome.
    #[inline]
    pub fn submit(&mut self, op: Op, token: u64) {
        self.engine.submit(op, None, Owner::Task(self.task, token));
    }

    /// Memory for a READ or a WRITE; see [`Mount::buffer`](crate::Mount::buffer).
    #[must_use]
    pub fn buffer(&self, len: usize) -> Buffer {
        self.engine.buffer(len)
    }

    /// Time since the loop started, as of this round.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.engine.now()
    }
}

/// The statistics of one loop.
#[derive(Debug, Clone)]
pub(crate) struct ShardStatistics {
    /// The loop's clock, for the times in `status`.
    pub now: Duration,
    pub counters: Vec<PathCounters>,
    pub status: Vec<Option<PathStatus>>,
    pub replays: Replays,
    pub rdma: transport::rdma::Counters,
    pub thread: u32,
    pub cpu: Duration,
}

enum Message {
    Submit(Op, Option<Arc<Caller>>, Promise),
    Task(Box<dyn Task>),
    Statistics(mpsc::Sender<ShardStatistics>),
    Close,
}

impl Message {
    /// Refuses the message because the loop has ended: a waiting submitter is notified. Dropping
    /// the other messages notifies their senders.
    fn refuse(self) {
        if let Self::Submit(op, _, promise) = self {
            promise.refuse(op.into_buffer());
        }
    }
}

/// The messages of other threads to a loop.
struct Inbox {
    messages: Mutex<Messages>,
    waker: Waker,
    /// The loop sleeps or is about to: it must be woken.
    asleep: AtomicBool,
    /// There are messages; read by a loop that is busy polling instead of sleeping.
    filled: AtomicBool,
    /// When the loop last began a round, in milliseconds of its clock.
    heartbeat_ms: AtomicU64,
}

#[derive(Default)]
struct Messages {
    waiting: Vec<Message>,
    /// The loop has ended and takes no more messages.
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
        // The loop sets `asleep` before it looks into the inbox for the last time, so either the
        // loop sees this message or this thread sees `asleep`.
        if self.asleep.swap(false, Ordering::SeqCst) {
            self.waker.wake();
        }
    }
}

/// A handle to a loop; dropping it ends the loop.
pub(crate) struct Shard {
    inbox: Arc<Inbox>,
    loop_driver: Arc<LoopDriver>,
    thread: Option<JoinHandle<()>>,
    /// The zero of the loop's clock, but for an instant.
    started: Instant,
    /// What the loop answered last.
    last_statistics: Mutex<Option<ShardStatistics>>,
}

/// What a loop tells, or told last.
#[derive(Debug)]
pub(crate) struct Answer {
    /// `None` from a loop that has never answered.
    pub statistics: Option<ShardStatistics>,
    /// For how long the loop has done nothing although it was asked; zero if it answered.
    pub silent_for: Duration,
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
            heartbeat_ms: AtomicU64::new(0),
        });
        let started = Instant::now();
        let driver = Driver {
            engine: Engine::new(setup, Arc::clone(&poller))?,
            inbox: Arc::clone(&inbox),
            poller,
            busy: BusyPoll::new(busy_poll),
            tasks: Slab::new(),
            messages: Vec::new(),
            events: Events::new(),
            finished: Vec::new(),
            externally_driven: None,
            closing: false,
        };
        let loop_driver = Arc::new(LoopDriver::new(driver, Arc::clone(&inbox)));
        let ours = Arc::clone(&loop_driver);
        let thread = std::thread::Builder::new()
            .name(format!("tl-mount-{index}"))
            .spawn(move || loop_driver::keep(&ours))?;
        let thread = Some(thread);
        Ok(Self { inbox, loop_driver, thread, started, last_statistics: Mutex::default() })
    }

    /// Lets a thread drive the loop while the thread waits for a descriptor to become readable; one
    /// thread at a time.
    pub(crate) fn external_driver(&self, waits_for: OwnedFd) -> std::io::Result<ExternalDriver> {
        let stand_in = self.thread.as_ref().map(|thread| thread.thread().clone());
        ExternalDriver::new(Arc::clone(&self.loop_driver), waits_for, stand_in)
    }

    pub(crate) fn submit(&self, op: Op, caller: Option<Arc<Caller>>) -> Pending {
        let (pending, promise) = Pending::new();
        self.inbox.send(Message::Submit(op, caller, promise));
        pending
    }

    pub(crate) fn spawn(&self, task: Box<dyn Task>) {
        self.inbox.send(Message::Task(task));
    }

    /// Asks the loop for its statistics; [`Shard::answer`] waits for them.
    pub(crate) fn ask(&self) -> mpsc::Receiver<ShardStatistics> {
        let (sender, receiver) = mpsc::channel();
        self.inbox.send(Message::Statistics(sender));
        receiver
    }

    /// The statistics of the loop. From a loop that does not answer within this time, the last that
    /// it gave, so that counts never fall; a loop that has ended has no paths any more.
    pub(crate) fn answer(&self, asked: &mpsc::Receiver<ShardStatistics>, timeout: Duration) -> Answer {
        let answer = asked.recv_timeout(timeout);
        let mut last = self.last_statistics.lock().unwrap_or_else(PoisonError::into_inner);
        let mut silent_for = Duration::ZERO;
        match answer {
            Ok(answer) => *last = Some(answer),
            Err(mpsc::RecvTimeoutError::Timeout) => silent_for = self.heartbeat_age(),
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                last.iter_mut().for_each(|last| last.status.fill(None));
            }
        }
        Answer { statistics: last.clone(), silent_for }
    }

    /// How long ago the loop last began a round. A loop that has nothing to do sleeps, so this says
    /// something only of a loop that does not answer.
    fn heartbeat_age(&self) -> Duration {
        let heartbeat = Duration::from_millis(self.inbox.heartbeat_ms.load(Ordering::Relaxed));
        self.started.elapsed().saturating_sub(heartbeat)
    }
}

impl Drop for Shard {
    fn drop(&mut self) {
        self.inbox.send(Message::Close);
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            // A loop that panicked has already reported it.
            let _ = thread.join();
        }
    }
}

/// The state of the thread that drives the loop.
struct Driver {
    engine: Engine,
    inbox: Arc<Inbox>,
    poller: Arc<Poller>,
    busy: BusyPoll,
    tasks: Slab<Box<dyn Task>>,
    /// Messages taken from the inbox; kept to reuse its memory.
    messages: Vec<Message>,
    events: Events,
    finished: Vec<(Owner, Done)>,
    /// The descriptor that the external driver waits for, if there is one.
    externally_driven: Option<loop_driver::DriverDescriptor>,
    closing: bool,
}

/// What the last wait of a loop returned.
#[derive(Debug, Clone, Copy)]
struct WaitResult {
    /// There is a request for the external driver.
    request: bool,
    /// There is an event for the loop.
    others: bool,
}

impl Driver {
    /// Drives the loop until it is closed or `leave` returns true. Returns whether the loop goes
    /// on.
    fn run(&mut self, leave: impl Fn() -> bool) -> bool {
        while !leave() {
            if !self.round() || !self.wait() {
                return false;
            }
            self.take_events();
        }
        true
    }

    /// Drives the loop for an external driver, until there is a request for it. Returns whether the
    /// loop goes on.
    fn drive(&mut self) -> bool {
        loop {
            if !self.round() || !self.wait() {
                return false;
            }
            let found = self.take_events();
            if found.request {
                // Callers that wait for a reply have waited for longer than the new request.
                return !found.others || self.round();
            }
        }
    }

    /// Does all work that needs no waiting. Returns false once the mount is closed.
    fn round(&mut self) -> bool {
        self.engine.refresh_clock();
        let now_ms = u64::try_from(self.engine.now().as_millis()).unwrap_or(u64::MAX);
        self.inbox.heartbeat_ms.store(now_ms, Ordering::Relaxed);
        self.read_inbox();
        self.wake_tasks();
        self.work();
        !self.closing
    }

    /// Handles the events of the last wait.
    fn take_events(&mut self) -> WaitResult {
        let mut found = WaitResult { request: false, others: false };
        self.engine.refresh_clock();
        for event in self.events.iter() {
            found.request |= event.token == EXTERNAL_DRIVER_TOKEN;
            found.others |= event.token != EXTERNAL_DRIVER_TOKEN;
            match event.token {
                WAKER_TOKEN => self.inbox.waker.clear(),
                EXTERNAL_DRIVER_TOKEN => {}
                _ => self.engine.ready(event),
            }
        }
        self.engine.advance();
        found
    }

    /// Waits for the next event or timer: polls first, while that pays, then sleeps. Returns false
    /// if waiting fails.
    fn wait(&mut self) -> bool {
        self.try_wait().map_or_else(|error| Self::cannot_wait(&error), |()| true)
    }

    fn cannot_wait(error: &std::io::Error) -> bool {
        tracing::error!(%error, "the loop cannot wait; the mount is closed");
        false
    }

    fn try_wait(&mut self) -> std::io::Result<()> {
        let timeout = self.wait_time();
        let inbox = &self.inbox;
        let came = || inbox.filled.load(Ordering::Acquire);
        if self.busy.look(&self.poller, &mut self.events, Some(timeout), came)? {
            return Ok(());
        }
        inbox.asleep.store(true, Ordering::SeqCst);
        let timeout = if inbox.lock().waiting.is_empty() { timeout } else { Duration::ZERO };
        self.busy.sleep(&self.poller, &mut self.events, Some(timeout))?;
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

    /// Processes the effects of the inputs, hands out finished operations, and sends, until nothing
    /// is left to do.
    ///
    /// Sending comes last: the calls that follow finished ones leave together with the COMMITs
    /// caused by the same replies, which saves both ends a send, a wake-up and a receive.
    fn work(&mut self) {
        loop {
            self.engine.settle();
            self.engine.take_finished(&mut self.finished);
            if self.finished.is_empty() {
                if self.engine.flush() {
                    continue;
                }
                return;
            }
            for (owner, done) in self.finished.drain(..) {
                match owner {
                    Owner::Task(task, token) => {
                        if let Some(work) = self.tasks.get_mut(task) {
                            work.finished(&mut Io { engine: &mut self.engine, task }, token, done);
                            if work.ended() {
                                self.tasks.remove(task);
                            }
                        }
                    }
                    Owner::Slot(promise) => promise.fulfill(done),
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
                    // The requester may have given up.
                    let _ = sender.send(self.engine.statistics());
                }
                Message::Close => self.closing = true,
            }
        }
    }

    /// Fails every call that is still waiting.
    fn close(&mut self) {
        self.engine.fail_all();
        self.engine.take_finished(&mut self.finished);
        for (owner, done) in self.finished.drain(..) {
            if let Owner::Slot(promise) = owner {
                promise.fulfill(done);
            }
        }
    }
}
