//! A PowerScale cluster, from what its own commands print.

use super::list;
use crate::parse::{Interface, interfaces, protocol_operations, settings};
use crate::{Evidence, Expected, Finding};

const INTERFACES: &str = "isi-network-interfaces.txt";
const SETTINGS: &str = "isi-nfs-settings.txt";
const OPERATIONS: &str = "isi-statistics-protocol.txt";
/// The flag of an interface that can do RoCE v2; the case of its letters differs between releases.
const ROCE_FLAG: &str = "SUPPORTS_RDMA_RROCE";
/// A node with more than this many times the mean does more than its share.
const UNBALANCED: f64 = 1.5;
/// Operations per second below which nothing can be said about the balance.
const OPERATIONS_MIN: f64 = 100.0;

pub(super) fn check(evidence: &Evidence, expected: &Expected, out: &mut Vec<Finding>) {
    let all = evidence.text(INTERFACES).map(interfaces).unwrap_or_default();
    for interface in all.iter().filter(|interface| interface.is_used()) {
        self::interface(interface, evidence.source(INTERFACES), expected, out);
    }
    nfs_settings(evidence, out);
    balance(evidence, out);
}

fn interface(interface: &Interface, source: &str, expected: &Expected, out: &mut Vec<Finding>) {
    let Interface { node, name, addresses, owners, status, mtu, flags, speed } = interface;
    let at = format!("node {node} {name} ({addresses}, {owners})");
    let finding = Finding::ok("powerscale.interface", source, format!("{at}: {status}, {speed}"));
    out.push(if status.eq_ignore_ascii_case("up") {
        finding
    } else {
        finding.fail(
            "the addresses of the pool move to other interfaces of it, or are gone",
            "the cable and the switch port; then: isi network interfaces list -v",
        )
    });
    let has_roce = flags.to_ascii_uppercase().contains(ROCE_FLAG);
    let seen = if has_roce { "supports RDMA (RoCE v2)" } else { "does not support RDMA" };
    let finding = Finding::ok("powerscale.rdma", source, format!("{at}: {seen}"));
    out.push(if has_roce {
        finding
    } else {
        finding.warn(
            "clients cannot mount over RDMA at this interface",
            "put interfaces with SUPPORTS_RDMA_RRoCE into the pool: isi network pools modify POOL --add-ifaces NODE:INTERFACE",
        )
    });
    let Some((mtu, wanted)) = mtu.zip(expected.mtu) else { return };
    let finding = Finding::ok("powerscale.mtu", source, format!("{at}: MTU {mtu}; {wanted} is expected"));
    out.push(if mtu == wanted {
        finding
    } else {
        finding.fail(
            "full frames of one side do not reach the other",
            format!("isi network subnets modify SUBNET --mtu {wanted}    # and the switch ports between"),
        )
    });
}

fn nfs_settings(evidence: &Evidence, out: &mut Vec<Finding>) {
    let all = evidence.text(SETTINGS).map(settings).unwrap_or_default();
    let source = evidence.source(SETTINGS);
    let find = |wanted: &dyn Fn(&str) -> bool| all.iter().find(|(key, _)| wanted(key));
    if let Some((key, is_on)) = find(&|key| key == "NFS Service Enabled") {
        let finding = Finding::ok("powerscale.nfs", source, format!("{key}: {is_on}"));
        out.push(if *is_on { finding } else { finding.fail("no NFS is served", "isi services nfs enable") });
    }
    if let Some((key, is_on)) = find(&|key| key.contains("RDMA Enabled")) {
        let finding = Finding::ok("powerscale.nfs-rdma", source, format!("{key}: {is_on}"));
        out.push(if *is_on {
            finding
        } else {
            finding
                .fail(
                // Two spellings are documented; the cluster knows one of them.
                "clients cannot mount over RDMA",
                "isi nfs settings global modify --help | grep -i rdma    # then with --nfsv3-rdma-enabled true or \
                 --enable-rdma true, whichever it lists",
            )
        });
    }
    if let Some((key, is_on)) = find(&|key| key == "NFSv4 Enabled") {
        let on: Vec<_> = all
            .iter()
            .filter(|(key, is_on)| key.starts_with("v4.") && *is_on)
            .map(|(key, _)| &**key)
            .collect();
        let finding = Finding::ok(
            "powerscale.nfs4",
            source,
            format!("{key}: {is_on} {}", list(&on)).trim_end().to_owned(),
        );
        out.push(finding);
    }
    if let Some((key, is_on)) = find(&|key| key == "NFSv3 Enabled") {
        let finding = Finding::ok("powerscale.nfs3", source, format!("{key}: {is_on}"));
        out.push(if *is_on {
            finding
        } else {
            finding.fail(
                "Trunkline and the vendor's multipath driver mount version 3",
                "isi nfs settings global modify --nfsv3-enabled true",
            )
        });
    }
}

fn balance(evidence: &Evidence, out: &mut Vec<Finding>) {
    let nodes = evidence.text(OPERATIONS).map(protocol_operations).unwrap_or_default();
    let all: f64 = nodes.iter().map(|(_, operations)| operations).sum();
    if all < OPERATIONS_MIN {
        return;
    }
    let Some((busiest, most)) = nodes.iter().max_by(|a, b| a.1.total_cmp(&b.1)) else { return };
    let each: Vec<_> = nodes.iter().map(|(node, of)| format!("node {node} {of:.0}/s")).collect();
    let finding = Finding::ok("powerscale.balance", evidence.source(OPERATIONS), list(&each));
    let mean = all / nodes.len() as f64;
    out.push(if nodes.len() == 1 {
        finding.warn(
            "one node serves everything; the others idle",
            "mount with several addresses: trunkline mount -o remoteports=..., or the vendor's multipath driver",
        )
    } else if *most > mean * UNBALANCED {
        finding.warn(
            format!("node {busiest} serves {:.0} % of all operations", 100.0 * most / all),
            "spread the connections over all nodes: trunkline mount -o remoteports=...",
        )
    } else {
        finding
    });
}
