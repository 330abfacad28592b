//! Keeps the session of a mount: has a thread make a new one when the server has lost it, and end
//! it with the mount.
//!
//! A new session is made only at an address that has proved to lead to the server before: the
//! address at which the mount began, and those whose connections were validated. Another server at
//! one of these addresses does not get the mount while the real one answers elsewhere.
//!
//! An old session that the server still has is ended before there is a new one, so no call in it
//! runs beside those in the new one. A new session that allows less than the mount uses is not
//! taken.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use transport::Address;

use super::Session;
use super::first_calls::{self, CallError, CreateNumbers, FirstCalls, LATER_MAX, Making};
use crate::call_backs::CallBacks;
use crate::caller::Caller;
use crate::error::MountError;
use crate::locks::Locks;
use crate::options::Proto;
use crate::protocol::nfs4::{ClientOwner, Exchanged, Needs, Wanted};

/// The wait after an attempt at which no address answered; it doubles up to [`RETRY_MAX`].
const RETRY: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(5);
/// A session that is lost sooner than this after it was made is not replaced at once: a server that
/// refuses each of them is not to be flooded.
const LIFE_MIN: Duration = Duration::from_secs(1);

/// Connections of a mount that carry call-backs: several, so that one that has died unnoticed does
/// not silence them.
const BACK_CONNECTIONS: usize = 4;

/// An address of the server, and how it is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    pub local: Option<Address>,
    pub remote: SocketAddr,
    pub proto: Proto,
}

/// Why a new session is wanted.
#[derive(Debug, Clone)]
enum Why {
    /// The server does not know the session.
    Lost(String),
    /// The server at this place is another one, or has restarted.
    Other(Place, &'static str),
}

#[derive(Debug)]
struct Kept {
    session: Arc<Session>,
    places: Vec<Place>,
    needs: Needs,
    wanted: Option<Why>,
    made_at: Instant,
    is_closing: bool,
    has_ended: bool,
}

/// How sessions of a mount are made.
#[derive(Debug)]
struct Setup {
    locks: Arc<Locks>,
    call_backs: Arc<CallBacks>,
    wanted: Wanted,
    client: ClientOwner,
    credential: Vec<u8>,
    reserved_port: Option<bool>,
    server: String,
}

#[derive(Debug)]
struct Shared {
    setup: Setup,
    kept: Mutex<Kept>,
    changed: Condvar,
    /// [`Session::generation`] of the current session.
    generation: AtomicU64,
    /// The generation from which on no session is known to be lost.
    good_from: AtomicU64,
    must_bind: AtomicBool,
    /// Connections that carry call-backs, or are asked to.
    back_connections: AtomicUsize,
    started: Instant,
    /// When the last call in the session was sent that was answered, in milliseconds since
    /// `started`.
    used_ms: AtomicU64,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct SessionKeeper {
    shared: Arc<Shared>,
    /// How long the server keeps a client that it hears nothing of.
    lease: Duration,
}

impl SessionKeeper {
    /// Keeps a session that was made at `home`.
    pub(crate) fn start(
        (session, client, numbers): (Session, ClientOwner, CreateNumbers),
        wanted: Wanted,
        (credential, reserved_port): (Vec<u8>, Option<bool>),
        (home, server): (Place, String),
        lease: Duration,
    ) -> std::io::Result<Self> {
        let (locks, call_backs) = (Arc::default(), Arc::default());
        let setup = Setup { locks, call_backs, wanted, client, credential, reserved_port, server };
        let shared = Arc::new(Shared::new(setup, session, home));
        let thread = Arc::clone(&shared);
        std::thread::Builder::new().name("tl-session".to_owned()).spawn(move || {
            thread.run(Attempts { numbers, told: Vec::new() });
        })?;
        Ok(Self { shared, lease })
    }

    pub(crate) fn minor(&self) -> u32 {
        self.shared.setup.wanted.minor
    }

    pub(crate) fn client(&self) -> &ClientOwner {
        &self.shared.setup.client
    }

    /// The locks that the mount has in its sessions.
    pub(crate) fn locks(&self) -> &Arc<Locks> {
        &self.shared.setup.locks
    }

    /// What call-backs lead to.
    pub(crate) fn call_backs(&self) -> &Arc<CallBacks> {
        &self.shared.setup.call_backs
    }

    /// Counts one more connection that carries call-backs, or is about to be asked to. Returns
    /// false if there are enough.
    pub(crate) fn add_back_connection(&self) -> bool {
        let one_more = |count: usize| (count < BACK_CONNECTIONS).then_some(count + 1);
        let counted = &self.shared.back_connections;
        self.shared.setup.wanted.call_backs
            && counted.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok()
    }

    /// Whether the server can call back, most likely.
    pub(crate) fn has_back_connection(&self) -> bool {
        self.shared.back_connections.load(Ordering::Relaxed) > 0
    }

