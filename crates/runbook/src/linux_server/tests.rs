//! What the server's files say, read as their programs read them.

use crate::{Artifact, System, runbook};

fn text<'a>(files: &'a [Artifact], path: &str) -> &'a str {
    let found = files.iter().find(|file| file.path == path);
    &found.unwrap_or_else(|| panic!("no {path}")).text
}

#[test]
fn exports_name_each_client_with_its_options() {
    let files = runbook(System::LinuxServer.site_file()).expect("a valid site");
    let exports = text(&files, "server-stor1/files/exports");
    let lines: Vec<_> = exports.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(lines, ["/srv/nfs 10.0.0.0/16(rw,sync,no_subtree_check,fsid=1)"]);
    let conf: toml::Table = text(&files, "server-stor1/files/nfs.conf")
        .replace("= y", "= true")
        .parse()
        .expect("sections, keys and values");
    assert_eq!(conf["nfsd"]["rdma-port"].as_integer(), Some(20049));
}

#[test]
fn the_servers_own_configuration_has_every_node_and_export() {
    let files = runbook(System::LinuxServer.site_file()).expect("a valid site");
    let serve: toml::Table = text(&files, "server-stor1/files/serve.toml").parse().expect("TOML");
    let nodes = serve["node"].as_array().expect("nodes");
    let listen = |place: usize| nodes[place]["listen"].as_array().expect("a list").clone();
    assert_eq!(listen(0)[0].as_str(), Some("10.0.0.1:12049"));
    assert_eq!(listen(1)[1].as_str(), Some("rdma:10.0.1.1:12050"));
    assert_eq!(serve["export"][0]["root_squash"].as_bool(), Some(true));
}

#[test]
fn a_path_is_optimized_for_its_groups_and_not_for_others() {
    let files = runbook(System::LinuxServer.site_file()).expect("a valid site");
    let program = text(&files, "server-stor1/files/trunkline-nvmet");
    for line in [
        "rdma 10.0.0.1 4420 ipv4 1",
        "rdma 10.0.1.1 4420 ipv4 2",
        "tcp 10.0.0.1 4420 ipv4 1",
        "tcp 10.0.1.1 4420 ipv4 2",
        "1 /dev/disk/by-id/nvme-eui.0025385b21404321 1",
        "2 /dev/disk/by-id/nvme-eui.0025385b21404322 2",
        "nqn.2024-01.org.example:node1-eth1",
    ] {
        assert!(program.lines().any(|found| found == line), "{line} is not in\n{program}");
    }
}

/// What the target says of its volumes is what hosts look for, also of volumes with other numbers
/// than their places.
#[test]
fn hosts_know_the_state_of_each_volume_on_each_path() {
    let site = System::LinuxServer.site_file().replace("404321\", ana", "404321\", nsid = 7, ana");
    let files = runbook(&site).expect("a valid site");
    let program = text(&files, "hosts/files/trunkline-nvme");
    for line in [
        "rdma 10.0.0.1 4420 7 optimized",
        "rdma 10.0.0.1 4420 2 non-optimized",
        "rdma 10.0.1.1 4420 7 non-optimized",
        "tcp 10.0.1.1 4420 2 optimized",
    ] {
        assert!(program.lines().any(|found| found == line), "{line} is not in\n{program}");
    }
    assert!(text(&files, "server-stor1/files/trunkline-nvmet").contains("\n7 /dev/disk/by-id/"));
}

#[test]
fn hosts_of_the_site_connect_to_its_targets() {
    let files = runbook(System::LinuxServer.site_file()).expect("a valid site");
    let conf = text(&files, "hosts/by-name/node1/discovery.conf");
    let lines: Vec<_> = conf.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(lines.len(), 4);
    assert!(lines[0].starts_with("-t rdma -a 10.0.0.1 ") && lines[3].starts_with("-t tcp -a 10.0.1.1 "));
}
