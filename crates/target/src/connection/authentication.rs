//! What stands before the commands of a queue whose host has to authenticate. NVMe Base, "NVMe
//! In-band Authentication"; [`chap::gate`].
//!
//! ```text
//!  Authentication Send ─ data ─> the gate goes to the authenticator ─> answered, the gate is back
//!  Authentication Receive ─────> answered with the gate's message
//!  any other ──────────────────> refused, until the host is authenticated
//! ```
//!
//! A queue whose host could not be authenticated ends once the host has got the message that says
//! so, or when its time is over.

use super::{Connection, Context, EndReason, Link, Role};
use crate::authenticator::{Done, Job};
use crate::config::QUEUE_ENTRIES;
use crate::inbound::{Data, Place};
use chap::{Admission, Failure, Gate, Outcome};
use nvme::fabrics::FabricsType;
use nvme::tcp::{Incoming, Progress};
use nvme::{AdminOpcode, Nqn, Sqe, Status};
use std::sync::Arc;
use std::time::Instant;

/// The tag under which the data of a message are asked for: above those of all other commands. A
/// queue has one such message at a time.
pub(super) const AUTHENTICATION_TAG: u16 = QUEUE_ENTRIES as u16;

/// Where the gate is.
#[derive(Debug)]
enum State {
    Here(Box<Gate>),
    /// With the authenticator, since then. Whether the host was authenticated before.
    Away {
        since: Instant,
        is_authenticated: bool,
    },
}

/// A message whose data are being received.
#[derive(Debug)]
struct Incomplete {
    sqe: Sqe,
    /// For data that come on request over TCP.
    memory: Vec<u8>,
    in_capsule: bool,
    since: Instant,
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Authentication {
    state: State,
    host: Nqn,
    incomplete: Option<Incomplete>,
    /// The identifier of the command whose message is received or handled, and to be answered.
    unanswered: Option<u16>,
    /// When the host must be authenticated, or a transaction that it has begun later be over.
    until: Option<Instant>,
    /// It has failed, and the log says so.
    has_failed: bool,
    /// Held while the connection is there.
    presence: Arc<()>,
}

impl Authentication {
    pub(super) fn new(gate: Box<Gate>, host: Nqn, until: Instant) -> Self {
        Self {
            state: State::Here(gate),
            host,
            incomplete: None,
            unanswered: None,
            until: Some(until),
            has_failed: false,
            presence: Arc::new(()),
        }
    }

    /// Whether the host has taken too long. What takes its time here is not the host's.
    pub(super) fn is_late(&self, now: Instant) -> bool {
        matches!(self.state, State::Here(_)) && self.until.is_some_and(|until| now >= until)
    }

    pub(super) fn receives_since(&self) -> Option<Instant> {
        let awaited = self.incomplete.as_ref().filter(|_| self.unanswered.is_some());
        awaited.map(|incomplete| incomplete.since)
    }

    /// The controller was reset: what is done with a message goes on, but it is not answered.
    /// Returns the identifier of its command.
    pub(super) const fn drop_message(&mut self) -> Option<u16> {
        self.unanswered.take()
    }

    /// The data of a message are received.
    fn begin(&mut self, incomplete: Incomplete) {
        self.unanswered = Some(incomplete.sqe.cid);
        self.incomplete = Some(incomplete);
    }

    pub(super) fn fill(&mut self, at: usize, bytes: &[u8]) {
        let memory = self.incomplete.as_mut().map(|incomplete| &mut incomplete.memory);
        if let Some(place) = memory.and_then(|memory| memory.get_mut(at..at + bytes.len())) {
            place.copy_from_slice(bytes);
        }
    }

