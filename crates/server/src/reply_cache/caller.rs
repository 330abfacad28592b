//! What the reply cache knows of the client at the other end of a connection.

use super::{ReplyCache, Window};
use drc::{ConnectionId, Origin, path_of};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

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
    pub(super) fn origin(&self, reply_cache: &ReplyCache) -> Origin {
        let connection = *self.known_as.get_or_init(|| reply_cache.connections().open());
        Origin { connection, path: self.path }
    }

    /// What the reply cache knows it as, if it does.
    pub fn known_as(&self) -> Option<ConnectionId> {
        self.known_as.get().copied()
    }
}

/// There are too many clients of ours to remember what this one did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooManyClients;

/// See the module's documentation.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    pub(super) address: IpAddr,
    /// The client's windows, when it is one of our own clients and has changed something.
    pub(super) window: Option<Window>,
    /// Its connection, when it is another's client and has changed something.
    pub called_from: Arc<CalledFrom>,
}

impl Caller {
    pub fn new(peer: SocketAddr, local: SocketAddr) -> Self {
        Self { address: peer.ip(), window: None, called_from: Arc::new(CalledFrom::new(peer, local)) }
    }

    /// Sees to it that the connection holds the window of the client that it speaks for, if that is
    /// one of ours.
    pub fn hold_window(
        &mut self,
        id: Option<u64>,
        reply_cache: &ReplyCache,
        now: Duration,
    ) -> Result<(), TooManyClients> {
        let Some(id) = id else { return Ok(()) };
        // One that this process was too long stopped to keep is another's by now.
        if self.window.as_ref().is_none_or(|window| window.id() != id || !window.is_current()) {
            self.window = Some(reply_cache.window(id, self.address, now).ok_or(TooManyClients)?);
        }
        Ok(())
    }
}
