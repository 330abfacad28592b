//! Rules of a PowerScale cluster and its clients.

use super::addresses::{Addresses, v4};
use super::names::{Names, check_interface, check_path};
use crate::error::Findings;
use crate::model::{self, NasNode};
use crate::site::{At, Host, PowerScale, Site};
use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr};

/// The guide to RoCE on PowerScale.
const ROCE: &str = "Setup RoCE on PowerScale";

/// Checks the cluster.
pub(super) fn check(
    site: &Site,
    addresses: &mut Addresses,
    names: &mut Names,
    findings: &mut Findings,
) -> Option<model::PowerScale> {
    let nas = site.powerscale.as_ref()?;
    let keys = nas.get_ref();
    names.check_host_name(&keys.name, ("name", "cluster"), findings);
    names.check_unique(&keys.name, findings);
    for word in [&keys.administrator, &keys.groupnet, &keys.subnet, &keys.pool, &keys.zone, &keys.user] {
        check_word(word, findings);
    }
    check_path(&keys.export, "directory", findings);
    below_ifs(&keys.export, findings);
    version(keys, findings);
    numbers(keys, findings);
    let nodes = nodes(keys, addresses, findings);
    one_subnet(keys, &nodes, findings);
    has_clients(site, nas, findings);
    let text = |value: &At<String>| value.get_ref().clone();
    Some(model::PowerScale {
        name: text(&keys.name),
        administrator: text(&keys.administrator),
        subnet: format!("{}.{}", keys.groupnet.get_ref(), keys.subnet.get_ref()),
        pool: format!("{}.{}.{}", keys.groupnet.get_ref(), keys.subnet.get_ref(), keys.pool.get_ref()),
        zone: text(&keys.zone),
        prefix_length: *keys.prefix_length.get_ref(),
        mtu: *keys.mtu.get_ref(),
        nodes,
        export: text(&keys.export),
        user: text(&keys.user),
        uid: *keys.uid.get_ref(),
        access_pattern: keys.access_pattern.name(),
        is_for_benchmark: keys.benchmark,
        has_nfsv4: keys.nfsv4.as_ref().is_some_and(|nfsv4| *nfsv4.get_ref()),
        nconnect: *keys.nconnect.get_ref(),
    })
}

/// A word of OneFS that needs no quotes.
fn check_word(word: &At<String>, findings: &mut Findings) {
    let text = word.get_ref();
    let valid = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if (1..=32).contains(&text.len()) && text.chars().all(valid) && !text.starts_with('-') {
        return;
    }
    findings.add(
        word.span(),
        format!("{text:?} is not a name of OneFS"),
        "names of accounts, groupnets, subnets, pools and zones have 1 to 32 letters, digits, _ and -",
        "OneFS CLI administration guide",
        "a name such as \"rdmapool\"",
    );
}

fn below_ifs(export: &At<String>, findings: &mut Findings) {
    if !export.get_ref().starts_with("/ifs/") {
        findings.add(
            export.span(),
            format!("{} is not on the cluster's file system", export.get_ref()),
            "OneFS exports directories below /ifs",
            format!("{ROCE}, section Configure the Fileshare on PowerScale"),
            "export = \"/ifs/data/bench\"",
        );
    }
}

/// NFSv3 over RDMA needs OneFS 9.2, NFSv4 over RDMA 9.8.
fn version(keys: &PowerScale, findings: &mut Findings) {
    let parts: Option<Vec<u32>> = keys.onefs.get_ref().split('.').map(|part| part.parse().ok()).collect();
    let at_least =
        |least: [u32; 2]| parts.as_ref().is_some_and(|parts| parts.len() >= 2 && *parts >= least.to_vec());
    if !at_least([9, 2]) {
        findings.add(
            keys.onefs.span(),
            format!("OneFS {} has no NFS over RDMA", keys.onefs.get_ref()),
            "NFSv3 over RDMA needs OneFS 9.2 or later",
            format!("{ROCE}, section PowerScale Requirements"),
            "onefs = \"9.5\"; `isi version` on the cluster shows it",
        );
    } else if let Some(nfsv4) = keys.nfsv4.as_ref().filter(|nfsv4| *nfsv4.get_ref() && !at_least([9, 8])) {
        findings.add(
            nfsv4.span(),
            format!("OneFS {} has no NFSv4 over RDMA", keys.onefs.get_ref()),
            "NFSv4 over RDMA needs OneFS 9.8 or later",
            format!("{ROCE}, section Swapping to NFSv4"),
            "nfsv4 = false",
        );
    }
}

fn numbers(keys: &PowerScale, findings: &mut Findings) {
    let mut range = |span, value: u32, least: u32, most: u32, what: &str, origin: &str| {
        if !(least..=most).contains(&value) {
            findings.add(
                span,
                format!("{what} = {value} is not possible"),
                format!("{what} is {least} to {most}"),
                origin,
                format!("{what} = {most}"),
            );
        }
    };
    let prefix = u32::from(*keys.prefix_length.get_ref());
    range(keys.prefix_length.span(), prefix, 8, 30, "prefix_length", "RFC 4632");
    range(
        keys.mtu.span(),
        *keys.mtu.get_ref(),
        1500,
        9000,
        "mtu",
        "OneFS CLI administration guide, isi network subnets",
    );
    // VAST's and Dell's driver take 64 at most, the kernel's client 16.
    range(
        keys.nconnect.span(),
        *keys.nconnect.get_ref(),
        1,
        64,
        "nconnect",
        "the multipath driver's mount parameters",
    );
    range(keys.uid.span(), *keys.uid.get_ref(), 1000, 60_000, "uid", "login.defs(5): UIDs of people");
}

