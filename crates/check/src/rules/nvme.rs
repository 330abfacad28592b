//! NVMe over Fabrics: controllers, paths and their ANA states, policy, host NQN, volumes, and the
//! addresses of a plan.

use super::list;
use crate::parse::{Subsystem, volumes};
use crate::{Evidence, Expected, Finding, Portal};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

const TREE: &str = "sys-nvme.txt";
const HOST_NQN: &str = "nvme-hostnqn.txt";
const VOLUMES: &str = "nvme-netapp-smdevices.txt";
/// The subsystem of discovery controllers, which have no namespaces. NVMe over Fabrics 1.1 s1.5.1.1
pub(super) const DISCOVERY_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";
/// Why paths are counted, and how missing ones are found.
pub(super) const PATHS_SHORT: &str = "with fewer paths than planned the next failure may cut the volume off";
pub(super) const PORTALS_MEND: &str =
    "nvme connect-all    # then: nvme list-subsys; which address is missing?";
/// Why a live path in a state without I/O counts, and what helps.
pub(super) const PATH_IDLE: (&str, &str) = (
    "a path in this ANA state carries nothing: the next failure may cut the volume off",
    "nvme list-subsys; nvme ana-log /dev/nvmeN    # which path? then, at the target: why does this address not \
     offer the volume?",
);
/// Why a controller that is not live counts, and what helps.
pub(super) const CONTROLLER_LOST: (&str, &str) = (
    "the path of a controller that is not live carries nothing",
    "is the address reachable? the kernel tries again until ctrl_loss_tmo; then: nvme connect-all",
);

pub(super) fn check(evidence: &Evidence, expected: &Expected, out: &mut Vec<Finding>) {
    let fabrics = controllers(evidence, out);
    native(evidence, expected, out);
    // Where sysfs was not captured, there is nothing to compare.
    if evidence.0.contains_key(TREE) {
        let paths = fabrics.iter();
        planned(expected, paths, "/sys/class/nvme/*/address", out);
        states(evidence, expected, &fabrics, out);
    }
    if !fabrics.is_empty() {
        host_nqn(evidence, expected, out);
        volumes_of(evidence, &fabrics, out);
        paths(evidence, expected, &Scope::of(expected, &fabrics), &fabrics, out);
        policies(evidence, &fabrics, out);
    }
    ownership(evidence, out);
}

/// A controller over fabrics, which is a path to a subsystem, as sysfs or nvme-cli shows it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Path<'a> {
    pub name: &'a str,
    pub is_live: bool,
    pub transport: &'a str,
    /// `traddr=10.0.0.7,trsvcid=4420`, and more.
    pub address: &'a str,
    /// The NQN of the subsystem; `?` where the kernel does not tell.
    pub subsystem: &'a str,
}

impl Path<'_> {
    fn leads_to(&self, portal: &Portal) -> bool {
        let field = |name: &str| {
            let fields = self.address.split(',').map(str::trim);
            fields.filter_map(|field| field.split_once('=')).find(|(key, _)| *key == name)
        };
        let address = field("traddr").and_then(|(_, address)| address.parse::<IpAddr>().ok());
        // A target may have its discovery controller at the address of its volumes.
        let is_other = self.subsystem == DISCOVERY_NQN
            || portal.nqn.as_deref().is_some_and(|nqn| ![nqn, "?", ""].contains(&self.subsystem));
        !is_other
            && self.transport == portal.transport
            && address == Some(portal.address)
            && field("trsvcid").is_none_or(|(_, port)| port.parse() == Ok(portal.port))
    }
}

/// To which controllers the expected number of paths applies: without planned addresses to all,
/// else to all of each subsystem that one of these leads to. Other storage of the host has a number
/// of its own.
pub(super) struct Scope<'a>(Option<BTreeSet<&'a str>>);

impl<'a> Scope<'a> {
    pub fn of(expected: &Expected, paths: &[Path<'a>]) -> Self {
        if expected.portals.is_empty() {
            return Self(None);
        }
        let leads = |path: &&Path<'_>| expected.portals.iter().any(|portal| path.leads_to(portal));
        let planned: Vec<_> = paths.iter().filter(leads).collect();
        let is_of = |path: &&Path<'_>| {
            planned.iter().any(|of| {
                of.name == path.name || (of.subsystem == path.subsystem && !["?", ""].contains(&of.subsystem))
            })
        };
        Self(Some(paths.iter().filter(is_of).map(|path| path.name).collect()))
    }

