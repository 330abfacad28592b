//! What a site file plans for each of its hosts, to compare a host with.

use crate::model::{Host, Model, Namespace, NasNode, Nvmet, Portal, PowerScale};
use crate::{Result, check, site};
use std::net::IpAddr;

/// What a site file plans for a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPlan {
    /// The name of the host.
    pub name: String,
    /// The interface that carries its storage.
    pub interface: String,
    /// The address of that interface.
    pub address: IpAddr,
    /// The NQN by which targets know the host; none if the site has no NVMe-oF targets.
    pub nqn: Option<String>,
    /// The addresses of targets, each a path.
    pub portals: Vec<PlannedPortal>,
    /// How many paths each volume has; none if targets that the site file does not set up may lead
    /// to one volume, or targets have different numbers of addresses.
    pub paths: Option<usize>,
    /// Whether the NVMe driver joins the paths; if not, DM-Multipath does.
    pub native_multipath: bool,
    /// The MTU of the network, in bytes, if the site file says it.
    pub mtu: Option<u32>,
    /// What a request of a block device should carry, in bytes: `request_kib`, or else the widest
    /// full stripe of the arrays; none if the site file has neither.
    pub request_bytes: Option<u64>,
    /// The volumes of the targets that are set up by the same site file.
    pub volumes: Vec<PlannedVolumes>,
    /// The PowerScale cluster whose client the host is.
    pub cluster: Option<PlannedCluster>,
}

/// The volumes of one target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedVolumes {
    /// The name of the target.
    pub target: String,
    /// The name of the array, as hosts see it; none for a Linux server.
    pub array: Option<String>,
    /// The namespace by which hosts know each, and the name of its volume or device.
    pub all: Vec<(u32, String)>,
}

/// A PowerScale cluster, and what a client of it needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedCluster {
    /// The name of the cluster.
    pub name: String,
    /// The pool of addresses, with groupnet and subnet.
    pub pool: String,
    /// The access zone.
    pub zone: String,
    /// The node number, the interface and the address of each node.
    pub nodes: Vec<(u32, String, IpAddr)>,
    /// The exported directory.
    pub export: String,
    /// The addresses from which the host comes.
    pub clients: Vec<IpAddr>,
    /// The account that writes, and its UID.
    pub user: (String, u32),
}

/// An address of a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedPortal {
    /// The name of the target.
    pub target: String,
    /// `rdma` or `tcp`.
    pub transport: &'static str,
    /// The address.
    pub address: IpAddr,
    /// The port.
    pub port: u16,
    /// The NQN of the subsystem there, where the site file says it.
    pub nqn: Option<String>,
    /// The volumes there, by the number of their namespace, and whether this is an optimized path
    /// to each; empty where the site file does not say it.
    pub states: Vec<(u32, bool)>,
}

/// What a site file plans for each host, in the order of the file.
///
/// # Errors
/// The text is not a site file, or breaks a rule: the first one in the order of the file.
pub fn host_plans(text: &str) -> Result<Vec<HostPlan>> {
    let model = check::check(&site::parse(text)?, text)?;
    Ok(model.hosts.iter().map(|host| plan(&model, host)).collect())
}

fn plan(model: &Model, host: &Host) -> HostPlan {
    let portal = |portal: &Portal| PlannedPortal {
        target: portal.target.clone(),
        transport: portal.transport.name(),
        address: portal.address,
        port: portal.port,
        nqn: nvmet(model, &portal.target).map(|nvmet| nvmet.nqn.clone()),
        states: nvmet(model, &portal.target).map(|nvmet| states(nvmet, portal)).unwrap_or_default(),
    };
    let of_arrays = model.arrays.iter().find_map(|array| array.mtu);
    let stripe_kib = model.arrays.iter().filter_map(|array| array.layout.stripe.stripe_kib).max();
    let request_kib = model.connect.as_ref().and_then(|connect| connect.request_kib).or(stripe_kib);
    HostPlan {
        name: host.name.clone(),
        interface: host.interface.clone(),
        address: host.address,
        nqn: (!host.portals.is_empty()).then(|| host.nqn.clone()),
        portals: host.portals.iter().map(portal).collect(),
        paths: paths(model, host),
        native_multipath: host.has_native_multipath,
        mtu: of_arrays.or(model.powerscale.as_ref().map(|powerscale| powerscale.mtu)),
        request_bytes: request_kib.map(|kib| u64::from(kib) << 10),
        volumes: volumes(model, host),
        cluster: model.powerscale.as_ref().map(|nas| cluster(nas, host)),
    }
}

