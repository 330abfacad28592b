//! The registration while the server runs: from the start, or from the time when another process of
//! the group ends.

use super::{PendingRegistration, Registration};
use crate::error::Error;
use crate::group::Group;
use crate::runtime::Datagrams;
use crate::runtime::{Mailboxes, Message};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often a waiting process tries to take the group lock.
const LOCK_POLL: Duration = Duration::from_millis(500);
/// The first loop adds a listener within this time, or the server is ending.
const LISTEN_WITHIN: Duration = Duration::from_secs(5);

/// See the module's documentation. [`leave`](Self::leave) ends the registration; dropping this
/// releases the group lock to the next process.
#[derive(Debug)]
pub(crate) struct Advertisement {
    published: Arc<Mutex<Option<Published>>>,
    waiter: Option<Waiter>,
}

#[derive(Debug)]
struct Published {
    registration: Registration,
    datagrams: Option<Datagrams>,
}

/// The thread that waits for the group lock.
#[derive(Debug)]
struct Waiter {
    stop: mpsc::Sender<()>,
    thread: JoinHandle<()>,
}

impl Advertisement {
    /// Registers now; the loops already run.
    pub fn now(
        registration: Registration,
        group: &Arc<Group>,
        mailboxes: &Arc<Mailboxes>,
    ) -> Result<Self, Error> {
        let published = Published::new(registration, group, mailboxes)?;
        Ok(Self { published: Arc::new(Mutex::new(Some(published))), waiter: None })
    }

    /// Registers once this process has the group lock.
    pub fn later(
        pending: PendingRegistration,
        group: Arc<Group>,
        mailboxes: Arc<Mailboxes>,
    ) -> Result<Self, Error> {
        let published = Arc::new(Mutex::new(None));
        let (stop, stopped) = mpsc::channel();
        let place = Arc::clone(&published);
        let mut logged = false;
        let wait = move || {
            while let Err(mpsc::RecvTimeoutError::Timeout) = stopped.recv_timeout(LOCK_POLL) {
                let result = pending.try_register().and_then(|registration| {
                    registration
                        .map(|registration| Published::new(registration, &group, &mailboxes))
                        .transpose()
                });
                match result {
                    Ok(None) => {}
                    Ok(Some(published)) => {
                        *lock(&place) = Some(published);
                        tracing::info!("found by program number from now on");
                        return;
                    }
                    Err(error) if !logged => {
                        logged = true;
                        tracing::warn!("it is this process's turn to be found by program number: {error}");
                    }
                    Err(_) => {}
                }
            }
        };
        let thread = std::thread::Builder::new().name("tl-rpcbind".into()).spawn(wait);
        let thread = thread.map_err(|error| Error::System { what: "a thread", error })?;
        Ok(Self { published, waiter: Some(Waiter { stop, thread }) })
    }

    /// Whether this process is registered.
    pub fn is_registered(&self) -> bool {
        lock(&self.published).is_some()
    }

    /// Ends the registration, so that no client is directed here any more.
    pub fn leave(&mut self) {
        if let Some(Waiter { stop, thread }) = self.waiter.take() {
            drop(stop);
            if thread.join().is_err() {
                tracing::error!("the thread that waits for rpcbind ended by a panic");
            }
        }
        if let Some(published) = &mut *lock(&self.published) {
            published.registration.leave();
            published.datagrams = None;
        }
    }
}

fn lock(published: &Mutex<Option<Published>>) -> MutexGuard<'_, Option<Published>> {
    // Values are complete when they are stored.
    published.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Published {
    fn new(
        mut registration: Registration,
        group: &Arc<Group>,
        mailboxes: &Arc<Mailboxes>,
    ) -> Result<Self, Error> {
        if let Some(cause) = registration.nlm_refused.take() {
            group.yield_nlm(&cause);
        }
        // If an earlier attempt failed after setting the entries, they are the same.
        let _ = group.portmap.set(std::mem::take(&mut registration.entries));
        let sockets = std::mem::take(&mut registration.sockets);
        let datagrams = Datagrams::start(sockets, Arc::clone(group), Arc::clone(mailboxes))?;
        let listeners = std::mem::take(&mut registration.listeners);
        if !listeners.is_empty() {
            let (sender, receiver) = mpsc::channel();
            mailboxes.send(0, Message::Listen(listeners, sender));
            if let Ok(Err(error)) = receiver.recv_timeout(LISTEN_WITHIN) {
                return Err(Error::System { what: "waiting for connections", error });
            }
        }
        Ok(Self { registration, datagrams: Some(datagrams) })
    }
}
