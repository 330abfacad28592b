//! What callers and the loop have in common.

use crate::engine::io_optional as optional;
use crate::error::{Error, Refusal};
use crate::request::{Operation, Reply};
use crate::task::Running;
use nvme::Address;
use nvme::host::Limits;
use nvme::identify::Namespace as Identity;
use nvme::log_page::AnaState;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use transport::poll::Waker;

/// A namespace of the subsystem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Namespace {
    /// Its number.
    pub nsid: u32,
    /// Its blocks.
    pub blocks: u64,
    /// Their size as a power of two.
    pub block_shift: u8,
    /// Its identifier in the world, zeroes if it has none.
    pub nguid: [u8; 16],
    /// Likewise.
    pub eui64: [u8; 8],
    /// Whether zeroes can be written without sending them.
    pub write_zeroes: bool,
    /// Whether blocks can be deallocated.
    pub deallocate: bool,
    /// Whether deallocated blocks read as zeroes.
    pub deallocated_reads_zero: bool,
    /// Whether completed writes may be lost without Flush.
    pub volatile_cache: bool,
    /// The best length of transfers in blocks, 0 if none is better.
    pub preferred_blocks: u16,
    /// The target refuses to change it.
    pub write_protected: bool,
}

impl Namespace {
    /// The size of a block in bytes.
    #[must_use]
    pub const fn block_bytes(&self) -> u32 {
        1 << self.block_shift
    }

    /// The size in bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.blocks.saturating_mul(1 << self.block_shift)
    }
}

/// How a path is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathState {
    /// The address.
    pub address: Address,
    /// The controller, if it can be used.
    pub cntlid: Option<u16>,
    /// The numbers of its namespaces, once it has said so.
    pub listed: Option<Vec<u32>>,
    /// How it reaches those that it has described, once it has said so.
    pub ana: BTreeMap<u32, AnaState>,
    /// It owes an answer, and was asked whether it lives.
    pub is_suspect: bool,
    /// Why the last attempt or controller ended, until the next one is there.
    pub last_error: Option<String>,
    /// The target refused for good.
    pub refused: Option<Refusal>,
}

/// What a path has completed, over all of its controllers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PathCounters {
    /// Commands.
    pub commands: u64,
    /// Bytes that were read.
    pub read_bytes: u64,
    /// Bytes that were written.
    pub written_bytes: u64,
}

/// The same while it is counted; only the loop counts.
#[derive(Debug, Default)]
struct Counted {
    commands: AtomicU64,
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
}

/// Whether a namespace, or any, is among those.
fn has(listed: &[u32], nsid: Option<u32>) -> bool {
    nsid.map_or(!listed.is_empty(), |nsid| listed.contains(&nsid))
}

/// A request for the loop.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) nsid: u32,
    pub(crate) operation: Operation,
    pub(crate) cookie: u64,
    pub(crate) reply: Reply,
}

/// What callers have left for the loop.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) messages: Vec<Message>,
    pub(crate) tasks: Vec<Running>,
    /// The attachment was dropped.
    pub(crate) is_ended: bool,
}

