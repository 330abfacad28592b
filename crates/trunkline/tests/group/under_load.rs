//! Tests four node processes over one directory, and a mount that uses all of them: each node is
//! killed under load and started again.

use crate::check::Server;
use crate::cuts::Cut;
use crate::fixtures::{Directories, EXPORT, Node};
use crate::history::Store;
use crate::load::Load;
use crate::peer::SOON;
use client::options::Version;
use client::{Mount, Settings};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use testkit::{Deadline, free_port_on};

const NODES: u8 = 4;
/// How many times a node is killed: each node twice.
const KILLS: u8 = 2 * NODES;
/// Calls that are answered between one event and the next.
const CALLS: u64 = 300;
/// A mount that loses a node takes far less.
const MOMENT: Duration = Duration::from_secs(5);

fn nodes(directories: &Directories) -> Vec<Node> {
    let address = |node: u8| IpAddr::from([127, 0, 10, node]);
    let port = free_port_on(address(1));
    (1..=NODES).map(|node| Node::start_at(directories, SocketAddr::new(address(node), port))).collect()
}

fn calls(mount: &Mount) -> u64 {
    let paths = mount.statistics().paths;
    let counters = paths.iter().map(|path| &path.counters);
    counters.map(|counters| counters.read.calls + counters.write.calls + counters.metadata.calls).sum()
}

/// Waits until the load has continued.
fn wait_for_progress(mount: &Mount, what: &str) {
    let from = calls(mount);
    Deadline::wait_until(what, SOON, || (calls(mount) >= from + CALLS).then_some(()));
}

/// Whether the mount uses a node. A loop without a connection to the node does not count.
fn is_used(mount: &Mount, node: &Node) -> bool {
    let name = node.address.ip().to_string();
    let paths = mount.statistics().paths;
    let mut of_node = paths.iter().filter(|path| path.name.contains(&name)).flat_map(|path| &path.status);
    of_node.any(|status| status.state.name() == "up")
}

/// How often the mount has lost a node. Another one soon listens on its address.
fn losses(mount: &Mount, node: &Node) -> u64 {
    let name = node.address.ip().to_string();
    let paths = mount.statistics().paths;
    let of_node = paths.iter().filter(|path| path.name.contains(&name)).flat_map(|path| &path.status);
    of_node.map(|status| status.deaths).sum()
}

/// Waits until the mount has lost a node that was killed. It may have been about to leave the node
/// anyway, and then there is nothing to wait for.
fn is_left(mount: &Mount, node: &Node, before: u64) -> bool {
    let deadline = Deadline::after(MOMENT);
    while losses(mount, node) == before {
        if deadline.left().is_none() {
            return false;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    true
}

#[test]
fn nothing_is_lost_or_done_twice_when_nodes_are_killed_under_load() {
    killed_under_load("group-load", Version::V3);
}

/// One session goes on over all nodes, and no grace period is ever needed.
#[test]
fn nothing_is_lost_or_done_twice_by_version_4_either() {
    killed_under_load("group-load-4", Version::V4(Some(2)));
}

fn killed_under_load(name: &str, version: Version) {
    let versions = if version == Version::V3 { "3" } else { "4.1,4.2" };
    let directories = Directories::with_versions(name, versions);
    let mut nodes = nodes(&directories);
    let first = nodes[0].address;
    let mount = Mount::with_settings(Settings {
        remotes: nodes.iter().map(|node| node.address.ip().into()).collect(),
        nconnect: u16::from(NODES),
        version,
        ..Settings::new(first.ip(), first.port(), EXPORT)
    });
    let mount = Arc::new(mount.expect("the client mounts"));
    let load = Load::start(&mount, "killed", Store::ByParts, 1);
    wait_for_progress(&mount, "calls before the first kill");
    let mut noticed = 0;
    for kill in 0..KILLS {
        let node = &mut nodes[usize::from(kill % NODES)];
        // Another process may still have the connections of its last absence, or the mount may have
        // none for a while, because the node was lost so often: then its end would be no loss.
        let is_settled = || (is_used(&mount, node) && node.has_its_connections()).then_some(());
        Deadline::wait_until("the node's own connections", SOON, is_settled);
        let before = losses(&mount, node);
        node.kill();
        noticed += u8::from(is_left(&mount, node, before));
        wait_for_progress(&mount, "calls while a node is gone");
        node.restart();
        Deadline::wait_until("the path to come back", SOON, || is_used(&mount, node).then_some(()));
        wait_for_progress(&mount, "calls after a node is back");
    }
    assert!(noticed > KILLS / 2, "the mount has lost {noticed} of {KILLS}");
    let outcome = load.stop();
    assert_eq!(outcome.failed, [""; 0], "calls failed");
    assert!(outcome.wrong.is_empty(), "{:?}", outcome.wrong);
    // The cache outlives the processes of the group, so no call is in doubt, for the client either.
    assert!(outcome.doubled.is_empty(), "done twice or not at all: {:?}", outcome.doubled);
    let statistics = mount.statistics();
    assert_eq!(statistics.replays.reconciled, 0, "a removal was executed again");
    let status = statistics.paths.iter().flat_map(|path| &path.status);
    assert!(
        status.map(|status| status.moved_calls).sum::<u64>() > 0,
        "no call was in flight at a killed node"
    );
}

#[test]
fn nonidempotent_operations_happen_once_across_processes() {
    let directories = Directories::new("group-once");
    let nodes = nodes(&directories);
    let addresses: Vec<SocketAddr> = nodes.iter().map(|node| node.address).collect();
    let server =
        Server { nodes: &addresses, mount_port: None, export: EXPORT, version: Version::V3, remembers: true };
    let findings = server.check(&Cut::ALL);
    println!("{}", findings.summary());
    assert_eq!(findings.wrong, [""; 0]);
}
