//! Stops an experiment early, from another thread.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

use crate::remains::Remains;

/// A request to stop. Its clones share it.
#[derive(Debug, Clone, Default)]
pub struct Stop {
    shared: Arc<(Mutex<bool>, Condvar)>,
    remains: Remains,
}

impl Stop {
    /// Asks the experiment to stop. It removes the files that it has created on the server.
    pub fn request(&self) {
        let (requested, changed) = &*self.shared;
        *requested.lock().unwrap_or_else(PoisonError::into_inner) = true;
        changed.notify_all();
    }

    /// Whether the experiment is to stop.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        *self.shared.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the experiment has made and not removed yet, for who cannot wait for that.
    #[must_use]
    pub const fn remains(&self) -> &Remains {
        &self.remains
    }

    /// Sleeps until a point in time, or until the stop. Returns whether the experiment is to stop.
    #[must_use]
    pub fn wait_until(&self, moment: Instant) -> bool {
        let (requested, changed) = &*self.shared;
        let guard = requested.lock().unwrap_or_else(PoisonError::into_inner);
        let left = moment.saturating_duration_since(Instant::now());
        let waited = changed.wait_timeout_while(guard, left, |requested| !*requested);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_stop_ends_the_wait_of_another_thread() {
        let stop = Stop::default();
        let asked = stop.clone();
        let far = Instant::now() + Duration::from_secs(3600);
        let waiting = std::thread::spawn(move || asked.wait_until(far));
        stop.request();
        assert!(waiting.join().unwrap() && stop.is_requested());
        assert!(!Stop::default().wait_until(Instant::now()));
    }
}