/// The volumes of all targets of the host that the site file sets up. An array maps each to the
/// host group with its LUN, which is the namespace.
fn volumes(model: &Model, host: &Host) -> Vec<PlannedVolumes> {
    let arrays = model.arrays.iter().map(|array| PlannedVolumes {
        target: array.name.clone(),
        array: Some(array.label.clone()),
        all: array
            .volumes()
            .filter_map(|(lun, volume)| Some((u32::try_from(lun).ok()?, volume.name.clone())))
            .collect(),
    });
    let servers = model.servers.iter().filter_map(|server| {
        let all = server.nvmet.as_ref()?.namespaces.iter();
        let all = all.map(|namespace| (namespace.nsid, namespace.device.clone())).collect();
        Some(PlannedVolumes { target: server.name.clone(), array: None, all })
    });
    let is_reached = |of: &PlannedVolumes| host.portals.iter().any(|portal| portal.target == of.target);
    arrays.chain(servers).filter(is_reached).collect()
}

fn cluster(nas: &PowerScale, host: &Host) -> PlannedCluster {
    let node = |node: &NasNode| (node.lnn, node.interface.clone(), node.address.into());
    let mut clients = vec![host.address];
    let local = host.local.iter().flat_map(|local| &local.addresses);
    clients.extend(local.filter(|address| **address != host.address));
    PlannedCluster {
        name: nas.name.clone(),
        pool: nas.pool.clone(),
        zone: nas.zone.clone(),
        nodes: nas.nodes.iter().map(node).collect(),
        export: nas.export.clone(),
        clients,
        user: (nas.user.clone(), nas.uid),
    }
}

/// A target on a server that is set up by the same site file.
fn nvmet<'a>(model: &'a Model, target: &str) -> Option<&'a Nvmet> {
    model.servers.iter().find(|server| server.name == target)?.nvmet.as_ref()
}

/// Which volumes have an optimized path at an address of their target.
fn states(nvmet: &Nvmet, portal: &Portal) -> Vec<(u32, bool)> {
    let Some(port) = nvmet.ports.iter().find(|port| port.portal.is_at(portal)) else { return Vec::new() };
    let state = |volume: &Namespace| (volume.nsid, port.optimized.contains(&volume.group));
    nvmet.namespaces.iter().map(state).collect()
}

