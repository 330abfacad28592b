//! The stages from the drives to the tasks, each with its computation and its source.

use super::Direction;
use super::topology::{Clients, Controller, Drives, Raid, Server, Topology};
use crate::ef600::{TITLE, cite, ef600};
use crate::error::Result;
use crate::layout::stripe::{self, Stripe};
use crate::link::{Link, Pcie, efficiency};
use crate::units::trim;
use serde::Serialize;

/// The throughput of one task of a client: about four tasks fill an EDR port of 12.5 GB/s ("EF600
/// Bandwidth", figure 37).
const TASK_GBYTES_PER_S: f64 = 12.5 / 4.0;

/// A stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum StageName {
    /// The drives of all arrays.
    Drives,
    /// What protection leaves of the drives' write throughput.
    Raid,
    /// The controllers, in their mode.
    Controller,
    /// The servers' processors, as measured.
    ServerCpu,
    /// The slots of the servers' adapters.
    ServerPcie,
    /// The servers' ports.
    ServerPorts,
    /// The network between servers and clients.
    Switch,
    /// The clients' ports.
    ClientPorts,
    /// The slots of the clients' adapters.
    ClientPcie,
    /// The clients' processors, as measured.
    ClientCpu,
    /// The tasks that the clients run.
    ClientTasks,
}

impl StageName {
    /// The name shown to users.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Drives => "drives",
            Self::Raid => "RAID",
            Self::Controller => "controller",
            Self::ServerCpu => "server CPU",
            Self::ServerPcie => "server PCIe",
            Self::ServerPorts => "server ports",
            Self::Switch => "switch",
            Self::ClientPorts => "client ports",
            Self::ClientPcie => "client PCIe",
            Self::ClientCpu => "client CPU",
            Self::ClientTasks => "client tasks",
        }
    }
}

/// The throughput of a stage.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Stage {
    /// The name of the stage.
    pub name: StageName,
    /// The number of parts.
    pub count: u32,
    /// The name of the parts.
    pub of: &'static str,
    /// GB/s before headers, of ports and slots.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line_gbytes_per_s: Option<f64>,
    /// GB/s of payload when reading; absent if the stage does not limit reading.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_gbytes_per_s: Option<f64>,
    /// GB/s of payload when writing; absent if the stage does not limit writing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_gbytes_per_s: Option<f64>,
    /// The mode of reading, if there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_mode: Option<String>,
    /// The mode of writing, if there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_mode: Option<String>,
    /// The computation.
    pub arithmetic: String,
    /// The source of the values.
    pub source: String,
}

impl Stage {
    fn new(name: StageName, count: u32, of: &'static str, arithmetic: String, source: String) -> Self {
        Self {
            name,
            count,
            of,
            line_gbytes_per_s: None,
            read_gbytes_per_s: None,
            write_gbytes_per_s: None,
            read_mode: None,
            write_mode: None,
            arithmetic,
            source,
        }
    }

    fn both(self, gbytes_per_s: f64) -> Self {
        Self { read_gbytes_per_s: Some(gbytes_per_s), write_gbytes_per_s: Some(gbytes_per_s), ..self }
    }

    /// The throughput in a direction, if the stage limits it.
    #[must_use]
    pub const fn rate(&self, direction: Direction) -> Option<f64> {
        match direction {
            Direction::Read => self.read_gbytes_per_s,
            Direction::Write => self.write_gbytes_per_s,
        }
    }

    /// The stage's title with its mode.
    #[must_use]
    pub fn title(&self, direction: Direction) -> String {
        let mode = match direction {
            Direction::Read => &self.read_mode,
            Direction::Write => &self.write_mode,
        };
        mode.as_ref()
            .map_or_else(|| self.name.title().to_owned(), |mode| format!("{}, {mode}", self.name.title()))
    }
}

/// All stages of a checked topology.
pub(super) fn stages(topology: &Topology) -> Result<Vec<Stage>> {
    let mut stages = storage(topology)?;
    let (Some(server), Some(clients)) = (&topology.server, &topology.clients) else { return Ok(stages) };
    let wire = wire(topology)?;
    stages.extend(at_server(server, clients, &wire));
    if let Some(switch) = topology.switch {
        let words = format!("{} GB/s {}", trim(switch.gbit_per_s / 8.0), wire.words);
        let stage = Stage::new(StageName::Switch, 1, "switches", words, "as given".to_owned());
        let line = switch.gbit_per_s / 8.0;
        stages.push(Stage { line_gbytes_per_s: Some(line), ..stage.both(line * wire.share) });
    }
    stages.extend(at_clients(clients, server.link, &wire));
    Ok(stages)
}

