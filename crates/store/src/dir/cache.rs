//! A bounded cache of open objects, by name; objects that have not been used for long are evicted
//! first.
//!
//! An entry in the cache keeps the storage of a file even after its last name is gone. So idle
//! objects are closed after a while, and an object that is removed through this store is closed at
//! once. A file with unsynced writes is synced before it is closed: a failed write-back is reported
//! only on an open descriptor.
//!
//! An object that is held stays, whatever happens to its names, and takes no place of the others.

use super::node::Node;
use crate::interface::{ObjectId, Result, Status};
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
    /// How many of the nodes are held; those are not in `order`.
    held: usize,
}

/// The most objects in a shard of one of several caches.
fn in_shard_max(objects_max: usize, caches: usize) -> usize {
    (objects_max / caches.max(1) / SHARDS).max(1)
}

/// See the module's documentation.
pub(super) struct Cache {
    shards: [Mutex<Shard>; SHARDS],
    objects_max: usize,
    /// Objects held, in all shards.
    held: AtomicUsize,
    held_max: usize,
}

impl Drop for Cache {
    fn drop(&mut self) {
        CACHES.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Cache {
    /// Creates a cache. All caches of the process together have about `objects_max` objects at
    /// most, and `held_max` that are held, an equal part each.
    pub fn new(objects_max: usize, held_max: usize) -> Self {
        CACHES.fetch_add(1, Ordering::Relaxed);
        let shards = std::array::from_fn(|_| Mutex::new(Shard::default()));
        Self { shards, objects_max, held: AtomicUsize::new(0), held_max }
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
        while shard.nodes.len() - shard.held >= self.in_shard_max() {
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

    /// Holds an object: this node, or the one that the cache has.
    ///
    /// # Errors
    /// [`Status::Later`] if as many are held as can be.
    pub fn hold(&self, node: &Arc<Node>) -> Result<()> {
        let mut shard = self.shard(&node.object);
        let Shard { nodes, order, held } = &mut *shard;
        let known = nodes.entry(node.object).or_insert_with(|| Arc::clone(node));
        if !known.is_held() {
            let most = (self.held_max / CACHES.load(Ordering::Relaxed).max(1)).max(1);
            let more = |held: usize| (held < most).then_some(held + 1);
            if self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_err() {
                if !order.contains(&node.object) {
                    nodes.remove(&node.object);
                }
                return Err(Status::Later);
            }
            *held += 1;
            order.retain(|other| *other != node.object);
        }
        known.holds.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Ends a hold. Returns the object if it is not held any more and has no name: the cache has
    /// given it up.
    pub fn release(&self, object: &ObjectId) -> Option<Arc<Node>> {
        let mut shard = self.shard(object);
        let Shard { nodes, order, held } = &mut *shard;
        let node = nodes.get(object).filter(|node| node.is_held())?;
        if node.holds.fetch_sub(1, Ordering::Relaxed) > 1 {
            return None;
        }
        *held -= 1;
        self.held.fetch_sub(1, Ordering::Relaxed);
        if node.stat().is_err() {
            return nodes.remove(object);
        }
        order.push_back(*object);
        None
    }

    /// Removes an object, unless it is held.
    pub fn forget(&self, object: &ObjectId) -> Option<Arc<Node>> {
        let mut shard = self.shard(object);
        if shard.nodes.get(object)?.is_held() {
            return None;
        }
        let node = shard.nodes.remove(object)?;
        shard.order.retain(|known| known != object);
        Some(node)
    }

    /// Removes objects that have not been used since the last call, and objects without a name.
    pub fn take_idle(&self) -> Vec<Arc<Node>> {
        let mut gone = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            let idle = |node: &Node| {
                !node.is_held() && (!node.used.swap(false, Ordering::Relaxed) || node.stat().is_err())
            };
            let Shard { nodes, order, .. } = &mut *shard;
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
            shard.held = 0;
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
        let caches: Vec<_> = (0..3).map(|_| Cache::new(100, 10)).collect();
        assert!(CACHES.load(Ordering::Relaxed) >= caches.len());
    }
}
