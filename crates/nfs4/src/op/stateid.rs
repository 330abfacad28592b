//! TEST_STATEID and FREE_STATEID. RFC 8881 s18.48, s18.38

use crate::array::Array;
use crate::wire::wire_fields;
use crate::{Stateid, Status};

/// `TEST_STATEID4args`. RFC 8881 s18.48
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TestArgs<'a> {
    /// The stateids.
    pub stateids: Array<'a, Stateid>,
}

wire_fields!(TestArgs<'a> { stateids });

/// `TEST_STATEID4resok`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TestSuccess<'a> {
    /// What each of them would be answered with, in the same order.
    pub statuses: Array<'a, Status>,
}

wire_fields!(TestSuccess<'a> { statuses });

/// `TEST_STATEID4res`.
pub type TestReply<'a> = Result<TestSuccess<'a>, Status>;

/// `FREE_STATEID4args`. RFC 8881 s18.38
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FreeArgs {
    /// A stateid that was revoked, or of locks that are all released.
    pub stateid: Stateid,
}

wire_fields!(FreeArgs { stateid });

/// `FREE_STATEID4res`.
pub type FreeReply = Result<(), Status>;