    /// A connection carries call-backs no longer, or does not.
    pub(crate) fn remove_back_connection(&self) {
        self.shared.back_connections.fetch_sub(1, Ordering::Relaxed);
    }

    /// Sets what the mount needs of each later session.
    pub(crate) fn require(&self, needs: Needs) {
        self.shared.lock().needs = needs;
    }

    pub(crate) fn current(&self) -> Arc<Session> {
        Arc::clone(&self.shared.lock().session)
    }

    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        self.shared.generation.load(Ordering::Acquire)
    }

    /// Whether the session of this generation is known to be lost.
    #[inline]
    pub(crate) fn is_lost(&self, generation: u64) -> bool {
        generation < self.shared.good_from.load(Ordering::Acquire)
    }

    /// The server does not know the session of this generation any more: another one is made.
    pub(crate) fn lost(&self, generation: u64, reason: &str) {
        self.shared.want(generation, Why::Lost(reason.to_owned()));
    }

    /// Another server answers at a place than that of the session of this generation.
    pub(crate) fn is_other(&self, generation: u64, place: &Place, difference: &'static str) {
        self.shared.want(generation, Why::Other(place.clone(), difference));
    }

    /// A connection to this place was validated.
    pub(crate) fn trust(&self, place: &Place) {
        let mut kept = self.shared.lock();
        if !kept.places.contains(place) {
            kept.places.push(place.clone());
        }
    }

    pub(crate) fn trusts(&self, place: &Place) -> bool {
        self.shared.lock().places.contains(place)
    }

    /// The server wants each connection to be bound. RFC 8881 s2.10.3.1
    pub(crate) fn require_binding(&self) {
        self.shared.must_bind.store(true, Ordering::Relaxed);
    }

    pub(crate) fn must_bind(&self) -> bool {
        self.shared.must_bind.load(Ordering::Relaxed)
    }

    /// A call in the session was answered that was sent so long ago.
    #[inline]
    pub(crate) fn renewed(&self, ago: Duration) {
        let ago = u64::try_from(ago.as_millis()).unwrap_or(u64::MAX);
        self.shared.used_ms.fetch_max(self.shared.now_ms().saturating_sub(ago), Ordering::Relaxed);
    }

    /// Whether the server certainly has all that the client had when it was heard last.
    pub(crate) fn is_within_lease(&self) -> bool {
        u128::from(self.unheard_ms()) < self.lease.as_millis()
    }

    fn unheard_ms(&self) -> u64 {
        self.shared.now_ms().saturating_sub(self.shared.used_ms.load(Ordering::Relaxed))
    }

    /// Whether the lease should be renewed: nothing was answered for a third of it.
    pub(crate) fn is_due(&self) -> bool {
        u128::from(self.unheard_ms()) >= self.lease.as_millis() / 3
    }

    /// Ends the session, if the server answers within this time; otherwise its lease does.
    pub(crate) fn close(&self, within: Duration) {
        let mut kept = self.shared.lock();
        kept.is_closing = true;
        self.shared.changed.notify_all();
        let still = |kept: &mut Kept| !kept.has_ended;
        drop(self.shared.changed.wait_timeout_while(kept, within, still));
    }
}

impl Drop for SessionKeeper {
    fn drop(&mut self) {
        self.close(Duration::ZERO);
    }
}

/// What attempts to replace a session leave for the next.
#[derive(Debug)]
struct Attempts {
    numbers: CreateNumbers,
    /// What was told of servers that answer and give no session.
    told: Vec<String>,
}

/// So many reasons are told until there is a session; a server may invent any number.
const REASONS_TOLD_MAX: usize = 8;

impl Attempts {
    /// Tells why there is no session at a place.
    fn failed(&mut self, place: &Place, error: &MountError) {
        if let MountError::Protocol { reason, .. } = error
            && self.is_news(reason)
        {
            tracing::warn!(address = %place.remote, %reason, "no session can be made here yet");
        } else {
            tracing::debug!(address = %place.remote, %error, "no session can be made here");
        }
    }

