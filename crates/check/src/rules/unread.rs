//! Captures that are there and say nothing that a rule understands: the output of another command,
//! of another release, or an error. Without this, what was not read would look like what is sound.

use crate::capture::matched;
use crate::parse::{
    exports, interfaces, multipath_devices, nfs_traffic, nvme_devices, pools, protocol_operations,
    rdma_links, rdma_ports, settings, subsystems, volumes,
};
use crate::{CAPTURES, Capture, Evidence, Finding, How};
use serde_json::Value;

/// Modules of which every kernel has one, and those that rules look for: `ls /sys/module` has a
/// name on each line, so any word could be one.
const MODULES: [&str; 8] =
    ["kernel", "printk", "ib_uverbs", "rdma_ucm", "nvme_core", "nvme", "nvme_fabrics", "dm_mod"];

pub(super) fn check(evidence: &Evidence, out: &mut Vec<Finding>) {
    for capture in CAPTURES.iter().filter(|capture| is_unread(evidence, capture.name)) {
        let (name, command) = (capture.name, capture.command());
        let seen = format!("{name} has nothing that is understood: what depends on it was not checked");
        let mend = format!("{command} > {name}    # is this its output, whole and as text?");
        out.push(Finding::unknown("capture.unread", evidence.source(name), seen, mend));
    }
}

/// Whether a capture has a text of which nothing is understood.
pub(crate) fn is_unread(evidence: &Evidence, name: &str) -> bool {
    let capture = CAPTURES.iter().find(|capture| capture.name == name);
    let text = capture.zip(evidence.text(name));
    text.is_some_and(|(capture, text)| !is_understood(capture, text) && !says_none(text))
}

/// `No IB devices found`, `No NVMe devices detected.`
fn says_none(text: &str) -> bool {
    text.lines().map(str::to_ascii_lowercase).any(|line| {
        line.trim_start().starts_with("no ") && (line.contains("detected") || line.contains("found"))
    })
}

fn is_understood(capture: &Capture, text: &str) -> bool {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    if let How::Tree(forms) = capture.how {
        return lines.any(|line| forms.iter().any(|form| matched(line, form).is_some()));
    }
    match capture.name {
        "kernel-release.txt" => super::nfs::release(text).is_some(),
        "ibv_devinfo.txt" => !rdma_ports(text).is_empty(),
        "rdma-link.txt" => !rdma_links(text).is_empty(),
        "ip-addr.txt" => lines.any(super::routing::has_address),
        "ip-rule.txt" | "ip-rule6.txt" => lines.any(|line| has_words(line, &["from"])),
        // A route of several next hops has its devices on lines below; some lead nowhere.
        "ip-route.txt" | "ip-route6.txt" => {
            let kinds = ["dev", "via", "nexthop", "unreachable", "blackhole", "prohibit", "throw"];
            lines.any(|line| has_words(line, &kinds))
        }
        "sys-module.txt" => lines.any(|line| MODULES.contains(&line)),
        "limits.txt" => lines.any(|line| line.starts_with("Max ")),
        "status.txt" => {
            lines.any(|line| line.starts_with("CapEff:") || line.starts_with("Cpus_allowed_list:"))
        }
        // All file systems are listed there, so none of NFS is a fact.
        "mountstats.txt" => lines.any(|line| has_words(line, &["with"]) && line.starts_with("device ")),
        "nvme-hostnqn.txt" => lines.any(|line| line.starts_with("nqn.")),
        "nvme-list.txt" => !nvme_devices(text).is_empty() || is_empty_list(text, "Devices", "Node"),
        "nvme-list-subsys.txt" => !subsystems(text).is_empty() || is_empty_list(text, "Subsystems", ""),
        "nvme-netapp-smdevices.txt" => !volumes(text).is_empty(),
        "multipath.txt" => !multipath_devices(text).is_empty() || lines.all(is_logged),
        "timedatectl.txt" => lines.any(|line| line.contains(": ")),
        "isi-network-interfaces.txt" => !interfaces(text).is_empty(),
        "isi-network-pools.txt" => !pools(text).is_empty(),
        "isi-nfs-exports.txt" => !exports(text).is_empty(),
        "passwd.txt" => {
            let is_account = |line: &str| super::account::uid_of(line).is_some();
            lines.any(|line| line.starts_with(super::account::HEAD) || is_account(line))
        }
        "isi-nfs-settings.txt" => !settings(text).is_empty(),
        "isi-statistics-protocol.txt" => !protocol_operations(text).is_empty() || has_header(text, "Ops"),
        "isi-statistics-system.txt" => !nfs_traffic(text).is_empty() || has_header(text, "NFS"),
        _ => true,
    }
}

