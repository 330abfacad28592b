//! A PowerScale cluster, compared with a plan: interfaces, pool, export.

use super::{list, powerscale};
use crate::parse::{Export, Interface, Pool, exports, interfaces, pools};
use crate::{Cluster, ClusterNode, Evidence, Finding};
use std::net::IpAddr;

const INTERFACES: &str = "isi-network-interfaces.txt";
const POOLS: &str = "isi-network-pools.txt";
const EXPORTS: &str = "isi-nfs-exports.txt";

pub(super) fn check(evidence: &Evidence, planned: &Cluster, out: &mut Vec<Finding>) {
    let read = |name: &str| evidence.text(name).filter(|_| !super::is_unread(evidence, name));
    if let Some(text) = read(INTERFACES) {
        let all = interfaces(text);
        for node in &planned.nodes {
            out.push(interface(node, planned, &all, evidence.source(INTERFACES)));
        }
        out.push(addresses(planned, &all, evidence.source(INTERFACES)));
    }
    if let Some(text) = read(POOLS) {
        out.push(pool(planned, &pools(text), evidence.source(POOLS)));
    }
    if let Some(text) = read(EXPORTS) {
        out.push(export(planned, &exports(text), evidence.source(EXPORTS)));
    }
}

/// Whether the interface of a node is in the pool, and can do RDMA.
fn interface(node: &ClusterNode, planned: &Cluster, all: &[Interface], source: &str) -> Finding {
    let ClusterNode { lnn, interface: name, .. } = node;
    let is_it = |of: &&Interface| of.node.parse() == Ok(*lnn) && of.name == *name;
    let finding = |seen: &str| Finding::ok("powerscale.plan", source, format!("node {lnn} {name}: {seen}"));
    let Some(found) = all.iter().find(is_it) else {
        return finding("the plan has it, the cluster does not")
            .fail("the node of the plan does not serve", "isi network interfaces list");
    };
    let pool = &planned.pool;
    if !found.pools().any(|of| of == pool) {
        let add = format!("isi network pools modify {pool} --add-ifaces {lnn}:{name}");
        return finding(&format!("not in the pool {pool}"))
            .fail("the node serves no address of the plan", add);
    }
    if !powerscale::has_roce(found) {
        return finding(&format!("in the pool {pool}, and does not support RDMA")).fail(
            "clients cannot mount over RDMA at this interface",
            "another interface of the node, with SUPPORTS_RDMA_RRoCE: isi network interfaces list -v",
        );
    }
    finding(&format!("in the pool {pool}, supports RDMA (RoCE v2)"))
}

/// Whether interfaces of the plan have all its addresses. Which one has which is up to OneFS.
fn addresses(planned: &Cluster, all: &[Interface], source: &str) -> Finding {
    let is_planned = |of: &Interface| {
        planned.nodes.iter().any(|node| of.node.parse() == Ok(node.lnn) && of.name == node.interface)
    };
    let has = |of: &Interface, address: IpAddr| {
        of.addresses.split([',', ' ']).any(|word| word.parse() == Ok(address))
    };
    let (mut missing, mut elsewhere) = (Vec::new(), Vec::new());
    for ClusterNode { address, .. } in &planned.nodes {
        match all.iter().find(|of| has(of, *address)) {
            None => missing.push(address.to_string()),
            Some(of) if !is_planned(of) => {
                elsewhere.push(format!("{address} is at node {} {}", of.node, of.name))
            }
            Some(_) => {}
        }
    }
    let finding = |seen: String| Finding::ok("powerscale.addresses", source, seen);
    let mut seen = Vec::new();
    if !missing.is_empty() {
        seen.push(format!("no interface has {}", list(&missing)));
    }
    seen.extend(elsewhere);
    if seen.is_empty() {
        let count = planned.nodes.len();
        return finding(format!("the interfaces of the plan have its {count} addresses"));
    }
    finding(list(&seen)).fail(
        "clients that mount an address of the plan do not reach the interface of the plan",
        format!("isi network pools view {}    # ranges and interfaces; is each interface up?", planned.pool),
    )
}

