//! The counters of the server: per node, connection and procedure.
//!
//! Each loop owns the counters of its connections and clients, and no other thread touches them; a
//! reader sends a message, and every loop answers with a copy. Counts are kept for each connection,
//! counts and latencies for each client (`clients`). The latency of a call is the time from the
//! receive that brought it to the end of the send that took its reply (or found the peer's window
//! full): calls received together share it.

mod clients;
mod files;
mod operations;
mod tables;

use clients::CallKind;
pub(crate) use clients::{ClientKey, ClientReport, ClientTable};
pub(crate) use files::FileReport;
use hdrhistogram::Histogram;
pub use operations::{CallStatistics, FileStatistics};
use smallvec::SmallVec;
use std::net::SocketAddr;
use std::time::Duration;
use store::ObjectId;
use tables::Tables;
pub(crate) use tables::{Names, Slot};

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
        let latency_ns = metrics::latency::histogram();
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

    /// Adds calls of a procedure.
    fn add(&mut self, slot: Slot, calls: &ProcedureStatistics) {
        if let Some(slot) = self.slot(slot) {
            slot.add(calls);
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
    /// The data that it read or wrote.
    pub payload_bytes: u64,
    /// The object that it was about.
    pub file: Option<FileId>,
}

/// An object and the fsid of its export.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct FileId {
    pub export: u32,
    pub object: ObjectId,
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
    /// The kinds of calls in this batch, which are few, and what they did. While calls are counted
    /// by file, those of each file are apart.
    batch: SmallVec<[(CallKind, Option<FileId>, Counts); 2]>,
    /// Whether calls are counted by file.
    pub counts_files: bool,
}

