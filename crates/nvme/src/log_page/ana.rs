//! The log of asymmetric namespace access. NVMe Base, "Asymmetric Namespace Access (Log Page
//! Identifier 0Ch)".

use crate::Status;
use crate::layout::{layout, load, numbers};

numbers! {
    /// How a controller reaches the namespaces of a group.
    pub struct AnaState(u8) {
        /// The best way.
        OPTIMIZED = 0x1,
        /// A way with detours.
        NON_OPTIMIZED = 0x2,
        /// Not now.
        INACCESSIBLE = 0x3,
        /// Never again.
        PERSISTENT_LOSS = 0x4,
        /// The state is changing, for at most ANATT.
        CHANGE = 0xf,
    }
}

impl AnaState {
    /// The status of I/O in this state; `None` where I/O is served.
    #[must_use]
    pub const fn refusal(self) -> Option<Status> {
        match self {
            Self::OPTIMIZED | Self::NON_OPTIMIZED => None,
            Self::PERSISTENT_LOSS => Some(Status::ANA_PERSISTENT_LOSS),
            Self::CHANGE => Some(Status::ANA_TRANSITION),
            _ => Some(Status::ANA_INACCESSIBLE),
        }
    }
}

/// The length of the head of the log in bytes.
pub const ANA_HEAD_BYTES: usize = AnaHead::BYTES;

/// The length of a group's descriptor in bytes, without its NSIDs.
pub const ANA_GROUP_BYTES: usize = AnaGroupHead::BYTES;

layout! {
    /// The head of the log.
    pub struct AnaHead[16] {
        /// CHGCNT: counts the changes.
        changes: u64 = 0,
        /// The number of groups.
        groups: u16 = 8,
    }
}

layout! {
    /// The head of a group's descriptor.
    pub struct AnaGroupHead[32] {
        /// ANAGRPID, from 1 on.
        id: u32 = 0,
        /// The number of NSIDs that follow.
        nsids: u32 = 4,
        /// CHGCNT: counts the changes of the group.
        changes: u64 = 8,
        /// The state.
        state: AnaState = 16,
    }
}

/// A group of namespaces that share a state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnaGroup {
    /// ANAGRPID, from 1 to ANAGRPMAX.
    pub id: u32,
    /// Counts the changes of the group.
    pub changes: u64,
    /// The state.
    pub state: AnaState,
    /// The namespaces, ascending: Linux relies on it.
    pub nsids: Vec<u32>,
}

/// The log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AnaLog {
    /// Counts the changes.
    pub changes: u64,
    /// The groups, ascending.
    pub groups: Vec<AnaGroup>,
}

/// Why bytes are no ANA log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AnaLogError {
    /// The log ends within a descriptor.
    #[error("the ANA log ends within its group {0}")]
    Short(u16),
    /// A group with the identifier 0.
    #[error("group {0} of the ANA log has the identifier 0")]
    Id(u16),
    /// Namespaces that do not ascend.
    #[error("the namespaces of ANA group {0} do not ascend")]
    Order(u32),
}

impl AnaLog {
    /// The log; with `groups_only` without NSIDs.
    #[must_use]
    pub fn encode(&self, groups_only: bool) -> Vec<u8> {
        let groups = u16::try_from(self.groups.len()).unwrap_or(u16::MAX);
        let mut bytes = AnaHead { changes: self.changes, groups }.encode().to_vec();
        for group in self.groups.iter().take(groups.into()) {
            let nsids = if groups_only { &[] } else { group.nsids.as_slice() };
            let AnaGroup { id, changes, state, .. } = *group;
            let head = AnaGroupHead { id, nsids: nsids.len() as u32, changes, state };
            bytes.extend_from_slice(&head.encode());
            bytes.extend(nsids.iter().flat_map(|nsid| nsid.to_le_bytes()));
        }
        bytes
    }

    /// Reads a whole log.
    ///
    /// # Errors
    /// [`AnaLogError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, AnaLogError> {
        let head = AnaHead::decode(bytes).map_err(|_| AnaLogError::Short(0))?;
        let mut log = Self { changes: head.changes, groups: Vec::new() };
        let mut rest = bytes.get(AnaHead::BYTES..).unwrap_or_default();
        for at in 0..head.groups {
            let short = AnaLogError::Short(at);
            let group = AnaGroupHead::decode(rest).map_err(|_| short)?;
            rest = rest.get(AnaGroupHead::BYTES..).unwrap_or_default();
            if group.id == 0 {
                return Err(AnaLogError::Id(at));
            }
            let bytes = usize::try_from(group.nsids).ok().and_then(|nsids| nsids.checked_mul(4));
            let (nsids, after) = rest.split_at_checked(bytes.ok_or(short)?).ok_or(short)?;
            let nsids: Vec<u32> = nsids.chunks_exact(4).map(|nsid| load(nsid, 0)).collect();
            if !nsids.is_sorted_by(|a, b| a < b) {
                return Err(AnaLogError::Order(group.id));
            }
            rest = after;
            log.groups.push(AnaGroup { id: group.id, changes: group.changes, state: group.state, nsids });
        }
        Ok(log)
    }
}