#[derive(Debug, Default)]
struct State {
    inbox: Vec<Message>,
    tasks: Vec<Running>,
    is_ended: bool,
    has_begun: bool,
    settled_at: Option<Instant>,
    /// Controllers that are lost, and not known to be finished.
    has_unfinished: bool,
    namespaces: BTreeMap<u32, Namespace>,
    reachable: Vec<u32>,
    paths: Vec<PathState>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) waker: Waker,
    counted: Vec<Counted>,
    /// The system's number of the loop's thread; 0 until it runs.
    pub(crate) thread: AtomicU32,
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    pub(crate) fn new(waker: Waker, paths: usize) -> Self {
        let counted = (0..paths).map(|_| Counted::default()).collect();
        Self { waker, counted, thread: AtomicU32::new(0), state: Mutex::default(), changed: Condvar::new() }
    }

    /// Counts a command that a path has completed.
    pub(crate) fn count(&self, path: usize, read_bytes: u64, written_bytes: u64) {
        let Some(counted) = self.counted.get(path) else { return };
        counted.commands.fetch_add(1, Ordering::Relaxed);
        counted.read_bytes.fetch_add(read_bytes, Ordering::Relaxed);
        counted.written_bytes.fetch_add(written_bytes, Ordering::Relaxed);
    }

    pub(crate) fn counters(&self) -> Vec<PathCounters> {
        let read = |counted: &Counted| PathCounters {
            commands: counted.commands.load(Ordering::Relaxed),
            read_bytes: counted.read_bytes.load(Ordering::Relaxed),
            written_bytes: counted.written_bytes.load(Ordering::Relaxed),
        };
        self.counted.iter().map(read).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn submit(&self, message: Message) {
        let mut state = self.state();
        let must_wake = state.inbox.is_empty();
        state.inbox.push(message);
        drop(state);
        if must_wake {
            self.waker.wake();
        }
    }

    pub(crate) fn end(&self) {
        self.state().is_ended = true;
        self.waker.wake();
    }

    pub(crate) fn spawn(&self, task: Running) {
        self.state().tasks.push(task);
        self.waker.wake();
    }

    pub(crate) fn take(&self) -> Taken {
        let mut state = self.state();
        Taken {
            messages: std::mem::take(&mut state.inbox),
            tasks: std::mem::take(&mut state.tasks),
            is_ended: state.is_ended,
        }
    }

    /// From then on nothing of an earlier attachment can have an effect.
    pub(crate) fn set_settled_at(&self, at: Instant) {
        self.state().settled_at = Some(at);
    }

    pub(crate) fn set_unfinished(&self, has_unfinished: bool) {
        self.state().has_unfinished = has_unfinished;
    }

    pub(crate) fn is_settled(&self) -> bool {
        let state = self.state();
        !state.has_unfinished && state.settled_at.is_some_and(|at| Instant::now() >= at)
    }

    pub(crate) fn namespace(&self, nsid: u32) -> Option<Namespace> {
        self.state().namespaces.get(&nsid).copied()
    }

    pub(crate) fn nsids(&self) -> Vec<u32> {
        self.state().namespaces.keys().copied().collect()
    }

    pub(crate) fn namespaces(&self) -> Vec<Namespace> {
        self.state().namespaces.values().copied().collect()
    }

    pub(crate) fn paths(&self) -> Vec<PathState> {
        self.state().paths.clone()
    }

    pub(crate) fn set_namespace(&self, nsid: u32, identity: &Identity, limits: Option<&Limits>) {
        let (write_zeroes, deallocate) = limits.map_or((false, false), |limits| optional(limits.commands));
        let namespace = Namespace {
            nsid,
            blocks: identity.size,
            block_shift: identity.lba_format().shift,
            nguid: identity.nguid,
            eui64: identity.eui64,
            write_zeroes,
            deallocate,
            deallocated_reads_zero: identity.deallocation & 7 == 1,
            volatile_cache: limits.is_none_or(|limits| limits.volatile_cache),
            preferred_blocks: identity.noiob,
            write_protected: identity.attributes & 1 != 0,
        };
        self.state().namespaces.insert(nsid, namespace);
    }

    pub(crate) fn publish(
        &self,
        has_begun: bool,
        paths: Vec<PathState>,
        is_reachable: impl Fn(&u32) -> bool,
    ) {
        let mut state = self.state();
        state.has_begun = has_begun;
        state.paths = paths;
        let reachable = state.namespaces.keys().copied().filter(is_reachable).collect();
        state.reachable = reachable;
        drop(state);
        self.changed.notify_all();
    }

    /// Waits until the namespace is reachable; fails at once if every address refuses for good, or
    /// none that is connected has it.
    pub(crate) fn wait_until_reachable(
        &self,
        nsid: Option<u32>,
        within: Duration,
    ) -> Result<Namespace, Error> {
        let deadline = Instant::now() + within;
        let mut state = self.state();
        loop {
            if state.has_begun {
                let found = state.reachable.iter().find(|one| nsid.is_none_or(|nsid| nsid == **one));
                if let Some(namespace) = found.and_then(|nsid| state.namespaces.get(nsid)) {
                    return Ok(*namespace);
                }
            }
            let refused = |path: &PathState| path.refused.map(|refusal| (path.address, refusal));
            if let (Some((address, refusal)), true) =
                (state.paths.iter().find_map(refused), state.paths.iter().all(|path| path.refused.is_some()))
            {
                return Err(Error::Refused { address, refusal });
            }
            let lacks = |path: &PathState| path.listed.as_ref().is_some_and(|listed| !has(listed, nsid));
            let is_settled = |path: &PathState| lacks(path) || path.last_error.is_some();
            if state.has_begun && state.paths.iter().any(lacks) && state.paths.iter().all(is_settled) {
                return Err(Self::failure(&state, nsid, within));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Self::failure(&state, nsid, within));
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn failure(state: &State, nsid: Option<u32>, within: Duration) -> Error {
        let lists: Vec<&Vec<u32>> = state.paths.iter().filter_map(|path| path.listed.as_ref()).collect();
        let present: BTreeSet<u32> = lists.iter().flat_map(|listed| listed.iter().copied()).collect();
        if !lists.is_empty() && lists.iter().all(|listed| !has(listed, nsid)) {
            let present = present.into_iter().collect();
            return Error::NoNamespace { nsid: nsid.unwrap_or(1), present };
        }
        let nsid = nsid.or_else(|| present.first().copied());
        let shown = |path: &&PathState| path.listed.as_ref().is_some_and(|listed| has(listed, nsid));
        let by: Vec<String> = state.paths.iter().filter(shown).map(|path| not_served(path, nsid)).collect();
        if let (Some(nsid), true, false) = (nsid, state.has_begun, by.is_empty()) {
            return Error::NotServed { nsid, within, by: by.join("; ") };
        }
        let cause = |path: &PathState| {
            let error = path.last_error.as_deref().unwrap_or("not tried yet, or not done");
            format!("{}: {error}", path.address)
        };
        let causes: Vec<String> = state.paths.iter().map(cause).collect();
        Error::Unreachable { within, causes: causes.join("; ") }
    }
}

/// Why a namespace that a controller shows is not used by that path.
fn not_served(path: &PathState, nsid: Option<u32>) -> String {
    let state = nsid.and_then(|nsid| path.ana.get(&nsid)).map(|state| match *state {
        AnaState::INACCESSIBLE => "its ANA state is inaccessible".to_owned(),
        AnaState::PERSISTENT_LOSS => "its ANA state is persistent loss".to_owned(),
        AnaState::CHANGE => "its ANA state is changing".to_owned(),
        AnaState::OPTIMIZED | AnaState::NON_OPTIMIZED => "it is reached, and was not ready".to_owned(),
        other => format!("its ANA state is {:X}h", other.0),
    });
    format!(
        "{}: {}",
        path.address,
        state.unwrap_or_else(|| "it is not described, or not as usable".to_owned())
    )
}
