//! No call is executed twice: the group's reply cache around calls that change something.
//!
//! [`drc`] defines which replies are kept, and why no stale call slips through. All loops share the
//! cache: our own clients each have a window (without locks for WRITE), all other clients share
//! tables behind sharded locks. Where the nodes of a group are processes, windows and tables are in
//! memory that the processes share ([`crate::shared_reply_cache`]).

mod client;

use crate::address::network_of;
use crate::clock;
use crate::identity::Identity;
use crate::shared_reply_cache::{SharedClient, SharedReplyCache};
use drc::shared::{PreOpState, SharedBegin, SingleProcess, SlotIndex, Start};
use drc::{
    Begin, CLIENT_WINDOWS_MAX, CONNECTIONS_WORDS, CallKey, ClientWindow, ConnectionTable, ForeignCall,
    LookupContext, Outcome, Refusal, ReplyTo, Stored, TABLE_ENTRIES_MAX, Table, Token, Windows, XidClass,
};
use rpc::Xid;
use rpc::call::CallHeader;
use std::net::IpAddr;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

pub(crate) use client::{CacheClient, TooManyClients};

/// Tables of foreign clients' calls, so that loops rarely contend for one lock.
const TABLES: usize = 16;

// Statuses that the reply cache makes itself. They are the same in all versions of NFS. RFC 1813
// s2.6, RFC 8881 s15.1
const NOSPC: u32 = 28;
/// Try again later: NFS3ERR_JUKEBOX, NFS4ERR_DELAY.
pub(crate) const DELAY: u32 = 10_008;
const SERVERFAULT: u32 = 10_006;

/// What the reply cache needs from the owner of the connections.
pub(crate) trait Waiters: Send + Sync {
    /// Sends a reply to a connection that waits for it: its call ran for another connection.
    fn reply(&self, waiter: Token, reply: &[u8]);

    /// Ends a connection that waits for a reply which will not come, so that its client sends the
    /// call again.
    fn abandon(&self, waiter: Token);

    /// Has the loops check soon whether clients have their replies.
    fn check_acknowledgements(&self);
}

/// The reply cache of a group.
#[derive(Debug)]
pub(crate) enum ReplyCache {
    /// All nodes are in this process.
    Local { windows: Mutex<Windows>, tables: Vec<Mutex<Table>>, connections: LocalConnections },
    /// Nodes are in several processes of this host.
    Shared(SharedReplyCache),
}

/// The connections of other clients, allocated by the first call that changes something.
#[derive(Debug, Default)]
pub(crate) struct LocalConnections(OnceLock<Box<[AtomicU64]>>);

impl LocalConnections {
    fn table(&self) -> ConnectionTable<'_> {
        let make = || std::iter::repeat_with(AtomicU64::default).take(CONNECTIONS_WORDS).collect();
        ConnectionTable::new(self.0.get_or_init(make), &SingleProcess)
    }
}

/// The windows of one of our clients.
#[derive(Debug, Clone)]
pub(crate) enum Window {
    Local(Arc<ClientWindow>),
    Shared(Arc<SharedClient>),
}

impl Window {
    fn is_current(&self) -> bool {
        match self {
            Self::Local(_) => true,
            Self::Shared(client) => client.is_current(),
        }
    }

    fn id(&self) -> u64 {
        match self {
            Self::Local(window) => window.id(),
            Self::Shared(client) => client.id(),
        }
    }
}

/// No code that holds one of these locks panics, so the guarded data are always consistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ReplyCache {
    pub fn new() -> Self {
        let table = || Mutex::new(Table::new(TABLE_ENTRIES_MAX / TABLES));
        let tables = std::iter::repeat_with(table).take(TABLES).collect();
        let windows = Mutex::new(Windows::new(CLIENT_WINDOWS_MAX));
        Self::Local { windows, tables, connections: LocalConnections::default() }
    }

    /// The window of one of our clients; `None` when there are too many of them.
    pub fn window(&self, id: u64, from: IpAddr, now: Duration) -> Option<Window> {
        match self {
            Self::Local { windows, .. } => lock(windows).window(id, network_of(from), now).map(Window::Local),
            Self::Shared(shared) => shared.client(id, from, now).map(Window::Shared),
        }
    }

    /// The connections of other clients.
    pub fn connections(&self) -> ConnectionTable<'_> {
        match self {
            Self::Local { connections, .. } => connections.table(),
            Self::Shared(shared) => shared.connections(),
        }
    }

    /// The number of windows, and of calls in the tables.
    #[cfg(test)]
    pub fn entries(&self) -> (usize, usize) {
        match self {
            Self::Local { windows, tables, .. } => {
                (lock(windows).len(), tables.iter().map(|table| lock(table).len()).sum())
            }
            Self::Shared(_) => (0, 0),
        }
    }

    /// The state shared between processes, if there is any.
    pub const fn shared(&self) -> Option<&SharedReplyCache> {
        match self {
            Self::Local { .. } => None,
            Self::Shared(shared) => Some(shared),
        }
    }
}

