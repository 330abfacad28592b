//! The calls of all loops, told apart by node, client, export, procedure and size of payload.

use super::files::{FileCall, FileReport};
use super::{ClientReport, FileId, NodeStatistics, PathOf, ProcedureStatistics};
use metrics::{Key, Latency, OTHER_CLIENTS, Operations, SizeClass, Tally};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// The calls of one kind that one client made at one node.
#[derive(Debug, Clone)]
pub struct CallStatistics {
    /// The name of the node.
    pub node: Arc<str>,
    /// The client's IPv4 address, or the first address of its IPv6 network of 64 bits. `None`
    /// stands for all clients that are not told apart: those that no export admits, those of long
    /// ago, and those beyond the bounds.
    pub client: Option<IpAddr>,
    /// The path of the export that the calls were about; calls such as NULL are about none.
    pub export: Option<Arc<str>>,
    /// The name of the procedure.
    pub procedure: &'static str,
    /// The size of payload.
    pub size: SizeClass,
    /// What they did.
    pub statistics: ProcedureStatistics,
}

/// How a client is shown.
fn client_name(network: IpAddr) -> String {
    match network {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(network) => format!("{network}/64"),
    }
}

impl super::Statistics {
    /// The calls in the form in which all Trunkline processes report them.
    #[must_use]
    pub fn operations(&self) -> Operations {
        let mut operations = Operations::default();
        let mut names = BTreeMap::<IpAddr, Arc<str>>::new();
        let mut name =
            |network: IpAddr| names.entry(network).or_insert_with(|| client_name(network).into()).clone();
        for calls in &self.calls {
            let key = Key {
                node: Some(Arc::clone(&calls.node)),
                client: Some(calls.client.map_or_else(|| OTHER_CLIENTS.into(), &mut name)),
                export: calls.export.clone(),
                path: None,
                file: None,
                operation: Some(calls.procedure.into()),
                size: Some(calls.size),
            };
            let ProcedureStatistics { count, errors, replayed, received_bytes, sent_bytes, ref latency_ns } =
                calls.statistics;
            let latency = Latency::of(latency_ns);
            operations.add(key, &Tally { count, errors, replayed, received_bytes, sent_bytes, latency });
        }
        operations
    }
}

type MergeKey = (Arc<str>, Option<IpAddr>, Option<u32>, &'static str, SizeClass);

/// Adds up the reports of the loops.
pub(super) struct Merge<'a> {
    exports: &'a [(u32, String)],
    calls: BTreeMap<MergeKey, ProcedureStatistics>,
}

impl<'a> Merge<'a> {
    pub(super) fn new(exports: &'a [(u32, String)]) -> Self {
        Self { exports, calls: BTreeMap::new() }
    }

    pub(super) fn add(&mut self, node: &str, report: ClientReport) {
        let ClientReport { network, kind, statistics, .. } = report;
        let key = (node.into(), network, kind.export, kind.slot.name(), kind.size);
        match self.calls.get_mut(&key) {
            Some(calls) => calls.add(&statistics),
            None => _ = self.calls.insert(key, statistics),
        }
    }

    pub(super) fn finish(self) -> Vec<CallStatistics> {
        let named = |fsid: u32| {
            let found = self.exports.iter().find(|(other, _)| *other == fsid);
            found.map(|(_, path)| Arc::<str>::from(path.as_str()))
        };
        let calls = self.calls.into_iter().map(|((node, client, export, procedure, size), statistics)| {
            CallStatistics { node, client, export: export.and_then(named), procedure, size, statistics }
        });
        calls.collect()
    }
}

/// The calls by file.
#[derive(Debug, Clone, Default)]
pub struct FileStatistics {
    /// For how long they have been counted.
    pub age: Duration,
    /// The calls, without latencies. A file is named by its export and its path within that, or by
    /// its number if the store does not know the path.
    pub operations: Operations,
}

/// Adds up the calls by file of the loops.
pub(super) struct MergeFiles<'a> {
    exports: &'a [(u32, String)],
    path_of: PathOf<'a>,
    names: BTreeMap<(u32, u64), Arc<str>>,
    found: Option<FileStatistics>,
}

impl<'a> MergeFiles<'a> {
    pub(super) const fn new(exports: &'a [(u32, String)], path_of: PathOf<'a>) -> Self {
        Self { exports, path_of, names: BTreeMap::new(), found: None }
    }

    pub(super) fn add(&mut self, age: Duration, rows: Vec<FileReport>, nodes: &[NodeStatistics]) {
        let mut found = self.found.take().unwrap_or_default();
        found.age = found.age.max(age);
        for FileReport { file, call, counts } in rows {
            let FileCall { node, network, kind } = call;
            let client = network.map_or_else(|| OTHER_CLIENTS.to_owned(), client_name);
            let key = Key {
                node: nodes.get(node).map(|node| node.name.as_str().into()),
                client: Some(client.into()),
                export: kind.export.and_then(|fsid| self.export(fsid)).map(Arc::from),
                path: None,
                file: Some(file.map_or_else(|| OTHER_CLIENTS.into(), |file| self.name(file))),
                operation: Some(kind.slot.name().into()),
                size: Some(kind.size),
            };
            let super::Counts { count, errors, replayed, received_bytes, sent_bytes } = counts;
            let latency = Latency::default();
            let tally = Tally { count, errors, replayed, received_bytes, sent_bytes, latency };
            found.operations.add(key, &tally);
        }
        self.found = Some(found);
    }

    fn export(&self, fsid: u32) -> Option<&'a str> {
        self.exports.iter().find(|(other, _)| *other == fsid).map(|(_, path)| path.as_str())
    }

    fn name(&mut self, file: FileId) -> Arc<str> {
        let known = (file.export, file.object.fileid);
        if let Some(name) = self.names.get(&known) {
            return Arc::clone(name);
        }
        let export = self.export(file.export).unwrap_or("?");
        let name: Arc<str> = match (self.path_of)(file).as_deref() {
            Some("/") => export.into(),
            Some(path) => format!("{}{path}", export.trim_end_matches('/')).into(),
            None => format!("{export}, fileid {}", file.object.fileid).into(),
        };
        self.names.insert(known, Arc::clone(&name));
        name
    }

    pub(super) fn finish(self) -> Option<FileStatistics> {
        self.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_shown_as_an_address_or_as_a_network() {
        assert_eq!(client_name("10.0.0.1".parse().unwrap()), "10.0.0.1");
        assert_eq!(client_name("fd00:1::".parse().unwrap()), "fd00:1::/64");
    }
}
