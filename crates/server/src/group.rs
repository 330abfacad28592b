//! The state that all loops of a server share: exports, mounts, reply cache, nodes.

use crate::addresses::Addresses;
use crate::byte_budget::ByteBudget;
use crate::config::{Config, ExportConfig, Limits, NfsVersions};
use crate::error::Error;
use crate::export::Exports;
use crate::mounts::MountTable;
use crate::nfs4_state::Nfs4State;
use crate::reply_cache::ReplyCache;
use crate::shared_reply_cache::SharedReplyCache;
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
    /// Counts a new connection.
    pub fn enter(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a closed connection.
    pub fn leave(&self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }

    /// Notes that the node is stopped, or started again.
    pub fn set_stopped(&self, is_stopped: bool) {
        self.is_stopped.store(is_stopped, Ordering::Relaxed);
    }

    /// Whether the node is stopped: a connection of it that is moving between two loops is reset
    /// where it arrives.
    pub fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    /// Whether the node has a pacing rate to divide.
    pub fn is_paced(&self) -> bool {
        self.pace_bytes_per_s.load(Ordering::Relaxed) > 0
    }

    /// Sets the pacing rate.
    pub fn set_pace(&self, bytes_per_s: Option<u64>) {
        self.pace_bytes_per_s.store(bytes_per_s.unwrap_or(0), Ordering::Relaxed);
    }

    /// The share of one connection in the node's pacing rate: the socket option is per socket, the
    /// rate is per node.
    pub fn pace_share(&self) -> Option<u64> {
        let connections = self.connections.load(Ordering::Relaxed).max(1) as u64;
        let pace = self.pace_bytes_per_s.load(Ordering::Relaxed);
        (pace > 0).then(|| (pace / connections).max(1))
    }
}

/// The state that all loops share.
#[derive(Debug)]
pub(crate) struct Group {
    /// The exports for new connections; replaced when the configuration is reloaded.
    exports: RwLock<Arc<Exports>>,
    pub mounts: MountTable,
    pub reply_cache: ReplyCache,
    pub versions: NfsVersions,
    /// What is kept of clients of NFS version 4, and the locks of version 3, if any of these is
    /// served.
    pub nfs4: Option<Nfs4State>,
    /// Whether NLM is served. It is not any more if the host has another one.
    serves_nlm: AtomicBool,
    pub nodes: Vec<Node>,
    pub limits: Limits,
    /// The memory that clients may make the server hold.
    pub budget: ByteBudget,
    /// Threads for calls that wait for their stores.
    pub workers: usize,
    pub congestion: Option<String>,
    /// The entries that the port mapper answers, when this server does.
    pub portmap: OnceLock<Vec<rpc::portmap::Entry>>,
    /// Where the processes of the group listen.
    pub addresses: Addresses,
    /// Whether clients of version 4 are told of these addresses by layouts.
    pub layouts: bool,
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
            Some(directory) => {
                ReplyCache::Shared(exports.join_group(directory, Nfs4State::arena_words(config))?)
            }
        };
        let file = reply_cache.shared().map(SharedReplyCache::file);
        let addresses = match (&file, &config.group) {
            (Some(file), Some(directory)) => {
                let fault = |error| Error::Group { directory: directory.clone(), error };
                Some(file.addresses().map_err(fault)?)
            }
            _ => None,
        };
        let exports = Arc::new(exports);
        let nfs4 = Nfs4State::new(config, &exports, file)?;
        // Without the state there is no version 4.
        let versions = if nfs4.is_some() { config.versions } else { config.versions.without_v4() };
        let serves_nlm = AtomicBool::new(config.serves_nlm() && nfs4.is_some());
        Ok(Self {
            exports: RwLock::new(exports),
            serves_nlm,
            mounts: MountTable::default(),
            reply_cache,
            versions,
            nfs4,
            nodes: nodes.collect(),
            limits: config.limits,
            budget: ByteBudget::new(config.limits.held_bytes_max),
            workers: config.workers,
            congestion: config.congestion.clone(),
            portmap: OnceLock::new(),
            addresses: Addresses::new(addresses),
            layouts: config.layouts,
            next_connection: AtomicU64::new(1),
        })
    }

    /// Whether this server locks files for clients of version 3.
    pub fn serves_nlm(&self) -> bool {
        self.serves_nlm.load(Ordering::Relaxed)
    }

    /// Serves no NLM from now on, because the host's rpcbind has another server for it.
    pub fn yield_nlm(&self, cause: &str) {
        self.serves_nlm.store(false, Ordering::Relaxed);
        tracing::warn!(
            "serving without NLM, so clients of NFS version 3 must mount with nolock: {cause}; stop that \
             server (rpcinfo shows which: a mount or an export of NFS by this host's kernel, or rpc.statd) and \
             start this one again, or set `nlm = false`"
        );
    }

    /// The current exports.
    pub fn exports(&self) -> Arc<Exports> {
        // Values are complete when they are stored.
        Arc::clone(&self.exports.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the exports; existing connections are notified by a message.
    pub fn set_exports(&self, exports: Arc<Exports>) {
        if let Some(state) = &self.nfs4 {
            state.set_exports(Arc::clone(&exports));
        }
        *self.exports.write().unwrap_or_else(PoisonError::into_inner) = exports;
    }
}
