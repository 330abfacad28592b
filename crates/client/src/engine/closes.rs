//! Calls at which the server ends the connection.
//!
//! A server may end the connection each time it receives one particular call: then every other call
//! on that connection suffers each time, and the mount would go on for ever. Such a call is sent
//! again with back-off and fails after a bounded number of tries, but not before minutes have
//! passed. An outage looks alike for a while and must never become an error, so a try counts only
//! with evidence that the server works:
//!
//! - the connection was validated: the server has answered GETATTR of the root on it;
//! - the call was sent, or was just being sent, when the peer ended the connection (silence does
//!   not count);
//! - no other call was in flight on the connection, or others were answered on this path since the
//!   call's previous try there;
//! - since the first of these tries, no attempt to connect failed on a path on which they were made
//!   and no connection there fell silent. A server that is down or restarts refuses connections or
//!   does not answer: the count starts again.

use std::net::SocketAddr;
use std::time::Duration;

use paths::{ConnId, PathId};
use transport::Error;
use transport::rdma::Error as RdmaError;

use super::{Core, Engine};
use crate::call::{Body, CallKey};

/// How often a call is tried at which the server ends the connection each time.
const TRIES_MAX: u32 = 7;
/// The wait before the third try: the second follows at once, because most connections end for
/// other reasons. It doubles with each try.
const BACK_OFF: Duration = Duration::from_millis(100);
/// The longest wait: a server that works is disturbed no more often.
const BACK_OFF_MAX: Duration = Duration::from_secs(30);
/// From this try on, calls that were on one connection are sent at least this far apart, or as far
/// as the wait is long: so a slow call is not in flight each time that another one makes the server
/// end the connection.
const APART_FROM: u32 = 4;
const APART: Duration = Duration::from_secs(5);

/// What is known of the connections that ended while a call was in flight on them.
#[derive(Debug)]
pub(crate) struct Closes {
    /// All of them, since the call was last answered or an outage ended.
    all: u32,
    /// Those that count.
    with_evidence: u32,
    first_at: Duration,
    /// The paths of the connections, and how many calls had been answered on each when its last
    /// connection ended.
    paths: Vec<(PathId, u64)>,
}

impl Closes {
    const fn new(now: Duration) -> Self {
        Self { all: 0, with_evidence: 0, first_at: now, paths: Vec::new() }
    }

    /// Counts one more connection of a path on which so many calls have been answered.
    fn count(&mut self, path: PathId, answered: u64, is_alone: bool) {
        self.all = self.all.saturating_add(1);
        let before = self.paths.iter_mut().find(|(other, _)| *other == path);
        let works = before.as_ref().is_some_and(|(_, before)| answered > *before);
        match before {
            Some((_, before)) => *before = answered,
            None => self.paths.push((path, answered)),
        }
        self.with_evidence += u32::from(is_alone || works);
    }

    /// Whether the server has ended the connection so often, and for so long, that waiting does not
    /// help.
    fn is_hopeless(&self, now: Duration, time_min: Duration) -> bool {
        self.with_evidence >= TRIES_MAX && now.saturating_sub(self.first_at) >= time_min
    }

    /// The wait before the next try; none before the second. Of `count` calls on one connection,
    /// each waits longer than the one before: if one of them is at fault, the others are answered
    /// meanwhile.
    fn back_off(&self, at: usize, count: usize) -> Option<Duration> {
        let doublings = self.all.checked_sub(2)?.min(9);
        let wait = (BACK_OFF * (1 << doublings)).min(BACK_OFF_MAX);
        let (at, count) = (u32::try_from(at).unwrap_or(u32::MAX), u32::try_from(count).unwrap_or(u32::MAX));
        let even = wait / count.max(1);
        let apart = if self.all < APART_FROM { even } else { even.max(wait.min(APART)) };
        Some(wait + apart.saturating_mul(at))
    }
}

/// Whether an error says that the peer ended the connection, and not that it fell silent or that
/// this machine could not go on.
fn is_of_peer(error: &Error) -> bool {
    use std::io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset};
    match error {
        Error::Closed | Error::Truncated | Error::Record(_) => true,
        Error::Io(error) => matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset),
        Error::Rdma(error) => {
            matches!(error, RdmaError::Closed | RdmaError::Broken(_) | RdmaError::Protocol(_))
        }
        Error::Injected => false,
    }
}

impl Engine {
    /// Handles a connection that ended by itself.
    pub(super) fn connection_ended(&mut self, conn: ConnId, error: &Error) {
        let Some(connection) = self.slots.get(conn) else { return };
        let (path, address) = (connection.path, connection.remote);
        let in_flight = match path {
            Some(path) if is_of_peer(error) && connection.is_ready() => {
                self.core.in_flight(conn, &connection.unsent()).map(|calls| (path, calls))
            }
            _ => {
                self.core.outages.note(path, self.core.now);
                None
            }
        };
        let Some((path, calls)) = in_flight else { return self.connection_broke(conn) };
        if self.core.count_closes(path, &calls) {
            // One of the calls may be at fault, and the path is not.
            self.close(conn);
            self.core.back_off_from(&calls, error, address);
            self.reset(conn);
        } else {
            self.connection_broke(conn);
        }
    }
}

/// When each path last showed that the server does not work there.
#[derive(Debug)]
pub(super) struct Outages(Vec<Option<Duration>>);

impl Outages {
    pub(super) fn new(paths: usize) -> Self {
        Self(vec![None; paths])
    }

