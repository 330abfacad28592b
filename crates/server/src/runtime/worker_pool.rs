//! Calls that wait for their stores: a bounded pool of workers beside the loops.
//!
//! A loop hands over calls that its store cannot execute at once ([`Task`]): the record, the
//! client, and whether the reply cache has the call as running already. A worker executes the call
//! by the same code that loops use, and its reply goes back to the connection's loop as a message
//! ([`Completion`]). Replies may overtake each other, which RPC allows.
//!
//! Bounds: each connection may have [`IN_FLIGHT_CALLS_MAX`] calls in the pool, and as many bytes as
//! it may queue replies. All connections together may have [`ALL_CALLS_MAX`] and [`ALL_BYTES_MAX`],
//! above which each connection may have one call. Nothing is received from a connection at a bound
//! until a call of its own has ended. So no connection waits for the calls of another, and the
//! memory is bounded.
//!
//! Workers take the calls of the connections in turn ([`queues`]). Calls that no worker has begun
//! when their connection is reset by either side are not executed, because the client sends them
//! again: see [`WorkerPool::discard`]. A reset also follows a sleep of the host or a stop of the
//! node; for the case that a worker wakes up before the loops see [`worker`].

mod queues;
mod retry;
mod worker;

use super::connection_address::ConnectionAddress;
use super::mailbox::Mailboxes;
use crate::byte_budget::Charge;
use crate::client::Client;
use crate::clock;
use crate::group::Group;
use crate::program::{CallHead, PlacedWrite};
use crate::replies::Payload;
use crate::statistics::CallEnd;
use queues::Queues;
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Calls of one connection that may be in the pool: more than a client has outstanding on one
/// connection.
const IN_FLIGHT_CALLS_MAX: usize = 128;
/// Calls of all connections that may be in the pool before each connection may have only one.
const ALL_CALLS_MAX: usize = 8192;
/// Bytes of the calls of all connections, and of the replies they may have, before each connection
/// may have only one call in the pool.
const ALL_BYTES_MAX: usize = 512 << 20;
/// How often the end of the pool checks whether the workers have ended.
const JOIN_POLL: Duration = Duration::from_millis(100);
/// How often it then checks whether a thread has ended, which takes no longer than its last steps.
const END_POLL: Duration = Duration::from_millis(1);

/// A call on its way to a worker.
pub(crate) struct Task {
    pub address: ConnectionAddress,
    pub client: Client,
    pub head: CallHead,
    /// The record, without the payload if that was received in place.
    pub record: Box<[u8]>,
    /// The length of the record with its payload.
    pub record_len: usize,
    /// The call with its payload, if that was received in place.
    pub placed: Option<Box<PlacedWrite>>,
    /// The reply cache has the call as running.
    pub begun: bool,
    /// How often the call was deferred because it runs elsewhere.
    pub deferrals: u32,
    pub received: Duration,
    /// The most payload that the reply may have.
    pub payload_bytes_max: u32,
    pub permit: Permit,
}

/// A call on its way back to its loop.
pub(crate) struct Completion {
    pub address: ConnectionAddress,
    /// The connection's number: the slot may belong to another connection by now.
    pub connection: u64,
    pub node: usize,
    pub received: Duration,
    pub permit: Permit,
    pub end: TaskEnd,
}

/// How a call in the worker pool ended.
pub(crate) enum TaskEnd {
    /// Send this reply; `counted` unless the call reached no procedure.
    Reply { head: Box<[u8]>, payload: Payload, payload_len: usize, counted: Option<CallEnd> },
    /// The reply was sent elsewhere.
    Elsewhere,
    /// The handler panicked.
    Bug,
    /// The call came too late, and was not executed.
    TooLate,
}

impl std::fmt::Debug for Completion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Completion")
            .field("address", &self.address)
            .field("connection", &self.connection)
            .finish()
    }
}

/// The calls of one connection that are in the pool.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    calls: usize,
    bytes: usize,
    /// A reply will be sent to the address of the connection, because its call runs elsewhere.
    promised: bool,
}

impl InFlight {
    pub const fn calls(&self) -> usize {
        self.calls
    }

    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether a reply from elsewhere may arrive. Its arrival is not recorded, nor whether it went
    /// to another connection, so this connection stays on its loop.
    pub const fn is_promised(&self) -> bool {
        self.promised
    }

    /// Notes that a call of the connection runs elsewhere, and that its reply will be sent to the
    /// address of the connection.
    pub const fn promise(&mut self) {
        self.promised = true;
    }

    pub const fn begin(&mut self, bytes: usize) {
        self.calls += 1;
        self.bytes += bytes;
    }

    pub const fn end_call(&mut self, permit: &Permit) {
        self.calls = self.calls.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(permit.bytes);
    }

    /// Whether no more calls may be received from the connection. Never true without a call that
    /// will come back.
    pub fn is_full(&self, worker_pool: &WorkerPool) -> bool {
        self.calls > 0 && (self.calls >= IN_FLIGHT_CALLS_MAX || worker_pool.is_full())
    }

    /// Whether the connection has too many calls to resume after it was full.
    pub fn is_above_low_watermark(&self, worker_pool: &WorkerPool) -> bool {
        self.calls > 0 && (self.calls > IN_FLIGHT_CALLS_MAX / 2 || worker_pool.is_full())
    }
}

/// The calls in the pool, over all connections.
#[derive(Debug, Default)]
struct Load {
    calls: AtomicUsize,
    bytes: AtomicUsize,
}

