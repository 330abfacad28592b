//! CLOSE and OPEN_DOWNGRADE: end an open, or give up some of its access. RFC 8881 s18.2, s18.18

use crate::wire::wire_fields;
use crate::{Stateid, Status};

/// `CLOSE4args`. RFC 8881 s18.2
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Args {
    /// Ignored in a session.
    pub seqid: u32,
    /// The open.
    pub open: Stateid,
}

wire_fields!(Args { seqid, open });

/// `CLOSE4res`: a stateid that nobody may use any more, [`Stateid::INVALID`].
pub type Reply = Result<Stateid, Status>;

/// `OPEN_DOWNGRADE4args`. RFC 8881 s18.18
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DowngradeArgs {
    /// The open.
    pub open: Stateid,
    /// Ignored in a session.
    pub seqid: u32,
    /// The access that remains (`share_access`).
    pub access: u32,
    /// What remains denied to others (`share_deny`).
    pub deny: u32,
}

wire_fields!(DowngradeArgs { open, seqid, access, deny });

/// `OPEN_DOWNGRADE4res`: the open's stateid.
pub type DowngradeReply = Result<Stateid, Status>;
