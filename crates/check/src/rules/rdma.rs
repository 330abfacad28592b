//! RDMA devices: state, link layer, firmware, MTU, GIDs, NUMA node, modules.

use super::list;
use crate::parse::{RdmaLink, RdmaPort, rdma_links, rdma_ports};
use crate::{Evidence, Expected, Finding};

const TREE: &str = "sys-infiniband.txt";
const DEVINFO: &str = "ibv_devinfo.txt";
const LINKS: &str = "rdma-link.txt";
/// What the kernel leaves for headers when it derives the RDMA MTU from that of an interface.
const HEADER_BYTES: u32 = 96;
const ACTIVE: &str = "PORT_ACTIVE";
/// What programs in user space need for connections over RDMA.
const USER_MODULES: [&str; 2] = ["rdma_ucm", "ib_uverbs"];

pub(super) fn check(evidence: &Evidence, expected: &Expected, out: &mut Vec<Finding>) {
    let (ports, source) = ports(evidence);
    if ports.is_empty() {
        // What is not understood shows no absence. Nor does an empty `rdma-link.txt`, as it is also
        // where the program is not installed.
        let is_unread = [TREE, DEVINFO, LINKS].iter().any(|name| super::unread::is_unread(evidence, name));
        if !is_unread && (evidence.0.contains_key(TREE) || evidence.0.contains_key(DEVINFO)) {
            out.push(no_device(expected));
        }
        return;
    }
    let any_is_active = ports.iter().any(|port| port.state == ACTIVE);
    for port in &ports {
        out.push(state(evidence, port, source, any_is_active));
        out.extend(link_layer(port, source));
        if port.state == ACTIVE && is_used(evidence, port) {
            out.extend(match &*port.link_layer {
                "Ethernet" => Some(mtu(evidence, expected, port)),
                "InfiniBand" => Some(fabric_mtu(evidence, port)),
                "" => Some(unknown_mtu(port)),
                _ => None,
            });
            out.extend(gids(evidence, port));
        }
    }
    numa(evidence, &ports, out);
    modules(evidence, out);
}

/// A host without RDMA devices, which may be as planned.
fn no_device(expected: &Expected) -> Finding {
    let planned = expected.portals.iter().filter(|portal| portal.transport == "rdma").count();
    let seen = match planned {
        0 => "no RDMA device: only TCP can be used".to_owned(),
        _ => format!("no RDMA device, and {planned} paths over RDMA are planned"),
    };
    let finding = Finding::ok("rdma.devices", "/sys/class/infiniband, ibv_devinfo", seen);
    if planned == 0 {
        return finding;
    }
    finding.fail(
        "no path over RDMA can be connected",
        "lspci | grep -i -e network -e infiniband -e ethernet    # is the card there? then its driver's RDMA module, \
         such as modprobe mlx5_ib; dmesg | tail",
    )
}

/// The ports, from what is captured: the first of three that shows any, the one that says most
/// first.
fn ports(evidence: &Evidence) -> (Vec<RdmaPort>, &str) {
    let from_devinfo = evidence.text(DEVINFO).map(rdma_ports).unwrap_or_default();
    if !from_devinfo.is_empty() {
        return (from_devinfo, evidence.source(DEVINFO));
    }
    let form = "/sys/class/infiniband/*/ports/*/state";
    let port = |(stars, state): (Vec<&str>, &str)| {
        let [device, port] = stars[..] else { return None };
        let at = format!("/sys/class/infiniband/{device}");
        let value = |path: &str| evidence.value(TREE, &format!("{at}/{path}")).unwrap_or_default().to_owned();
        Some(RdmaPort {
            device: device.to_owned(),
            port: port.to_owned(),
            firmware: value("fw_ver"),
            // `4: ACTIVE`
            state: format!("PORT_{}", state.rsplit(' ').next().unwrap_or_default()),
            link_layer: value(&format!("ports/{port}/link_layer")),
            ..RdmaPort::default()
        })
    };
    let from_tree: Vec<_> = evidence.tree(TREE, form).into_iter().filter_map(port).collect();
    if !from_tree.is_empty() {
        return (from_tree, "/sys/class/infiniband");
    }
    let port = |link: RdmaLink<'_>| RdmaPort {
        device: link.device.to_owned(),
        port: link.port.to_owned(),
        state: format!("PORT_{}", link.state),
        ..RdmaPort::default()
    };
    let links = evidence.text(LINKS).map(rdma_links).unwrap_or_default();
    (links.into_iter().map(port).collect(), evidence.source(LINKS))
}

