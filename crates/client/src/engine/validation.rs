//! What a new connection is asked before it carries calls: in version 4, whether it leads to the
//! server of the session; in both, whether it leads to the mounted file system.

use fs::Attributes;
use paths::ConnId;

use super::connections::Connection;
use super::{Core, Engine};
use crate::call::{Body, Owner, Stage};
use crate::protocol::nfs4::{self as wire, Asked, Exchanged, SlotRefusal};
use crate::protocol::{Procedure, Request, Results};
use crate::session::Place;

/// How often a connection is asked something. One that never comes to an end, such as one that is
/// to be bound to the session again and again, is made again, with back-off.
const QUESTIONS_MAX: u32 = 8;

/// What a connection was asked. One question is open at a time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Questions {
    count: u32,
    /// The session in which the last one was asked.
    pub(super) generation: u64,
}

impl Questions {
    pub(super) const NONE: Self = Self { count: 0, generation: 0 };
}

/// What a connection answered.
#[derive(Debug)]
pub(super) enum Verdict {
    /// The attributes of the root, or why it is not that of the mount.
    Root(Result<(), String>),
    /// The server wants to be asked later.
    Later,
    /// The server has answered before and does not know what.
    NotKept,
    /// The session did not take the call.
    Refused(SlotRefusal),
    Identity(Asked<Exchanged>),
    /// Whether it carries call-backs.
    Bound(Asked<bool>),
    /// The same, of a connection that carries calls already.
    BoundBack(Asked<bool>),
}

impl Verdict {
    /// The answer to a call outside of the session.
    pub(super) fn of(stage: Stage, results: &[u8]) -> Self {
        match stage {
            Stage::Identity => Self::Identity(wire::exchanged(results)),
            Stage::BindBack => Self::BoundBack(wire::bound(results)),
            Stage::Bind | Stage::Root => Self::Bound(wire::bound(results)),
        }
    }

    /// The server's RPC refuses the call.
    pub(super) fn refused(stage: Stage, reason: String) -> Self {
        match stage {
            Stage::BindBack => Self::BoundBack(Asked::Nonsense(reason)),
            Stage::Identity | Stage::Bind | Stage::Root => Self::Root(Err(reason)),
        }
    }
}

impl Core {
    /// Checks that a connection leads to the mounted file system.
    pub(super) fn validation(&self, results: &mut Results<'_>) -> Result<(), String> {
        let told = self.protocol.decode_root(results).map_err(|error| error.to_string())?;
        let found: Attributes = told.map_err(|status| format!("GETATTR of the root: {status}"))?;
        let wanted = &self.root_attributes;
        for (what, wanted, found) in [
            ("file system", wanted.fsid, found.fsid),
            ("file", wanted.fileid, found.fileid),
            ("type", wanted.kind as u64, found.kind as u64),
        ] {
            if wanted != found {
                return Err(format!("its root is {what} {found:#x}, elsewhere it is {wanted:#x}"));
            }
        }
        Ok(())
    }
}

impl Engine {
    /// Begins to validate a new connection.
    pub(super) fn validate(&mut self, conn: ConnId) {
        let first = if self.core.session.is_some() { Stage::Identity } else { Stage::Root };
        self.ask_stage(conn, first);
    }

    /// Asks the next question on a connection, or leaves it waiting for a slot.
    fn ask_stage(&mut self, conn: ConnId, stage: Stage) {
        let Some(connection) = self.slots.get_mut(conn) else { return };
        if connection.questions.count >= QUESTIONS_MAX {
            tracing::debug!(address = ?connection.remote, "a connection is not validated; it is made again");
            return self.try_again(conn);
        }
        let mut slot = None;
        if let Some(session) = &mut self.core.session {
            if stage == Stage::Root {
                slot = session.slots.take_apart(usize::from(conn.0));
                if slot.is_none() {
                    session.waiting.push(conn);
                    return;
                }
            }
            connection.questions.generation = session.slots.generation();
        }
        connection.questions.count += 1;
        let request = self.question(conn, stage);
        let key = self.core.insert(Body::Validate(stage, request), Owner::Engine);
        if let Some(call) = self.core.calls.0.get_mut(key) {
            call.slot = slot;
        }
        self.core.draw_xid(key, drc::XidClass::Repeatable);
        let Some(connection) = self.slots.get_mut(conn) else { return };
        if let Some(call) = self.core.calls.0.get_mut(key)
            && let Some(xid) = call.xid
        {
            call.connection = Some(conn);
            connection.push(key, call, xid, self.credentials.own());
        }
        self.slots.mark_dirty(conn);
    }

    pub(super) fn question(&self, conn: ConnId, stage: Stage) -> Request {
        let of = |operation, compound| Request::new(Procedure::Nfs4(operation), compound);
        match (&self.core.session, stage) {
            (None, _) | (_, Stage::Root) => self.core.protocol.getattr(self.setup.root).into_request(),
            (Some(session), Stage::Identity) => {
                let compound = wire::exchange_id(session.keeper.minor(), session.keeper.client());
                of(nfs4::Operation::ExchangeId, compound)
            }
            (Some(session), Stage::Bind | Stage::BindBack) => {
                let call_backs = self.is_asked_for_call_backs(conn);
                let id = session.current.granted.session;
                let compound = wire::bind(session.keeper.minor(), id, call_backs);
                of(nfs4::Operation::BindConnToSession, compound)
            }
        }
    }

