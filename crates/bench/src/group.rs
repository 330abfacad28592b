//! The embedded group: a server of several nodes on loopback addresses, in this process.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};

use server::{Config, Server};

use crate::error::{Error, Result};

/// Ports tried until one is free on all addresses.
const PORT_TRIES: usize = 32;

/// A running group.
#[derive(Debug)]
pub struct Group {
    /// The server.
    pub server: Server,
    /// The nodes' addresses, in order.
    pub addresses: Vec<IpAddr>,
    /// Their port.
    pub port: u16,
}

impl Group {
    /// Starts a group of `nodes` on 127.0.0.1 and following, each paced to so many bytes per second if asked.
    ///
    /// # Errors
    /// [`Error::Embedded`].
    pub fn start(
        nodes: u8,
        mem_bytes: u64,
        pace_bytes_per_s: Option<u64>,
        congestion: Option<&str>,
    ) -> Result<Self> {
        let addresses: Vec<IpAddr> =
            (1..=nodes).map(|node| IpAddr::V4(Ipv4Addr::new(127, 0, 0, node))).collect();
        let mut last = None;
        for _ in 0..PORT_TRIES {
            let Ok(port) = free_port() else { continue };
            let listens: Vec<SocketAddr> = addresses.iter().map(|ip| SocketAddr::new(*ip, port)).collect();
            let mut config = Config::quick(mem_bytes, "/bench", &listens);
            config.congestion = congestion.map(str::to_owned);
            // Both ends share the processors here: a loop may wait for its turn, which is no stall.
            config.limits.stall_ms_max = 60_000;
            for node in &mut config.nodes {
                node.pace_bytes_per_s = pace_bytes_per_s;
            }
            match Server::start(config) {
                Ok(server) => return Ok(Self { server, addresses, port }),
                Err(error) => last = Some(error),
            }
        }
        let cause = last.unwrap_or(server::Error::NoSuchNode(0));
        Err(Error::Embedded { nodes: nodes.into(), cause: Box::new(cause) })
    }
}

/// A port that nobody listens on at the first address; the others are tried by listening.
fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}
