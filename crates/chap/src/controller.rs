//! The controller's machine, one for each queue. NVMe Base, "DH-HMAC-CHAP Authentication
//! Transaction" (8.13.5).
//!
//! The host sends messages and asks for those of the controller:
//!
//! ```text
//! Negotiate ->   <- Challenge   Reply ->   <- Success1   [Success2 ->]
//! ```
//!
//! Success2 only follows if the host has challenged the controller. One transaction at a time; the
//! host may begin another later, and the queue stays authenticated meanwhile. Whatever is wrong
//! ends it: the host finds `AUTH_Failure1` when it asks for the next message, and the caller then
//! ends the connection of the queue.
//!
//! At most one exponentiation is done for a message that comes in. With the largest group it takes
//! tens of milliseconds, so a loop that serves other queues should have it done by a worker.

use crate::credentials::{Algorithms, Credentials};
use crate::entropy::Entropy;
use crate::failure::{Cause, Failure};
use crate::group::{Exchange, Group};
use crate::hash::Hash;
use crate::message::{self, Challenge, Message, Negotiate, Protocol, REASON_FAILED, Reply, Success1};
use crate::response::{Challenged, Side};
use std::sync::Arc;
use zeroize::Zeroizing;

/// What follows from a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The transaction goes on.
    Continue,
    /// The transaction has succeeded: the queue may be used.
    Authenticated,
    /// It has failed. The connection of the queue is to end, once the host has got what it asks
    /// for.
    Failed(Failure),
}

/// The host asks for a message in less room than it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a message of {needed} bytes, and room for {room}")]
pub struct NoRoom {
    /// The length of the message in bytes.
    pub needed: usize,
    /// The room.
    pub room: usize,
}

/// The controller's side of authentication on a queue.
#[derive(Debug)]
pub struct Controller {
    credentials: Arc<Credentials>,
    algorithms: Arc<Algorithms>,
    state: State,
    is_authenticated: bool,
}

#[derive(Debug)]
enum State {
    /// No transaction.
    Idle,
    /// The host has negotiated and is to ask for the challenge.
    Challenging { message: Vec<u8>, pending: Pending },
    /// The host has the challenge.
    Challenged(Pending),
    /// The host has replied and is to ask for the result.
    Succeeding { message: Vec<u8>, transaction: u16, is_mutual: bool },
    /// The host has the controller's response.
    Answered { transaction: u16 },
    /// The end, and what the host is told of it.
    Failed { message: Vec<u8>, failure: Failure },
}

/// A challenge that waits for its reply.
#[derive(Debug)]
struct Pending {
    transaction: u16,
    hash: Hash,
    group: Group,
    sequence: u32,
    challenge: Vec<u8>,
    exchange: Option<Exchange>,
}

impl Controller {
    /// A queue on which no message was exchanged yet.
    #[must_use]
    pub const fn new(credentials: Arc<Credentials>, algorithms: Arc<Algorithms>) -> Self {
        Self { credentials, algorithms, state: State::Idle, is_authenticated: false }
    }

    /// Sets what the next transaction uses. One that goes on ends with what it has begun with.
    pub fn renew(&mut self, credentials: Arc<Credentials>, algorithms: Arc<Algorithms>) {
        if !self.is_in_progress() {
            (self.credentials, self.algorithms) = (credentials, algorithms);
        }
    }

    /// Whether a transaction has succeeded, and none has failed since.
    #[must_use]
    pub const fn is_authenticated(&self) -> bool {
        self.is_authenticated
    }

    /// Whether a transaction goes on. The caller bounds its time.
    #[must_use]
    pub const fn is_in_progress(&self) -> bool {
        !matches!(self.state, State::Idle | State::Failed { .. })
    }

