//! Calls by client: for each node and client, by export, procedure and size of payload. A client is
//! an IPv4 address, or an IPv6 network of 64 bits, of which one host may use any address.
//!
//! Each loop has a table of its own. An entry stays when the client's connections end, until the
//! table is full and a new client needs its place. Then what it counted goes to the others of its
//! node, so that no sum ever falls. Addresses that no export admits are always among the others: a
//! stranger takes no place.
//!
//! The memory is bounded: a client makes a cell for each kind of call that it sends, and when all
//! clients together have [`CELLS_MAX`], calls of further kinds are counted with the others. How
//! many cells the others have depends on the configuration only.

use super::files::{FileCall, FileReport, FileTable};
use super::tables::Tables;
use super::{CallEnd, Counts, FileId, ProcedureStatistics, Slot};
use crate::address::network_of;
use crate::client::Client;
use metrics::SizeClass;
use slab::Slab;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

/// The number of clients that a loop tells apart.
const CLIENTS_MAX: usize = 512;
/// Cells of all these clients on a loop, of 4 KiB each: 32 MiB, or 16 kinds of calls for each of
/// the clients.
const CELLS_MAX: usize = 8192;

/// Where a connection's calls are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientKey {
    /// With its client's.
    Client(usize),
    /// With the others of its node.
    Others(usize),
}

/// Calls that are counted together, except for what tells them apart within a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CallKind {
    pub slot: Slot,
    /// The fsid of the export that the call was about.
    pub export: Option<u32>,
    pub size: SizeClass,
}

impl CallKind {
    pub fn of(end: &CallEnd) -> Self {
        Self {
            slot: end.slot,
            export: end.file.map(|file| file.export),
            size: SizeClass::of(end.payload_bytes),
        }
    }
}

/// The procedures of one export, and within a procedure the sizes.
type Cells = Tables<SmallVec<[(SizeClass, Box<ProcedureStatistics>); 1]>>;

/// The calls of one client, by export.
#[derive(Debug, Default)]
struct Calls(SmallVec<[(Option<u32>, Cells); 1]>);

impl Calls {
    /// The cell of calls of this kind, if there have been any.
    fn existing(&mut self, kind: CallKind) -> Option<&mut ProcedureStatistics> {
        let (_, cells) = self.0.iter_mut().find(|(export, _)| *export == kind.export)?;
        let (_, cell) = cells.existing(kind.slot)?.iter_mut().find(|(size, _)| *size == kind.size)?;
        Some(cell)
    }

    /// The same, made if necessary.
    fn cell(&mut self, kind: CallKind) -> Option<&mut ProcedureStatistics> {
        let at = self.0.iter().position(|(export, _)| *export == kind.export).unwrap_or_else(|| {
            self.0.push((kind.export, Cells::default()));
            self.0.len() - 1
        });
        let sizes = self.0.get_mut(at)?.1.entry(kind.slot)?;
        let at = sizes.iter().position(|(size, _)| *size == kind.size).unwrap_or_else(|| {
            sizes.push((kind.size, Box::new(ProcedureStatistics::new())));
            sizes.len() - 1
        });
        sizes.get_mut(at).map(|(_, cell)| &mut **cell)
    }

    fn iter(&self) -> impl Iterator<Item = (CallKind, &ProcedureStatistics)> {
        self.0.iter().flat_map(|(export, cells)| {
            cells.slots().flat_map(move |(slot, sizes)| {
                let kind = move |size| CallKind { slot, export: *export, size };
                sizes.iter().map(move |(size, cell)| (kind(*size), &**cell))
            })
        })
    }

    fn add(&mut self, other: &Self) {
        for (kind, cell) in other.iter() {
            if let Some(own) = self.cell(kind) {
                own.add(cell);
            }
        }
    }
}

#[derive(Debug)]
struct Entry {
    node: usize,
    network: IpAddr,
    /// The number of open connections on this loop.
    connections: usize,
    /// When the last connection ended.
    left: Duration,
    calls: Calls,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct ClientTable {
    entries: Slab<Entry>,
    by_network: HashMap<(usize, IpAddr), usize>,
    /// Cells of all entries.
    cells: usize,
    /// By node.
    others: Vec<Calls>,
    /// The calls by file, while somebody asks for them.
    files: Option<Box<FileTable>>,
}

/// What calls of one kind did, by one client on one loop.
#[derive(Debug)]
pub(crate) struct ClientReport {
    pub node: usize,
    /// The client's address, or the first address of its network; `None` for the others.
    pub network: Option<IpAddr>,
    pub kind: CallKind,
    pub statistics: ProcedureStatistics,
}

impl ClientTable {
    pub fn new(nodes: usize) -> Self {
        let others = (0..nodes).map(|_| Calls::default()).collect();
        Self { entries: Slab::new(), by_network: HashMap::new(), cells: 0, others, files: None }
    }

