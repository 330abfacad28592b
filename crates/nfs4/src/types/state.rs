//! What names clients, sessions and state: client ids, session ids, stateids, owners. RFC 8881
//! s2.4, s2.5, s3.2, s3.3.10, s3.3.12, s8.2

use crate::Wire;
use crate::array::Opaque;
use crate::wire::wire_fields;
use std::fmt;
use xdr::{Reader, Result, Writer};

/// The longest owner, server owner or server scope, in bytes. RFC 8881 s3.1 (NFS4_OPAQUE_LIMIT)
pub const OWNER_BYTES_MAX: u32 = 1024;

/// An opaque owner of at most 1024 bytes.
pub type OwnerId<'a> = Opaque<'a, OWNER_BYTES_MAX>;

/// `clientid4`: a server's number for a client. RFC 8881 s3.2
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ClientId(pub u64);

impl<'a> Wire<'a> for ClientId {
    #[inline]
    fn decode(reader: &mut Reader<'a>) -> Result<Self> {
        reader.u64().map(Self)
    }

    #[inline]
    fn encode(&self, writer: &mut Writer<'_>) {
        writer.u64(self.0);
    }
}

/// `sessionid4`: a server's name for a session. RFC 8881 s3.2
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SessionId(pub [u8; 16]);

impl<'a> Wire<'a> for SessionId {
    #[inline]
    fn decode(reader: &mut Reader<'a>) -> Result<Self> {
        reader.opaque_fixed().map(Self)
    }

    #[inline]
    fn encode(&self, writer: &mut Writer<'_>) {
        writer.opaque_fixed(&self.0);
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

/// `stateid4`: a server's name for an open, a lock, a delegation or a layout. RFC 8881 s3.3.12
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Stateid {
    /// Counts the changes of the state; 0 in a request means the newest. RFC 8881 s8.2.2
    pub seqid: u32,
    /// Names the state.
    pub other: [u8; 12],
}

wire_fields!(Stateid { seqid, other });

impl Stateid {
    /// The anonymous stateid: I/O without an open. RFC 8881 s8.2.3
    pub const ANONYMOUS: Self = Self { seqid: 0, other: [0; 12] };
    /// The READ bypass stateid: a READ that ignores locks; any other operation treats it as
    /// anonymous. RFC 8881 s8.2.3
    pub const READ_BYPASS: Self = Self { seqid: u32::MAX, other: [0xff; 12] };
    /// The current stateid: the one that an operation before this one returned. RFC 8881 s8.2.3
    pub const CURRENT: Self = Self { seqid: 1, other: [0; 12] };
    /// The invalid stateid, which is what the current stateid becomes after CLOSE. RFC 8881 s8.2.3
    pub const INVALID: Self = Self { seqid: u32::MAX, other: [0; 12] };

    /// Whether `other` is one that the standard keeps for special stateids, with any seqid. A
    /// server gives out none of these. RFC 8881 s8.2.3
    #[must_use]
    pub fn is_special(&self) -> bool {
        self.other == [0; 12] || self.other == [0xff; 12]
    }
}

impl fmt::Debug for Stateid {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:", self.seqid)?;
        self.other.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

/// `client_owner4`: who a client is, and in which of its lives. RFC 8881 s2.4
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientOwner<'a> {
    /// Changes when the client restarts (`co_verifier`).
    pub verifier: fs::Verifier,
    /// The client (`co_ownerid`).
    pub owner: OwnerId<'a>,
}

wire_fields!(ClientOwner<'a> { verifier, owner });

/// `server_owner4`: who a server is, which tells where trunking is possible. RFC 8881 s2.5,
/// s2.10.5
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerOwner<'a> {
    /// The same where sessions can be trunked (`so_minor_id`).
    pub minor: u64,
    /// The same where client ids can be trunked (`so_major_id`).
    pub major: OwnerId<'a>,
}

wire_fields!(ServerOwner<'a> { minor, major });

/// `state_owner4`: the owner of opens (`open_owner4`) or locks (`lock_owner4`) within a client.
/// RFC 8881 s3.3.10
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateOwner<'a> {
    /// Ignored in a session, whose client is known.
    pub client: ClientId,
    /// The owner.
    pub owner: OwnerId<'a>,
}

wire_fields!(StateOwner<'a> { client, owner });

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 8881 s8.2.3
    #[test]
    fn special_stateids_are_known_by_their_other_part() {
        let special = [Stateid::ANONYMOUS, Stateid::READ_BYPASS, Stateid::CURRENT, Stateid::INVALID];
        assert!(special.iter().all(Stateid::is_special));
        assert!(!Stateid { seqid: 0, other: [1; 12] }.is_special());
    }
}
