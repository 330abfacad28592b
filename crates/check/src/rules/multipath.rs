//! `multipath -ll`: paths of each device, of device mapper or of the kernel's own NVMe multipath.

use super::nvme::{Scope, controller_of};
use super::{list, nvme_cli};
use crate::parse::{MultipathDevice, multipath_devices};
use crate::{Evidence, Expected, Finding};

const NAME: &str = "multipath.txt";

pub(super) fn check(evidence: &Evidence, expected: &Expected, out: &mut Vec<Finding>) {
    let devices = evidence.text(NAME).map(multipath_devices).unwrap_or_default();
    let source = evidence.source(NAME);
    let listed = nvme_cli::listed(evidence);
    let scope = Scope::of_host(expected, evidence, &listed);
    let is_planned = |device: &MultipathDevice| {
        let controllers: Vec<_> = device.paths.iter().filter_map(|path| controller_of(&path.name)).collect();
        scope.has(controllers.iter().map(String::as_str))
    };
    let (planned, others): (Vec<_>, Vec<_>) = devices.iter().partition(|device| is_planned(device));
    for (devices, wanted) in [(planned, expected.paths), (others, None)] {
        // Without a plan, the device with most paths shows how many there should be.
        let most = devices.iter().map(|device| device.paths.len()).max().unwrap_or_default();
        out.extend(devices.into_iter().map(|device| paths(device, wanted, most, source)));
    }
    native(expected, &devices, source, out);
    mixed(evidence, &devices, source, out);
}

/// Whether NVMe devices are of the layer that is planned to join their paths. One parameter of the
/// kernel chooses it for all, so every NVMe device counts, whatever it is connected to.
fn native(expected: &Expected, devices: &[MultipathDevice], source: &str, out: &mut Vec<Finding>) {
    let Some(is_native) = expected.native_multipath else { return };
    let is_nvme = |device: &&MultipathDevice| {
        device.is_native || device.paths.iter().any(|path| path.name.starts_with("nvme"))
    };
    let nvme: Vec<_> = devices.iter().filter(is_nvme).collect();
    let others: Vec<&str> =
        nvme.iter().filter(|device| device.is_native != is_native).map(|device| &*device.name).collect();
    let (driver, mapper) = ("the NVMe driver", "DM-Multipath");
    let (planned, other) = if is_native { (driver, mapper) } else { (mapper, driver) };
    let finding = |seen| Finding::ok("multipath.native", source, seen);
    if nvme.is_empty() {
        return;
    }
    out.push(if others.is_empty() {
        finding(format!("{planned} joins the paths of {} NVMe devices, as planned", nvme.len()))
    } else {
        finding(format!(
            "{other} joins the paths of {}; {planned} is planned to join the paths",
            list(&others)
        ))
        .fail(
            "hosts that join paths in different layers must not share volumes, and tools look for devices of the \
             planned form",
            format!("boot with nvme_core.multipath={}", if is_native { "Y" } else { "N" }),
        )
    });
}

fn paths(device: &MultipathDevice, expected: Option<usize>, most: usize, source: &str) -> Finding {
    let MultipathDevice { name, id, paths, is_native } = device;
    let broken: Vec<_> = paths.iter().filter(|path| path.is_usable() == Some(false)).collect();
    let names: Vec<_> = broken.iter().map(|path| format!("{} ({})", path.name, path.state)).collect();
    let kind = if *is_native { "native" } else { "DM-Multipath" };
    let wanted = expected.unwrap_or(most);
    let mut seen = format!("{name} ({id}, {kind}): {} paths of {wanted}", paths.len());
    if !names.is_empty() {
        seen.push_str(&format!(", not usable: {}", list(&names)));
    }
    let finding = Finding::ok("multipath.paths", source, seen);
    if broken.len() == paths.len() {
        finding.fail(
            "no path can be used: I/O waits or fails",
            "nvme list-subsys or multipathd show paths; then cables, switch, array",
        )
    } else if !broken.is_empty() || expected.is_some_and(|expected| paths.len() < expected) {
        finding.fail(
            "with fewer paths than planned the next failure may cut the volume off",
            "nvme list-subsys or multipathd show paths: which addresses are missing?",
        )
    } else if paths.len() < most {
        finding.warn(
            "other devices have more paths",
            "nvme list-subsys or multipathd show paths: which addresses are missing?",
        )
    } else {
        finding
    }
}

/// NVMe devices must be left to one of the two.
fn mixed(evidence: &Evidence, devices: &[MultipathDevice], source: &str, out: &mut Vec<Finding>) {
    let is_native = evidence.value("sys-nvme.txt", "/sys/module/nvme_core/parameters/multipath");
    let of_dm = devices
        .iter()
        .any(|device| !device.is_native && device.paths.iter().any(|path| path.name.starts_with("nvme")));
    if !of_dm {
        return;
    }
    let Some(native) = is_native else { return };
    let seen = format!("DM-Multipath has NVMe devices, and nvme_core.multipath is {native}");
    let finding = Finding::ok("multipath.mixed", source, seen);
    out.push(if native == "Y" {
        finding.fail(
            "the kernel has one device for all paths already: DM-Multipath over it hides failures and owners",
            "blacklist NVMe in /etc/multipath.conf (RHEL 8 and later), or boot with nvme_core.multipath=N (RHEL 7)",
        )
    } else {
        finding
    });
}
