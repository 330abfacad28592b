//! The counters of the server: per node, connection and procedure.
//!
//! Each loop owns the counters of its connections, and no other thread touches them; a reader sends
//! a message, and every loop answers with a copy. Counts are kept for each connection; latencies
//! are kept for each node, on each loop. The latency of a call is the time from the receive that
//! brought it to the end of the send that took its reply (or found the peer's window full): calls
//! received together share it.

mod tables;

use hdrhistogram::Histogram;
use std::net::SocketAddr;
use std::time::Duration;
use tables::Tables;
pub(crate) use tables::{Names, Slot};

// Latencies are kept from 64 ns to a minute, within 6 %: 3 KiB for each procedure that a node's
// clients used.
const LATENCY_NS_MIN: u64 = 64;
const LATENCY_NS_MAX: u64 = 60_000_000_000;
const LATENCY_DIGITS: u8 = 1;

/// How often one procedure was called, and what that moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Calls answered.
    pub count: u64,
    /// Of these, with another status than OK.
    pub errors: u64,
    /// Of these, from the reply cache.
    pub replayed: u64,
    /// Bytes of the calls, payload included, record marks not.
    pub received_bytes: u64,
    /// Bytes of the replies, payload included, record marks not.
    pub sent_bytes: u64,
}

impl Counts {
    fn count(&mut self, end: &CallEnd) {
        self.count += 1;
        self.errors += u64::from(end.error);
        self.replayed += u64::from(end.replayed);
        self.received_bytes += end.received_bytes as u64;
        self.sent_bytes += end.sent_bytes as u64;
    }

    fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.errors += other.errors;
        self.replayed += other.replayed;
        self.received_bytes += other.received_bytes;
        self.sent_bytes += other.sent_bytes;
    }
}

/// What one procedure did.
#[derive(Debug, Clone)]
pub struct ProcedureStatistics {
    /// Calls answered.
    pub count: u64,
    /// Of these, with another status than OK.
    pub errors: u64,
    /// Of these, from the reply cache.
    pub replayed: u64,
    /// Bytes of the calls, payload included, record marks not.
    pub received_bytes: u64,
    /// Bytes of the replies, payload included, record marks not.
    pub sent_bytes: u64,
    /// Nanoseconds from receive to reply.
    pub latency_ns: Histogram<u64>,
}

impl ProcedureStatistics {
    fn new() -> Self {
        let latency_ns = Histogram::new_with_bounds(LATENCY_NS_MIN, LATENCY_NS_MAX, LATENCY_DIGITS)
            .expect("the bounds are constants that the crate allows");
        Self { count: 0, errors: 0, replayed: 0, received_bytes: 0, sent_bytes: 0, latency_ns }
    }

    fn add_counts(&mut self, other: &Counts) {
        self.count += other.count;
        self.errors += other.errors;
        self.replayed += other.replayed;
        self.received_bytes += other.received_bytes;
        self.sent_bytes += other.sent_bytes;
    }

    /// Adds another's counts.
    pub fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.errors += other.errors;
        self.replayed += other.replayed;
        self.received_bytes += other.received_bytes;
        self.sent_bytes += other.sent_bytes;
        // Both have the same bounds, so that nothing can be out of range.
        let _ = self.latency_ns.add(&other.latency_ns);
    }
}

/// Counters by procedure; a procedure that was never called takes no memory.
#[derive(Debug, Clone, Default)]
pub struct Procedures(Tables<Option<Box<ProcedureStatistics>>>);

