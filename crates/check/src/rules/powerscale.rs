//! A PowerScale cluster, from what its own commands print.

use super::list;
use crate::parse::{Interface, interfaces, nfs_traffic, protocol_operations, settings};
use crate::{Evidence, Expected, Finding};
use std::collections::BTreeSet;

const INTERFACES: &str = "isi-network-interfaces.txt";
const SETTINGS: &str = "isi-nfs-settings.txt";
const OPERATIONS: &str = "isi-statistics-protocol.txt";
const TRAFFIC: &str = "isi-statistics-system.txt";
/// The flag of an interface that can do RoCE v2; the case of its letters differs between releases.
const ROCE_FLAG: &str = "SUPPORTS_RDMA_RROCE";
const ADD_INTERFACES: &str = "put interfaces with SUPPORTS_RDMA_RRoCE into the pool: isi network pools modify POOL \
    --add-ifaces NODE:INTERFACE";
/// A node with more than this many times the mean does more than its share.
const UNBALANCED: f64 = 1.5;
/// Operations per second below which nothing can be said about the balance.
const OPERATIONS_MIN: f64 = 100.0;
/// The same for bytes at one moment, which swing more: a route over four nodes that a guide prints
/// as sound has 1.8 times the mean at one.
const UNBALANCED_TRAFFIC: f64 = 2.0;
/// Bytes per second below which nothing can be said about the balance.
const TRAFFIC_MIN: f64 = 10e6;
/// A node with less than this part of all bytes does not serve clients.
const IDLE_PART: f64 = 0.01;

pub(super) fn check(evidence: &Evidence, expected: &Expected, out: &mut Vec<Finding>) {
    let all = evidence.text(INTERFACES).map(interfaces).unwrap_or_default();
    let used: Vec<_> = all.iter().filter(|interface| interface.is_used()).collect();
    network(&used, evidence.source(INTERFACES), expected, out);
    nfs_settings(evidence, out);
    operations(evidence, out);
    traffic(evidence, out);
}

/// The interfaces that carry addresses. Those of management are in a pool too, with an MTU of their
/// own and without RDMA, so these two are judged only in pools that have an interface for RDMA.
fn network(used: &[&Interface], source: &str, expected: &Expected, out: &mut Vec<Finding>) {
    let storage: BTreeSet<&str> =
        used.iter().filter(|interface| has_roce(interface)).flat_map(|interface| interface.pools()).collect();
    for interface in used {
        out.push(state(interface, source));
        if interface.pools().any(|pool| storage.contains(pool)) {
            out.push(rdma(interface, source));
            out.extend(mtu(interface, source, expected));
        }
    }
    if used.is_empty() || !storage.is_empty() {
        return;
    }
    let names: Vec<_> = used.iter().map(|of| format!("node {} {}", of.node, of.name)).collect();
    let seen = format!("no interface of a pool supports RDMA (RoCE v2): {}", list(&names));
    out.push(
        Finding::ok("powerscale.rdma", source, seen).warn("clients cannot mount over RDMA", ADD_INTERFACES),
    );
    if let Some(wanted) = expected.mtu {
        let seen = format!("which pools carry storage is not known; an MTU of {wanted} is expected of these");
        let mend = "isi network interfaces list -v    # is it the MTU of the interfaces that clients mount?";
        out.push(Finding::unknown("powerscale.mtu", source, seen, mend));
    }
}

pub(super) fn has_roce(interface: &Interface) -> bool {
    interface.flags.to_ascii_uppercase().contains(ROCE_FLAG)
}

fn place(interface: &Interface) -> String {
    let Interface { node, name, addresses, owners, .. } = interface;
    format!("node {node} {name} ({addresses}, {owners})")
}

fn state(interface: &Interface, source: &str) -> Finding {
    let Interface { status, speed, .. } = interface;
    let seen = format!("{}: {status}, {speed}", place(interface));
    let finding = Finding::ok("powerscale.interface", source, seen);
    if status.eq_ignore_ascii_case("up") {
        return finding;
    }
    finding.fail(
        "the addresses of the pool move to other interfaces of it, or are gone",
        "the cable and the switch port; then: isi network interfaces list -v",
    )
}

