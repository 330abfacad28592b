//! One node of a pair whose nodes are processes: it drives [`nvme::pair`], which says who owns what.
//!
//! ```text
//!  process A ── socket, heartbeats, pidfd ── process B
//!      │ open, save, close                     │
//!      └──── backing with its lock, record ────┘
//! ```
//!
//! - [`Member`] is a thread with the connection to the partner (`link.rs`). What may take long goes
//!   to threads of its own (`jobs.rs`), so that a slow disk is not taken for a silent process.
//! - A partner that is silent is killed through a pidfd that was opened while the connection was
//!   there, so that it is that process. It has ended when the pidfd says so; whether the kernel
//!   still writes for it is what the lock of the backing says.
//! - Neither waits for the other: a node without its partner goes on.
//!
//! Commands that arrive at the node that does not own a volume: the module `forward`.
//! docs/decisions/0022-pair.md

mod endings;
mod jobs;
mod link;
mod wire;

use endings::{Endings, without_partner};
use jobs::{Done, Jobs};
use link::{Heard, Link};
pub use nvme::controller::EndRequest;
use nvme::controller::{Node, Reach};
pub use nvme::pair::{Misuse, Opened, Record, Timing};
use nvme::pair::{Output, Pair};
use nvme::{HostId, Nqn, Status};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use transport::poll::{Events, Poller, Waker};
use wire::Packet;

const WAKER: u64 = 0;
/// A thread that has waited longer than it wanted to was late by more than the system's slack.
pub(crate) const SLACK: Duration = Duration::from_millis(50);

/// What a node does with the backings of its volumes. Calls for one volume come one after another;
/// each may take long.
pub trait Backings: Send + Sync {
    /// Opens and locks the backing, and then reads the record of the volume.
    fn open(&self, nsid: u32) -> Opened;
    /// Makes a record durable; false if that failed.
    fn save(&self, nsid: u32, record: Record) -> bool;
    /// Waits for commands that were admitted, and closes the backing.
    fn close(&self, nsid: u32);
    /// From now on the volume is owned and reached like this. Must not wait.
    fn reach(&self, nsid: u32, record: Record, reach: Reach);
    /// The process of the other node has ended, whose instances are below this one, and this node
    /// owns all volumes: nothing is executed for that process any more. Must not wait.
    fn finished(&self, before: u64) {
        let _ = before;
    }

    /// The other node asks to end controllers of a host here, and waits for the answer by
    /// [`OtherNode`]. Must not wait.
    fn end_for_other(&self, request: EndRequest) {
        let _ = request;
    }

    /// How the other node ended controllers, as it was asked by [`OtherNode`]. Must not wait.
    fn other_answered(&self, id: u64, answer: OtherAnswer) {
        let _ = (id, answer);
    }

    /// The other node's process is connected, and knows nothing. Must not wait.
    fn other_connected(&self) {}

    /// A host of the other node has this identifier, or none has it any more. Must not wait.
    fn set_host_elsewhere(&self, host_id: HostId, host: Option<Nqn>) {
        let _ = (host_id, host);
    }

    /// The other node's process has ended: it waits for no answers any more. Must not wait.
    fn other_ended(&self) {}
}

/// How the other node ended controllers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OtherAnswer {
    /// They are gone, or it refuses that.
    Said(Status),
    /// No process has any.
    Gone,
    /// Nobody can say that now.
    Unknown,
}

