//! Checks a topology: every required stage exists, numbers are in their ranges, and the ends fit
//! together.

use super::topology::{Clients, Server, Topology};
use crate::Scheme;
use crate::ef600::{cite, ef600};
use crate::error::{Result, refuse};
use crate::link::{Fabric, framing};
use crate::units::{check_speed, trim};
use std::ops::RangeInclusive;

/// The maximum number of nodes, clients, tasks and paths.
const COUNT_MAX: u32 = 100_000;
/// The maximum number of parts of one kind in the whole topology, so that any product of two counts
/// fits 32 bits.
const TOTAL_MAX: u32 = 10_000_000;
/// The range of every other speed, in Gbit/s: from a byte to a petabyte per second.
const SWITCH_GBIT: RangeInclusive<f64> = 8e-9..=8e6;
const RANGE: &str = "the range of the model";

pub(super) fn check(topology: &Topology) -> Result<()> {
    let Some(server) = &topology.server else {
        return refuse(
            "cannot find the limits of a topology without [server]",
            "payload leaves through the ports of arrays or nodes, so their link must be known",
            "docs/MODEL.md, stages",
            "--server-link 100GbE --clients 1, [server] with link = \"100GbE\" in a file, or --preset ef600-ddp24",
        );
    };
    let Some(clients) = &topology.clients else {
        return refuse(
            "cannot find the limits of a topology without [clients]",
            "payload ends at the ports of clients, and they often bind",
            "docs/MODEL.md, stages",
            "--clients 1, or [clients] with count = 1 in a file",
        );
    };
    storage(topology)?;
    at_server(server)?;
    at_clients(clients)?;
    if let Some(switch) = topology.switch {
        at_switch(switch.gbit_per_s)?;
    }
    totals(topology, server, clients)?;
    ends(topology, server, clients)?;
    if let Some(paths) = clients.paths
        && paths > server.nodes.saturating_mul(server.ports)
    {
        let most = server.nodes.saturating_mul(server.ports);
        return refuse(
            format!("cannot use {paths} paths"),
            format!("a path ends at a port of a server, and {} x {} are {most}", server.nodes, server.ports),
            "docs/MODEL.md, stages",
            format!("paths = {most}, or leave it out for all"),
        );
    }
    Ok(())
}

/// Checks drives, RAID and controller.
fn storage(topology: &Topology) -> Result<()> {
    match (&topology.drives, &topology.raid) {
        (Some(_), None) => {
            return refuse(
                "cannot find the limits of drives without [raid]",
                "what writing costs depends on how the drives are protected",
                cite("section EF600 Bandwidth"),
                "--scheme raid6, or [raid] with scheme = \"raid6\" in a file; 8+0 for no protection",
            );
        }
        (None, Some(_)) => {
            return refuse(
                "cannot find the limits of [raid] without [drives]",
                "the cost of protection is counted in drives' speed",
                cite("section EF600 Bandwidth"),
                "--drives 24, or [drives] with count in a file; or leave the scheme out",
            );
        }
        _ => {}
    }
    if let Some(drives) = &topology.drives {
        count("drives count", drives.count)?;
        for (what, speed) in [("read", drives.read_gbytes_per_s), ("write", drives.write_gbytes_per_s)] {
            speed.map(|speed| check_speed(&format!("drives {what}_gbytes_per_s"), speed)).transpose()?;
        }
    }
    if let (Some(drives), Some(raid)) = (&topology.drives, &topology.raid) {
        let is_ef600 = topology.controller.as_ref().is_some_and(|controller| controller.model.is_some());
        if is_ef600 || matches!(raid.scheme, Scheme::Coded { .. }) {
            crate::size::check_drives(raid.scheme, i64::from(drives.count))?;
        }
        if !(1..=2).contains(&raid.controllers_per_group) {
            return refuse(
                format!("cannot have {} controllers serve a group", raid.controllers_per_group),
                "an array has two controllers; a volume belongs to one of them, a group's volumes to one or both",
                cite("section Configuring the EF600 Storage Volumes"),
                "controllers_per_group = 2",
            );
        }
    }
    controller(topology)
}

fn controller(topology: &Topology) -> Result<()> {
    let Some(controller) = &topology.controller else { return Ok(()) };
    match controller.model.as_deref() {
        Some("ef600") => {}
        Some(other) => {
            return refuse(
                format!("cannot use the controller model {other}"),
                "only the EF600's figures are known",
                cite("section NetApp EF600 Overview"),
                "model = \"ef600\", or read_gbytes_per_s and write_gbytes_per_s of its data sheet",
            );
        }
        None if controller.read_gbytes_per_s.is_none() || controller.write_gbytes_per_s.is_none() => {
            return refuse(
                "cannot use [controller] without its speeds",
                "a controller of no known model needs what it reads and writes",
                "docs/MODEL.md, stages",
                "read_gbytes_per_s and write_gbytes_per_s of its data sheet, or model = \"ef600\"",
            );
        }
        None => {}
    }
    let speeds = [
        controller.read_gbytes_per_s,
        controller.read_one_controller_gbytes_per_s,
        controller.write_gbytes_per_s,
        controller.write_full_stripe_gbytes_per_s,
    ];
    speeds.into_iter().flatten().try_for_each(|speed| check_speed("controller speed", speed).map(|_| ()))
}

