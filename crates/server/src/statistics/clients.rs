//! Calls by client: for each node and client address, by export, procedure and size of payload.
//!
//! Each loop has a table of its own. An entry stays when the client's connections end, until the
//! table is full and a new client needs its place. Then what it counted goes to the others of its
//! node, so that no sum ever falls. Addresses that no export admits are always among the others: a
//! stranger takes no place.

use super::tables::Tables;
use super::{CallEnd, Counts, ProcedureStatistics, Slot};
use crate::client::Client;
use metrics::SizeClass;
use slab::Slab;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

/// The number of clients that a loop tells apart: of clients that use ten procedures each, they
/// take 20 MiB.
const CLIENTS_MAX: usize = 512;

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
        Self { slot: end.slot, export: end.export, size: SizeClass::of(end.payload_bytes) }
    }
}

/// The procedures of one export, and within a procedure the sizes.
type Cells = Tables<SmallVec<[(SizeClass, Box<ProcedureStatistics>); 1]>>;

/// The calls of one client, by export.
#[derive(Debug, Default)]
struct Calls(SmallVec<[(Option<u32>, Cells); 1]>);

impl Calls {
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
    address: IpAddr,
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
    by_address: HashMap<(usize, IpAddr), usize>,
    /// By node.
    others: Vec<Calls>,
}

/// What calls of one kind did, by one client on one loop.
#[derive(Debug)]
pub(crate) struct ClientReport {
    pub node: usize,
    /// `None` for the others.
    pub address: Option<IpAddr>,
    pub kind: CallKind,
    pub statistics: ProcedureStatistics,
}

impl ClientTable {
    pub fn new(nodes: usize) -> Self {
        let others = (0..nodes).map(|_| Calls::default()).collect();
        Self { entries: Slab::new(), by_address: HashMap::new(), others }
    }

    /// Enters a connection; leave with the key.
    pub fn enter(&mut self, client: &Client) -> ClientKey {
        let (node, address) = (client.node, client.peer.ip().to_canonical());
        let known = self.by_address.get(&(node, address)).copied();
        if known.is_none() && (client.admitted.is_empty() || !self.make_place()) {
            return ClientKey::Others(node);
        }
        let key = known.unwrap_or_else(|| {
            let calls = Calls::default();
            self.entries.insert(Entry { node, address, connections: 0, left: Duration::ZERO, calls })
        });
        self.by_address.insert((node, address), key);
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

    /// Makes a place for a client, if there is none, by folding the one that has been gone longest.
    fn make_place(&mut self) -> bool {
        if self.entries.len() < CLIENTS_MAX {
            return true;
        }
        let gone = self.entries.iter().filter(|(_, entry)| entry.connections == 0);
        let Some((key, _)) = gone.min_by_key(|(_, entry)| entry.left) else { return false };
        let entry = self.entries.remove(key);
        self.by_address.remove(&(entry.node, entry.address));
        if let Some(others) = self.others.get_mut(entry.node) {
            others.add(&entry.calls);
        }
        true
    }

    /// Counts calls of one kind that ended together, `latency` after they were received.
    pub fn count(&mut self, key: ClientKey, kind: CallKind, counts: &Counts, latency: Duration) {
        let calls = match key {
            ClientKey::Client(key) => self.entries.get_mut(key).map(|entry| &mut entry.calls),
            ClientKey::Others(node) => self.others.get_mut(node),
        };
        if let Some(cell) = calls.and_then(|calls| calls.cell(kind)) {
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
    }

    /// A copy of everything.
    pub fn report(&self) -> Vec<ClientReport> {
        let clients = self.entries.iter().map(|(_, entry)| (entry.node, Some(entry.address), &entry.calls));
        let others = self.others.iter().enumerate().map(|(node, calls)| (node, None, calls));
        let reports = clients.chain(others).flat_map(|(node, address, calls)| {
            let report = move |(kind, cell): (CallKind, &ProcedureStatistics)| ClientReport {
                node,
                address,
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
        let address = IpAddr::from(Ipv4Addr::from_bits(0x0a00_0000 + number));
        let config = crate::Config::quick(1 << 20, "/export", &[(address, 2049).into()]);
        let exports = Arc::new(Exports::new(&config, |_| None).unwrap());
        let from = if is_admitted { address } else { IpAddr::from(Ipv4Addr::new(192, 0, 2, 1)) };
        Client::new(1, 0, (from, 900).into(), (address, 2049).into(), exports)
    }

    fn count(table: &mut ClientTable, key: ClientKey, calls: u64) {
        let counts = Counts { count: calls, ..Counts::default() };
        table.count(key, read(), &counts, Duration::from_micros(100));
    }

    fn of(table: &ClientTable, address: Option<IpAddr>) -> u64 {
        let of_client = table.report().into_iter().filter(|report| report.address == address);
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
}
