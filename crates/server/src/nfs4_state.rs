//! What NFS version 4 keeps for all connections of a server: the state of its clients, and who this
//! server is to them. RFC 8881 s2.4, s2.10.4. The locks of version 3 are in the same state
//! (`locks`).
//!
//! The state is in memory of this process and ends with it, or in the file of a group of processes
//! (`place`) and ends with the last of them. What outlives it, in the state directory of an export,
//! is who had any (`recovery`): so clients can reclaim it. A server of exports in memory has no
//! such place, and nothing to reclaim: it is another one after a restart, and says so. What the
//! state has for clients they are told by way of their back channels (`call_backs`).

mod associations;
mod back_connection;
mod call_backs;
mod held;
mod locks;
mod place;
mod recovery;
mod releases;

pub(crate) use associations::Associations;
pub(crate) use back_connection::BackConnection;
pub(crate) use call_backs::{Wake, is_usable, keep_security};
pub use recovery::RecoveryError;

use crate::clock;
use crate::config::{Config, NfsVersions};
use crate::error::Error;
use crate::export::{Export, Exports};
use crate::nlm_hosts;
use crate::shared_reply_cache::{ArenaWords, GroupError, GroupFile, GroupHost, ServerWord};
use call_backs::BackChannels;
use held::HeldFiles;
pub(crate) use held::{FileName, Opening};
use locks::Grants;
pub(crate) use place::{Change, StateHost, StateWords};
use recovery::{GraceRecorded, Recovered, Recovery, WRITE_WAIT};
use state::{Bounds, ClientRef, HeapWords, Host as _, Kind, OpenError, Output, SingleProcess, State, Tick};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use store::ObjectId;

/// How often what has expired is looked for.
const TICK: Duration = Duration::from_secs(1);
/// When the next round begins while more is left, so that no round delays a loop for long.
const NEXT_ROUND: Duration = Duration::from_millis(10);

/// How often a process of a group looks which of the files that it holds have been closed by way of
/// others.
const SEARCH_IN_GROUP: Duration = Duration::from_secs(10);
/// How often a call looks whether the record of its client is written, where another process
/// writes it.
const RECORD_POLL: Duration = Duration::from_millis(2);

/// Slots of a session: what one loop of our client asks for. Linux asks for 64.
pub(crate) const SLOTS_MAX: u32 = 256;

/// The most that all clients together have, of which a client may have the part that a large
/// machine needs. All of it takes about 550 MiB if it is used.
const BOUNDS: Bounds = Bounds {
    clients: 4096,
    sessions: 8192,
    sessions_per_client: 32,
    slots: 131_072,
    slots_per_session: SLOTS_MAX,
    reply_bytes: nfs4::sizes::CACHED_REPLY_BYTES,
    owners: 131_072,
    owners_per_client: 65_536,
    files: 262_144,
    opens: 262_144,
    opens_per_client: 131_072,
    locks: 131_072,
    locks_per_client: 65_536,
    ranges: 262_144,
    ranges_per_client: 65_536,
    delegations: 65_536,
    delegations_per_client: 16_384,
    waiters: 16_384,
    waiters_per_client: 4096,
    recoveries: 4096,
    blobs: 524_288,
};

/// The same for a server of version 3 alone, whose clients have no sessions and open nothing. What
/// is taken at the start must be little, because most such servers lock little.
const BOUNDS_WITHOUT_4: Bounds = Bounds {
    sessions: 16,
    sessions_per_client: 1,
    slots: 256,
    slots_per_session: 16,
    owners: 65_536,
    owners_per_client: 32_768,
    files: 65_536,
    opens: 16,
    opens_per_client: 16,
    delegations: 16,
    delegations_per_client: 16,
    locks: 65_536,
    locks_per_client: 32_768,
    ranges: 131_072,
    ranges_per_client: 65_536,
    blobs: 131_072,
    ..BOUNDS
};

/// The name of a file in the state of the clients: the same for all its handles.
pub(crate) fn file_name(export: &Export, object: ObjectId) -> FileName {
    let mut name = FileName::from_slice(&export.config.fsid.to_be_bytes());
    name.extend_from_slice(&object.fileid.to_be_bytes());
    name.extend_from_slice(object.name());
    name
}

/// What [`file_name`] was made of: the number of the export, and the object.
pub(crate) fn parse_file_name(name: &[u8]) -> Option<(u32, ObjectId)> {
    let (fsid, rest) = name.split_first_chunk()?;
    let (fileid, name) = rest.split_first_chunk()?;
    Some((u32::from_be_bytes(*fsid), ObjectId::named(u64::from_be_bytes(*fileid), name)?))
}

