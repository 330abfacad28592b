//! Tests operations that must not happen twice, on our own server: one node, a group in one
//! process, and a group of processes.

use super::check::Server;
use super::cuts::Cut;
use client::options::Version;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Command;
use std::time::Duration;
use testkit::{Process, free_port_on, temp_dir};

fn addresses(net: u8, nodes: u8) -> Vec<SocketAddr> {
    let address = |node: u8| IpAddr::V4(Ipv4Addr::new(127, 0, net, node));
    let port = free_port_on(address(1));
    (1..=nodes).map(|node| SocketAddr::new(address(node), port)).collect()
}

const V4_2: Version = Version::V4(Some(2));

fn done_once_in_one_process(nodes: u8, version: Version) {
    let nodes = addresses(9, nodes);
    let mut config = server::Config::quick(64 << 20, "/export", &nodes);
    config.versions = "3,4.1,4.2".parse().expect("versions");
    let running = server::Server::start(config).expect("the server starts");
    done_once_on(&nodes, version);
    drop(running);
}

fn done_once_on(nodes: &[SocketAddr], version: Version) {
    let server = Server { nodes, mount_port: None, export: "/export", version, remembers: true };
    // With one node the client waits while the node is silent; the campaign tests that.
    let alone = nodes.len() == 1;
    let cuts: Vec<Cut> = Cut::ALL.into_iter().filter(|cut| !(alone && *cut == Cut::Silence)).collect();
    let findings = server.check(&cuts);
    println!("{} node(s): {}", nodes.len(), findings.summary());
    assert_eq!(findings.wrong, [""; 0]);
}

#[test]
fn nonidempotent_operations_happen_once_on_one_node() {
    done_once_in_one_process(1, Version::V3);
}

#[test]
fn nonidempotent_operations_happen_once_on_one_node_by_version_4() {
    done_once_in_one_process(1, V4_2);
}

#[test]
fn nonidempotent_operations_happen_once_across_the_nodes_of_a_group() {
    done_once_in_one_process(4, Version::V3);
}

#[test]
fn nonidempotent_operations_happen_once_across_the_nodes_of_a_group_by_version_4() {
    done_once_in_one_process(4, V4_2);
}

#[test]
fn nonidempotent_operations_happen_once_across_the_processes_of_a_group() {
    let place = temp_dir("once");
    let [data, group, state] = ["data", "group", "state"].map(|name| place.path().join(name));
    std::fs::create_dir(&data).expect("made");
    let nodes = addresses(10, 4);
    let start = |node: &SocketAddr| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_trunkline"));
        command.arg("serve").arg("--dir").arg(&data).arg("--group").arg(&group).arg("--state").arg(&state);
        command.args(["--export", "/export", "--no-root-squash", "--listen", &node.to_string()]);
        command.args(["--nfs-versions", "3,4.1,4.2"]);
        let process = Process::spawn(command);
        process.wait_for_line("ready", Duration::from_secs(60));
        process
    };
    let running: Vec<Process> = nodes.iter().map(start).collect();
    [Version::V3, V4_2].into_iter().for_each(|version| done_once_on(&nodes, version));
    drop(running);
}