    /// Enters a connection; leave with the key.
    pub fn enter(&mut self, client: &Client) -> ClientKey {
        let (node, network) = (client.node, network_of(client.peer.ip()));
        let known = self.by_network.get(&(node, network)).copied();
        if known.is_none() && (client.admitted.is_empty() || !self.make_place()) {
            return ClientKey::Others(node);
        }
        let key = known.unwrap_or_else(|| {
            let calls = Calls::default();
            self.entries.insert(Entry { node, network, connections: 0, left: Duration::ZERO, calls })
        });
        self.by_network.insert((node, network), key);
        if let Some(entry) = self.entries.get_mut(key) {
            entry.connections += 1;
        }
        ClientKey::Client(key)
    }

    /// A connection has ended, or has moved to another loop.
    pub fn leave(&mut self, key: ClientKey, now: Duration) {
        if let ClientKey::Client(key) = key
            && let Some(entry) = self.entries.get_mut(key)
        {
            entry.connections = entry.connections.saturating_sub(1);
            entry.left = now;
        }
    }

    /// Makes a place for a client, and room for cells, if there is none, by folding the client that
    /// has been gone longest. Returns false if there is no place.
    fn make_place(&mut self) -> bool {
        if self.entries.len() >= CLIENTS_MAX || self.cells >= CELLS_MAX {
            self.fold_gone();
        }
        self.entries.len() < CLIENTS_MAX
    }

    fn fold_gone(&mut self) {
        let gone = self.entries.iter().filter(|(_, entry)| entry.connections == 0);
        let Some((key, _)) = gone.min_by_key(|(_, entry)| entry.left) else { return };
        let entry = self.entries.remove(key);
        self.by_network.remove(&(entry.node, entry.network));
        self.cells = self.cells.saturating_sub(entry.calls.iter().count());
        if let Some(others) = self.others.get_mut(entry.node) {
            others.add(&entry.calls);
        }
    }

    /// The cell of a client's calls of this kind; once there are too many cells, that of the others
    /// of its node.
    fn cell(&mut self, key: ClientKey, kind: CallKind) -> Option<&mut ProcedureStatistics> {
        let node = match key {
            ClientKey::Others(node) => node,
            ClientKey::Client(key) => {
                let entry = self.entries.get_mut(key)?;
                let is_new = entry.calls.existing(kind).is_none();
                if !is_new || self.cells < CELLS_MAX {
                    self.cells += usize::from(is_new);
                    return entry.calls.cell(kind);
                }
                entry.node
            }
        };
        self.others.get_mut(node)?.cell(kind)
    }

    /// Counts calls of one kind that ended together, `latency` after they were received.
    pub fn count(&mut self, key: ClientKey, kind: CallKind, counts: &Counts, latency: Duration) {
        if let Some(cell) = self.cell(key, kind) {
            cell.add_counts(counts);
            let ns = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
            cell.latency_ns.saturating_record_n(metrics::latency::clamped(ns), counts.count);
        }
    }

    /// Counts a call that came back on its own.
    pub fn count_single(&mut self, key: ClientKey, end: &CallEnd, latency: Duration) {
        let mut counts = Counts::default();
        counts.count(end);
        self.count(key, CallKind::of(end), &counts, latency);
        if let Some(file) = end.file.filter(|_| self.counts_files()) {
            self.count_file(key, CallKind::of(end), file, &counts);
        }
    }

    /// Whether calls are counted by file.
    #[inline]
    pub const fn counts_files(&self) -> bool {
        self.files.is_some()
    }

    /// Counts calls of one kind of a file.
    pub fn count_file(&mut self, key: ClientKey, kind: CallKind, file: FileId, counts: &Counts) {
        let (node, network) = match key {
            ClientKey::Others(node) => (node, None),
            ClientKey::Client(key) => match self.entries.get(key) {
                Some(entry) => (entry.node, Some(entry.network)),
                None => return,
            },
        };
        if let Some(files) = &mut self.files {
            files.count(file, FileCall { node, network, kind }, counts);
        }
    }

    /// Counts calls by file for this time at least.
    pub fn watch_files(&mut self, now: Duration, time: Duration) {
        self.files.get_or_insert_with(|| Box::new(FileTable::new(now))).watch(now, time);
    }

    /// Ends counting by file if nobody asks for that any more.
    pub fn end_watch(&mut self, now: Duration) {
        self.files.take_if(|files| files.is_over(now));
    }

    /// For how long calls have been counted by file, and a copy of these calls.
    pub fn report_files(&mut self, now: Duration) -> Option<(Duration, Vec<FileReport>)> {
        self.files.as_mut().map(|files| (files.age(now), files.report(now)))
    }

