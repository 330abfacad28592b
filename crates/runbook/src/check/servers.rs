//! Rules of Linux servers: exports, ports that do not collide, and path states that leave each
//! volume an optimized path.

use super::addresses::Addresses;
use super::names::{Names, check_path};
use crate::error::Findings;
use crate::model::{self, Export, Portal};
use crate::nqn;
use crate::site::{At, Namespace, Nfs, Nvmet, NvmetPort, Server, Site, Trunkline};
use std::collections::{BTreeSet, HashSet};
use std::net::IpAddr;

/// The port of NFS over RDMA. RFC 8267 s4.1
const NFS_RDMA_PORT: u16 = 20049;
/// The port of NFS. RFC 7530 s3.1
const NFS_PORT: u16 = 2049;
/// Linux, drivers/nvme/target/nvmet.h: NVMET_MAX_ANAGRPS.
const ANA_GROUPS_MAX: u32 = 128;
/// Linux, drivers/nvme/target/nvmet.h: NVMET_MAX_NAMESPACES.
const NSID_MAX: u32 = 1024;

/// Checks all servers.
pub(super) fn check(
    site: &Site,
    addresses: &mut Addresses,
    names: &mut Names,
    findings: &mut Findings,
) -> Vec<model::Server> {
    unique_targets(site, findings);
    site.server.iter().map(|server| one(site, server, addresses, names, findings)).collect()
}

/// Hosts tell volumes by the NQN of the subsystem and the volume's number. Two targets of one name
/// would look like two paths to one disk.
fn unique_targets(site: &Site, findings: &mut Findings) {
    let mut nqns = HashSet::new();
    for nvmet in site.server.iter().filter_map(|server| server.get_ref().nvmet.as_ref()) {
        let nqn = &nvmet.get_ref().nqn;
        if !nqns.insert(nqn.get_ref().as_str()) {
            findings.add(
                nqn.span(),
                format!("{} names two subsystems", nqn.get_ref()),
                "an NQN names one subsystem: hosts take its volumes for paths to the same disks",
                nqn::ORIGIN,
                "an NQN of its own for each server",
            );
        }
    }
}

fn one(
    site: &Site,
    server: &At<Server>,
    addresses: &mut Addresses,
    names: &mut Names,
    findings: &mut Findings,
) -> model::Server {
    let keys = server.get_ref();
    let name = keys.name.get_ref();
    names.check_host_name(&keys.name, ("name", "server"), findings);
    names.check_unique(&keys.name, findings);
    if keys.nfs.is_none() && keys.nvmet.is_none() && keys.trunkline.is_none() {
        findings.add(
            server.span(),
            format!("{name} serves nothing"),
            "a server has at least one of [server.nfs], [server.nvmet] and [server.trunkline]",
            "docs/RUNBOOKS.md",
            "[server.trunkline] with addresses and exports",
        );
    }
    ports_apart(keys, findings);
    let user = format!("server {name}");
    model::Server {
        name: name.clone(),
        nfs: keys.nfs.as_ref().map(|nfs| kernel_nfs(nfs.get_ref(), findings)),
        nvmet: keys.nvmet.as_ref().map(|nvmet| target(site, nvmet, &user, addresses, findings)),
        trunkline: keys.trunkline.as_ref().map(|own| trunkline(own, &user, addresses, findings)),
    }
}

/// Two NFS servers on one machine need ports of their own: the kernel's listens on all addresses.
fn ports_apart(server: &Server, findings: &mut Findings) {
    let (Some(kernel), Some(own)) = (&server.nfs, &server.trunkline) else { return };
    let own = own.get_ref();
    let collides_rdma = |port: &&At<u16>| kernel.get_ref().rdma && *port.get_ref() == NFS_RDMA_PORT;
    let place = if *own.port.get_ref() == NFS_PORT {
        Some(if own.port.span().is_empty() { own.addresses.span() } else { own.port.span() })
    } else {
        own.rdma_port.as_ref().filter(collides_rdma).map(At::span)
    };
    if let Some(place) = place {
        findings.add(
            place,
            "Trunkline would listen where the kernel's NFS server listens",
            "the kernel's server listens on port 2049 of all addresses, and over RDMA on 20049",
            "rpc.nfsd(8)",
            "port = 12049 and rdma_port = 12050 in [server.trunkline], or one of the two servers",
        );
    }
}

