//! Where the group listens: the addresses of this process, and those of the other processes.

use crate::config::ListenAddress;
use crate::shared_reply_cache::AddressDirectory;
use rpc::portmap::Protocol;
use std::net::{IpAddr, SocketAddr};
use std::sync::OnceLock;

/// More than clients use: Linux has at most 16 connections to a server.
const OTHERS_MAX: usize = 32;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Addresses {
    /// With the ports that were assigned at the start.
    own: OnceLock<Vec<ListenAddress>>,
    of_processes: Option<AddressDirectory>,
}

impl Addresses {
    pub const fn new(of_processes: Option<AddressDirectory>) -> Self {
        Self { own: OnceLock::new(), of_processes }
    }

    /// Notes where this process listens, once it does.
    pub fn set_own(&self, own: Vec<ListenAddress>) {
        // It is said once, at the start.
        let _ = self.own.set(own);
    }

    /// The addresses at which a client that is connected to `local` can reach the group besides, by
    /// the same transport and at the same port, in a fixed order.
    pub fn besides(&self, local: SocketAddr, protocol: Protocol) -> Vec<IpAddr> {
        let of_processes = self.of_processes.as_ref().map(AddressDirectory::list);
        let of_processes = of_processes.transpose().unwrap_or_else(|error| {
            tracing::debug!(%error, "the addresses of the group cannot be listed");
            None
        });
        let own = self.own.get().into_iter().flatten().copied();
        let all = own.chain(of_processes.into_iter().flatten());
        let mut others: Vec<_> = all.filter_map(|address| other(address, local, protocol)).collect();
        others.sort_unstable();
        others.dedup();
        others.truncate(OTHERS_MAX);
        others
    }

    /// Whether there may be any such address. It does not look for those of other processes.
    pub fn has_others(&self, local: SocketAddr, protocol: Protocol) -> bool {
        let mut own = self.own.get().into_iter().flatten();
        self.of_processes.is_some() || own.any(|address| other(*address, local, protocol).is_some())
    }
}

/// The address, if it is another one than `local` with the same transport and port, and whoever
/// reaches `local` may reach it.
fn other(address: ListenAddress, local: SocketAddr, protocol: Protocol) -> Option<IpAddr> {
    let of_transport = match protocol {
        Protocol::Rdma => address.rdma(),
        Protocol::Tcp | Protocol::Udp => address.tcp(),
    };
    let (other, here) = (of_transport?, local.ip().to_canonical());
    let ip = other.ip().to_canonical();
    (other.port() == local.port() && ip != here && is_reached_like(ip, here)).then_some(ip)
}

/// Whether somebody who reaches one address may reach the other: it is a single one, of the same
/// family, and a host's own address only for the host itself. Those that are of one link name an
/// interface, which differs between hosts.
fn is_reached_like(other: IpAddr, one: IpAddr) -> bool {
    let is_of_link = match other {
        IpAddr::V4(other) => other.is_link_local(),
        IpAddr::V6(other) => other.is_unicast_link_local(),
    };
    other.is_ipv4() == one.is_ipv4()
        && !other.is_unspecified()
        && !is_of_link
        && (!other.is_loopback() || one.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn besides(own: &[&str], local: &str, protocol: Protocol) -> Vec<String> {
        let addresses = Addresses::new(None);
        addresses.set_own(own.iter().map(|address| address.parse().unwrap()).collect());
        let found = addresses.besides(local.parse().unwrap(), protocol);
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn others_have_the_same_transport_port_and_family() {
        let own = [
            "10.0.0.3:2049",
            "10.0.0.1:2049",
            "10.0.0.2:2049",
            "10.0.0.4:2050",
            "[fd00::1]:2049",
            "[fd00::2]:2049",
            "rdma:10.0.0.5:20049",
            "rdma:10.0.0.6:20049",
            "10.0.0.2:2049",
        ];
        assert_eq!(besides(&own, "10.0.0.1:2049", Protocol::Tcp), ["10.0.0.2", "10.0.0.3"]);
        assert_eq!(besides(&own, "[::ffff:10.0.0.1]:2049", Protocol::Tcp), ["10.0.0.2", "10.0.0.3"]);
        assert_eq!(besides(&own, "[fd00::1]:2049", Protocol::Tcp), ["fd00::2"]);
        assert_eq!(besides(&own, "10.0.0.5:20049", Protocol::Rdma), ["10.0.0.6"]);
        assert_eq!(besides(&own, "10.0.0.4:2050", Protocol::Tcp), [""; 0]);
        assert_eq!(besides(&[], "10.0.0.4:2050", Protocol::Tcp), [""; 0]);
    }

    #[test]
    fn whether_there_are_others_is_known_without_listing_them() {
        let addresses = Addresses::new(None);
        assert!(!addresses.has_others("10.0.0.1:2049".parse().unwrap(), Protocol::Tcp));
        let own = ["10.0.0.1:2049", "10.0.0.2:2049", "10.0.0.3:2050", "rdma:10.0.0.1:20049"];
        addresses.set_own(own.map(|address| address.parse().unwrap()).into());
        for (local, protocol, expected) in [
            ("10.0.0.1:2049", Protocol::Tcp, true),
            ("10.0.0.3:2050", Protocol::Tcp, false),
            ("10.0.0.1:20049", Protocol::Rdma, false),
        ] {
            assert_eq!(addresses.has_others(local.parse().unwrap(), protocol), expected, "{local}");
        }
    }

    #[test]
    fn what_others_cannot_reach_is_left_out() {
        let own = ["0.0.0.0:2049", "127.0.0.1:2049", "127.0.0.2:2049", "169.254.1.1:2049", "10.0.0.1:2049"];
        assert_eq!(besides(&own, "10.0.0.9:2049", Protocol::Tcp), ["10.0.0.1"]);
        assert_eq!(besides(&own, "127.0.0.1:2049", Protocol::Tcp), ["10.0.0.1", "127.0.0.2"]);
    }

    #[test]
    fn there_are_not_too_many() {
        let own: Vec<_> = (1..=250).map(|host| format!("10.0.0.{host}:2049")).collect();
        let own: Vec<_> = own.iter().map(String::as_str).collect();
        assert_eq!(besides(&own, "10.0.0.1:2049", Protocol::Tcp).len(), OTHERS_MAX);
    }
}
