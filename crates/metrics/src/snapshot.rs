//! Everything that one process counts, at one time. Its JSON is what `trunkline top --json` prints
//! and what processes tell each other.

use crate::key::Dimension;
use crate::operations::Operations;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The version of the JSON format. A reader refuses a higher version.
pub const FORMAT: u32 = 1;

/// What a process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// `trunkline serve`.
    Serve,
    /// `trunkline mount`.
    Mount,
    /// `trunkline bench`.
    Bench,
    /// `trunkline agent`.
    Agent,
    /// `trunkline block serve`.
    Block,
}

impl Kind {
    /// The name of the command.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Serve => "serve",
            Self::Mount => "mount",
            Self::Bench => "bench",
            Self::Agent => "agent",
            Self::Block => "block",
        }
    }
}

/// The process that counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// What it does.
    pub kind: Kind,
    /// Trunkline's version.
    pub version: String,
    /// What it serves, mounts or measures, as its user wrote it; the address of an agent.
    pub name: String,
    /// When it started, in milliseconds since 1970.
    pub started_unix_ms: u64,
}

/// A path of a mount or a bench, over all its loops.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathState {
    /// Local and remote address.
    pub name: String,
    /// The node that it leads to.
    pub node: String,
    /// `up`, `suspect`, `down` or `probing`; the worst of its loops. `unused` if no loop uses it.
    pub state: String,
    /// How long it has been in that state, in milliseconds.
    pub since_ms: u64,
    /// How often calls had to be moved off the path.
    pub failovers: u64,
    /// How many calls were moved.
    pub moved_calls: u64,
    /// Calls that were sent again on the path.
    pub retransmissions: u64,
    /// How often the path went down.
    pub deaths: u64,
    /// The longest time from a last sign of life to a move, in milliseconds.
    pub gap_worst_ms: u64,
    /// The most recent such time, in milliseconds.
    pub gap_last_ms: u64,
}

/// One event loop, or all loops of a client together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoopTime {
    /// Its number.
    pub index: usize,
    /// The processor time of its threads, in nanoseconds.
    pub cpu_ns: u64,
}

/// A number besides operations: a gauge, or a counter if it never falls.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Gauge {
    /// Its name in base units, without a prefix: `held_bytes`. A counter's ends in `_total`.
    pub name: String,
    /// What it says, in a sentence.
    pub help: String,
    /// What it is about.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The value.
    pub value: f64,
}

impl Gauge {
    /// A number without labels.
    #[must_use]
    pub fn new(name: &str, help: &str, value: f64) -> Self {
        Self { name: name.to_owned(), help: help.to_owned(), labels: BTreeMap::new(), value }
    }

    /// The same number about this.
    #[must_use]
    pub fn with(mut self, label: &str, value: &str) -> Self {
        self.labels.insert(label.to_owned(), value.to_owned());
        self
    }

    /// Whether the number never falls.
    #[must_use]
    pub fn is_counter(&self) -> bool {
        self.name.ends_with("_total")
    }
}

/// See the module's documentation. All counts are since the start of the process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// [`FORMAT`].
    pub format: u32,
    /// The process that counted.
    pub process: Process,
    /// When this was counted, in milliseconds since 1970.
    pub taken_unix_ms: u64,
    /// How long the process had run by then, in milliseconds of a clock that never jumps.
    pub uptime_ms: u64,
    /// The operations.
    pub operations: Operations,
    /// The paths of a mount or a bench; none at a server.
    #[serde(default)]
    pub paths: Vec<PathState>,
    /// The event loops.
    #[serde(default)]
    pub loops: Vec<LoopTime>,
    /// Other numbers.
    #[serde(default)]
    pub gauges: Vec<Gauge>,
    /// For how long an event loop has not answered, in milliseconds; 0 if all did. What that loop
    /// counted is as old.
    #[serde(default)]
    pub silent_ms: u64,
    /// The operations of a server by file, if they were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<Files>,
    /// The server side of a bench with an embedded group, as if it were a process of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<Box<Snapshot>>,
}

