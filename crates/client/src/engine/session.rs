//! A loop's calls in the session of its mount (version 4): which slot each has, what becomes of it
//! when the server refuses the slot, and the lease. RFC 8881 s2.10.6, s8.3
//!
//! Invariants: a call keeps its slot, and its bytes, from its first transmission until the server
//! has executed it; where it is not known whether an earlier session executed it, the call is made
//! again as a new one that is in doubt.

use std::sync::Arc;
use std::time::Duration;

use nfs4::op::sequence::{Success, flag};
use paths::ConnId;
use xdr::Reader;

use super::back_channel::BackRepair;
use super::{Core, Engine};
use crate::call::{Answer, Body, Call, CallKey, Caller, Owner};
use crate::error::Error;
use crate::protocol::nfs4::operations::{self, LeftOpen, sequence};
use crate::protocol::nfs4::{Opened, SlotRefusal, open_reply};
use crate::protocol::{Procedure, Results, status_of_nfs4};
use crate::session::{Session, SessionKeeper, Slots};

/// How long a call waits whose session is being made again.
const SESSION_WAIT: Duration = Duration::from_millis(50);
/// How long a call waits that the server is executing already, or cannot take now.
const BUSY_WAIT: Duration = Duration::from_millis(100);
/// Flags that say that something was lost.
const LOSSES: u32 = flag::EXPIRED_ALL_STATE_REVOKED
    | flag::EXPIRED_SOME_STATE_REVOKED
    | flag::ADMIN_STATE_REVOKED
    | flag::RECALLABLE_STATE_REVOKED
    | flag::RESTART_RECLAIM_NEEDED
    | flag::LEASE_MOVED;

/// Flags that say that call-backs reach nobody. RFC 8881 s18.46.3
const BACK_CHANNEL_DOWN: u32 = flag::CB_PATH_DOWN | flag::CB_PATH_DOWN_SESSION | flag::BACKCHANNEL_FAULT;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct LoopSession {
    pub(super) keeper: Arc<SessionKeeper>,
    /// The loop's index, and the number of loops.
    part: (usize, usize),
    connections: usize,
    pub(super) current: Arc<Session>,
    pub(super) slots: Slots,
    /// Connections whose validation waits for a slot.
    pub(super) waiting: Vec<ConnId>,
    /// When the call was sent by which the lease was renewed last, if that was since the last tick.
    renewed_at: Option<Duration>,
    /// What the server told last.
    flags: u32,
    pub(super) back_repair: BackRepair,
    /// The last recall of slots that is heeded.
    slots_recalled: u64,
}

impl LoopSession {
    pub(super) fn new(keeper: Arc<SessionKeeper>, part: (usize, usize), connections: usize) -> Self {
        let current = keeper.current();
        let slots = Slots::new(&current, part, connections);
        Self {
            keeper,
            part,
            connections,
            current,
            slots,
            waiting: Vec::new(),
            renewed_at: None,
            flags: 0,
            back_repair: BackRepair::default(),
            slots_recalled: 0,
        }
    }

    /// Takes the new session of the mount. Returns whether it is with another server than before.
    fn renew(&mut self) -> bool {
        let before = std::mem::replace(&mut self.current, self.keeper.current());
        self.slots = Slots::new(&self.current, self.part, self.connections);
        self.flags = 0;
        (self.back_repair, self.slots_recalled) = (BackRepair::default(), 0);
        before.server.major != self.current.server.major
            || before.server.minor != self.current.server.minor
            || before.server.scope != self.current.server.scope
    }

    fn told(&mut self, told: &Success, sent_at: Duration) {
        self.renewed_at = self.renewed_at.max(Some(sent_at));
        self.slots.told(told);
        self.back_repair.told(told.flags & BACK_CHANNEL_DOWN != 0);
        if told.flags != self.flags {
            self.flags = told.flags;
            let delegations = self.keeper.call_backs().delegations();
            delegations.told_revoked(told.flags & flag::RECALLABLE_STATE_REVOKED != 0);
            let flags = format_args!("{:#x}", told.flags);
            if told.flags & LOSSES == 0 {
                tracing::debug!(%flags, "the server tells the state of the session");
            } else {
                tracing::warn!(%flags, "the server has lost or revoked state, as locks are");
                delegations.drop_all();
                if told.flags & flag::EXPIRED_ALL_STATE_REVOKED != 0 {
                    self.keeper.locks().are_all_revoked();
                }
            }
        }
    }
}

