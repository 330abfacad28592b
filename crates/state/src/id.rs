//! The names of clients, sessions and states. None of an earlier arena is taken for one of this
//! arena: stateids hold its epoch, and the others are made with its secret.

use crate::record::{Kind, Record};

/// `clientid4`: nobody can guess another client's. RFC 8881 s3.2
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientId(pub u64);

/// `sessionid4`. RFC 8881 s3.2
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionId(pub [u8; 16]);

/// `stateid4`. RFC 8881 s3.3.12
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StateId {
    /// The version; 0 means the newest one.
    pub seqid: u32,
    /// Which state.
    pub other: [u8; 12],
}

impl StateId {
    /// The anonymous stateid. RFC 8881 s8.2.3
    pub const ANONYMOUS: Self = Self { seqid: 0, other: [0; 12] };
    /// The READ bypass stateid. RFC 8881 s8.2.3
    pub const BYPASS: Self = Self { seqid: u32::MAX, other: [u8::MAX; 12] };

    /// Whether this is the anonymous or the bypass stateid: no state, only the file's share
    /// reservations count.
    #[must_use]
    pub fn is_special(self) -> bool {
        self.other == [0; 12] || self.other == [u8::MAX; 12]
    }
}

/// What stands for the kind in the stateids of layouts, of which there are no records.
pub(crate) const LAYOUT: u32 = 15;
const _: () = assert!(Kind::ALL.len() < LAYOUT as usize);

/// Three numbers of 32 bits that name a record: epoch, kind and index, generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Name {
    pub epoch: u32,
    pub place: u32,
    pub generation: u32,
}

/// Bits of an index in a stateid; the kind takes the rest.
pub(crate) const INDEX_BITS: u32 = 28;

impl Name {
    pub fn to_bytes(self) -> [u8; 12] {
        let mut bytes = [0; 12];
        for (at, number) in [self.epoch, self.place, self.generation].into_iter().enumerate() {
            bytes[at * 4..at * 4 + 4].copy_from_slice(&number.to_be_bytes());
        }
        bytes
    }

    pub fn of_bytes(bytes: [u8; 12]) -> Self {
        let number = |at: usize| bytes[at..at + 4].iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte));
        Self { epoch: number(0), place: number(4), generation: number(8) }
    }

    /// The record of a state; `None` if no state has this name.
    pub fn state(self) -> Option<Record> {
        let index = self.place & ((1 << INDEX_BITS) - 1);
        let kind = [Kind::Open, Kind::Lock, Kind::Delegation]
            .into_iter()
            .find(|kind| *kind as u32 == self.place >> INDEX_BITS)?;
        (index != 0).then_some(Record { kind, index })
    }

    pub fn of_state(epoch: u32, record: Record, generation: u32) -> Self {
        Self { epoch, place: (record.kind as u32) << INDEX_BITS | record.index, generation }
    }
}