/// Operations by file: counted since somebody asked for them first, and without latencies.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Files {
    /// For how long they have been counted, in milliseconds.
    pub counted_ms: u64,
    /// The operations. Each has a file; rare files are `others`.
    pub operations: Operations,
}

/// Why a text is no snapshot.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// It is of a newer version.
    #[error("its format is {0}, and this program reads formats up to {FORMAT}: update this program")]
    Newer(u32),
    /// It is no snapshot.
    #[error("it is no snapshot of a Trunkline process: {0}")]
    Json(#[from] serde_json::Error),
}

impl Snapshot {
    /// Reads a snapshot's JSON.
    ///
    /// # Errors
    /// The text is of a newer version, or no snapshot.
    pub fn from_json(text: &[u8]) -> Result<Self, SnapshotError> {
        #[derive(Deserialize)]
        struct Format {
            format: u32,
        }
        let Format { format } = serde_json::from_slice(text)?;
        if format > FORMAT { Err(SnapshotError::Newer(format)) } else { Ok(serde_json::from_slice(text)?) }
    }

    /// The snapshot as JSON.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        // Neither maps with other keys than text nor own implementations that fail are in it.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// The same with operations told apart by these dimensions only.
    #[must_use]
    pub fn by(mut self, by: &[Dimension]) -> Self {
        self.operations = self.operations.by(by, &[]);
        self.group = self.group.map(|group| Box::new(group.by(by)));
        self
    }
}

#[cfg(test)]
pub(crate) fn example() -> Snapshot {
    use crate::{Key, Latency, Tally};
    let mut operations = Operations::default();
    for (node, operation, count) in [("node1", "READ", 100), ("node1", "GETATTR", 3), ("node2", "READ", 50)] {
        let mut histogram = crate::latency::histogram();
        histogram.record_n(150_000, count).unwrap();
        let key = Key {
            node: Some(node.into()),
            client: Some("10.0.0.7".into()),
            operation: Some(operation.into()),
            ..Key::default()
        };
        let latency = Latency::of(&histogram);
        operations
            .add(key, &Tally { count, sent_bytes: count << 20, errors: 1, latency, ..Tally::default() });
    }
    Snapshot {
        format: FORMAT,
        process: Process {
            pid: 7,
            kind: Kind::Serve,
            version: "0.1.0".into(),
            name: "/export".into(),
            started_unix_ms: 1_000,
        },
        taken_unix_ms: 61_000,
        uptime_ms: 60_000,
        operations,
        paths: vec![PathState {
            name: "10.0.0.9 -> 10.0.0.1:2049".into(),
            node: "node1".into(),
            state: "up".into(),
            since_ms: 60_000,
            failovers: 1,
            moved_calls: 12,
            retransmissions: 0,
            deaths: 1,
            gap_worst_ms: 640,
            gap_last_ms: 640,
        }],
        loops: vec![LoopTime { index: 0, cpu_ns: 30_000_000_000 }],
        silent_ms: 0,
        files: None,
        group: None,
        gauges: vec![
            Gauge::new("held_bytes", "Memory held for clients.", 4096.0),
            Gauge::new("connections", "Open connections.", 8.0).with("node", "node1"),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_survives_json() {
        assert_eq!(Snapshot::from_json(&example().to_json()).unwrap(), example());
    }

    #[test]
    fn newer_formats_and_other_texts_are_refused_with_the_reason() {
        let newer = Snapshot { format: FORMAT + 1, ..example() };
        let error = Snapshot::from_json(&newer.to_json()).unwrap_err().to_string();
        assert!(error.contains("its format is 2") && error.contains("update"), "{error}");
        for text in ["", "{}", "[]", "<html>", r#"{"format": 1}"#] {
            let error = Snapshot::from_json(text.as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with("it is no snapshot"), "{text}: {error}");
        }
    }
}