impl Procedures {
    /// The procedures that were called, with their names.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &ProcedureStatistics)> {
        self.0.iter().filter_map(|(name, slot)| slot.as_deref().map(|slot| (name, slot)))
    }

    /// One procedure by its name, when it was called.
    #[must_use]
    pub fn of(&self, name: &str) -> Option<&ProcedureStatistics> {
        self.iter().find(|(other, _)| *other == name).map(|(_, statistics)| statistics)
    }

    /// Calls in all.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.iter().map(|(_, statistics)| statistics.count).sum()
    }

    /// Adds another's counts.
    pub fn add(&mut self, other: &Self) {
        for (slot, other) in other.0.slots() {
            if let Some(other) = other
                && let Some(slot) = self.slot(slot)
            {
                slot.add(other);
            }
        }
    }

    /// Adds what a connection has counted.
    pub(crate) fn add_counts(&mut self, of: &ConnectionProcedures) {
        for (slot, counts) in of.0.slots() {
            if counts.count > 0
                && let Some(slot) = self.slot(slot)
            {
                slot.add_counts(counts);
            }
        }
    }

    /// Counts a call whose connection is gone.
    pub(crate) fn count(&mut self, end: &CallEnd) {
        if let Some(slot) = self.slot(end.slot) {
            let mut counts = Counts::default();
            counts.count(end);
            slot.add_counts(&counts);
        }
    }

    /// Records the latency of some calls.
    pub(crate) fn record(&mut self, slot: Slot, latency: Duration, calls: u16) {
        let latency_ns =
            u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX).clamp(LATENCY_NS_MIN, LATENCY_NS_MAX);
        if let Some(slot) = self.slot(slot) {
            slot.latency_ns.saturating_record_n(latency_ns, u64::from(calls));
        }
    }

    fn slot(&mut self, slot: Slot) -> Option<&mut ProcedureStatistics> {
        Some(self.0.entry(slot)?.get_or_insert_with(|| Box::new(ProcedureStatistics::new())))
    }
}

/// How one call ended, for the counters.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallEnd {
    pub slot: Slot,
    pub error: bool,
    pub replayed: bool,
    pub received_bytes: usize,
    pub sent_bytes: usize,
}

/// Counters of one connection by procedure: some hundred bytes once it has called anything.
#[derive(Debug, Clone, Default)]
pub struct ConnectionProcedures(Tables<Counts>);

impl ConnectionProcedures {
    /// The procedures that were called, with their names.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &Counts)> {
        self.0.iter().filter(|(_, counts)| counts.count > 0)
    }

    /// All of them in one.
    #[must_use]
    pub fn sum(&self) -> Counts {
        let mut sum = Counts::default();
        self.0.iter().for_each(|(_, counts)| sum.add(counts));
        sum
    }
}

/// Counters of one connection, and the calls of its current batch.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    procedures: ConnectionProcedures,
    refused: u64,
    /// Procedures called in this batch, which are few, and how often.
    batch: Vec<(Slot, u16)>,
}

impl Counters {
    #[inline]
    pub fn count(&mut self, end: &CallEnd) {
        match self.batch.iter_mut().find(|(slot, _)| *slot == end.slot) {
            Some((_, calls)) => *calls = calls.saturating_add(1),
            None => self.batch.push((end.slot, 1)),
        }
        self.count_single(end);
    }

    /// Counts a call that came back on its own and belongs to no batch.
    pub fn count_single(&mut self, end: &CallEnd) {
        if let Some(counts) = self.procedures.0.entry(end.slot) {
            counts.count(end);
        }
    }

    /// Counts a call that reached no procedure.
    pub fn count_refused(&mut self) {
        self.refused += 1;
    }

    /// Ends the batch: its calls took this long. The latency is kept with the node.
    pub fn end_batch(&mut self, latency: Duration, of_node: &mut Procedures) {
        for (slot, calls) in self.batch.drain(..) {
            of_node.record(slot, latency, calls);
        }
    }

    pub const fn procedures(&self) -> &ConnectionProcedures {
        &self.procedures
    }

    pub const fn refused(&self) -> u64 {
        self.refused
    }
}

/// One connection.
#[derive(Debug, Clone)]
pub struct ConnectionStatistics {
    /// Numbers the connections of a server.
    pub id: u64,
    /// The client's address.
    pub peer: SocketAddr,
    /// The address that the client connected to.
    pub local: SocketAddr,
    /// The loop that serves the connection.
    pub on_loop: usize,
    /// The connection has called for files within the last tenths of a second.
    pub busy: bool,
    /// How long it has been open.
    pub age: Duration,
    /// Time since the connection last received something.
    pub idle: Duration,
    /// Bytes of replies that wait until the client receives them.
    pub queued_bytes: usize,
    /// Calls that wait for their stores.
    pub pool_calls: usize,
    /// What was called.
    pub procedures: ConnectionProcedures,
}

/// One node.
#[derive(Debug, Clone, Default)]
pub struct NodeStatistics {
    /// Its name.
    pub name: String,
    /// Connections accepted since the start.
    pub accepted: u64,
    /// Calls that reached no procedure: unknown program, broken header, refused credential.
    pub refused_calls: u64,
    /// What was called since the start, on connections open and closed.
    pub procedures: Procedures,
    /// What connections over RDMA have done since the start, open and closed.
    pub rdma: transport::rdma::Counters,
    /// Connections that are open.
    pub connections: Vec<ConnectionStatistics>,
}