/// What became of a call, as its reply says.
pub(super) enum Reply<'a> {
    /// It was executed.
    Results(Results<'a>),
    /// It was executed before, and the server does not know the results.
    NotKept,
    /// It was not executed.
    Refused(SlotRefusal),
}

impl Core {
    /// Gives a call the slot that it needs. Returns false if none is free.
    pub(super) fn take_slot(&mut self, key: CallKey) -> bool {
        let Some(session) = &mut self.session else { return true };
        let Some(call) = self.calls.0.get_mut(key) else { return true };
        // The slot of a validation is taken where the validation begins.
        if call.slot.is_some() || matches!(call.body, Body::Validate(..)) {
            return true;
        }
        if session.keeper.is_lost(session.slots.generation()) {
            return false;
        }
        call.slot = session.slots.take();
        call.slot.is_some()
    }

    /// Whether a call may be sent in the slot that it has. Otherwise it waits for the new session,
    /// or begins again in it.
    pub(super) fn keeps_slot(&mut self, key: CallKey) -> bool {
        let Some(session) = &self.session else { return true };
        let Some(call) = self.calls.0.get_mut(key) else { return true };
        let Some(slot) = call.slot else { return true };
        if slot.generation != session.slots.generation() {
            call.in_doubt |= call.sent_on.is_some();
            call.slot = None;
            self.renew(key);
            return false;
        }
        if session.keeper.is_lost(slot.generation) {
            self.queues.delay(self.now + SESSION_WAIT, key);
            return false;
        }
        true
    }

    /// Takes its slot from a call that ends. If the server may still execute the call, the slot
    /// waits until that is known.
    pub(super) fn leave_slot(&mut self, key: CallKey) {
        let Some(session) = &mut self.session else { return };
        let Some(call) = self.calls.0.get_mut(key) else { return };
        let Some(slot) = call.slot.take() else { return };
        if call.sent_on.is_some() && !matches!(call.body, Body::Validate(..)) {
            session.slots.park(&slot);
        } else {
            session.slots.unused(&slot);
        }
    }

