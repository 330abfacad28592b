//! What all loops of a server share: exports, mounts, reply cache, nodes.

use crate::config::{Config, ExportConfig, Limits};
use crate::error::Error;
use crate::export::Exports;
use crate::mounts::MountTable;
use crate::reply_cache::ReplyCache;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use store::Store;

/// One server identity while it runs.
#[derive(Debug)]
pub(crate) struct Node {
    /// 0 for none.
    pace_bytes_per_s: AtomicU64,
    connections: AtomicUsize,
    is_stopped: AtomicBool,
}

impl Node {
    /// A connection came.
    pub fn enter(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    /// A connection went.
    pub fn leave(&self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }

    /// Notes that it is stopped, or started again.
    pub fn set_stopped(&self, is_stopped: bool) {
        self.is_stopped.store(is_stopped, Ordering::Relaxed);
    }

    /// Whether it is stopped: a connection of it that is between two loops is reset where it
    /// arrives.
    pub fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    /// Whether it has a pace to divide.
    pub fn is_paced(&self) -> bool {
        self.pace_bytes_per_s.load(Ordering::Relaxed) > 0
    }

    /// Gives it another pace.
    pub fn set_pace(&self, bytes_per_s: Option<u64>) {
        self.pace_bytes_per_s.store(bytes_per_s.unwrap_or(0), Ordering::Relaxed);
    }

    /// One connection's share of the node's pace: the option is per socket, the pace is per node.
    pub fn share(&self) -> Option<u64> {
        let connections = self.connections.load(Ordering::Relaxed).max(1) as u64;
        let pace = self.pace_bytes_per_s.load(Ordering::Relaxed);
        (pace > 0).then(|| (pace / connections).max(1))
    }
}

/// What all loops share.
#[derive(Debug)]
pub(crate) struct Group {
    /// What a new connection gets; replaced when the configuration is read again.
    exports: RwLock<Arc<Exports>>,
    pub mounts: MountTable,
    pub reply_cache: ReplyCache,
    pub nodes: Vec<Node>,
    pub limits: Limits,
    /// Threads for calls that wait for their stores.
    pub workers: usize,
    pub congestion: Option<String>,
    /// Where programs are found, when this server tells.
    pub portmap: OnceLock<Vec<rpc::portmap::Entry>>,
    /// Numbers connections, over all nodes and loops.
    pub next_connection: AtomicU64,
}

impl Group {
    pub fn new(
        config: &Config,
        own: impl FnMut(&ExportConfig) -> Option<Box<dyn Store>>,
    ) -> Result<Self, Error> {
        let nodes = config.nodes.iter().map(|node| Node {
            pace_bytes_per_s: AtomicU64::new(node.pace_bytes_per_s.unwrap_or(0)),
            connections: AtomicUsize::new(0),
            is_stopped: AtomicBool::new(false),
        });
        let mut exports = Exports::new(config, own)?;
        let reply_cache = match &config.group {
            None => ReplyCache::new(),
            Some(directory) => ReplyCache::Shared(exports.share(directory)?),
        };
        Ok(Self {
            exports: RwLock::new(Arc::new(exports)),
            mounts: MountTable::default(),
            reply_cache,
            nodes: nodes.collect(),
            limits: config.limits,
            workers: config.workers,
            congestion: config.congestion.clone(),
            portmap: OnceLock::new(),
            next_connection: AtomicU64::new(1),
        })
    }

    /// The exports as they are now.
    pub fn exports(&self) -> Arc<Exports> {
        // Only whole values are put in.
        Arc::clone(&self.exports.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces them; connections that are there learn of it by a message.
    pub fn set_exports(&self, exports: Arc<Exports>) {
        *self.exports.write().unwrap_or_else(PoisonError::into_inner) = exports;
    }
}