fn kernel_nfs(nfs: &Nfs, findings: &mut Findings) -> model::Nfs {
    if !(1..=1024).contains(nfs.threads.get_ref()) {
        findings.add(
            nfs.threads.span(),
            format!("{} threads are not possible", nfs.threads.get_ref()),
            "the kernel's server has 1 to 1024 threads",
            "rpc.nfsd(8)",
            "threads = 64",
        );
    }
    let mut exports = Vec::new();
    let (mut paths, mut fsids) = (HashSet::new(), HashSet::new());
    for export in nfs.exports.get_ref() {
        let keys = export.get_ref();
        check_path(&keys.path, "directory", findings);
        unique(&keys.path, &mut paths, findings);
        keys.fsid.iter().for_each(|fsid| unique_fsid(fsid, &mut fsids, findings));
        exports.push(Export {
            path: keys.path.get_ref().clone(),
            dir: Some(keys.path.get_ref().clone()),
            mem: None,
            clients: clients(&keys.clients, findings),
            is_writable: keys.rw,
            keeps_root: keys.no_root_squash,
            fsid: keys.fsid.as_ref().map(|fsid| *fsid.get_ref()),
        });
    }
    something(&nfs.exports, "exports", exports.len(), findings);
    model::Nfs { is_over_rdma: nfs.rdma, threads: *nfs.threads.get_ref(), exports }
}

/// Clients that hold a handle of one export would reach the files of the other.
fn unique_fsid(fsid: &At<u32>, fsids: &mut HashSet<u32>, findings: &mut Findings) {
    let number = *fsid.get_ref();
    if !fsids.insert(number) {
        findings.add(
            fsid.span(),
            format!("fsid = {number} is used twice"),
            "fsid names one exported file system of a server: it is part of its file handles",
            "exports(5), fsid=num",
            "another number, or leave fsid out for a file system that has a UUID",
        );
    }
}

fn trunkline(
    own: &At<Trunkline>,
    user: &str,
    addresses: &mut Addresses,
    findings: &mut Findings,
) -> model::Trunkline {
    let keys = own.get_ref();
    let nodes: Vec<IpAddr> = keys
        .addresses
        .get_ref()
        .iter()
        .filter_map(|address| addresses.take(address, user, findings))
        .collect();
    something(&keys.addresses, "addresses", keys.addresses.get_ref().len(), findings);
    let mut listed = HashSet::new();
    for address in keys.addresses.get_ref() {
        if !listed.insert(address.get_ref().as_str()) {
            findings.add(
                address.span(),
                format!("the address {} is listed twice", address.get_ref()),
                "each address is one node of the group",
                "docs/SERVE.md",
                "the address of another interface, or one line less",
            );
        }
    }
    let mut exports = Vec::new();
    let mut paths = HashSet::new();
    for export in keys.exports.get_ref() {
        let export = export.get_ref();
        check_path(&export.path, "path", findings);
        unique(&export.path, &mut paths, findings);
        export.dir.iter().for_each(|dir| check_path(dir, "directory", findings));
        export.mem.iter().for_each(|mem| check_size(mem, findings));
        if export.dir.is_some() == export.mem.is_some() {
            findings.add(
                export.path.span(),
                format!("the export {} needs dir or mem, and not both", export.path.get_ref()),
                "an export is a directory or a store in memory",
                "docs/SERVE.md",
                "dir = \"/srv/data\", or mem = \"2GiB\"",
            );
        }
        exports.push(Export {
            path: export.path.get_ref().clone(),
            dir: export.dir.as_ref().map(|dir| dir.get_ref().clone()),
            mem: export.mem.as_ref().map(|mem| mem.get_ref().clone()),
            clients: clients(&export.clients, findings),
            is_writable: export.rw,
            keeps_root: export.no_root_squash,
            fsid: None,
        });
    }
    something(&keys.exports, "exports", exports.len(), findings);
    let rdma_port = keys.rdma_port.as_ref().map(|port| *port.get_ref());
    model::Trunkline { addresses: nodes, port: *keys.port.get_ref(), rdma_port, exports }
}

