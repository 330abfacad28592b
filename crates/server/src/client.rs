//! The client at the other end of a connection: its addresses, and the exports it may use.

use crate::export::{Admitted, Exports};
use crate::identity::IdentityCache;
use crate::nfs4_state::{Associations, BackConnection};
use crate::reply_cache::CacheClient;
use crate::statistics::FileId;
use std::cell::Cell;
use std::net::SocketAddr;
use std::sync::Arc;

/// What is known about the call under way, for the statistics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct CallSubject {
    /// The object of the handle that was opened last, and its export.
    pub file: Option<FileId>,
    /// The data of a WRITE.
    pub payload_bytes: u32,
}

/// A client as seen by one connection.
#[derive(Debug)]
pub(crate) struct Client {
    /// Numbers the connections of a server.
    pub id: u64,
    /// The node that the client connected to.
    pub node: usize,
    pub peer: SocketAddr,
    pub local: SocketAddr,
    /// The exports at the time of the connection, or of the last change of their rules.
    pub exports: Arc<Exports>,
    /// The exports that the client may use.
    pub admitted: Admitted,
    pub identities: IdentityCache,
    /// The client as the reply cache knows it.
    pub cache_client: CacheClient,
    /// What the call under way is about; reset before each call.
    pub subject: Cell<CallSubject>,
    /// The sessions of the connection, shared by all who serve it.
    pub sessions: Arc<Associations>,
    /// The connection as part of back channels, shared likewise.
    pub back: Arc<BackConnection>,
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
            cache_client: CacheClient::new(peer, local),
            subject: Cell::default(),
            sessions: Arc::default(),
            back: Arc::default(),
        }
    }

    /// Called when the exports or their rules have changed.
    pub fn readmit(&mut self, exports: &Arc<Exports>) {
        self.exports = Arc::clone(exports);
        self.admitted = exports.admitted(self.peer);
    }

    /// The same client for one call that a worker executes; the worker decodes the identity again.
    pub fn for_worker(&self) -> Self {
        Self {
            id: self.id,
            node: self.node,
            peer: self.peer,
            local: self.local,
            exports: Arc::clone(&self.exports),
            admitted: self.admitted,
            identities: IdentityCache::default(),
            cache_client: self.cache_client.clone(),
            subject: Cell::default(),
            sessions: Arc::clone(&self.sessions),
            back: Arc::clone(&self.back),
        }
    }
}
