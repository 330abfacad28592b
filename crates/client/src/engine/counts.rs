//! What a loop counts for the statistics of its mount.

use paths::PathId;
use transport::rdma::Counters;

use crate::statistics::{PathCounters, Replays};

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Counts {
    by_path: Vec<PathCounters>,
    pub(super) replays: Replays,
    /// Counters of RDMA connections that are closed.
    pub(super) rdma_closed: Counters,
}

impl Counts {
    pub(super) fn new(paths: usize) -> Self {
        let by_path = (0..paths).map(|_| PathCounters::default()).collect();
        Self { by_path, replays: Replays::default(), rdma_closed: Counters::default() }
    }

    /// The counters of a path.
    #[inline]
    pub(super) fn path(&mut self, path: PathId) -> Option<&mut PathCounters> {
        self.by_path.get_mut(usize::from(path.0))
    }

    /// The counters of all paths.
    pub(super) fn paths(&self) -> &[PathCounters] {
        &self.by_path
    }
}
