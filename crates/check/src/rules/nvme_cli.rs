//! NVMe devices and subsystems as nvme-cli lists them: firmware, and, of hosts whose sysfs was not
//! captured, controllers and paths.

use super::list;
use super::nvme::{
    CONTROLLER_LOST, DISCOVERY_NQN, PATH_IDLE, PATHS_SHORT, PORTALS_MEND, Path, Scope, carries,
    controller_of, idle, planned, shows_fabrics,
};
use crate::parse::{NvmeDevice, Subsystem, SubsystemPath, nvme_devices, subsystems};
use crate::{Evidence, Expected, Finding};
use std::collections::{BTreeMap, BTreeSet};

const LIST: &str = "nvme-list.txt";
const SUBSYSTEMS: &str = "nvme-list-subsys.txt";

pub(super) fn check(evidence: &Evidence, expected: &Expected, out: &mut Vec<Finding>) {
    let devices = evidence.text(LIST).map(nvme_devices).unwrap_or_default();
    // sysfs says the same, and more.
    let is_known = shows_fabrics(evidence);
    let mut arrays = BTreeMap::<_, Vec<&NvmeDevice>>::new();
    for device in &devices {
        arrays.entry((&*device.model, &*device.serial)).or_default().push(device);
    }
    let all = listed(evidence);
    let scope = Scope::of_host(expected, evidence, &all);
    for ((model, serial), devices) in arrays {
        let name = format!("{model} {serial}");
        out.push(firmware(&name, &devices, evidence.source(LIST)));
        if !is_known {
            let controllers: Vec<_> = devices
                .iter()
                .filter_map(|device| controller_of(device.node.trim_start_matches("/dev/")))
                .collect();
            let wanted = expected.paths.filter(|_| scope.has(controllers.iter().map(String::as_str)));
            out.extend(self::devices(&name, &devices, wanted, evidence.source(LIST)));
        }
    }
    if !is_known {
        let source = evidence.source(SUBSYSTEMS);
        if !evidence.0.contains_key("sys-nvme.txt") && evidence.0.contains_key(SUBSYSTEMS) {
            let paths: Vec<_> = all.iter().flat_map(paths_of).collect();
            planned(expected, paths.iter(), source, out);
        }
        for subsystem in &all {
            let names = subsystem.controllers.iter().map(|controller| &*controller.name);
            let wanted = expected.paths.filter(|_| scope.has(names));
            self::subsystem(subsystem, wanted, source, out);
        }
    }
}

/// The subsystems that nvme-cli lists.
pub(super) fn listed(evidence: &Evidence) -> Vec<Subsystem> {
    evidence.text(SUBSYSTEMS).map(subsystems).unwrap_or_default()
}

/// The paths to a subsystem.
pub(super) fn paths_of(subsystem: &Subsystem) -> impl Iterator<Item = Path<'_>> {
    subsystem.controllers.iter().map(|controller| {
        let SubsystemPath { name, transport, address, state, .. } = controller;
        Path { name, is_live: state == "live", transport, address, subsystem: &subsystem.nqn }
    })
}

fn firmware(name: &str, devices: &[&NvmeDevice], source: &str) -> Finding {
    let versions: Vec<_> =
        devices.iter().map(|device| &*device.firmware).collect::<BTreeSet<_>>().into_iter().collect();
    let namespaces: BTreeSet<_> = devices.iter().filter_map(|device| device.namespace).collect();
    let seen = format!(
        "{name}: {} devices of {} namespaces, firmware {}",
        devices.len(),
        namespaces.len(),
        list(&versions)
    );
    let finding = Finding::ok("nvme.firmware", source, seen);
    if versions.len() < 2 {
        return finding;
    }
    finding.warn(
        "the controllers of one array run different firmware, as in an update that did not end",
        "end the update of the array's firmware; after it: nvme list",
    )
}

/// Without native multipath each path of a namespace is a device of its own. With it a namespace is
/// one device, and the list says nothing about paths.
fn devices(name: &str, devices: &[&NvmeDevice], expected: Option<usize>, source: &str) -> Option<Finding> {
    let mut counts = BTreeMap::<u32, usize>::new();
    for namespace in devices.iter().filter_map(|device| device.namespace) {
        *counts.entry(namespace).or_default() += 1;
    }
    let most = counts.values().copied().max().filter(|most| *most > 1)?;
    let wanted = expected.unwrap_or(most);
    let short: Vec<_> = counts
        .iter()
        .filter(|(_, count)| **count < wanted)
        .map(|(namespace, count)| format!("namespace {namespace} has {count}"))
        .collect();
    let seen = match &short[..] {
        [] => format!("{name}: a device for each of {wanted} paths of {} namespaces", counts.len()),
        short => format!("{name}: of {wanted} devices, one for each path, {}", list(short)),
    };
    let finding = Finding::ok("nvme.devices", source, seen);
    Some(match (short.is_empty(), expected) {
        (true, _) => finding,
        (false, Some(_)) => finding.fail(PATHS_SHORT, PORTALS_MEND),
        (false, None) => finding.warn("other namespaces have more paths", PORTALS_MEND),
    })
}

fn subsystem(subsystem: &Subsystem, expected: Option<usize>, source: &str, out: &mut Vec<Finding>) {
    let Subsystem { name, nqn, controllers } = subsystem;
    if nqn == DISCOVERY_NQN || controllers.iter().all(|controller| controller.transport == "pcie") {
        return;
    }
    for controller in controllers.iter().filter(|controller| controller.state != "live") {
        let SubsystemPath { name, transport, address, state, .. } = controller;
        let seen = format!("{name}: {state}, {transport} {address}, {nqn}");
        let (why, mend) = CONTROLLER_LOST;
        out.push(Finding::ok("nvme.controller", source, seen).fail(why, mend));
    }
    let live: Vec<_> = controllers.iter().filter(|controller| controller.state == "live").collect();
    let wanted = expected.map(|wanted| format!(" of {wanted}")).unwrap_or_default();
    let states = || live.iter().map(|controller| controller.ana.as_deref());
    let usable = states().filter(|state| carries(*state)).count();
    let idle = idle(states());
    let mut seen = format!("{name} ({nqn}): {usable} live paths{wanted}");
    for state in ["optimized", "non-optimized"] {
        let count = states().filter(|of| *of == Some(state)).count();
        if count > 0 {
            seen.push_str(&format!(", {count} {state}"));
        }
    }
    if !idle.is_empty() {
        seen.push_str(&format!("; live, but carrying nothing: {}", list(&idle)));
    }
    let finding = Finding::ok("nvme.subsystem", source, seen);
    let any_is_optimized = states().any(|state| matches!(state, None | Some("optimized")));
    out.push(if usable == 0 {
        finding
            .fail("no path can be used: I/O waits or fails", "nvme connect-all    # then: nvme list-subsys")
    } else if expected.is_some_and(|wanted| usable < wanted) {
        finding.fail(PATHS_SHORT, if idle.is_empty() { PORTALS_MEND } else { PATH_IDLE.1 })
    } else if !idle.is_empty() {
        finding.warn(PATH_IDLE.0, PATH_IDLE.1)
    } else if !any_is_optimized {
        finding.warn(
            "all I/O goes to the controller that does not own the volume and is forwarded there",
            "bring up the paths to its controller, or move the volume to the other",
        )
    } else {
        finding
    });
}
