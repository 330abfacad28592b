//! Waits for an event, with a deadline.

use std::time::{Duration, Instant};

/// The interval between checks of a condition that cannot wake the test. It is short compared with
/// every deadline, and long compared with a check.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// A point in time by which an event must have happened.
#[derive(Debug, Clone, Copy)]
pub struct Deadline {
    at: Instant,
    timeout: Duration,
}

impl Deadline {
    /// A deadline this long from now.
    #[must_use]
    pub fn after(timeout: Duration) -> Self {
        Self { at: Instant::now() + timeout, timeout }
    }

    /// The remaining time; `None` when it has passed.
    #[must_use]
    pub fn left(&self) -> Option<Duration> {
        self.at.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
    }

    /// The length of the deadline when it was created.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Calls `check` repeatedly until it returns something, and returns that.
    ///
    /// # Panics
    /// If the time is over; the message says `what` was waited for.
    #[track_caller]
    pub fn wait_until<T>(what: &str, within: Duration, mut check: impl FnMut() -> Option<T>) -> T {
        let deadline = Self::after(within);
        loop {
            if let Some(found) = check() {
                return found;
            }
            match deadline.left() {
                Some(left) => std::thread::sleep(left.min(POLL_INTERVAL)),
                None => panic!("waited {within:?} in vain for {what}"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_late_is_still_found() {
        let mut checks = 0;
        let found = Deadline::wait_until("the third look", Duration::from_secs(10), || {
            checks += 1;
            (checks == 3).then_some(checks)
        });
        assert_eq!(found, 3);
    }

    #[test]
    #[should_panic(expected = "in vain for a miracle")]
    fn what_never_comes_is_named() {
        Deadline::wait_until("a miracle", Duration::from_millis(5), || None::<()>);
    }
}
