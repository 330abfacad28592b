//! The client at the other end of a connection: where it came from, and what it may use.

use crate::export::{Admitted, Exports};
use crate::identity::IdentityCache;
use crate::reply_cache::Caller;
use std::net::SocketAddr;
use std::sync::Arc;

/// One client, as one connection knows it.
#[derive(Debug)]
pub(crate) struct Client {
    /// Numbers the connections of a server.
    pub id: u64,
    /// The node it came to.
    pub node: usize,
    pub peer: SocketAddr,
    pub local: SocketAddr,
    /// The exports as they were when it came, or when their rules changed last.
    pub exports: Arc<Exports>,
    /// Which of them it may use.
    pub admitted: Admitted,
    pub identities: IdentityCache,
    /// What the reply cache knows of it.
    pub caller: Caller,
}

impl Client {
    pub fn new(id: u64, node: usize, peer: SocketAddr, local: SocketAddr, exports: Arc<Exports>) -> Self {
        let admitted = exports.admitted(peer);
        Self {
            id,
            node,
            peer,
            local,
            exports,
            admitted,
            identities: IdentityCache::default(),
            caller: Caller::new(peer, local),
        }
    }

    /// The exports or their rules have changed.
    pub fn readmit(&mut self, exports: &Arc<Exports>) {
        self.exports = Arc::clone(exports);
        self.admitted = exports.admitted(self.peer);
    }

    /// The same client for one call that a worker executes; the worker finds the identity again.
    pub fn for_worker(&self) -> Self {
        Self {
            id: self.id,
            node: self.node,
            peer: self.peer,
            local: self.local,
            exports: Arc::clone(&self.exports),
            admitted: self.admitted,
            identities: IdentityCache::default(),
            caller: self.caller.clone(),
        }
    }
}
