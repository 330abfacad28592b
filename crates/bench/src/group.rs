//! The embedded group: a server in this process with several nodes on loopback addresses, and on
//! RDMA devices if there are any.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};

use client::options::{Proto, Remote};
use client::{Address, Settings};
use serde::{Deserialize, Serialize};
use server::{Config, Network, NfsVersions, Server};

use crate::error::{Error, Result};

/// The number of ports to try until one is free on all addresses.
const PORT_TRIES: usize = 32;

/// A running group.
#[derive(Debug)]
pub struct Group {
    /// The server.
    pub server: Server,
    /// Where the nodes listen.
    pub at: GroupAddresses,
}

/// Where the nodes of a group listen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupAddresses {
    /// The addresses of the nodes, in order.
    pub nodes: Vec<IpAddr>,
    /// The TCP port of all nodes.
    pub port: u16,
    /// The RDMA address of each node; empty without RDMA.
    rdma: Vec<SocketAddr>,
}

/// The properties of a group.
#[derive(Debug, Clone, Copy)]
pub struct GroupPlan<'a> {
    /// The number of nodes.
    pub nodes: u8,
    /// The address of each node; empty for 127.0.0.1 and the following ones.
    pub addresses: &'a [IpAddr],
    /// Machines beyond the nodes' own networks that are to be clients.
    pub clients: &'a [IpAddr],
    /// The maximum size of the memory store.
    pub mem_bytes: u64,
    /// The maximum rate at which each node sends over TCP.
    pub pace_bytes_per_s: Option<u64>,
    /// The congestion control of both ends.
    pub congestion: Option<&'a str>,
    /// The addresses of RDMA devices, which are distributed over the nodes.
    pub rdma: &'a [IpAddr],
    /// Whether NFS versions 4.1 and 4.2 are served beside 3.
    pub version_4: bool,
}

impl Group {
    /// Starts a group.
    ///
    /// # Errors
    /// [`Error::Embedded`].
    pub fn start(plan: &GroupPlan<'_>) -> Result<Self> {
        let nodes = plan.nodes;
        let addresses = addresses(nodes, plan.addresses);
        let mut last = None;
        for _ in 0..PORT_TRIES {
            let port = free_port(&addresses)?;
            let Some(rdma) = rdma_addresses(plan.rdma, addresses.len(), port) else { continue };
            match Server::start(config(plan, &addresses, port, &rdma)) {
                Ok(server) => {
                    return Ok(Self { server, at: GroupAddresses { nodes: addresses, port, rdma } });
                }
                Err(error) => last = Some(error),
            }
        }
        let cause = last.unwrap_or(server::Error::NoSuchNode(0));
        Err(Error::Embedded { nodes: nodes.into(), cause: Box::new(cause) })
    }
}

/// The addresses of an embedded group's nodes: those given, or 127.0.0.1 and the following ones.
#[must_use]
pub fn addresses(nodes: u8, given: &[IpAddr]) -> Vec<IpAddr> {
    match given {
        [] => (1..=nodes).map(|node| IpAddr::V4(Ipv4Addr::new(127, 0, 0, node))).collect(),
        given => given.to_vec(),
    }
}

impl GroupAddresses {
    /// Directs a mount to this group: 127.0.0.n means node n, whatever its address is, and over
    /// RDMA too.
    pub fn redirect(&self, settings: &mut Settings) {
        let resolved = settings.clone();
        for remote in &mut settings.remotes {
            let node = self.node_named(remote.address);
            let end = node.and_then(|node| self.rdma.get(node));
            let address = node.and_then(|node| self.nodes.get(node));
            match (resolved.proto_of(remote), end) {
                (Proto::Rdma, Some(end)) => {
                    *remote = Remote {
                        address: Address::from(*end),
                        proto: Some(Proto::Rdma),
                        port: Some(end.port()),
                    };
                }
                (Proto::Tcp, _) => {
                    remote.address = address.map_or(remote.address, |address| Address::from(*address));
                    remote.port = remote.port.or(Some(self.port));
                }
                (Proto::Rdma, None) => {}
            }
        }
        if let Some(first) = settings.remotes.first() {
            settings.server = first.address;
        }
    }

    /// The node that an address of the options means: 127.0.0.n is node n, and each node has its
    /// own address too.
    fn node_named(&self, address: Address) -> Option<usize> {
        let own = self.nodes.iter().position(|node| Address::from(*node) == address);
        let count = u8::try_from(self.nodes.len()).unwrap_or(u8::MAX);
        let by_number = || {
            let mut numbers = addresses(count, &[]).into_iter();
            numbers.position(|number| Address::from(number) == address)
        };
        own.or_else(by_number)
    }

    /// The node to which a path of such a mount leads.
    pub fn node_of(&self, settings: &Settings, remote: &Remote) -> usize {
        let end = settings.address_of(remote);
        let found = match settings.proto_of(remote) {
            Proto::Tcp => self.nodes.iter().position(|address| *address == end.ip()),
            Proto::Rdma => self.rdma.iter().position(|rdma| *rdma == end),
        };
        found.unwrap_or(0)
    }
}

