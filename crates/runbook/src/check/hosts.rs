//! Rules of the hosts: NQNs, one way of multipathing, and enough ports where cables are direct.

use super::addresses::Addresses;
use super::guide;
use super::local;
use super::names::{Names, SANTRICITY_LABEL_MAX, check_interface, is_santricity_label};
use super::powerscale;
use crate::error::Findings;
use crate::model::{self, Connect, Portal};
use crate::nqn;
use crate::site::{Array, At, Host, Hosts, IoPolicy, Os, Site, Topology, Transport};
use std::collections::HashMap;
use std::net::IpAddr;

/// The most hosts that one name may stand for.
const RANGE_MAX: u64 = 1000;

/// Checks all hosts.
pub(super) fn check(
    site: &Site,
    arrays: &[model::Array],
    others: &[Portal],
    addresses: &mut Addresses,
    names: &mut Names,
    findings: &mut Findings,
) -> (Vec<model::Host>, Option<Connect>) {
    let Some(shared) = &site.hosts else {
        needs_hosts_table(site, findings);
        return (Vec::new(), None);
    };
    check_interface(&shared.get_ref().interface, findings);
    queue_size(&shared.get_ref().queue_size, findings);
    if !site.array.is_empty() || !others.is_empty() {
        one_multipath(site, shared.get_ref(), findings);
    }
    has_policy(site, shared.get_ref(), findings);
    if let Some(prefix) = &shared.get_ref().nqn_prefix {
        check_nqn(prefix.span(), &format!("{}host", prefix.get_ref()), findings);
    }
    let mut nqns = HashMap::new();
    let mut hosts = Vec::new();
    for host in &site.host {
        let expanded = expand(host, addresses, names, findings);
        let of_host: Vec<_> = expanded.iter().map(|(name, _)| name.clone()).collect();
        let mut local = local::check(site, host, &of_host, addresses, findings);
        for (name, address) in expanded {
            let mut found = one(shared, host, name, address, findings);
            found.portals = portals(hosts.len(), arrays, others);
            found.local = local.take();
            powerscale::is_reachable(site, host, &found, findings);
            unique_nqn(host, &found, &mut nqns, findings);
            if !found.portals.is_empty() {
                names.take_line(&host.get_ref().name, &found.name, findings);
                names.take_line(&host.get_ref().name, &found.initiator(), findings);
            }
            if !site.array.is_empty() {
                check_initiator(host, &found, findings);
            }
            hosts.push(found);
        }
    }
    enough_ports(site, hosts.len(), findings);
    has_targets(site, &hosts, findings);
    request_fits(site, shared.get_ref(), &hosts, findings);
    (hosts, Some(connect(site, shared.get_ref())))
}

fn needs_hosts_table(site: &Site, findings: &mut Findings) {
    if let Some(host) = site.host.first() {
        findings.add(
            host.span(),
            "there is a [[host]] but no [hosts]",
            "[hosts] says what all hosts have in common: os, interface, nqn_prefix",
            "docs/RUNBOOKS.md",
            "[hosts] with os = \"rhel8\" and interface = \"ib0\"",
        );
    } else if let Some(array) = site.array.first() {
        findings.add(
            array.span(),
            "there is an [[array]] but no [[host]]",
            "volumes are mapped to a group of hosts, which the array knows by their NQNs",
            guide("section Creating the Host Topology for NVMe-over-Fabrics"),
            "[hosts] and a [[host]] for each host, or for a range of them",
        );
    }
}

// Linux, drivers/nvme/host/fabrics.h: NVMF_MIN_QUEUE_SIZE 16, NVMF_MAX_QUEUE_SIZE 1024.
fn queue_size(size: &At<u32>, findings: &mut Findings) {
    if !(16..=1024).contains(size.get_ref()) {
        findings.add(
            size.span(),
            format!("a queue of {} entries is not possible", size.get_ref()),
            "an I/O queue has 16 to 1024 entries",
            "Linux, drivers/nvme/host/fabrics.h",
            "queue_size = 1024",
        );
    }
}