/// The part of the load that a call accounts for. Dropping the permit releases it.
#[derive(Debug)]
pub(crate) struct Permit {
    load: Arc<Load>,
    bytes: usize,
    /// Lasts as long as the call, also when its connection has ended.
    _charge: Charge,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.load.calls.fetch_sub(1, Ordering::Relaxed);
        self.load.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The state that workers share.
#[derive(Debug)]
struct Shared {
    group: Arc<Group>,
    mailboxes: Arc<Mailboxes>,
    queues: Mutex<Queues>,
    /// Notified for each call, and at the end.
    changed: Condvar,
    /// Notified when a call is deferred, and at the end.
    some_deferred: Condvar,
    /// When any thread of the server last ran, in milliseconds of [`clock`].
    alive_ms: AtomicU64,
}

impl Shared {
    fn queues(&self) -> MutexGuard<'_, Queues> {
        // No code panics halfway through a change while it holds the lock.
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Defers a call that runs elsewhere, to be tried again soon.
    fn defer(&self, task: Task) {
        self.queues().defer(task);
        self.some_deferred.notify_one();
    }

    /// Notes that the process runs. Returns how long it did not run, as far as any thread noted.
    fn heartbeat(&self, now: Duration) -> Duration {
        let now_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(now_ms.saturating_sub(self.alive_ms.swap(now_ms, Ordering::Relaxed)))
    }
}

/// The pool of workers.
#[derive(Debug)]
pub(crate) struct WorkerPool {
    shared: Arc<Shared>,
    load: Arc<Load>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl WorkerPool {
    /// A pool without workers.
    pub fn new(group: Arc<Group>, mailboxes: Arc<Mailboxes>) -> Self {
        let now_ms = u64::try_from(clock::now().as_millis()).unwrap_or(u64::MAX);
        let shared = Shared {
            queues: Mutex::new(Queues::new(group.workers)),
            group,
            mailboxes,
            changed: Condvar::new(),
            some_deferred: Condvar::new(),
            alive_ms: AtomicU64::new(now_ms),
        };
        Self { shared: Arc::new(shared), load: Arc::default(), threads: Mutex::default() }
    }

    /// Starts the workers, unless they already run.
    ///
    /// # Errors
    /// When the system has no thread left.
    pub fn start(&self) -> io::Result<()> {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        while threads.len() < self.shared.group.workers {
            let shared = Arc::clone(&self.shared);
            let builder = std::thread::Builder::new().name(format!("tl-work-{}", threads.len()));
            threads.push(builder.spawn(move || worker::run(&shared))?);
            if threads.len() == self.shared.group.workers {
                // Started with the last worker, so that there is only one.
                let shared = Arc::clone(&self.shared);
                let builder = std::thread::Builder::new().name("tl-retry".to_owned());
                threads.push(builder.spawn(move || retry::run(&shared))?);
            }
        }
        Ok(())
    }

    fn is_full(&self) -> bool {
        self.load.calls.load(Ordering::Relaxed) >= ALL_CALLS_MAX
            || self.load.bytes.load(Ordering::Relaxed) >= ALL_BYTES_MAX
    }

    /// Accounts for a call and its reply. Always succeeds: a connection at a bound does not ask.
    pub fn acquire(&self, bytes: usize, charge: Charge) -> Permit {
        self.load.calls.fetch_add(1, Ordering::Relaxed);
        self.load.bytes.fetch_add(bytes, Ordering::Relaxed);
        Permit { load: Arc::clone(&self.load), bytes, _charge: charge }
    }

    /// Hands a call over to the workers.
    pub fn submit(&self, task: Task) {
        self.shared.heartbeat(task.received);
        self.shared.queues().push(task);
        self.shared.changed.notify_one();
    }

    /// Defers a call that runs elsewhere, to be tried again soon.
    pub fn defer(&self, task: Task) {
        self.shared.heartbeat(task.received);
        // A server whose stores never wait has not needed workers until now.
        if let Err(error) = self.start() {
            tracing::error!(%error, "a call that may be a neighbour's waits for a thread");
        }
        self.shared.defer(task);
    }

    /// Notes that a loop runs. Only needed while calls are in the pool.
    pub fn heartbeat(&self, now: Duration) {
        if self.load.calls.load(Ordering::Relaxed) > 0 {
            self.shared.heartbeat(now);
        }
    }

    /// Takes back the calls of a connection that no worker has begun; they are not executed.
    pub fn discard(&self, connection: u64) {
        let tasks = self.shared.queues().withdraw(connection);
        for task in tasks {
            worker::forget(&self.shared, task);
        }
    }

    /// Ends the pool: calls are executed until `deadline`, then dropped. A worker that waits for
    /// its store longer than that is left behind.
    pub fn end(&self, deadline: Duration) {
        self.shared.queues().ending = true;
        self.shared.changed.notify_all();
        self.shared.some_deferred.notify_all();
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        let mut queues = self.shared.queues();
        while queues.workers > 0 && clock::now() < deadline {
            let wait = deadline.saturating_sub(clock::now()).min(JOIN_POLL);
            queues = self.shared.changed.wait_timeout(queues, wait).unwrap_or_else(PoisonError::into_inner).0;
        }
        let left = queues.clear();
        drop(queues);
        drop(left);
        self.shared.changed.notify_all();
        for thread in threads.drain(..) {
            // Until it has ended, a thread keeps this process a member of its group of processes.
            while !thread.is_finished() && clock::now() < deadline {
                std::thread::sleep(END_POLL);
            }
            if thread.is_finished() && thread.join().is_err() {
                tracing::error!("a worker of the server ended by a panic");
            }
        }
    }
}