    /// Reads what a reply says about its call, and takes the call's slot back if the server has
    /// executed the call.
    pub(super) fn open<'a>(&mut self, key: CallKey, reader: Reader<'a>) -> Result<Reply<'a>, String> {
        let Some(session) = &mut self.session else { return Ok(Reply::Results(Results::nfs3(reader))) };
        let Some(call) = self.calls.0.get_mut(key) else { return Err("no call".to_owned()) };
        let (reply, told) = match opened(call, reader)? {
            Opened::Done(results, told) => (Reply::Results(results), Some(told)),
            Opened::NotKept(told) => (Reply::NotKept, told),
            Opened::Refused(refusal) => return Ok(Reply::Refused(refusal)),
        };
        if let Some(slot) = call.slot.take() {
            session.slots.executed(&slot);
            if let Some(told) = told
                && slot.generation == session.slots.generation()
            {
                session.told(&told, call.sent_at);
            }
        }
        Ok(reply)
    }

    /// The results in the beginning of a reply, if the call was executed.
    pub(super) fn peek<'a>(&self, key: CallKey, reader: Reader<'a>) -> Option<Results<'a>> {
        if self.session.is_none() {
            return Some(Results::nfs3(reader));
        }
        match opened(self.calls.0.get(key)?, reader) {
            Ok(Opened::Done(results, _)) => Some(results),
            _ => None,
        }
    }

    /// Handles a call that the server executed before and whose results it does not know: what only
    /// reads is done again. RFC 8881 s2.10.6.1.3
    pub(super) fn not_kept(&mut self, key: CallKey) {
        let Some(call) = self.calls.0.get_mut(key) else { return };
        if is_bare(call) {
            self.finish(key, Ok(Answer::Results(Vec::new())));
            return;
        }
        call.in_doubt |= call.procedure().changes();
        if call.sent_again {
            self.renew(key);
        } else {
            // The server is wrong about the slot, and may be so about the next number.
            self.forget_xid(key);
            self.queues.delay(self.now + BUSY_WAIT, key);
        }
    }

    /// Handles a call that the session did not take. Returns whether the connection must be bound
    /// to the session before the call is sent again.
    pub(super) fn refused(&mut self, key: CallKey, refusal: SlotRefusal) -> bool {
        let Some(session) = &mut self.session else { return false };
        let Some(call) = self.calls.0.get_mut(key) else { return false };
        let Some(slot) = call.slot else { return false };
        let is_bare = is_bare(call);
        // This transmission was not executed; an earlier one may have been.
        if !call.sent_again {
            call.sent_on = None;
        }
        match refusal {
            SlotRefusal::Later => self.queues.delay(self.now + BUSY_WAIT, key),
            SlotRefusal::Unbound => {
                session.keeper.require_binding();
                self.queues.delay(self.now + BUSY_WAIT, key);
                return true;
            }
            // The slot of a call that was given up: the server knows the call.
            SlotRefusal::OtherCall if is_bare => {
                session.slots.executed(&slot);
                call.slot = None;
                self.finish(key, Ok(Answer::Results(Vec::new())));
            }
            SlotRefusal::OtherCall | SlotRefusal::Session(_) => {
                session.keeper.lost(slot.generation, &format!("SEQUENCE: {refusal}"));
                self.queues.delay(self.now + SESSION_WAIT, key);
            }
            SlotRefusal::Call(status) => {
                if is_bare {
                    // What became of the call that had the slot is still to be found out.
                    session.slots.park(&slot);
                    call.slot = None;
                }
                let error = Error::Status { operation: call.operation(), status: status_of_nfs4(status) };
                if matches!(call.body, Body::Commit { .. }) {
                    self.fail_group(key, &error);
                } else {
                    self.finish(key, Err(error));
                }
            }
        }
        false
    }

    /// Closes the open by which a file was created, if that failed in the same call.
    pub(super) fn close_left(&mut self, left: &LeftOpen, caller: Option<Arc<Caller>>) {
        let Some(session) = &self.session else { return };
        let Some(file) = left.file else {
            tracing::warn!("a file that was created stays open at the server, which did not name it");
            return;
        };
        let request = operations::close(session.keeper.minor(), file, left.stateid).into_request();
        let key = self.insert(Body::Call(request), Owner::Engine);
        if let Some(call) = self.calls.0.get_mut(key) {
            call.caller = caller;
        }
        self.queues.push(key);
    }

    /// Notes that the session is used, renews its lease while it is not, and finds out what became
    /// of calls that were given up.
    pub(super) fn tick_session(&mut self) {
        let is_usable = self.table.usable();
        let Some(session) = &mut self.session else { return };
        if let Some(sent_at) = session.renewed_at.take() {
            session.keeper.renewed(self.now.saturating_sub(sent_at));
        }
        if !is_usable || session.keeper.is_lost(session.slots.generation()) {
            return;
        }
        let minor = session.keeper.minor();
        let mut slots: Vec<_> = std::iter::from_fn(|| session.slots.take_parked()).map(Some).collect();
        let recalled = session.current.back.recalled_since(&mut session.slots_recalled);
        if let Some(highest) = recalled {
            // The server learns from the next call that its slots are free.
            session.slots.aim_at(highest);
        }
        if (recalled.is_some() || session.part.0 == 0 && session.keeper.is_due())
            && !self.calls.0.iter().any(|(_, call)| is_bare(call))
        {
            slots.push(None);
        }
        for slot in slots {
            let key = self.insert(Body::Call(sequence(minor).into_request()), Owner::Engine);
            if let Some(call) = self.calls.0.get_mut(key) {
                call.slot = slot;
            }
            self.queues.push(key);
        }
    }
}

/// Whether a call is SEQUENCE alone, which this loop makes.
fn is_bare(call: &Call) -> bool {
    matches!(&call.body, Body::Call(request) if request.is_bare_sequence())
}

/// The open that a call with these results has left at the server, if any.
pub(super) fn left_open(call: &Call, results: &[u8]) -> Option<LeftOpen> {
    (call.procedure() == Procedure::Nfs4(nfs4::Operation::Open)).then(|| operations::left_open(results))?
}

fn opened<'a>(call: &Call, reader: Reader<'a>) -> Result<Opened<'a>, String> {
    let (Some(slot), Procedure::Nfs4(operation)) = (&call.slot, call.procedure()) else {
        return Err("an answer to a call without a slot".to_owned());
    };
    open_reply(reader, slot, (operation, call.operations()))
}

impl Engine {
    /// Takes the new session of the mount, if there is one. Connections to another server than
    /// before are made, and validated, again.
    pub(super) fn take_new_session(&mut self) {
        let Some(session) = &mut self.core.session else { return };
        if session.keeper.generation() == session.slots.generation() {
            return;
        }
        let is_other_server = session.renew();
        self.unbind_back();
        if !is_other_server {
            return;
        }
        let open: Vec<ConnId> = self.slots.ids().filter(|conn| self.slots.is_open(*conn)).collect();
        for conn in open {
            self.reset(conn);
        }
    }
}