fn config(plan: &GroupPlan<'_>, addresses: &[IpAddr], port: u16, rdma: &[SocketAddr]) -> Config {
    let listens: Vec<SocketAddr> = addresses.iter().map(|ip| SocketAddr::new(*ip, port)).collect();
    let mut config = Config::quick(plan.mem_bytes, "/bench", &listens);
    config.congestion = plan.congestion.map(str::to_owned);
    if plan.version_4 {
        config.versions = NfsVersions::ALL;
    }
    // Client and server share the processors here, so a loop may wait for a processor. That is not
    // a stall.
    config.limits.stall_ms_max = 60_000;
    // On loopback only this process is a client. Of the machines that can reach the devices'
    // addresses, no other is admitted. On other addresses the nodes admit their own networks.
    for export in &mut config.exports {
        export.allow.extend(plan.rdma.iter().chain(plan.clients).map(|address| Network::host(*address)));
    }
    let mut listened = addresses.to_vec();
    for (index, node) in config.nodes.iter_mut().enumerate() {
        node.pace_bytes_per_s = plan.pace_bytes_per_s;
        node.listen_rdma = rdma.get(index).copied().into_iter().collect();
        for end in node.listen_rdma.clone() {
            // MOUNT uses TCP at the same address. Several nodes may have that address.
            if !listened.contains(&end.ip()) {
                listened.push(end.ip());
                node.listen.push(SocketAddr::new(end.ip(), port));
            }
        }
    }
    config
}

/// An address and a port for each node. With fewer addresses than nodes, several nodes share an
/// address on different ports. RDMA ports are separate from TCP ports, so the same numbers may be
/// used. `None` if the port numbers run out.
fn rdma_addresses(addresses: &[IpAddr], nodes: usize, port: u16) -> Option<Vec<SocketAddr>> {
    if addresses.is_empty() {
        return Some(Vec::new());
    }
    let end = |node: usize| {
        let step = u16::try_from(node / addresses.len()).ok()?;
        Some(SocketAddr::new(*addresses.get(node % addresses.len())?, port.checked_add(step)?))
    };
    (0..nodes).map(end).collect()
}

/// A free port of the first address, after it was seen that all are addresses of this machine.
/// Whether the port is free on the others shows when they listen.
fn free_port(addresses: &[IpAddr]) -> Result<u16> {
    let mut free = None;
    for address in addresses {
        let port = TcpListener::bind((*address, 0)).and_then(|socket| socket.local_addr());
        let port = port.map_err(|error| {
            Error::refused(
                format!("the embedded group cannot listen on {address}"),
                error.to_string(),
                "addresses of this machine, as `ip addr` shows them",
            )
        })?;
        free.get_or_insert(port.port());
    }
    Ok(free.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_node_has_an_end_of_its_own_on_the_addresses_there_are() {
        let addresses = ["10.77.1.1".parse().unwrap(), "10.77.1.2".parse().unwrap()];
        let ends = rdma_addresses(&addresses, 4, 5000).unwrap();
        let shown: Vec<String> = ends.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["10.77.1.1:5000", "10.77.1.2:5000", "10.77.1.1:5001", "10.77.1.2:5001"]);
        assert_eq!(rdma_addresses(&addresses, 4, u16::MAX), None);
        assert_eq!(rdma_addresses(&[], 4, 5000), Some(Vec::new()));
    }

    #[test]
    fn mount_is_asked_at_each_address_once_and_each_end_is_its_nodes_own() {
        let nodes = ["127.0.0.1".parse().unwrap(), "127.0.0.2".parse().unwrap()];
        let devices = ["10.77.1.1".parse().unwrap()];
        let clients = ["10.77.9.9".parse().unwrap()];
        let plan = GroupPlan {
            nodes: 2,
            addresses: &[],
            clients: &clients,
            mem_bytes: 1,
            pace_bytes_per_s: None,
            congestion: None,
            rdma: &devices,
            version_4: false,
        };
        let config = config(&plan, &nodes, 5000, &rdma_addresses(&devices, 2, 5000).unwrap());
        let listens: Vec<usize> = config.nodes.iter().map(|node| node.listen.len()).collect();
        assert_eq!(listens, [2, 1]);
        assert_eq!(config.nodes[1].listen_rdma, ["10.77.1.1:5001".parse().unwrap()]);
        let admits = |client: &str| {
            let client = client.parse().unwrap();
            config.exports[0].allow.iter().any(|network| network.contains(client))
        };
        assert!(admits("10.77.1.1") && admits("127.0.0.1") && admits("10.77.9.9"));
        assert!(!admits("10.77.1.2"), "another machine beside the device");
    }

    #[test]
    fn node_numbers_lead_to_the_addresses_of_the_nodes() {
        let nodes = addresses(2, &["10.77.1.1".parse().unwrap(), "10.77.2.1".parse().unwrap()]);
        let group = GroupAddresses { nodes, port: 5000, rdma: Vec::new() };
        let directed = |remotes: &str| {
            let options = format!("port=5000,remoteports={remotes}");
            let mut settings = Settings::from_options("127.0.0.1:/bench", &options).unwrap();
            group.redirect(&mut settings);
            let remotes: Vec<String> = settings.remotes.iter().map(|it| it.address.to_string()).collect();
            let of: Vec<usize> = settings.remotes.iter().map(|it| group.node_of(&settings, it)).collect();
            (settings.server.to_string(), remotes, of)
        };
        let both = ("10.77.1.1".to_owned(), vec!["10.77.1.1".to_owned(), "10.77.2.1".to_owned()], vec![0, 1]);
        assert_eq!(directed("127.0.0.1-127.0.0.2"), both);
        assert_eq!(directed("10.77.1.1~127.0.0.2"), both, "by address or by number");
        assert_eq!(directed("127.0.0.2").2, [1]);
    }
}