/// What headers leave of a port's rate.
struct Wire {
    share: f64,
    words: String,
    source: String,
}

fn wire(topology: &Topology) -> Result<Wire> {
    let (Some(transport), Some(mtu)) = (topology.transport(), topology.mtu()) else {
        return Ok(Wire { share: 1.0, words: String::new(), source: String::new() });
    };
    let framing = crate::link::framing(transport, mtu)?;
    Ok(Wire {
        share: efficiency(transport, mtu)?,
        words: format!("x {}/{}", framing.payload, framing.wire),
        source: format!("; payload of a packet of {transport}, MTU {mtu}"),
    })
}

/// The drives, RAID and controllers of all arrays.
pub(super) fn storage(topology: &Topology) -> Result<Vec<Stage>> {
    let nodes = topology.server.as_ref().map_or(1, |server| server.nodes);
    let mut stages = Vec::new();
    let mut full_stripes = None;
    if let (Some(drives), Some(raid)) = (&topology.drives, &topology.raid) {
        let stripe = stripe::stripe(raid.scheme, raid.request_kib, raid.segment_kib)?;
        stages.extend(drives_and_raid(drives, raid, nodes));
        full_stripes = Some(stripe);
    }
    if let Some(controller) = &topology.controller {
        stages.push(at_controller(controller, topology.raid.as_ref(), full_stripes.as_ref(), nodes));
    }
    Ok(stages)
}

fn drives_and_raid(drives: &Drives, raid: &Raid, nodes: u32) -> [Stage; 2] {
    let usual = ef600().drive_speed;
    let read = drives.read_gbytes_per_s.unwrap_or(usual.read_gbytes_per_s);
    let write = drives.write_gbytes_per_s.unwrap_or(usual.write_gbytes_per_s);
    let is_usual = drives.read_gbytes_per_s.is_none() || drives.write_gbytes_per_s.is_none();
    let source = if is_usual { cite("section EF600 Bandwidth: PM1725b") } else { "as given".to_owned() };
    let count = drives.count.saturating_mul(nodes);
    let together = |each: f64| f64::from(count) * each;
    let words = format!("{count} x {} GB/s read, {} written", trim(read), trim(write));
    let stage = Stage {
        read_gbytes_per_s: Some(together(read)),
        write_gbytes_per_s: Some(together(write)),
        ..Stage::new(StageName::Drives, count, "drives", words, source)
    };
    let (data, parity) = raid.scheme.segments();
    let left = together(write) * f64::from(data) / f64::from(data + parity);
    let words = format!("{count} x {} GB/s written x {data}/{}", trim(write), data + parity);
    let cost = Stage {
        write_gbytes_per_s: Some(left),
        ..Stage::new(
            StageName::Raid,
            count,
            "drives",
            words,
            cite("section EF600 Bandwidth: drives' writes less the share of parity"),
        )
    };
    [stage, cost]
}

fn at_controller(controller: &Controller, raid: Option<&Raid>, stripe: Option<&Stripe>, nodes: u32) -> Stage {
    let usual = controller.model.as_ref().map(|_| ef600().controller);
    let all_paths = raid.is_none_or(|raid| raid.controllers_per_group == 2);
    let full = stripe.is_some_and(|stripe| stripe.is_accelerated);
    let read_all =
        controller.read_gbytes_per_s.or(usual.map(|usual| usual.read_gbytes_per_s)).unwrap_or_default();
    let read_one = controller
        .read_one_controller_gbytes_per_s
        .or(usual.map(|usual| usual.read_one_controller_gbytes_per_s))
        .unwrap_or(read_all)
        .min(read_all);
    let mirrored = controller
        .write_gbytes_per_s
        .or(usual.map(|usual| usual.write_mirrored_gbytes_per_s))
        .unwrap_or_default();
    let full_stripe =
        controller.write_full_stripe_gbytes_per_s.or(usual.map(|usual| usual.write_full_stripe_gbytes_per_s));
    let (read, read_mode) = if all_paths {
        (read_all, "all PCIe paths")
    } else {
        (read_one, "not all PCIe paths: one controller a group")
    };
    let (write, write_mode) = match full_stripe {
        Some(speed) if full => (speed, "full stripes (FSWA)"),
        _ => (mirrored, "mirrored cache (CME)"),
    };
    let has_read_modes = usual.is_some() || controller.read_one_controller_gbytes_per_s.is_some();
    let many = f64::from(nodes);
    let source = if usual.is_some() { cite("section NetApp EF600 Overview") } else { "as given".to_owned() };
    let words = format!("{nodes} x {} GB/s read, {} written", trim(read), trim(write));
    Stage {
        read_gbytes_per_s: Some(read * many),
        write_gbytes_per_s: Some(write * many),
        // A controller of another make with a given speed has no modes.
        read_mode: has_read_modes.then(|| read_mode.to_owned()),
        write_mode: full_stripe.is_some().then(|| write_mode.to_owned()),
        ..Stage::new(StageName::Controller, nodes, "arrays", words, source)
    }
}

