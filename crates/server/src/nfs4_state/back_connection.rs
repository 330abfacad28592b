//! A connection as far as it carries call-backs: the sessions whose back channel it is part of, the
//! calls that wait to be sent, and those whose replies are awaited. RFC 8881 s2.10.3.1
//!
//! A connection is on one loop, which sends and receives; whoever has something to call back puts
//! it here and wakes that loop. The connection may move to another loop: what waits moves along.

use super::call_backs::Awaited;
use drc::Token;
use smallvec::SmallVec;
use state::SessionId;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Sessions whose back channel one connection is part of; of more, the first loses it.
const SESSIONS_MAX: usize = 64;
/// Calls of a connection that are awaited: as many as four sessions have slots.
const AWAITED_MAX: usize = 64;

#[derive(Debug, Default)]
struct Inner {
    /// Where the connection is.
    token: Option<Token>,
    sessions: SmallVec<[SessionId; 1]>,
    unsent: Vec<Vec<u8>>,
    awaited: HashMap<u32, Awaited>,
    has_ended: bool,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct BackConnection {
    /// Whether it has ever been bound: before that, no reply is expected of its client.
    was_bound: AtomicBool,
    inner: Mutex<Inner>,
}

/// How a connection was bound.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BoundTo {
    /// As asked. The session that has lost the connection for that, if there is one.
    Session(Option<SessionId>),
    /// It was already.
    Before,
    /// The connection has ended.
    Nothing,
}

impl BackConnection {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        // Each change is complete.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether replies may come on it.
    pub fn expects_replies(&self) -> bool {
        self.was_bound.load(Ordering::Acquire)
    }

    /// Whether the connection is part of the back channel of a session.
    pub fn has(&self, session: SessionId) -> bool {
        self.expects_replies() && self.inner().sessions.contains(&session)
    }

    /// Makes the connection, which is at `token`, a part of the back channel of a session.
    pub(super) fn bind(&self, token: Token, session: SessionId) -> BoundTo {
        let mut inner = self.inner();
        if inner.has_ended {
            return BoundTo::Nothing;
        }
        inner.token = Some(token);
        if inner.sessions.contains(&session) {
            return BoundTo::Before;
        }
        let lost = (inner.sessions.len() >= SESSIONS_MAX).then(|| inner.sessions.remove(0));
        inner.sessions.push(session);
        self.was_bound.store(true, Ordering::Release);
        BoundTo::Session(lost)
    }

    /// Ends that. Returns whether it was so.
    pub(super) fn unbind(&self, session: SessionId) -> bool {
        let mut inner = self.inner();
        let before = inner.sessions.len();
        inner.sessions.retain(|other| *other != session);
        inner.sessions.len() < before
    }

    /// Queues a call. Returns where its loop is to be woken; or the call, if the connection has
    /// ended or awaits as many replies as it may.
    pub(super) fn queue(&self, xid: u32, call: Box<Awaited>, message: &[u8]) -> Result<Token, Box<Awaited>> {
        let mut inner = self.inner();
        let Some(token) = inner.token.filter(|_| !inner.has_ended && inner.awaited.len() < AWAITED_MAX)
        else {
            return Err(call);
        };
        inner.awaited.insert(xid, *call);
        inner.unsent.push(message.to_vec());
        Ok(token)
    }

    /// Takes the calls that are to be sent.
    pub fn take_unsent(&self) -> Vec<Vec<u8>> {
        if self.expects_replies() { std::mem::take(&mut self.inner().unsent) } else { Vec::new() }
    }

    /// The connection is on another loop now.
    pub fn moved(&self, token: Token) {
        if self.expects_replies() {
            self.inner().token = Some(token);
        }
    }

    /// Takes the call that a reply answers.
    pub(super) fn answered(&self, xid: u32) -> Option<Awaited> {
        self.inner().awaited.remove(&xid)
    }

    /// Whether a reply has been awaited for longer than this.
    pub(super) fn is_silent(&self, now: Duration, patience: Duration) -> bool {
        self.inner().awaited.values().any(|call| call.since + patience < now)
    }

    /// Ends the connection. Returns its sessions, and the calls that were not answered.
    pub(super) fn end(&self) -> (SmallVec<[SessionId; 1]>, Vec<Awaited>) {
        let mut inner = self.inner();
        inner.has_ended = true;
        inner.unsent.clear();
        let awaited = std::mem::take(&mut inner.awaited).into_values().collect();
        (std::mem::take(&mut inner.sessions), awaited)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nfs4_state::call_backs::{Awaited, Work};

    fn session(number: u8) -> SessionId {
        SessionId([number; 16])
    }

    fn call(number: u8) -> Box<Awaited> {
        Box::new(Awaited {
            session: session(number),
            slot: state::CallBackSlot { slot: 0, sequence: 1, in_doubt: false },
            work: Work::recall(state::StateId { seqid: 1, other: [number; 12] }, vec![number]),
            since: Duration::from_secs(100),
        })
    }

    #[test]
    fn calls_wait_for_their_loop_and_move_along() {
        let connection = BackConnection::default();
        assert!(connection.queue(1, call(1), b"early").is_err(), "it is not bound");
        assert!(!connection.expects_replies());
        assert_eq!(connection.bind(Token(5), session(1)), BoundTo::Session(None));
        assert_eq!(connection.bind(Token(5), session(1)), BoundTo::Before);
        assert!(connection.has(session(1)) && !connection.has(session(2)));
        assert_eq!(connection.queue(1, call(1), b"one").expect("bound"), Token(5));
        connection.moved(Token(6));
        assert_eq!(connection.queue(2, call(2), b"two").expect("bound"), Token(6));
        assert_eq!(connection.take_unsent(), [b"one", b"two"]);
        assert!(connection.take_unsent().is_empty());
        assert_eq!(connection.answered(2).expect("awaited").session, session(2));
        assert!(connection.answered(2).is_none(), "answered once");
        let (patience, then) = (Duration::from_secs(4), Duration::from_secs(100));
        assert!(!connection.is_silent(then + patience, patience));
        assert!(connection.is_silent(then + patience + Duration::from_millis(1), patience));
        let (sessions, left) = connection.end();
        assert_eq!((sessions.as_slice(), left.len()), (&[session(1)][..], 1));
        assert!(connection.queue(3, call(1), b"late").is_err());
        assert_eq!(connection.bind(Token(7), session(1)), BoundTo::Nothing);
    }

    #[test]
    fn neither_sessions_nor_calls_grow_without_end() {
        let connection = BackConnection::default();
        for number in 0..SESSIONS_MAX as u8 {
            assert_eq!(connection.bind(Token(1), session(number)), BoundTo::Session(None));
        }
        assert_eq!(connection.bind(Token(1), session(200)), BoundTo::Session(Some(session(0))));
        assert!(connection.unbind(session(200)) && !connection.unbind(session(200)));
        for xid in 0..AWAITED_MAX as u32 {
            assert!(connection.queue(xid, call(1), b"call").is_ok());
        }
        assert!(connection.queue(1000, call(1), b"call").is_err());
        assert!(connection.answered(0).is_some());
        assert!(connection.queue(1000, call(1), b"call").is_ok());
    }
}