fn at_server(server: &Server) -> Result<()> {
    count("server nodes", server.nodes)?;
    count("server ports", server.ports)?;
    server.cpu_gbytes_per_s.map(|speed| check_speed("server cpu_gbytes_per_s", speed)).transpose()?;
    server.pcie.as_ref().map_or(Ok(()), |pcie| pcie.check("server"))
}

fn at_clients(clients: &Clients) -> Result<()> {
    count("clients count", clients.count)?;
    count("client ports", clients.ports)?;
    clients.tasks.map(|tasks| count("tasks", tasks)).transpose()?;
    clients.paths.map(|paths| count("paths", paths)).transpose()?;
    for (what, speed) in [("task", clients.task_gbytes_per_s), ("cpu", clients.cpu_gbytes_per_s)] {
        speed.map(|speed| check_speed(&format!("clients {what}_gbytes_per_s"), speed)).transpose()?;
    }
    clients.pcie.as_ref().map_or(Ok(()), |pcie| pcie.check("clients"))
}

fn at_switch(gbit_per_s: f64) -> Result<()> {
    if SWITCH_GBIT.contains(&gbit_per_s) {
        return Ok(());
    }
    refuse(
        format!("cannot use switch gbit_per_s {}", trim(gbit_per_s)),
        "a switch carries more than nothing and at most 8,000,000 Gbit/s",
        RANGE,
        "switch gbit_per_s 100        in Gbit/s each way",
    )
}

/// Checks the totals over all machines of what is counted per machine, because a product that
/// overflowed would be wrong.
fn totals(topology: &Topology, server: &Server, clients: &Clients) -> Result<()> {
    let drives = topology.drives.as_ref().map_or(0, |drives| drives.count);
    for (machines, of, each, what) in [
        (server.nodes, "nodes", server.ports, "ports"),
        (server.nodes, "nodes", drives, "drives"),
        (clients.count, "clients", clients.ports, "ports"),
        (clients.count, "clients", clients.tasks.unwrap_or(0), "tasks"),
    ] {
        if u64::from(machines) * u64::from(each) > u64::from(TOTAL_MAX) {
            return refuse(
                format!("cannot plan {machines} {of} with {each} {what} each"),
                format!("at most {TOTAL_MAX} {what} are planned in all"),
                RANGE,
                format!("{} {what} each", TOTAL_MAX / machines),
            );
        }
    }
    Ok(())
}

fn count(what: &str, count: u32) -> Result<()> {
    if (1..=COUNT_MAX).contains(&count) {
        return Ok(());
    }
    let nearest = count.clamp(1, COUNT_MAX);
    refuse(
        format!("cannot use {what} = {count}"),
        format!("1 to {COUNT_MAX}"),
        RANGE,
        format!("{what} = {nearest}"),
    )
}

/// Checks that both ends are of one family, and that the transport runs on it with this MTU.
fn ends(topology: &Topology, server: &Server, clients: &Clients) -> Result<()> {
    let client_link = clients.link.unwrap_or(server.link);
    let family = server.link.fabric();
    if client_link.fabric() != family {
        return refuse(
            format!("cannot join {} servers and {client_link} clients", server.link),
            "both ends speak Ethernet or both speak InfiniBand; a gateway between them is not modelled",
            "IEEE 802.3; InfiniBand Architecture Specification",
            format!("client link = \"{}\"", server.link),
        );
    }
    let (Some(transport), Some(mtu)) = (topology.transport(), topology.mtu()) else { return Ok(()) };
    if transport.is_on_ethernet() != (family == Fabric::Ethernet) {
        let (name, nearest) = match family {
            Fabric::Ethernet => ("Ethernet", "tcp, tcp-ipv6 or roce"),
            Fabric::InfiniBand => ("InfiniBand", "infiniband or ipoib"),
        };
        return refuse(
            format!("cannot run {transport} on {}", server.link),
            format!("{} is {name}", server.link),
            "InfiniBand Architecture Specification, volume 1; annex A17 for RoCE v2",
            format!("transport {nearest}"),
        );
    }
    framing(transport, mtu).map(|_| ())
}

/// The number of slots of one array.
pub(super) fn slots() -> u32 {
    ef600().slots
}
