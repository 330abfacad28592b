//! The back channel of a loop's session: which of its connections carry call-backs. RFC 8881
//! s2.10.3.1, s18.34
//!
//! A mount has a few connections that do, of all its loops together. A connection is asked while it
//! is validated. When one is lost another is asked, and the server's word that it reaches nobody
//! has all of a loop's connections asked again.

use std::time::Duration;

use paths::ConnId;

use super::connections::Connection;
use super::session::LoopSession;
use super::{Core, Engine};
use crate::call::{Body, Owner, Stage};
use crate::call_backs::{self, Host};
use crate::protocol::nfs4::{Asked, SlotRefusal};

/// The wait between two attempts to bind a connection; it doubles while the server says that it
/// reaches nobody.
const BIND_WAIT: Duration = Duration::from_secs(1);
const BIND_WAIT_MAX: Duration = Duration::from_secs(64);

/// Whether a connection carries call-backs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BackBinding {
    Unbound,
    /// The server has been asked.
    Asked,
    Bound,
    /// The server does not send call-backs on it.
    Refused,
}

impl BackBinding {
    /// Whether the connection counts among those of the mount.
    const fn counts(self) -> bool {
        matches!(self, Self::Asked | Self::Bound)
    }
}

/// When a loop asks for the back channel again.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct BackRepair {
    /// The server has said that it reaches nobody, and connections were not asked since.
    is_down: bool,
    not_before: Duration,
    wait: Duration,
}

impl BackRepair {
    /// What a reply in the session says of the back channel.
    pub(super) fn told(&mut self, is_down: bool) {
        self.is_down = is_down;
    }

    /// Whether it is time to ask. Returns whether all connections are to be asked again.
    fn due(&mut self, now: Duration) -> Option<bool> {
        if now < self.not_before {
            return None;
        }
        let is_down = std::mem::take(&mut self.is_down);
        self.wait = if is_down { (self.wait * 2).clamp(BIND_WAIT, BIND_WAIT_MAX) } else { BIND_WAIT };
        self.not_before = now + self.wait;
        Some(is_down)
    }
}

impl LoopSession {
    /// Answers a call of the server; `None` if it is none.
    pub(super) fn answer_call(&self, record: &[u8]) -> Option<Vec<u8>> {
        let host = Host {
            session: self.current.granted.session,
            minor: self.keeper.minor(),
            slots: &self.current.back,
            call_backs: self.keeper.call_backs(),
        };
        call_backs::answer(record, &host)
    }
}

impl Core {
    /// A connection carries no call-backs any more.
    pub(super) fn back_connection_lost(&self, connection: Option<&mut Connection>) {
        if let (Some(session), Some(connection)) = (&self.session, connection)
            && std::mem::replace(&mut connection.call_backs, BackBinding::Unbound).counts()
        {
            session.keeper.remove_back_connection();
        }
    }
}

impl Engine {
    /// Whether a connection is to be asked to carry call-backs, which is noted.
    pub(super) fn wants_call_backs(&mut self, conn: ConnId) -> bool {
        let (Some(session), Some(connection)) = (&self.core.session, self.slots.get_mut(conn)) else {
            return false;
        };
        if connection.call_backs == BackBinding::Unbound && session.keeper.add_back_connection() {
            connection.call_backs = BackBinding::Asked;
        }
        connection.call_backs == BackBinding::Asked
    }

    /// Whether a connection is asked to carry call-backs.
    pub(super) fn is_asked_for_call_backs(&self, conn: ConnId) -> bool {
        self.slots.get(conn).is_some_and(|connection| connection.call_backs == BackBinding::Asked)
    }

    /// A connection was bound to the session.
    pub(super) fn bound_back(&mut self, conn: ConnId, carries_call_backs: bool) {
        let (Some(session), Some(connection)) = (&self.core.session, self.slots.get_mut(conn)) else {
            return;
        };
        let next = if carries_call_backs { BackBinding::Bound } else { BackBinding::Refused };
        // One that was not asked, but must be bound, does not carry them.
        if connection.call_backs.counts() {
            connection.call_backs = next;
            if !carries_call_backs {
                session.keeper.remove_back_connection();
            }
        }
    }