    /// What becomes of a command. Messages are handled one after the other.
    fn admit(&self, sqe: &Sqe) -> Admission {
        let admission = match &self.state {
            State::Here(gate) => gate.admit(sqe),
            State::Away { .. } if is_message(sqe) => {
                Admission::Refuse(Status::COMMAND_SEQUENCE_ERROR.no_retry())
            }
            State::Away { is_authenticated: true, .. } => Admission::Pass,
            State::Away { .. } => Admission::Refuse(Status::AUTHENTICATION_REQUIRED.no_retry()),
        };
        match admission {
            Admission::Send { .. } | Admission::Receive { .. } if self.incomplete.is_some() => {
                Admission::Refuse(Status::COMMAND_SEQUENCE_ERROR.no_retry())
            }
            other => other,
        }
    }
}

fn is_message(sqe: &Sqe) -> bool {
    let kinds = [FabricsType::AUTHENTICATION_SEND, FabricsType::AUTHENTICATION_RECEIVE];
    AdminOpcode(sqe.opcode) == AdminOpcode::FABRICS && kinds.contains(&FabricsType::of(sqe))
}

impl Connection {
    /// Deals with a command that does not pass. Says where its data belong; `None` if it passes.
    pub(super) fn authenticate(
        &mut self,
        sqe: &Sqe,
        data: Incoming,
        context: &mut Context<'_>,
    ) -> Result<Option<Place>, EndReason> {
        let Some(authentication) = &mut self.authentication else { return Ok(None) };
        let (sqe, since) = (*sqe, context.now);
        match (authentication.admit(&sqe), data) {
            (Admission::Pass, _) => return Ok(None),
            (Admission::Send { bytes }, Incoming::InCapsule(_)) => {
                authentication.begin(Incomplete { sqe, memory: Vec::new(), in_capsule: true, since });
                return Ok(Some(Place::Own(Vec::with_capacity(bytes))));
            }
            (Admission::Send { bytes }, Incoming::OnRequest(asked)) => {
                let mut memory = vec![0; bytes];
                self.link.ask_for_admin(AUTHENTICATION_TAG, sqe.cid, asked, &mut memory);
                authentication.begin(Incomplete { sqe, memory, in_capsule: false, since });
            }
            (Admission::Receive { room }, Incoming::ToHost(_)) => self.send_message(&sqe, room, context)?,
            (Admission::Refuse(status), _) => self.refuse(&sqe, status, context)?,
            (Admission::Send { .. } | Admission::Receive { .. }, _) => {
                self.refuse(&sqe, Status::INVALID_FIELD.no_retry(), context)?;
            }
        }
        Ok(Some(Place::Nowhere))
    }

    /// Whether the data in the capsule that is being received are a message.
    pub(super) fn is_authenticating_by_capsule(&self) -> bool {
        let incomplete = self.authentication.as_ref().and_then(|one| one.incomplete.as_ref());
        incomplete.is_some_and(|incomplete| incomplete.in_capsule)
    }

    /// A part of the data that were asked for over TCP is here.
    pub(super) fn finish_authentication_part(
        &mut self,
        offset: usize,
        data: &Data,
        context: &mut Context<'_>,
    ) -> Result<(), EndReason> {
        let (Some(authentication), Link::Tcp(stream)) = (&mut self.authentication, &mut self.link) else {
            return Ok(());
        };
        let Some(incomplete) = &mut authentication.incomplete else { return Ok(()) };
        let part = incomplete.memory.get(offset..offset + data.bytes).unwrap_or_default();
        let progress = stream.handle_data(AUTHENTICATION_TAG, std::iter::once(part), data);
        if progress == Progress::More {
            return Ok(());
        }
        let memory = std::mem::take(&mut incomplete.memory);
        self.finish_authentication_data(&memory, progress, context)
    }

    /// A message of the host is here: it is handled elsewhere.
    pub(super) fn finish_authentication_data(
        &mut self,
        message: &[u8],
        progress: Progress,
        context: &mut Context<'_>,
    ) -> Result<(), EndReason> {
        let Some(authentication) = &mut self.authentication else { return Ok(()) };
        let Some(Incomplete { sqe, .. }) = authentication.incomplete.take() else { return Ok(()) };
        // A message whose command was dropped before it was here was not sent.
        if authentication.unanswered.is_none() {
            return Ok(());
        }
        if let Progress::Failed(status) = progress {
            authentication.unanswered = None;
            return self.refuse(&sqe, status, context);
        }
        let State::Here(gate) = &authentication.state else { return Ok(()) };
        let away = State::Away { since: context.now, is_authenticated: gate.is_authenticated() };
        let State::Here(mut gate) = std::mem::replace(&mut authentication.state, away) else {
            return Ok(());
        };
        context.shared.controllers.renew(&mut gate, &authentication.host);
        let asker = Arc::downgrade(&authentication.presence);
        let job = Job { place: self.place, gate, sqe, message: message.to_vec(), asker };
        if context.shared.authenticator.handle(job) { Ok(()) } else { Err(EndReason::Stop) }
    }