/// The network interface of a port.
fn interface<'a>(evidence: &'a Evidence, port: &RdmaPort) -> Option<&'a str> {
    let form = format!("/sys/class/infiniband/{}/ports/{}/gid_attrs/ndevs/*", port.device, port.port);
    let from_tree = evidence.tree(TREE, &form).into_iter().next().map(|(_, name)| name);
    from_tree.or_else(|| {
        let links = rdma_links(evidence.text(LINKS)?);
        links.into_iter().find(|link| link.device == port.device && link.port == port.port)?.interface
    })
}

/// Whether the interface of a port has an address. Without knowledge of addresses, every port
/// counts as used.
fn is_used(evidence: &Evidence, port: &RdmaPort) -> bool {
    let addresses = super::routing::addresses(evidence);
    let has_address = |name| addresses.iter().any(|local| local.interface == name);
    addresses.is_empty() || interface(evidence, port).is_some_and(has_address)
}

/// The interfaces of used ports.
pub(super) fn used_interfaces(evidence: &Evidence) -> Vec<&str> {
    let (ports, _) = ports(evidence);
    let used = ports.iter().filter(|port| is_used(evidence, port));
    let mut names: Vec<_> = used.filter_map(|port| interface(evidence, port)).collect();
    names.sort_unstable();
    names.dedup();
    names
}

fn state(evidence: &Evidence, port: &RdmaPort, source: &str, any_is_active: bool) -> Finding {
    let RdmaPort { device, port: number, state, firmware, .. } = port;
    let firmware = if firmware.is_empty() { "unknown" } else { firmware };
    let seen = format!("{device} port {number}: {state}, firmware {firmware}");
    let finding = Finding::ok("rdma.port-state", source, seen);
    if state == ACTIVE {
        return finding;
    }
    if any_is_active && !is_used(evidence, port) {
        return Finding {
            seen: format!("{}; not in use: its interface has no address", finding.seen),
            ..finding
        };
    }
    let interface = interface(evidence, port);
    let mend = match interface {
        Some(name) => format!("ip link set dev {name} up; ethtool {name}    # is a cable detected?"),
        None if port.link_layer == "InfiniBand" => "ibstat; sminfo    # cable and subnet manager".to_owned(),
        None => format!("rdma link show {device}/{number}    # then its interface, cable and switch port"),
    };
    finding.fail("nothing passes over RDMA through a port that is not active", mend)
}

fn link_layer(port: &RdmaPort, source: &str) -> Option<Finding> {
    if port.link_layer.is_empty() {
        return None;
    }
    let seen = format!("{} port {}: link layer {}", port.device, port.port, port.link_layer);
    Some(Finding::ok("rdma.link-layer", source, seen))
}

/// The largest RDMA MTU. InfiniBand Architecture Specification, volume 1, section 14.2.5.6
const RDMA_MTU_MAX: u32 = 4096;

/// The largest RDMA MTU that an interface with this MTU carries.
fn carried_mtu(interface: u32) -> u32 {
    let room = interface.saturating_sub(HEADER_BYTES);
    [RDMA_MTU_MAX, 2048, 1024, 512].into_iter().find(|mtu| *mtu <= room).unwrap_or(256)
}

