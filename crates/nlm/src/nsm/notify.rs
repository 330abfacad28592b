//! NOTIFY: a host tells another one that it has restarted. XNFS s11

use crate::Text;
use crate::wire::wire_fields;

/// `stat_chge`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Args<'a> {
    /// The host that has restarted (`mon_name`).
    pub name: Text<'a>,
    /// Its state number now.
    pub state: i32,
}

wire_fields!(Args<'a> { name, state });

/// Void.
pub type Reply = ();