    /// Goes on with validations that wait for a slot.
    pub(super) fn validate_waiting(&mut self) {
        let Some(session) = &mut self.core.session else { return };
        if session.waiting.is_empty() {
            return;
        }
        for conn in std::mem::take(&mut session.waiting) {
            if self.slots.get(conn).is_some_and(Connection::is_validating) && !self.is_left(conn) {
                self.ask_stage(conn, Stage::Root);
            }
        }
    }

    /// Handles the answer to a question on a connection.
    pub(super) fn judge(&mut self, conn: ConnId, verdict: Verdict) {
        match verdict {
            Verdict::Root(Ok(())) => self.is_valid(conn),
            Verdict::Root(Err(reason)) => self.refuse(conn, &reason),
            Verdict::Later => self.try_again(conn),
            Verdict::NotKept => self.ask_stage(conn, Stage::Root),
            Verdict::Identity(Asked::Granted(server)) => self.identified(conn, &server),
            Verdict::Bound(Asked::Granted(carries_call_backs)) => {
                self.bound_back(conn, carries_call_backs);
                self.ask_stage(conn, Stage::Root);
            }
            Verdict::BoundBack(asked) => self.judge_back(conn, asked),
            Verdict::Identity(Asked::Nonsense(reason)) | Verdict::Bound(Asked::Nonsense(reason)) => {
                self.refuse(conn, &reason);
            }
            Verdict::Identity(Asked::Failed(status)) => {
                self.not_in_session(conn, "EXCHANGE_ID", SlotRefusal::of(status));
            }
            // It is of use without.
            Verdict::Bound(Asked::Failed(status))
                if self.is_asked_for_call_backs(conn)
                    && matches!(SlotRefusal::of(status), SlotRefusal::Call(_)) =>
            {
                self.bound_back(conn, false);
                let next = self.after_identity(conn);
                self.ask_stage(conn, next);
            }
            Verdict::Bound(Asked::Failed(status)) => {
                self.not_in_session(conn, "BIND_CONN_TO_SESSION", SlotRefusal::of(status));
            }
            Verdict::Refused(refusal) => self.not_in_session(conn, "SEQUENCE", refusal),
        }
    }

    /// A connection leads to the mounted file system: it carries calls from now on.
    fn is_valid(&mut self, conn: ConnId) {
        let place = self.place_of(conn);
        if let (Some(session), Some(place)) = (&self.core.session, place) {
            session.keeper.trust(&place);
        }
        if let Some(connection) = self.slots.get_mut(conn) {
            connection.validated();
        }
        self.setup.route.path_proved(self.core.table.path_of(conn));
        self.core.table.connected(self.core.now, conn);
    }

    /// A connection leads elsewhere.
    fn refuse(&mut self, conn: ConnId, reason: &str) {
        let path = self.slots.get(conn).and_then(|connection| connection.path);
        self.core.outages.note(path, self.core.now);
        self.setup.route.path_refused(self.core.table.path_of(conn), reason);
        self.connection_broke(conn);
    }

    /// Ends a connection that may be of use later, such as in the next session.
    fn try_again(&mut self, conn: ConnId) {
        let path = self.slots.get(conn).and_then(|connection| connection.path);
        self.core.outages.note(path, self.core.now);
        self.close(conn);
        if !self.is_left(conn) {
            self.core.table.reset_with_back_off(self.core.now, conn);
        }
    }

    fn place_of(&self, conn: ConnId) -> Option<Place> {
        let path = self.slots.get(conn)?.path?;
        let end = self.setup.route.paths.get(usize::from(path.0))?;
        Some(Place { local: end.local, remote: end.remote, proto: end.proto })
    }

    /// The session in which a connection was asked what it has answered.
    pub(super) fn asked_in(&self, conn: ConnId) -> u64 {
        self.slots.get(conn).map_or(0, |connection| connection.questions.generation)
    }

    /// Handles who the server at the other end of a connection is. RFC 8881 s2.10.5
    fn identified(&mut self, conn: ConnId, server: &Exchanged) {
        let (Some(session), Some(place)) = (&self.core.session, self.place_of(conn)) else { return };
        let Some(difference) = session.current.server.difference(server) else {
            let next = self.after_identity(conn);
            return self.ask_stage(conn, next);
        };
        if session.keeper.trusts(&place) {
            // Most likely it has restarted.
            session.keeper.is_other(self.asked_in(conn), &place, difference);
            self.try_again(conn);
        } else {
            self.refuse(
                conn,
                &format!("it is not a path to the server of the session: {difference} differs"),
            );
        }
    }

    /// What a connection is asked that leads to the server of the session.
    fn after_identity(&mut self, conn: ConnId) -> Stage {
        let must_bind = self.core.session.as_ref().is_some_and(|session| session.keeper.must_bind());
        // Asked in any case: it notes that it is.
        let is_wanted = self.wants_call_backs(conn);
        if must_bind || is_wanted { Stage::Bind } else { Stage::Root }
    }

    /// Handles a connection on which the session does not take calls.
    fn not_in_session(&mut self, conn: ConnId, call: &str, refusal: SlotRefusal) {
        let Some(session) = &self.core.session else { return };
        match refusal {
            SlotRefusal::Later => self.try_again(conn),
            SlotRefusal::Unbound => {
                session.keeper.require_binding();
                self.ask_stage(conn, Stage::Bind);
            }
            SlotRefusal::Session(_) | SlotRefusal::OtherCall => {
                let asked_in = self.asked_in(conn);
                if asked_in != session.slots.generation() {
                    // It says nothing about the session of now.
                    return self.validate(conn);
                }
                session.keeper.lost(asked_in, &format!("{call}: {refusal}"));
                self.try_again(conn);
            }
            SlotRefusal::Call(status) => self.refuse(conn, &format!("{call}: {status}")),
        }
    }
}