    /// Whether this was not told before: it is told once, not with each attempt and address.
    fn is_news(&mut self, reason: &str) -> bool {
        let is_news = self.told.len() < REASONS_TOLD_MAX && !self.told.iter().any(|told| told == reason);
        if is_news {
            self.told.push(reason.to_owned());
        }
        is_news
    }
}

/// What came of an attempt to replace a session.
enum Outcome {
    Made(Session),
    /// The session is still there. The server at this place, if it names one, is another.
    Kept(Option<Place>),
}

impl Shared {
    fn new(setup: Setup, session: Session, home: Place) -> Self {
        let generation = session.generation;
        let kept = Kept {
            session: Arc::new(session),
            places: vec![home],
            needs: Needs::LEAST,
            wanted: None,
            made_at: Instant::now(),
            is_closing: false,
            has_ended: false,
        };
        Self {
            setup,
            kept: Mutex::new(kept),
            changed: Condvar::new(),
            generation: AtomicU64::new(generation),
            good_from: AtomicU64::new(generation),
            must_bind: AtomicBool::new(false),
            back_connections: AtomicUsize::new(0),
            started: Instant::now(),
            used_ms: AtomicU64::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn want(&self, generation: u64, why: Why) {
        let mut kept = self.lock();
        if kept.session.generation != generation || matches!(kept.wanted, Some(Why::Lost(_))) {
            return;
        }
        let server = &self.setup.server;
        match &why {
            Why::Lost(reason) => {
                tracing::warn!(%server, %reason, "the server has lost the session; it is made again");
                self.good_from.store(generation + 1, Ordering::Release);
            }
            Why::Other(place, difference) => {
                tracing::info!(%server, address = %place.remote, %difference, "another server, or it has restarted");
            }
        }
        kept.wanted = Some(why);
        self.changed.notify_all();
    }

    fn run(&self, mut attempts: Attempts) {
        let mut wait = Duration::ZERO;
        loop {
            let Some((why, session, places)) = self.next_task(wait) else {
                self.end();
                return;
            };
            match self.replace(&why, &session, &places, &mut attempts) {
                Some(outcome) => {
                    self.take(outcome);
                    attempts.told.clear();
                    wait = Duration::ZERO;
                }
                None => wait = (wait * 2).clamp(RETRY, RETRY_MAX),
            }
        }
    }

    /// Waits, and then for something to do; `None` if the mount is closed.
    fn next_task(&self, wait: Duration) -> Option<(Why, Arc<Session>, Vec<Place>)> {
        let open = |kept: &mut Kept| !kept.is_closing;
        let waited = self.changed.wait_timeout_while(self.lock(), wait, open);
        let mut kept = waited.unwrap_or_else(PoisonError::into_inner).0;
        loop {
            if kept.is_closing {
                return None;
            }
            let rest = LIFE_MIN.saturating_sub(kept.made_at.elapsed());
            match &kept.wanted {
                Some(why) if rest.is_zero() || kept.session.generation == 0 => {
                    return Some((why.clone(), Arc::clone(&kept.session), kept.places.clone()));
                }
                Some(_) => {
                    let waited = self.changed.wait_timeout(kept, rest);
                    kept = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
                None => kept = self.changed.wait(kept).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    fn connect(&self, place: &Place) -> Result<Caller, MountError> {
        let Setup { credential, reserved_port, .. } = &self.setup;
        match place.proto {
            Proto::Tcp => Caller::connect(place.local, place.remote, credential, *reserved_port),
            Proto::Rdma => Caller::connect_rdma(place.local, place.remote, credential),
        }
    }

    /// Makes a new session at the first place that answers. `None`: none does.
    fn replace(
        &self,
        why: &Why,
        session: &Session,
        places: &[Place],
        attempts: &mut Attempts,
    ) -> Option<Outcome> {
        let suspect = match why {
            Why::Other(place, _) => Some(place),
            Why::Lost(_) => None,
        };
        let others = places.iter().filter(|place| Some(*place) != suspect);
        for place in others.chain(suspect) {
            match self.at(place, session, suspect, &mut attempts.numbers) {
                Ok(outcome) => return Some(outcome),
                Err(error) => attempts.failed(place, &error),
            }
        }
        None
    }

    fn at(
        &self,
        place: &Place,
        session: &Session,
        suspect: Option<&Place>,
        numbers: &mut CreateNumbers,
    ) -> Result<Outcome, MountError> {
        let (wanted, old) = (self.setup.wanted, session.granted.session);
        let minor = wanted.minor;
        let mut caller = self.connect(place)?;
        let exchanged = first_calls::exchange_id(&mut caller, minor, &self.setup.client);
        let server = exchanged.map_err(|error| match error {
            CallError::Failed(status) => caller.protocol(format!("EXCHANGE_ID: {status}")),
            CallError::Mount(error) => error,
        })?;
        if let Some(suspect) = suspect
            && is_same(&server, &session.server)
        {
            // If it is the place in question that says so, it has changed its mind.
            return Ok(Outcome::Kept(Some(suspect.clone()).filter(|suspect| suspect != place)));
        }
        if is_same(&server, &session.server) {
            let deadline = Instant::now() + LATER_MAX;
            first_calls::destroy(&mut caller, minor, old, &|pause| self.may_wait(pause, deadline))?;
        }
        let (generation, needs) = (session.generation + 1, self.lock().needs);
        // A client that the server knows has all that it had.
        let is_kept = server.is_confirmed
            && (server.client == session.server.client || self.setup.locks.were_reclaimed_for(server.client));
        let reclaim = (!is_kept).then_some(&*self.setup.locks);
        let making = Making { generation, wanted, needs, numbers, old: Some(old), reclaim };
        let calls = FirstCalls::create(caller, server, making)?;
        Ok(Outcome::Made(calls.session().clone()))
    }

    /// Waits. Returns false if the mount is closed, or the wait would go beyond the deadline.
    fn may_wait(&self, pause: Duration, deadline: Instant) -> bool {
        let open = |kept: &mut Kept| !kept.is_closing;
        let waited = self.changed.wait_timeout_while(self.lock(), pause, open);
        let is_closing = waited.unwrap_or_else(PoisonError::into_inner).0.is_closing;
        !is_closing && Instant::now() < deadline
    }

    fn take(&self, outcome: Outcome) {
        let (mut kept, mut is_new) = (self.lock(), false);
        // That a session is lost is so until there is another one.
        if matches!(outcome, Outcome::Made(_)) || matches!(kept.wanted, Some(Why::Other(..))) {
            kept.wanted = None;
        }
        match outcome {
            Outcome::Made(session) => {
                tracing::warn!(server = %self.setup.server, "the session is made again");
                let generation = session.generation;
                kept.session = Arc::new(session);
                kept.made_at = Instant::now();
                self.good_from.store(generation, Ordering::Release);
                self.generation.store(generation, Ordering::Release);
                self.used_ms.store(self.now_ms(), Ordering::Relaxed);
                is_new = true;
            }
            Outcome::Kept(Some(place)) => {
                tracing::error!(address = %place.remote, "another server answers there now");
                kept.places.retain(|trusted| *trusted != place);
            }
            Outcome::Kept(None) => {}
        }
        drop(kept);
        if is_new {
            // Not reclaimed. A server that has them all the same gets them back in this session.
            self.setup.call_backs.delegations().drop_all();
        }
    }

    /// Ends the session at the first place that answers.
    fn end(&self) {
        let (session, places) = {
            let kept = self.lock();
            (Arc::clone(&kept.session), kept.places.clone())
        };
        for place in &places {
            if let Ok(mut caller) = self.connect(place)
                && first_calls::end(&mut caller, self.setup.wanted.minor, &session)
            {
                break;
            }
        }
        self.lock().has_ended = true;
        self.changed.notify_all();
    }
}

fn is_same(one: &Exchanged, other: &Exchanged) -> bool {
    one.difference(other).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::tests::session;

    fn place() -> Place {
        Place { local: None, remote: ([127, 0, 0, 1], 2049).into(), proto: Proto::Tcp }
    }

    /// Without its thread.
    fn shared() -> Shared {
        let setup = Setup {
            locks: Arc::default(),
            wanted: Wanted { minor: 2, slots: 16, payload: 1 << 20, call_backs: false },
            call_backs: Arc::default(),
            client: ClientOwner { owner: b"owner".to_vec(), verifier: [1; 8] },
            credential: Vec::new(),
            reserved_port: None,
            server: "server".to_owned(),
        };
        Shared::new(setup, session(16), place())
    }

    #[test]
    fn a_session_that_was_lost_meanwhile_is_made_again_although_another_doubt_was_unfounded() {
        let shared = shared();
        shared.want(0, Why::Other(place(), "the server's owner"));
        assert!(shared.next_task(Duration::ZERO).is_some());
        shared.want(0, Why::Lost("SEQUENCE: NFS4ERR_BADSESSION".to_owned()));
        shared.take(Outcome::Kept(None));
        assert!(matches!(shared.lock().wanted, Some(Why::Lost(_))));
        let next = Session { generation: 1, ..session(16) };
        shared.take(Outcome::Made(next));
        assert!(shared.lock().wanted.is_none());
        assert_eq!(shared.good_from.load(Ordering::Acquire), 1);
    }

    #[test]
    fn why_there_is_no_session_is_told_once() {
        let mut attempts = Attempts { numbers: CreateNumbers::default(), told: Vec::new() };
        assert!(attempts.is_news("its sessions allow 3 calls at a time"));
        assert!(attempts.is_news("DESTROY_SESSION: NFS4ERR_DELAY"));
        assert!(!attempts.is_news("its sessions allow 3 calls at a time"));
        let told = (0..100).filter(|number| attempts.is_news(&number.to_string())).count();
        assert_eq!(told, REASONS_TOLD_MAX - 2);
    }

    #[test]
    fn a_doubt_that_was_unfounded_is_done_with() {
        let shared = shared();
        shared.want(0, Why::Other(place(), "the server's owner"));
        shared.take(Outcome::Kept(Some(place())));
        assert!(shared.lock().wanted.is_none());
        assert!(shared.lock().places.is_empty());
    }
}
