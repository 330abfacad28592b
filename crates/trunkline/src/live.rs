//! What this process counts, for whoever watches it: `trunkline top` and the metrics address.
//!
//! A server, a mount and a bench each make a [`Snapshot`] of their own counters when somebody asks.
//! Nothing is counted for this alone, and without a reader nothing is done.

pub mod mount;
pub mod serve;

use crate::local_sockets::{Directory, Socket};
use metrics::{FORMAT, Kind, Operations, Process, Snapshot};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The sockets of processes that count.
pub const SOCKETS: Directory = Directory("trunkline-live");

/// Who counts, and since when.
#[derive(Debug, Clone)]
pub struct Identity {
    process: Process,
    started: Instant,
}

impl Identity {
    /// This process. `name` is what it serves, mounts or measures.
    pub fn new(kind: Kind, name: &str) -> Self {
        let process = Process {
            pid: std::process::id(),
            kind,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            name: name.to_owned(),
            started_unix_ms: unix_ms(),
        };
        Self { process, started: Instant::now() }
    }

    /// A snapshot of now, without any counts.
    fn snapshot(&self) -> Snapshot {
        Snapshot {
            format: FORMAT,
            process: self.process.clone(),
            taken_unix_ms: unix_ms(),
            uptime_ms: u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX),
            operations: Operations::default(),
            paths: Vec::new(),
            loops: Vec::new(),
            gauges: Vec::new(),
        }
    }
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Lets this user's `trunkline top` find this process, until the value is dropped.
pub fn publish(snapshot: impl Fn() -> Snapshot + Send + 'static) -> Option<Socket> {
    let answered = SOCKETS.answer("tl-live", move || snapshot().to_json());
    answered.inspect_err(|error| tracing::debug!(%error, "`trunkline top` will not find this process")).ok()
}
