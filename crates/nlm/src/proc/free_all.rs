//! FREE_ALL: a host has ended, and all that it had is freed. RFC 1813 s6.3.17

use crate::Text;
use crate::wire::wire_fields;

/// `nlm4_notify`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Args<'a> {
    /// The host.
    pub name: Text<'a>,
    /// The state number of its NSM; not used.
    pub state: i32,
}

wire_fields!(Args<'a> { name, state });

/// Void.
pub type Reply = ();
