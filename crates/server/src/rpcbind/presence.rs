//! The registration while the server runs: from the start, or from the time when another process of
//! the group ends.

use super::{Found, Waiting};
use crate::error::Error;
use crate::group::Group;
use crate::runtime::Datagrams;
use crate::runtime::{Message, Peers};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often a waiting process checks whether it has the turn.
const LOOK: Duration = Duration::from_millis(500);
/// The first loop adds a listener within this time, or the server is ending.
const LISTEN_WITHIN: Duration = Duration::from_secs(5);

/// See the module's documentation. [`leave`](Self::leave) ends the registration; dropping this
/// passes the turn to the next process.
#[derive(Debug)]
pub(crate) struct Presence {
    published: Arc<Mutex<Option<Published>>>,
    line: Option<Line>,
}

#[derive(Debug)]
struct Published {
    found: Found,
    datagrams: Option<Datagrams>,
}

/// The thread that waits for the turn.
#[derive(Debug)]
struct Line {
    stop: mpsc::Sender<()>,
    thread: JoinHandle<()>,
}

impl Presence {
    /// Registers now; the loops already run.
    pub fn now(found: Found, group: &Arc<Group>, peers: &Arc<Peers>) -> Result<Self, Error> {
        let published = Published::new(found, group, peers)?;
        Ok(Self { published: Arc::new(Mutex::new(Some(published))), line: None })
    }

    /// Registers when this process gets the turn.
    pub fn later(waiting: Waiting, group: Arc<Group>, peers: Arc<Peers>) -> Result<Self, Error> {
        let published = Arc::new(Mutex::new(None));
        let (stop, stopped) = mpsc::channel();
        let place = Arc::clone(&published);
        let mut said = false;
        let wait = move || {
            while let Err(mpsc::RecvTimeoutError::Timeout) = stopped.recv_timeout(LOOK) {
                let looked = waiting
                    .look()
                    .and_then(|found| found.map(|found| Published::new(found, &group, &peers)).transpose());
                match looked {
                    Ok(None) => {}
                    Ok(Some(published)) => {
                        *lock(&place) = Some(published);
                        tracing::info!("found by program number from now on");
                        return;
                    }
                    Err(error) if !said => {
                        said = true;
                        tracing::warn!("it is this process's turn to be found by program number: {error}");
                    }
                    Err(_) => {}
                }
            }
        };
        let thread = std::thread::Builder::new().name("tl-rpcbind".into()).spawn(wait);
        let thread = thread.map_err(|error| Error::System { what: "a thread", error })?;
        Ok(Self { published, line: Some(Line { stop, thread }) })
    }

    /// Whether this process is registered.
    pub fn is_found(&self) -> bool {
        lock(&self.published).is_some()
    }

    /// Ends the registration, so that no client is directed here any more.
    pub fn leave(&mut self) {
        if let Some(Line { stop, thread }) = self.line.take() {
            drop(stop);
            if thread.join().is_err() {
                tracing::error!("the thread that waits for rpcbind ended by a panic");
            }
        }
        if let Some(published) = &mut *lock(&self.published) {
            published.found.leave();
            published.datagrams = None;
        }
    }
}

fn lock(published: &Mutex<Option<Published>>) -> MutexGuard<'_, Option<Published>> {
    // Values are complete when they are stored.
    published.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Published {
    fn new(mut found: Found, group: &Arc<Group>, peers: &Arc<Peers>) -> Result<Self, Error> {
        // If an earlier attempt failed after setting the entries, they are the same.
        let _ = group.portmap.set(std::mem::take(&mut found.entries));
        let sockets = std::mem::take(&mut found.sockets);
        let datagrams = Datagrams::start(sockets, Arc::clone(group), Arc::clone(peers))?;
        let listeners = std::mem::take(&mut found.listeners);
        if !listeners.is_empty() {
            let (sender, receiver) = mpsc::channel();
            peers.send(0, Message::Listen(listeners, sender));
            if let Ok(Err(error)) = receiver.recv_timeout(LISTEN_WITHIN) {
                return Err(Error::System { what: "waiting for connections", error });
            }
        }
        Ok(Self { found, datagrams: Some(datagrams) })
    }
}
