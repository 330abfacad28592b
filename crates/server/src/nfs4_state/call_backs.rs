//! Call-backs: what the state has for clients whose back channels this process has is sent to them.
//! RFC 8881 s2.10.3, s20
//!
//! The state says what clients are to be told, and which process can tell them; here is how. A call
//! takes a slot of the session, goes out on one of its connections, and gives the slot back when
//! the reply comes. Nobody waits for a reply: a client that does not answer keeps its slot, and the
//! state asks again after a while, on another slot and, if there is one, another connection. When a
//! connection ends, its calls may have been executed: their slots are used again, and a client that
//! knows them says so ([`Answer::UsedBefore`]).
//!
//! Bounds: the slots of a session, the calls awaited on a connection, and [`WAITING_MAX`] calls
//! that wait for a slot. What is beyond is forgotten: a recall comes again out of the state, and a
//! client that is not told of a lock asks by itself.

mod message;
pub(super) mod security;

pub(crate) use security::{is_usable, keep as keep_security};

use super::Nfs4State;
use super::back_connection::{BackConnection, BoundTo};
use crate::export::{Export, Exports};
use crate::group::Group;
use drc::Token;
use fs::FileHandle;
use message::{Answer, Head};
use nfs4::cb::{Args, notify, recall};
use nfs4::{ClientId, OwnerId, StateOwner, Stateid};
use state::{BACK_SLOTS_MAX, CallBackSlot, Kind, Output, SessionId, StateId};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;
use store::ObjectId;
use xdr::Reader;

/// How often it is looked for what other processes of a group want clients of this one to be told,
/// and for what is to be tried again.
const LOOK: Duration = Duration::from_millis(20);
/// A client that has not answered for so long is called back on another connection, and told.
const PATIENCE: Duration = Duration::from_secs(4);
/// Calls that are sent in one go, so that no loop is delayed for long.
const CALLS_PER_LOOK: usize = 256;
/// Calls of a session that wait for a slot.
const WAITING_MAX: usize = 256;
/// How often a client is asked again that wants to be, and how long it is left alone before.
const ATTEMPTS_MAX: u32 = 6;
const AGAIN: Duration = Duration::from_millis(100);

/// What a client is told.
#[derive(Debug, Clone, PartialEq, Eq)]
enum What {
    Recall(StateId),
    LockAvailable(state::ClientId, Vec<u8>),
}

/// A call to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Work {
    what: What,
    /// The file, as the state names it.
    file: Vec<u8>,
    attempts: u32,
    not_before: Duration,
}

impl Work {
    const fn new(what: What, file: Vec<u8>) -> Self {
        Self { what, file, attempts: 0, not_before: Duration::ZERO }
    }

    pub const fn recall(delegation: StateId, file: Vec<u8>) -> Self {
        Self::new(What::Recall(delegation), file)
    }

    const fn is_recall(&self) -> bool {
        matches!(self.what, What::Recall(_))
    }
}

/// A call whose reply is awaited.
#[derive(Debug)]
pub(super) struct Awaited {
    pub session: SessionId,
    pub slot: CallBackSlot,
    pub work: Work,
    pub since: Duration,
}

/// Wakes the loop of a connection.
pub(crate) trait Wake: Send + Sync + std::fmt::Debug {
    /// There are calls to send on this connection.
    fn has_calls(&self, connection: Token);
}

#[derive(Debug)]
struct Outlet {
    group: Weak<Group>,
    loops: Arc<dyn Wake>,
}