    /// A copy of everything.
    pub fn report(&self) -> Vec<ClientReport> {
        let clients = self.entries.iter().map(|(_, entry)| (entry.node, Some(entry.network), &entry.calls));
        let others = self.others.iter().enumerate().map(|(node, calls)| (node, None, calls));
        let reports = clients.chain(others).flat_map(|(node, network, calls)| {
            let report = move |(kind, cell): (CallKind, &ProcedureStatistics)| ClientReport {
                node,
                network,
                kind,
                statistics: cell.clone(),
            };
            calls.iter().map(report)
        });
        reports.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::Exports;
    use std::net::Ipv4Addr;
    use std::sync::Arc;

    fn read() -> CallKind {
        CallKind { slot: Slot::new(0, &["READ"], 0).unwrap(), export: Some(7), size: SizeClass::To4K }
    }

    fn client(number: u32, is_admitted: bool) -> Client {
        client_at(Ipv4Addr::from_bits(0x0a00_0000 + number).into(), is_admitted)
    }

    fn client_at(address: IpAddr, is_admitted: bool) -> Client {
        let config = crate::Config::quick(1 << 20, "/export", &[(address, 2049).into()]);
        let exports = Arc::new(Exports::new(&config, |_| None).unwrap());
        let from = if is_admitted { address } else { IpAddr::from(Ipv4Addr::new(192, 0, 2, 1)) };
        Client::new(1, 0, (from, 900).into(), (address, 2049).into(), exports)
    }

    fn count(table: &mut ClientTable, key: ClientKey, calls: u64) {
        let counts = Counts { count: calls, ..Counts::default() };
        table.count(key, read(), &counts, Duration::from_micros(100));
    }

    fn of(table: &ClientTable, network: Option<IpAddr>) -> u64 {
        let of_client = table.report().into_iter().filter(|report| report.network == network);
        of_client.map(|report| report.statistics.count).sum()
    }

    #[test]
    fn calls_are_counted_with_their_client_after_its_connection_ended() {
        let mut table = ClientTable::new(1);
        let one = client(1, true);
        let key = table.enter(&one);
        count(&mut table, key, 5);
        table.leave(key, Duration::ZERO);
        let again = table.enter(&one);
        count(&mut table, again, 2);
        assert_eq!(of(&table, Some(one.peer.ip())), 7);
        let report = table.report();
        assert_eq!((report.len(), report[0].kind, report[0].statistics.latency_ns.len()), (1, read(), 7));
    }

    #[test]
    fn strangers_and_those_who_find_no_place_are_the_others() {
        let mut table = ClientTable::new(1);
        let stranger = table.enter(&client(1, false));
        count(&mut table, stranger, 1);
        let keys: Vec<_> =
            (0..=CLIENTS_MAX as u32).map(|number| table.enter(&client(number, true))).collect();
        keys.iter().for_each(|key| count(&mut table, *key, 1));
        // The stranger, and the one more than there are places.
        assert_eq!(of(&table, None), 2);
        // One leaves, so that a new client takes its place; nothing is lost.
        table.leave(keys[3], Duration::from_secs(1));
        let late = client(70_000, true);
        let key = table.enter(&late);
        count(&mut table, key, 1);
        assert_eq!((of(&table, None), of(&table, Some(late.peer.ip()))), (3, 1));
        let all: u64 = table.report().iter().map(|report| report.statistics.count).sum();
        assert_eq!(all, CLIENTS_MAX as u64 + 3);
    }

    #[test]
    fn the_addresses_of_an_ipv6_network_are_one_client() {
        let mut table = ClientTable::new(1);
        let mut enter = |address: &str| table.enter(&client_at(address.parse().unwrap(), true));
        let key = enter("fd00::1");
        assert_eq!(enter("fd00::2:3"), key);
        assert_ne!(enter("fd00:0:0:1::1"), key);
        count(&mut table, key, 3);
        assert_eq!(of(&table, Some("fd00::".parse().unwrap())), 3);
    }

    #[test]
    fn cells_of_clients_are_bounded_and_further_calls_are_counted_with_the_others() {
        const KINDS: u32 = (CELLS_MAX / CLIENTS_MAX) as u32 + 1;
        let mut table = ClientTable::new(1);
        let clients = CLIENTS_MAX as u32;
        let keys: Vec<_> = (0..clients).map(|number| table.enter(&client(number, true))).collect();
        let mut count = |key, export, calls| {
            let counts = Counts { count: calls, ..Counts::default() };
            table.count(key, CallKind { export: Some(export), ..read() }, &counts, Duration::ZERO);
        };
        for export in 0..KINDS {
            keys.iter().for_each(|key| count(*key, export, 1));
        }
        count(keys[0], 0, 5);
        let others = of(&table, None);
        assert_eq!(others, u64::from(clients), "the last kind of all clients");
        assert_eq!(of(&table, Some(client(0, true).peer.ip())), u64::from(KINDS) - 1 + 5);
        assert_eq!(table.report().len(), CELLS_MAX + 1);
        // A client that has gone makes room for a new one.
        table.leave(keys[1], Duration::from_secs(1));
        let late = client(70_000, true);
        let key = table.enter(&late);
        table.count(key, read(), &Counts { count: 1, ..Counts::default() }, Duration::ZERO);
        assert_eq!(of(&table, Some(late.peer.ip())), 1);
        let all: u64 = table.report().iter().map(|report| report.statistics.count).sum();
        assert_eq!(all, u64::from(clients * KINDS) + 6);
    }
}
