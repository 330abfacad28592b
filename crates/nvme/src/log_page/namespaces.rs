//! The logs of changed namespaces and of reservations. NVMe Base, "Changed Attached Namespace List
//! (Log Page Identifier 04h)", "Reservation Notification (80h)".

use crate::identify::{IDENTIFY_BYTES, NSID_LIST_MAX, NamespaceList};
use crate::layout::{layout, numbers};

/// The most namespaces that the log names; if more changed, it says "all" instead.
pub const CHANGED_NAMESPACES_MAX: usize = NSID_LIST_MAX;

/// Which namespaces changed since the log was last read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChangedNamespaces {
    /// Ascending, at most [`CHANGED_NAMESPACES_MAX`].
    nsids: Vec<u32>,
    overflow: bool,
}

impl ChangedNamespaces {
    /// Adds a namespace.
    pub fn add(&mut self, nsid: u32) {
        if let Err(place) = self.nsids.binary_search(&nsid) {
            if self.nsids.len() == CHANGED_NAMESPACES_MAX {
                self.overflow = true;
            } else {
                self.nsids.insert(place, nsid);
            }
        }
    }

    /// Whether nothing changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nsids.is_empty()
    }

    /// The log page: the NSIDs, or FFFFFFFFh alone if there are too many.
    #[must_use]
    pub fn encode(&self) -> [u8; IDENTIFY_BYTES] {
        if self.overflow {
            return NamespaceList(vec![crate::NSID_ALL]).encode();
        }
        NamespaceList(self.nsids.clone()).encode()
    }

    /// Reads the log page; `None` if more changed than it can name.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<NamespaceList> {
        let list = NamespaceList::decode(bytes);
        (list.0.first() != Some(&crate::NSID_ALL)).then_some(list)
    }
}

numbers! {
    /// What happened to a reservation.
    pub struct ReservationEvent(u8) {
        /// The log page is empty.
        EMPTY = 0,
        /// A registration was preempted.
        REGISTRATION_PREEMPTED = 1,
        /// A reservation was released.
        RESERVATION_RELEASED = 2,
        /// A reservation was preempted.
        RESERVATION_PREEMPTED = 3,
    }
}

layout! {
    /// The oldest notification of a reservation.
    pub struct ReservationNotification[64] {
        /// Counts the log pages; 0 if the page is empty.
        count: u64 = 0,
        /// What happened.
        event: ReservationEvent = 8,
        /// How many more there are, at most 255.
        more: u8 = 9,
        /// The namespace.
        nsid: u32 = 12,
    }
}
