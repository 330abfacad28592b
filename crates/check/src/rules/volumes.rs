//! The volumes of a plan, compared with those that the host has.

use super::list;
use super::nvme::{Scope, fabrics};
use crate::parse::{self, Volume};
use crate::{Evidence, Expected, Finding, PlannedVolume, TargetVolumes};
use std::collections::BTreeSet;

const TREE: &str = "sys-nvme.txt";
const VOLUMES: &str = "nvme-netapp-smdevices.txt";

pub(super) fn check(evidence: &Evidence, expected: &Expected, out: &mut Vec<Finding>) {
    let named = evidence.text(VOLUMES).map(parse::volumes).unwrap_or_default();
    for planned in &expected.volumes {
        let found = by_name(planned, &named, evidence).or_else(|| by_number(planned, expected, evidence));
        out.extend(found.map(|(missing, source)| compared(planned, &missing, &source)));
    }
}

/// By the names that the array has for them, if `nvme netapp smdevices` names the array.
fn by_name<'a>(
    planned: &'a TargetVolumes,
    named: &[Volume],
    evidence: &Evidence,
) -> Option<(Vec<&'a PlannedVolume>, String)> {
    let array = planned.array.as_ref()?;
    let of: BTreeSet<&str> =
        named.iter().filter(|volume| volume.array == *array).map(|volume| &*volume.volume).collect();
    if of.is_empty() {
        return None;
    }
    let missing = planned.all.iter().filter(|volume| !of.contains(&*volume.name)).collect();
    Some((missing, evidence.source(VOLUMES).to_owned()))
}

/// By their numbers, at the controllers that the target's addresses lead to.
fn by_number<'a>(
    planned: &'a TargetVolumes,
    expected: &Expected,
    evidence: &Evidence,
) -> Option<(Vec<&'a PlannedVolume>, String)> {
    let portals = expected.portals.iter().filter(|portal| portal.target == planned.target);
    let of_target = Expected { portals: portals.cloned().collect(), ..Expected::default() };
    let all = fabrics(evidence);
    let scope = Scope::of(&of_target, &all);
    let is_live = |path: &&super::nvme::Path<'_>| path.is_live && scope.has(std::iter::once(path.name));
    let names: BTreeSet<&str> = all.iter().filter(is_live).map(|path| path.name).collect();
    // Without a path a missing path is told, and nothing is known of volumes.
    if of_target.portals.is_empty() || names.is_empty() {
        return None;
    }
    let form = "/sys/class/nvme/*/nvme*/nsid";
    let shown: BTreeSet<u32> = evidence
        .tree(TREE, form)
        .into_iter()
        .filter(|(stars, _)| stars.first().is_some_and(|name| names.contains(name)))
        .filter_map(|(_, nsid)| nsid.parse().ok())
        .collect();
    let missing = planned.all.iter().filter(|volume| !shown.contains(&volume.nsid)).collect();
    Some((missing, form.to_owned()))
}

fn compared(planned: &TargetVolumes, missing: &[&PlannedVolume], source: &str) -> Finding {
    let TargetVolumes { target, all, .. } = planned;
    let finding = |seen: String| Finding::ok("nvme.volumes", source, seen);
    if missing.is_empty() {
        return finding(format!("{target}: the {} volumes of the plan are here", all.len()));
    }
    let names: Vec<_> =
        missing.iter().map(|volume| format!("{} (namespace {})", volume.name, volume.nsid)).collect();
    finding(format!("{target}: of {} volumes of the plan are missing: {}", all.len(), list(&names))).fail(
        "the target does not show these volumes to this host",
        "nvme ns-rescan /dev/nvmeN    # then at the target: is the volume mapped to this host's NQN?",
    )
}
