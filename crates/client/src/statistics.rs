//! What a mount counts: per path and per kind of call.

use std::time::Duration;

use hdrhistogram::Histogram;
use paths::{Class, PathStatus};

/// The longest latency that is told apart, one hour, in nanoseconds.
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
    /// Calls sent again on the path that they had been sent on before.
    pub retransmissions: u64,
    /// From the sending of a call to its answer, in nanoseconds.
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
        // Both have the same bounds.
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
    /// From where to where.
    pub name: String,
    /// Index of its node, in the order of `remoteports`.
    pub node: u16,
    /// What went over it.
    pub counters: PathCounters,
    /// Its state in each loop that has a connection on it.
    pub status: Vec<PathStatus>,
}

/// Answers to calls that had to be sent again, where the server may not have known that it had done
/// them: it has started anew, or is one of several that share no reply cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Replays {
    /// A name was to be removed and is not there: taken for done.
    pub reconciled: u64,
    /// A name was to be made and is there already, or was to be renamed and is not there: that may
    /// have been our own doing or another's, and the error stands. Where servers keep a reply cache
    /// such an error is true.
    pub undecided: u64,
    /// WRITEs and SETATTRs that were sent elsewhere while their old connection was silent: it was
    /// reset, but who knows whether that arrived. A server that does not know our calls by their
    /// numbers may do the original late, after what came then.
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
    /// What could not be told apart, and how it was decided.
    pub replays: Replays,
    /// What connections over RDMA have done, open and closed.
    pub rdma: transport::rdma::Counters,
    /// CPU time of the mount's loops.
    pub cpu: Duration,
    /// Their threads, by the system's numbers: what each uses can be had without asking the loops,
    /// which answer when they come to it (`transport::threads`).
    pub threads: Vec<u32>,
}