fn ports(name: StageName, count: u32, link: Link, wire: &Wire) -> Stage {
    let each = link.line_gbit_per_s() / 8.0;
    let line = each * f64::from(count);
    let words = format!("{count} x {} GB/s {}", trim(each), wire.words);
    let source = format!("{}{}", crate::link::describe(link), wire.source);
    Stage {
        line_gbytes_per_s: Some(line),
        ..Stage::new(name, count, "ports", words, source).both(line * wire.share)
    }
}

fn slots(name: StageName, machines: u32, pcie: &Pcie) -> Stage {
    let count = machines.saturating_mul(pcie.slots);
    let line = pcie.slot_line_gbytes_per_s() * f64::from(count);
    let stage = Stage::new(
        name,
        count,
        "slots",
        format!("{count} x {}", pcie.arithmetic()),
        "PCI Express Base Specification".to_owned(),
    );
    Stage { line_gbytes_per_s: Some(line), ..stage.both(line * pcie.efficiency()) }
}

fn processors(name: StageName, count: u32, of: &'static str, each: f64) -> Stage {
    let words = format!("{count} x {} GB/s", trim(each));
    Stage::new(name, count, of, words, "as measured and given".to_owned()).both(each * f64::from(count))
}

fn at_server(server: &Server, clients: &Clients, wire: &Wire) -> Vec<Stage> {
    let all = server.nodes.saturating_mul(server.ports);
    let used = clients.paths.map_or(all, |paths| paths.min(all));
    // Paths go to as many nodes as possible before they use the second port of any.
    let nodes = used.min(server.nodes);
    let cpu = server.cpu_gbytes_per_s.map(|each| processors(StageName::ServerCpu, nodes, "nodes", each));
    let pcie = server.pcie.as_ref().map(|pcie| slots(StageName::ServerPcie, nodes, pcie));
    let ports = ports(StageName::ServerPorts, used, server.link, wire);
    cpu.into_iter().chain(pcie).chain([ports]).collect()
}

fn at_clients(clients: &Clients, server_link: Link, wire: &Wire) -> Vec<Stage> {
    let count = clients.count;
    let link = clients.link.unwrap_or(server_link);
    let mut stages = vec![ports(StageName::ClientPorts, count.saturating_mul(clients.ports), link, wire)];
    stages.extend(clients.pcie.as_ref().map(|pcie| slots(StageName::ClientPcie, count, pcie)));
    stages.extend(
        clients.cpu_gbytes_per_s.map(|each| processors(StageName::ClientCpu, count, "clients", each)),
    );
    if let Some(tasks) = clients.tasks {
        let each = clients.task_gbytes_per_s.unwrap_or(TASK_GBYTES_PER_S);
        let all = count.saturating_mul(tasks);
        let source = match clients.task_gbytes_per_s {
            Some(_) => "as given".to_owned(),
            None => cite("figure 37: about four tasks fill one EDR port"),
        };
        let words = format!("{count} x {tasks} x {} GB/s", trim(each));
        stages.push(
            Stage::new(StageName::ClientTasks, all, "tasks", words, source).both(each * f64::from(all)),
        );
    }
    stages
}

/// Assumptions, and what is not modelled.
pub(super) fn notes(topology: &Topology) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(raid) = &topology.raid
        && let Ok(stripe) = stripe::stripe(raid.scheme, raid.request_kib, raid.segment_kib)
        && topology.controller.is_some()
    {
        notes.push(stripe.why);
    }
    if let Some(drives) = &topology.drives
        && (drives.read_gbytes_per_s.is_none() || drives.write_gbytes_per_s.is_none())
    {
        notes.push(format!("drives taken as the PM1725b of 1.92 TB that {TITLE} measured"));
    }
    let absent: Vec<_> = [
        ("drives", topology.drives.is_none()),
        ("controller", topology.controller.is_none()),
        ("switch", topology.switch.is_none()),
        ("CPUs", topology.server.as_ref().is_none_or(|server| server.cpu_gbytes_per_s.is_none())),
    ]
    .into_iter()
    .filter_map(|(name, absent)| absent.then_some(name))
    .collect();
    if !absent.is_empty() {
        notes.push(format!("not given, so never the limit here: {}", absent.join(", ")));
    }
    notes
}
