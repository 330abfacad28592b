//! Objects that are held open, by name; bounded, and those that have not been used for long go
//! first.
//!
//! A place in the cache keeps a file's storage even when its last name is gone, so what is idle is
//! closed after a while, and what a removal through us ends is closed at once. A file that was
//! written to is synced before it is closed: a failed write-back shows only on a descriptor, or to
//! nobody.

use super::node::Node;
use crate::interface::ObjectId;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Parts with a lock each.
const SHARDS: usize = 16;

#[derive(Default)]
struct Shard {
    nodes: HashMap<ObjectId, Arc<Node>>,
    /// In the order they came; each is passed over once for each time it was used.
    order: VecDeque<ObjectId>,
}

/// See the module.
pub(super) struct Cache {
    shards: [Mutex<Shard>; SHARDS],
    in_shard_max: usize,
}

impl Cache {
    /// For at most about so many objects.
    pub fn new(objects_max: usize) -> Self {
        let shards = std::array::from_fn(|_| Mutex::new(Shard::default()));
        Self { shards, in_shard_max: (objects_max / SHARDS).max(1) }
    }

    fn shard(&self, object: &ObjectId) -> MutexGuard<'_, Shard> {
        // Numbers of files that are made together follow one another.
        let at = usize::try_from(object.fileid % SHARDS as u64).unwrap_or_default();
        self.shards[at].lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn find(&self, object: &ObjectId) -> Option<Arc<Node>> {
        let shard = self.shard(object);
        let node = shard.nodes.get(object)?;
        node.used.store(true, Ordering::Relaxed);
        Some(Arc::clone(node))
    }

    /// Adds a node, or gives the one that came in between; and what has to go for it.
    pub fn add(&self, node: Node) -> (Arc<Node>, Vec<Arc<Node>>) {
        let mut gone = Vec::new();
        let mut shard = self.shard(&node.object);
        if let Some(known) = shard.nodes.get(&node.object) {
            known.used.store(true, Ordering::Relaxed);
            return (Arc::clone(known), gone);
        }
        while shard.nodes.len() >= self.in_shard_max {
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

    /// Takes an object out.
    pub fn forget(&self, object: &ObjectId) -> Option<Arc<Node>> {
        let mut shard = self.shard(object);
        let node = shard.nodes.remove(object)?;
        shard.order.retain(|known| known != object);
        Some(node)
    }

    /// Takes out what nobody has used since the last time, and what has no name any more.
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

    /// Takes everything out.
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
