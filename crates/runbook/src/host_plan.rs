//! What a site file plans for each of its hosts, to compare a host with.

use crate::model::{Host, Model};
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
    /// How many paths each volume has; none if several targets may lead to one volume, or have
    /// different numbers of addresses.
    pub paths: Option<usize>,
    /// Whether the NVMe driver joins the paths; if not, DM-Multipath does.
    pub native_multipath: bool,
    /// The MTU of the network, in bytes, if the site file says it.
    pub mtu: Option<u32>,
    /// What a request of a block device should carry, in bytes: `request_kib`, or else the widest
    /// full stripe of the arrays; none if the site file has neither.
    pub request_bytes: Option<u64>,
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
    let portal = |portal: &crate::model::Portal| PlannedPortal {
        target: portal.target.clone(),
        transport: portal.transport.name(),
        address: portal.address,
        port: portal.port,
        nqn: subsystem(model, &portal.target),
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
    }
}

/// The NQN of a target that is set up by the same site file.
fn subsystem(model: &Model, target: &str) -> Option<String> {
    let server = model.servers.iter().find(|server| server.name == target)?;
    server.nvmet.as_ref().map(|nvmet| nvmet.nqn.clone())
}

/// An array is one subsystem, and each of its addresses a path. Of other targets nobody knows
/// whether two are one subsystem.
fn paths(model: &Model, host: &Host) -> Option<usize> {
    let count = |name: &str| host.portals.iter().filter(|portal| portal.target == name).count();
    let of_arrays: Vec<_> = model.arrays.iter().map(|array| count(&array.name)).collect();
    let first = of_arrays.first().copied().filter(|count| *count > 0)?;
    let is_all = of_arrays.iter().sum::<usize>() == host.portals.len();
    (is_all && of_arrays.iter().all(|count| *count == first)).then_some(first)
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
    fn clients_of_a_cluster_have_its_mtu_and_no_targets() {
        for plan in host_plans(System::PowerScale.site_file()).unwrap() {
            assert_eq!((plan.mtu, plan.nqn, plan.portals.len()), (Some(9000), None, 0));
        }
        assert!(host_plans("name = 1").is_err());
    }
}
