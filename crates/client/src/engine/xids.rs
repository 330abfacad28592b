//! The xids of a loop's calls.
//!
//! Invariant: an xid belongs to one call from the moment it is assigned until the call has ended or
//! is turned into a new one. Retransmissions keep it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hasher};

use drc::{XidClass, XidSpace};
use rpc::Xid;

use crate::call::CallKey;

/// Xids are counters, so one multiplication spreads them well enough.
#[derive(Debug, Default)]
struct XidHasher(u64);

impl Hasher for XidHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32(u32::from(*byte));
        }
    }
    fn write_u32(&mut self, value: u32) {
        self.0 = (self.0 ^ u64::from(value)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Xids {
    space: XidSpace,
    calls: HashMap<Xid, CallKey, BuildHasherDefault<XidHasher>>,
}

impl Xids {
    pub(super) fn new(first: u32) -> Self {
        Self { space: XidSpace::new(first), calls: HashMap::default() }
    }

    /// Assigns an xid to a call; `None` if the window of its class is full.
    pub(super) fn assign(&mut self, key: CallKey, class: XidClass) -> Option<Xid> {
        while let Some(xid) = self.space.next(class) {
            // The counter of repeatable calls may wrap around to an xid that is still outstanding.
            if let Entry::Vacant(place) = self.calls.entry(xid) {
                place.insert(key);
                return Some(xid);
            }
        }
        None
    }

    /// The call with this xid.
    pub(super) fn call(&self, xid: Xid) -> Option<CallKey> {
        self.calls.get(&xid).copied()
    }

    /// Ends the use of an xid.
    pub(super) fn complete(&mut self, xid: Xid) {
        self.calls.remove(&xid);
        self.space.complete(xid);
    }
}