fn pool(planned: &Cluster, all: &[Pool], source: &str) -> Finding {
    let name = &planned.pool;
    let finding = |seen: String| Finding::ok("powerscale.pool", source, seen);
    let Some(found) = all.iter().find(|pool| pool.id == *name) else {
        return finding(format!("there is no pool {name}"))
            .fail("no address of the plan is served", "30-network.sh of the runbook makes it");
    };
    let (mut differs, mut mend) = (Vec::new(), format!("isi network pools modify {name}"));
    if found.zone != planned.zone {
        differs.push(format!("its access zone is {}, not {}", found.zone, planned.zone));
        mend += &format!(" --access-zone {}", planned.zone);
    }
    let wanted: Vec<_> =
        planned.nodes.iter().map(|node| format!("{}:{}", node.lnn, node.interface)).collect();
    let missing: Vec<_> = wanted.iter().filter(|of| !found.interfaces.contains(of)).collect();
    if !missing.is_empty() {
        differs.push(format!("without the interfaces {}", list(&missing)));
        let missing: Vec<_> = missing.iter().map(|of| of.as_str()).collect();
        mend += &format!(" --add-ifaces {}", missing.join(","));
    }
    let more: Vec<_> = found.interfaces.iter().filter(|of| !wanted.contains(of)).collect();
    if !more.is_empty() {
        differs.push(format!("with the interfaces {}, which the plan does not have", list(&more)));
        let more: Vec<_> = more.iter().map(|of| of.as_str()).collect();
        mend += &format!(" --remove-ifaces {}", more.join(","));
    }
    let addresses = planned.nodes.iter().map(|node| node.address);
    let outside = addresses.filter(|of| !found.ranges.iter().any(|range| is_within(*of, range)));
    let outside: Vec<_> = outside.map(|of| of.to_string()).collect();
    if !outside.is_empty() {
        differs.push(format!("without the addresses {}", list(&outside)));
        let ranges: Vec<_> = outside.iter().map(|of| format!("{of}-{of}")).collect();
        mend += &format!(" --add-ranges {}", ranges.join(","));
    }
    if differs.is_empty() {
        return finding(format!("{name}: interfaces, addresses and access zone as planned"));
    }
    finding(format!("{name}: {}", differs.join("; ")))
        .fail("clients mount other nodes than those of the plan, or none", mend)
}

/// Whether `FIRST-LAST` has an address.
fn is_within(address: IpAddr, range: &str) -> bool {
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    let bounds = first.trim().parse::<IpAddr>().ok().zip(last.trim().parse::<IpAddr>().ok());
    bounds.is_some_and(|(first, last)| {
        first.is_ipv4() == address.is_ipv4()
            && last.is_ipv4() == address.is_ipv4()
            && (first..=last).contains(&address)
    })
}

fn export(planned: &Cluster, all: &[Export], source: &str) -> Finding {
    let path = &planned.export;
    let finding = |seen: String| Finding::ok("powerscale.export", source, seen);
    let Some(found) = all.iter().find(|export| export.paths.contains(path)) else {
        return finding(format!("{path} is not exported"))
            .fail("clients have nothing to mount", "40-export.sh of the runbook exports it");
    };
    let mend =
        |option: &str| format!("isi nfs exports modify ID --{option} ADDRESS    # isi nfs exports list");
    let refused: Vec<_> = planned
        .clients
        .iter()
        .filter(|client| !found.clients.is_empty() && !admits(&found.clients, **client))
        .map(ToString::to_string)
        .collect();
    if !refused.is_empty() {
        let seen = format!("{path} is exported, and does not admit {}", list(&refused));
        return finding(seen).fail("the host of the plan cannot mount", mend("add-clients"));
    }
    let readers = planned.clients.iter().filter(|client| admits(&found.readers, **client));
    let readers: Vec<_> = readers.map(ToString::to_string).collect();
    if !readers.is_empty() {
        let seen = format!("{path} is exported, and {} may only read", list(&readers));
        return finding(seen).fail("the host of the plan cannot write", mend("remove-read-only-clients"));
    }
    let writes = |client: &IpAddr| admits(&found.writers, *client);
    if found.is_read_only && !planned.clients.iter().all(writes) {
        let mend = "isi nfs exports modify ID --read-only false    # isi nfs exports list";
        return finding(format!("{path} is exported read-only"))
            .fail("the host of the plan cannot write", mend);
    }
    finding(format!("{path} is exported to this host"))
}

/// Whether a list has an address, or a network with it. Names of hosts and netgroups are not
/// resolved: an export with one of them may admit anybody.
fn admits(list: &[String], address: IpAddr) -> bool {
    list.iter().any(|entry| match entry.split_once('/') {
        Some((network, prefix)) => match (network.parse(), prefix.parse()) {
            (Ok(network), Ok(prefix)) => is_in_network(address, network, prefix),
            _ => false,
        },
        None => entry.parse::<IpAddr>().map_or(true, |of| of == address),
    })
}

fn is_in_network(address: IpAddr, network: IpAddr, prefix: u32) -> bool {
    match (address, network) {
        (IpAddr::V4(address), IpAddr::V4(network)) => {
            let mask = u32::MAX.checked_shl(32_u32.saturating_sub(prefix)).unwrap_or(0);
            address.to_bits() & mask == network.to_bits() & mask
        }
        (IpAddr::V6(address), IpAddr::V6(network)) => {
            let mask = u128::MAX.checked_shl(128_u32.saturating_sub(prefix)).unwrap_or(0);
            address.to_bits() & mask == network.to_bits() & mask
        }
        _ => false,
    }
}