/// Why a node of a pair does not start.
#[derive(Debug, thiserror::Error)]
pub enum MemberError {
    /// Another process is this node.
    #[error("node {0} runs already, in another process")]
    Runs(Node),
    /// The system refused something.
    #[error("cannot {what} {path}")]
    System {
        /// What was tried.
        what: &'static str,
        /// With which file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The system refused a thread or a descriptor.
    #[error("cannot start the thread of a pair")]
    Thread(#[source] io::Error),
}

/// What a node of a pair is.
#[derive(Debug, Clone)]
pub struct MemberConfig {
    /// This node, A or B.
    pub node: Node,
    /// The directory of the pair, which only its user may write to: locks of the nodes, and the
    /// socket.
    pub directory: PathBuf,
    /// Its times.
    pub timing: Timing,
    /// The records of all volumes, by NSID.
    pub records: Vec<(u32, Record)>,
}

/// The place of a node, which one process has at a time.
#[derive(Debug)]
pub struct Seat(Link);

impl Seat {
    /// Becomes the node; its partner waits until [`Member::start`].
    ///
    /// # Errors
    /// [`MemberError`]
    pub fn take(node: Node, directory: &Path) -> Result<Self, MemberError> {
        Link::open(node, directory).map(Self)
    }
}

/// A request to the thread.
#[derive(Debug)]
enum Asked {
    Own {
        nsid: u32,
        owner: Node,
        reply: Sender<Result<(), Misuse>>,
    },
    Done(Done),
    /// End controllers at the other node.
    EndThere(EndRequest),
    /// How controllers ended here, as the other node had asked.
    EndedHere {
        id: u64,
        status: Status,
    },
    /// Tell the other node who has a host identifier here.
    HostId {
        host_id: HostId,
        host: Option<Nqn>,
    },
    Stop,
}

/// The way to the other node's process, for what the controllers of both have to decide.
#[derive(Debug, Clone)]
pub struct OtherNode(Arc<Inbox>);

impl OtherNode {
    /// Asks it to end controllers; [`Backings::other_answered`] is called once.
    pub(crate) fn end(&self, request: EndRequest) {
        self.0.post(Asked::EndThere(request));
    }

    /// Tells it who has a host identifier here.
    pub(crate) fn tell_host_id(&self, host_id: HostId, host: Option<Nqn>) {
        self.0.post(Asked::HostId { host_id, host });
    }

    /// Answers what it [has asked](Backings::end_for_other).
    pub(crate) fn ended(&self, id: u64, status: Status) {
        self.0.post(Asked::EndedHere { id, status });
    }
}

/// The requests to the thread, and what it tells.
#[derive(Debug)]
struct Inbox {
    asked: Mutex<Vec<Asked>>,
    waker: Waker,
    /// The partner's process is connected, and has not been seen to end.
    has_partner: AtomicBool,
}

impl Inbox {
    fn post(&self, asked: Asked) {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).push(asked);
        self.waker.wake();
    }

    fn take(&self) -> Vec<Asked> {
        std::mem::take(&mut *self.asked.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// This process as a node of a pair. Dropping it ends the thread, and nothing else: what is open
/// stays open until the process ends, so that no volume is given away half.
#[derive(Debug)]
pub struct Member {
    inbox: Arc<Inbox>,
    thread: Option<JoinHandle<()>>,
}

impl Member {
    /// Starts the node; it takes what is its own.
    ///
    /// # Errors
    /// [`MemberError`]
    pub fn start(config: MemberConfig, backings: Arc<dyn Backings>) -> Result<Self, MemberError> {
        let seat = Seat::take(config.node, &config.directory)?;
        Self::begin(seat, config, backings)
    }

    /// Starts the node that this process has become already.
    ///
    /// # Errors
    /// [`MemberError`]
    pub fn begin(
        Seat(link): Seat,
        config: MemberConfig,
        backings: Arc<dyn Backings>,
    ) -> Result<Self, MemberError> {
        let poller = Poller::new().map_err(MemberError::Thread)?;
        let waker = Waker::new(&poller, WAKER).map_err(MemberError::Thread)?;
        let inbox =
            Arc::new(Inbox { asked: Mutex::new(Vec::new()), waker, has_partner: AtomicBool::new(false) });
        link.register(&poller).map_err(MemberError::Thread)?;
        let to_thread = Arc::clone(&inbox);
        let jobs = Jobs::new(Arc::clone(&backings), move |done| to_thread.post(Asked::Done(done)));
        let other = if config.node == Node::A { Node::B } else { Node::A };
        let pair = Pair::new(Duration::ZERO, config.node, other, config.timing, config.records);
        let began = Instant::now();
        let (inbox_too, ended, endings) = (Arc::clone(&inbox), None, Endings::default());
        let driver = Driver { began, poller, inbox: inbox_too, link, jobs, pair, backings, ended, endings };
        let name = format!("pair-{}", config.node);
        let run = move || {
            if let Err(error) = driver.run() {
                // Without heartbeats the partner takes over, which needs the end of this process.
                tracing::error!(%error, "this node of the pair cannot go on");
                std::process::abort();
            }
        };
        let thread = std::thread::Builder::new().name(name).spawn(run).map_err(MemberError::Thread)?;
        Ok(Self { inbox, thread: Some(thread) })
    }

    /// Has a volume owned by this node or the other one from now on. It moves in the background.
    ///
    /// # Errors
    /// [`Misuse`]
    pub fn own(&self, nsid: u32, owner: Node) -> Result<(), Misuse> {
        let (reply, answer): (_, Receiver<Result<(), Misuse>>) = channel();
        self.inbox.post(Asked::Own { nsid, owner, reply });
        // A thread that is gone moves nothing.
        answer.recv().unwrap_or(Err(Misuse::Alone))
    }

    /// Whether the other node's process is there: it was connected, and has not ended since.
    #[must_use]
    pub fn has_partner(&self) -> bool {
        self.inbox.has_partner.load(Ordering::Relaxed)
    }

    /// The way to the other node's process, for [`Target::set_other`](crate::Target::set_other).
    #[must_use]
    pub fn other(&self) -> OtherNode {
        OtherNode(Arc::clone(&self.inbox))
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.inbox.post(Asked::Stop);
        if let Some(thread) = self.thread.take() {
            // A thread that has panicked has ended as well.
            let _ = thread.join();
        }
    }
}

struct Driver {
    began: Instant,
    poller: Poller,
    inbox: Arc<Inbox>,
    link: Link,
    jobs: Jobs,
    pair: Pair,
    backings: Arc<dyn Backings>,
    /// The process of the partner has ended, which began before this time, and not all that it had
    /// is taken yet.
    ended: Option<u64>,
    endings: Endings,
}

impl Driver {
    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn run(mut self) -> io::Result<()> {
        let mut events = Events::new();
        let mut heard = Vec::new();
        let mut last = self.now();
        loop {
            self.obey();
            let next = self.pair.poll_timeout().into_iter().chain(self.jobs.poll_timeout()).min();
            let next = next.map(|at| at.saturating_sub(self.now()));
            let wait = next.into_iter().chain(self.link.poll_timeout()).min();
            self.poller.wait(&mut events, wait)?;
            let now = self.now();
            // Time that this process did not have: its partner may have spoken meanwhile.
            let passed = now - std::mem::replace(&mut last, now);
            let late = wait.map_or(Duration::ZERO, |wait| passed.saturating_sub(wait));
            self.inbox.waker.clear();
            self.link.turn(&self.poller, &mut heard)?;
            for heard in heard.drain(..) {
                self.hear(now, heard);
            }
            for asked in self.inbox.take() {
                if matches!(asked, Asked::Stop) {
                    return Ok(());
                }
                self.handle_asked(now, asked);
            }
            if self.pair.owns_all()
                && let Some(before) = self.ended.take()
            {
                self.backings.finished(before);
            }
            self.jobs.retry(now);
            self.pair.handle_timeout(now, if late > SLACK { late } else { Duration::ZERO });
        }
    }

    fn hear(&mut self, now: Duration, heard: Heard) {
        match heard {
            // What the one before it had may be taken by this one.
            Heard::Connected => {
                self.ended = None;
                self.inbox.has_partner.store(true, Ordering::Relaxed);
                self.pair.handle_partner_connected(now);
                self.backings.other_connected();
            }
            Heard::Message(message) => self.pair.handle_message(now, message),
            Heard::End(request) => self.backings.end_for_other(request),
            Heard::HostId { host_id, host } => self.backings.set_host_elsewhere(host_id, host),
            Heard::EndAnswered { id, status } => {
                if self.endings.answer(id) {
                    self.backings.other_answered(id, OtherAnswer::Said(status));
                }
            }
            Heard::Ended { before } => {
                self.ended = Some(before);
                self.inbox.has_partner.store(false, Ordering::Relaxed);
                self.pair.handle_partner_ended(now);
                self.backings.other_ended();
                // They may be asked again.
                for id in self.endings.partner_ended() {
                    self.backings.other_answered(id, OtherAnswer::Unknown);
                }
            }
        }
    }

    fn handle_asked(&mut self, now: Duration, asked: Asked) {
        match asked {
            Asked::Stop => {}
            // Who does not wait for the answer does not need it.
            Asked::Own { nsid, owner, reply } => {
                _ = reply.send(self.pair.handle_own(now, nsid, owner));
            }
            Asked::Done(Done::Opened(nsid, opened)) => self.pair.handle_opened(now, nsid, opened),
            Asked::Done(Done::Saved(nsid, saved)) => self.pair.handle_saved(now, nsid, saved),
            Asked::Done(Done::Closed(nsid)) => self.pair.handle_closed(now, nsid),
            Asked::EndThere(request) => self.end_there(request),
            // A process that comes later is told of all.
            Asked::HostId { host_id, host } => _ = self.link.send(Packet::HostId { host_id, host }),
            // Who had asked may have ended.
            Asked::EndedHere { id, status } => _ = self.link.send(Packet::Ended { id, status }),
        }
    }

    /// Asks the partner to end controllers, if it is there.
    fn end_there(&mut self, request: EndRequest) {
        let (id, ends) = (request.id, request.ends);
        if self.link.send(Packet::End(request)) {
            return self.endings.begin(id);
        }
        let is_alone = !self.link.has_process() && self.pair.owns_all();
        self.backings.other_answered(id, without_partner(ends, is_alone));
    }

    /// Does what the machine asks for.
    fn obey(&mut self) {
        while let Some(output) = self.pair.poll_output() {
            match output {
                Output::Send(message) => _ = self.link.send(Packet::Message(message)),
                Output::Open { .. } | Output::Save { .. } | Output::Close { .. } => {
                    self.jobs.begin(self.began.elapsed(), output);
                }
                Output::Kill => self.link.kill(),
                Output::Reach { nsid, record, reach } => self.backings.reach(nsid, record, reach),
            }
        }
    }
}
