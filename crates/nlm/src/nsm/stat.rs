//! STAT: asks whether NSM would monitor a host. XNFS s11

use crate::Text;
use crate::wire::{wire_enum, wire_fields};

/// `sm_name`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Args<'a> {
    /// The host.
    pub name: Text<'a>,
}

wire_fields!(Args<'a> { name });

/// `res`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// NSM monitors the host.
    Success,
    /// It does not.
    Failure,
}

wire_enum!(Answer { Success = 0, Failure = 1 });

/// `sm_stat_res`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reply {
    /// Whether NSM monitors the host.
    pub answer: Answer,
    /// The state number of this host.
    pub state: i32,
}

wire_fields!(Reply { answer, state });