    /// The controllers of the host: sysfs knows them all, else nvme-cli does.
    pub fn of_host(expected: &Expected, evidence: &'a Evidence, listed: &'a [Subsystem]) -> Self {
        let paths = match evidence.0.contains_key(TREE) {
            true => fabrics(evidence),
            false => listed.iter().flat_map(super::nvme_cli::paths_of).collect(),
        };
        Self::of(expected, &paths)
    }

    /// Whether one of these controllers is planned.
    pub fn has<'b>(&self, mut controllers: impl Iterator<Item = &'b str>) -> bool {
        self.0.as_ref().is_none_or(|planned| controllers.any(|name| planned.contains(name)))
    }
}

/// The controller of a device that is a path: `nvme3` of `nvme0c3n1`, and of `nvme3n1`.
pub(super) fn controller_of(device: &str) -> Option<String> {
    let rest = device.strip_prefix("nvme")?;
    let (before, _) = rest.split_once('n')?;
    Some(format!("nvme{}", before.split_once('c').map_or(before, |(_, controller)| controller)))
}

/// Whether sysfs shows controllers over fabrics.
pub(super) fn shows_fabrics(evidence: &Evidence) -> bool {
    evidence.tree(TREE, "/sys/class/nvme/*/transport").iter().any(|(_, transport)| *transport != "pcie")
}

/// The controllers over fabrics, as sysfs shows them.
pub(super) fn fabrics(evidence: &Evidence) -> Vec<Path<'_>> {
    let mut fabrics = Vec::new();
    for (stars, transport) in evidence.tree(TREE, "/sys/class/nvme/*/transport") {
        let [name] = stars[..] else { continue };
        if transport == "pcie" {
            continue;
        }
        let value =
            |file: &str| evidence.value(TREE, &format!("/sys/class/nvme/{name}/{file}")).unwrap_or("?");
        let (is_live, address, subsystem) = (value("state") == "live", value("address"), value("subsysnqn"));
        fabrics.push(Path { name, is_live, transport, address, subsystem });
    }
    fabrics
}

/// Checks the controllers over fabrics.
fn controllers<'a>(evidence: &'a Evidence, out: &mut Vec<Finding>) -> Vec<Path<'a>> {
    let fabrics = fabrics(evidence);
    for Path { name, is_live, transport, address, subsystem } in &fabrics {
        let source = format!("/sys/class/nvme/{name}/state");
        let state = evidence.value(TREE, &source).unwrap_or("?");
        let seen = format!("{name}: {state}, {transport} {address}, {subsystem}");
        let finding = Finding::ok("nvme.controller", source, seen);
        out.push(if *is_live { finding } else { finding.fail(CONTROLLER_LOST.0, CONTROLLER_LOST.1) });
    }
    fabrics
}

/// Whether there is a live path for each address of the plan.
pub(super) fn planned<'a>(
    expected: &Expected,
    paths: impl Iterator<Item = &'a Path<'a>> + Clone,
    source: &str,
    out: &mut Vec<Finding>,
) {
    for portal in &expected.portals {
        let Portal { target, transport, address, port, nqn, .. } = portal;
        let of = nqn.as_ref().map(|nqn| format!(" of {nqn}")).unwrap_or_default();
        let mut found = paths.clone().filter(|path| path.leads_to(portal));
        let names: Vec<_> = found.clone().map(|path| path.name).collect();
        let seen = match &names[..] {
            [] => {
                format!(
                    "{target}: no controller{of} for {transport} {address} port {port}, which the plan names"
                )
            }
            names => format!("{target}: {transport} {address} port {port} is {}", list(names)),
        };
        let finding = Finding::ok("nvme.plan", source, seen);
        out.push(if found.any(|path| path.is_live) {
            finding
        } else {
            finding.fail(
                "a path of the plan is missing",
                format!(
                    "ping {address}; nvme discover -t {transport} -a {address} -s {port}; nvme connect-all"
                ),
            )
        });
    }
}