/// The MTU of a port of RoCE or iWARP follows that of its interface.
fn mtu(evidence: &Evidence, expected: &Expected, port: &RdmaPort) -> Finding {
    let RdmaPort { device, port: number, active_mtu, max_mtu, .. } = port;
    let name = interface(evidence, port);
    let path = format!("/sys/class/net/{}/mtu", name.unwrap_or_default());
    let shown = evidence.value("sys-net.txt", &path).and_then(|mtu| mtu.parse().ok());
    let of_interface = shown.or(expected.mtu);
    let Some(active) = *active_mtu else { return unknown_mtu(port) };
    let interface_text = match (name, shown, expected.mtu) {
        (Some(name), Some(mtu), _) => format!("{name} has an MTU of {mtu}"),
        (_, None, Some(mtu)) => format!("{mtu} is expected of its interface"),
        _ => "the MTU of its interface is not known".to_owned(),
    };
    let seen = format!("{device} port {number}: active RDMA MTU {active}; {interface_text}");
    let finding = Finding::ok("rdma.mtu", evidence.source(DEVINFO), seen);
    let Some(of_interface) = of_interface else {
        // Whatever the interface has, the port can do no more.
        if active >= max_mtu.unwrap_or(RDMA_MTU_MAX) {
            return finding;
        }
        let name = name.unwrap_or("INTERFACE");
        let mend = format!("grep -r . /sys/class/net/*/mtu > sys-net.txt, or --mtu with the MTU of {name}");
        return Finding::unknown("rdma.mtu", finding.source, finding.seen, mend);
    };
    let best = carried_mtu(of_interface).min(max_mtu.unwrap_or(u32::MAX));
    if active >= best {
        return finding;
    }
    let why = format!("the interface carries RDMA packets of {best} bytes; smaller ones cost more of them");
    let name = name.unwrap_or("INTERFACE");
    let mend = format!(
        "ip link set dev {name} mtu {of_interface}    # if the device keeps its MTU, unmount, and set the \
         interface down and up from a console; the switch ports must carry the MTU too"
    );
    finding.warn(why, mend)
}

fn unknown_mtu(port: &RdmaPort) -> Finding {
    let seen = format!("{} port {}: the active RDMA MTU is not known", port.device, port.port);
    let mend = "install ibverbs-utils (Debian) or libibverbs-utils (RHEL) for ibv_devinfo";
    Finding::unknown("rdma.mtu", DEVINFO, seen, mend)
}

/// The MTU of a port of InfiniBand is that of its link: the subnet manager sets the smaller one of
/// what the port and the port at the other end can do. The MTU of IPoIB does not matter to it.
// InfiniBand Architecture Specification, volume 1, section 14.2.5.6: PortInfo, NeighborMTU, MTUCap
fn fabric_mtu(evidence: &Evidence, port: &RdmaPort) -> Finding {
    let RdmaPort { device, port: number, active_mtu, max_mtu, .. } = port;
    let Some((active, most)) = active_mtu.zip(*max_mtu) else { return unknown_mtu(port) };
    let seen = format!("{device} port {number}: active RDMA MTU {active}; the port can do {most}");
    let finding = Finding::ok("rdma.mtu", evidence.source(DEVINFO), seen);
    if active >= most {
        return finding;
    }
    finding.warn(
        format!("the port carries RDMA packets of {most} bytes; smaller ones cost more of them"),
        format!(
            "iblinkinfo; smpquery -C {device} -P {number} portinfo LID PORT    # MtuCap of the switch port at the \
             other end of the cable: raise it there, and set the link down and up"
        ),
    )
}

/// RoCE v2 needs a GID that is made from an address of the interface.
fn gids(evidence: &Evidence, port: &RdmaPort) -> Option<Finding> {
    let RdmaPort { device, port: number, .. } = port;
    let at = format!("/sys/class/infiniband/{device}/ports/{number}");
    let types = evidence.tree(TREE, &format!("{at}/gid_attrs/types/*"));
    let node_type = evidence.value(TREE, &format!("/sys/class/infiniband/{device}/node_type"));
    // iWARP runs over TCP and has no such GIDs.
    let is_iwarp = node_type.is_some_and(|kind| kind.contains("RNIC"));
    if port.link_layer != "Ethernet" || evidence.text(TREE).is_none() || is_iwarp {
        return None;
    }
    // Cards before ConnectX-4 have only version 1, which is not routed but works in one network.
    let v2: Vec<_> = types.iter().filter(|(_, kind)| kind.contains("RoCE")).collect();
    let gid_of = |index: &str| evidence.value(TREE, &format!("{at}/gids/{index}")).unwrap_or_default();
    // A link-local GID is there without an address, but peers connect to addresses.
    let routed = v2.iter().filter(|(stars, _)| stars.iter().all(|index| !gid_of(index).starts_with("fe80:")));
    let seen = format!(
        "{device} port {number}: {} GIDs of RoCE, {} of them of IP addresses",
        v2.len(),
        routed.clone().count()
    );
    let finding = Finding::ok("rdma.gids", &*at, seen);
    if routed.count() > 0 {
        return Some(finding);
    }
    let name = interface(evidence, port).unwrap_or("INTERFACE");
    let why = "connections over RoCE use the GID of an IP address; without one nobody can connect";
    Some(finding.fail(why, format!("ip addr add ADDRESS/PREFIX dev {name}")))
}

