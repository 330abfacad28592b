//! Files that are released by a thread of their own: to free a large file takes time, and some
//! stores wait, but whoever finds out that nobody has a file open any more may be a loop.

use super::held::HeldFile;
use crate::clock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Files that wait to be released. What does not fit stays where it was found, for the next look.
const WAITING_MAX: usize = 1024;
/// How often the end looks whether the thread has ended.
const JOIN_POLL: Duration = Duration::from_millis(5);

/// What the thread shares with those who give it files.
#[derive(Default)]
struct Shared {
    waiting: AtomicUsize,
    is_over: AtomicBool,
}

/// See the module's documentation. The thread is started with the first file.
#[derive(Default)]
pub(super) struct Releases {
    shared: Arc<Shared>,
    thread: Mutex<Option<(Sender<HeldFile>, JoinHandle<()>)>>,
}

impl Releases {
    fn thread(&self) -> MutexGuard<'_, Option<(Sender<HeldFile>, JoinHandle<()>)>> {
        self.thread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many files may be given to it now.
    pub fn room(&self) -> usize {
        let mut thread = self.thread();
        if self.shared.is_over.load(Ordering::Relaxed) {
            return 0;
        }
        if thread.is_none() {
            *thread = start(&self.shared);
        }
        let waiting = self.shared.waiting.load(Ordering::Relaxed);
        if thread.is_some() { WAITING_MAX.saturating_sub(waiting) } else { 0 }
    }

    /// Gives it files, as far as there is [room](Self::room).
    pub fn release(&self, files: Vec<HeldFile>) {
        let thread = self.thread();
        for file in files {
            self.shared.waiting.fetch_add(1, Ordering::Relaxed);
            // After the end of the server nothing is left to be released.
            let _ = thread.as_ref().map(|(sender, _)| sender.send(file));
        }
    }

    /// Ends the thread. If it waits for a store beyond `deadline`, it is left behind.
    pub fn end(&self, deadline: Duration) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        let Some((sender, thread)) = self.thread().take() else { return };
        drop(sender);
        while !thread.is_finished() && clock::now() < deadline {
            std::thread::sleep(JOIN_POLL);
        }
        if thread.is_finished() && thread.join().is_err() {
            tracing::error!("the thread that releases files ended by a panic");
        }
    }
}

impl Drop for Releases {
    fn drop(&mut self) {
        self.end(clock::now());
    }
}

fn start(shared: &Arc<Shared>) -> Option<(Sender<HeldFile>, JoinHandle<()>)> {
    let (sender, files) = channel();
    let shared = Arc::clone(shared);
    let thread = std::thread::Builder::new().name("tl-release".to_owned());
    match thread.spawn(move || run(&shared, &files)) {
        Ok(thread) => Some((sender, thread)),
        Err(error) => {
            tracing::warn!(%error, "files that nobody has open any more wait for a thread");
            None
        }
    }
}

fn run(shared: &Shared, files: &Receiver<HeldFile>) {
    while let Ok(file) = files.recv() {
        if !shared.is_over.load(Ordering::Relaxed) {
            file.release();
        }
        shared.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}
