//! DELEGPURGE and DELEGRETURN: give back delegations of an earlier life, or one delegation.
//! RFC 8881 s18.5, s18.6

use crate::wire::wire_fields;
use crate::{ClientId, Stateid, Status};

/// `DELEGPURGE4args`. RFC 8881 s18.5
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PurgeArgs {
    /// Ignored in a session.
    pub client: ClientId,
}

wire_fields!(PurgeArgs { client });

/// `DELEGPURGE4res`.
pub type PurgeReply = Result<(), Status>;

/// `DELEGRETURN4args`. RFC 8881 s18.6
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReturnArgs {
    /// The delegation.
    pub delegation: Stateid,
}

wire_fields!(ReturnArgs { delegation });

/// `DELEGRETURN4res`.
pub type ReturnReply = Result<(), Status>;
