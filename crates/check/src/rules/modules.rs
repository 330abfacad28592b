//! Modules for NVMe over Fabrics and for device mapper.

use super::list;
use crate::{Evidence, Expected, Finding};
use std::collections::BTreeSet;

const NAME: &str = "sys-module.txt";
const TREE: &str = "sys-nvme.txt";
const NVME: [&str; 6] = ["nvme_core", "nvme", "nvme_fabrics", "nvme_rdma", "nvme_tcp", "nvme_fc"];
const DEVICE_MAPPER: [&str; 5] =
    ["dm_mod", "dm_multipath", "dm_service_time", "dm_round_robin", "dm_queue_length"];

pub(super) fn check(evidence: &Evidence, expected: &Expected, out: &mut Vec<Finding>) {
    let Some(text) = evidence.text(NAME) else { return };
    let loaded: BTreeSet<&str> = text.lines().map(str::trim).collect();
    let source = evidence.source(NAME);
    let mut wanted: Vec<_> =
        expected.portals.iter().map(|portal| format!("nvme_{}", portal.transport)).collect();
    wanted.sort_unstable();
    wanted.dedup();
    out.extend(family("nvme.modules", "NVMe", &NVME, &wanted, &loaded, source));
    // DM-Multipath joins the paths if that is planned, and where the NVMe driver does not.
    let native = evidence.value(TREE, "/sys/module/nvme_core/parameters/multipath");
    let is_needed = expected.native_multipath.map_or_else(
        || native == Some("N") && super::nvme::shows_fabrics(evidence),
        |is_native| !is_native && !expected.portals.is_empty(),
    );
    let wanted = if is_needed { vec!["dm_multipath".to_owned()] } else { Vec::new() };
    out.extend(family("multipath.modules", "device mapper", &DEVICE_MAPPER, &wanted, &loaded, source));
}

/// What is loaded of a family of modules, and what is wanted and not there. Nothing to say is no
/// finding.
fn family(
    rule: &'static str,
    name: &str,
    modules: &[&str],
    wanted: &[String],
    loaded: &BTreeSet<&str>,
    source: &str,
) -> Option<Finding> {
    let here: Vec<_> = modules.iter().filter(|module| loaded.contains(**module)).collect();
    if here.is_empty() && wanted.is_empty() {
        return None;
    }
    let missing: Vec<_> = wanted.iter().filter(|module| !loaded.contains(&***module)).collect();
    let here = if here.is_empty() { "none".to_owned() } else { list(&here) };
    let mut seen = format!("{name}: loaded are {here}");
    if missing.is_empty() {
        return Some(Finding::ok(rule, source, seen));
    }
    let missing = list(&missing);
    seen.push_str(&format!("; not loaded: {missing}"));
    let mend =
        format!("modprobe -a {}    # lasting: a file in /etc/modules-load.d", missing.replace(',', ""));
    let why = "the planned paths need it; nothing connects or is joined without";
    Some(Finding::ok(rule, source, seen).fail(why, mend))
}
