//! The host's machine, one for each queue. NVMe Base, "DH-HMAC-CHAP Authentication Transaction"
//! (8.13.5).
//!
//! [`Host::next`] says what to do: send a message by Authentication Send, ask for one by
//! Authentication Receive, or stop. A host that has a secret of the controller challenges it, and
//! takes no success without a right response. What is wrong with the controller's messages, it is
//! told by `AUTH_Failure2`.

use crate::credentials::{Algorithms, Credentials};
use crate::entropy::Entropy;
use crate::failure::{Cause, Failure};
use crate::group::{BadValue, Exchange, Group};
use crate::hash::Hash;
use crate::message::{
    self, Challenge, Message, Negotiate, Protocol, REASON_FAILED, Reply, Success1, Success2,
};
use crate::response::{Challenged, Side};
use std::sync::Arc;
use zeroize::Zeroizing;

/// What a host is to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next<'a> {
    /// Send this message, then call [`Host::handle_sent`].
    Send(&'a [u8]),
    /// Ask for a message in [`RECEIVED_BYTES_MAX`](message::RECEIVED_BYTES_MAX) bytes, then call
    /// [`Host::handle_received`].
    Receive,
    /// The queue may be used.
    Authenticated,
    /// Authentication has failed. The connection of the queue is to end.
    Failed(Failure),
}

/// The host's side of authentication on a queue.
#[derive(Debug)]
pub struct Host {
    credentials: Arc<Credentials>,
    algorithms: Arc<Algorithms>,
    transaction: u16,
    state: State,
}

#[derive(Debug)]
enum State {
    /// The offer is to be sent.
    Negotiating(Vec<u8>),
    /// The challenge is due.
    Negotiated,
    /// The reply is to be sent.
    Replying {
        message: Vec<u8>,
        pending: Pending,
    },
    /// The result is due.
    Replied(Pending),
    /// The controller is authenticated, and is to be told.
    Succeeding(Vec<u8>),
    Authenticated,
    /// The controller is to be told what is wrong.
    Failing {
        message: Vec<u8>,
        failure: Failure,
    },
    Failed(Failure),
}

/// What the result is compared with.
#[derive(Debug)]
struct Pending {
    hash: Hash,
    mutual: Option<Mutual>,
}

/// The host's own challenge.
#[derive(Debug)]
struct Mutual {
    key: Secret,
    challenge: Vec<u8>,
    sequence: u32,
    session: Option<Secret>,
}

/// Bytes that `Debug` does not show.
struct Secret(Zeroizing<Vec<u8>>);

impl std::fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Secret(..)")
    }
}

impl Host {
    /// Begins a transaction. Its number should not repeat soon on a connection.
    #[must_use]
    pub fn new(credentials: Arc<Credentials>, algorithms: Arc<Algorithms>, transaction: u16) -> Self {
        let protocol = Protocol::DhChap {
            hashes: algorithms.hashes().iter().map(|hash| hash.id()).collect(),
            groups: algorithms.groups().iter().map(|group| group.id()).collect(),
        };
        let negotiate = Negotiate { transaction, concatenation: 0, protocols: vec![protocol] };
        let state = State::Negotiating(Message::Negotiate(negotiate).encode());
        Self { credentials, algorithms, transaction, state }
    }