    /// Handles what came of asking a connection that carries calls to carry call-backs.
    pub(super) fn judge_back(&mut self, conn: ConnId, asked: Asked<bool>) {
        let now = self.core.session.as_ref().map(|session| session.slots.generation());
        if now != Some(self.asked_in(conn)) {
            // It says nothing about the session of now.
            return self.core.back_connection_lost(self.slots.get_mut(conn));
        }
        match asked {
            Asked::Granted(carries_call_backs) => self.bound_back(conn, carries_call_backs),
            Asked::Failed(status) => {
                tracing::debug!(%status, "a connection is not bound to the back channel");
                match SlotRefusal::of(status) {
                    SlotRefusal::Call(_) => self.bound_back(conn, false),
                    // The calls on it find out.
                    _ => self.core.back_connection_lost(self.slots.get_mut(conn)),
                }
            }
            Asked::Nonsense(reason) => {
                tracing::debug!(%reason, "a connection is not bound to the back channel");
                self.bound_back(conn, false);
            }
        }
    }

    /// All connections are to be bound again, such as in a new session.
    pub(super) fn unbind_back(&mut self) {
        for conn in self.slots.ids() {
            self.core.back_connection_lost(self.slots.get_mut(conn));
        }
    }

    /// Asks connections that carry calls to carry call-backs, as far as that is wanted.
    pub(super) fn repair_back_channel(&mut self) {
        let (now, is_usable) = (self.core.now, self.core.table.usable());
        let Some(session) = &mut self.core.session else { return };
        if !is_usable || session.keeper.is_lost(session.slots.generation()) {
            return;
        }
        let Some(is_down) = session.back_repair.due(now) else { return };
        if is_down {
            self.unbind_back();
        }
        let can_ask =
            |connection: &Connection| connection.is_ready() && connection.call_backs == BackBinding::Unbound;
        while self.slots.ids().filter(|conn| self.is_asked_for_call_backs(*conn)).count() < BACK_ASKED_MAX
            && let Some(conn) = self.slots.ids().find(|conn| self.slots.get(*conn).is_some_and(can_ask))
            && self.wants_call_backs(conn)
        {
            self.ask_for_call_backs(conn);
        }
    }

    fn ask_for_call_backs(&mut self, conn: ConnId) {
        let Some(generation) = self.core.session.as_ref().map(|session| session.slots.generation()) else {
            return;
        };
        let request = self.question(conn, Stage::BindBack);
        let key = self.core.insert(Body::Validate(Stage::BindBack, request), Owner::Engine);
        self.core.draw_xid(key, drc::XidClass::Repeatable);
        let Some(connection) = self.slots.get_mut(conn) else { return };
        connection.questions.generation = generation;
        if let Some(call) = self.core.calls.0.get_mut(key)
            && let Some(xid) = call.xid
        {
            call.connection = Some(conn);
            connection.push(key, call, xid, self.credentials.own());
        }
        self.slots.mark_dirty(conn);
    }
}

/// Connections that a loop asks at a time.
const BACK_ASKED_MAX: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_reaches_nobody_has_connections_bound_again_less_and_less_often() {
        let (mut repair, mut now, mut waits) = (BackRepair::default(), Duration::ZERO, Vec::new());
        for _ in 0..9 {
            repair.told(true);
            assert_eq!(repair.due(now), Some(true));
            let asked_at = now;
            while {
                repair.told(true);
                now += Duration::from_millis(500);
                now < repair.not_before
            } {
                assert_eq!(repair.due(now), None);
            }
            waits.push((now - asked_at).as_secs());
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 64, 64]);
        repair.told(false);
        assert_eq!(repair.due(now), Some(false));
        assert_eq!(repair.not_before, now + BIND_WAIT, "it is well again");
    }
}
