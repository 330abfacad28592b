//! The listening sockets of all nodes; the first loop owns them.

use super::event_loop::{LISTENERS, TICK};
use super::mailbox::{Accepted, Link, Mailboxes};
use crate::config::ListenAddress;
use crate::error::Error;
use crate::group::Group;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use transport::poll::{Interest, Poller};
use transport::{rdma, socket};

/// Connections accepted in one turn, so that a flood of them does not delay the existing
/// connections.
const ACCEPTS_PER_TURN: usize = 64;

/// Call-backs that may be outstanding on a connection over RDMA: as many as a session has slots.
const REVERSE_CREDITS: u32 = state::BACK_SLOTS_MAX as u32;

/// The time between two attempts to listen on an address whose device has gone away.
const REBIND_INTERVAL: Duration = Duration::from_secs(2);

/// A bound listener of a node.
#[derive(Debug)]
pub(crate) struct BoundListener {
    pub node: usize,
    pub address: SocketAddr,
    acceptor: Acceptor,
}

#[derive(Debug)]
enum Acceptor {
    Tcp(OwnedFd),
    Rdma(rdma::Listener),
}

/// A new connection.
#[derive(Debug)]
enum NewConnection {
    Tcp(OwnedFd),
    Rdma(Box<rdma::Incoming>),
}

impl AsFd for Acceptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(socket) => socket.as_fd(),
            Self::Rdma(listener) => listener.as_fd(),
        }
    }
}

impl Acceptor {
    /// Accepts the next connection, with both addresses where they are known.
    fn accept(&self) -> io::Result<Option<(NewConnection, SocketAddr, Option<SocketAddr>)>> {
        match self {
            Self::Tcp(socket) => Ok(socket::accept(socket.as_fd())?.map(|(socket, peer)| {
                let local = socket::local_address(socket.as_fd()).ok();
                (NewConnection::Tcp(socket), peer, local)
            })),
            Self::Rdma(listener) => {
                let incoming = listener.take().map_err(io::Error::other)?;
                Ok(incoming.map(|incoming| {
                    let (peer, local) = (incoming.peer(), incoming.local());
                    (NewConnection::Rdma(Box::new(incoming)), peer, Some(local))
                }))
            }
        }
    }
}

/// Whether the error means that the device of the listener is gone.
fn is_device_gone(error: &io::Error) -> bool {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rdma::Error>());
    matches!(cause, Some(rdma::Error::DeviceGone))
}

impl BoundListener {
    /// Takes a socket that already listens.
    pub fn on(node: usize, socket: TcpListener) -> Result<Self, Error> {
        let failed = |error| Error::System { what: "a socket that was passed on", error };
        let address = socket.local_addr().map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        Ok(Self { node, address, acceptor: Acceptor::Tcp(socket.into()) })
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.acceptor.as_fd()
    }

    fn listens_on(&self, address: ListenAddress) -> bool {
        match self.acceptor {
            Acceptor::Tcp(_) => address.tcp() == Some(self.address),
            Acceptor::Rdma(_) => address.rdma() == Some(self.address),
        }
    }
}

/// Listens on an address for a node; port 0 selects a free port.
pub(crate) fn bind(node: usize, address: SocketAddr) -> Result<BoundListener, Error> {
    let failed = |error| Error::Listen { address, error };
    let socket = socket::listen(address).map_err(failed)?;
    let address = socket::local_address(socket.as_fd()).map_err(failed)?;
    // Accepted sockets inherit the algorithm, unless the configuration names another. Where it
    // cannot be set, the system's default will do.
    if address.ip().is_loopback()
        && let Some(name) = socket::loopback_congestion()
    {
        let _ = socket::set_congestion(socket.as_fd(), &name);
    }
    Ok(BoundListener { node, address, acceptor: Acceptor::Tcp(socket) })
}

/// Listens on an address for a node over RDMA; port 0 selects a free port.
pub(crate) fn bind_rdma(node: usize, address: SocketAddr) -> Result<BoundListener, Error> {
    let failed = |error| Error::ListenRdma { address, error };
    let listener = rdma::Listener::bind(address).map_err(failed)?;
    Ok(BoundListener { node, address: listener.address(), acceptor: Acceptor::Rdma(listener) })
}

/// Stops watching a listener before it is dropped: over RDMA, a connection that waits to be
/// accepted keeps the listener's descriptor open.
fn close(poller: &Poller, listener: Option<BoundListener>) {
    if let Some(listener) = listener {
        let _ = poller.remove(&listener.acceptor);
    }
}

/// The listeners of a loop.
#[derive(Debug, Default)]
pub(super) struct Listeners {
    slots: Vec<Option<BoundListener>>,
    /// Nothing is accepted until this time, because the system had no descriptor left.
    paused_until: Option<Duration>,
    /// By node, the addresses whose device has gone away. The device may come back.
    lost: Vec<(usize, SocketAddr)>,
    rebind_at: Duration,
}

