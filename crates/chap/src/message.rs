//! The messages. NVMe Base, "Common Authentication Messages" and "DH-HMAC-CHAP Messages" (8.13.3,
//! 8.13.5).
//!
//! All integers are little-endian. Each message begins with its type, its identifier, two reserved
//! bytes and the transaction. Reserved bytes are ignored and written as zero; numbers that are not
//! known survive. Lengths within a message are checked against the bytes that are there.

mod challenge;
mod failure;
mod negotiate;
mod reply;
mod success;

pub use challenge::Challenge;
pub use failure::{Explanation, Failure, REASON_FAILED};
pub use negotiate::{Negotiate, Protocol};
pub use reply::Reply;
pub use success::{Success1, Success2};

use crate::group::VALUE_BYTES_MAX;
use crate::hash::HASH_BYTES_MAX;

/// The type of messages of every protocol.
const COMMON: u8 = 0x00;

/// The type of messages of DH-HMAC-CHAP.
const DH_CHAP: u8 = 0x01;

/// The length of the common beginning.
const HEADER_BYTES: usize = 6;

/// The longest message that a host sends: a reply with the longest hash and the largest group. So
/// far, a negotiation may have 18 protocols.
pub const SENT_BYTES_MAX: usize = 16 + 2 * HASH_BYTES_MAX + VALUE_BYTES_MAX;

/// The longest message that a host receives: a challenge. A host asks for as much.
pub const RECEIVED_BYTES_MAX: usize = 16 + HASH_BYTES_MAX + VALUE_BYTES_MAX;

/// A message of either side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message<'a> {
    /// `AUTH_Negotiate`, from the host.
    Negotiate(Negotiate),
    /// `DH-HMAC-CHAP_Challenge`, from the controller.
    Challenge(Challenge<'a>),
    /// `DH-HMAC-CHAP_Reply`, from the host.
    Reply(Reply<'a>),
    /// `DH-HMAC-CHAP_Success1`, from the controller.
    Success1(Success1<'a>),
    /// `DH-HMAC-CHAP_Success2`, from the host.
    Success2(Success2),
    /// `AUTH_Failure1`, from the controller.
    Failure1(Failure),
    /// `AUTH_Failure2`, from the host.
    Failure2(Failure),
}

/// Bytes that are no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// It ends too early.
    #[error("a message of {got} bytes ends before byte {needed}")]
    Short {
        /// The bytes that were needed.
        needed: usize,
        /// The bytes that were there.
        got: usize,
    },
    /// It goes on where it should end.
    #[error("a message is followed by {0} bytes")]
    Long(usize),
    /// No message has this type and identifier.
    #[error("no message has the type {auth_type:02x}h and the identifier {auth_id:02x}h")]
    Unknown {
        /// `AUTH_TYPE`.
        auth_type: u8,
        /// `AUTH_ID`.
        auth_id: u8,
    },
    /// A field that must be 0 or 1.
    #[error("{field} is {value}, neither 0 nor 1")]
    NoFlag {
        /// The name of the field.
        field: &'static str,
        /// Its value.
        value: u8,
    },
    /// A list of more identifiers than there is room for.
    #[error("a list of {0} identifiers, where there is room for 30")]
    List(u8),
}

impl<'a> Message<'a> {
    /// Reads a message from the front of the bytes, and gives what follows it.
    ///
    /// # Errors
    /// [`Malformed`] says what is wrong.
    pub fn decode(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), Malformed> {
        let mut reader = Reader { bytes, at: 0 };
        let (auth_type, auth_id) = (reader.u8()?, reader.u8()?);
        reader.skip(2)?;
        let transaction = reader.u16()?;
        let message = match (auth_type, auth_id) {
            (COMMON, negotiate::ID) => Self::Negotiate(Negotiate::decode(transaction, &mut reader)?),
            (COMMON, failure::ID_1) => Self::Failure1(Failure::decode(transaction, &mut reader)?),
            (COMMON, failure::ID_2) => Self::Failure2(Failure::decode(transaction, &mut reader)?),
            (DH_CHAP, challenge::ID) => Self::Challenge(Challenge::decode(transaction, &mut reader)?),
            (DH_CHAP, reply::ID) => Self::Reply(Reply::decode(transaction, &mut reader)?),
            (DH_CHAP, success::ID_1) => Self::Success1(Success1::decode(transaction, &mut reader)?),
            (DH_CHAP, success::ID_2) => Self::Success2(Success2::decode(transaction, &mut reader)?),
            _ => return Err(Malformed::Unknown { auth_type, auth_id }),
        };
        Ok((message, reader.rest()))
    }

    /// Reads a message that all of the bytes are.
    ///
    /// # Errors
    /// [`Malformed`] says what is wrong.
    pub fn decode_whole(bytes: &'a [u8]) -> Result<Self, Malformed> {
        match Self::decode(bytes)? {
            (message, []) => Ok(message),
            (_, rest) => Err(Malformed::Long(rest.len())),
        }
    }

    /// The bytes of the message.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Negotiate(message) => message.encode(),
            Self::Challenge(message) => message.encode(),
            Self::Reply(message) => message.encode(),
            Self::Success1(message) => message.encode(),
            Self::Success2(message) => message.encode(),
            Self::Failure1(message) => message.encode(failure::ID_1),
            Self::Failure2(message) => message.encode(failure::ID_2),
        }
    }

    /// The name of the message in the specification.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Negotiate(_) => "AUTH_Negotiate",
            Self::Challenge(_) => "DH-HMAC-CHAP_Challenge",
            Self::Reply(_) => "DH-HMAC-CHAP_Reply",
            Self::Success1(_) => "DH-HMAC-CHAP_Success1",
            Self::Success2(_) => "DH-HMAC-CHAP_Success2",
            Self::Failure1(_) => "AUTH_Failure1",
            Self::Failure2(_) => "AUTH_Failure2",
        }
    }

    /// The transaction.
    #[must_use]
    pub const fn transaction(&self) -> u16 {
        match self {
            Self::Negotiate(message) => message.transaction,
            Self::Challenge(message) => message.transaction,
            Self::Reply(message) => message.transaction,
            Self::Success1(message) => message.transaction,
            Self::Success2(message) => message.transaction,
            Self::Failure1(message) | Self::Failure2(message) => message.transaction,
        }
    }
}