/// Whether a call comes from one of our own clients, with an xid of the class that its procedure
/// needs.
pub(crate) fn is_ours(identity: &Identity, xid: Xid, class: XidClass) -> bool {
    identity.client_id.is_some() && XidClass::of(xid) == Some(class)
}

/// How to proceed with a call.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Execute it.
    Run,
    /// The call ran: send this reply.
    Replay(Stored),
    /// Another connection or thread executes it, and its reply will go to this connection.
    Attached,
    /// The call is running elsewhere, or may turn out to be a neighbour's: try again soon.
    Defer,
    /// Do not execute it.
    Refused(Refusal),
}

impl From<Begin> for Verdict {
    fn from(begin: Begin) -> Self {
        match begin {
            Begin::Run => Self::Run,
            Begin::Replay(stored) => Self::Replay(stored),
            Begin::Attached => Self::Attached,
            Begin::Defer => Self::Defer,
            Begin::Refused(refusal) => Self::Refused(refusal),
        }
    }
}

impl From<SharedBegin> for Verdict {
    fn from(begin: SharedBegin) -> Self {
        match begin {
            SharedBegin::Run => Self::Run,
            SharedBegin::Replay(stored) => Self::Replay(stored),
            SharedBegin::Running => Self::Defer,
            SharedBegin::Refused(refusal) => Self::Refused(refusal),
        }
    }
}

enum Cache<'a> {
    Window(&'a ClientWindow, Xid, XidClass),
    Table(&'a Mutex<Table>, ForeignCall),
    SharedWindow(&'a SharedClient, Xid, XidClass),
    SharedTable(&'a SharedReplyCache, ForeignCall, Option<SlotIndex>),
}

/// The progress of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    NotBegun,
    Begun,
    Started,
}

/// The time at which a call is processed, and the time at which it was received.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    pub now: Duration,
    pub received: Duration,
}

/// One call as it passes the cache.
pub(crate) struct CacheEntry<'a> {
    cache: Cache<'a>,
    reply_cache: &'a ReplyCache,
    waiters: &'a dyn Waiters,
    times: Times,
    stage: Stage,
    /// The reply is kept whole, so noting the state before the call is useful.
    keeps_reply: bool,
}

