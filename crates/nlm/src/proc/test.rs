//! TEST: asks whether a lock would be granted. RFC 1813 s6.3.1

use crate::wire::wire_fields;
use crate::{Holder, Lock, NetObj, Status, Wire};
use xdr::{Reader, Result, Writer};

/// `nlm4_testargs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Args<'a> {
    /// Chosen by the caller, and returned.
    pub cookie: NetObj<'a>,
    /// Whether the lock is to be exclusive.
    pub exclusive: bool,
    /// The lock.
    pub lock: Lock<'a>,
}

wire_fields!(Args<'a> { cookie, exclusive, lock });

/// `nlm4_testres`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reply<'a> {
    /// The cookie of the request.
    pub cookie: NetObj<'a>,
    /// The outcome, which is never `Other(DENIED)`.
    pub outcome: Outcome<'a>,
}

wire_fields!(Reply<'a> { cookie, outcome });

/// `nlm4_testrply`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome<'a> {
    /// This lock is in the way.
    Denied(Holder<'a>),
    /// Any other status.
    Other(Status),
}

impl<'a> Wire<'a> for Outcome<'a> {
    fn decode(reader: &mut Reader<'a>) -> Result<Self> {
        match Status::decode(reader)? {
            Status::DENIED => Holder::decode(reader).map(Self::Denied),
            other => Ok(Self::Other(other)),
        }
    }

    fn encode(&self, writer: &mut Writer<'_>) {
        match self {
            Self::Denied(holder) => {
                Status::DENIED.encode(writer);
                holder.encode(writer);
            }
            Self::Other(status) => status.encode(writer),
        }
    }
}