/// On a host with several NUMA nodes, a card should be used from the processors beside it.
fn numa(evidence: &Evidence, ports: &[RdmaPort], out: &mut Vec<Finding>) {
    let mut devices: Vec<&str> = ports.iter().map(|port| &*port.device).collect();
    devices.dedup();
    for device in devices {
        let path = format!("/sys/class/infiniband/{device}/device/numa_node");
        let node = evidence.value(TREE, &path);
        out.extend(node.and_then(|node| beside(evidence, "rdma.numa", device, node, &path)));
    }
}

/// Whether this process may use processors beside a device. Of a host with one node, and of a
/// device that belongs to none, nothing is to be said.
pub(super) fn beside(
    evidence: &Evidence,
    rule: &'static str,
    device: &str,
    node: &str,
    path: &str,
) -> Option<Finding> {
    let nodes = evidence.tree("numa.txt", "/sys/devices/system/node/node*/cpulist");
    if nodes.len() < 2 || node == "-1" {
        return None;
    }
    let status = evidence.text("status.txt").unwrap_or_default();
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).map(str::trim)?;
    let (_, cpus) = nodes.iter().find(|(stars, _)| stars[..] == [&*format!("node{node}")])?;
    let seen = format!("{device} is at NUMA node {node} (processors {cpus}); this process may use {allowed}");
    let finding = Finding::ok(rule, path, seen);
    if overlap(allowed, cpus) {
        return Some(finding);
    }
    Some(finding.warn(
        "every transfer crosses the link between the sockets",
        format!("numactl --cpunodebind={node} --membind={node} COMMAND"),
    ))
}

/// Whether two lists such as `0-3,8` have a processor in common.
fn overlap(one: &str, other: &str) -> bool {
    let ranges = |list: &str| -> Vec<(u32, u32)> {
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            Some((first.trim().parse().ok()?, last.trim().parse().ok()?))
        };
        list.split(',').filter_map(range).collect()
    };
    let mut other = ranges(other);
    other.sort_unstable();
    ranges(one).into_iter().any(|(first, last)| other.iter().any(|(from, to)| first <= *to && *from <= last))
}

fn modules(evidence: &Evidence, out: &mut Vec<Finding>) {
    const NAME: &str = "sys-module.txt";
    let Some(text) = evidence.text(NAME) else { return };
    let loaded: Vec<_> = text.lines().map(str::trim).collect();
    let missing: Vec<_> = USER_MODULES.into_iter().filter(|module| !loaded.contains(module)).collect();
    let finding =
        Finding::ok("rdma.modules", evidence.source(NAME), format!("{} are loaded", list(&USER_MODULES)));
    out.push(if missing.is_empty() {
        finding
    } else {
        let missing = list(&missing);
        let mend = format!("modprobe -a {}", missing.replace(',', ""));
        Finding { seen: format!("not loaded: {missing}"), ..finding }
            .fail("Trunkline and other programs in user space cannot connect over RDMA", mend)
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_carries_the_next_smaller_rdma_mtu() {
        for (interface, rdma) in [(9000, 4096), (4200, 4096), (1500, 1024), (1000, 512), (68, 256)] {
            assert_eq!(carried_mtu(interface), rdma, "{interface}");
        }
    }

    #[test]
    fn lists_of_processors_overlap() {
        assert!(overlap("0-2,8", "8") && overlap("3", "0-7"));
        assert!(!overlap("0-2,8", "3-7,9") && !overlap("x", "0"));
    }
}
