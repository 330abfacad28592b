//! What NFS version 4 keeps for all connections of this process: the state of its clients, and who
//! this server is to them. RFC 8881 s2.4, s2.10.4
//!
//! The state is in memory of this process and ends with it. So the server is another one after a
//! restart, and says so: its owner and scope are random, and there is nothing to reclaim.

mod held;

use crate::config::{Config, NfsVersions};
use crate::error::Error;
use crate::export::Export;
use held::{FileName, HeldFiles};
use state::{Bounds, HeapWords, Output, SingleProcess, State, Tick};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use store::ObjectId;

/// The process that has the state.
pub(crate) const HOST: SingleProcess = SingleProcess;

/// How often what has expired is looked for.
const TICK: Duration = Duration::from_secs(1);
/// When the next round begins while more is left, so that no round delays every compound.
const NEXT_ROUND: Duration = Duration::from_millis(10);

/// Slots of a session: what Linux asks for.
pub(crate) const SLOTS_MAX: u32 = 64;

/// The most that all clients together have, of which a client may have the part that a large
/// machine needs. All of it takes about 400 MiB if it is used.
const BOUNDS: Bounds = Bounds {
    clients: 4096,
    sessions: 8192,
    sessions_per_client: 32,
    slots: 65_536,
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
    delegations: 16,
    delegations_per_client: 16,
    waiters: 16,
    waiters_per_client: 16,
    recoveries: 16,
    blobs: 524_288,
};

/// The name of a file in the state of the clients: the same for all its handles.
pub(crate) fn file_name(export: &Export, object: ObjectId) -> FileName {
    let mut name = FileName::from_slice(&export.config.fsid.to_be_bytes());
    name.extend_from_slice(&object.fileid.to_be_bytes());
    name.extend_from_slice(object.name());
    name
}

/// See the module's documentation.
pub(crate) struct Nfs4State {
    pub state: State<HeapWords>,
    pub versions: NfsVersions,
    /// The server's owner and scope, random for each start. RFC 8881 s2.5, s2.10.4
    pub identity: [u8; 16],
    pub lease: Duration,
    /// The files that are open.
    held: HeldFiles,
    /// When it was last looked for what has expired, in milliseconds.
    ticked_ms: AtomicU64,
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

impl Nfs4State {
    /// The state of a server that serves version 4; `None` for others.
    pub fn new(config: &Config) -> Result<Option<Self>, Error> {
        if !config.versions.has_v4() {
            return Ok(None);
        }
        let (identity, seed, epoch) = random()?;
        let bounds = state::Config { bounds: BOUNDS, lease: config.lease, ..state::Config::default() };
        let fault = |what: String| Error::System {
            what: "memory for the state of clients",
            error: std::io::Error::other(what),
        };
        let words = State::<HeapWords>::word_count(&bounds);
        let words = HeapWords::new(words.ok_or_else(|| fault("the bounds are not usable".to_owned()))?);
        let state = State::create(words, &bounds, epoch, seed).map_err(|error| fault(error.to_string()))?;
        // Nobody can reclaim what ended with an earlier process.
        state.begin_grace(&HOST, Duration::ZERO, &[]).map_err(|error| fault(error.to_string()))?;
        let (held, ticked_ms) = (HeldFiles::default(), AtomicU64::new(0));
        Ok(Some(Self { state, versions: config.versions, identity, lease: config.lease, held, ticked_ms }))
    }

    /// Frees what has expired, at most once a second. Called for each compound: while there is
    /// none, nobody needs what could be freed.
    #[inline]
    pub fn tick(&self, now: Duration) {
        let now_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        let last = self.ticked_ms.load(Ordering::Relaxed);
        if now_ms.saturating_sub(last) >= TICK.as_millis() as u64
            && self.ticked_ms.compare_exchange(last, now_ms, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            self.sweep(now, now_ms);
        }
    }

    #[cold]
    fn sweep(&self, now: Duration, now_ms: u64) {
        let is_left = match self.state.tick(&HOST, now) {
            Ok(tick) => tick == Tick::More,
            Err(error) => {
                tracing::warn!(%error, "what clients left cannot be freed");
                false
            }
        };
        if self.release_lost(now) | is_left {
            let wait_ms = (TICK - NEXT_ROUND).as_millis() as u64;
            self.ticked_ms.store(now_ms.saturating_sub(wait_ms), Ordering::Relaxed);
        }
        self.settle(now);
    }

    /// Does what the state asks for. There is no stable storage here, so a client's record is
    /// written at once; nothing is delegated, and nobody waits in a queue.
    pub fn settle(&self, now: Duration) {
        loop {
            match self.state.poll_output(&HOST, now) {
                Ok(Some(Output::Persist(record))) => {
                    if let Err(error) = self.state.persisted(&HOST, now, record.client) {
                        tracing::warn!(%error, "a client cannot open files");
                    }
                }
                Ok(Some(
                    Output::Forget(_) | Output::GraceEnded | Output::Recall(_) | Output::LockAvailable(_),
                )) => {}
                Ok(None) => return,
                Err(error) => {
                    tracing::warn!(%error, "the state of clients cannot be read");
                    return;
                }
            }
        }
    }
}
