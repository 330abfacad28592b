//! A volume of a pair, as one node knows it.

use crate::controller::{Node, Reach};
use std::time::Duration;

/// Who owns a volume. It is kept beside the volume, and written by the node that has its lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// The node.
    pub owner: Node,
    /// Counts the times that a node has taken the volume.
    pub epoch: u64,
}

/// Where a volume is on its way between the nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// The other node's. Whether it has said that it serves it; since when it has not.
    Theirs { served: bool, since: Duration },
    /// This node asks for its lock, again at this time.
    Taking { at: Duration },
    /// It is open and locked here, and this record is being written.
    Saving(Record),
    /// This node serves it.
    Ours,
    /// It is being drained and closed, for the other node.
    Giving,
    /// It is closed; the other node has not said that it has it.
    Given,
}

#[derive(Debug)]
pub(super) struct Volume {
    /// The newest that is known.
    pub(super) record: Record,
    pub(super) stage: Stage,
    /// The driver tries to open it: there is one attempt at a time.
    pub(super) is_opening: bool,
    /// Since when nobody serves it.
    pub(super) unserved_since: Duration,
    /// What the driver was told last.
    pub(super) told: Option<(Record, Reach)>,
}

impl Volume {
    pub(super) const fn new(now: Duration, record: Record) -> Self {
        Self {
            record,
            stage: Stage::Theirs { served: false, since: now },
            is_opening: false,
            unserved_since: now,
            told: None,
        }
    }

    /// From now on nobody serves it, if somebody did.
    pub(super) const fn note_unserved(&mut self, now: Duration) {
        if matches!(self.stage, Stage::Ours | Stage::Theirs { served: true, .. }) {
            self.unserved_since = now;
        }
    }
}
