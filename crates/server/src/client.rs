//! The client at the other end of a connection: where it came from, and what it may use.

use crate::export::{Admitted, Exports};
use crate::identity::IdentityCache;
use crate::reply_cache::{ReplyCache, Window};
use drc::{ConnectionId, Origin, path_of};
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

/// A connection as the reply cache knows it, from the first call on that is guarded by the table.
#[derive(Debug)]
pub(crate) struct CalledFrom {
    path: u64,
    known_as: OnceLock<ConnectionId>,
}

impl CalledFrom {
    fn new(peer: SocketAddr, local: SocketAddr) -> Self {
        Self { path: path_of(peer, local), known_as: OnceLock::new() }
    }

    /// Another connection between the same ends.
    #[cfg(test)]
    pub const fn again(&self) -> Self {
        Self { path: self.path, known_as: OnceLock::new() }
    }

    /// Where a call comes from; the reply cache knows the connection from now on.
    pub fn origin(&self, reply_cache: &ReplyCache) -> Origin {
        let connection = *self.known_as.get_or_init(|| reply_cache.connections().open());
        Origin { connection, path: self.path }
    }

    /// What the reply cache knows it as, if it does.
    pub fn known_as(&self) -> Option<ConnectionId> {
        self.known_as.get().copied()
    }
}

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
    /// What the reply cache knows of it, when it is one of our own clients and has changed something.
    pub window: Option<Window>,
    /// What the reply cache knows of its connection, when it is another's client and has changed something.
    pub called_from: Arc<CalledFrom>,
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
            window: None,
            called_from: Arc::new(CalledFrom::new(peer, local)),
        }
    }

    /// A number that it has for each of its loops, the next one for the next, where it is one of our own, on this machine, and
    /// has several.
    pub fn local_loop(&self) -> Option<u64> {
        let peer = self.peer.ip().to_canonical();
        if !peer.is_loopback() && peer != self.local.ip().to_canonical() {
            return None;
        }
        let (of_mount, number) = drc::loop_of(self.identities.current()?.client_id?)?;
        Some(of_mount + u64::from(number))
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
            window: self.window.clone(),
            called_from: Arc::clone(&self.called_from),
        }
    }
}
