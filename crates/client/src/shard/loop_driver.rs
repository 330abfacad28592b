//! Decides which thread drives a loop: its own thread or, for a time, a thread of the program that
//! uses the mount.
//!
//! If a thread waits for requests of its own and hands each of them to a loop, each call costs two
//! context switches, one to the loop and one back with the reply. Such a thread can instead drive
//! the loop itself while it waits: as an [`ExternalDriver`] it starts driving after it has handled
//! the requests it took, and stops when the next request arrives. The loop's own thread takes over
//! if the external driver is absent for long.
//!
//! Invariants: one thread drives at a time, the one that holds the lock; the loop's own thread
//! checks for the external driver at least every [`PRESENCE_CHECK_INTERVAL`] and takes over within
//! [`ABSENCE_MAX`]; the loop's own thread ends the loop, no matter which thread drove it last.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;
use std::time::Duration;

use transport::poll::Interest;

use super::{Driver, EXTERNAL_DRIVER_TOKEN, Inbox, Message};

/// An external driver that is absent for this long is busy with its requests or with other work.
/// Too short for a user to notice, and long compared with the microseconds of a request.
const ABSENCE_MAX: Duration = Duration::from_millis(10);
/// While the external driver stays in the loop, as on an idle mount, its presence is checked as
/// often as the loop ticks.
const PRESENCE_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// See the module's documentation.
pub(super) struct LoopDriver {
    /// `None` once the loop has ended.
    driver: Mutex<Option<Driver>>,
    inbox: Arc<Inbox>,
    /// An external driver drives the loop or wants to.
    wanted: AtomicBool,
    /// Counts the entries and exits of external drivers; odd while one is present.
    steps: AtomicU64,
}

impl LoopDriver {
    pub(super) fn new(driver: Driver, inbox: Arc<Inbox>) -> Self {
        let driver = Mutex::new(Some(driver));
        Self { driver, inbox, wanted: AtomicBool::new(false), steps: AtomicU64::new(0) }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Driver>> {
        self.driver.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no external driver is present or about to be.
    fn await_absence(&self) {
        let mut seen = self.steps.load(Ordering::SeqCst);
        let mut timeout = ABSENCE_MAX;
        while self.wanted.load(Ordering::SeqCst) {
            std::thread::park_timeout(timeout);
            let now = self.steps.load(Ordering::SeqCst);
            let is_there = now % 2 == 1;
            if now == seen && !is_there {
                self.wanted.store(false, Ordering::SeqCst);
                // An external driver first increments `steps` and then reads `wanted`. So either
                // its step is seen here, or it sees that it has to wake this thread.
                if self.steps.load(Ordering::SeqCst) == seen {
                    return;
                }
                self.wanted.store(true, Ordering::SeqCst);
            }
            timeout = if now == seen { PRESENCE_CHECK_INTERVAL } else { ABSENCE_MAX };
            seen = now;
        }
    }
}

/// Closes the inbox when the loop ends, even by a panic.
struct CloseOnDrop<'a>(&'a LoopDriver);

impl Drop for CloseOnDrop<'_> {
    fn drop(&mut self) {
        let mut messages = self.0.inbox.lock();
        messages.closed = true;
        let left = std::mem::take(&mut messages.waiting);
        drop(messages);
        left.into_iter().for_each(Message::refuse);
        // Dropping the driver notifies the owners of what it still held.
        let driver = self.0.lock().take();
        drop(driver);
    }
}

/// Runs the loop's own thread until the loop ends.
pub(super) fn keep(loop_driver: &LoopDriver) {
    let _close = CloseOnDrop(loop_driver);
    while drive(loop_driver) {
        loop_driver.await_absence();
    }
}

/// Drives the loop until an external driver arrives. Returns whether the loop goes on.
fn drive(loop_driver: &LoopDriver) -> bool {
    // An external driver that panicked has left the loop in an inconsistent state.
    let Ok(mut driver) = loop_driver.driver.lock() else { return false };
    let Some(driver) = driver.as_mut() else { return false };
    driver.watch(false);
    let goes_on = driver.run(|| loop_driver.wanted.load(Ordering::SeqCst));
    if !goes_on {
        driver.close();
    }
    goes_on
}