impl Counters {
    #[inline]
    pub fn count(&mut self, end: &CallEnd) {
        let kind = CallKind::of(end);
        let file = end.file.filter(|_| self.counts_files);
        match self.batch.iter_mut().find(|(other, of, _)| *other == kind && *of == file) {
            Some((_, _, counts)) => counts.count(end),
            None => {
                let mut counts = Counts::default();
                counts.count(end);
                self.batch.push((kind, file, counts));
            }
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

    /// Ends the batch: its calls took this long.
    pub fn end_batch(&mut self, latency: Duration, client: ClientKey, clients: &mut ClientTable) {
        for (kind, file, counts) in self.batch.drain(..) {
            clients.count(client, kind, &counts, latency);
            if let Some(file) = file {
                clients.count_file(client, kind, file, &counts);
            }
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
    /// The calls of all nodes, told apart as finely as they are counted.
    pub calls: Vec<CallStatistics>,
    /// Memory held for clients: unfinished records, and replies that wait to be received.
    pub held_bytes: usize,
    /// The bound of `held_bytes`.
    pub held_bytes_max: usize,
    /// The calls by file, if they were asked for.
    pub files: Option<FileStatistics>,
}

/// The report of one loop.
#[derive(Debug, Default)]
pub(crate) struct LoopReport {
    pub index: usize,
    pub statistics: LoopStatistics,
    pub nodes: Vec<NodeStatistics>,
    pub clients: Vec<ClientReport>,
    /// For how long calls have been counted by file, and these calls.
    pub files: Option<(Duration, Vec<FileReport>)>,
}

/// Finds the path of a file within its export.
pub(crate) type PathOf<'a> = &'a dyn Fn(FileId) -> Option<String>;

impl Statistics {
    /// `exports` has the path of each export with its fsid.
    pub(crate) fn new(
        names: impl Iterator<Item = String>,
        exports: &[(u32, String)],
        path_of: PathOf<'_>,
        reports: Vec<LoopReport>,
    ) -> Self {
        let nodes = names.map(|name| NodeStatistics { name, ..NodeStatistics::default() }).collect();
        let mut whole = Self { nodes, loops: Vec::with_capacity(reports.len()), ..Self::default() };
        let mut calls = operations::Merge::new(exports);
        let mut files = operations::MergeFiles::new(exports, path_of);
        for report in reports {
            whole.loops.push(report.statistics);
            for (node, part) in whole.nodes.iter_mut().zip(report.nodes) {
                node.accepted += part.accepted;
                node.refused_calls += part.refused_calls;
                node.rdma.add(&part.rdma);
                node.connections.extend(part.connections);
            }
            if let Some((age, rows)) = report.files {
                files.add(age, rows, &whole.nodes);
            }
            for client in report.clients {
                if let Some(node) = whole.nodes.get_mut(client.node) {
                    node.procedures.add(client.kind.slot, &client.statistics);
                    calls.add(&node.name, client);
                }
            }
        }
        whole.calls = calls.finish();
        whole.files = files.finish();
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
        CallEnd {
            slot,
            error: false,
            replayed: false,
            received_bytes: 100,
            sent_bytes: 4296,
            payload_bytes: 4096,
            file: Some(FileId { export: 7, object: ObjectId::new(1, 1) }),
        }
    }

    /// What one loop reports of node 0, whose calls these are.
    fn report(index: usize, clients: &ClientTable) -> LoopReport {
        let node = NodeStatistics { accepted: 1, ..Default::default() };
        LoopReport { index, nodes: vec![node], clients: clients.report(), ..Default::default() }
    }

    fn whole(reports: Vec<LoopReport>) -> Statistics {
        let path_of = |file: FileId| (file.object.fileid == 1).then(|| "/dir/file".to_owned());
        Statistics::new(["a".to_owned()].into_iter(), &[(7, "/export".to_owned())], &path_of, reports)
    }

    #[test]
    fn calls_of_a_batch_share_its_latency() {
        let (mut counters, mut clients) = (Counters::default(), ClientTable::new(1));
        let (read, write) = (slot(1), slot(2));
        counters.count(&end(read));
        counters.count(&CallEnd { error: true, ..end(read) });
        counters.count(&end(write));
        counters.end_batch(Duration::from_micros(10), ClientKey::Others(0), &mut clients);
        counters.count(&end(read));
        counters.end_batch(Duration::from_millis(1), ClientKey::Others(0), &mut clients);
        let statistics = whole(vec![report(0, &clients)]);
        let procedures = &statistics.nodes[0].procedures;
        let of_read = procedures.of("READ").unwrap();
        assert_eq!(
            (of_read.count, of_read.errors, of_read.received_bytes, of_read.sent_bytes),
            (3, 1, 300, 12888)
        );
        assert_eq!(of_read.latency_ns.len(), 3);
        assert!(of_read.latency_ns.equivalent(of_read.latency_ns.value_at_quantile(0.5), 10_000));
        assert_eq!(procedures.of("WRITE").unwrap().latency_ns.len(), 1);
        assert!(procedures.of("NULL").is_none());
        assert_eq!(counters.procedures().sum().count, 4);
    }

    #[test]
    fn the_whole_is_the_sum_of_its_loops_and_told_apart_by_client_export_and_size() {
        let mut clients = ClientTable::new(1);
        clients.count_single(ClientKey::Others(0), &end(slot(1)), Duration::from_micros(10));
        let large = CallEnd { payload_bytes: 1 << 20, file: None, ..end(slot(1)) };
        clients.count_single(ClientKey::Others(0), &large, Duration::from_micros(10));
        let whole = whole(vec![report(0, &clients), report(1, &clients)]);
        assert_eq!(whole.nodes[0].name, "a");
        assert_eq!(whole.nodes[0].accepted, 2);
        assert_eq!(whole.nodes[0].procedures.calls(), 4);
        let operations = whole.operations();
        let found = operations.iter().map(|(key, tally)| (key.export.as_deref(), key.size, tally.count));
        let expected =
            [(None, Some(metrics::SizeClass::To1M), 2), (Some("/export"), Some(metrics::SizeClass::To4K), 2)];
        assert!(found.eq(expected), "{operations:?}");
        assert!(operations.iter().all(|(key, _)| key.client.as_deref() == Some("others")));
    }

    #[test]
    fn calls_are_told_apart_by_file_while_somebody_asks() {
        let mut counters = Counters::default();
        let mut clients = ClientTable::new(1);
        let mut batch = |clients: &mut ClientTable| {
            counters.counts_files = clients.counts_files();
            counters.count(&end(slot(1)));
            let other = FileId { export: 7, object: ObjectId::new(2, 1) };
            counters.count(&CallEnd { file: Some(other), ..end(slot(1)) });
            counters.end_batch(Duration::from_micros(10), ClientKey::Others(0), clients);
        };
        batch(&mut clients);
        clients.watch_files(Duration::from_secs(1), Duration::from_secs(10));
        batch(&mut clients);
        batch(&mut clients);
        let report = |clients: &mut ClientTable, now| {
            let files = clients.report_files(Duration::from_secs(now));
            whole(vec![LoopReport { files, ..report(0, clients) }])
        };
        let statistics = report(&mut clients, 3);
        assert_eq!(statistics.nodes[0].procedures.calls(), 6);
        let files = statistics.files.unwrap();
        assert_eq!(files.age, Duration::from_secs(2));
        let rows = files.operations.iter().map(|(key, tally)| (key.file.as_deref().unwrap(), tally.count));
        assert_eq!(rows.collect::<Vec<_>>(), [("/export, fileid 2", 2), ("/export/dir/file", 2)]);
        clients.end_watch(Duration::from_secs(12));
        assert!(report(&mut clients, 12).files.is_none() && !clients.counts_files());
    }

    /// Prints what `docs/MEASURING.md` says of the counters. The calls of a batch are of two kinds.
    #[test]
    fn what_counting_a_call_takes() {
        const CALLS: usize = 1 << 20;
        for (by_file, batch) in [(false, 1), (false, 16), (true, 1), (true, 16)] {
            let mut clients = ClientTable::new(1);
            let mut counters = Counters { counts_files: by_file, ..Counters::default() };
            let ends = [end(slot(1)), CallEnd { payload_bytes: 1 << 20, ..end(slot(2)) }];
            let start = std::time::Instant::now();
            for round in 0..CALLS / batch {
                for call in 0..batch {
                    counters.count(std::hint::black_box(&ends[call % ends.len()]));
                }
                let latency = Duration::from_nanos(10_000 + round as u64 % 4096);
                counters.end_batch(latency, ClientKey::Others(0), &mut clients);
            }
            let taken = start.elapsed().as_nanos() as f64 / CALLS as f64;
            println!("batches of {batch}, by file {by_file}: {taken:.1} ns for a call");
            assert_eq!(clients.report().iter().map(|one| one.statistics.count).sum::<u64>(), CALLS as u64);
        }
    }
}