/// The back channel of a session, as far as this process has it.
#[derive(Debug, Default)]
struct Channel {
    connections: Vec<Arc<BackConnection>>,
    waiting: VecDeque<Work>,
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct BackChannels {
    outlet: OnceLock<Outlet>,
    channels: Mutex<Channels>,
    /// How many channels there are, and calls that wait.
    bound: AtomicUsize,
    waiting: AtomicUsize,
    next_xid: AtomicU32,
    /// When it was last looked for what is to be told, in milliseconds.
    looked_ms: AtomicU64,
    /// Whether there was something then that only other processes can tell.
    is_others: AtomicBool,
}

impl Default for BackChannels {
    fn default() -> Self {
        Self {
            outlet: OnceLock::new(),
            channels: Mutex::default(),
            bound: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            next_xid: AtomicU32::new(1),
            looked_ms: AtomicU64::new(0),
            is_others: AtomicBool::new(false),
        }
    }
}

/// The channels, and how many calls wait in all of them.
#[derive(Debug, Default)]
struct Channels {
    by_session: HashMap<SessionId, Channel>,
    waiting: usize,
}

impl Channels {
    fn remove(&mut self, session: SessionId) -> Option<Channel> {
        let channel = self.by_session.remove(&session)?;
        self.waiting -= channel.waiting.len();
        Some(channel)
    }

    fn take_due(&mut self, session: SessionId, now: Duration) -> Option<Work> {
        let work = self.by_session.get_mut(&session)?.take_due(now)?;
        self.waiting -= 1;
        Some(work)
    }
}

impl Channel {
    fn take_due(&mut self, now: Duration) -> Option<Work> {
        let at = self.waiting.iter().position(|work| work.not_before <= now)?;
        self.waiting.remove(at)
    }
}

/// The channels while they are changed: what is read without the lock is right again afterwards.
struct Changing<'a> {
    of: &'a BackChannels,
    guard: MutexGuard<'a, Channels>,
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.of.bound.store(self.guard.by_session.len(), Ordering::Relaxed);
        self.of.waiting.store(self.guard.waiting, Ordering::Relaxed);
    }
}

impl BackChannels {
    fn lock(&self) -> MutexGuard<'_, Channels> {
        // Each change is complete.
        self.channels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self) -> Changing<'_> {
        Changing { of: self, guard: self.lock() }
    }

    /// The connections of a session, those first whose clients answer.
    fn connections(&self, session: SessionId, now: Duration) -> Vec<Arc<BackConnection>> {
        let all = self.lock().by_session.get(&session).map(|channel| channel.connections.clone());
        let mut all = all.unwrap_or_default();
        all.sort_by_key(|connection| connection.is_silent(now, PATIENCE));
        all
    }

    /// Has a call wait for a slot, or for its time.
    fn wait(&self, session: SessionId, work: Work) {
        let mut changing = self.change();
        let Some(channel) = changing.guard.by_session.get_mut(&session) else { return };
        let is_there = channel.waiting.iter().any(|other| other.what == work.what);
        if !is_there && channel.waiting.len() < WAITING_MAX {
            channel.waiting.push_back(work);
            changing.guard.waiting += 1;
        }
    }

    /// The next call of a session whose time has come.
    fn next_waiting(&self, session: SessionId, now: Duration) -> Option<Work> {
        if self.waiting.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.change().guard.take_due(session, now)
    }

    /// The next call of each session, for those whose time has come.
    fn all_due(&self, now: Duration) -> Vec<(SessionId, Work)> {
        if self.waiting.load(Ordering::Relaxed) == 0 {
            return Vec::new();
        }
        let mut changing = self.change();
        let channels = changing.guard.by_session.iter_mut();
        let due = channels.filter_map(|(session, channel)| Some((*session, channel.take_due(now)?)));
        let due: Vec<_> = due.take(CALLS_PER_LOOK).collect();
        changing.guard.waiting -= due.len();
        due
    }

    fn sessions(&self) -> Vec<SessionId> {
        self.lock().by_session.keys().copied().collect()
    }

    fn forget(&self, session: SessionId) -> Vec<Arc<BackConnection>> {
        self.change().guard.remove(session).map(|channel| channel.connections).unwrap_or_default()
    }

    fn is_bound(&self) -> bool {
        self.bound.load(Ordering::Relaxed) > 0
    }
}

