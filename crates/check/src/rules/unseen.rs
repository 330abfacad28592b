//! What is expected and nothing shows: without this, a plan that was compared with nothing would
//! look like a plan that was met.

use super::list;
use crate::{CAPTURES, Cluster, Expected, Finding};

/// An expectation: what, the rules that compare it, and the captures that would show it.
struct Expectation {
    what: String,
    rules: &'static [&'static str],
    captures: &'static [&'static str],
}

/// Adds a finding for each expectation that none of the findings is about.
pub(super) fn check(expected: &Expected, findings: &mut Vec<Finding>) {
    let is_compared =
        |rules: &[&str], findings: &[Finding]| findings.iter().any(|finding| rules.contains(&finding.rule));
    for Expectation { what, rules, captures } in expectations(expected) {
        if is_compared(rules, findings) {
            continue;
        }
        let command = |name: &&str| {
            let capture = CAPTURES.iter().find(|capture| capture.name == *name)?;
            Some(format!("{} > {name}", capture.command()))
        };
        let commands: Vec<_> = captures.iter().filter_map(command).collect();
        let seen = format!("{what} expected, and nothing that was captured shows it");
        findings.push(Finding::unknown("expected.unseen", list(captures), seen, commands.join(", or ")));
    }
}

fn expectations(expected: &Expected) -> Vec<Expectation> {
    let mut all = Vec::new();
    let mut add = |what: Option<String>, rules, captures| {
        all.extend(what.map(|what| Expectation { what, rules, captures }));
    };
    let Expected {
        paths, portals, addresses, host_nqn, native_multipath, mtu, stripe_bytes, volumes, ..
    } = expected;
    let targets = (!portals.is_empty()).then(|| format!("{} paths to NVMe targets are", portals.len()));
    // Without planned addresses any device shows how many paths there are.
    let paths = paths.filter(|_| portals.is_empty()).map(|paths| format!("{paths} paths of each device are"));
    let addresses: Vec<_> = addresses.iter().map(|(name, address)| format!("{address} at {name}")).collect();
    let addresses = (!addresses.is_empty()).then(|| format!("{} is", list(&addresses)));
    let native = native_multipath.map(|is_native| {
        let layer = if is_native { "the NVMe driver" } else { "DM-Multipath" };
        format!("{layer} that joins the paths is")
    });
    add(targets, &["nvme.plan"], &["sys-nvme.txt", "nvme-list-subsys.txt"]);
    let states = portals.iter().filter(|portal| !portal.states.is_empty()).count();
    let states = (states > 0).then(|| format!("ANA states of {states} paths are"));
    add(states, &["nvme.states"], &["sys-nvme.txt"]);
    add(
        paths,
        &["nvme.paths", "nvme.subsystem", "nvme.devices", "multipath.paths"],
        &["sys-nvme.txt", "nvme-list-subsys.txt", "multipath.txt"],
    );
    add(addresses, &["net.address"], &["ip-addr.txt"]);
    add(host_nqn.as_ref().map(|nqn| format!("the NQN {nqn} is")), &["nvme.host-nqn"], &["sys-nvme.txt"]);
    add(native, &["nvme.native", "multipath.native"], &["sys-nvme.txt", "multipath.txt"]);
    add(
        mtu.map(|mtu| format!("an MTU of {mtu} is")),
        &["net.mtu", "powerscale.mtu"],
        &["sys-net.txt", "isi-network-interfaces.txt"],
    );
    add(
        stripe_bytes.map(|bytes| format!("requests of {} KiB are", bytes >> 10)),
        &["block.request-size"],
        &["sys-block.txt"],
    );
    let count: usize = volumes.iter().map(|target| target.all.len()).sum();
    add(
        (count > 0).then(|| format!("{count} volumes are")),
        &["nvme.volumes"],
        &["sys-nvme.txt", "nvme-netapp-smdevices.txt"],
    );
    if let Some(cluster) = &expected.cluster {
        all.extend(of_cluster(cluster));
    }
    all
}

/// What is expected of a cluster and of its client, each with the rule and the capture.
fn of_cluster(cluster: &Cluster) -> [Expectation; 7] {
    let Cluster { name, pool, nodes, export, user, .. } = cluster;
    let one = |what: String, rules, captures| Expectation { what, rules, captures };
    [
        one(
            format!("{} nodes of {name} in the pool {pool} are", nodes.len()),
            &["powerscale.plan"],
            &["isi-network-interfaces.txt"],
        ),
        one(format!("the pool {pool} is"), &["powerscale.pool"], &["isi-network-pools.txt"]),
        one("NFS over RDMA is".to_owned(), &["powerscale.nfs-rdma"], &["isi-nfs-settings.txt"]),
        one(format!("the export {export} is"), &["powerscale.export"], &["isi-nfs-exports.txt"]),
        one(format!("a mount of {export} is"), &["nfs.plan"], &["mountstats.txt"]),
        one("the module rpcrdma is".to_owned(), &["nfs.modules"], &["sys-module.txt"]),
        one(format!("UID {} of {} is", user.1, user.0), &["nfs.account"], &["passwd.txt"]),
    ]
}