/// Whether each live path has the planned ANA state of each volume. That a path or a volume is
/// missing is told elsewhere.
fn states(evidence: &Evidence, expected: &Expected, fabrics: &[Path<'_>], out: &mut Vec<Finding>) {
    for portal in expected.portals.iter().filter(|portal| !portal.states.is_empty()) {
        for path in fabrics.iter().filter(|path| path.is_live && path.leads_to(portal)) {
            out.extend(states_of(evidence, portal, path.name));
        }
    }
}

fn states_of(evidence: &Evidence, portal: &Portal, controller: &str) -> Option<Finding> {
    let Portal { target, transport, address, port, states, .. } = portal;
    let at = format!("/sys/class/nvme/{controller}");
    let (mut as_planned, mut others, mut untold) = (Vec::new(), Vec::new(), Vec::new());
    for (stars, nsid) in evidence.tree(TREE, &format!("{at}/nvme*/nsid")) {
        let [device] = stars[..] else { continue };
        let planned = states.iter().find(|(number, _)| nsid.parse() == Ok(*number));
        let Some((_, is_optimized)) = planned else { continue };
        let planned = if *is_optimized { "optimized" } else { "non-optimized" };
        match evidence.value(TREE, &format!("{at}/{device}/ana_state")) {
            None => untold.push(format!("namespace {nsid} {planned}")),
            Some(state) if state == planned => as_planned.push(format!("namespace {nsid} {state}")),
            Some(state) => others.push(format!("namespace {nsid} is {state}, and {planned} is planned")),
        }
    }
    let path = format!("{target}: {controller} ({transport} {address} port {port})");
    let source = format!("{at}/nvme*/ana_state");
    if !others.is_empty() {
        let finding = Finding::ok("nvme.states", source, format!("{path}: {}", others.join("; ")));
        return Some(finding.fail(
            "the host prefers optimized paths, so its I/O takes other links than planned, or none",
            format!("on {target}, in server-{target}: ./30-nvmet.sh verify, which says what differs; ./30-nvmet.sh do"),
        ));
    }
    if !untold.is_empty() {
        let seen = format!("{path}: planned is {}, and the host shows no state", list(&untold));
        let mend =
            format!("nvme ana-log /dev/{controller}    # sysfs has states with nvme_core.multipath=Y only");
        return Some(Finding::unknown("nvme.states", source, seen, mend));
    }
    let seen = format!("{path}: {}, as planned", list(&as_planned));
    (!as_planned.is_empty()).then(|| Finding::ok("nvme.states", source, seen))
}

/// Whether each subsystem shows volumes.
fn volumes_of(evidence: &Evidence, fabrics: &[Path<'_>], out: &mut Vec<Finding>) {
    let with: BTreeSet<&str> = evidence
        .tree(TREE, "/sys/class/nvme/*/nvme*/nsid")
        .into_iter()
        .filter_map(|(stars, _)| stars.first().copied())
        .collect();
    let mut subsystems = BTreeMap::<&str, Vec<&Path<'_>>>::new();
    // Before Linux 4.16 the name of the subsystem is not told.
    let told = fabrics.iter().filter(|controller| !matches!(controller.subsystem, "?" | DISCOVERY_NQN));
    for controller in told.filter(|controller| controller.is_live) {
        subsystems.entry(controller.subsystem).or_default().push(controller);
    }
    for (nqn, controllers) in subsystems {
        let names: Vec<_> = controllers.iter().map(|controller| controller.name).collect();
        let finding = |seen| Finding::ok("nvme.namespaces", "/sys/class/nvme/*/nvme*/nsid", seen);
        out.push(if names.iter().any(|name| with.contains(name)) {
            finding(format!("{nqn}: {} live controllers show volumes", names.len()))
        } else {
            finding(format!("{nqn}: {} are live and show no volume", list(&names))).warn(
                "the array has no volume for this host, or knows it by another NQN",
                "cat /sys/class/nvme/*/hostnqn    # is it the NQN to which the array maps volumes?",
            )
        });
    }
}

/// Whether the layer that joins the paths is the planned one.
fn native(evidence: &Evidence, expected: &Expected, out: &mut Vec<Finding>) {
    let path = "/sys/module/nvme_core/parameters/multipath";
    let (Some(planned), Some(value)) = (expected.native_multipath, evidence.value(TREE, path)) else {
        return;
    };
    let (name, wanted) = if planned { ("the NVMe driver", "Y") } else { ("DM-Multipath", "N") };
    let seen = format!("nvme_core.multipath is {value}; {name} is planned to join the paths");
    let finding = Finding::ok("nvme.native", path, seen);
    out.push(if value == wanted {
        finding
    } else {
        finding.fail(
            "hosts that join paths in different layers must not share volumes, and tools look for devices of \
             the planned form",
            format!("boot with nvme_core.multipath={wanted}"),
        )
    });
}

fn host_nqn(evidence: &Evidence, expected: &Expected, out: &mut Vec<Finding>) {
    let used: BTreeSet<_> =
        evidence.tree(TREE, "/sys/class/nvme/*/hostnqn").into_iter().map(|(_, nqn)| nqn).collect();
    let kept = evidence.text(HOST_NQN).map(str::trim);
    let used: Vec<_> = used.into_iter().collect();
    if used.is_empty() {
        // The attribute came with Linux 5.17.
        return;
    }
    let seen =
        format!("host NQN in use: {}; in {}: {}", list(&used), "/etc/nvme/hostnqn", kept.unwrap_or("none"));
    let finding = Finding::ok("nvme.host-nqn", "/sys/class/nvme/*/hostnqn", seen);
    if let Some(planned) = expected.host_nqn.as_deref().filter(|planned| used != [*planned]) {
        let seen = format!("{}; planned: {planned}", finding.seen);
        out.push(Finding { seen, ..finding }.fail(
            "targets map volumes to the NQN of the plan",
            format!("echo '{planned}' > /etc/nvme/hostnqn    # then disconnect, and nvme connect-all"),
        ));
        return;
    }
    out.push(match (&used[..], kept) {
        ([_], None) => finding.warn(
            "without the file the host may have another name after a restart, and its volumes are mapped to this \
             one",
            format!("echo '{}' > /etc/nvme/hostnqn", list(&used)),
        ),
        ([one], Some(kept)) if *one != kept => finding.warn(
            "the array maps volumes to the NQN in use; the next connect without -q uses the other",
            "give the same NQN in /etc/nvme/hostnqn and in /etc/nvme/discovery.conf",
        ),
        _ => finding,
    });
}

/// The paths of one namespace: for each the ANA state, if the subsystem has such states, and
/// whether the controller is live; and the controllers.
#[derive(Debug, Default)]
struct Namespace<'a> {
    paths: Vec<(Option<&'a str>, bool)>,
    controllers: Vec<&'a str>,
}

/// Whether a path in this ANA state carries I/O; without ANA every path does. NVM Express Base
/// Specification 2.0 s8.1
pub(super) fn carries(state: Option<&str>) -> bool {
    matches!(state, None | Some("optimized" | "non-optimized"))
}

/// The states of live paths that carry nothing, each with its number: `1 inaccessible`.
pub(super) fn idle<'a>(states: impl Iterator<Item = Option<&'a str>>) -> Vec<String> {
    let mut counts = BTreeMap::<&str, usize>::new();
    for state in states.filter(|state| !carries(*state)).flatten() {
        *counts.entry(state).or_default() += 1;
    }
    counts.into_iter().map(|(state, count)| format!("{count} {state}")).collect()
}

impl Namespace<'_> {
    /// Live paths in this state.
    fn count(&self, wanted: Option<&str>) -> usize {
        self.live().filter(|state| *state == wanted).count()
    }

    /// The states of live paths.
    fn live(&self) -> impl Iterator<Item = Option<&str>> {
        self.paths.iter().filter(|(_, is_live)| *is_live).map(|(state, _)| *state)
    }

    fn optimized(&self) -> usize {
        // A subsystem without ANA prefers none of its paths.
        self.count(Some("optimized")) + self.count(None)
    }
}