/// RHEL 7 joins paths by DM-Multipath, later systems by the NVMe driver: never both in one cluster.
/// Hosts without paths, such as clients of PowerScale, join none.
fn one_multipath(site: &Site, shared: &Hosts, findings: &mut Findings) {
    let os = |host: &At<Host>| os(host, shared);
    let Some(first) = site.host.first().map(os) else { return };
    let differs = |host: &&At<Host>| os(host).has_native_multipath() != first.has_native_multipath();
    let Some(other) = site.host.iter().find(differs) else { return };
    let span = other.get_ref().os.as_ref().map_or_else(|| other.span(), At::span);
    findings.add(
        span,
        format!("hosts of RHEL 7 and of a later system are mixed: {} differs from the hosts before it", other.get_ref().name.get_ref()),
        "RHEL 7 (DM-Multipath) and later systems (native NVMe multipath) do not share volumes: they multipath in different layers",
        guide("section NVMe Configuration on the Linux Hosts"),
        "a site file for each system, with volumes of its own",
    );
}

/// The operating system of a host.
fn os(host: &At<Host>, shared: &Hosts) -> Os {
    host.get_ref().os.as_ref().map_or(*shared.os.get_ref(), |os| *os.get_ref())
}

// Linux 6.11, drivers/nvme/host/multipath.c: NVME_IOPOLICY_QD.
fn has_policy(site: &Site, shared: &Hosts, findings: &mut Findings) {
    let Some(policy) = &shared.iopolicy else { return };
    if site.host.iter().any(|host| !os(host, shared).has_native_multipath()) {
        findings.add(
            policy.span(),
            "iopolicy has no effect on rhel7",
            "iopolicy is the policy of native NVMe multipath; DM-Multipath has its own, in multipath.conf",
            guide("section NVMe Configuration on the Linux Hosts"),
            "leave iopolicy out",
        );
        return;
    }
    if *policy.get_ref() != IoPolicy::QueueDepth {
        return;
    }
    let oldest = site.host.iter().map(|host| os(host, shared)).find(|os| !os.has_queue_depth());
    if let Some(os) = oldest {
        findings.add(
            policy.span(),
            format!("the kernel of {} has no iopolicy queue-depth", os.name()),
            "queue-depth came with Linux 6.11: rhel10 and debian13 have it",
            "Linux, Documentation/admin-guide/nvme-multipath.rst",
            "iopolicy = \"round-robin\"",
        );
    }
}

/// The largest request of nvme-rdma: 256 segments of 4 KiB.
// Linux, drivers/nvme/host/rdma.c: NVME_RDMA_MAX_SEGMENTS.
const RDMA_REQUEST_KIB_MAX: u32 = 1024;

/// The kernel refuses a larger `max_sectors_kb` than the driver can send.
fn request_fits(site: &Site, shared: &Hosts, hosts: &[model::Host], findings: &mut Findings) {
    let Some(request) = shared.request_kib.as_ref() else { return };
    let over_rdma = hosts
        .iter()
        .flat_map(|host| &host.portals)
        .any(|portal| portal.transport == Transport::Rdma)
        .then_some("over RDMA");
    // Deploying NetApp EF600, section Configuring Volumes on RAID Volume Groups, of RHEL 8.2.
    let of_rhel8 = site.host.iter().any(|host| os(host, shared) == Os::Rhel8).then_some("of rhel8");
    let Some(limited) = of_rhel8.or(over_rdma).filter(|_| *request.get_ref() > RDMA_REQUEST_KIB_MAX) else {
        return;
    };
    findings.add(
        request.span(),
        format!("hosts {limited} send no requests of {} KiB", request.get_ref()),
        format!(
            "a request has at most {RDMA_REQUEST_KIB_MAX} KiB over RDMA (256 segments of 4 KiB), and on RHEL 8 at all"
        ),
        guide("section Configuring Volumes on RAID Volume Groups"),
        format!("request_kib = {RDMA_REQUEST_KIB_MAX}"),
    );
}