    /// Notes that an attempt to connect failed on this path, or that a connection fell silent.
    pub(super) fn note(&mut self, path: Option<PathId>, now: Duration) {
        if let Some(at) = path.and_then(|path| self.0.get_mut(usize::from(path.0))) {
            *at = Some(now);
        }
    }

    fn any_since(&self, since: Duration, mut paths: impl Iterator<Item = PathId>) -> bool {
        paths.any(|path| self.0.get(usize::from(path.0)).is_some_and(|at| at.is_some_and(|at| at >= since)))
    }
}

impl Core {
    /// The calls that were sent on a connection, and the first of those that were not sent
    /// completely; `None` if there is none.
    fn in_flight(&self, conn: ConnId, unsent: &[CallKey]) -> Option<Vec<CallKey>> {
        let is_sent = |key: &CallKey| !unsent.iter().skip(1).any(|unsent| unsent == key);
        let all = self.calls.0.iter().filter(|(_, call)| call.connection == Some(conn));
        let calls: Vec<CallKey> = all.map(|(key, _)| key).filter(is_sent).collect();
        (!calls.is_empty()).then_some(calls)
    }

    /// Counts the end of a connection against the calls that were in flight on it. Returns whether
    /// one of them has seen that before.
    fn count_closes(&mut self, path: PathId, calls: &[CallKey]) -> bool {
        let answered = self.counts.path(path).map_or(0, |counters| counters.calls());
        let mut again = false;
        for key in calls {
            let Some(call) = self.calls.0.get_mut(*key) else { continue };
            let closes = call.closes.get_or_insert_with(|| Box::new(Closes::new(self.now)));
            if self.outages.any_since(closes.first_at, closes.paths.iter().map(|(path, _)| *path)) {
                **closes = Closes::new(self.now);
            }
            closes.count(path, answered, calls.len() == 1);
            again |= closes.all > 1;
        }
        again
    }

    /// Delays the calls of a connection that the server has ended before, or fails them. The
    /// connection is closed.
    fn back_off_from(&mut self, calls: &[CallKey], error: &Error, address: Option<SocketAddr>) {
        for (at, &key) in calls.iter().enumerate() {
            let Some(call) = self.calls.0.get_mut(key) else { continue };
            let Some(closes) = &call.closes else { continue };
            let (tries, is_hopeless) = (closes.all, closes.is_hopeless(self.now, self.closes_time_min));
            let Some(wait) = closes.back_off(at, calls.len()) else { continue };
            call.connection = None;
            let call = &*call;
            let description = call.description();
            if !is_hopeless {
                tracing::info!(
                    ?address,
                    "{description}: the server ended the connection ({error}) instead of an answer; \
                     the call is sent again"
                );
                self.queues.delay(self.now + wait, key);
                continue;
            }
            tracing::warn!(
                ?address,
                "{description} fails: the server ended the connection ({error}) each of {tries} times \
                 that it was sent, and answers other calls"
            );
            // It may have been done before the connection ended.
            let is_in_doubt = call.procedure().leaves_doubt();
            self.counts.replays.undecided += u64::from(is_in_doubt);
            let reason = format!("it ended the connection {tries} times instead of an answer: {error}");
            let error = call.misbehaved(reason);
            if matches!(call.body, Body::Commit { .. }) {
                self.fail_group(key, &error);
            } else {
                self.finish(key, Err(error));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: PathId = PathId(0);
    const OTHER: PathId = PathId(1);
    const MINUTES: Duration = Duration::from_secs(180);

    #[test]
    fn answers_on_one_path_are_no_evidence_for_another() {
        let mut closes = Closes::new(Duration::ZERO);
        for _ in 0..20 {
            // 7 and 900 calls were answered there long ago, and none since.
            closes.count(PATH, 7, false);
            closes.count(OTHER, 900, false);
        }
        assert_eq!((closes.all, closes.with_evidence), (40, 0));
        closes.count(PATH, 8, false);
        closes.count(OTHER, 900, true);
        assert_eq!(closes.with_evidence, 2);
    }

    #[test]
    fn a_call_is_not_given_up_before_minutes_have_passed_however_often_it_was_tried() {
        let mut closes = Closes::new(Duration::from_secs(5));
        (0..TRIES_MAX).for_each(|_| closes.count(PATH, 0, true));
        assert!(!closes.is_hopeless(MINUTES, MINUTES));
        assert!(closes.is_hopeless(MINUTES + Duration::from_secs(5), MINUTES));
        let mut few = Closes::new(Duration::ZERO);
        (1..TRIES_MAX).for_each(|_| few.count(PATH, 0, true));
        assert!(!few.is_hopeless(MINUTES * 2, MINUTES));
    }

    #[test]
    fn the_wait_doubles_up_to_half_a_minute_and_suspects_are_kept_apart() {
        let mut closes = Closes::new(Duration::ZERO);
        let mut waits = Vec::new();
        for _ in 0..12 {
            closes.count(PATH, 0, true);
            waits.push(closes.back_off(0, 1).map(|wait| wait.as_millis()));
        }
        assert_eq!(waits[..4], [None, Some(100), Some(200), Some(400)]);
        assert_eq!(waits[10..], [Some(30_000); 2]);
        let apart = closes.back_off(3, 20).unwrap() - closes.back_off(2, 20).unwrap();
        assert_eq!(apart, APART);
    }
}
