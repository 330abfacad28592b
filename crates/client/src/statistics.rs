//! The counters of a mount: per path, and on a path per kind of call and per operation.

use std::sync::Arc;
use std::time::Duration;

use hdrhistogram::Histogram;
use metrics::{Key, Latency, SizeClass, Tally};
use paths::{Class, PathStatus, State as PathState};

use crate::delegations::DelegationCounts;

/// Counters of one kind of call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counter {
    /// Calls answered.
    pub calls: u64,
    /// Bytes of payload.
    pub bytes: u64,
}

/// Counters of one operation on one path in one loop.
#[derive(Debug, Clone)]
pub struct OperationCounters {
    /// The name in the RFC: `READ`.
    pub operation: &'static str,
    /// The size of payload.
    pub size: SizeClass,
    /// Whether the payload goes to the server.
    pub sends_payload: bool,
    /// Calls answered.
    pub calls: u64,
    /// Of these, with another status than OK.
    pub errors: u64,
    /// Bytes of payload.
    pub payload_bytes: u64,
    /// Time from the sending of a call to its reply, in nanoseconds.
    pub latency_ns: Histogram<u64>,
}

/// Counters of one path in one loop.
#[derive(Debug, Clone, Default)]
pub struct PathCounters {
    /// READ.
    pub read: Counter,
    /// WRITE and COMMIT.
    pub write: Counter,
    /// Everything else.
    pub metadata: Counter,
    /// Calls sent again on the path on which they had been sent before.
    pub retransmissions: u64,
    /// The same calls by operation and size. An operation that was never called takes no memory.
    pub operations: Vec<OperationCounters>,
}