fn check_size(mem: &At<String>, findings: &mut Findings) {
    let text = mem.get_ref();
    let number =
        ["KiB", "MiB", "GiB", "TiB", "MB", "GB", "TB"].iter().find_map(|unit| text.strip_suffix(unit));
    if number.is_none_or(|number| number.parse::<u32>().is_err()) {
        findings.add(
            mem.span(),
            format!("{text:?} is not a size"),
            "a size is a whole number and its unit",
            "docs/SERVE.md",
            "mem = \"2GiB\"",
        );
    }
}

/// Addresses and networks.
fn clients(given: &At<Vec<At<String>>>, findings: &mut Findings) -> Vec<String> {
    something(given, "clients", given.get_ref().len(), findings);
    for client in given.get_ref() {
        let text = client.get_ref();
        let (address, prefix) = text.split_once('/').unwrap_or((text, ""));
        let bits = address.parse::<IpAddr>().ok().map(|ip| if ip.is_ipv4() { 32 } else { 128 });
        let has_prefix = prefix.is_empty() || bits >= prefix.parse::<u32>().ok();
        if bits.is_none() || !has_prefix || text.ends_with('/') {
            findings.add(
                client.span(),
                format!("{text:?} is neither an address nor a network"),
                "clients are admitted by address or by network with its prefix length",
                "exports(5)",
                "clients = [\"10.0.0.0/16\"]",
            );
        }
    }
    given.get_ref().iter().map(|client| client.get_ref().clone()).collect()
}

/// A list has something in it.
fn something<T>(list: &At<T>, what: &str, count: usize, findings: &mut Findings) {
    if count == 0 {
        findings.add(
            list.span(),
            format!("{what} is empty"),
            "nothing is open by default: what is served, where and to whom is named",
            "docs/RUNBOOKS.md",
            format!("{what} = [...] with at least one"),
        );
    }
}

/// No two exports or volumes are the same.
fn unique(path: &At<String>, paths: &mut HashSet<String>, findings: &mut Findings) {
    if !paths.insert(path.get_ref().clone()) {
        findings.add(
            path.span(),
            format!("{} is used twice", path.get_ref()),
            "each export and each volume is one directory or device",
            "docs/RUNBOOKS.md",
            "another one, or leave one of them out",
        );
    }
}

fn target(
    site: &Site,
    nvmet: &At<Nvmet>,
    user: &str,
    addresses: &mut Addresses,
    findings: &mut Findings,
) -> model::Nvmet {
    let keys = nvmet.get_ref();
    if let Err(rule) = nqn::check(keys.nqn.get_ref()) {
        let sentence = format!("{:?} is not the NQN of a subsystem", keys.nqn.get_ref());
        findings.add(keys.nqn.span(), sentence, rule, nqn::ORIGIN, "nqn = \"nqn.2024-01.org.example:stor1\"");
    }
    if site.host.is_empty() && !keys.allow_any_host {
        findings.add(
            nvmet.span(),
            "no host may connect to the target",
            "a target admits the hosts of the site file by their NQNs; any host, only if it says so",
            "Linux, nvmet: attr_allow_any_host",
            "a [[host]] for each host, or allow_any_host = true",
        );
    }
    let (mut devices, mut nsids) = (HashSet::new(), HashSet::new());
    let namespaces: Vec<_> = (1..)
        .zip(keys.namespaces.get_ref())
        .map(|(place, one)| namespace(place, one, &mut devices, &mut nsids, findings))
        .collect();
    something(&keys.namespaces, "namespaces", namespaces.len(), findings);
    let groups: BTreeSet<u32> = namespaces.iter().map(|namespace| namespace.group).collect();
    let mut portals = HashSet::new();
    let mut ports = Vec::new();
    for port in keys.ports.get_ref() {
        ports.extend(target_port(port, user, &groups, &mut portals, addresses, findings));
    }
    something(&keys.ports, "ports", keys.ports.get_ref().len(), findings);
    for (one, namespace) in keys.namespaces.get_ref().iter().zip(&namespaces) {
        let is_group = (1..=ANA_GROUPS_MAX).contains(&namespace.group);
        let has_path = ports.iter().any(|port| port.optimized.contains(&namespace.group));
        if is_group && !has_path && !ports.is_empty() {
            findings.add(
                one.span(),
                format!("no path to {} is optimized", namespace.device),
                "each ANA group has an optimized path through at least one port",
                "NVM Express Base Specification 2.0, section 8.1 (asymmetric namespace access)",
                format!("optimized = [{}] on one of the ports", namespace.group),
            );
        }
    }
    model::Nvmet {
        nqn: keys.nqn.get_ref().clone(),
        allows_any_host: keys.allow_any_host,
        namespaces,
        ports,
        groups: groups.into_iter().collect(),
    }
}

