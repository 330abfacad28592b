//! ACCESS: what the caller may do with the current object. RFC 8881 s18.1

use crate::Status;
use crate::wire::wire_fields;
use fs::Rights;

/// `ACCESS4args`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Args {
    /// The rights to check. RFC 8276 s8.5 adds three for extended attributes: [`XAREAD`],
    /// [`XAWRITE`] and [`XALIST`].
    pub access: Rights,
}

wire_fields!(Args { access });

/// Read extended attributes. RFC 8276 s8.5
pub const XAREAD: Rights = Rights(0x40);
/// Set and remove extended attributes. RFC 8276 s8.5
pub const XAWRITE: Rights = Rights(0x80);
/// List extended attributes. RFC 8276 s8.5
pub const XALIST: Rights = Rights(0x100);

/// `ACCESS4resok`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Success {
    /// Which of the rights the server could check.
    pub supported: Rights,
    /// Which of these the caller has.
    pub access: Rights,
}

wire_fields!(Success { supported, access });

/// `ACCESS4res`.
pub type Reply = Result<Success, Status>;
