//! LOOKUP and LOOKUPP: make an entry of the current directory, or its parent, the current object.
//! RFC 8881 s18.13, s18.14

use crate::Status;
use crate::wire::wire_fields;

/// `LOOKUP4args`. RFC 8881 s18.13
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Args<'a> {
    /// The name.
    pub name: &'a [u8],
}

wire_fields!(Args<'a> { name });

/// `LOOKUP4res` and `LOOKUPP4res`.
pub type Reply = Result<(), Status>;