/// A thread of the program that drives a loop between requests of its own. The loop's own thread
/// drives the loop before the first [`ExternalDriver::drive`], during long absences, and for good
/// once this is dropped.
pub struct ExternalDriver {
    loop_driver: Arc<LoopDriver>,
    stand_in: Option<Thread>,
}

impl std::fmt::Debug for ExternalDriver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExternalDriver").finish_non_exhaustive()
    }
}

impl ExternalDriver {
    pub(super) fn new(
        loop_driver: Arc<LoopDriver>,
        waits_for: OwnedFd,
        stand_in: Option<Thread>,
    ) -> std::io::Result<Self> {
        let external_driver = Self { loop_driver, stand_in };
        let added = external_driver.with_driver(|driver| -> std::io::Result<()> {
            driver.poller.add(&waits_for, EXTERNAL_DRIVER_TOKEN, Interest::READ)?;
            driver.externally_driven = Some(DriverDescriptor { descriptor: waits_for, is_watched: true });
            Ok(())
        });
        match added {
            Some(outcome) => outcome.map(|()| external_driver),
            // The loop has already ended.
            None => Err(std::io::ErrorKind::NotConnected.into()),
        }
    }

    /// Sends what was submitted and drives the loop until the descriptor is readable. Returns false
    /// once the loop has ended because the mount was closed, which also fails all waiting calls;
    /// drop the driver then. Handle all waiting requests before calling this again, so that their
    /// calls are sent together.
    #[must_use]
    pub fn drive(&mut self) -> bool {
        // If the loop is to end, its own thread sees that for itself.
        let externally_driven = self.with_driver(|driver| {
            driver.watch(true);
            driver.drive()
        });
        externally_driven.unwrap_or(false)
    }

    /// Runs `work` on the loop once the loop's own thread has left it; `None` if the loop has
    /// ended.
    fn with_driver<T>(&self, work: impl FnOnce(&mut Driver) -> T) -> Option<T> {
        let _presence = PresenceGuard::new(&self.loop_driver);
        let mut driver = self.loop_driver.driver.lock().ok()?;
        driver.as_mut().map(work)
    }
}

impl Drop for ExternalDriver {
    fn drop(&mut self) {
        self.with_driver(Driver::forget_external_driver);
        // The loop's own thread need not wait to see that the external driver is gone.
        self.loop_driver.wanted.store(false, Ordering::SeqCst);
        if let Some(thread) = &self.stand_in {
            thread.unpark();
        }
    }
}

/// Marks an external driver as present, or as waiting for the lock, until this is dropped.
struct PresenceGuard<'a>(&'a LoopDriver);

impl<'a> PresenceGuard<'a> {
    fn new(loop_driver: &'a LoopDriver) -> Self {
        loop_driver.steps.fetch_add(1, Ordering::SeqCst);
        if !loop_driver.wanted.swap(true, Ordering::SeqCst) {
            // The loop's own thread is driving, and may be asleep.
            loop_driver.inbox.waker.wake();
        }
        Self(loop_driver)
    }
}

impl Drop for PresenceGuard<'_> {
    fn drop(&mut self) {
        self.0.steps.fetch_add(1, Ordering::SeqCst);
    }
}

/// The descriptor that an external driver waits for.
pub(super) struct DriverDescriptor {
    descriptor: OwnedFd,
    is_watched: bool,
}

impl Driver {
    /// Starts or stops polling the external driver's descriptor: only the external driver can read
    /// it.
    fn watch(&mut self, watched: bool) {
        let Some(externally_driven) = &mut self.externally_driven else { return };
        if externally_driven.is_watched == watched {
            return;
        }
        let interest = if watched { Interest::READ } else { Interest::NONE };
        match self.poller.modify(&externally_driven.descriptor, EXTERNAL_DRIVER_TOKEN, interest) {
            Ok(()) => externally_driven.is_watched = watched,
            Err(error) => tracing::error!(%error, "cannot wait for an external_driver's descriptor"),
        }
    }

    fn forget_external_driver(&mut self) {
        if let Some(externally_driven) = self.externally_driven.take()
            && let Err(error) = self.poller.remove(&externally_driven.descriptor)
        {
            tracing::error!(%error, "cannot forget an external_driver's descriptor");
        }
    }
}