/// The names and addresses that a host stands for.
fn expand(
    host: &At<Host>,
    addresses: &mut Addresses,
    names: &mut Names,
    findings: &mut Findings,
) -> Vec<(String, IpAddr)> {
    let keys = host.get_ref();
    let text = keys.name.get_ref();
    let Some(range) = Range::read(text) else {
        names.check_host_name(&keys.name, ("name", "host"), findings);
        names.check_unique(&keys.name, findings);
        let address = addresses.take(&keys.address, &format!("host {text}"), findings);
        return address.into_iter().map(|address| (text.clone(), address)).collect();
    };
    let first = range.name(range.first);
    names.check_range(&keys.name, &first, (range.before, range.numbers, range.after), findings);
    let count = range.last.saturating_sub(range.first).saturating_add(1);
    if range.last < range.first || count > RANGE_MAX {
        findings.add(
            keys.name.span(),
            format!("{text:?} does not stand for hosts"),
            format!("a range counts upwards, over at most {RANGE_MAX} hosts"),
            "docs/RUNBOOKS.md",
            "name = \"cmp[01-54]\"",
        );
        return Vec::new();
    }
    let Some(address) = addresses.take(&keys.address, &format!("host {first}"), findings) else {
        return Vec::new();
    };
    let room = room(address);
    if count - 1 > room {
        findings.add(
            keys.address.span(),
            format!(
                "{count} hosts do not fit behind {address}: {} of them would be beyond its last number",
                count - 1 - room
            ),
            "the addresses of a range differ in their last number only, up to 254 (IPv6: up to ffff)",
            "docs/RUNBOOKS.md",
            "two [[host]] tables, each with a part of the range and its own first address",
        );
        return Vec::new();
    }
    let mut expanded = Vec::new();
    for (offset, number) in (range.first..=range.last).enumerate() {
        let (name, address) = (range.name(number), step(address, offset));
        names.take(&keys.name, &name, findings);
        if offset > 0 {
            addresses.note(&keys.address, address, &format!("host {name}"), findings);
        }
        expanded.push((name, address));
    }
    expanded
}

/// How many addresses follow this one before its last number is used up. What comes then is in
/// another subnet, or is the broadcast address of this one.
fn room(address: IpAddr) -> u64 {
    match address {
        IpAddr::V4(ip) => 254_u64.saturating_sub(ip.octets()[3].into()),
        IpAddr::V6(ip) => 0xffff_u64.saturating_sub(ip.segments()[7].into()),
    }
}

/// The address that is this many after another.
fn step(address: IpAddr, offset: usize) -> IpAddr {
    match address {
        IpAddr::V4(ip) => {
            IpAddr::V4(u32::from(ip).wrapping_add(u32::try_from(offset).unwrap_or_default()).into())
        }
        IpAddr::V6(ip) => IpAddr::V6(u128::from(ip).wrapping_add(offset as u128).into()),
    }
}

/// `cmp[01-54]`.
struct Range<'a> {
    before: &'a str,
    /// `01-54`
    numbers: &'a str,
    after: &'a str,
    first: u64,
    last: u64,
    digits: usize,
}

impl<'a> Range<'a> {
    fn read(text: &'a str) -> Option<Self> {
        let (before, rest) = text.split_once('[')?;
        let (numbers, after) = rest.split_once(']')?;
        let (first, last) = numbers.split_once('-')?;
        Some(Self {
            before,
            numbers,
            after,
            first: first.parse().ok()?,
            last: last.parse().ok()?,
            digits: first.len(),
        })
    }

    fn name(&self, number: u64) -> String {
        format!("{}{number:0digits$}{}", self.before, self.after, digits = self.digits)
    }
}

fn one(
    shared: &At<Hosts>,
    host: &At<Host>,
    name: String,
    address: IpAddr,
    findings: &mut Findings,
) -> model::Host {
    let keys = host.get_ref();
    let interface = keys.interface.as_ref().unwrap_or(&shared.get_ref().interface);
    if keys.interface.is_some() {
        check_interface(interface, findings);
    }
    let interface = interface.get_ref().clone();
    let text = match (&keys.nqn, &shared.get_ref().nqn_prefix) {
        (Some(nqn), _) => {
            check_nqn(nqn.span(), nqn.get_ref(), findings);
            nqn.get_ref().clone()
        }
        // The prefix is checked apart from the names, which have rules of their own. Together they
        // may be too long.
        (None, Some(prefix)) => {
            let whole = format!("{}{name}-{interface}", prefix.get_ref());
            if whole.len() > nqn::BYTES_MAX {
                check_nqn(prefix.span(), &whole, findings);
            }
            whole
        }
        (None, None) => String::new(),
    };
    model::Host {
        name,
        address,
        interface,
        has_native_multipath: os(host, shared.get_ref()).has_native_multipath(),
        nqn: text,
        portals: Vec::new(),
        local: None,
    }
}

/// An array knows each host's initiator by a label.
fn check_initiator(host: &At<Host>, found: &model::Host, findings: &mut Findings) {
    let label = found.initiator();
    if is_santricity_label(&label) {
        return;
    }
    findings.add(
        host.get_ref().name.span(),
        format!("{label:?} is no label for the host's initiator"),
        format!(
            "a label has at most {SANTRICITY_LABEL_MAX} letters, digits, - and _: name, - and interface together"
        ),
        "SANtricity commands, naming conventions",
        "a shorter name",
    );
}

