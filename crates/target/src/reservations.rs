//! Reservations that survive a restart: what a target asks its embedder to keep, and the thread that
//! does. A loop never waits for a disk.

use crate::target::Shared;
use nvme::reservation::Report;
use std::fmt;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use volumes::Identity;

/// Keeps the reservations of volumes over restarts.
pub trait ReservationStore: fmt::Debug + Send + Sync {
    /// The reservations of a volume as they were saved last; `None` if they never were.
    ///
    /// # Errors
    /// They are not known: the volume is not served, rather than forget them.
    fn load(&self, volume: &Identity) -> io::Result<Option<Report>>;

    /// Makes the reservations of a volume durable before it returns; they replace those that were
    /// saved before. Called on a thread of its own, one call at a time; it may take its time, and
    /// only commands of reservations wait for it.
    ///
    /// # Errors
    /// They are not durable, and those saved before still are: the command of the host fails, and
    /// nothing has changed.
    fn save(&self, volume: &Identity, reservations: &Report) -> io::Result<()>;
}

/// The name of the thread that saves.
pub(crate) const SAVER: &str = "target-save";

/// What the thread is told.
#[derive(Debug)]
enum Message {
    Save { nsid: u32, volume: Identity, reservations: Report },
    Stop,
}

/// The way to the thread that saves.
#[derive(Debug)]
pub(crate) struct Saver {
    sender: Sender<Message>,
    /// Until the thread has it.
    receiver: Mutex<Option<Receiver<Message>>>,
    store: Arc<dyn ReservationStore>,
}

impl Saver {
    pub(crate) fn new(store: Arc<dyn ReservationStore>) -> Self {
        let (sender, receiver) = channel();
        Self { sender, receiver: Mutex::new(Some(receiver)), store }
    }

    /// Asks for the reservations of a volume to be saved. False if nobody will.
    pub(crate) fn save(&self, nsid: u32, volume: Identity, reservations: Report) -> bool {
        self.sender.send(Message::Save { nsid, volume, reservations }).is_ok()
    }

    /// What was saved last.
    pub(crate) fn load(&self, volume: &Identity) -> io::Result<Option<Report>> {
        self.store.load(volume)
    }

    /// Ends the thread once it has saved what it was asked for before.
    pub(crate) fn stop(&self) {
        // Without a thread there is nothing to stop.
        let _ = self.sender.send(Message::Stop);
    }

    /// Starts the thread.
    pub(crate) fn start(&self, shared: &Arc<Shared>) -> io::Result<Option<JoinHandle<()>>> {
        let receiver = self.receiver.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(receiver) = receiver else { return Ok(None) };
        let (store, shared) = (Arc::clone(&self.store), Arc::clone(shared));
        let run = move || {
            while let Ok(Message::Save { nsid, volume, reservations }) = receiver.recv() {
                let saved = store.save(&volume, &reservations);
                if let Err(error) = &saved {
                    tracing::error!(nsid, %error, "reservations cannot be saved; the host's command fails");
                }
                shared.controllers.saved(nsid, saved.is_ok());
            }
        };
        std::thread::Builder::new().name(SAVER.to_owned()).spawn(run).map(Some)
    }
}