    /// Takes the message of an Authentication Send. The command succeeds in any case: what is
    /// wrong, the host learns from the message that it asks for next.
    pub fn handle_send(&mut self, bytes: &[u8], entropy: &Entropy) -> Outcome {
        if let State::Failed { failure, .. } = &self.state {
            return Outcome::Failed(*failure);
        }
        let transaction = self.transaction().or_else(|| message::transaction_of(bytes)).unwrap_or(0);
        match self.step(bytes, entropy) {
            Ok((state, outcome)) => {
                self.state = state;
                self.is_authenticated |= outcome == Outcome::Authenticated;
                outcome
            }
            Err(failure) => self.fail(transaction, failure),
        }
    }

    /// Gives the message for an Authentication Receive with this room in bytes.
    ///
    /// # Errors
    /// [`NoRoom`], which leaves the message where it is. The command is to fail with Invalid Field.
    pub fn handle_receive(&mut self, room: usize) -> Result<(Vec<u8>, Outcome), NoRoom> {
        if self.message().is_none() {
            let transaction = self.transaction().unwrap_or(0);
            self.fail(transaction, Cause::NotDue("Authentication Receive").into());
        }
        let needed = self.message().map_or(0, <[u8]>::len);
        if needed > room {
            return Err(NoRoom { needed, room });
        }
        let (message, state, outcome) = match std::mem::replace(&mut self.state, State::Idle) {
            State::Challenging { message, pending } => {
                (message, State::Challenged(pending), Outcome::Continue)
            }
            State::Succeeding { message, transaction, is_mutual: true } => {
                (message, State::Answered { transaction }, Outcome::Continue)
            }
            State::Succeeding { message, .. } => (message, State::Idle, Outcome::Authenticated),
            State::Failed { message, failure } => {
                (message.clone(), State::Failed { message, failure }, Outcome::Failed(failure))
            }
            state @ (State::Idle | State::Challenged(_) | State::Answered { .. }) => {
                (Vec::new(), state, Outcome::Continue)
            }
        };
        self.state = state;
        self.is_authenticated |= outcome == Outcome::Authenticated;
        Ok((message, outcome))
    }

    /// The message that the host is to ask for.
    fn message(&self) -> Option<&[u8]> {
        match &self.state {
            State::Challenging { message, .. }
            | State::Succeeding { message, .. }
            | State::Failed { message, .. } => Some(message),
            State::Idle | State::Challenged(_) | State::Answered { .. } => None,
        }
    }

    fn transaction(&self) -> Option<u16> {
        match &self.state {
            State::Idle | State::Failed { .. } => None,
            State::Challenging { pending, .. } | State::Challenged(pending) => Some(pending.transaction),
            State::Succeeding { transaction, .. } | State::Answered { transaction } => Some(*transaction),
        }
    }

    fn fail(&mut self, transaction: u16, failure: Failure) -> Outcome {
        let explanation = match failure {
            Failure::Refused(cause) => cause.explanation(),
            Failure::ByPeer(explanation) => explanation,
        };
        let message = message::Failure { transaction, reason: REASON_FAILED, explanation };
        self.state = State::Failed { message: Message::Failure1(message).encode(), failure };
        self.is_authenticated = false;
        Outcome::Failed(failure)
    }

    fn step(&mut self, bytes: &[u8], entropy: &Entropy) -> Result<(State, Outcome), Failure> {
        let message = Message::decode_whole(bytes).map_err(Cause::from)?;
        let (due, got) = (self.transaction(), message.transaction());
        match (std::mem::replace(&mut self.state, State::Idle), message) {
            (State::Idle, Message::Negotiate(negotiate)) => {
                Ok((self.negotiate(&negotiate, entropy)?, Outcome::Continue))
            }
            (State::Challenged(_) | State::Answered { .. }, Message::Failure2(failure)) => {
                Err(Failure::ByPeer(failure.explanation))
            }
            (State::Challenged(pending), Message::Reply(reply)) => {
                same_transaction(due, got)?;
                Ok((self.check_reply(&pending, &reply)?, Outcome::Continue))
            }
            (State::Answered { .. }, Message::Success2(_)) => {
                same_transaction(due, got)?;
                Ok((State::Idle, Outcome::Authenticated))
            }
            (_, other) => Err(Cause::NotDue(other.name()).into()),
        }
    }