impl<'a> CacheEntry<'a> {
    /// Chooses the cache for a call, after [`CacheClient::acquire_window`].
    #[inline]
    pub fn new(
        reply_cache: &'a ReplyCache,
        waiters: &'a dyn Waiters,
        cache_client: &'a CacheClient,
        identity: &Identity,
        (header, class): (&CallHeader<'_>, XidClass),
        args_hash: impl FnOnce() -> u64,
        times: Times,
    ) -> Self {
        let foreign = || ForeignCall {
            key: CallKey::new(header, args_hash(), cache_client.address),
            origin: cache_client.connection.origin(reply_cache),
        };
        let cache = match (reply_cache, &cache_client.window) {
            (_, Some(Window::Local(window))) if is_ours(identity, header.xid, class) => {
                Cache::Window(window, header.xid, class)
            }
            (_, Some(Window::Shared(client))) if is_ours(identity, header.xid, class) => {
                Cache::SharedWindow(client, header.xid, class)
            }
            (ReplyCache::Local { tables, .. }, _) => {
                let call = foreign();
                let shard = call.key.shard(tables.len());
                match tables.get(shard).or(tables.first()) {
                    Some(table) => Cache::Table(table, call),
                    None => unreachable!("there are {TABLES} tables"),
                }
            }
            (ReplyCache::Shared(shared), _) => Cache::SharedTable(shared, foreign(), None),
        };
        Self {
            cache,
            reply_cache,
            waiters,
            times,
            stage: Stage::NotBegun,
            keeps_reply: class == XidClass::WholeReply,
        }
    }

    /// Whether a call must note the present state before it is executed, which only workers do:
    /// other processes see its progress, and a process that has ended may have executed it.
    pub const fn records_pre_op_state(&self) -> bool {
        self.keeps_reply && matches!(self.cache, Cache::SharedWindow(..) | Cache::SharedTable(..))
    }

    /// Looks the call up, and says how to proceed.
    #[inline]
    pub fn begin(&mut self, token: Token) -> Verdict {
        let Times { now, received } = self.times;
        let context = || LookupContext::new(self.reply_cache.connections(), received, now);
        let mut queried_owner = false;
        let verdict = match &mut self.cache {
            Cache::Window(window, xid, _) => window.begin(*xid, token, now).into(),
            Cache::Table(table, call) => {
                let context = context();
                let begin = lock(table).begin(call, token, &context);
                queried_owner = context.queried_owner.get();
                begin.into()
            }
            Cache::SharedWindow(client, xid, _) => client.begin(*xid, now).into(),
            Cache::SharedTable(shared, call, slot) => {
                let context = context();
                let (begin, found) = shared.table().begin(shared.host(), call, &context);
                (*slot, queried_owner) = (found, context.queried_owner.get());
                begin.into()
            }
        };
        if verdict == Verdict::Run {
            self.stage = Stage::Begun;
        }
        if queried_owner {
            // Loops of this process check at once whether the client has its reply; loops of other
            // processes do so soon.
            self.waiters.check_acknowledgements();
        }
        verdict
    }

    /// Resumes a call that was begun on its loop and [handed over](Self::hand_over).
    pub const fn resume(&mut self) -> Verdict {
        self.stage = Stage::Begun;
        Verdict::Run
    }

    /// Called right before a call that was begun is executed.
    #[inline]
    pub fn start(&mut self) -> Start {
        let start = match &self.cache {
            Cache::Window(..) | Cache::Table(..) => Start::Fresh,
            Cache::SharedWindow(client, xid, _) => client.start(*xid),
            Cache::SharedTable(shared, call, slot) => shared.table().start(shared.host(), call, *slot),
        };
        self.stage = if start == Start::Lost { Stage::NotBegun } else { Stage::Started };
        start
    }

    /// Notes the state that an execution of the call starts from.
    pub fn record_pre_op(&self, state: PreOpState) {
        match &self.cache {
            Cache::Window(..) | Cache::Table(..) => {}
            Cache::SharedWindow(client, xid, _) => client.record_pre_op(*xid, state),
            Cache::SharedTable(shared, call, slot) => shared.table().record_pre_op(call, *slot, state),
        }
    }

    /// The state noted when the call was first executed, or may have been.
    pub fn pre_op(&self) -> Option<PreOpState> {
        match &self.cache {
            Cache::Window(..) | Cache::Table(..) => None,
            Cache::SharedWindow(client, xid, _) => client.pre_op(*xid),
            Cache::SharedTable(shared, call, slot) => shared.table().pre_op(call, *slot),
        }
    }

    /// Leaves a call that was begun, but not executed, to a worker that resumes it.
    pub fn hand_over(mut self) {
        match &self.cache {
            Cache::SharedWindow(client, xid, _) if self.stage == Stage::Started => client.cancel_start(*xid),
            Cache::SharedTable(shared, call, slot) if self.stage == Stage::Started => {
                shared.table().cancel_start(shared.host(), call, *slot);
            }
            _ => {}
        }
        self.stage = Stage::NotBegun;
    }

    /// Ends a call that was begun but not executed: the call may run when it is sent again. A
    /// connection that waits for its reply is closed.
    pub fn forget(mut self) {
        if let Some(waiter) = self.end(Outcome::Dropped).waiter {
            self.waiters.abandon(waiter);
        }
    }

    /// Ends a call that was started. `reply` is the reply after the xid; `is_partial` says that the
    /// call did less than requested. Status 0 is success.
    #[inline]
    pub fn finish(mut self, status: u32, is_partial: bool, reply: &[u8]) -> ReplyTo {
        let outcome = match &self.cache {
            Cache::Window(_, _, XidClass::DoneBit) | Cache::SharedWindow(_, _, XidClass::DoneBit) => {
                match status {
                    // A reply built from a done bit says that everything was done; so partial
                    // success counts as a failure.
                    _ if is_partial => Outcome::Failed(NOSPC),
                    0 => Outcome::Done,
                    status => Outcome::Failed(status),
                }
            }
            _ => Outcome::Reply(reply),
        };
        self.end(outcome)
    }

    fn end(&mut self, outcome: Outcome<'_>) -> ReplyTo {
        self.stage = Stage::NotBegun;
        match &self.cache {
            Cache::Window(window, xid, _) => window.finish(*xid, outcome, self.times.now),
            // The current time: from it on the client is given time to receive the reply.
            Cache::Table(table, call) => lock(table).finish(call, outcome, clock::now()),
            Cache::SharedWindow(client, xid, _) => {
                client.finish(*xid, outcome);
                ReplyTo::ORIGINAL
            }
            Cache::SharedTable(shared, call, slot) => {
                shared.table().finish(shared.host(), call, *slot, outcome, clock::now());
                ReplyTo::ORIGINAL
            }
        }
    }
}

impl Drop for CacheEntry<'_> {
    fn drop(&mut self) {
        if self.stage != Stage::NotBegun {
            // A bug interrupted the call: its effects are unknown, and it must not run again.
            if let Some(waiter) = self.end(Outcome::Failed(SERVERFAULT)).waiter {
                self.waiters.abandon(waiter);
            }
        }
    }
}