/// The namespaces over fabrics. With native multipath the path `nvme0c1n2` belongs to `nvme0n2`;
/// without it `nvme1n2` is a path of namespace 2 of the subsystem.
fn namespaces<'a>(evidence: &'a Evidence, fabrics: &[Path<'_>]) -> BTreeMap<String, Namespace<'a>> {
    let mut namespaces = BTreeMap::<String, Namespace<'_>>::new();
    for (stars, nsid) in evidence.tree(TREE, "/sys/class/nvme/*/nvme*/nsid") {
        let [controller, path] = stars[..] else { continue };
        let Some(of) = fabrics.iter().find(|of| of.name == controller) else { continue };
        let at = format!("/sys/class/nvme/{controller}");
        let state = evidence.value(TREE, &format!("{at}/{path}/ana_state"));
        let subsystem = evidence.value(TREE, &format!("{at}/subsysnqn")).unwrap_or_default();
        let native = path
            .split_once('c')
            .and_then(|(before, after)| Some(format!("{before}n{}", after.split_once('n')?.1)));
        let name = native.unwrap_or_else(|| format!("namespace {nsid} of {subsystem}"));
        let namespace = namespaces.entry(name).or_default();
        namespace.paths.push((state, of.is_live));
        namespace.controllers.push(controller);
    }
    namespaces
}

fn paths(
    evidence: &Evidence,
    expected: &Expected,
    scope: &Scope<'_>,
    fabrics: &[Path<'_>],
    out: &mut Vec<Finding>,
) {
    for (name, namespace) in namespaces(evidence, fabrics) {
        let (optimized, others) = (namespace.optimized(), namespace.count(Some("non-optimized")));
        let live = namespace.live().filter(|state| carries(*state)).count();
        let idle = idle(namespace.live());
        let planned = expected.paths.filter(|_| scope.has(namespace.controllers.iter().copied()));
        let wanted = planned.map(|wanted| format!(" of {wanted}")).unwrap_or_default();
        let mut seen =
            format!("{name}: {live} live paths{wanted}, {optimized} optimized, {others} non-optimized");
        if !idle.is_empty() {
            seen.push_str(&format!("; live, but carrying nothing: {}", list(&idle)));
        }
        let finding = Finding::ok("nvme.paths", "/sys/class/nvme/*/nvme*/ana_state", seen);
        let short = planned.is_some_and(|wanted| live < wanted);
        out.push(if optimized + others == 0 {
            finding.fail(
                "no path can be used: I/O waits or fails",
                "nvme list-subsys    # then the array: does a controller own the volume?",
            )
        } else if short {
            finding.fail(PATHS_SHORT, if idle.is_empty() { PORTALS_MEND } else { PATH_IDLE.1 })
        } else if !idle.is_empty() {
            finding.warn(PATH_IDLE.0, PATH_IDLE.1)
        } else if optimized == 0 {
            finding.warn(
                "all I/O goes to the controller that does not own the volume and is forwarded there",
                "bring up the paths to its controller, or move the volume to the other",
            )
        } else {
            finding
        });
    }
}

/// The policy matters where a namespace has several optimized paths.
fn policies(evidence: &Evidence, fabrics: &[Path<'_>], out: &mut Vec<Finding>) {
    let namespaces = namespaces(evidence, fabrics);
    for (stars, policy) in evidence.tree(TREE, "/sys/class/nvme-subsystem/*/iopolicy") {
        let [subsystem] = stars[..] else { continue };
        let prefix = format!("nvme{}n", subsystem.trim_start_matches("nvme-subsys"));
        let of = namespaces.iter().filter(|(name, _)| name.starts_with(&prefix));
        if of.map(|(_, namespace)| namespace.optimized()).max().unwrap_or_default() < 2 {
            continue;
        }
        let path = format!("/sys/class/nvme-subsystem/{subsystem}/iopolicy");
        let finding = Finding::ok("nvme.policy", path.clone(), format!("{subsystem}: I/O policy {policy}"));
        out.push(if policy == "numa" {
            finding.warn(
                "the policy numa uses one path of those that are optimized; the others wait for its failure",
                format!(
                    "echo round-robin > {path}    # queue-depth from Linux 6.11 on; lasting: a udev rule"
                ),
            )
        } else {
            finding
        });
    }
}

/// Whether the volumes of an array are shared among its controllers. Where each path is a device of
/// its own (DM-Multipath), the command names the controller of the path, and nothing is known about
/// owners.
fn ownership(evidence: &Evidence, out: &mut Vec<Finding>) {
    let volumes = evidence.text(VOLUMES).map(volumes).unwrap_or_default();
    let mut arrays = BTreeMap::<&str, BTreeMap<&str, BTreeSet<&str>>>::new();
    for volume in &volumes {
        let array = arrays.entry(&volume.array).or_default();
        array.entry(&volume.volume).or_default().insert(&volume.controller);
    }
    for (array, of) in arrays {
        if of.values().any(|controllers| controllers.len() > 1) {
            continue;
        }
        let count = |controller: &str| of.values().filter(|owners| owners.contains(controller)).count();
        let (a, b) = (count("A"), count("B"));
        let seen = format!("{array}: {} volumes, {a} owned by controller A, {b} by B", of.len());
        let finding = Finding::ok("nvme.ownership", evidence.source(VOLUMES), seen);
        out.push(if a.abs_diff(b) > 1 {
            finding.warn(
                "one controller does more of the work than the other",
                "set the preferred owners so that each controller has half of the volumes",
            )
        } else {
            finding
        });
    }
}
