//! The loop of an attachment: one thread that owns all connections, controllers and requests.
//!
//! ```text
//! inbox ─> Request ─ split ─> Part ─ waiting ─ choose a path ─> Queue ─> completion ─> caller
//!                               ^                                │ its controller is lost
//!                               └── reads, at once ──────────────┤
//!                               └── changes <─ finished? ─ Fence ┘
//! ```

mod admin;
mod authenticate;
mod fence;
mod io;
mod older;
mod path;
mod tasks;

use crate::config::Config;
use crate::error::Error;
use crate::queue::{Event, Memory, Queue};
use crate::request::{Completion, Operation, Part, Reply, Request};
use crate::shared::{Message, Shared};
use crate::task::Running;
pub(crate) use io::optional as io_optional;

use admin::AdminCommand;
use authenticate::{Authenticating, Computed};
use chap::Sequence;
use nvme::host::Fences;
use older::Older;
use path::Path;
use slab::Slab;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use transport::poll::{Events, Poller};

/// The token of the waker; queues have theirs from 0 on.
pub(crate) const WAKER: u64 = u64::MAX;

/// Tags of admin commands; others are those of parts.
const ADMIN: u64 = 1 << 63;

const SCRATCH_BYTES: usize = 64 << 10;

/// How often time is looked at while something is under way, and otherwise.
const TICK: (Duration, Duration) = (Duration::from_millis(25), Duration::from_millis(500));

/// A connection, and whose it is.
#[derive(Debug)]
struct Slot {
    queue: Queue,
    path: usize,
    qid: u16,
    health: Health,
    /// On it, the host is being authenticated.
    authentication: Option<Authenticating>,
    /// No other slot has it, also not one with the same token later.
    serial: u64,
}

/// Whether a controller, or a queue of it, lives.
#[derive(Debug, Clone, Copy)]
struct Health {
    /// When anything was received last.
    heard: Duration,
    /// When it was asked whether it lives.
    probe: Option<Duration>,
}

impl Health {
    const fn new(now: Duration) -> Self {
        Self { heard: now, probe: None }
    }

    const fn is_suspect(&self) -> bool {
        self.probe.is_some()
    }
}

/// Requests and their parts, and the commands of admin queues: where received data belong.
#[derive(Debug, Default)]
struct Commands {
    requests: Slab<Request>,
    parts: Slab<Part>,
    admin: Slab<AdminCommand>,
}

impl Memory for Commands {
    fn room(&mut self, tag: u64) -> Option<&mut [u8]> {
        let at = usize::try_from(tag & !ADMIN).ok()?;
        if tag & ADMIN != 0 {
            return self.admin.get_mut(at).map(|command| command.room.as_mut_slice());
        }
        let part = self.parts.get(at)?;
        let Operation::Read { memory, .. } = &mut self.requests.get_mut(part.request)?.operation else {
            return None;
        };
        let start = usize::try_from(part.offset).ok()?;
        memory.get_mut(start..start + usize::try_from(part.bytes).ok()?)
    }
}

#[derive(Debug)]
pub(crate) struct Engine {
    config: Config,
    shared: Arc<Shared>,
    poller: Poller,
    epoch: Instant,
    slots: Slab<Slot>,
    paths: Vec<Path>,
    commands: Commands,
    /// Parts that may be sent.
    waiting: VecDeque<usize>,
    /// The connections of queues to which commands were given that were not sent yet.
    unsent: Vec<usize>,
    /// Requests that wait for the end of an earlier change of the same bytes.
    blocked: VecDeque<usize>,
    tasks: Slab<Running>,
    /// What their operations have come to, and what they submit: empty between rounds.
    completed: Vec<(usize, Completion)>,
    submitted: Vec<(Operation, u64)>,
    fences: Fences<usize>,
    /// Older controllers of this host are finished.
    has_begun: bool,
    older: Older,
    /// Changes are not sent before.
    changes_from: Duration,
    /// The most data of a command.
    transfer_bytes: u64,
    next_serial: u64,
    /// What authentication needs, once it was computed.
    computed: (Sender<Computed>, Receiver<Computed>),
    sequence: Option<Sequence>,
    scratch: Vec<u8>,
    /// When time was looked at last.
    ticked: Duration,
}

impl Engine {
    pub(crate) fn new(config: Config, shared: Arc<Shared>, poller: Poller) -> Self {
        let paths = config.addresses.iter().map(|address| Path::new(*address)).collect();
        Self {
            config,
            shared,
            poller,
            epoch: Instant::now(),
            slots: Slab::new(),
            paths,
            commands: Commands::default(),
            waiting: VecDeque::new(),
            unsent: Vec::new(),
            blocked: VecDeque::new(),
            tasks: Slab::new(),
            completed: Vec::new(),
            submitted: Vec::new(),
            fences: Fences::default(),
            has_begun: false,
            older: Older::default(),
            changes_from: Duration::ZERO,
            transfer_bytes: io::TRANSFER_BYTES_MAX,
            next_serial: 0,
            computed: channel(),
            sequence: None,
            scratch: vec![0; SCRATCH_BYTES],
            ticked: Duration::ZERO,
        }
    }

