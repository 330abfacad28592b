//! Rules of Spectrum Scale in SAN mode: blocks of whole stripes, managers that are hosts, and space
//! reclaim only with firmware that may support it.

use super::guide;
use super::names::{Names, check_path};
use crate::error::Findings;
use crate::model;
use crate::site::{At, Scale, Site};
use plan::Scheme;

/// The largest number of a failure group.
const FAILURE_GROUP_MAX: usize = 4000;
/// The last SANtricity release that is known not to support it.
const NO_TRIM_UP_TO: [u32; 3] = [11, 70, 1];

/// Checks the cluster.
pub(super) fn check(
    site: &Site,
    arrays: &[model::Array],
    hosts: &[model::Host],
    names: &Names,
    findings: &mut Findings,
) -> Option<model::Scale> {
    let scale = site.scale.as_ref()?;
    let keys = scale.get_ref();
    names.check_host_name(&keys.cluster, ("cluster", "cluster"), findings);
    check_file_system(&keys.file_system, findings);
    check_path(&keys.mount_point, "directory", findings);
    if site.array.is_empty() {
        findings.add(
            scale.span(),
            "the cluster has no array",
            "in SAN mode the disks of a cluster are volumes of arrays that every node reaches",
            guide("section Spectrum Scale SAN Mode Configuration"),
            "an [[array]]",
        );
    }
    keys.verbs_ports.iter().for_each(|ports| check_verbs_ports(ports, findings));
    whole_stripes(keys, arrays, findings);
    failure_groups(scale, arrays, findings);
    let managers = managers(keys, hosts, findings);
    let has_reclaim = reclaim(keys, arrays, findings);
    let count = u32::try_from(hosts.len()).unwrap_or(u32::MAX);
    Some(model::Scale {
        cluster: keys.cluster.get_ref().clone(),
        file_system: keys.file_system.get_ref().clone(),
        mount_point: keys.mount_point.get_ref().clone(),
        block_kib: *keys.block_kib.get_ref(),
        managers,
        failure_group: keys.failure_group,
        nodes: keys.nodes.unwrap_or(count).max(count),
        pagepool_gib: keys.pagepool_gib,
        verbs_ports: keys.verbs_ports.as_ref().map(|ports| ports.get_ref().clone()),
        inodes: keys.inodes.as_ref().map(|inodes| *inodes.get_ref()),
        has_reclaim,
    })
}

/// Each array is a failure group of its own, from the first on.
fn failure_groups(scale: &At<Scale>, arrays: &[model::Array], findings: &mut Findings) {
    let first = scale.get_ref().failure_group;
    let last = usize::from(first) + arrays.len().saturating_sub(1);
    if first == 0 || last > FAILURE_GROUP_MAX {
        findings.add(
            scale.span(),
            format!("the failure groups would be {first} to {last}"),
            format!("a failure group is a number from 1 to {FAILURE_GROUP_MAX}, and each array is one"),
            "mmcrnsd command, failureGroup",
            "failure_group = 1",
        );
    }
}

fn check_file_system(name: &At<String>, findings: &mut Findings) {
    let text = name.get_ref();
    let valid = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if (1..=31).contains(&text.len())
        && text.chars().all(valid)
        && text.starts_with(|c: char| c.is_ascii_alphabetic())
    {
        return;
    }
    findings.add(
        name.span(),
        format!("{text:?} is not the name of a file system"),
        "a file system's name has 1 to 31 letters, digits and _, and begins with a letter",
        "mmcrfs command",
        "file_system = \"ef600fs\"",
    );
}

fn check_verbs_ports(ports: &At<String>, findings: &mut Findings) {
    let valid = |c: char| c.is_ascii_alphanumeric() || "_/ ".contains(c);
    if ports.get_ref().is_empty() || !ports.get_ref().chars().all(valid) {
        findings.add(
            ports.span(),
            format!("{:?} names no RDMA ports", ports.get_ref()),
            "a port is DEVICE/PORT or DEVICE/PORT/FABRIC; several are separated by blanks",
            guide("figure 29"),
            "verbs_ports = \"mlx5_0/1\"",
        );
    }
}

/// The block size is the RAID stripe, or a multiple of it, and a power of two.
fn whole_stripes(keys: &Scale, arrays: &[model::Array], findings: &mut Findings) {
    let block = *keys.block_kib.get_ref();
    if !(64..=16384).contains(&block) || !block.is_power_of_two() {
        findings.add(
            keys.block_kib.span(),
            format!("blocks of {block} KiB are not possible"),
            "a block is 64, 128, ... 16384 KiB, a power of two",
            "mmcrfs command",
            "block_kib = 1024",
        );
        return;
    }
    for array in arrays.iter().filter(|array| array.layout.scheme == Scheme::Raid6) {
        let stripe = array.layout.stripe.stripe_kib.unwrap_or(1).max(1);
        if !block.is_multiple_of(stripe) {
            let span = keys.block_kib.span();
            findings.add(
                if span.is_empty() { keys.file_system.span() } else { span },
                format!("blocks of {block} KiB are not whole stripes of {} ({stripe} KiB)", array.name),
                "the block size is the stripe of the RAID 6 groups or a multiple of it, so that writes are full stripes",
                guide("section Configuring the EF600 Storage Volumes"),
                format!("block_kib = {stripe}"),
            );
        }
    }
}

fn managers(keys: &Scale, hosts: &[model::Host], findings: &mut Findings) -> Vec<String> {
    let named = keys.managers.get_ref();
    if named.is_empty() {
        findings.add(
            keys.managers.span(),
            "managers is empty",
            "a cluster has at least one node that keeps its state, on which it is configured",
            guide("section Basic Spectrum Scale Cluster Setup"),
            "managers = [\"mgt01\"]",
        );
    }
    for manager in named {
        if !hosts.iter().any(|host| host.name == *manager.get_ref()) {
            findings.add(
                manager.span(),
                format!("the manager {} is not a host of the site", manager.get_ref()),
                "managers may mount at any time, so they reach all volumes as every node does",
                guide("section Creating the Spectrum Scale Filesystem"),
                "the name of a [[host]]",
            );
        }
    }
    named.iter().map(|manager| manager.get_ref().clone()).collect()
}

/// Space reclaim needs firmware that supports TRIM.
fn reclaim(keys: &Scale, arrays: &[model::Array], findings: &mut Findings) -> bool {
    let Some(reclaim) = keys.reclaim.as_ref().filter(|reclaim| *reclaim.get_ref()) else { return false };
    let may_trim = |array: &model::Array| {
        let parts = array
            .firmware
            .as_ref()
            .map(|text| text.split('.').filter_map(|part| part.parse().ok()).collect());
        parts.is_some_and(|parts: Vec<u32>| parts > NO_TRIM_UP_TO.to_vec())
    };
    if let Some(array) = arrays.iter().find(|array| !may_trim(array)) {
        let version = array.firmware.as_deref().unwrap_or("an unknown version");
        findings.add(
            reclaim.span(),
            format!("{} with SANtricity {version} gives no space back", array.name),
            "SANtricity up to 11.70.1 does not support TRIM; the NSDs must have thinDiskType=no",
            guide("section Spectrum Scale and EF600 TRIM Support"),
            "reclaim = false, or firmware = of a later release whose notes say that it supports TRIM",
        );
    }
    true
}