fn check_nqn(span: std::ops::Range<usize>, text: &str, findings: &mut Findings) {
    if let Err(rule) = nqn::check(text) {
        findings.add(
            span,
            format!("{text:?} is not the NQN of a host"),
            rule,
            nqn::ORIGIN,
            "nqn_prefix = \"nqn.2020-12.com.example.hpc:nvme:\" with the date from which you own the domain",
        );
    }
}

fn unique_nqn(
    host: &At<Host>,
    found: &model::Host,
    nqns: &mut HashMap<String, String>,
    findings: &mut Findings,
) {
    if found.nqn.is_empty() {
        return;
    }
    if let Some(other) = nqns.insert(found.nqn.clone(), found.name.clone()) {
        let span = host.get_ref().nqn.as_ref().unwrap_or(&host.get_ref().name).span();
        findings.add(
            span,
            format!("{} has the NQN of {other}", found.name),
            "an NQN names one host: an array maps volumes by it",
            nqn::ORIGIN,
            "leave nqn out of [[host]]; the name of the host then makes it unique",
        );
    }
}

/// The paths of the host at this place.
fn portals(place: usize, arrays: &[model::Array], others: &[Portal]) -> Vec<Portal> {
    let mut portals = Vec::new();
    for array in arrays {
        let portal = |port: &model::Port| Portal {
            target: array.name.clone(),
            transport: Transport::Rdma,
            address: port.address.into(),
            port: crate::site::nvme_port(),
        };
        match array.topology {
            Topology::Fabric => portals.extend(array.ports.iter().map(portal)),
            // Host number N is cabled to port number N of either controller.
            Topology::Direct => {
                let of = |controller| array.ports.iter().filter(move |port| port.controller == controller);
                portals.extend(of('a').nth(place).into_iter().chain(of('b').nth(place)).map(portal));
            }
        }
    }
    portals.extend(others.iter().cloned());
    portals
}

/// With direct cables each host takes one port of each controller.
fn enough_ports(site: &Site, hosts: usize, findings: &mut Findings) {
    let direct = |array: &&At<Array>| array.get_ref().topology == Topology::Direct;
    for array in site.array.iter().filter(direct) {
        let of = |letter| {
            let ports = array.get_ref().ports.get_ref().iter();
            ports.filter(|port| port.get_ref().controller.letter() == letter).count()
        };
        let ports = of('a').min(of('b'));
        if hosts > ports {
            let span = site.host.get(ports).map_or_else(|| array.get_ref().ports.span(), At::span);
            findings.add(
                span,
                format!(
                    "{hosts} hosts are more than the {ports} ports of each controller of {}",
                    array.get_ref().name.get_ref()
                ),
                "in a direct topology each host is cabled to one port of each controller",
                guide("section EF600 and InfiniBand Fabric Topologies"),
                format!("at most {ports} hosts, or topology = \"fabric\" with switches"),
            );
        }
    }
}

/// A host that connects to something has an NQN.
fn has_targets(site: &Site, hosts: &[model::Host], findings: &mut Findings) {
    let Some(host) = hosts.iter().find(|host| !host.portals.is_empty() && host.nqn.is_empty()) else {
        return;
    };
    let span = site.hosts.as_ref().map_or(0..0, At::span);
    findings.add(
        span,
        format!("{} has no NQN", host.name),
        "a host that connects to an NVMe-oF target has an NQN in the form of organisations, which stays the same",
        guide("section Creating the Host Topology for NVMe-over-Fabrics"),
        "nqn_prefix = \"nqn.2020-12.com.example.hpc:nvme:\"",
    );
}

fn connect(site: &Site, shared: &Hosts) -> Connect {
    let os = site.host.first().and_then(|host| host.get_ref().os.as_ref()).unwrap_or(&shared.os);
    Connect {
        has_native_multipath: os.get_ref().has_native_multipath(),
        delay_s: shared.connect_delay_s,
        wait_s: shared.connect_wait_s,
        queue_size: *shared.queue_size.get_ref(),
        ctrl_loss_s: shared.ctrl_loss_s,
        request_kib: shared.request_kib.as_ref().map(|kib| *kib.get_ref()),
        iopolicy: shared.iopolicy.as_ref().map_or(IoPolicy::RoundRobin, |policy| *policy.get_ref()).name(),
    }
}
