//! What the reply cache knows of the client at the other end of a connection.

use super::{ReplyCache, Window};
use drc::{ConnectionId, Origin, path_of};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// A connection as the reply cache knows it, from the first call that the table guards.
#[derive(Debug)]
pub(crate) struct CacheConnection {
    path: u64,
    id: OnceLock<ConnectionId>,
}

impl CacheConnection {
    fn new(peer: SocketAddr, local: SocketAddr) -> Self {
        Self { path: path_of(peer, local), id: OnceLock::new() }
    }

    /// Another connection between the same ends.
    #[cfg(test)]
    pub const fn reopened(&self) -> Self {
        Self { path: self.path, id: OnceLock::new() }
    }

    /// The origin of a call; from now on the reply cache knows the connection.
    pub(super) fn origin(&self, reply_cache: &ReplyCache) -> Origin {
        let connection = *self.id.get_or_init(|| reply_cache.connections().open());
        Origin { connection, path: self.path }
    }

    /// The connection's id in the reply cache, if it has one.
    pub fn id(&self) -> Option<ConnectionId> {
        self.id.get().copied()
    }
}

/// There are too many clients of ours to keep the replies of this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooManyClients;

/// See the module's documentation.
#[derive(Debug, Clone)]
pub(crate) struct CacheClient {
    pub(super) address: IpAddr,
    /// The client's windows, when it is one of our own clients and has changed something.
    pub(super) window: Option<Window>,
    /// The connection, if the client is a foreign one and has changed something.
    pub connection: Arc<CacheConnection>,
}

impl CacheClient {
    pub fn new(peer: SocketAddr, local: SocketAddr) -> Self {
        Self { address: peer.ip(), window: None, connection: Arc::new(CacheConnection::new(peer, local)) }
    }

    /// Makes sure that the connection holds the window of its client, if the client is one of ours.
    pub fn acquire_window(
        &mut self,
        id: Option<u64>,
        reply_cache: &ReplyCache,
        now: Duration,
    ) -> Result<(), TooManyClients> {
        let Some(id) = id else { return Ok(()) };
        // A window that this process could not keep, because it was stopped too long, belongs to
        // another client by now.
        if self.window.as_ref().is_none_or(|window| window.id() != id || !window.is_current()) {
            self.window = Some(reply_cache.window(id, self.address, now).ok_or(TooManyClients)?);
        }
        Ok(())
    }
}
