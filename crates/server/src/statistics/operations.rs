//! The calls of all loops, told apart by node, client, export, procedure and size of payload.

use super::{ClientReport, ProcedureStatistics};
use metrics::{Key, Latency, OTHER_CLIENTS, Operations, SizeClass, Tally};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_shown_as_an_address_or_as_a_network() {
        assert_eq!(client_name("10.0.0.1".parse().unwrap()), "10.0.0.1");
        assert_eq!(client_name("fd00:1::".parse().unwrap()), "fd00:1::/64");
    }
}