    /// A message of the host was handled.
    pub(crate) fn authenticated(&mut self, done: Done, context: &mut Context<'_>) {
        let Some(authentication) =
            self.authentication.as_mut().filter(|_| matches!(self.phase, super::Phase::Open))
        else {
            return;
        };
        let Done { gate, sqe, result } = done;
        if let State::Away { since, .. } = authentication.state {
            let spent = context.now.duration_since(since);
            authentication.until = authentication.until.map(|until| until + spent);
        }
        authentication.state = State::Here(gate);
        let is_dropped = authentication.unanswered.take().is_none();
        let answered = match result {
            _ if is_dropped => Ok(()),
            Ok(_) => self.answer_message(&sqe, Vec::new(), context),
            Err(status) => self.refuse(&sqe, status, context),
        };
        let ended = answered.map(|()| {
            if let Ok(outcome) = result {
                self.proceed(outcome, matches!(outcome, Outcome::Failed(Failure::ByPeer(_))), context);
            }
        });
        if let Err(reason) = ended {
            self.end(&reason, context);
        }
    }

    /// The host asks for a message.
    fn send_message(&mut self, sqe: &Sqe, room: usize, context: &mut Context<'_>) -> Result<(), EndReason> {
        let Some(Authentication { state: State::Here(gate), .. }) = self.authentication.as_deref_mut() else {
            return Ok(());
        };
        match gate.handle_receive(room) {
            Ok((message, outcome)) => {
                self.answer_message(sqe, message, context)?;
                self.proceed(outcome, true, context);
                Ok(())
            }
            Err(_) => {
                self.refuse(sqe, Status::INVALID_FIELD, context)?;
                // Its message waits, also one that says that the host has failed: not for ever.
                self.proceed(Outcome::Continue, false, context);
                Ok(())
            }
        }
    }

    /// Answers a command of authentication, which succeeds in any case.
    fn answer_message(
        &mut self,
        sqe: &Sqe,
        data: Vec<u8>,
        context: &mut Context<'_>,
    ) -> Result<(), EndReason> {
        match &mut self.role {
            Role::Io(io) => {
                let cqe = io.machine.refuse(sqe, Status::SUCCESS).map_err(EndReason::Violation)?;
                let failed = io.machine.take_failed_half();
                self.link.answer(&cqe, &data);
                self.fail_half(failed, context);
            }
            Role::Admin(admin) => {
                admin.answer(self.place.event_loop, &context.shared.controllers, sqe, data);
            }
            Role::Pending => {}
        }
        Ok(())
    }

    /// What follows from a step. `is_told`: the host knows if it has failed.
    fn proceed(&mut self, outcome: Outcome, is_told: bool, context: &Context<'_>) {
        let queue = self.queue();
        let Some(authentication) = &mut self.authentication else { return };
        let State::Here(gate) = &authentication.state else { return };
        let limit = context.now + context.shared.limits.authentication;
        authentication.until = gate.is_waiting().then(|| authentication.until.unwrap_or(limit));
        match outcome {
            Outcome::Continue => {}
            Outcome::Authenticated => {
                tracing::info!(peer = %self.peer, ?queue, host = %authentication.host, "authenticated");
            }
            Outcome::Failed(cause) => {
                let host = &authentication.host;
                if !std::mem::replace(&mut authentication.has_failed, true) {
                    tracing::warn!(peer = %self.peer, ?queue, %host, %cause, "not authenticated");
                }
                if is_told {
                    context.shared.controllers.not_authenticated(self.place);
                }
            }
        }
    }
}