impl Listeners {
    pub fn add(&mut self, poller: &Poller, bound: Vec<BoundListener>) -> io::Result<()> {
        for listener in bound {
            let free = self.slots.iter().position(Option::is_none).unwrap_or(self.slots.len());
            poller.add(&listener.acceptor, LISTENERS + free as u64, Interest::READ)?;
            match self.slots.get_mut(free) {
                Some(slot) => *slot = Some(listener),
                None => self.slots.push(Some(listener)),
            }
        }
        Ok(())
    }

    /// Stops listening for a node.
    pub fn remove(&mut self, poller: &Poller, node: usize) {
        for slot in &mut self.slots {
            close(poller, slot.take_if(|listener| listener.node == node));
        }
        self.lost.retain(|(of, _)| *of != node);
    }

    /// Stops listening on one address.
    pub fn remove_at(&mut self, poller: &Poller, address: ListenAddress) {
        for slot in &mut self.slots {
            close(poller, slot.take_if(|listener| listener.listens_on(address)));
        }
        self.lost.retain(|(_, lost)| address.rdma() != Some(*lost));
    }

    pub fn remove_all(&mut self, poller: &Poller) {
        for slot in self.slots.drain(..) {
            close(poller, slot);
        }
        self.lost.clear();
    }

    /// Whether the listeners must be checked although no connection arrives.
    pub const fn needs_polling(&self) -> bool {
        self.paused_until.is_some() || !self.lost.is_empty()
    }

    /// Accepts the connections that wait at one listener and assigns them to loops.
    pub fn accept(
        &mut self,
        poller: &Poller,
        token: u64,
        now: Duration,
        group: &Group,
        mailboxes: &Arc<Mailboxes>,
    ) {
        let index = usize::try_from(token - LISTENERS).unwrap_or(usize::MAX);
        let Some(Some(listener)) = self.slots.get(index) else { return };
        for _ in 0..ACCEPTS_PER_TURN {
            match listener.acceptor.accept() {
                Ok(None) => return,
                Ok(Some((new, peer, local))) => {
                    let local = local.unwrap_or(listener.address);
                    let id = group.next_connection.fetch_add(1, Ordering::Relaxed);
                    if let Some(node) = group.nodes.get(listener.node) {
                        node.enter();
                    }
                    let accepted = Accepted { link: (), peer, local, node: listener.node, id };
                    match new {
                        NewConnection::Tcp(socket) => mailboxes.assign(accepted.with(Link::Tcp(socket))),
                        NewConnection::Rdma(incoming) => {
                            let bound = group.limits.of_loop(mailboxes.len());
                            let reverse_credits = if group.versions.has_v4() { REVERSE_CREDITS } else { 0 };
                            mailboxes.assign_over_rdma(incoming, accepted, bound, reverse_credits);
                        }
                    }
                }
                Err(error) if is_device_gone(&error) => {
                    let (node, address) = (listener.node, listener.address);
                    tracing::warn!(
                        %address,
                        "the RDMA device is gone: nobody can connect here until it is back; see: rdma link"
                    );
                    close(poller, self.slots.get_mut(index).and_then(Option::take));
                    self.lost.push((node, address));
                    return;
                }
                Err(error) => {
                    // The waiting connection would wake the loop again at once; other connections
                    // may free a descriptor.
                    tracing::warn!(%error, address = %listener.address, "cannot accept; resting");
                    self.paused_until = Some(now + TICK);
                    self.set_interest(poller, Interest::NONE);
                    return;
                }
            }
        }
    }

    /// Accepts again after a rest, and listens again where a device is back.
    pub fn resume(&mut self, poller: &Poller, now: Duration) {
        if !self.lost.is_empty() && self.rebind_at <= now {
            self.rebind_at = now + REBIND_INTERVAL;
            for (node, address) in std::mem::take(&mut self.lost) {
                let bound = bind_rdma(node, address).map_err(io::Error::other);
                match bound.and_then(|bound| self.add(poller, vec![bound])) {
                    Ok(()) => tracing::info!(%address, "the RDMA device is back: listening again"),
                    Err(error) => {
                        tracing::debug!(%address, %error, "cannot listen again yet");
                        self.lost.push((node, address));
                    }
                }
            }
        }
        if self.paused_until.take_if(|until| *until <= now).is_some() {
            self.set_interest(poller, Interest::READ);
        }
    }

    fn set_interest(&self, poller: &Poller, interest: Interest) {
        for (index, listener) in self.slots.iter().enumerate() {
            if let Some(listener) = listener {
                // The listener was added under this token, so the change cannot fail for a reason
                // that we could fix.
                let _ = poller.modify(&listener.acceptor, LISTENERS + index as u64, interest);
            }
        }
    }
}
