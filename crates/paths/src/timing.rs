//! How long the table waits for what, each with its reason.
//!
//! Invariant, checked at compile time: with these defaults a path that dies silently loses its
//! calls to the others in less than a second.

use std::time::Duration;

/// A call is not overdue before this, however quick the path has been: a Linux TCP sender
/// retransmits a lost segment after 200 ms at the least, and one lost segment isn't a lost path.
pub const SUSPECT_MIN: Duration = Duration::from_millis(200);
/// A silence longer than this is suspicious, however slow the path has been. A wrong suspicion
/// costs one NULL call, so there is little to win by waiting longer, and the promise of one second
/// would be lost.
pub const SUSPECT_MAX: Duration = Duration::from_millis(400);
/// Where making connections is dear, a wrong suspicion costs one of them, which keeps both ends
/// from the very calls whose answers are late: a path is not suspected before it has been silent
/// for as long as one takes, or for this long.
pub const SUSPECT_DEAR_MAX: Duration = Duration::from_secs(1);
/// A probe that nobody has taken in this time has failed: one retransmission of it fits in. More
/// where the path has lately been silent for longer and yet alive.
pub const PROBE_TIMEOUT: Duration = Duration::from_millis(300);
/// Where making connections is dear, a probe may take so many times as long as the last ones took.
pub const PROBE_PER_MAKING: u32 = 3;
/// A probe whose connection the other end's system has accepted has this long for its answer: that
/// machine and all links to it live, and only the server on it is late.
pub const PROBE_ANSWER: Duration = Duration::from_millis(600);
/// No probe is waited for longer than this, however slow the path has been.
pub const PROBE_MAX: Duration = Duration::from_secs(3);
/// A connect not established in this time has failed, and so has one that is established and has
/// not proved itself in this time again; the first retransmission of a SYN comes after a second,
/// and a new attempt may take another path. Where the other end's system accepts and the server is
/// too slow for the proof, each attempt waits twice as long as the one before, ...
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// ... and at most this long.
pub const CONNECT_MAX: Duration = Duration::from_secs(8);
/// Time from a path's death to the first attempt to bring it back, when the death was silent (a
/// reset is followed by an attempt at once).
pub const PROBE_INTERVAL: Duration = Duration::from_millis(500);
/// Back-off of the second attempt; each later one doubles it.
pub const RETRY_MIN: Duration = Duration::from_millis(100);
/// Attempts on a dead path are never further apart than this (and its jitter): a path that is back
/// should be used within about two seconds.
pub const RETRY_MAX: Duration = Duration::from_millis(1_600);
/// A path that came back takes its full share only after this: a server that has just started has
/// cold caches, and all clients come back at once.
pub const RAMP: Duration = Duration::from_secs(1);
/// A path that dies again within [`STABLE_AFTER`] of its return stays down at least this long, ...
pub const HOLD_MIN: Duration = Duration::from_secs(1);
/// ... twice as long each time, and at most this long: a flapping link must not keep moving calls.
pub const HOLD_MAX: Duration = Duration::from_secs(30);
/// A home that answers probes, takes a connection back from abroad and then does not prove itself
/// keeps calls from a path that works: it is left alone for so many times as long as they have
/// waited, so that it costs a tenth of the time at most. (At least [`HOLD_MIN`], twice as long each
/// time, and at most [`HOLD_MAX`], too.)
pub const HOLD_PER_WAIT: u32 = 9;
/// A path that has been up this long no longer counts as flapping.
pub const STABLE_AFTER: Duration = Duration::from_secs(10);
/// With no other path to go to, a silent path is taken for dead only after this long: moving calls
/// would bring nothing, and a stalled server should not be given all its work again.
pub const ALONE_MAX: Duration = Duration::from_secs(5);
/// A connection with calls in flight that is silent this long is given up although its path answers
/// probes. This is `timeo`; the kernel's default for TCP and RDMA.
pub const SILENT_MAX: Duration = Duration::from_secs(60);
/// A failed-over connection that isn't drained in this time keeps working where it is, and tries
/// again after [`DRAIN_RETRY`]: calls that find no other connection wait while it drains.
pub const DRAIN_MAX: Duration = Duration::from_millis(500);
/// When a failed-over connection that could not be drained tries again.
pub const DRAIN_RETRY: Duration = Duration::from_secs(5);
/// Files leave a home whose path has been several times slower than another for so long: calls that
/// came in a burst, or a server that was busy for a moment, are over by then.
pub const SLOW_AFTER: Duration = Duration::from_millis(500);
/// Files that have left a slow path stay away this long before it is tried again, ...
pub const AWAY_MIN: Duration = Duration::from_secs(1);
/// ... twice as long each time that it was still slow, and at most this long: with the trial, a
/// path that has recovered has its share back within five seconds.
pub const AWAY_MAX: Duration = Duration::from_secs(3);
/// A trial that goes well takes this long: calls must have the time to queue up on the path as they
/// do on others.
pub const TRIAL: Duration = Duration::from_millis(500);
/// How often the driver is expected to call [`crate::Table::tick`] for each connection.
pub const TICK: Duration = Duration::from_millis(50);