    /// What to do next.
    #[must_use]
    pub fn next(&self) -> Next<'_> {
        match &self.state {
            State::Negotiating(message)
            | State::Replying { message, .. }
            | State::Succeeding(message)
            | State::Failing { message, .. } => Next::Send(message),
            State::Negotiated | State::Replied(_) => Next::Receive,
            State::Authenticated => Next::Authenticated,
            State::Failed(failure) => Next::Failed(*failure),
        }
    }

    /// The Authentication Send of the message has succeeded.
    pub fn handle_sent(&mut self) {
        self.state = match std::mem::replace(&mut self.state, State::Negotiated) {
            State::Negotiating(_) => State::Negotiated,
            State::Replying { pending, .. } => State::Replied(pending),
            State::Succeeding(_) => State::Authenticated,
            State::Failing { failure, .. } => State::Failed(failure),
            other => other,
        };
    }

    /// Whether [`Host::handle_received`] computes exponentiations for these bytes, which may take
    /// tens of milliseconds.
    #[must_use]
    pub fn takes_long(&self, bytes: &[u8]) -> bool {
        matches!(self.state, State::Negotiated)
            && matches!(Message::decode(bytes), Ok((Message::Challenge(_), _)))
    }

    /// An Authentication Receive has succeeded with these bytes. What follows the message is
    /// ignored, since a controller may fill the room.
    pub fn handle_received(&mut self, bytes: &[u8], entropy: &Entropy) {
        self.state = match self.step(bytes, entropy) {
            Ok(state) => state,
            // The controller has ended it and expects no answer.
            Err(failure @ Failure::ByPeer(_)) => State::Failed(failure),
            Err(failure @ Failure::Refused(cause)) => {
                let (transaction, explanation) = (self.transaction, cause.explanation());
                let message = message::Failure { transaction, reason: REASON_FAILED, explanation };
                State::Failing { message: Message::Failure2(message).encode(), failure }
            }
        };
    }

    fn step(&mut self, bytes: &[u8], entropy: &Entropy) -> Result<State, Failure> {
        let (message, _) = Message::decode(bytes).map_err(Cause::from)?;
        if let Message::Failure1(failure) = &message {
            return Err(Failure::ByPeer(failure.explanation));
        }
        let (due, got) = (self.transaction, message.transaction());
        if due != got {
            return Err(Cause::Transaction { due, got }.into());
        }
        match (std::mem::replace(&mut self.state, State::Negotiated), message) {
            (State::Negotiated, Message::Challenge(challenge)) => Ok(self.reply(&challenge, entropy)?),
            (State::Replied(pending), Message::Success1(success)) => {
                Ok(self.check_success(&pending, &success)?)
            }
            (_, other) => Err(Cause::NotDue(other.name()).into()),
        }
    }

    fn reply(&self, challenge: &Challenge<'_>, entropy: &Entropy) -> Result<State, Cause> {
        let (hash, group) = self.chosen(challenge)?;
        if challenge.challenge.len() != hash.bytes() {
            return Err(Cause::HashBytes { due: hash.bytes(), got: challenge.challenge.len() });
        }
        if challenge.sequence == 0 {
            return Err(Cause::NoSequence);
        }
        let exchange = Exchange::new(group, &entropy.exponent);
        let session = match &exchange {
            Some(exchange) => Some(exchange.shared(challenge.value)?),
            None if challenge.value.is_empty() => None,
            None => return Err(BadValue.into()),
        };
        let challenged = self.challenged(Side::Host, hash, challenge.challenge, challenge.sequence);
        let session_bytes = session.as_ref().map(|secret| secret.as_slice());
        let response = challenged.response(&self.credentials.host_key(), session_bytes);
        let mutual = self.credentials.controller_key().map(|key| Mutual {
            key: Secret(key),
            challenge: entropy.challenge.iter().copied().take(hash.bytes()).collect(),
            sequence: entropy.sequence.get(),
            session: session.map(Secret),
        });
        let reply = Reply {
            transaction: self.transaction,
            // Without a challenge, 0 would ask for concatenation.
            sequence: entropy.sequence.get(),
            response: &response,
            challenge: mutual.as_ref().map(|mutual| mutual.challenge.as_slice()),
            value: &exchange.as_ref().map(Exchange::value).unwrap_or_default(),
        };
        let message = Message::Reply(reply).encode();
        Ok(State::Replying { message, pending: Pending { hash, mutual } })
    }

    /// What the controller has chosen, which must have been offered.
    fn chosen(&self, challenge: &Challenge<'_>) -> Result<(Hash, Group), Cause> {
        let hash = Hash::of(challenge.hash).filter(|hash| self.algorithms.hashes().contains(hash));
        let group = Group::of(challenge.group).filter(|group| self.algorithms.groups().contains(group));
        let hash = hash.ok_or(Cause::HashNotOffered(challenge.hash))?;
        Ok((hash, group.ok_or(Cause::GroupNotOffered(challenge.group))?))
    }

    fn check_success(&self, pending: &Pending, success: &Success1<'_>) -> Result<State, Cause> {
        let due = pending.hash.bytes();
        if usize::from(success.hash_bytes) != due {
            return Err(Cause::HashBytes { due, got: success.hash_bytes.into() });
        }
        let Some(mutual) = &pending.mutual else { return Ok(State::Authenticated) };
        let response = success.response.ok_or(Cause::NoResponse)?;
        let challenged = self.challenged(Side::Controller, pending.hash, &mutual.challenge, mutual.sequence);
        let session = mutual.session.as_ref().map(|secret| secret.0.as_slice());
        if !challenged.is_answered_by(response, &mutual.key.0, session) {
            return Err(Cause::WrongResponse);
        }
        let message = Message::Success2(Success2 { transaction: self.transaction });
        Ok(State::Succeeding(message.encode()))
    }

    fn challenged<'a>(
        &'a self,
        side: Side,
        hash: Hash,
        challenge: &'a [u8],
        sequence: u32,
    ) -> Challenged<'a> {
        Challenged {
            side,
            hash,
            challenge,
            sequence,
            transaction: self.transaction,
            host: &self.credentials.host,
            subsystem: &self.credentials.subsystem,
        }
    }
}
