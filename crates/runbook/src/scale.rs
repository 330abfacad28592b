//! Spectrum Scale in SAN mode: every node reaches every volume, and no node serves disks to others.
//!
//! After figures 29 to 35 of "Deploying NetApp EF600" (Lenovo Press, 2021). The guide's two scripts
//! for NSD stanzas are one here, which takes a volume by its ID.

use crate::linux_host::Placing;
use crate::model::{Model, Scale};
use crate::section::{Section, Step, program, render, text};
use askama::Template;

/// The folder of the files.
const FOLDER: &str = "scale";

/// The section of the cluster.
pub(crate) fn sections(model: &Model) -> Vec<Section> {
    let Some(scale) = &model.scale else { return Vec::new() };
    let volumes: Vec<(String, u16)> = (scale.failure_group..)
        .zip(&model.arrays)
        .flat_map(|(group, array)| array.volumes().map(move |(_, volume)| (volume.name.clone(), group)))
        .collect();
    let names: Vec<_> = volumes.iter().map(|(name, _)| name.as_str()).collect();
    let is_manager = |name: &String| scale.managers.contains(name);
    let nodes: Vec<_> = model
        .hosts
        .iter()
        .map(|host| Node { name: &host.name, is_manager: is_manager(&host.name) })
        .collect();
    let of = |wanted: bool| -> Vec<&str> {
        nodes.iter().filter(|node| node.is_manager == wanted).map(|node| node.name).collect()
    };
    let has_native_multipath = model.connect.as_ref().is_none_or(|connect| connect.has_native_multipath);
    let mut files = vec![
        text("placing.sh", render(&Placing)),
        program(
            "20-cluster.sh",
            render(&ClusterStep { scale, managers: &of(true).join(","), clients: &of(false).join(",") }),
        ),
        program("30-nsds.sh", render(&NsdStep { scale, volumes: &names.join(" "), nsds: &names.join(";") })),
        program("40-file-system.sh", render(&FileSystemStep { scale, block: &block(scale.block_kib) })),
        program("nsd-stanza.sh", render(&Stanza { scale, volumes: &volumes })),
        text("files/nodes", render(&Nodes { nodes: &nodes })),
    ];
    if has_native_multipath {
        files.push(program("10-nsddevices.sh", render(&DevicesStep { volumes: volumes.len() })));
        files.push(program("files/nsddevices", render(&Devices)));
    }
    if scale.has_reclaim {
        files.push(program("50-reclaim.sh", render(&Reclaim { scale })));
    }
    files.iter_mut().for_each(|file| file.path = format!("{FOLDER}/{}", file.path));
    vec![Section {
        title: format!("Spectrum Scale cluster {}", scale.cluster),
        machine: scale.managers.join(", "),
        notes: notes(scale),
        steps: steps(scale, has_native_multipath),
        files,
    }]
}

/// The block size as mmcrfs takes it.
fn block(kib: u32) -> String {
    if kib.is_multiple_of(1024) { format!("{}m", kib / 1024) } else { format!("{kib}k") }
}

fn notes(scale: &Scale) -> Vec<String> {
    let mut notes = vec![
        "ATTENTION: two clusters must never reach the same volumes. SAN mode has no multi-cluster support: a second cluster with \
         these volumes as directly attached disks would destroy them. For other clusters, define NSD servers."
            .to_owned(),
        format!(
            "Files: the folder {FOLDER}, on {}, as root; the first step on every node. Install Spectrum Scale on every node before.",
            scale.managers.join(", ")
        ),
        "Every node, managers too, connects to all volumes before the file system is mounted.".to_owned(),
        "`nsd-stanza.sh --smdevices FILE --multipath FILE` works on captured output.".to_owned(),
    ];
    notes.push(if scale.has_reclaim {
        "Space reclaim is on: the stanza script checks on each device that the array takes space back."
            .to_owned()
    } else {
        "Space reclaim is off (thinDiskType=no): SANtricity up to 11.70.1 does not support it.".to_owned()
    });
    notes
}

fn steps(scale: &Scale, has_native_multipath: bool) -> Vec<Step> {
    let manager = format!("{}, in {FOLDER}", scale.managers.first().map_or("a manager", String::as_str));
    let mut steps = Vec::new();
    if has_native_multipath {
        let every = format!("every node, in {FOLDER}");
        steps.push(Step::script("Let Spectrum Scale find the volumes", &every, "./10-nsddevices.sh"));
    }
    steps.push(Step::script("Create the cluster", &manager, "./20-cluster.sh"));
    steps.push(Step::script("Create NSDs on the volumes", &manager, "./30-nsds.sh"));
    steps.push(Step::script("Create and mount the file system", &manager, "./40-file-system.sh"));
    if scale.has_reclaim {
        steps.push(Step::script("Give free space back, now and then", &manager, "./50-reclaim.sh"));
    }
    steps
}

/// A node of the cluster.
struct Node<'a> {
    name: &'a str,
    is_manager: bool,
}

#[derive(Template)]
#[template(path = "scale/10-nsddevices.sh", escape = "none")]
struct DevicesStep {
    volumes: usize,
}

#[derive(Template)]
#[template(path = "scale/nsddevices", escape = "none")]
struct Devices;

#[derive(Template)]
#[template(path = "scale/20-cluster.sh", escape = "none")]
struct ClusterStep<'a> {
    scale: &'a Scale,
    managers: &'a str,
    clients: &'a str,
}

#[derive(Template)]
#[template(path = "scale/nodes", escape = "none")]
struct Nodes<'a> {
    nodes: &'a [Node<'a>],
}

#[derive(Template)]
#[template(path = "scale/30-nsds.sh", escape = "none")]
struct NsdStep<'a> {
    scale: &'a Scale,
    volumes: &'a str,
    nsds: &'a str,
}

#[derive(Template)]
#[template(path = "scale/40-file-system.sh", escape = "none")]
struct FileSystemStep<'a> {
    scale: &'a Scale,
    block: &'a str,
}

#[derive(Template)]
#[template(path = "scale/50-reclaim.sh", escape = "none")]
struct Reclaim<'a> {
    scale: &'a Scale,
}

#[derive(Template)]
#[template(path = "scale/nsd-stanza.sh", escape = "none")]
struct Stanza<'a> {
    scale: &'a Scale,
    volumes: &'a [(String, u16)],
}

#[cfg(test)]
mod tests;
