//! What those who run a target see of its controllers and volumes.

use super::ana::{Node, Reach};
use super::config::Kind;
use super::subsystem::Subsystem;
use crate::{HostId, Nqn};
use std::time::Duration;

/// A controller and its host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControllerReport {
    /// CNTLID.
    pub cntlid: u16,
    /// What it is for.
    pub kind: Kind,
    /// The host's name, a claim of the host.
    pub host: Nqn,
    /// The host's identifier.
    pub host_id: HostId,
    /// The node at whose port it is.
    pub node: Node,
    /// Whether the host has enabled it, and it takes commands.
    pub is_ready: bool,
    /// I/O queues that are connected.
    pub io_queues: usize,
    /// The keep-alive timeout; zero for none.
    pub keep_alive: Duration,
    /// Namespaces that the host sees.
    pub namespaces: Vec<u32>,
}

impl ControllerReport {
    /// Whether it is for discovery alone.
    #[must_use]
    pub fn is_for_discovery(&self) -> bool {
        self.kind == Kind::Discovery
    }
}

impl Subsystem {
    /// All controllers, by CNTLID.
    pub fn reports(&self) -> impl Iterator<Item = ControllerReport> + '_ {
        self.controllers.iter().map(|(cntlid, controller)| ControllerReport {
            cntlid: *cntlid,
            kind: controller.kind,
            host: controller.host.clone(),
            host_id: controller.host_id,
            node: controller.port.node,
            is_ready: controller.is_ready(),
            io_queues: controller.io.len(),
            keep_alive: controller.keep_alive,
            namespaces: controller.view.namespaces().iter().map(|volume| volume.nsid).collect(),
        })
    }

    /// Who owns a volume, and how the owner is reached; `None` if there is no such volume.
    #[must_use]
    pub fn owner(&self, nsid: u32) -> Option<(Node, Reach)> {
        self.volumes.get(&nsid).map(|volume| (volume.owner, self.reach_of(nsid)))
    }
}