/// Whether one of these words is in a line, with others.
fn has_words(line: &str, wanted: &[&str]) -> bool {
    let mut words = line.split_whitespace();
    words.clone().count() > 1 && words.any(|word| wanted.contains(&word))
}

/// JSON that lists nothing under this key, or a table of this header without rows.
fn is_empty_list(text: &str, key: &str, header: &str) -> bool {
    let is_none = |value: &Value| value.as_array().is_some_and(Vec::is_empty);
    if let Ok(value) = serde_json::from_str::<Value>(text) {
        return is_none(&value) || value.get(key).is_some_and(is_none);
    }
    let is_head = |line: &str| line.split_whitespace().next() == Some(header) || line.starts_with("---");
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    text.trim_start().starts_with(header) && lines.all(is_head) && !header.is_empty()
}

/// `Feb 01 12:00:00 | /etc/multipath.conf does not exist`
fn is_logged(line: &str) -> bool {
    line.starts_with(|first: char| first.is_ascii_alphanumeric())
        && line.split_once(" | ").is_some_and(|(time, _)| time.matches(':').count() == 2)
}

/// Whether a table has the columns Node and this one, and no rows: nothing was going on.
fn has_header(text: &str, column: &str) -> bool {
    let has = |line: &str, name: &str| line.split_whitespace().any(|word| word.eq_ignore_ascii_case(name));
    let mut after = text.lines().skip_while(|line| !(has(line, "Node") && has(line, column)));
    let is_row = |line: &str| {
        !line.trim_start().starts_with("Total") && line.contains(|c: char| c.is_ascii_alphanumeric())
    };
    after.next().is_some() && !after.any(|line| is_row(line) && !has(line, "Node"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn understood(name: &str, text: &str) -> bool {
        let capture = CAPTURES.iter().find(|capture| capture.name == name).unwrap();
        is_understood(capture, text) || says_none(text)
    }

    #[test]
    fn what_says_that_there_is_nothing_is_understood() {
        for (name, text) in [
            ("ibv_devinfo.txt", "No IB devices found\n"),
            ("nvme-list.txt", "No NVMe devices detected.\n"),
            ("nvme-list.txt", "Node  Generic  SN\n----- -------- ---\n"),
            ("nvme-list.txt", "{\"Devices\":[]}"),
            ("nvme-list-subsys.txt", "[]\n"),
            ("nvme-list-subsys.txt", "{ \"Subsystems\" : [ ] }"),
            ("nvme-netapp-smdevices.txt", "No NetApp SMdevices detected.\n"),
            ("multipath.txt", "Feb 01 12:00:00 | /etc/multipath.conf does not exist\n"),
            ("mountstats.txt", "device proc mounted on /proc with fstype proc\n"),
            ("ip-route6.txt", "unreachable ::/0 metric 1\n"),
            ("sys-module.txt", "printk\nxfs\n"),
            ("isi-statistics-protocol.txt", "Ops Node Proto Class\n-----\n-----\nTotal: 0\n"),
            ("isi-statistics-system.txt", "Node CPU NFS Total\n-----\n"),
        ] {
            assert!(understood(name, text), "{name}: {text}");
        }
    }

    #[test]
    fn the_output_of_other_commands_is_not_understood() {
        for (name, text) in [
            ("kernel-release.txt", "Linux host 6.8.0\n"),
            ("ip-addr.txt", "2: ens6f0: <UP> mtu 9000\n    inet 10.0.0.1/24 scope global ens6f0\n"),
            ("ip-rule.txt", "from\n"),
            ("sys-module.txt", "Module Size Used by\nnvme_core 200 1 nvme\n"),
            ("sys-nvme.txt", "nvme0 live\n"),
            ("nvme-list.txt", "Node SN\n/dev/nvme0n1 7\n"),
            ("nvme-list.txt", "{\"Devices\":[{}]}"),
            ("nvme-list-subsys.txt", "Subsystem\n"),
            ("nvme-list-subsys.txt", "\n"),
            ("multipath.txt", "Feb 01 12:00:00 | no configuration\nnvme0n1: 8 paths\n"),
            ("isi-statistics-protocol.txt", "Ops Node Proto Class\nmany one nfs read\n"),
            ("isi-statistics-system.txt", "CPU NFS Total\n1 2 3\n"),
        ] {
            assert!(!understood(name, text), "{name}: {text}");
        }
    }
}
