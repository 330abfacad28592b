//! Operations that must not happen twice, on our own server: one node, and a group whose nodes share a reply cache.

use super::check::Server;
use super::cuts::Cut;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use testkit::free_port_on;

fn done_once_on(nodes: u8) {
    let address = |node: u8| IpAddr::V4(Ipv4Addr::new(127, 0, 9, node));
    let port = free_port_on(address(1));
    let nodes: Vec<SocketAddr> = (1..=nodes).map(|node| SocketAddr::new(address(node), port)).collect();
    let config = server::Config::quick(64 << 20, "/export", &nodes);
    let running = server::Server::start(config).expect("it starts");
    let server = Server { nodes: &nodes, mount_port: None, export: "/export", remembers: true };
    // One node alone is waited for where it is silent: that is the campaign's affair.
    let alone = nodes.len() == 1;
    let cuts: Vec<Cut> = Cut::ALL.into_iter().filter(|cut| !(alone && *cut == Cut::Silence)).collect();
    let findings = server.check(&cuts);
    println!("{} node(s): {}", nodes.len(), findings.summary());
    assert_eq!(findings.wrong, [""; 0]);
    drop(running);
}

#[test]
fn what_must_not_happen_twice_happens_once_on_one_node() {
    done_once_on(1);
}

#[test]
fn what_must_not_happen_twice_happens_once_across_the_nodes_of_a_group() {
    done_once_on(4);
}
