//! The server side of a bench with an embedded group: that of the group which serves now, and of
//! those before it. Each half of an experiment has a group of its own.

use crate::live::{Identity, serve};
use metrics::{LoopTime, Operations, Snapshot};
use server::{Statistics, StatisticsReader};

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct Groups {
    identity: Option<Identity>,
    served: Option<StatisticsReader>,
    /// What the groups before have counted.
    ended: Operations,
    ended_cpu_ns: u64,
}

impl Groups {
    /// Another group serves.
    pub fn add(&mut self, bench: &Identity, nodes: usize, served: StatisticsReader) {
        let name = format!("embedded group of {nodes} node{}", if nodes == 1 { "" } else { "s" });
        self.identity.get_or_insert_with(|| bench.within(metrics::Kind::Serve, &name));
        self.served = Some(served);
    }

    /// The group ends, and has counted this.
    pub fn end(&mut self, statistics: &Statistics) {
        self.served = None;
        self.ended = with(statistics.operations(), &self.ended);
        self.ended_cpu_ns += statistics.cpu_ns();
    }

    /// What all groups have counted; `None` before the first one.
    pub fn snapshot(&self) -> Option<Snapshot> {
        let identity = self.identity.as_ref()?;
        let statistics = self.served.as_ref().and_then(StatisticsReader::read);
        let mut snapshot = serve::snapshot(identity, &statistics.unwrap_or_default());
        snapshot.operations = with(snapshot.operations, &self.ended);
        match snapshot.loops.first_mut() {
            Some(first) => first.cpu_ns += self.ended_cpu_ns,
            None => snapshot.loops.push(LoopTime { index: 0, cpu_ns: self.ended_cpu_ns }),
        }
        Some(snapshot)
    }
}

fn with(mut operations: Operations, others: &Operations) -> Operations {
    others.iter().for_each(|(key, tally)| operations.add(key.clone(), tally));
    operations
}