/// One event loop.
#[derive(Debug, Clone, Default)]
pub struct LoopStatistics {
    /// The system's thread number.
    pub thread: u32,
    /// CPU time its thread has used, in nanoseconds.
    pub cpu_ns: u64,
    /// Times it woke up.
    pub wakeups: u64,
    /// Times it slept too long and closed its connections unexecuted, or closed a connection that
    /// took as long to move from another loop.
    pub stalls: u64,
    /// Times it gave a connection to another loop.
    pub moved: u64,
    /// Connections that ended because their last call triggered a bug of the server.
    pub bugs: u64,
}

/// The statistics of the whole server at one point in time.
#[derive(Debug, Clone, Default)]
pub struct Statistics {
    /// The nodes, in the order of the configuration.
    pub nodes: Vec<NodeStatistics>,
    /// The loops.
    pub loops: Vec<LoopStatistics>,
}

/// The report of one loop.
#[derive(Debug, Default)]
pub(crate) struct LoopReport {
    pub index: usize,
    pub statistics: LoopStatistics,
    pub nodes: Vec<NodeStatistics>,
}

impl Statistics {
    pub(crate) fn new(names: impl Iterator<Item = String>, reports: Vec<LoopReport>) -> Self {
        let nodes = names.map(|name| NodeStatistics { name, ..NodeStatistics::default() }).collect();
        let mut whole = Self { nodes, loops: Vec::with_capacity(reports.len()) };
        for report in reports {
            whole.loops.push(report.statistics);
            for (node, part) in whole.nodes.iter_mut().zip(report.nodes) {
                node.accepted += part.accepted;
                node.refused_calls += part.refused_calls;
                node.procedures.add(&part.procedures);
                node.rdma.add(&part.rdma);
                node.connections.extend(part.connections);
            }
        }
        whole
    }

    /// CPU time of all loops, in nanoseconds.
    #[must_use]
    pub fn cpu_ns(&self) -> u64 {
        self.loops.iter().map(|one| one.cpu_ns).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(procedure: u32) -> Slot {
        Slot::new(0, &["NULL", "READ", "WRITE"], procedure).unwrap()
    }

    fn end(slot: Slot) -> CallEnd {
        CallEnd { slot, error: false, replayed: false, received_bytes: 100, sent_bytes: 200 }
    }

    #[test]
    fn calls_of_a_batch_share_its_latency() {
        let (mut counters, mut procedures) = (Counters::default(), Procedures::default());
        let (read, write) = (slot(1), slot(2));
        counters.count(&end(read));
        counters.count(&CallEnd { error: true, ..end(read) });
        counters.count(&end(write));
        counters.end_batch(Duration::from_micros(10), &mut procedures);
        counters.count(&end(read));
        counters.end_batch(Duration::from_millis(1), &mut procedures);
        procedures.add_counts(counters.procedures());
        let of_read = procedures.of("READ").unwrap();
        assert_eq!(
            (of_read.count, of_read.errors, of_read.received_bytes, of_read.sent_bytes),
            (3, 1, 300, 600)
        );
        assert_eq!(of_read.latency_ns.len(), 3);
        assert!(of_read.latency_ns.equivalent(of_read.latency_ns.value_at_quantile(0.5), 10_000));
        assert_eq!(procedures.of("WRITE").unwrap().latency_ns.len(), 1);
        assert!(procedures.of("NULL").is_none());
        assert_eq!(counters.procedures().sum().count, 4);
    }

    #[test]
    fn the_whole_is_the_sum_of_its_loops() {
        let mut counters = Counters::default();
        counters.count(&end(slot(0)));
        let node = || {
            let mut node = NodeStatistics { accepted: 1, ..Default::default() };
            node.procedures.add_counts(counters.procedures());
            node
        };
        let report = |index| LoopReport { index, nodes: vec![node()], ..Default::default() };
        let whole = Statistics::new(["a".to_owned()].into_iter(), vec![report(0), report(1)]);
        assert_eq!(whole.nodes[0].name, "a");
        assert_eq!(whole.nodes[0].accepted, 2);
        assert_eq!(whole.nodes[0].procedures.calls(), 2);
    }
}