/// See the module's documentation.
pub(crate) struct Nfs4State {
    pub state: Arc<State<StateWords>>,
    pub versions: NfsVersions,
    /// The server's owner and scope: the same after a restart, where state can be reclaimed, and in
    /// all processes of a group. RFC 8881 s2.5, s2.10.4
    pub identity: [u8; 16],
    pub lease: Duration,
    /// The state number of this server's status monitor: odd, and higher after each restart.
    pub nsm_state: i32,
    /// What hosts that lock by NLM are told.
    pub host_calls: Arc<nlm_hosts::CallBacks>,
    /// Gives locks to hosts that wait for them.
    grants: Grants,
    host: Arc<StateHost>,
    /// The file of the group of processes that the state is in.
    group: Option<Arc<GroupFile>>,
    /// Where there is stable storage.
    recovery: Option<Recovery>,
    /// The files that are open.
    held: HeldFiles,
    back_channels: BackChannels,
    /// When it was last looked for what has expired, in milliseconds.
    ticked_ms: AtomicU64,
    /// When a search for files that others have closed began, in milliseconds.
    searched_ms: AtomicU64,
    /// Whether the last look left something to do.
    is_left: AtomicBool,
}

impl std::fmt::Debug for Nfs4State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Nfs4State").field("versions", &self.versions).finish_non_exhaustive()
    }
}

/// Random numbers: the identity, the seed of the state, and its epoch.
fn random() -> Result<([u8; 16], u128, u32), Error> {
    let (mut identity, mut seed, mut epoch) = ([0; 16], [0; 16], [0; 4]);
    let filled = getrandom::fill(&mut identity)
        .and_then(|()| getrandom::fill(&mut seed))
        .and_then(|()| getrandom::fill(&mut epoch));
    filled.map_err(|error| Error::System {
        what: "random bytes for the state of clients",
        error: std::io::Error::other(error.to_string()),
    })?;
    // 0 and the highest number are not epochs.
    let epoch = u32::from_ne_bytes(epoch).clamp(1, u32::MAX - 1);
    Ok((identity, u128::from_ne_bytes(seed), epoch))
}

fn memory_fault(what: impl ToString) -> Error {
    let error = std::io::Error::other(what.to_string());
    Error::System { what: "memory for the state of clients", error }
}

fn bounds(config: &Config) -> state::Config {
    let bounds = if config.versions.has_v4() { BOUNDS } else { BOUNDS_WITHOUT_4 };
    state::Config { bounds, lease: config.lease, ..state::Config::default() }
}

/// Serves a new arena, where the clients of stable storage may reclaim first.
fn begin(
    state: &State<StateWords>,
    host: &StateHost,
    config: &Config,
    recovered: Option<&Recovered>,
) -> Result<(), Error> {
    // Clients that were not there when this server last ran have nothing to reclaim.
    let clients = recovered.map_or(&[][..], |recovered| &recovered.clients);
    let clients = clients.get(..BOUNDS.recoveries as usize).unwrap_or(clients);
    if let (Some(recovered), [_, ..]) = (recovered, clients) {
        let hosts = clients.iter().filter(|client| client.is_nlm).count();
        tracing::info!(
            clients = clients.len() - hosts,
            hosts,
            "{} clients of NFS version 4 may reclaim what they had open, and {hosts} hosts of version 3 what \
             they had locked, for {} seconds at most; until then nothing new is opened or locked ({})",
            clients.len() - hosts,
            config.lease.as_secs(),
            recovered.path().display()
        );
    }
    state.begin_grace(host, clock::now() + config.lease, clients).map_err(memory_fault)
}

impl Nfs4State {
    /// The length of the arena in the file of a group; `None` if there are neither clients of
    /// version 4 nor locks of version 3.
    pub fn arena_words(config: &Config) -> Option<usize> {
        let is_needed = config.versions.has_v4() || config.serves_nlm();
        is_needed.then(|| State::<HeapWords>::word_count(&bounds(config))).flatten()
    }