/// The transaction of what may be no valid message.
pub(crate) fn transaction_of(bytes: &[u8]) -> Option<u16> {
    let (_, transaction) = bytes.get(..HEADER_BYTES)?.split_last_chunk()?;
    Some(u16::from_le_bytes(*transaction))
}

/// Reads from the front, and never past the end.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let end = self.at.saturating_add(count);
        let taken = self.bytes.get(self.at..end);
        let taken = taken.ok_or(Malformed::Short { needed: end, got: self.bytes.len() })?;
        self.at = end;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let missing = Malformed::Short { needed: self.at.saturating_add(N), got: self.bytes.len() };
        self.take(N)?.try_into().map_err(|_| missing)
    }

    fn skip(&mut self, count: usize) -> Result<(), Malformed> {
        self.take(count).map(|_| ())
    }

    fn u8(&mut self) -> Result<u8, Malformed> {
        self.array::<1>().map(u8::from_le_bytes)
    }

    fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    fn flag(&mut self, field: &'static str) -> Result<bool, Malformed> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            value => Err(Malformed::NoFlag { field, value }),
        }
    }

    fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }
}

/// The common beginning of a message.
fn header(auth_type: u8, auth_id: u8, transaction: u16) -> Vec<u8> {
    let mut bytes = vec![auth_type, auth_id, 0, 0];
    bytes.extend(transaction.to_le_bytes());
    bytes
}

/// A length that fits its field, since the machines only write hashes and values of known lengths.
fn length<T: TryFrom<usize>>(bytes: &[u8]) -> T {
    T::try_from(bytes.len()).ok().expect("no hash and no value is longer than its field says")
}

#[cfg(test)]
mod tests;