/// The export and object of a name that [`file_name`](super::file_name) has made.
fn object_of<'e>(exports: &'e Exports, name: &[u8]) -> Option<(&'e Export, ObjectId)> {
    let (fsid, object) = super::parse_file_name(name)?;
    Some((exports.iter().find(|(_, export)| export.config.fsid == fsid)?.1, object))
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Nfs4State {
    /// Begins to call back: by way of these loops, in files of this group.
    pub fn start_call_backs(&self, group: Weak<Group>, loops: Arc<dyn Wake>) {
        // Once: a server has one group.
        let _ = self.back_channels.outlet.set(Outlet { group, loops });
    }

    /// Makes a connection, which is at `token`, a part of the back channel of a session.
    ///
    /// # Errors
    /// Those of [`bind_back`](state::State::bind_back).
    pub fn bind_back(
        &self,
        now: Duration,
        connection: &Arc<BackConnection>,
        token: Token,
        session: SessionId,
    ) -> Result<(), state::Error> {
        if connection.has(session) {
            return Ok(());
        }
        self.state.bind_back(self.host(), now, session)?;
        // At once with what is noted: a connection that ends meanwhile finds it.
        let mut changing = self.back_channels.change();
        let bound = connection.bind(token, session);
        if matches!(bound, BoundTo::Session(_)) {
            let channel = changing.guard.by_session.entry(session).or_default();
            channel.connections.push(Arc::clone(connection));
        }
        drop(changing);
        match bound {
            BoundTo::Session(Some(lost)) => self.unbind_back(now, connection, lost),
            BoundTo::Session(None) => {}
            // Bound twice, or ended since: the state counts what is there.
            BoundTo::Before | BoundTo::Nothing => self.uncount_back(now, session),
        }
        self.call_back(now);
        Ok(())
    }

    fn uncount_back(&self, now: Duration, session: SessionId) {
        if let Err(error) = self.state.unbind_back(self.host(), now, session) {
            tracing::warn!(%error, "a back channel that has ended stays noted");
        }
    }

    /// A connection is no longer part of the back channel of a session.
    fn unbind_back(&self, now: Duration, connection: &BackConnection, session: SessionId) {
        let mut changing = self.back_channels.change();
        if let Some(channel) = changing.guard.by_session.get_mut(&session) {
            channel.connections.retain(|other| !std::ptr::eq(&**other, connection));
            if channel.connections.is_empty() {
                changing.guard.remove(session);
            }
        }
        drop(changing);
        self.uncount_back(now, session);
    }

    /// A connection has ended. What it was asked is asked on another one, if there is one.
    pub fn end_back(&self, now: Duration, connection: &BackConnection) {
        if !connection.expects_replies() {
            return;
        }
        let (sessions, awaited) = connection.end();
        for session in sessions {
            self.unbind_back(now, connection, session);
        }
        for call in awaited {
            self.end_slot(now, &call, false);
            self.tell(now, call.session, call.work);
        }
    }

    /// A session has ended: nobody is called back on it.
    pub fn forget_session(&self, session: SessionId) {
        for connection in self.back_channels.forget(session) {
            connection.unbind(session);
        }
    }

    /// Sends what there is to be told, after something may have brought that about.
    #[inline]
    pub fn call_back_if_needed(&self, now: Duration) {
        if self.back_channels.is_bound()
            && self.state.has_call_backs()
            && (!self.back_channels.is_others.load(Ordering::Relaxed)
                || self.next_look(now) == Some(Duration::ZERO))
        {
            self.call_back(now);
        }
    }

    /// In what time there may be something to tell although nobody calls here; `None` if that is
    /// nothing that cannot wait for the next sweep.
    pub(super) fn next_look(&self, now: Duration) -> Option<Duration> {
        let calls = &self.back_channels;
        if !calls.is_bound() {
            return None;
        }
        let others = self.is_in_group()
            && (self.state.used(Kind::Delegation) > 0 || self.state.used(Kind::Waiter) > 0);
        let is_needed = others || calls.waiting.load(Ordering::Relaxed) > 0 || self.state.has_call_backs();
        let last = Duration::from_millis(calls.looked_ms.load(Ordering::Relaxed));
        is_needed.then(|| (last + LOOK).saturating_sub(now))
    }

    /// Sends what there is to be told, at most every [`LOOK`]. Called in each round of a loop.
    #[inline]
    pub(super) fn look_for_call_backs(&self, now: Duration) {
        if self.back_channels.is_bound() && self.next_look(now) == Some(Duration::ZERO) {
            self.call_back(now);
        }
    }

    /// Sends what there is to be told.
    #[cold]
    pub fn call_back(&self, now: Duration) {
        self.back_channels.looked_ms.store(milliseconds(now), Ordering::Relaxed);
        if !self.back_channels.is_bound() {
            return;
        }
        for (session, work) in self.back_channels.all_due(now) {
            self.tell(now, session, work);
        }
        for _ in 0..CALLS_PER_LOOK {
            match self.state.poll_call_back(self.host(), now) {
                Ok(Some(Output::Recall(recall))) => {
                    self.tell(now, recall.session, Work::recall(recall.state, recall.file));
                }
                Ok(Some(Output::LockAvailable(lock))) => {
                    if let Some(session) = lock.session {
                        let what = What::LockAvailable(lock.client, lock.owner);
                        self.tell(now, session, Work::new(what, lock.file));
                    }
                }
                Ok(Some(Output::Persist(_) | Output::Forget(_) | Output::GraceEnded) | None) => break,
                Err(error) => {
                    tracing::warn!(%error, "clients cannot be called back");
                    break;
                }
            }
        }
        self.back_channels.is_others.store(self.state.has_call_backs(), Ordering::Relaxed);
    }

    /// Notes which clients do not answer. RFC 8881 s18.46.1 (SEQ4_STATUS_BACKCHANNEL_FAULT)
    pub(super) fn note_silent(&self, now: Duration) {
        if !self.back_channels.is_bound() {
            return;
        }
        for session in self.back_channels.sessions() {
            let all = self.back_channels.connections(session, now);
            // One that answers is enough.
            if !all.is_empty() && all.iter().all(|connection| connection.is_silent(now, PATIENCE)) {
                self.set_fault(now, session, true);
            }
        }
    }

    fn set_fault(&self, now: Duration, session: SessionId, is_faulty: bool) {
        match self.state.set_back_fault(self.host(), now, session, is_faulty) {
            Ok(()) => {}
            Err(state::Error::BadSession) => self.forget_session(session),
            Err(error) => tracing::warn!(%error, "a back channel's fault is not noted"),
        }
    }

    fn end_slot(&self, now: Duration, call: &Awaited, executed: bool) {
        match self.state.end_call_back(self.host(), now, call.session, call.slot, executed) {
            Ok(()) => {}
            Err(state::Error::BadSession) => self.forget_session(call.session),
            Err(error) => tracing::warn!(%error, "the slot of a call-back stays in use"),
        }
    }

    /// Sends a call, or has it wait for a slot.
    fn tell(&self, now: Duration, session: SessionId, work: Work) {
        if work.not_before > now {
            return self.back_channels.wait(session, work);
        }
        let slot = match self.state.begin_call_back(self.host(), now, session) {
            Ok(Some(slot)) => slot,
            Ok(None) => return self.back_channels.wait(session, work),
            Err(state::Error::BadSession) => return self.forget_session(session),
            Err(error) => {
                tracing::warn!(%error, "a client is not called back");
                return;
            }
        };
        let mut call = Box::new(Awaited { session, slot, work, since: now });
        let xid = self.back_channels.next_xid.fetch_add(1, Ordering::Relaxed);
        let (Some(outlet), Some(message)) = (self.back_channels.outlet.get(), self.message(now, xid, &call))
        else {
            // There is no such file any more, or nobody to send it.
            return self.end_slot(now, &call, false);
        };
        for connection in self.back_channels.connections(session, now) {
            call = match connection.queue(xid, call, &message) {
                Ok(token) => return outlet.loops.has_calls(token),
                Err(call) => call,
            };
        }
        // The state asks another process, or this one later.
        self.end_slot(now, &call, false);
    }

    fn message(&self, now: Duration, xid: u32, call: &Awaited) -> Option<Vec<u8>> {
        let exports = self.back_channels.outlet.get()?.group.upgrade()?.exports();
        let (export, object) = object_of(&exports, &call.work.file)?;
        let file = FileHandle::new(export.handle(object).as_slice())?;
        let target = self.state.call_back_target(self.host(), now, call.session).ok()?;
        let channels = self.state.channels(call.session).ok()?;
        let (minor, credential) = security::credential(&target.security)?;
        let head = Head {
            xid,
            program: target.program,
            minor,
            credential: &credential,
            session: nfs4::SessionId(call.session.0),
            slot: call.slot,
            highest_slot: channels.back.requests.min(BACK_SLOTS_MAX as u32).saturating_sub(1),
        };
        let message = match &call.work.what {
            What::Recall(id) => {
                let delegation = Stateid { seqid: id.seqid, other: id.other };
                message::encode(&head, &Args::Recall(recall::Args { delegation, truncate: false, file }))
            }
            What::LockAvailable(client, owner) => {
                let owner = StateOwner { client: ClientId(client.0), owner: OwnerId::new(owner)? };
                message::encode(&head, &Args::NotifyLock(notify::LockArgs { file, owner }))
            }
        };
        message.filter(|message| message.len() <= channels.back.request_bytes as usize)
    }

    /// Takes a record that is not a call. Returns false if it is no reply either, or none is
    /// expected on this connection: then the bytes that follow have no meaning.
    pub fn take_reply(&self, now: Duration, connection: &BackConnection, record: &[u8]) -> bool {
        let mut reader = Reader::new(record);
        let Ok(reply) = rpc::reply::decode(&mut reader) else { return false };
        if !connection.expects_replies() {
            return false;
        }
        // One that was not asked for answers nothing.
        if let Some(call) = connection.answered(reply.xid.0) {
            let session = nfs4::SessionId(call.session.0);
            let answer =
                message::decode(reply.body, reader.rest(), session, call.slot, call.work.is_recall());
            self.take_answer(now, call, answer);
        }
        true
    }

    /// The client's transport has refused a call, which the client has not seen.
    pub fn take_refusal(&self, now: Duration, connection: &BackConnection, xid: u32) {
        if let Some(call) = connection.answered(xid) {
            self.take_answer(now, call, Answer::Refused);
        }
    }

    fn take_answer(&self, now: Duration, call: Awaited, answer: Answer) {
        // What a process that has ended had asked may be what the client has answered once more.
        let answer = if call.slot.in_doubt && answer == Answer::Done { Answer::UsedBefore } else { answer };
        let is_fault = matches!(answer, Answer::Refused | Answer::SlotLost);
        self.set_fault(now, call.session, is_fault);
        if is_fault {
            tracing::debug!(?answer, slot = ?call.slot, "a client does not take a call-back");
        }
        match answer {
            Answer::Done | Answer::DoneAskAgain | Answer::UsedBefore => self.end_slot(now, &call, true),
            Answer::AskAgain | Answer::Refused => self.end_slot(now, &call, false),
            // It stays in use: no sequence id is right.
            Answer::SlotLost => {}
        }
        let session = call.session;
        if let Some(work) = again(now, answer, call.work) {
            self.tell(now, session, work);
        }
        if let Some(work) = self.back_channels.next_waiting(session, now) {
            self.tell(now, session, work);
        }
    }
}

/// The call that is to be made after this answer to it. Beyond some attempts a recall comes again
/// out of the state.
fn again(now: Duration, answer: Answer, work: Work) -> Option<Work> {
    let later = match answer {
        Answer::Done | Answer::Refused => return None,
        Answer::UsedBefore | Answer::SlotLost => Duration::ZERO,
        Answer::DoneAskAgain | Answer::AskAgain => AGAIN * 2_u32.pow(work.attempts.min(ATTEMPTS_MAX)),
    };
    let attempts = work.attempts + 1;
    (attempts < ATTEMPTS_MAX).then(|| Work { attempts, not_before: now + later, ..work })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(100);

    fn work() -> Work {
        Work::recall(StateId { seqid: 1, other: [7; 12] }, b"file".to_vec())
    }

    #[test]
    fn a_client_that_wants_to_be_asked_again_is_asked_less_and_less_often_and_not_for_ever() {
        assert_eq!(again(NOW, Answer::Done, work()), None);
        assert_eq!(again(NOW, Answer::Refused, work()), None);
        assert_eq!(again(NOW, Answer::UsedBefore, work()).map(|work| work.not_before), Some(NOW));
        let (mut next, mut waits) = (work(), Vec::new());
        while let Some(work) = again(NOW, Answer::AskAgain, next) {
            waits.push((work.not_before - NOW).as_millis());
            next = work;
        }
        assert_eq!(waits, [100, 200, 400, 800, 1600]);
    }

    #[test]
    fn calls_that_wait_are_bounded_and_each_waits_once() {
        let (calls, session) = (BackChannels::default(), SessionId([1; 16]));
        calls.wait(session, work());
        assert_eq!(calls.next_waiting(session, NOW), None, "there is no such channel");
        calls.change().guard.by_session.insert(session, Channel::default());
        assert!(calls.is_bound());
        for round in 0..2 {
            for number in 0..1000_u32 {
                let mut other = [0; 12];
                other[..4].copy_from_slice(&number.to_be_bytes());
                calls.wait(session, Work::recall(StateId { seqid: 1, other }, Vec::new()));
            }
            assert_eq!(calls.waiting.load(Ordering::Relaxed), WAITING_MAX, "round {round}");
        }
        calls.wait(SessionId([2; 16]), work());
        let taken = std::iter::from_fn(|| calls.next_waiting(session, NOW)).count();
        assert_eq!(taken, WAITING_MAX);
        calls.wait(session, Work { not_before: NOW, ..work() });
        assert_eq!(calls.next_waiting(session, NOW - AGAIN), None, "its time has not come");
        assert!(calls.next_waiting(session, NOW).is_some());
    }

    #[test]
    fn one_call_of_each_session_is_due_at_a_time_and_a_session_that_ends_takes_its_calls_along() {
        let calls = BackChannels::default();
        let sessions = [1, 2, 3].map(|number| SessionId([number; 16]));
        for session in sessions {
            calls.change().guard.by_session.insert(session, Channel::default());
        }
        let recall = |number: u8| Work::recall(StateId { seqid: 1, other: [number; 12] }, Vec::new());
        for (session, work) in [
            (sessions[0], recall(1)),
            (sessions[0], recall(2)),
            (sessions[1], recall(3)),
            (sessions[2], Work { not_before: NOW + AGAIN, ..recall(4) }),
        ] {
            calls.wait(session, work);
        }
        let mut due = calls.all_due(NOW);
        due.sort_by_key(|(session, _)| session.0);
        assert_eq!(due, [(sessions[0], recall(1)), (sessions[1], recall(3))]);
        assert_eq!(calls.waiting.load(Ordering::Relaxed), 2);
        calls.forget(sessions[0]);
        assert_eq!((calls.all_due(NOW), calls.waiting.load(Ordering::Relaxed)), (Vec::new(), 1));
        assert_eq!(calls.all_due(NOW + AGAIN).len(), 1);
    }
}