fn rdma(interface: &Interface, source: &str) -> Finding {
    let is_able = has_roce(interface);
    let seen = if is_able { "supports RDMA (RoCE v2)" } else { "does not support RDMA" };
    let finding = Finding::ok("powerscale.rdma", source, format!("{}: {seen}", place(interface)));
    if is_able {
        return finding;
    }
    finding.warn("clients cannot mount over RDMA at this interface", ADD_INTERFACES)
}

fn mtu(interface: &Interface, source: &str, expected: &Expected) -> Option<Finding> {
    let (mtu, wanted) = interface.mtu.zip(expected.mtu)?;
    let seen = format!("{}: MTU {mtu}; {wanted} is expected", place(interface));
    let finding = Finding::ok("powerscale.mtu", source, seen);
    if mtu == wanted {
        return Some(finding);
    }
    let mend = format!("isi network subnets modify SUBNET --mtu {wanted}    # and the switch ports between");
    Some(finding.fail("full frames of one side do not reach the other", mend))
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
                // Releases differ in the spelling; the cluster knows one of them.
                "clients cannot mount over RDMA",
                "isi nfs settings global modify --help | grep -i rdma    # then with --nfs-rdma-enabled true, \
                 --nfsv3-rdma-enabled true or --enable-rdma true, whichever it lists",
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

/// The balance of operations. A node without any is not in the list.
fn operations(evidence: &Evidence, out: &mut Vec<Finding>) {
    let nodes = evidence.text(OPERATIONS).map(protocol_operations).unwrap_or_default();
    let all: f64 = nodes.iter().map(|(_, operations)| operations).sum();
    if all < OPERATIONS_MIN {
        return;
    }
    let each: Vec<_> = nodes.iter().map(|(node, of)| format!("node {node} {of:.0}/s")).collect();
    let finding = Finding::ok("powerscale.balance", evidence.source(OPERATIONS), list(&each));
    out.push(balance(finding, &nodes, "operations", UNBALANCED, nodes.len() == 1));
}

/// The balance of bytes. All nodes of the cluster are in the list.
fn traffic(evidence: &Evidence, out: &mut Vec<Finding>) {
    let nodes = evidence.text(TRAFFIC).map(nfs_traffic).unwrap_or_default();
    let all: f64 = nodes.iter().map(|(_, bytes)| bytes).sum();
    if all < TRAFFIC_MIN {
        return;
    }
    let each: Vec<_> = nodes.iter().map(|(node, of)| format!("node {node} {:.0} MB/s", of / 1e6)).collect();
    let finding = Finding::ok("powerscale.balance", evidence.source(TRAFFIC), list(&each));
    let busy = nodes.iter().filter(|(_, of)| *of >= all * IDLE_PART).count();
    out.push(balance(finding, &nodes, "bytes", UNBALANCED_TRAFFIC, busy == 1 && nodes.len() > 1));
}

/// Judges how nodes share what they serve: with one, or one above this many times the mean, a mount
/// with several addresses would be faster.
fn balance(finding: Finding, nodes: &[(String, f64)], what: &str, most: f64, is_one: bool) -> Finding {
    let all: f64 = nodes.iter().map(|(_, of)| of).sum();
    let Some((busiest, of_busiest)) = nodes.iter().max_by(|a, b| a.1.total_cmp(&b.1)) else {
        return finding;
    };
    if is_one {
        return finding.warn(
            "one node serves everything; the others idle",
            "mount with several addresses: trunkline mount -o remoteports=..., or the vendor's multipath driver",
        );
    }
    if *of_busiest > all / nodes.len() as f64 * most {
        return finding.warn(
            format!("node {busiest} serves {:.0} % of all {what}", 100.0 * of_busiest / all),
            "spread the connections over all nodes: trunkline mount -o remoteports=...",
        );
    }
    finding
}
