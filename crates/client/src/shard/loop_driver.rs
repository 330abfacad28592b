//! Who drives a loop: its own thread, or for a time one of the program that uses the mount.
//!
//! A thread that waits for requests of its own and hands each of them to a loop costs two changes
//! of threads for each call, one to the loop and one with its answer. Such a thread can drive the
//! loop itself while it waits: as an [`ExternalDriver`] it comes after the requests that it has
//! taken, and leaves when the next can be had. The loop's own thread stands in for it while it is
//! away for long.
//!
//! Invariants: one thread drives at a time, the one that has the lock; nobody who attends is waited
//! for longer than [`PRESENCE_LOOK`] and [`ABSENCE_MAX`]; the loop's own thread ends the loop,
//! whoever drove it last.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;
use std::time::Duration;

use transport::poll::Interest;

use super::{Driver, EXTERNAL_DRIVER_TOKEN, Inbox, Message};

/// An attendant that is away for as long is busy with its requests, or does something else. Shorter
/// than a wait that anybody would notice, and long against the microseconds of a request.
const ABSENCE_MAX: Duration = Duration::from_millis(10);
/// While it attends and never leaves, which is an idle mount, its presence is looked at as often as
/// the loop ticks.
const PRESENCE_LOOK: Duration = Duration::from_millis(50);

/// See the module's documentation.
pub(super) struct LoopDriver {
    /// Gone once the loop has ended.
    driver: Mutex<Option<Driver>>,
    inbox: Arc<Inbox>,
    /// An attendant has the loop, or wants to have it.
    wanted: AtomicBool,
    /// Odd while an attendant is there: its comings and goings.
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

    /// Waits until no attendant is there, nor will soon be.
    fn await_absence(&self) {
        let mut seen = self.steps.load(Ordering::SeqCst);
        let mut patience = ABSENCE_MAX;
        while self.wanted.load(Ordering::SeqCst) {
            std::thread::park_timeout(patience);
            let now = self.steps.load(Ordering::SeqCst);
            let is_there = now % 2 == 1;
            if now == seen && !is_there {
                self.wanted.store(false, Ordering::SeqCst);
                // One that comes steps first and then looks whether it is still wanted. So either
                // its step is seen here, or it sees that it has to wake this thread.
                if self.steps.load(Ordering::SeqCst) == seen {
                    return;
                }
                self.wanted.store(true, Ordering::SeqCst);
            }
            patience = if now == seen { PRESENCE_LOOK } else { ABSENCE_MAX };
            seen = now;
        }
    }
}

/// Closes the door when the loop ends, by a panic too.
struct Ending<'a>(&'a LoopDriver);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        let mut messages = self.0.inbox.lock();
        messages.closed = true;
        let left = std::mem::take(&mut messages.waiting);
        drop(messages);
        left.into_iter().for_each(Message::refuse);
        // What it still held tells its owners itself.
        let driver = self.0.lock().take();
        drop(driver);
    }
}

/// The loop's own thread, from its beginning to its end.
pub(super) fn keep(loop_driver: &LoopDriver) {
    let _ending = Ending(loop_driver);
    while drive(loop_driver) {
        loop_driver.await_absence();
    }
}

/// Drives until an attendant comes: whether the loop goes on.
fn drive(loop_driver: &LoopDriver) -> bool {
    // A thread that panicked while it attended has left the loop in no state to go on.
    let Ok(mut place) = loop_driver.driver.lock() else { return false };
    let Some(driver) = place.as_mut() else { return false };
    driver.watch(false);
    let goes_on = driver.run(|| loop_driver.wanted.load(Ordering::SeqCst));
    if !goes_on {
        driver.close();
    }
    goes_on
}

/// A thread of the program that drives a loop between requests of its own. Until it comes for the
/// first time, and where it stays away, the loop's own thread drives it; where it is dropped, for
/// good.
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
            driver.externally_driven = Some(Watched { descriptor: waits_for, is_watched: true });
            Ok(())
        });
        match added {
            Some(outcome) => outcome.map(|()| external_driver),
            // The loop has ended already.
            None => Err(std::io::ErrorKind::NotConnected.into()),
        }
    }

    /// Sends what was submitted and drives the loop until the descriptor is readable. False once
    /// the loop has ended, because the mount was closed, which whoever waits for its calls is told:
    /// drop the attendant then. Take the requests that wait one after the other before coming back,
    /// so that their calls leave together.
    #[must_use]
    pub fn drive(&mut self) -> bool {
        // The loop's own thread sees for itself that the loop is to end.
        let externally_driven = self.with_driver(|driver| {
            driver.watch(true);
            driver.drive()
        });
        externally_driven.unwrap_or(false)
    }

    /// Does something with the loop once its own thread has left it; nothing where it has ended.
    fn with_driver<T>(&self, work: impl FnOnce(&mut Driver) -> T) -> Option<T> {
        let _here = Here::new(&self.loop_driver);
        let mut place = self.loop_driver.driver.lock().ok()?;
        place.as_mut().map(work)
    }
}

impl Drop for ExternalDriver {
    fn drop(&mut self) {
        self.with_driver(Driver::forget_external_driver);
        // The loop's own thread need not wait to see that nobody comes.
        self.loop_driver.wanted.store(false, Ordering::SeqCst);
        if let Some(thread) = &self.stand_in {
            thread.unpark();
        }
    }
}

/// An attendant is there, or waits for its turn, until this is dropped.
struct Here<'a>(&'a LoopDriver);

impl<'a> Here<'a> {
    fn new(loop_driver: &'a LoopDriver) -> Self {
        loop_driver.steps.fetch_add(1, Ordering::SeqCst);
        if !loop_driver.wanted.swap(true, Ordering::SeqCst) {
            // The loop's own thread drives, and may be asleep.
            loop_driver.inbox.waker.wake();
        }
        Self(loop_driver)
    }
}

impl Drop for Here<'_> {
    fn drop(&mut self) {
        self.0.steps.fetch_add(1, Ordering::SeqCst);
    }
}

/// What an attendant waits for.
pub(super) struct Watched {
    descriptor: OwnedFd,
    is_watched: bool,
}

impl Driver {
    /// Looks at the attendant's descriptor or not: nobody but the attendant can take what is there.
    fn watch(&mut self, wished: bool) {
        let Some(externally_driven) = &mut self.externally_driven else { return };
        if externally_driven.is_watched == wished {
            return;
        }
        let interest = if wished { Interest::READ } else { Interest::NONE };
        match self.poller.modify(&externally_driven.descriptor, EXTERNAL_DRIVER_TOKEN, interest) {
            Ok(()) => externally_driven.is_watched = wished,
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
