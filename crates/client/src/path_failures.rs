//! Path failures that the loops of a mount share: on which paths connections broke.
//!
//! Each loop has its own connections, and learns only of their failures. If a path answers
//! everything with a reset, one loop's connection may see the reset at once and another's only when
//! TCP retransmits, a fifth of a second later. So a loop whose connection breaks reports it to the
//! others, which then probe the path.

use std::sync::atomic::{AtomicU64, Ordering};

use paths::PathId;

/// How often connections of each path broke, in all loops.
#[derive(Debug)]
pub(crate) struct PathFailures {
    all: AtomicU64,
    by_path: Vec<AtomicU64>,
}

/// The failures that one loop has seen, including its own.
#[derive(Debug)]
pub(crate) struct SeenFailures {
    all: u64,
    by_path: Vec<u64>,
}

impl PathFailures {
    pub(crate) fn new(paths: usize) -> Self {
        Self { all: AtomicU64::new(0), by_path: (0..paths).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Returns a listener for a loop that starts now.
    pub(crate) fn listener(&self) -> SeenFailures {
        let by_path = self.by_path.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        SeenFailures { all: self.all.load(Ordering::Relaxed), by_path }
    }

    /// Reports that a connection of the loop with these `seen_failures` broke on this path.
    pub(crate) fn tell(&self, path: PathId, seen_failures: &mut SeenFailures) {
        let index = usize::from(path.0);
        if let (Some(count), Some(own)) = (self.by_path.get(index), seen_failures.by_path.get_mut(index)) {
            count.fetch_add(1, Ordering::Relaxed);
            self.all.fetch_add(1, Ordering::Release);
            *own += 1;
            seen_failures.all += 1;
        }
    }

    /// Returns a path on which another loop's connection broke since the last call. Call again
    /// until it returns `None`.
    pub(crate) fn hear(&self, seen_failures: &mut SeenFailures) -> Option<PathId> {
        let all = self.all.load(Ordering::Acquire);
        if all == seen_failures.all {
            return None;
        }
        for ((index, count), own) in (0_u16..).zip(&self.by_path).zip(&mut seen_failures.by_path) {
            let count = count.load(Ordering::Relaxed);
            if std::mem::replace(own, count) != count {
                return Some(PathId(index));
            }
        }
        seen_failures.all = all;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_other_loop_learns_of_a_path_failure_once() {
        let path_failures = PathFailures::new(3);
        let [mut first, mut second, mut third] = [0; 3].map(|_| path_failures.listener());
        path_failures.tell(PathId(2), &mut first);
        path_failures.tell(PathId(2), &mut first);
        path_failures.tell(PathId(0), &mut second);
        let all = |seen_failures: &mut SeenFailures| {
            std::iter::from_fn(|| path_failures.hear(seen_failures)).collect::<Vec<_>>()
        };
        assert_eq!(all(&mut first), [PathId(0)]);
        assert_eq!(all(&mut second), [PathId(2)]);
        assert_eq!(all(&mut third), [PathId(0), PathId(2)]);
        assert_eq!(all(&mut third), []);
        path_failures.tell(PathId(9), &mut first);
        assert_eq!(all(&mut second), [], "there is no such path");
    }
}