    fn now(&self) -> Duration {
        self.epoch.elapsed()
    }

    /// Runs until the attachment is dropped.
    pub(crate) fn run(mut self) {
        let mut events = Events::new();
        let mut found = Vec::new();
        self.shared.thread.store(transport::threads::own(), Ordering::Relaxed);
        self.tick();
        loop {
            if let Err(error) = self.poller.wait(&mut events, Some(self.timeout())) {
                tracing::error!(%error, "the loop of an attachment ends");
                break;
            }
            for event in events.iter() {
                if event.token == WAKER {
                    self.shared.waker.clear();
                } else if let Ok(token) = usize::try_from(event.token) {
                    self.handle_event(token, event.readable, event.writable, &mut found);
                }
            }
            let taken = self.shared.take();
            for message in taken.messages {
                self.accept(message);
            }
            if taken.is_ended {
                break;
            }
            taken.tasks.into_iter().for_each(|task| self.start_task(task));
            self.run_tasks();
            self.take_computed();
            self.dispatch();
            if self.now() >= self.ticked + TICK.0 {
                self.tick();
            }
        }
        self.end();
    }

    fn timeout(&self) -> Duration {
        if !self.completed.is_empty() {
            return Duration::ZERO;
        }
        let is_busy = !self.commands.requests.is_empty()
            || !self.fences.is_empty()
            || self.paths.iter().any(|path| !path.is_live());
        let tick = if is_busy { TICK.0 } else { TICK.1 };
        self.tasks_wake_in().map_or(tick, |wake| wake.min(tick))
    }

    fn handle_event(&mut self, token: usize, readable: bool, writable: bool, found: &mut Vec<Event>) {
        let Some(slot) = self.slots.get_mut(token) else { return };
        let (path, serial) = (slot.path, slot.serial);
        let mut outcome = if writable { slot.queue.handle_writable() } else { Ok(()) };
        let mut heard = false;
        if outcome.is_ok() && readable {
            match slot.queue.receive(&mut self.commands, &mut self.scratch, found) {
                Ok(any) => heard = any,
                Err(lost) => outcome = Err(lost),
            }
        }
        if heard {
            self.note_heard(token, path);
        }
        // What was completed before the end is complete. One event may end the controller; then the
        // tags of the others stand for something else.
        let is_there = |engine: &Self| engine.slots.get(token).is_some_and(|slot| slot.serial == serial);
        for event in std::mem::take(found) {
            if !is_there(self) {
                return;
            }
            match event {
                Event::Ready => self.queue_ready(token),
                Event::Completed { tag, cqe } if tag & ADMIN != 0 => self.admin_completed(tag & !ADMIN, &cqe),
                Event::Completed { tag, cqe } => self.part_completed(path, tag, &cqe),
            }
        }
        match outcome {
            _ if !is_there(self) => {}
            Ok(()) => self.flush(token),
            Err(lost) => self.lose(path, &lost),
        }
    }

    /// Sends what a queue has, and waits for room if it has more.
    fn flush(&mut self, token: usize) {
        let Some(slot) = self.slots.get_mut(token) else { return };
        let path = slot.path;
        let sent = slot.queue.send().and_then(|()| slot.queue.watch(&self.poller, token as u64));
        if let Err(lost) = sent {
            self.lose(path, &lost);
        }
    }

    /// Looks at the time.
    fn tick(&mut self) {
        let now = self.now();
        self.ticked = now;
        for path in 0..self.paths.len() {
            self.tick_path(path, now);
        }
        self.tick_older(now);
        self.tick_fences(now);
        self.fail_late(now);
        self.dispatch();
        self.publish();
    }

    fn accept(&mut self, message: Message) {
        let Message { nsid, operation, cookie, reply } = message;
        let since = self.now();
        let request = Request { nsid, operation, cookie, reply, since, parts: 0, error: None };
        if let Err(error) = self.check(&request) {
            return self.complete(&request.reply, Completion { cookie, result: Err(error) });
        }
        // Changes of the same bytes are executed in the order of their arrival: with the retries of
        // a caller that gave the first one up, a late first one would undo the second.
        let conflicts = |(_, other): (usize, &Request)| request.conflicts(other);
        let changes = request.operation.changes();
        let must_wait = changes && self.commands.requests.iter().any(conflicts);
        let at = self.commands.requests.insert(request);
        if must_wait {
            self.blocked.push_back(at);
        } else {
            self.split(at);
        }
    }

    /// The end: nothing is sent again.
    fn end(&mut self) {
        for (_, slot) in std::mem::take(&mut self.slots) {
            slot.queue.reset(&self.poller);
        }
        for (_, request) in std::mem::take(&mut self.commands.requests) {
            // Tasks are dropped.
            if let Reply::Channel(reply) = request.reply {
                let _ = reply.send(Completion { cookie: request.cookie, result: Err(Error::Ended) });
            }
        }
    }
}