fn nodes(keys: &PowerScale, addresses: &mut Addresses, findings: &mut Findings) -> Vec<NasNode> {
    let mut seen = HashSet::new();
    let mut nodes = Vec::new();
    if keys.nodes.get_ref().is_empty() {
        findings.add(
            keys.nodes.span(),
            "nodes is empty",
            "a pool has at least one interface of a node",
            format!("{ROCE}, section On the PowerScale Side"),
            "nodes = [{ lnn = 1, interface = \"100gige-1\", address = \"10.0.0.1\" }]",
        );
    }
    for node in keys.nodes.get_ref() {
        let node = node.get_ref();
        check_interface(&node.interface, findings);
        if !seen.insert((*node.lnn.get_ref(), node.interface.get_ref().clone())) {
            findings.add(
                node.lnn.span(),
                format!(
                    "interface {} of node {} is used twice",
                    node.interface.get_ref(),
                    node.lnn.get_ref()
                ),
                "with static allocation each interface of a pool has one address",
                format!("{ROCE}, section On the PowerScale Side"),
                "another interface, or another lnn",
            );
        }
        let user = format!("node {} of the cluster at {}", node.lnn.get_ref(), node.interface.get_ref());
        let Some(ip) = addresses.take(&node.address, &user, findings) else { continue };
        let origin = format!("{ROCE}, section On the PowerScale Side");
        let rule = "the subnet and the pool of this runbook have IPv4 addresses";
        let Some(address) = v4(&node.address, ip, (rule, origin), findings) else { continue };
        nodes.push(NasNode {
            lnn: *node.lnn.get_ref(),
            interface: node.interface.get_ref().clone(),
            address,
        });
    }
    nodes
}

/// The network part of an address.
fn network(address: Ipv4Addr, prefix: u8) -> u32 {
    u32::from(address).checked_shr(u32::from(32_u8.saturating_sub(prefix))).unwrap_or(0)
}

fn one_subnet(keys: &PowerScale, nodes: &[NasNode], findings: &mut Findings) {
    let prefix = *keys.prefix_length.get_ref();
    let Some(first) = nodes.first() else { return };
    let other = nodes.iter().find(|node| network(node.address, prefix) != network(first.address, prefix));
    if let Some(other) = other {
        let place = keys
            .nodes
            .get_ref()
            .iter()
            .find(|node| node.get_ref().address.get_ref().parse() == Ok(other.address));
        findings.add(
            place.map_or_else(|| keys.nodes.span(), |node| node.get_ref().address.span()),
            format!("{} is not in the subnet of {}/{prefix}", other.address, first.address),
            "the addresses of a pool are in its subnet",
            format!("{ROCE}, section On the PowerScale Side"),
            "an address of the same subnet, or a smaller prefix_length",
        );
    }
}

/// The subnet of the pool, if its first node has an IPv4 address: first address and prefix.
fn subnet(keys: &PowerScale) -> Option<(Ipv4Addr, u8)> {
    let first: Ipv4Addr = keys.nodes.get_ref().first()?.get_ref().address.get_ref().parse().ok()?;
    let prefix = *keys.prefix_length.get_ref();
    let mask = u32::MAX.checked_shl(u32::from(32_u8.saturating_sub(prefix))).unwrap_or(0);
    Some(((u32::from(first) & mask).into(), prefix))
}

/// Neither the cluster's subnet nor the clients get a gateway, so no client is elsewhere.
pub(super) fn is_reachable(site: &Site, host: &At<Host>, client: &model::Host, findings: &mut Findings) {
    let Some((start, prefix)) = site.powerscale.as_ref().and_then(|nas| subnet(nas.get_ref())) else {
        return;
    };
    let is_inside = |address: IpAddr| match address {
        IpAddr::V4(address) => network(address, prefix) == network(start, prefix),
        IpAddr::V6(_) => false,
    };
    let keys = host.get_ref();
    let of_local = client.local.iter().flat_map(|local| local.addresses.iter().copied());
    let own = std::iter::once((client.address, keys.address.span()));
    let all = own.chain(of_local.map(|ip| (ip, keys.localports.as_ref().map_or(0..0, At::span))));
    for (address, span) in all.filter(|(address, _)| !is_inside(*address)) {
        findings.add(
            span,
            format!("{} at {address} is outside of the cluster's subnet {start}/{prefix}", client.name),
            "NFS over RDMA has a network of its own, without a gateway: clients are in the subnet of the pool",
            format!("{ROCE}, section On the Linux Side"),
            format!("an address of {start}/{prefix}, or a smaller prefix_length on the nodes and all clients"),
        );
    }
}

fn has_clients(site: &Site, nas: &At<PowerScale>, findings: &mut Findings) {
    if site.host.is_empty() {
        findings.add(
            nas.span(),
            "the cluster has no client",
            "an export admits the hosts of the site file by their addresses",
            format!("{ROCE}, section Configure the Fileshare on PowerScale"),
            "[hosts] and a [[host]] for each client",
        );
    }
}
