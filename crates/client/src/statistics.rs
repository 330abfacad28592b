//! The counters of a mount: per path and per kind of call.

use std::time::Duration;

use hdrhistogram::Histogram;
use paths::{Class, PathStatus};

/// The longest latency that is recorded exactly, one hour, in nanoseconds.
const LATENCY_NS_MAX: u64 = 3_600_000_000_000;

/// Counters of one kind of call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counter {
    /// Calls answered.
    pub calls: u64,
    /// Bytes of payload.
    pub bytes: u64,
}

/// Counters of one path in one loop.
#[derive(Debug, Clone)]
pub struct PathCounters {
    /// READ.
    pub read: Counter,
    /// WRITE and COMMIT.
    pub write: Counter,
    /// Everything else.
    pub metadata: Counter,
    /// Calls sent again on the path on which they had been sent before.
    pub retransmissions: u64,
    /// Time from the sending of a call to its reply, in nanoseconds.
    pub latency_ns: Histogram<u64>,
}

impl PathCounters {
    /// # Panics
    /// Never: the bounds are constants that the histogram accepts.
    pub(crate) fn new() -> Self {
        let latency_ns = Histogram::new_with_bounds(1, LATENCY_NS_MAX, 2).expect("constant bounds");
        let counter = Counter::default;
        Self { read: counter(), write: counter(), metadata: counter(), retransmissions: 0, latency_ns }
    }

    #[inline]
    pub(crate) fn record(&mut self, class: Class, bytes: u64, latency: Duration) {
        let counter = match class {
            Class::Read => &mut self.read,
            Class::Write => &mut self.write,
            Class::Metadata => &mut self.metadata,
        };
        counter.calls += 1;
        counter.bytes += bytes;
        self.latency_ns.saturating_record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Adds another loop's counters of the same path.
    pub fn add(&mut self, other: &Self) {
        for (ours, theirs) in [
            (&mut self.read, other.read),
            (&mut self.write, other.write),
            (&mut self.metadata, other.metadata),
        ] {
            ours.calls += theirs.calls;
            ours.bytes += theirs.bytes;
        }
        self.retransmissions += other.retransmissions;
        // Both histograms have the same bounds.
        let _ = self.latency_ns.add(&other.latency_ns);
    }

    /// Bytes read and written.
    #[must_use]
    pub const fn payload_bytes(&self) -> u64 {
        self.read.bytes + self.write.bytes
    }
}

/// One path of a mount.
#[derive(Debug, Clone)]
pub struct PathStatistics {
    /// Local and remote address.
    pub name: String,
    /// Index of its node, in the order of `remoteports`.
    pub node: u16,
    /// The traffic on the path.
    pub counters: PathCounters,
    /// The state of the path in each loop that has a connection on it.
    pub status: Vec<PathStatus>,
}

/// Replies to calls that had to be sent again, where the server may not have known that it had
/// already executed them: it has restarted, or is one of several that share no reply cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Replays {
    /// A name was to be removed and does not exist: counted as success.
    pub reconciled: u64,
    /// A name was to be created and already exists, or was to be renamed and does not exist: this
    /// client or another may have done that, and the error is returned. Where servers keep a reply
    /// cache such an error is genuine.
    pub undecided: u64,
    /// WRITEs and SETATTRs that were sent on another connection while their old one was silent: the
    /// old connection was reset, but the reset may not have arrived. A server that does not
    /// recognize the client's calls by their xids may execute the original late, after later
    /// changes.
    pub unfenced: u64,
}

impl Replays {
    pub(crate) const fn add(&mut self, other: &Self) {
        self.reconciled += other.reconciled;
        self.undecided += other.undecided;
        self.unfenced += other.unfenced;
    }
}

/// A mount's counters.
#[derive(Debug, Clone)]
pub struct Statistics {
    /// All paths, in the order of the mount's list.
    pub paths: Vec<PathStatistics>,
    /// Ambiguous replies, and how they were resolved.
    pub replays: Replays,
    /// Counters of the RDMA connections, open and closed.
    pub rdma: transport::rdma::Counters,
    /// CPU time of the mount's loops.
    pub cpu: Duration,
    /// The thread ids of the loops: the CPU time of each can be read without asking the loops,
    /// which answer only when they get to it (`transport::threads`).
    pub threads: Vec<u32>,
}