/// An array is one subsystem, and so is the target of a server; each of its addresses is a path. Of
/// other targets nobody knows whether two are one subsystem.
fn paths(model: &Model, host: &Host) -> Option<usize> {
    let count = |name: &str| host.portals.iter().filter(|portal| portal.target == name).count();
    let arrays = model.arrays.iter().map(|array| count(&array.name));
    let servers = model.servers.iter().filter(|server| server.nvmet.is_some());
    let counts: Vec<_> = arrays.chain(servers.map(|server| count(&server.name))).collect();
    let first = counts.first().copied().filter(|count| *count > 0)?;
    let is_all = counts.iter().sum::<usize>() == host.portals.len();
    (is_all && counts.iter().all(|count| *count == first)).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::System;

    #[test]
    fn hosts_of_an_array_have_a_path_for_each_of_its_ports() {
        let plans = host_plans(System::Ef600.site_file()).unwrap();
        assert_eq!(plans.len(), 55);
        let host = &plans[1];
        assert_eq!((&*host.name, &*host.interface, host.paths), ("cmp02", "ib0", Some(8)));
        assert_eq!(host.address.to_string(), "172.30.60.2");
        assert_eq!(host.nqn.as_deref(), Some("nqn.2020-12.com.example.hpc:nvme:cmp02-ib0"));
        let first = &host.portals[0];
        assert_eq!((&*first.target, first.transport, first.port), ("de0704", "rdma", 4420));
        assert_eq!(first.address.to_string(), "172.30.57.107");
        assert_eq!((host.native_multipath, host.mtu, host.request_bytes), (true, None, Some(1 << 20)));
        let rhel7 = System::Ef600.site_file().replace("\"rhel8\"", "\"rhel7\"");
        assert!(!host_plans(&rhel7).unwrap()[0].native_multipath);
    }

    // Deploying NetApp EF600, section Configuring Volumes on RAID Volume Groups.
    #[test]
    fn requests_should_carry_a_full_stripe_where_the_site_does_not_set_them() {
        let without = System::Ef600.site_file().replacen("\nrequest_kib", "\n#request_kib", 1);
        let request = |site: &str| host_plans(site).unwrap()[0].request_bytes;
        assert_eq!(request(&without), Some(1 << 20));
        let narrow = without.replace("#segment_kib = 128", "segment_kib = 64");
        assert_eq!(request(&narrow), Some(512 << 10));
        let pool = without.replace("\"raid6\"", "\"ddp\"").replace("drives = 20", "drives = 24");
        assert_eq!(request(&pool.replace("4992GiB", "4096GiB")), None);
        assert_eq!(request(System::LinuxHost.site_file()), None);
    }

    #[test]
    fn hosts_of_a_server_have_a_path_for_each_of_its_ports() {
        let of = |site: &str| host_plans(site).unwrap()[0].paths;
        let site = System::LinuxServer.site_file();
        assert_eq!(of(site), Some(4));
        let last = "    { address = \"10.0.1.1\", transport = \"tcp\", optimized = [2] },\n";
        assert_eq!(of(&site.replace(last, "")), Some(3));
        // Servers with different numbers of ports, and a target that exists beside the server.
        let server = |ports: usize| {
            let port = |n| format!("{{ address = \"10.0.{n}.2\", transport = \"tcp\" }}");
            let ports: Vec<_> = (0..ports).map(port).collect();
            format!(
                "[[server]]\nname = \"stor2\"\n[server.nvmet]\nnqn = \"nqn.2024-01.org.example:stor2\"\n\
                 namespaces = [{{ device = \"/srv/disk\" }}]\nports = [{}]\n\n[hosts]\n",
                ports.join(", ")
            )
        };
        assert_eq!(of(&site.replace("[hosts]\n", &server(4))), Some(4));
        assert_eq!(of(&site.replace("[hosts]\n", &server(1))), None);
        let target =
            "[[target]]\nname = \"other\"\ntransport = \"tcp\"\naddresses = [\"10.0.3.1\"]\n\n[hosts]\n";
        assert_eq!(of(&site.replace("[hosts]\n", target)), None);
    }

    #[test]
    fn targets_that_may_be_one_subsystem_have_no_count() {
        let plans = host_plans(System::LinuxHost.site_file()).unwrap();
        assert_eq!((plans[0].portals.len(), plans[0].paths), (4, None));
        assert_eq!(plans[0].portals[2].transport, "tcp");
    }

    #[test]
    fn the_subsystem_of_a_server_of_the_site_is_known() {
        let of = |system: System| host_plans(system.site_file()).unwrap()[0].portals[0].nqn.clone();
        assert_eq!(of(System::LinuxServer).as_deref(), Some("nqn.2024-01.org.example:stor1"));
        assert_eq!((of(System::LinuxHost), of(System::Ef600)), (None, None));
    }

    #[test]
    fn each_address_of_a_server_has_the_states_that_its_groups_have() {
        let of = |site: &str| -> Vec<_> {
            let portals = host_plans(site).unwrap().remove(0).portals;
            portals.into_iter().map(|portal| portal.states).collect()
        };
        let site = System::LinuxServer.site_file();
        let (first, second) = (vec![(1, true), (2, false)], vec![(1, false), (2, true)]);
        assert_eq!(of(site), [&first, &second, &first, &second].map(Clone::clone));
        // The group counts, not the number of the volume; and without `optimized` all are.
        let numbered = site.replacen("ana_group = 1 }", "ana_group = 1, nsid = 7 }", 1);
        assert_eq!(of(&numbered)[0], [(7, true), (2, false)]);
        let every = site.replacen("transport = \"rdma\", optimized = [1] }", "transport = \"rdma\" }", 1);
        assert_eq!(of(&every)[0], [(1, true), (2, true)]);
        for system in [System::LinuxHost, System::Ef600] {
            assert!(of(system.site_file()).iter().all(Vec::is_empty), "of other targets it is not known");
        }
    }

    #[test]
    fn hosts_have_the_volumes_of_the_targets_of_their_site() {
        let of = |system: System| host_plans(system.site_file()).unwrap()[0].volumes.clone();
        let [array] = &of(System::Ef600)[..] else { panic!() };
        assert_eq!((&*array.target, array.array.as_deref()), ("de0704", Some("de0704-ef600")));
        let names: Vec<_> = array.all.iter().map(|(nsid, name)| (*nsid, &**name)).collect();
        assert_eq!(names, [(1, "de0704a01v1"), (2, "de0704a01v2"), (3, "de0704a02v1"), (4, "de0704a02v2")]);
        let [server] = &of(System::LinuxServer)[..] else { panic!() };
        assert_eq!((server.array.as_deref(), server.all[0].0), (None, 1));
        assert!(server.all.iter().all(|(_, device)| device.starts_with('/')), "{server:?}");
        // What is behind a target that exists is not known.
        assert!(of(System::LinuxHost).is_empty() && of(System::PowerScale).is_empty());
    }

    #[test]
    fn clients_of_a_cluster_know_its_nodes_its_export_and_the_account() {
        let site = System::PowerScale.site_file().replace("#localports", "localports");
        let plans = host_plans(&site).unwrap();
        let nas = plans[0].cluster.as_ref().unwrap();
        assert_eq!((&*nas.pool, &*nas.zone), ("groupnet0.rdmasubnet.rdmapool", "System"));
        assert_eq!(nas.nodes[3], (4, "100gige-1".to_owned(), "192.168.1.204".parse().unwrap()));
        assert_eq!((&*nas.export, &nas.user), ("/ifs/data/bench", &("bench".to_owned(), 2010)));
        let clients = |plan: &HostPlan| plan.cluster.as_ref().unwrap().clients.len();
        assert_eq!((clients(&plans[0]), clients(&plans[1])), (2, 1));
        assert!(host_plans(System::Ef600.site_file()).unwrap()[0].cluster.is_none());
    }

    #[test]
    fn clients_of_a_cluster_have_its_mtu_and_no_targets() {
        for plan in host_plans(System::PowerScale.site_file()).unwrap() {
            assert_eq!((plan.mtu, plan.nqn, plan.portals.len()), (Some(9000), None, 0));
        }
        assert!(host_plans("name = 1").is_err());
    }
}
