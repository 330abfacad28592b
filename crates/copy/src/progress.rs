//! The progress of a copy, for display, and the request to stop it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::error::Error;

/// The maximum number of failures kept with their reasons; all are counted.
const FAILURES_MAX: usize = 100;

/// An object that was not copied.
#[derive(Debug)]
pub struct Failure {
    /// The source of the object.
    pub display_name: String,
    /// The cause.
    pub error: Error,
}

/// The progress of a copy. All of it may be read while the copy runs.
#[derive(Debug, Default)]
pub struct Progress {
    /// Objects found by the count, which runs ahead of the copy if requested.
    pub files_found: AtomicU64,
    /// Bytes of the files found.
    pub bytes_found: AtomicU64,
    /// Whether the count is complete.
    pub counted: AtomicBool,
    /// Objects copied: files, links, directories and all others.
    pub files_done: AtomicU64,
    /// Bytes read from the source, including holes.
    pub bytes_done: AtomicU64,
    /// Files skipped because a complete copy exists.
    pub files_skipped: AtomicU64,
    /// Bytes skipped because they had been copied before.
    pub bytes_skipped: AtomicU64,
    /// Partial files that were resumed.
    pub resumed: AtomicU64,
    /// Objects that failed.
    pub failed: AtomicU64,
    failures: Mutex<Vec<Failure>>,
    stop: AtomicBool,
}

impl Progress {
    /// Stops the copy soon: no new object is begun.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
    }

    /// Whether the copy is to stop.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// Takes the failures kept so far.
    #[must_use]
    pub fn take_failures(&self) -> Vec<Failure> {
        std::mem::take(&mut self.failures.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn add(counter: &AtomicU64, number: u64) {
        counter.fetch_add(number, Ordering::Relaxed);
    }

    /// Records that an object was not copied.
    pub fn fail(&self, display_name: &str, error: Error) {
        if matches!(error, Error::Interrupted) {
            return;
        }
        tracing::info!(place = %display_name, %error, "not copied");
        Self::add(&self.failed, 1);
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        if failures.len() < FAILURES_MAX {
            failures.push(Failure { display_name: display_name.to_owned(), error });
        }
    }
}
