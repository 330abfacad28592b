//! `AUTH_Failure1` and `AUTH_Failure2`: the controller, or the host, ends the transaction.

use super::{COMMON, Malformed, Reader, header};
use std::fmt;

pub(super) const ID_1: u8 = 0xf1;
pub(super) const ID_2: u8 = 0xf0;

/// The only reason: authentication failed.
pub const REASON_FAILED: u8 = 0x01;

/// Why a transaction has failed, as the peer is told (Reason Code Explanation). Others survive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Explanation(pub u8);

impl Explanation {
    /// A response is wrong.
    pub const FAILED: Self = Self(0x01);
    /// No protocol that both know.
    pub const PROTOCOL_NOT_USABLE: Self = Self(0x02);
    /// Concatenation with TLS that only one side wants.
    pub const CONCATENATION_MISMATCH: Self = Self(0x03);
    /// No hash function that both accept.
    pub const HASH_NOT_USABLE: Self = Self(0x04);
    /// No group that both accept.
    pub const GROUP_NOT_USABLE: Self = Self(0x05);
    /// A message has a wrong field.
    pub const INCORRECT_PAYLOAD: Self = Self(0x06);
    /// Another message was due.
    pub const INCORRECT_MESSAGE: Self = Self(0x07);
}

impl fmt::Display for Explanation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match *self {
            Self::FAILED => "authentication failed: the secrets differ, or one is missing",
            Self::PROTOCOL_NOT_USABLE => "no common protocol of authentication",
            Self::CONCATENATION_MISMATCH => "only one side wants concatenation with TLS",
            Self::HASH_NOT_USABLE => "no common hash function",
            Self::GROUP_NOT_USABLE => "no common Diffie-Hellman group",
            Self::INCORRECT_PAYLOAD => "a field of a message is wrong",
            Self::INCORRECT_MESSAGE => "another message was due",
            Self(other) => return write!(formatter, "explanation {other:02x}h"),
        })
    }
}

/// A transaction has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    /// The transaction (T_ID).
    pub transaction: u16,
    /// The reason; [`REASON_FAILED`] is the only one that is known.
    pub reason: u8,
    /// What is wrong.
    pub explanation: Explanation,
}

impl Failure {
    pub(super) fn decode(transaction: u16, reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self { transaction, reason: reader.u8()?, explanation: Explanation(reader.u8()?) })
    }

    pub(super) fn encode(&self, id: u8) -> Vec<u8> {
        let mut bytes = header(COMMON, id, self.transaction);
        bytes.extend([self.reason, self.explanation.0]);
        bytes
    }
}
