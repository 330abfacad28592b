//! A group of nodes on loopback addresses, and files that are written there and read back.
#![allow(dead_code, reason = "each test uses its part")]

use std::net::{IpAddr, SocketAddr};

use client::{File, Mount};
use server::{Config, Server};

/// A server with a node on each of so many loopback addresses, at one port, made by `config`.
pub fn serve(nodes: u8, config: impl Fn(&[SocketAddr]) -> Config) -> (Server, Vec<IpAddr>, u16) {
    let addresses: Vec<IpAddr> = (1..=nodes).map(|node| IpAddr::from([127, 0, 0, node])).collect();
    // The port of the first node may be taken on the other addresses; then another port is tried.
    for _ in 0..20 {
        let port = testkit::free_port();
        let listens: Vec<SocketAddr> = addresses.iter().map(|ip| SocketAddr::new(*ip, port)).collect();
        if let Ok(server) = Server::start(config(&listens)) {
            return (server, addresses, port);
        }
    }
    panic!("no port that is free on {nodes} addresses");
}

pub fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at / 4096) as u8 ^ (at as u8).wrapping_mul(13) ^ seed).collect()
}

/// Writes a file and reads it back.
pub fn write_and_read_back(mount: &Mount, path: &[u8]) -> Vec<u8> {
    let data = pattern(40 << 20 | 12_345, 1);
    let file = mount.create_file(path, 0o644).unwrap();
    file.write_all_at(&data, 0).unwrap();
    assert_eq!(file.attributes().unwrap().size, data.len() as u64);
    has(&file, &data);
    data
}

/// Reads a file that has these data.
pub fn has(file: &File, data: &[u8]) {
    let mut back = vec![0; data.len() + 100];
    assert_eq!(file.read_all_at(&mut back, 0).unwrap(), data.len());
    assert!(back[..data.len()] == *data);
}
