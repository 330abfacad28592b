//! Why a transaction fails, and what the peer is told of it.

use crate::group::BadValue;
use crate::message::{Explanation, Malformed};

/// How authentication has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// This side ended it.
    #[error(transparent)]
    Refused(#[from] Cause),
    /// The peer ended it, and has said why.
    #[error("the peer ended authentication: {0}")]
    ByPeer(Explanation),
}

/// Why this side ends a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Cause {
    /// The peer does not have the secret.
    #[error("the peer's response is wrong: its secret differs, or the name it belongs to")]
    WrongResponse,
    /// A host wants proof, and there is no secret to give it.
    #[error("the host wants the controller to prove who it is, and there is no secret of the controller")]
    NoControllerSecret,
    /// A controller was challenged and did not answer.
    #[error("the controller has not answered the host's challenge")]
    NoResponse,
    /// A host does not know DH-HMAC-CHAP.
    #[error("the host does not offer DH-HMAC-CHAP")]
    NoProtocol,
    /// A host wants TLS after authentication.
    #[error("the host wants concatenation with TLS (SC_C {0}), which is not supported")]
    Concatenation(u8),
    /// No hash function in common.
    #[error("no hash function that both sides accept")]
    NoHash,
    /// No group in common.
    #[error("no Diffie-Hellman group that both sides accept")]
    NoGroup,
    /// A controller chose a hash function that was not offered.
    #[error("the controller chose the hash function {0}, which was not offered")]
    HashNotOffered(u8),
    /// A controller chose a group that was not offered.
    #[error("the controller chose the group {0}, which was not offered")]
    GroupNotOffered(u8),
    /// A message of another transaction.
    #[error("a message of transaction {got} where {due} was due")]
    Transaction {
        /// The transaction that goes on.
        due: u16,
        /// That of the message.
        got: u16,
    },
    /// A hash of the wrong length.
    #[error("a hash of {got} bytes, where the function has {due}")]
    HashBytes {
        /// What the function has.
        due: usize,
        /// What came.
        got: usize,
    },
    /// A challenge with the sequence number 0.
    #[error("a challenge with the sequence number 0")]
    NoSequence,
    /// A wrong Diffie-Hellman value.
    #[error(transparent)]
    Value(#[from] BadValue),
    /// No message at all.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// Another message than the one that is due.
    #[error("{0} was not due")]
    NotDue(&'static str),
}

impl Cause {
    /// What the peer is told.
    #[must_use]
    pub const fn explanation(self) -> Explanation {
        match self {
            Self::WrongResponse | Self::NoControllerSecret | Self::NoResponse => Explanation::FAILED,
            Self::NoProtocol => Explanation::PROTOCOL_NOT_USABLE,
            Self::Concatenation(_) => Explanation::CONCATENATION_MISMATCH,
            Self::NoHash | Self::HashNotOffered(_) => Explanation::HASH_NOT_USABLE,
            Self::NoGroup | Self::GroupNotOffered(_) => Explanation::GROUP_NOT_USABLE,
            Self::Transaction { .. }
            | Self::HashBytes { .. }
            | Self::NoSequence
            | Self::Value(_)
            | Self::Malformed(
                Malformed::Short { .. } | Malformed::Long(_) | Malformed::NoFlag { .. } | Malformed::List(_),
            ) => Explanation::INCORRECT_PAYLOAD,
            Self::Malformed(Malformed::Unknown { .. }) | Self::NotDue(_) => Explanation::INCORRECT_MESSAGE,
        }
    }
}
