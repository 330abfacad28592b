//! What a copy has done so far, for whoever shows it; and the word to stop.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::error::Error;

/// Failures that are kept with their reasons; all are counted.
const FAILURES_KEPT: usize = 100;

/// Something that was not copied.
#[derive(Debug)]
pub struct Failure {
    /// Its source.
    pub place: String,
    /// Why.
    pub error: Error,
}

/// See the module's documentation. All of it may be read while the copy runs.
#[derive(Debug, Default)]
pub struct Progress {
    /// Objects that were found by the count, which runs ahead where it is asked for.
    pub files_found: AtomicU64,
    /// Bytes of the files among them.
    pub bytes_found: AtomicU64,
    /// The count is complete.
    pub counted: AtomicBool,
    /// Objects that are copied: files, links, directories and all else.
    pub files_done: AtomicU64,
    /// Bytes that were read from the source, holes included.
    pub bytes_done: AtomicU64,
    /// Files that were left out because they were there already.
    pub files_skipped: AtomicU64,
    /// Bytes that were not copied because they were there already.
    pub bytes_skipped: AtomicU64,
    /// Partial files that were taken up.
    pub resumed: AtomicU64,
    /// Objects that failed.
    pub failed: AtomicU64,
    failures: Mutex<Vec<Failure>>,
    stop: AtomicBool,
}

impl Progress {
    /// Stops the copy soon: nothing new is begun.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
    }

    /// Whether it is to stop.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// The failures so far that were kept; they are taken away.
    #[must_use]
    pub fn take_failures(&self) -> Vec<Failure> {
        std::mem::take(&mut self.failures.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn add(counter: &AtomicU64, number: u64) {
        counter.fetch_add(number, Ordering::Relaxed);
    }

    /// Notes that something was not copied.
    pub fn fail(&self, place: &str, error: Error) {
        if matches!(error, Error::Interrupted) {
            return;
        }
        tracing::info!(%place, %error, "not copied");
        Self::add(&self.failed, 1);
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        if failures.len() < FAILURES_KEPT {
            failures.push(Failure { place: place.to_owned(), error });
        }
    }
}
