//! What a site file plans for this host, as what is expected of it.

use crate::error::Error;
use ::check::{Cluster, ClusterNode, Expected, PlannedVolume, Portal, TargetVolumes};
use ::runbook::{HostPlan, PlannedCluster, PlannedPortal, PlannedVolumes};
use std::path::Path;

/// The most names of hosts that an error lists.
const NAMES_MAX: usize = 8;

/// What the site file plans for a host; without a name, for the host that has this one's, or for
/// the only one.
pub(super) fn expected(site: &Path, host: Option<&str>, is_live: bool) -> Result<Expected, Error> {
    let text = crate::plan::read(site)?;
    let file = site.display().to_string();
    let plans = ::runbook::host_plans(&text)
        .map_err(|cause| Error::Site { file: file.clone(), cause: Box::new(cause) })?;
    let uname = rustix::system::uname();
    let own = uname.nodename().to_str().ok().and_then(|name| name.split('.').next()).filter(|_| is_live);
    let named = |name: &str| plans.iter().find(|plan| plan.name == name);
    let found = match (host, &plans[..]) {
        (Some(name), _) => named(name),
        (None, [only]) => Some(only),
        (None, _) => own.and_then(named),
    };
    found.map(expect).ok_or_else(|| refused(&file, host.or(own), &plans))
}

fn refused(file: &str, name: Option<&str>, plans: &[HostPlan]) -> Error {
    let names: Vec<&str> = plans.iter().map(|plan| &*plan.name).take(NAMES_MAX).collect();
    let more = if plans.len() > NAMES_MAX { ", ..." } else { "" };
    let (sentence, advice) = match (name, &names[..]) {
        (_, []) => (format!("{file} has no host"), "a site file with a [[host]] for this one".to_owned()),
        (Some(name), names) => {
            (format!("{file} has no host {name}"), format!("--host NAME, one of {}{more}", names.join(", ")))
        }
        (None, names) => (
            format!("{file} has several hosts, and captures do not say whose they are"),
            format!("--host NAME, one of {}{more}", names.join(", ")),
        ),
    };
    Error::Refused { sentence, cause: "a plan is compared with one host".to_owned(), advice }
}

fn expect(plan: &HostPlan) -> Expected {
    let portal = |portal: &PlannedPortal| Portal {
        target: portal.target.clone(),
        transport: portal.transport,
        address: portal.address,
        port: portal.port,
        nqn: portal.nqn.clone(),
        states: portal.states.clone(),
    };
    Expected {
        paths: plan.paths,
        portals: plan.portals.iter().map(portal).collect(),
        addresses: vec![(plan.interface.clone(), plan.address)],
        host_nqn: plan.nqn.clone(),
        // Without targets the layer that would join their paths is of no account.
        native_multipath: Some(plan.native_multipath).filter(|_| !plan.portals.is_empty()),
        interfaces: vec![plan.interface.clone()],
        mtu: plan.mtu,
        stripe_bytes: plan.request_bytes,
        volumes: plan.volumes.iter().map(volumes).collect(),
        cluster: plan.cluster.as_ref().map(cluster),
    }
}

fn volumes(of: &PlannedVolumes) -> TargetVolumes {
    let volume = |(nsid, name): &(u32, String)| PlannedVolume { nsid: *nsid, name: name.clone() };
    let all = of.all.iter().map(volume).collect();
    TargetVolumes { target: of.target.clone(), array: of.array.clone(), all }
}

fn cluster(plan: &PlannedCluster) -> Cluster {
    let PlannedCluster { name, pool, zone, nodes, export, clients, user } = plan.clone();
    let node = |(lnn, interface, address)| ClusterNode { lnn, interface, address };
    let nodes = nodes.into_iter().map(node).collect();
    Cluster { name, pool, zone, nodes, export, clients, user }
}
