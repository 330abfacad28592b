//! Which paths of a mount are lost, so that the log says once that a path is lost, and once that it
//! is back, however many loops and connections use the path.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use paths::{PathId, State};

/// A path that is lost for this long is logged. A shorter loss is a connection that was reset and
/// established again, as when a server ends idle connections.
const LOG_AFTER: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct Loss {
    /// The loops in which the path is down.
    loops: HashSet<u64>,
    since: Instant,
    is_logged: bool,
}

#[derive(Debug, Default)]
struct Known {
    losses: BTreeMap<PathId, Loss>,
    /// Why the last attempt of each loop on each path failed, and when.
    reasons: BTreeMap<(PathId, u64), (Instant, String)>,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct PathLosses(Mutex<Known>);

impl PathLosses {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes why a connection or a probe of a loop on a path failed. If the path is not lost by
    /// that, [`PathLosses::withstood`] must follow.
    pub(crate) fn failed(&self, path: PathId, identity: u64, reason: &dyn std::fmt::Display, now: Instant) {
        self.lock().reasons.insert((path, identity), (now, reason.to_string()));
    }

    /// The path works in the loop in spite of the last failure, which is not the reason of any
    /// later loss.
    pub(crate) fn withstood(&self, path: PathId, identity: u64) {
        self.lock().reasons.remove(&(path, identity));
    }

    /// A path has come to this state in a loop. Returns how long the path was lost if this ends a
    /// loss that was logged.
    pub(crate) fn note(&self, path: PathId, identity: u64, state: State, now: Instant) -> Option<Duration> {
        let mut known = self.lock();
        match state {
            State::Down => {
                let loss = Loss { loops: HashSet::new(), since: now, is_logged: false };
                known.losses.entry(path).or_insert(loss).loops.insert(identity);
                None
            }
            State::Up => {
                known.reasons.remove(&(path, identity));
                if let Some(loss) = known.losses.get_mut(&path) {
                    loss.loops.remove(&identity);
                    if !loss.loops.is_empty() {
                        return None;
                    }
                }
                let loss = known.losses.remove(&path)?;
                loss.is_logged.then(|| now.saturating_duration_since(loss.since))
            }
            State::Suspect | State::Probing => None,
        }
    }

    /// For how long a path has been lost.
    pub(crate) fn lost_for(&self, path: PathId, now: Instant) -> Option<Duration> {
        let known = self.lock();
        known.losses.get(&path).map(|loss| now.saturating_duration_since(loss.since))
    }

    /// The losses that are to be logged now, each with its reason, and the number of paths that are
    /// lost.
    pub(crate) fn due(&self, now: Instant) -> (Vec<(PathId, Option<String>)>, usize) {
        let mut known = self.lock();
        let Known { losses, reasons } = &mut *known;
        let mut due = Vec::new();
        for (path, loss) in losses.iter_mut() {
            if !loss.is_logged && now.saturating_duration_since(loss.since) >= LOG_AFTER {
                loss.is_logged = true;
                // The latest of the loops that have lost the path.
                let of_loops = loss.loops.iter().filter_map(|identity| reasons.get(&(*path, *identity)));
                let reason = of_loops.max_by_key(|(at, _)| *at).map(|(_, reason)| reason.clone());
                due.push((*path, reason));
            }
        }
        (due, losses.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_many_loops_lose_is_lost_once_and_back_once_when_all_have_it_again() {
        let (losses, path, start) = (PathLosses::default(), PathId(1), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(losses.note(path, 1, State::Down, at(0)), None);
        assert_eq!(losses.due(at(0)), (vec![], 1), "too short to tell");
        losses.failed(path, 1, &"refused", at(0));
        assert_eq!(losses.due(at(1)), (vec![(path, Some("refused".to_owned()))], 1));
        assert_eq!(losses.note(path, 2, State::Down, at(2)), None);
        assert_eq!(losses.note(path, 1, State::Probing, at(3)), None);
        assert_eq!(losses.due(at(9)), (vec![], 1), "it is logged already");
        assert_eq!(losses.lost_for(path, at(9)), Some(Duration::from_secs(9)), "probes change nothing");
        assert_eq!(losses.note(path, 1, State::Up, at(10)), None, "the other loop has not got it");
        assert_eq!(losses.note(path, 2, State::Up, at(30)), Some(Duration::from_secs(30)));
        assert_eq!(losses.due(at(40)), (vec![], 0));
        assert_eq!(losses.lost_for(path, at(40)), None);
    }

    #[test]
    fn a_connection_that_is_established_again_at_once_is_no_loss_to_log() {
        let (losses, path, now) = (PathLosses::default(), PathId(0), Instant::now());
        assert_eq!(losses.note(path, 1, State::Up, now), None, "it was not lost");
        losses.note(path, 1, State::Down, now);
        losses.failed(path, 1, &"a reason of long ago", now);
        assert_eq!(losses.note(path, 1, State::Up, now), None);
        assert_eq!(losses.due(now + Duration::from_secs(60)), (vec![], 0));
        losses.note(path, 1, State::Down, now);
        assert_eq!(losses.due(now + Duration::from_secs(60)), (vec![(path, None)], 1));
    }

    #[test]
    fn the_reason_is_that_of_this_loss_and_of_a_loop_that_lost_the_path() {
        let (losses, path, now) = (PathLosses::default(), PathId(0), Instant::now());
        let at = |seconds| now + Duration::from_secs(seconds);
        // One of several connections failed, and the path worked on.
        losses.failed(path, 1, &"reset long ago", at(0));
        losses.withstood(path, 1);
        losses.note(path, 1, State::Down, at(10));
        // Another loop, to which the path is not lost.
        losses.failed(path, 2, &"another's", at(11));
        assert_eq!(losses.due(at(12)), (vec![(path, None)], 1), "it fell silent");
        losses.note(path, 1, State::Up, at(13));
        for (identity, reason) in [(1, "reset"), (2, "refused"), (1, "unreachable")] {
            losses.failed(path, identity, &reason, at(20));
            losses.note(path, identity, State::Down, at(20));
        }
        losses.failed(path, 2, &"refused again", at(21));
        let reason = Some("refused again".to_owned());
        assert_eq!(losses.due(at(22)), (vec![(path, reason)], 1), "the latest");
    }
}
