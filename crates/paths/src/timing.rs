//! The timeouts and intervals of the table, each with its reason.
//!
//! Invariant, checked at compile time: with these defaults the calls of a path that dies silently
//! are moved to other paths in less than a second.

use std::time::Duration;

/// A call is not overdue before this, however fast the path has been: a Linux TCP sender
/// retransmits a lost segment after at least 200 ms, and one lost segment does not mean a lost
/// path.
pub const SUSPECT_MIN: Duration = Duration::from_millis(200);
/// A longer silence is suspicious, however slow the path has been. A wrong suspicion costs one NULL
/// call, so waiting longer would gain little and would break the promise of one second.
pub const SUSPECT_MAX: Duration = Duration::from_millis(400);
/// Where connections are expensive to establish, a wrong suspicion costs one connection, which
/// delays both ends in handling the very calls whose replies are late. There a path is not
/// suspected until it has been silent for as long as establishing a connection takes, or for this
/// long.
pub const SUSPECT_EXPENSIVE_MAX: Duration = Duration::from_secs(1);
/// A probe whose connection has not been accepted in this time has failed; the time allows for one
/// retransmission. A path that has recently been silent for longer and was still alive gets more
/// time.
pub const PROBE_TIMEOUT: Duration = Duration::from_millis(300);
/// Where connections are expensive to establish, a probe may take this many times as long as recent
/// ones took.
pub const PROBE_PER_CONNECT_TIME: u32 = 3;
/// Once the peer's system has accepted the connection of a probe, the reply may take this long:
/// that machine and all links to it are alive, and only the server process is late.
pub const PROBE_ANSWER: Duration = Duration::from_millis(600);
/// Upper bound of the wait for a probe, however slow the path has been.
pub const PROBE_MAX: Duration = Duration::from_secs(3);
/// A connect that is not established in this time has failed, and so has a connection that is
/// established but not validated within the same time again. The first retransmission of a SYN
/// comes after a second, and a new attempt may take another route. If the peer's system accepts
/// connections and the server is too slow to validate them, each attempt waits twice as long as the
/// previous one, ...
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// ... and at most this long.
pub const CONNECT_MAX: Duration = Duration::from_secs(8);
/// Time from the silent death of a path to the first attempt to bring it back. After a reset an
/// attempt follows at once.
pub const PROBE_INTERVAL: Duration = Duration::from_millis(500);
/// Back-off before the second attempt; each later attempt doubles it.
pub const RETRY_MIN: Duration = Duration::from_millis(100);
/// Attempts on a dead path are never further apart than this (plus jitter): a path that is back
/// should be used within about two seconds.
pub const RETRY_MAX: Duration = Duration::from_millis(1_600);
/// A returning path takes its full share only after this: a server that has just started has cold
/// caches, and all clients come back at once.
pub const RAMP: Duration = Duration::from_secs(1);
/// A path that dies again within [`STABLE_AFTER`] of its return stays down at least this long, ...
pub const HOLD_MIN: Duration = Duration::from_secs(1);
/// ... twice as long each time, and at most this long: a flapping link must not keep moving calls.
pub const HOLD_MAX: Duration = Duration::from_secs(30);
/// A preferred path may answer probes, take a connection back, and then fail to validate it.
/// Meanwhile the calls are kept off a path that works. The preferred path is therefore not tried
/// again for this many times as long as the calls waited, so that such attempts take at most a
/// tenth of the time. (The hold is also at least [`HOLD_MIN`], doubles each time, and is at most
/// [`HOLD_MAX`].)
pub const HOLD_PER_WAIT: u32 = 9;
/// A path that has been up this long no longer counts as flapping.
pub const STABLE_AFTER: Duration = Duration::from_secs(10);
/// If there is no other path to use, a silent path is declared dead only after this long: moving
/// the calls would not help, and a stalled server should not receive all its work a second time.
pub const ALONE_MAX: Duration = Duration::from_secs(5);
/// A connection with calls in flight that is silent for this long is given up even if its path
/// answers probes. This is `timeo`, with the kernel's default for TCP and RDMA.
pub const SILENT_MAX: Duration = Duration::from_secs(60);
/// A failed-over connection that is not drained in this time stays where it is and tries again
/// after [`DRAIN_RETRY`]: calls that find no other connection wait while it drains.
pub const DRAIN_MAX: Duration = Duration::from_millis(500);
/// When a failed-over connection that could not be drained tries again.
pub const DRAIN_RETRY: Duration = Duration::from_secs(5);
/// Files leave a preferred path that has been several times slower than another for this long: a
/// burst of calls, or a server that was briefly busy, is over by then.
pub const SLOW_AFTER: Duration = Duration::from_millis(500);
/// Files that have left a slow path stay away this long before it is tried again, ...
pub const AWAY_MIN: Duration = Duration::from_secs(1);
/// ... twice as long each time the path was still slow, and at most this long: including the trial,
/// a path that has recovered gets its share back within five seconds.
pub const AWAY_MAX: Duration = Duration::from_secs(3);
/// A successful trial takes this long: calls need time to queue up on the path as they do on
/// others.
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
    /// Upper bound of that silence, unless `probe_per_connect_time` says that connections are
    /// expensive; default [`SUSPECT_MAX`].
    pub suspect_max: Duration,
    /// Minimum time allowed for a probe to be accepted; default [`PROBE_TIMEOUT`].
    pub probe_timeout: Duration,
    /// A probe may take this many times as long as establishing recent connections took, up to
    /// `connect_timeout`. The default, 0, is for transports whose connections cost almost nothing.
    /// [`PROBE_PER_CONNECT_TIME`] is right for RDMA: a connection costs both ends' systems many
    /// steps, and giving up a connection too early makes them repeat all of those steps. See also
    /// [`SUSPECT_EXPENSIVE_MAX`].
    pub probe_per_connect_time: u32,
    /// How long the reply to a probe may take once the probe is accepted; default [`PROBE_ANSWER`].
    pub probe_answer: Duration,
    /// Upper bound of each of these two on a slow path; default [`PROBE_MAX`].
    pub probe_max: Duration,
    /// How long a connect, and then its path validation, may take; default [`CONNECT_TIMEOUT`].
    pub connect_timeout: Duration,
    /// Upper bound of each of these two with a slow server; default [`CONNECT_MAX`].
    pub connect_max: Duration,
    /// Wait before the first attempt on a silently dead path; default [`PROBE_INTERVAL`].
    pub probe_interval: Duration,
    /// Shortest back-off; default [`RETRY_MIN`].
    pub retry_min: Duration,
    /// Longest back-off; default [`RETRY_MAX`].
    pub retry_max: Duration,
    /// How long a returning path ramps up; default [`RAMP`].
    pub ramp: Duration,
    /// First hold of a flapping path; default [`HOLD_MIN`].
    pub hold_min: Duration,
    /// Longest hold; default [`HOLD_MAX`].
    pub hold_max: Duration,
    /// After this long a path no longer counts as flapping; default [`STABLE_AFTER`].
    pub stable_after: Duration,
    /// How long the last remaining path may be silent; default [`ALONE_MAX`].
    pub alone_max: Duration,
    /// How long a connection of a live path may be silent; default [`SILENT_MAX`].
    pub silent_max: Duration,
    /// How long a failed-over connection may drain; default [`DRAIN_MAX`].
    pub drain_max: Duration,
    /// When such a connection tries to drain again; default [`DRAIN_RETRY`].
    pub drain_retry: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            suspect_min: SUSPECT_MIN,
            suspect_max: SUSPECT_MAX,
            probe_timeout: PROBE_TIMEOUT,
            probe_per_connect_time: 0,
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
