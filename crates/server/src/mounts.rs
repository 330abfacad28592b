//! The list that MOUNT's DUMP shows: clients and the paths they mounted. RFC 1813 s5.2.2
//!
//! The list is advisory: clients disappear without notice, so nothing depends on it, and its length
//! is bounded by forgetting the oldest entries.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Entries kept: as many as the server has connections by default.
const ENTRIES_MAX: usize = 4096;

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mounted {
    pub client: IpAddr,
    pub path: String,
}

/// The list, shared by all loops.
#[derive(Debug, Default)]
pub(crate) struct MountTable(Mutex<VecDeque<Mounted>>);

impl MountTable {
    fn entries(&self) -> MutexGuard<'_, VecDeque<Mounted>> {
        // No code that holds the lock panics, and a list of advice is fit for use in any state.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn add(&self, client: IpAddr, path: &str) {
        let mounted = Mounted { client, path: path.to_owned() };
        let mut entries = self.entries();
        if entries.contains(&mounted) {
            return;
        }
        if entries.len() >= ENTRIES_MAX {
            entries.pop_front();
        }
        entries.push_back(mounted);
    }

    pub fn remove(&self, client: IpAddr, path: &[u8]) {
        self.entries().retain(|mounted| mounted.client != client || mounted.path.as_bytes() != path);
    }

    pub fn remove_all(&self, client: IpAddr) {
        self.entries().retain(|mounted| mounted.client != client);
    }

    pub fn list(&self) -> Vec<Mounted> {
        self.entries().iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_bounded_and_has_each_mount_once() {
        let table = MountTable::default();
        let client = |n: u32| IpAddr::from(n.to_be_bytes());
        table.add(client(1), "/export");
        table.add(client(1), "/export");
        assert_eq!(table.list().len(), 1);
        for n in 0..5000 {
            table.add(client(n), "/other");
        }
        assert_eq!(table.list().len(), ENTRIES_MAX);
        table.remove(client(4999), b"/other");
        table.remove_all(client(4998));
        assert_eq!(table.list().len(), ENTRIES_MAX - 2);
    }
}
