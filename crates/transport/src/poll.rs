//! Waiting for sockets: epoll, level-triggered, and a waker for other threads.
//!
//! docs/decisions/0002-event-loop.md says why epoll.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};

/// Maximum number of events returned by one wait. Sockets that stay ready are returned again and
/// again, so a client with more ready connections than this would hide the events of others.
const EVENTS_MAX: usize = 1024;

/// What to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interest {
    /// Bytes to receive, or a connection to accept.
    pub read: bool,
    /// Room to send, or a connection attempt that ended.
    pub write: bool,
}

impl Interest {
    /// To receive only.
    pub const READ: Self = Self { read: true, write: false };
    /// To receive and to send.
    pub const BOTH: Self = Self { read: true, write: true };
    /// To send only.
    pub const WRITE: Self = Self { read: false, write: true };
    /// Nothing but errors.
    pub const NONE: Self = Self { read: false, write: false };

    fn flags(self) -> epoll::EventFlags {
        let mut flags = epoll::EventFlags::empty();
        flags.set(epoll::EventFlags::IN | epoll::EventFlags::RDHUP, self.read);
        flags.set(epoll::EventFlags::OUT, self.write);
        flags
    }
}

/// An event of a descriptor.
#[derive(Debug, Clone, Copy)]
pub struct Event {
    /// The token with which the descriptor was added.
    pub token: u64,
    /// Something to receive, an end, or an error.
    pub readable: bool,
    /// Room to send, or an error.
    pub writable: bool,
    /// The peer has ended or reset the connection, or there is an error. There may still be
    /// something to receive that came before. Known where [`Interest::READ`] is asked for.
    pub ended: bool,
}

/// The events of one wait; reused.
pub struct Events {
    found: Vec<Event>,
}

impl Events {
    /// Allocates room for one wait.
    #[must_use]
    pub fn new() -> Self {
        Self { found: Vec::with_capacity(EVENTS_MAX) }
    }

    /// Whether the last wait returned no event.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// The events of the last wait.
    pub fn iter(&self) -> impl Iterator<Item = Event> + '_ {
        self.found.iter().copied()
    }

    fn take(&mut self, raw: &[epoll::Event]) {
        self.found.extend(raw.iter().map(|event| {
            let flags = event.flags;
            let failed = flags.intersects(epoll::EventFlags::ERR | epoll::EventFlags::HUP);
            Event {
                token: event.data.u64(),
                readable: failed || flags.contains(epoll::EventFlags::IN),
                writable: failed || flags.contains(epoll::EventFlags::OUT),
                ended: failed || flags.contains(epoll::EventFlags::RDHUP),
            }
        }));
    }
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl Default for Events {
    fn default() -> Self {
        Self::new()
    }
}

/// A set of descriptors to wait for.
#[derive(Debug)]
pub struct Poller {
    epoll: OwnedFd,
}

impl Poller {
    /// Creates an empty set.
    ///
    /// # Errors
    /// If the system has no descriptor left.
    pub fn new() -> io::Result<Self> {
        Ok(Self { epoll: epoll::create(epoll::CreateFlags::CLOEXEC)? })
    }

    /// Adds `fd` under a token.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn add(&self, fd: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, fd, epoll::EventData::new_u64(token), interest.flags())?)
    }

    /// Changes the interest in a descriptor.
    ///
    /// # Errors
    /// If the descriptor is not in the set.
    pub fn modify(&self, fd: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::modify(&self.epoll, fd, epoll::EventData::new_u64(token), interest.flags())?)
    }

    /// Removes a descriptor. Closing the descriptor does the same.
    ///
    /// # Errors
    /// If the descriptor is not in the set.
    pub fn remove(&self, fd: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.epoll, fd)?)
    }

    /// Waits for events or until the timeout.
    ///
    /// # Errors
    /// If the system refuses; an interruption by a signal returns no events.
    pub fn wait(&self, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
        events.found.clear();
        let timeout = timeout.map(|time| Timespec {
            tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(time.subsec_nanos()),
        });
        // On the stack, and not with the events: the system's event structures may hold addresses,
        // and so belong to one thread.
        let mut room = [const { MaybeUninit::uninit() }; EVENTS_MAX];
        match epoll::wait(&self.epoll, &mut room[..], timeout.as_ref()) {
            Ok((raw, _)) => events.take(raw),
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        Ok(())
    }
}

/// Wakes a loop from another thread.
#[derive(Debug)]
pub struct Waker {
    event: OwnedFd,
}

impl Waker {
    /// Creates a waker and adds it to a poller under a token.
    ///
    /// # Errors
    /// If the system has no descriptor left.
    pub fn new(poller: &Poller, token: u64) -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        poller.add(&event, token, Interest::READ)?;
        Ok(Self { event })
    }

    /// Ends the wait of the loop.
    pub fn wake(&self) {
        // A full counter means that a wake-up is pending already.
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }

    /// Clears the wake-up; called by the loop.
    pub fn clear(&self) {
        let mut count = [0; 8];
        // If there is no wake-up, nothing is cleared.
        let _ = rustix::io::read(&self.event, &mut count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_waker_ends_a_wait_once() {
        let poller = Poller::new().unwrap();
        let waker = Waker::new(&poller, 7).unwrap();
        let mut events = Events::new();
        waker.wake();
        poller.wait(&mut events, Some(Duration::from_secs(120))).unwrap();
        assert_eq!(events.iter().map(|event| event.token).collect::<Vec<_>>(), [7]);
        waker.clear();
        poller.wait(&mut events, Some(Duration::ZERO)).unwrap();
        assert_eq!(events.iter().count(), 0);
    }
}
