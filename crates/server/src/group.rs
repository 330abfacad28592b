//! What all loops of a server share: exports, mounts, reply cache, nodes.

use crate::config::{Config, ExportConfig, Limits};
use crate::error::Error;
use crate::export::Exports;
use crate::mounts::MountTable;
use crate::replays::Replays;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use store::Store;

/// One server identity while it runs.
#[derive(Debug)]
pub(crate) struct Node {
    pace_bytes_per_s: Option<u64>,
    connections: AtomicUsize,
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

    /// Whether it has a pace to divide.
    pub const fn is_paced(&self) -> bool {
        self.pace_bytes_per_s.is_some()
    }

    /// One connection's share of the node's pace: the option is per socket, the pace is per node.
    pub fn share(&self) -> Option<u64> {
        let connections = self.connections.load(Ordering::Relaxed).max(1) as u64;
        self.pace_bytes_per_s.map(|pace| (pace / connections).max(1))
    }
}

/// What all loops share.
#[derive(Debug)]
pub(crate) struct Group {
    pub exports: Exports,
    pub mounts: MountTable,
    pub replays: Replays,
    pub nodes: Vec<Node>,
    pub limits: Limits,
    /// Threads for calls that wait for their stores.
    pub workers: usize,
    pub congestion: Option<String>,
    /// Numbers connections, over all nodes and loops.
    pub next_connection: AtomicU64,
}

impl Group {
    pub fn new(
        config: &Config,
        own: impl FnMut(&ExportConfig) -> Option<Box<dyn Store>>,
    ) -> Result<Self, Error> {
        let nodes = config
            .nodes
            .iter()
            .map(|node| Node { pace_bytes_per_s: node.pace_bytes_per_s, connections: AtomicUsize::new(0) });
        Ok(Self {
            exports: Exports::new(config, own)?,
            mounts: MountTable::default(),
            replays: Replays::new(),
            nodes: nodes.collect(),
            limits: config.limits,
            workers: config.workers,
            congestion: config.congestion.clone(),
            next_connection: AtomicU64::new(1),
        })
    }
}
