//! A running target.

use crate::config::{Config, Export, Hosts, Limits, QUEUE_CAPSULE_BYTES};
use crate::controllers::Controllers;
use crate::error::Error;
use crate::event_loop::{EventLoop, Parts, WAKER};
use crate::mailbox::{Mailbox, Message};
use memory::Buffers;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use transport::poll::{Poller, Waker};
use volumes::Volume;

/// Commands of one loop that the volumes have at a time.
const QUEUE_DEPTH: usize = 1024;

/// What the loops share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) controllers: Controllers,
    volumes: Vec<Volume>,
    pub(crate) limits: Limits,
    /// Memory that is set aside for data in capsules of the I/O queues.
    pub(crate) capsule_bytes: AtomicUsize,
    /// Connections of each loop.
    pub(crate) loads: Vec<AtomicUsize>,
    failure: Mutex<Option<String>>,
}

impl Shared {
    /// The volume with this identifier.
    pub(crate) fn volume(&self, id: u64) -> Option<&Volume> {
        self.volumes.get(usize::try_from(id).ok()?)
    }

    /// Sets memory aside for the capsules of one I/O queue.
    pub(crate) fn reserve_capsules(&self) -> bool {
        let most = self.limits.memory_bytes / 2;
        let more = |used: usize| Some(used + QUEUE_CAPSULE_BYTES).filter(|used| *used <= most);
        self.capsule_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }
}

/// What a target has now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Connections.
    pub connections: usize,
    /// Controllers, also those for discovery.
    pub controllers: usize,
    /// I/O queues.
    pub io_queues: usize,
    /// Commands that the volumes have taken and not ended.
    pub commands: usize,
}

/// A target that serves. Dropping it stops it.
#[derive(Debug)]
pub struct Target {
    shared: Arc<Shared>,
    mailboxes: Vec<Arc<Mailbox>>,
    addresses: Vec<SocketAddr>,
    threads: Vec<JoinHandle<()>>,
}

impl Target {
    /// Listens, and starts the loops.
    ///
    /// # Errors
    /// [`Error`]
    pub fn start(config: &Config, exports: &[Export]) -> Result<Self, Error> {
        transport::descriptors::raise_limit();
        let (listeners, addresses) = listen(&config.listen)?;
        let count = config.loops.max(1);
        let (mut pollers, mut mailboxes) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let poller = Poller::new().map_err(Error::Loop)?;
            mailboxes.push(Arc::new(Mailbox::new(Waker::new(&poller, WAKER).map_err(Error::Loop)?)));
            pollers.push(poller);
        }
        let controllers = Controllers::new(config, exports, &addresses, mailboxes.clone())?;
        let shared = Arc::new(Shared {
            controllers,
            volumes: exports.iter().map(|export| export.volume.clone()).collect(),
            limits: config.limits.clone(),
            capsule_bytes: AtomicUsize::new(0),
            loads: (0..count).map(|_| AtomicUsize::new(0)).collect(),
            failure: Mutex::new(None),
        });
        // What has started is stopped if the rest does not.
        let mut target = Self { shared, mailboxes, addresses, threads: Vec::new() };
        let mut listeners = Some(listeners);
        for (index, poller) in pollers.into_iter().enumerate() {
            let listeners = listeners.take().unwrap_or_default();
            target.start_loop(index, poller, listeners).map_err(Error::Loop)?;
        }
        Ok(target)
    }

    fn start_loop(&mut self, index: usize, poller: Poller, listeners: Vec<OwnedFd>) -> std::io::Result<()> {
        let limits = &self.shared.limits;
        let queue = volumes::Queue::new(QUEUE_DEPTH, limits.engine, Arc::new(Buffers::default()))?;
        let Some(mailbox) = self.mailboxes.get(index).cloned() else { return Ok(()) };
        let event_loop = EventLoop::new(Parts {
            index,
            poller,
            mailboxes: self.mailboxes.clone(),
            mailbox,
            shared: Arc::clone(&self.shared),
            queue,
            budget_bytes: limits.memory_bytes / 2 / self.mailboxes.len().max(1),
            listeners,
        })?;
        let shared = Arc::clone(&self.shared);
        let run = move || {
            if let Err(error) = event_loop.run() {
                tracing::error!(%error, index, "a loop of the target failed");
                let mut failure = shared.failure.lock().unwrap_or_else(PoisonError::into_inner);
                *failure = Some(error.to_string());
            }
        };
        self.threads.push(std::thread::Builder::new().name(format!("target-{index}")).spawn(run)?);
        Ok(())
    }

    /// Where hosts connect.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Why a loop has failed, if one has: the target does not serve its connections any more.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        self.shared.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes which hosts there are. Hosts learn what has changed for them; controllers of hosts
    /// that may not connect any more end. Commands that were taken before go on.
    pub fn set_hosts(&self, hosts: &Hosts) {
        self.shared.controllers.set_hosts(hosts);
    }

    /// What it has now.
    #[must_use]
    pub fn usage(&self) -> Usage {
        Usage {
            connections: self.shared.loads.iter().map(|load| load.load(Ordering::Relaxed)).sum(),
            controllers: self.shared.controllers.count(),
            io_queues: self.shared.capsule_bytes.load(Ordering::Relaxed) / QUEUE_CAPSULE_BYTES,
            commands: self.shared.volumes.iter().map(Volume::commands).sum(),
        }
    }

    /// Ends all connections; waits, a few seconds at most, for commands that have begun.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        for mailbox in &self.mailboxes {
            mailbox.post(Message::Stop, true);
        }
        for thread in self.threads.drain(..) {
            // A loop that has panicked has ended.
            let _ = thread.join();
        }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.end();
    }
}

fn listen(asked: &[SocketAddr]) -> Result<(Vec<OwnedFd>, Vec<SocketAddr>), Error> {
    if asked.is_empty() {
        return Err(Error::NoAddress);
    }
    let (mut listeners, mut addresses) = (Vec::new(), Vec::new());
    for &address in asked {
        if address.ip().is_unspecified() {
            return Err(Error::Unspecified(address));
        }
        let listening = transport::socket::listen(address).and_then(|listener| {
            let bound = transport::socket::local_address(listener.as_fd())?;
            Ok((listener, bound))
        });
        let (listener, bound) = listening.map_err(|source| Error::Listen { address, source })?;
        listeners.push(listener);
        addresses.push(bound);
    }
    Ok((listeners, addresses))
}
