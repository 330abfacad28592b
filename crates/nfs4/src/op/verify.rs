//! VERIFY and NVERIFY: go on only if the current object's attributes are, or are not, these.
//! RFC 8881 s18.31, s18.15

use crate::wire::wire_fields;
use crate::{Fattr, Status};

/// `VERIFY4args`. RFC 8881 s18.31
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Args<'a> {
    /// The attributes.
    pub attributes: Fattr<'a>,
}

wire_fields!(Args<'a> { attributes });

/// `NVERIFY4args`. RFC 8881 s18.15
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotArgs<'a> {
    /// The attributes.
    pub attributes: Fattr<'a>,
}

wire_fields!(NotArgs<'a> { attributes });

/// `VERIFY4res` and `NVERIFY4res`.
pub type Reply = Result<(), Status>;
