//! A client of a cluster, compared with a plan: what is mounted, and the modules of the kernel's
//! side of NFS over RDMA.

use crate::parse::{mounted, nfs_mounts};
use crate::{Cluster, Evidence, Finding};
use std::net::IpAddr;

const MOUNTS: &str = "mountstats.txt";
const MODULES: &str = "sys-module.txt";
/// The type of Trunkline's own mounts.
const OWN: &str = "fuse.trunkline";

pub(super) fn check(evidence: &Evidence, planned: &Cluster, out: &mut Vec<Finding>) {
    modules(evidence, planned, out);
    let Some(text) = evidence.text(MOUNTS) else { return };
    let kernel = nfs_mounts(text);
    for (device, directory, _) in mounted(text).filter(|(_, _, kind)| is_nfs(kind)) {
        let proto =
            kernel.iter().find(|mount| mount.directory == directory).and_then(|mount| mount.option("proto"));
        out.extend(mount(planned, device, directory, proto, evidence.source(MOUNTS)));
    }
}

fn is_nfs(kind: &str) -> bool {
    matches!(kind, "nfs" | "nfs4" | OWN)
}

/// Trunkline needs none of these; the kernel's client and the vendor's driver do.
fn modules(evidence: &Evidence, planned: &Cluster, out: &mut Vec<Finding>) {
    if super::is_unread(evidence, MODULES) {
        return;
    }
    let Some(text) = evidence.text(MODULES) else { return };
    let is_loaded = text.lines().any(|line| line.trim() == "rpcrdma");
    let seen = if is_loaded { "rpcrdma is loaded" } else { "rpcrdma is not loaded" };
    let finding = Finding::ok("nfs.modules", evidence.source(MODULES), seen);
    out.push(if is_loaded {
        finding
    } else if is_over_tcp_only(evidence, planned) {
        Finding::ok("nfs.modules", evidence.source(MODULES), format!("{seen}, and no mount needs it"))
    } else {
        finding.warn(
            "the kernel's client and the vendor's driver cannot mount over RDMA; Trunkline can",
            "modprobe rpcrdma    # lasting: a file in /etc/modules-load.d",
        )
    });
}

/// Whether routes of the plan are mounted, and the kernel has none of them over RDMA.
fn is_over_tcp_only(evidence: &Evidence, planned: &Cluster) -> bool {
    let text = evidence.text(MOUNTS).unwrap_or_default();
    let kernel = nfs_mounts(text);
    let below = format!("/mnt/{}/", planned.name);
    let mut routes =
        mounted(text).filter(|(_, directory, kind)| is_nfs(kind) && directory.starts_with(&below)).peekable();
    let is_rdma = |directory: &str| {
        let proto = kernel.iter().find(|of| of.directory == directory).and_then(|of| of.option("proto"));
        directory.starts_with(&format!("{below}rdma")) || proto.is_none_or(|proto| proto.starts_with("rdma"))
    };
    routes.peek().is_some() && routes.all(|(_, directory, kind)| kind == OWN || !is_rdma(directory))
}

/// What is mounted below the directory of the plan, or is its export.
fn mount(
    planned: &Cluster,
    device: &str,
    directory: &str,
    proto: Option<&str>,
    source: &str,
) -> Option<Finding> {
    let route = directory.strip_prefix(&format!("/mnt/{}/", planned.name));
    let (host, path) = device.rsplit_once(":/").map_or((device, ""), |(host, path)| (host, path));
    let is_export = format!("/{path}") == planned.export;
    if route.is_none() && !is_export {
        return None;
    }
    let over = proto.map(|proto| format!(" over {proto}")).unwrap_or_default();
    let finding = Finding::ok("nfs.plan", source, format!("{device} is mounted at {directory}{over}"));
    if !is_export {
        let why = format!("the export of the plan is {}", planned.export);
        return Some(finding.fail(
            why,
            format!("umount {directory}; mount {directory}    # is its line of fstab the runbook's?"),
        ));
    }
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    // A name stands for an address that is not seen here.
    if address.is_ok_and(|address| planned.nodes.iter().all(|node| node.address != address)) {
        return Some(finding.fail(
            "no node of the plan has this address",
            format!("umount {directory}; mount {directory}    # with an address of the plan"),
        ));
    }
    let wants_rdma = route.is_some_and(|route| route.starts_with("rdma"));
    if wants_rdma && proto.is_some_and(|proto| !proto.starts_with("rdma")) {
        return Some(finding.fail(
            "this route of the plan is over RDMA",
            format!("umount {directory}; mount -o proto=rdma,port=20049,... {directory}"),
        ));
    }
    Some(finding)
}
