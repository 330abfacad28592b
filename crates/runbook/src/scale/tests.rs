//! The cluster's commands against figures 29 and 34 of the guide. `tests/tools.rs` runs the stanza
//! script.

use crate::{Artifact, System, runbook};
use std::collections::{BTreeMap, BTreeSet};

fn files(site: &str) -> Vec<Artifact> {
    runbook(site).unwrap_or_else(|error| panic!("{error}"))
}

fn text<'a>(files: &'a [Artifact], path: &str) -> &'a str {
    let found = files.iter().find(|file| file.path == path);
    &found.unwrap_or_else(|| panic!("no {path}")).text
}

/// The options of mmcrfs, each with its value.
fn options(script: &str) -> BTreeMap<String, String> {
    let joined = script.replace("\\\n", " ");
    let line = joined.lines().find(|line| line.trim().starts_with("mmcrfs ")).expect("mmcrfs");
    let words: Vec<_> = line.split_whitespace().skip(2).collect();
    words.chunks(2).map(|pair| (pair[0].to_owned(), pair[1].to_owned())).collect()
}

// Deploying NetApp EF600, figure 34.
#[test]
fn the_file_system_is_created_as_in_figure_34() {
    let site = System::Scale.site_file().replace("#nodes = 55", "nodes = 137").replace("#inodes", "inodes");
    let files = files(&site);
    let figure = "-F ef600_mlx.stanza -T /gpfs/ef600_mlx -B 1m -E no -S relatime -K whenpossible -m 1 -M 2 -r 1 -R 2 -n 137 -A no \
                  --inode-limit 10000000:5000000";
    let words: Vec<_> = figure.split_whitespace().collect();
    let wanted: BTreeMap<_, _> =
        words.chunks(2).map(|pair| (pair[0].to_owned(), pair[1].to_owned())).collect();
    assert_eq!(options(text(&files, "scale/40-file-system.sh")), wanted);
}

// Deploying NetApp EF600, figure 29, without what the guide's cluster has for its NSD servers and
// with maxMBpS as the reference spells it.
#[test]
fn the_clusters_settings_are_some_of_figure_29() {
    let figure: BTreeSet<_> = [
        "autoload=yes",
        "maxblocksize=16m",
        "pagepool=4g",
        "workerthreads=512",
        "maxmbps=20000",
        "ignoreprefetchluncount=yes",
    ]
    .into();
    let files = files(System::Scale.site_file());
    let script = text(&files, "scale/20-cluster.sh");
    let line = script.lines().find_map(|line| line.trim().strip_prefix("mmchconfig ")).expect("mmchconfig");
    let settings = line.to_lowercase();
    assert_eq!(settings.split(',').collect::<BTreeSet<_>>(), figure);
    assert!(script.contains("verbsRdma=enable,verbsPorts=\"mlx5_0/1\""));
}

#[test]
fn every_node_is_listed_and_managers_are_quorum_nodes() {
    let files = files(System::Scale.site_file());
    let nodes: Vec<_> = text(&files, "scale/files/nodes").lines().collect();
    assert_eq!(nodes.len(), 55);
    assert_eq!((nodes[0], nodes[54]), ("cmp01:client:", "mgt01:quorum-manager:"));
}

#[test]
fn nsddevices_is_for_native_multipath_only() {
    let native = System::Scale.site_file();
    let found = |site: &str| files(site).iter().any(|file| file.path.ends_with("nsddevices"));
    assert!(found(native) && !found(&native.replace("\"rhel8\"", "\"rhel7\"")));
}

#[test]
fn space_is_reclaimed_only_where_the_site_asks_for_it_and_the_firmware_may() {
    let site = System::Scale.site_file();
    let has_step = |files: &[Artifact]| files.iter().any(|file| file.path.ends_with("50-reclaim.sh"));
    assert!(!has_step(&files(site)));
    let with = site.replace("#reclaim = false", "reclaim = true").replace("11.70.1", "11.80");
    assert!(has_step(&files(&with)));
    assert!(text(&files(&with), "scale/nsd-stanza.sh").contains("\nreclaim=yes\n"));
}

#[test]
fn the_index_warns_of_a_second_cluster() {
    let files = files(System::Scale.site_file());
    assert!(files[0].text.contains("two clusters must never reach the same volumes"));
}