fn namespace(
    place: u32,
    namespace: &At<Namespace>,
    devices: &mut HashSet<String>,
    nsids: &mut HashSet<u32>,
    findings: &mut Findings,
) -> model::Namespace {
    let keys = namespace.get_ref();
    let nsid = keys.nsid.as_ref().map_or(place, |nsid| *nsid.get_ref());
    if !(1..=NSID_MAX).contains(&nsid) || !nsids.insert(nsid) {
        findings.add(
            keys.nsid.as_ref().map_or_else(|| namespace.span(), At::span),
            format!("the volume {} cannot have the number {nsid}", keys.device.get_ref()),
            format!("volumes of a target have numbers of their own, 1 to {NSID_MAX}; without nsid it is the place in the list"),
            "NVM Express Base Specification 2.0, section 3.2.1 (namespace IDs); Linux, drivers/nvme/target/nvmet.h",
            "nsid = N on each of the volumes",
        );
    }
    check_path(&keys.device, "device", findings);
    lasting_name(&keys.device, findings);
    unique(&keys.device, devices, findings);
    if !(1..=ANA_GROUPS_MAX).contains(keys.ana_group.get_ref()) {
        findings.add(
            keys.ana_group.span(),
            format!("there is no ANA group {}", keys.ana_group.get_ref()),
            format!("ANA groups are 1 to {ANA_GROUPS_MAX}"),
            "Linux, drivers/nvme/target/nvmet.h",
            "ana_group = 1",
        );
    }
    model::Namespace { nsid, device: keys.device.get_ref().clone(), group: *keys.ana_group.get_ref() }
}

/// What the kernel numbers in the order in which it finds disks.
const NUMBERED: [&str; 7] = ["sd", "vd", "xvd", "hd", "nvme", "dm-", "loop"];

/// The target would offer another disk after a restart, and hosts would write to that.
fn lasting_name(device: &At<String>, findings: &mut Findings) {
    let name = device.get_ref().strip_prefix("/dev/").unwrap_or_default();
    if NUMBERED.iter().any(|start| name.starts_with(start)) {
        findings.add(
            device.span(),
            format!("{} may be another disk after a restart", device.get_ref()),
            "the kernel gives this name in the order in which it finds disks",
            "udev(7); Linux, Documentation/admin-guide/devices.txt",
            "a name below /dev/disk/by-id, /dev/disk/by-path or /dev/mapper, or a file; `ls -l /dev/disk/by-id` shows them",
        );
    }
}

fn target_port(
    port: &At<NvmetPort>,
    user: &str,
    groups: &BTreeSet<u32>,
    portals: &mut HashSet<(&'static str, IpAddr, u16)>,
    addresses: &mut Addresses,
    findings: &mut Findings,
) -> Option<model::NvmetPort> {
    let keys = port.get_ref();
    let address = addresses.take(&keys.address, user, findings)?;
    if !portals.insert((keys.transport.name(), address, keys.port)) {
        findings.add(
            keys.address.span(),
            format!("{address} is listened on twice over {}", keys.transport.name()),
            "each port of a target has its own address, transport and port number",
            "Linux, nvmet",
            "another address, or port = 4421",
        );
    }
    let optimized = match &keys.optimized {
        None => groups.iter().copied().collect(),
        Some(named) => {
            let unknown = named.get_ref().iter().find(|group| !groups.contains(group));
            if let Some(group) = unknown {
                findings.add(
                    named.span(),
                    format!("no namespace is in ANA group {group}"),
                    "a port is optimized for groups that have namespaces",
                    "docs/RUNBOOKS.md",
                    format!("ana_group = {group} on a namespace"),
                );
            }
            named.get_ref().clone()
        }
    };
    let name = user.trim_start_matches("server ").to_owned();
    let portal = Portal { target: name, transport: keys.transport, address, port: keys.port };
    Some(model::NvmetPort { portal, optimized })
}
