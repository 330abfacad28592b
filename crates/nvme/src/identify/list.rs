//! Lists in Identify: NSIDs, and the names of a namespace. NVMe Base, "Namespace List", "Namespace
//! Identification Descriptor list (CNS 03h)".

use super::{CommandSet, IDENTIFY_BYTES};
use crate::layout::{Field, store};

/// The most NSIDs in one list.
pub const NSID_LIST_MAX: usize = IDENTIFY_BYTES / 4;

/// NSIDs, ascending. A zero ends a list that is not full.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NamespaceList(pub Vec<u32>);

impl NamespaceList {
    /// The NSIDs above `after` out of those of a sorted iterator, as far as they fit.
    #[must_use]
    pub fn above(after: u32, nsids: impl Iterator<Item = u32>) -> Self {
        Self(nsids.filter(|nsid| *nsid > after).take(NSID_LIST_MAX).collect())
    }

    /// Reads a list; it ends at its first zero.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Self {
        let nsids = bytes.chunks_exact(4).map(u32::load).take_while(|nsid| *nsid != 0);
        Self(nsids.take(NSID_LIST_MAX).collect())
    }

    /// The structure.
    #[must_use]
    pub fn encode(&self) -> [u8; IDENTIFY_BYTES] {
        let mut bytes = [0; IDENTIFY_BYTES];
        for (place, nsid) in bytes.chunks_exact_mut(4).zip(&self.0) {
            nsid.store(place);
        }
        bytes
    }
}

const EUI64: u8 = 1;
const NGUID: u8 = 2;
const UUID: u8 = 3;
const CSI: u8 = 4;
const HEAD_BYTES: usize = 4;

/// The names of a namespace, which are the same on every path and never change under an NSID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NamespaceIds {
    /// An EUI-64.
    pub eui64: Option<[u8; 8]>,
    /// An NGUID.
    pub nguid: Option<[u8; 16]>,
    /// A UUID.
    pub uuid: Option<[u8; 16]>,
}

/// The list of descriptors: the names and the command set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Descriptors {
    /// The names.
    pub ids: NamespaceIds,
    /// The command set.
    pub command_set: Option<CommandSet>,
}

/// A descriptor whose length is not that of its type, or that leaves the structure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a namespace identification descriptor of type {kind} with {length} bytes")]
pub struct DescriptorsError {
    /// The type.
    pub kind: u8,
    /// The length in bytes.
    pub length: u8,
}

impl Descriptors {
    /// Reads the list. Descriptors of unknown types are skipped.
    ///
    /// # Errors
    /// [`DescriptorsError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, DescriptorsError> {
        let mut found = Self::default();
        let mut rest = bytes;
        while let [kind, length, _, _, after @ ..] = rest {
            let (kind, length) = (*kind, *length);
            if length == 0 {
                break;
            }
            let wrong = DescriptorsError { kind, length };
            let (id, next) = after.split_at_checked(length.into()).ok_or(wrong)?;
            let fits = match kind {
                EUI64 => id.try_into().map(|id| found.ids.eui64 = Some(id)),
                NGUID => id.try_into().map(|id| found.ids.nguid = Some(id)),
                UUID => id.try_into().map(|id| found.ids.uuid = Some(id)),
                CSI => id.try_into().map(|[set]: [u8; 1]| found.command_set = Some(CommandSet(set))),
                _ => Ok(()),
            };
            fits.map_err(|_| wrong)?;
            rest = next;
        }
        Ok(found)
    }

    /// The structure.
    #[must_use]
    pub fn encode(&self) -> [u8; IDENTIFY_BYTES] {
        let mut bytes = [0; IDENTIFY_BYTES];
        let mut at = 0;
        let mut put = |kind: u8, id: &[u8]| {
            store(&[kind, id.len() as u8], &mut bytes, at);
            if let Some(place) = bytes.get_mut(at + HEAD_BYTES..at + HEAD_BYTES + id.len()) {
                place.copy_from_slice(id);
            }
            at += HEAD_BYTES + id.len();
        };
        let NamespaceIds { eui64, nguid, uuid } = self.ids;
        eui64.iter().for_each(|id| put(EUI64, id));
        nguid.iter().for_each(|id| put(NGUID, id));
        uuid.iter().for_each(|id| put(UUID, id));
        self.command_set.iter().for_each(|set| put(CSI, &[set.0]));
        bytes
    }
}