    fn negotiate(&self, negotiate: &Negotiate, entropy: &Entropy) -> Result<State, Cause> {
        if negotiate.concatenation != 0 {
            return Err(Cause::Concatenation(negotiate.concatenation));
        }
        let offered = negotiate.protocols.iter().find_map(|protocol| match protocol {
            Protocol::DhChap { hashes, groups } => Some((hashes, groups)),
            Protocol::Other(_) => None,
        });
        let (hashes, groups) = offered.ok_or(Cause::NoProtocol)?;
        let hash = self.algorithms.hashes().iter().find(|hash| hashes.contains(&hash.id()));
        let group = self.algorithms.groups().iter().find(|group| groups.contains(&group.id()));
        let (hash, group) = (*hash.ok_or(Cause::NoHash)?, *group.ok_or(Cause::NoGroup)?);
        let pending = Pending {
            transaction: negotiate.transaction,
            hash,
            group,
            sequence: entropy.sequence.get(),
            challenge: entropy.challenge.iter().copied().take(hash.bytes()).collect(),
            exchange: Exchange::new(group, &entropy.exponent),
        };
        let message = pending.message();
        Ok(State::Challenging { message, pending })
    }

    /// Authenticates the host, and answers its challenge.
    fn check_reply(&self, pending: &Pending, reply: &Reply<'_>) -> Result<State, Cause> {
        let (hash, transaction) = (pending.hash, pending.transaction);
        if reply.response.len() != hash.bytes() {
            return Err(Cause::HashBytes { due: hash.bytes(), got: reply.response.len() });
        }
        let session = pending.session(reply.value)?;
        let session = session.as_ref().map(|secret| secret.as_slice());
        let challenged = Challenged {
            side: Side::Host,
            hash,
            challenge: &pending.challenge,
            sequence: pending.sequence,
            transaction,
            host: &self.credentials.host,
            subsystem: &self.credentials.subsystem,
        };
        if !challenged.is_answered_by(reply.response, &self.credentials.host_key(), session) {
            return Err(Cause::WrongResponse);
        }
        let response = match reply.challenge {
            None => None,
            Some(_) if reply.sequence == 0 => return Err(Cause::NoSequence),
            Some(challenge) => {
                let key = self.credentials.controller_key().ok_or(Cause::NoControllerSecret)?;
                let (side, sequence) = (Side::Controller, reply.sequence);
                let challenged = Challenged { side, challenge, sequence, ..challenged };
                Some(challenged.response(&key, session))
            }
        };
        let hash_bytes = u8::try_from(hash.bytes()).unwrap_or(u8::MAX);
        let message = Message::Success1(Success1 { transaction, hash_bytes, response: response.as_deref() });
        Ok(State::Succeeding { message: message.encode(), transaction, is_mutual: response.is_some() })
    }
}

impl Pending {
    fn message(&self) -> Vec<u8> {
        let value = self.exchange.as_ref().map(Exchange::value).unwrap_or_default();
        let message = Challenge {
            transaction: self.transaction,
            hash: self.hash.id(),
            group: self.group.id(),
            sequence: self.sequence,
            challenge: &self.challenge,
            value: &value,
        };
        Message::Challenge(message).encode()
    }

    /// The session secret, if there is a group.
    fn session(&self, value: &[u8]) -> Result<Option<Zeroizing<Vec<u8>>>, Cause> {
        match &self.exchange {
            Some(exchange) => Ok(Some(exchange.shared(value)?)),
            None if value.is_empty() => Ok(None),
            None => Err(crate::group::BadValue.into()),
        }
    }
}

fn same_transaction(due: Option<u16>, got: u16) -> Result<(), Cause> {
    match due {
        Some(due) if due != got => Err(Cause::Transaction { due, got }),
        _ => Ok(()),
    }
}