    /// The state of a server that serves version 4, or locks files for version 3; `None` for
    /// others, and if another server has the records and nobody has asked for version 4. The
    /// records of clients are kept in the state directory of the exports, if they have one, and
    /// `group` has the state of a group of processes.
    pub fn new(
        config: &Config,
        exports: &Arc<Exports>,
        group: Option<Arc<GroupFile>>,
    ) -> Result<Option<Self>, Error> {
        if !config.versions.has_v4() && !config.serves_nlm() {
            return Ok(None);
        }
        let state = match (group, exports.state_directory()) {
            (Some(file), Some(directory)) => Self::in_group(config, exports, &directory, file),
            (_, directory) => Self::single(config, exports, directory.as_deref()),
        };
        match state {
            Ok(state) => Ok(Some(state)),
            Err(error) if !config.versions.has_v4() => {
                tracing::warn!(
                    "serving without NLM, so clients of NFS version 3 must mount with nolock; `nlm = false` says \
                     that it is meant so: {error}"
                );
                Ok(None)
            }
            Err(Error::Recovery(error @ RecoveryError::InUse { .. }))
                if config.may_leave_v4 && config.versions.has_v3() =>
            {
                tracing::warn!(
                    "serving NFS version 3 alone, without locks, because {error}, and two servers do not see each \
                     other's locks. Processes with one `group` directory do; `versions = [\"3\"]` and `nlm = \
                     false` say that it is meant so"
                );
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// The state of one process.
    fn single(config: &Config, exports: &Arc<Exports>, directory: Option<&Path>) -> Result<Self, Error> {
        let (mut identity, seed, mut epoch) = random()?;
        let recovered = directory.map(Recovered::read).transpose()?;
        if let Some(recovered) = &recovered {
            (identity, epoch) = (recovered.identity, recovered.epoch);
        }
        let bounds = bounds(config);
        let words = State::<HeapWords>::word_count(&bounds);
        let words = HeapWords::new(words.ok_or_else(|| memory_fault("the bounds are not usable"))?);
        let state = State::create(StateWords::Heap(words), &bounds, epoch, seed).map_err(memory_fault)?;
        let host = StateHost::Single(SingleProcess);
        begin(&state, &host, config, recovered.as_ref())?;
        let is_recorded = recovered.as_ref().is_none_or(|recovered| recovered.clients.is_empty());
        let grace = GraceRecorded::Single(Arc::new(AtomicBool::new(is_recorded)));
        let mut shared = Self::with(config, exports, (state, host), identity);
        shared.tell_hosts(recovered.as_ref());
        shared.recovery = match (recovered, directory) {
            (Some(recovered), Some(directory)) => Some(shared.start(Some(recovered), directory, grace)?),
            _ => None,
        };
        Ok(shared)
    }

    /// The state of a group of processes, which is created if this is the first one. A process that
    /// is about to create it may end at any step: then the next one does it again.
    fn in_group(
        config: &Config,
        exports: &Arc<Exports>,
        directory: &Path,
        file: Arc<GroupFile>,
    ) -> Result<Self, Error> {
        let fault = |error| Error::Group { directory: config.group.clone().unwrap_or_default(), error };
        let of_state = |error| fault(GroupError::State { path: file.path().to_owned(), error });
        let damaged = |what| of_state(OpenError::Damaged(what));
        let host = GroupHost::new(Arc::clone(&file)).ok_or_else(|| damaged("a process without a number"))?;
        let host = StateHost::Group(host);
        let words = || StateWords::Group(ArenaWords::new(Arc::clone(&file)));
        let bounds = bounds(config);
        let starting = file.lock_for_start().map_err(fault)?;
        let grace = GraceRecorded::Group(Arc::clone(&file));
        let (state, recovered) = match State::open(words()) {
            Ok(state) if state.is_loaded() => (state, None),
            Ok(state) => (state, Some(Recovered::read_in_group(directory)?)),
            Err(OpenError::NotCreated) => {
                let recovered = Recovered::read_in_group(directory)?;
                set_identity(&file, recovered.identity);
                let (_, seed, _) = random()?;
                let state = State::create(words(), &bounds, recovered.epoch, seed).map_err(of_state)?;
                (state, Some(recovered))
            }
            Err(error) => return Err(of_state(error)),
        };
        let theirs = state.config();
        if theirs.lease != bounds.lease {
            let (theirs_s, ours_s) = (theirs.lease.as_secs(), bounds.lease.as_secs());
            return Err(fault(GroupError::Lease { path: file.path().to_owned(), theirs_s, ours_s }));
        }
        if *theirs != bounds {
            return Err(damaged("its bounds are others"));
        }
        if let Some(recovered) = &recovered {
            grace.set(recovered.clients.is_empty());
            begin(&state, &host, config, Some(recovered))?;
        }
        let mut shared = Self::with(config, exports, (state, host), identity_of(&file));
        shared.tell_hosts(recovered.as_ref());
        shared.recovery = Some(shared.start(recovered, directory, grace)?);
        drop(starting);
        shared.group = Some(file);
        Ok(shared)
    }

    fn with(
        config: &Config,
        exports: &Arc<Exports>,
        (state, host): (State<StateWords>, StateHost),
        identity: [u8; 16],
    ) -> Self {
        let (state, host) = (Arc::new(state), Arc::new(host));
        let host_calls =
            nlm_hosts::CallBacks::new(Arc::clone(&state), Arc::clone(&host), config.clients_rpcbind);
        let host_calls = Arc::new(host_calls);
        Self {
            grants: Grants::new(exports, &state, &host, &host_calls),
            nsm_state: locks::nsm_state(state.epoch()),
            state,
            versions: config.versions,
            identity,
            lease: config.lease,
            host_calls,
            host,
            group: None,
            recovery: None,
            held: HeldFiles::default(),
            back_channels: BackChannels::default(),
            ticked_ms: AtomicU64::new(0),
            searched_ms: AtomicU64::new(0),
            is_left: AtomicBool::new(false),
        }
    }

    fn start(
        &self,
        recovered: Option<Recovered>,
        directory: &Path,
        grace: GraceRecorded,
    ) -> Result<Recovery, Error> {
        let (state, host) = (Arc::clone(&self.state), Arc::clone(&self.host));
        let grants = self.grants.clone();
        Recovery::start(recovered, directory, (state, host, grants), grace)
            .map_err(|error| Error::System { what: "a thread", error })
    }

    /// Whether the state is that of a group of processes: what one of them has begun may have to be
    /// ended by another.
    pub const fn is_in_group(&self) -> bool {
        self.group.is_some()
    }

    /// This process, as the state knows it.
    pub fn host(&self) -> &StateHost {
        &self.host
    }

    /// Whether opens and locks can only be reclaimed, and what clients had open may be in the way
    /// of others. RFC 8881 s8.4.2.1
    pub fn is_in_grace(&self, now: Duration) -> bool {
        self.state.is_in_grace(now)
            || self.recovery.as_ref().is_some_and(|recovery| !recovery.is_grace_recorded())
    }

    /// Whether an operation on an export may be in the way of what clients of version 4 have open
    /// or delegated, or soon will.
    #[inline]
    pub fn is_heeded_in(&self, export: &Export) -> bool {
        // A neighbour of a group may give delegations where this process does not.
        self.versions.has_v4()
            && (export.config.delegations
                || self.is_in_group()
                || self.state.denies_anything()
                || self.state.used(Kind::Delegation) > 0)
    }

    /// Begins a change of an object: [`State::begin_change`]. `None` where there can be no
    /// delegations.
    #[inline]
    pub fn begin_change(
        &self,
        now: Duration,
        of: Option<ClientRef>,
        export: &Export,
        object: ObjectId,
    ) -> Result<Option<Change<'_>>, state::Error> {
        // Also where this process gives no delegations: its neighbours may.
        if !self.versions.has_v4() {
            return Ok(None);
        }
        self.state.begin_change(self.host(), now, of, &file_name(export, object)).map(Some)
    }

    /// Goes on with a change that is half done: [`State::go_on_with_change`].
    pub fn go_on_with_change(
        &self,
        now: Duration,
        of: Option<ClientRef>,
        export: &Export,
        object: ObjectId,
    ) -> Result<Option<Change<'_>>, state::Error> {
        if !self.versions.has_v4() {
            return Ok(None);
        }
        self.state.go_on_with_change(self.host(), now, of, &file_name(export, object)).map(Some)
    }

    /// Ends what it does beside the loops, at `deadline` at the latest; writes what is to outlive
    /// the server, and gives the file back to the next one.
    pub fn end(&self, deadline: Duration) {
        self.held.end(deadline);
        // Clients that have ended are told of once their records are free.
        let now = clock::now();
        let is_left = |tick: Result<Tick, state::Error>| matches!(tick, Ok(Tick::More));
        while is_left(self.state.tick(self.host(), now)) {}
        self.settle(now);
        if let Some(recovery) = &self.recovery {
            recovery.end();
        }
        self.host_calls.end(deadline);
        if self.is_in_group()
            && let Err(error) = self.state.forget_process(self.host(), now, self.host().me())
        {
            tracing::warn!(%error, "the others learn later that nobody is called back from here");
        }
    }

    /// Waits until the record of a new client is written.
    pub fn wait_for_record(&self, of: ClientRef) {
        match &self.recovery {
            Some(recovery) if self.group.is_none() => recovery.flush(),
            Some(_) => {
                let deadline = clock::now() + WRITE_WAIT;
                let is_written = |now| self.state.may_open(now, of, false) != Err(state::Error::NotRecorded);
                while !is_written(clock::now()) && clock::now() < deadline {
                    std::thread::sleep(RECORD_POLL);
                }
            }
            None => {}
        }
    }

    /// In what time [`tick`](Self::tick) has something to do; `None` while there are no clients,
    /// nothing is left of any, and none is waited for.
    pub fn next_tick(&self, now: Duration) -> Option<Duration> {
        let is_left = self.is_left.load(Ordering::Relaxed) || self.is_in_grace(now);
        if !is_left && self.state.used(Kind::Client) == 0 && !self.holds_ended() {
            return None;
        }
        let last = Duration::from_millis(self.ticked_ms.load(Ordering::Relaxed));
        let sweep = (last + TICK).saturating_sub(now);
        Some(self.next_look(now).map_or(sweep, |look| look.min(sweep)))
    }

    /// Frees what has expired, at most once a second. Called in each round of a loop.
    #[inline]
    pub fn tick(&self, now: Duration) {
        self.look_for_call_backs(now);
        let now_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        let last = self.ticked_ms.load(Ordering::Relaxed);
        if now_ms.saturating_sub(last) >= TICK.as_millis() as u64
            && self.next_tick(now).is_some()
            && self.ticked_ms.compare_exchange(last, now_ms, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            self.sweep(now, now_ms);
        }
    }

    #[cold]
    fn sweep(&self, now: Duration, now_ms: u64) {
        let is_left = match self.state.tick(self.host(), now) {
            Ok(tick) => tick == Tick::More,
            Err(error) => {
                tracing::warn!(%error, "what clients left cannot be freed");
                false
            }
        };
        let is_left = self.release_lost(now) | is_left;
        self.is_left.store(is_left, Ordering::Relaxed);
        if is_left {
            let wait_ms = (TICK - NEXT_ROUND).as_millis() as u64;
            self.ticked_ms.store(now_ms.saturating_sub(wait_ms), Ordering::Relaxed);
        }
        self.settle(now);
        self.note_silent(now);
        self.call_back(now);
        if self.is_in_group()
            && let Err(error) = self.state.forget_ended_processes(self.host(), now)
        {
            tracing::warn!(%error, "back channels of processes that have ended stay noted");
        }
    }

    /// Has the records written that the state asks for, and locks given to hosts of NLM that wait
    /// for them. Where there is no stable storage, a client's record is as good as written. In a
    /// group, the process that writes the records does it.
    pub fn settle(&self, now: Duration) {
        if let (Some(_), Some(recovery)) = (&self.group, &self.recovery) {
            recovery.look();
            return;
        }
        loop {
            match self.state.poll_work(self.host(), now) {
                Ok(Some(output)) => self.carry_out(output, now),
                Ok(None) => return,
                Err(error) => {
                    tracing::warn!(%error, "the state of clients cannot be read");
                    return;
                }
            }
        }
    }

    fn carry_out(&self, output: Output, now: Duration) {
        match (output, &self.recovery) {
            (Output::Persist(record), Some(recovery)) => recovery.persist(record),
            (Output::Persist(record), None) => {
                if let Err(error) = self.state.persisted(self.host(), now, record.client) {
                    tracing::warn!(%error, "a client cannot open files");
                }
            }
            (Output::Forget(id), Some(recovery)) => recovery.forget(id),
            (Output::GraceEnded, Some(recovery)) => recovery.end_grace(),
            (Output::LockAvailable(available), _) => self.grants.grant(available, now),
            (Output::Forget(_) | Output::GraceEnded, None) | (Output::Recall(_), _) => {}
        }
    }
}

fn set_identity(file: &GroupFile, identity: [u8; 16]) {
    let [first, second] =
        [0, 8].map(|at| identity[at..].first_chunk().map_or(0, |half| u64::from_ne_bytes(*half)));
    for (at, half) in [first, second].into_iter().enumerate() {
        if let Some(word) = file.server_word(ServerWord::Identity, at) {
            word.store(half, Ordering::SeqCst);
        }
    }
}

fn identity_of(file: &GroupFile) -> [u8; 16] {
    let mut identity = [0; 16];
    for (at, half) in identity.chunks_exact_mut(8).enumerate() {
        let word = file.server_word(ServerWord::Identity, at).map_or(0, |word| word.load(Ordering::SeqCst));
        half.copy_from_slice(&word.to_ne_bytes());
    }
    identity
}