impl PathCounters {
    #[inline]
    pub(crate) fn record(
        &mut self,
        class: Class,
        operation: &'static str,
        bytes: u64,
        failed: bool,
        latency: Duration,
    ) {
        let counter = match class {
            Class::Read => &mut self.read,
            Class::Write => &mut self.write,
            Class::Metadata => &mut self.metadata,
        };
        counter.calls += 1;
        counter.bytes += bytes;
        let ns = metrics::latency::clamped(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
        let of = self.operation(operation, SizeClass::of(bytes), class == Class::Write);
        of.calls += 1;
        of.errors += u64::from(failed);
        of.payload_bytes += bytes;
        of.latency_ns.saturating_record(ns);
    }

    /// The counters of an operation. There are few, so that a search is fast.
    #[inline]
    fn operation(
        &mut self,
        operation: &'static str,
        size: SizeClass,
        sends_payload: bool,
    ) -> &mut OperationCounters {
        let known = |one: &OperationCounters| one.operation == operation && one.size == size;
        let at = self.operations.iter().position(known).unwrap_or_else(|| {
            self.operations.push(OperationCounters {
                operation,
                size,
                sends_payload,
                calls: 0,
                errors: 0,
                payload_bytes: 0,
                latency_ns: metrics::latency::histogram(),
            });
            self.operations.len() - 1
        });
        &mut self.operations[at]
    }

    /// Calls answered.
    pub(crate) const fn calls(&self) -> u64 {
        self.read.calls + self.write.calls + self.metadata.calls
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
        for theirs in &other.operations {
            let ours = self.operation(theirs.operation, theirs.size, theirs.sends_payload);
            ours.calls += theirs.calls;
            ours.errors += theirs.errors;
            ours.payload_bytes += theirs.payload_bytes;
            // Both histograms have the same bounds.
            let _ = ours.latency_ns.add(&theirs.latency_ns);
        }
    }

    /// Bytes read and written.
    #[must_use]
    pub const fn payload_bytes(&self) -> u64 {
        self.read.bytes + self.write.bytes
    }

    /// The latencies of all operations.
    #[must_use]
    pub fn latency(&self) -> Latency {
        let mut all = Latency::default();
        self.operations.iter().for_each(|one| all.add(&Latency::of(&one.latency_ns)));
        all
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
    /// How long each of `status` has been in its state.
    pub ages: Vec<Duration>,
    /// For how long the path has been down in any loop, whatever was tried meanwhile.
    pub lost_for: Option<Duration>,
}

impl PathStatistics {
    /// The worst state that a loop sees the path in; `None` if no loop has used it.
    #[must_use]
    pub fn state(&self) -> Option<PathState> {
        self.status.iter().map(|status| status.state).max_by_key(|state| badness(*state))
    }

    /// The remote address, which stands for its node.
    fn node_name(&self) -> &str {
        self.name.rsplit(" to ").next().unwrap_or(&self.name)
    }

    /// What was called on the path, as a snapshot has it.
    pub fn operations(&self) -> impl Iterator<Item = (Key, Tally)> {
        let (name, node) = (Arc::<str>::from(self.name.as_str()), Arc::<str>::from(self.node_name()));
        self.counters.operations.iter().map(move |one| {
            let key = Key {
                node: Some(Arc::clone(&node)),
                path: Some(Arc::clone(&name)),
                operation: Some(one.operation.into()),
                size: Some(one.size),
                ..Key::default()
            };
            let (sent, received) =
                if one.sends_payload { (one.payload_bytes, 0) } else { (0, one.payload_bytes) };
            let tally = Tally {
                count: one.calls,
                errors: one.errors,
                replayed: 0,
                received_bytes: received,
                sent_bytes: sent,
                latency: Latency::of(&one.latency_ns),
            };
            (key, tally)
        })
    }

    /// The path as a snapshot has it: the worst state of all loops, and since when one of them sees
    /// it so. A path that is lost is tried again and again: it counts since it was lost.
    #[must_use]
    pub fn snapshot(&self) -> metrics::PathState {
        let worst = self.state();
        let ages = self.status.iter().zip(&self.ages).filter(|(status, _)| Some(status.state) == worst);
        let age = ages.map(|(_, age)| *age).max().unwrap_or_default();
        let is_lost = matches!(worst, Some(PathState::Down | PathState::Probing));
        let age = self.lost_for.filter(|_| is_lost).unwrap_or(age);
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let sum = |of: fn(&PathStatus) -> u64| self.status.iter().map(of).sum();
        let longest =
            |of: fn(&PathStatus) -> Duration| ms(self.status.iter().map(of).max().unwrap_or_default());
        metrics::PathState {
            name: self.name.clone(),
            node: self.node_name().to_owned(),
            state: worst.map_or("unused", PathState::name).to_owned(),
            since_ms: ms(age),
            failovers: sum(|status| status.failovers),
            moved_calls: sum(|status| status.moved_calls),
            retransmissions: self.counters.retransmissions,
            deaths: sum(|status| status.deaths),
            gap_worst_ms: longest(|status| status.gap_worst),
            gap_last_ms: longest(|status| status.gap_last),
        }
    }
}

const fn badness(state: PathState) -> u8 {
    match state {
        PathState::Up => 0,
        PathState::Suspect => 1,
        PathState::Probing => 2,
        PathState::Down => 3,
    }
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
    /// What the server has delegated to the mount.
    pub delegations: DelegationCounts,
    /// Counters of the RDMA connections, open and closed.
    pub rdma: transport::rdma::Counters,
    /// CPU time of the mount's loops.
    pub cpu: Duration,
    /// The thread ids of the loops: the CPU time of each can be read without asking the loops,
    /// which answer only when they get to it (`transport::threads`).
    pub threads: Vec<u32>,
    /// For how long the loop that has been silent longest has not answered; zero if all loops did.
    /// What is said of that loop is as old.
    pub silent_for: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Prints what `docs/MEASURING.md` says of the counters. The calls are of two kinds.
    #[test]
    fn what_counting_a_call_takes() {
        const CALLS: u64 = 1 << 20;
        let mut counters = PathCounters::default();
        let kinds = [(Class::Read, "READ", 4096), (Class::Write, "WRITE", 1 << 20)];
        let start = std::time::Instant::now();
        for call in 0..CALLS {
            let (class, operation, bytes) = std::hint::black_box(kinds[(call % 2) as usize]);
            counters.record(class, operation, bytes, false, Duration::from_nanos(10_000 + call % 4096));
        }
        println!("{:.1} ns for a call", start.elapsed().as_nanos() as f64 / CALLS as f64);
        assert_eq!(counters.calls(), CALLS);
        assert_eq!(counters.operations.iter().map(|one| one.latency_ns.len()).sum::<u64>(), CALLS);
    }
}
