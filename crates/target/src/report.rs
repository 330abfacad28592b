//! What a target serves and to whom, for those who run it.

use crate::namespace::Facts;
use crate::target::Shared;
use metrics::Operations;
use nvme::controller::{ControllerReport, Node, Reach};
use std::net::SocketAddr;
use std::sync::Weak;
use std::sync::atomic::Ordering;
use std::time::Duration;
use volumes::Volume;

/// Reads what a target serves while it does, also from other threads.
#[derive(Debug, Clone)]
pub struct Watcher(pub(crate) Weak<Shared>);

impl Watcher {
    /// What the target serves now; `None` once it has ended.
    #[must_use]
    pub fn overview(&self) -> Option<Overview> {
        self.0.upgrade().map(|shared| Overview::of(&shared))
    }
}

/// See [`Target::overview`](crate::Target::overview).
#[derive(Debug, Clone, Default)]
pub struct Overview {
    /// The volumes, in the order in which they were given.
    pub volumes: Vec<VolumeState>,
    /// The controllers for input and output, and then those for discovery.
    pub controllers: Vec<ControllerState>,
    /// Connections, and among them I/O queues.
    pub connections: usize,
    /// The process of the other node has ended, and something that it has forwarded is still
    /// executed.
    pub is_finishing: bool,
    /// Processor time of each loop since the start.
    pub loops: Vec<Duration>,
}

impl Overview {
    pub(crate) fn of(shared: &Shared) -> Self {
        let volumes = shared.volumes().clone();
        let volume = |((nsid, _), volume): (&(u32, Facts), Option<Volume>)| {
            let (owner, reach) = shared.controllers.owner(*nsid)?;
            let commands = volume.as_ref().map_or(0, Volume::commands);
            let operations = volume.as_ref().map(Volume::statistics).unwrap_or_default();
            Some(VolumeState { nsid: *nsid, owner, reach, commands, operations })
        };
        Self {
            volumes: shared.known.iter().zip(volumes).filter_map(volume).collect(),
            controllers: shared.controllers.reports(),
            is_finishing: shared.controllers.is_finishing(),
            connections: shared.loads.iter().map(|load| load.load(Ordering::Relaxed)).sum(),
            loops: shared.threads.iter().map(|thread| cpu_time(thread.load(Ordering::Relaxed))).collect(),
        }
    }
}

/// The processor time of a thread of this process; zero if it has ended. proc(5), schedstat
fn cpu_time(thread: i32) -> Duration {
    let text = std::fs::read_to_string(format!("/proc/self/task/{thread}/schedstat"));
    let first = text.ok().and_then(|text| text.split(' ').next()?.parse().ok());
    Duration::from_nanos(first.unwrap_or_default())
}

/// A volume.
#[derive(Debug, Clone)]
pub struct VolumeState {
    /// The NSID.
    pub nsid: u32,
    /// The node that owns it.
    pub owner: Node,
    /// How the owner is reached.
    pub reach: Reach,
    /// Commands that it has taken here and not ended.
    pub commands: usize,
    /// What it has done here since its backing was opened, by operation and size.
    pub operations: Operations,
}

/// A controller.
#[derive(Debug, Clone)]
pub struct ControllerState {
    /// What the state machine knows of it.
    pub report: ControllerReport,
    /// Where its host connects from; `None` while its admin queue ends.
    pub peer: Option<SocketAddr>,
}
