//! A bounded cache of open objects, by name; objects that have not been used for long are evicted
//! first.
//!
//! An entry in the cache keeps the storage of a file even after its last name is gone. So idle
//! objects are closed after a while, and an object that is removed through this store is closed at
//! once. A file with unsynced writes is synced before it is closed: a failed write-back is reported
//! only on an open descriptor.

use super::node::Node;
use crate::interface::ObjectId;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Shards, each with its own lock.
const SHARDS: usize = 16;

/// The caches of this process, which share its descriptors.
static CACHES: AtomicUsize = AtomicUsize::new(0);

#[derive(Default)]
struct Shard {
    nodes: HashMap<ObjectId, Arc<Node>>,
    /// In the order of insertion; an entry that was used since it was last reached is passed over
    /// once.
    order: VecDeque<ObjectId>,
}

/// The most objects in a shard of one of several caches.
fn in_shard_max(objects_max: usize, caches: usize) -> usize {
    (objects_max / caches.max(1) / SHARDS).max(1)
}

/// See the module's documentation.
pub(super) struct Cache {
    shards: [Mutex<Shard>; SHARDS],
    objects_max: usize,
}

impl Drop for Cache {
    fn drop(&mut self) {
        CACHES.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Cache {
    /// Creates a cache. All caches of the process together have about `objects_max` objects at
    /// most, an equal part each.
    pub fn new(objects_max: usize) -> Self {
        CACHES.fetch_add(1, Ordering::Relaxed);
        let shards = std::array::from_fn(|_| Mutex::new(Shard::default()));
        Self { shards, objects_max }
    }

    fn in_shard_max(&self) -> usize {
        in_shard_max(self.objects_max, CACHES.load(Ordering::Relaxed))
    }

    fn shard(&self, object: &ObjectId) -> MutexGuard<'_, Shard> {
        // Files that are created together have consecutive numbers, and so spread over the shards.
        let at = usize::try_from(object.fileid % SHARDS as u64).unwrap_or_default();
        self.shards[at].lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn find(&self, object: &ObjectId) -> Option<Arc<Node>> {
        let shard = self.shard(object);
        let node = shard.nodes.get(object)?;
        node.used.store(true, Ordering::Relaxed);
        Some(Arc::clone(node))
    }

    /// Adds a node, or returns the node that was added meanwhile; also returns the evicted nodes.
    pub fn add(&self, node: Node) -> (Arc<Node>, Vec<Arc<Node>>) {
        let mut gone = Vec::new();
        let mut shard = self.shard(&node.object);
        if let Some(known) = shard.nodes.get(&node.object) {
            known.used.store(true, Ordering::Relaxed);
            return (Arc::clone(known), gone);
        }
        while shard.nodes.len() >= self.in_shard_max() {
            let Some(oldest) = shard.order.pop_front() else { break };
            let Some(known) = shard.nodes.get(&oldest) else { continue };
            if known.used.swap(false, Ordering::Relaxed) {
                shard.order.push_back(oldest);
            } else {
                gone.extend(shard.nodes.remove(&oldest));
            }
        }
        let node = Arc::new(node);
        shard.order.push_back(node.object);
        shard.nodes.insert(node.object, Arc::clone(&node));
        (node, gone)
    }

    /// Removes an object.
    pub fn forget(&self, object: &ObjectId) -> Option<Arc<Node>> {
        let mut shard = self.shard(object);
        let node = shard.nodes.remove(object)?;
        shard.order.retain(|known| known != object);
        Some(node)
    }

    /// Removes objects that have not been used since the last call, and objects without a name.
    pub fn take_idle(&self) -> Vec<Arc<Node>> {
        let mut gone = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            let idle = |node: &Node| !node.used.swap(false, Ordering::Relaxed) || node.stat().is_err();
            let Shard { nodes, order } = &mut *shard;
            gone.extend(nodes.extract_if(|_, node| idle(node)).map(|(_, node)| node));
            order.retain(|object| nodes.contains_key(object));
        }
        gone
    }

    /// Objects with a descriptor for writing that was not used since the last call.
    pub fn writable_idle(&self) -> Vec<Arc<Node>> {
        let mut idle = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            idle.extend(shard.nodes.values().filter(|node| node.descriptors.is_writable_idle()).cloned());
        }
        idle
    }

    /// Removes all objects.
    pub fn take_all(&self) -> Vec<Arc<Node>> {
        let mut gone = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.order.clear();
            gone.extend(shard.nodes.drain().map(|(_, node)| node));
        }
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_caches_together_have_the_objects_of_one() {
        for caches in [1, 2, 5, 64] {
            let together = in_shard_max(8192, caches) * SHARDS * caches;
            assert!(together <= 8192 && together > 8192 / 2, "{caches}: {together}");
        }
        assert_eq!(in_shard_max(16, 100), 1);
    }

    #[test]
    fn a_cache_counts_as_long_as_it_lives() {
        // Other tests of the program open and close stores meanwhile, so only bounds are certain.
        let caches: Vec<_> = (0..3).map(|_| Cache::new(100)).collect();
        assert!(CACHES.load(Ordering::Relaxed) >= caches.len());
    }
}