const _: () = assert!(
    SUSPECT_MAX.as_millis() + 2 * TICK.as_millis() + PROBE_TIMEOUT.as_millis() < 1_000,
    "calls must leave a silently dead path within a second"
);
const _: () = assert!(
    SUSPECT_MIN.as_millis() + 2 * TICK.as_millis() + PROBE_ANSWER.as_millis() < 1_000,
    "calls must leave a frozen server within a second, where its path has been quick"
);

/// The times of a [`crate::Table`]. The defaults are right for data centre networks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// Lower bound of the silence that makes a path suspect; default [`SUSPECT_MIN`].
    pub suspect_min: Duration,
    /// Upper bound of it, unless `probe_per_making` says that connections are dear; default
    /// [`SUSPECT_MAX`].
    pub suspect_max: Duration,
    /// How long a probe may at least take until it is accepted; default [`PROBE_TIMEOUT`].
    pub probe_timeout: Duration,
    /// How many times as long as making the path's last connections took a probe may take, up to
    /// `connect_timeout`; 0, the default, where they are made in no time. [`PROBE_PER_MAKING`] is
    /// right for RDMA: a connection of it costs both ends' systems many steps, and whoever gives
    /// one up too early makes them do all of it again. See [`SUSPECT_DEAR_MAX`] too.
    pub probe_per_making: u32,
    /// How long its answer may take from then on; default [`PROBE_ANSWER`].
    pub probe_answer: Duration,
    /// How long each of both may take on a slow path; default [`PROBE_MAX`].
    pub probe_max: Duration,
    /// How long a connect, and then its proof, may take; default [`CONNECT_TIMEOUT`].
    pub connect_timeout: Duration,
    /// How long each may take with a slow server; default [`CONNECT_MAX`].
    pub connect_max: Duration,
    /// Wait before the first attempt on a silently dead path; default [`PROBE_INTERVAL`].
    pub probe_interval: Duration,
    /// Least back-off; default [`RETRY_MIN`].
    pub retry_min: Duration,
    /// Largest back-off; default [`RETRY_MAX`].
    pub retry_max: Duration,
    /// How long a returning path ramps up; default [`RAMP`].
    pub ramp: Duration,
    /// First hold of a flapping path; default [`HOLD_MIN`].
    pub hold_min: Duration,
    /// Longest hold; default [`HOLD_MAX`].
    pub hold_max: Duration,
    /// When a path no longer counts as flapping; default [`STABLE_AFTER`].
    pub stable_after: Duration,
    /// Patience with the last path; default [`ALONE_MAX`].
    pub alone_max: Duration,
    /// Patience with a silent connection of a living path; default [`SILENT_MAX`].
    pub silent_max: Duration,
    /// How long a failed-over connection may drain; default [`DRAIN_MAX`].
    pub drain_max: Duration,
    /// When it tries again to drain; default [`DRAIN_RETRY`].
    pub drain_retry: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            suspect_min: SUSPECT_MIN,
            suspect_max: SUSPECT_MAX,
            probe_timeout: PROBE_TIMEOUT,
            probe_per_making: 0,
            probe_answer: PROBE_ANSWER,
            probe_max: PROBE_MAX,
            connect_timeout: CONNECT_TIMEOUT,
            connect_max: CONNECT_MAX,
            probe_interval: PROBE_INTERVAL,
            retry_min: RETRY_MIN,
            retry_max: RETRY_MAX,
            ramp: RAMP,
            hold_min: HOLD_MIN,
            hold_max: HOLD_MAX,
            stable_after: STABLE_AFTER,
            alone_max: ALONE_MAX,
            silent_max: SILENT_MAX,
            drain_max: DRAIN_MAX,
            drain_retry: DRAIN_RETRY,
        }
    }
}
