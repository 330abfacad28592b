//! The silly names that this mount has made and not yet removed, by directory.
//!
//! rmdir(2) right after the last close of a removed file would find the file's silly name still in
//! the directory: the kernel reports the last close to the mount without waiting. So rmdir waits
//! for names that are being removed, and for a moment for those of files that look open, because
//! the report of their close may be on its way.

use fs::FileHandle;
use std::future::poll_fn;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

/// How long rmdir waits for the report of a close.
const REPORT_TIME_MAX: Duration = Duration::from_millis(100);

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct SillyNames(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    names: Vec<Name>,
    waiting: Vec<Waker>,
}

#[derive(Debug)]
struct Name {
    directory: FileHandle,
    name: Vec<u8>,
    is_closed: bool,
}

impl SillyNames {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An open file has got this name.
    pub(crate) fn add(&self, directory: FileHandle, name: &[u8]) {
        self.lock().names.push(Name { directory, name: name.to_owned(), is_closed: false });
    }

    /// The file has been closed: the name is being removed.
    pub(crate) fn closed(&self, directory: FileHandle, name: &[u8]) {
        let mut state = self.lock();
        for of in state.names.iter_mut().filter(|of| of.directory == directory && of.name == name) {
            of.is_closed = true;
        }
    }

    /// The name has been removed, or stays for good.
    pub(crate) fn forget(&self, directory: FileHandle, name: &[u8]) {
        let waiting = {
            let mut state = self.lock();
            state.names.retain(|of| of.directory != directory || of.name != name);
            std::mem::take(&mut state.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().names.is_empty()
    }

    /// Time has passed.
    pub(crate) fn tick(&self) {
        let waiting = std::mem::take(&mut self.lock().waiting);
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Waits until the directory has no silly names, or has those of open files alone.
    pub(crate) async fn wait_for_removals(&self, directory: FileHandle) {
        let start = Instant::now();
        poll_fn(|context| {
            let mut state = self.lock();
            let mut names = state.names.iter().filter(|of| of.directory == directory);
            let waits = |of: &Name| of.is_closed || start.elapsed() < REPORT_TIME_MAX;
            if !names.any(waits) {
                return Poll::Ready(());
            }
            state.waiting.push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::executor::block_on;

    fn directory(byte: u8) -> FileHandle {
        FileHandle::new(&[byte; 8]).unwrap()
    }

    #[test]
    fn removals_in_progress_are_waited_for_and_those_of_other_directories_are_not() {
        let names = SillyNames::default();
        names.add(directory(1), b"a");
        names.closed(directory(1), b"a");
        block_on(names.wait_for_removals(directory(2)));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| block_on(names.wait_for_removals(directory(1))));
            while names.lock().waiting.is_empty() {
                std::thread::yield_now();
            }
            names.forget(directory(1), b"a");
            waiting.join().unwrap();
        });
        assert!(names.is_empty());
    }

    #[test]
    fn a_file_that_stays_open_is_waited_for_only_a_moment() {
        let names = SillyNames::default();
        names.add(directory(1), b"a");
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| block_on(names.wait_for_removals(directory(1))));
            while !waiting.is_finished() {
                names.tick();
                std::thread::yield_now();
            }
            waiting.join().unwrap();
        });
        assert!(!names.is_empty());
    }
}
