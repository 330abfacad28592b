//! IP addresses in text form, with the zone of a link-local IPv6 address: `10.0.0.1`, `fd00::1`,
//! `fe80::1%eth0`. RFC 4007 s11
//!
//! Every command reads addresses here. A zone is an interface of this machine, by name or by
//! number; only link-local addresses have one, and each of them needs one.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::str::FromStr;

use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice, socket_with};

/// An address of a node, or of this machine. IPv6 addresses of the link have the number of their
/// interface; for other addresses that is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address {
    ip: IpAddr,
    zone: u32,
}

/// Why text is not an address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// Neither form of an address.
    #[error("\"{0}\" is no IP address")]
    NotAnAddress(String),
    /// `10.0.0.1%eth0`
    #[error("{0} has no zone: only link-local IPv6 addresses (fe80::/10) have one")]
    NoZone(IpAddr),
    /// `fe80::1`
    #[error("{0} is link-local: name its interface, as in {0}%eth0")]
    ZoneMissing(IpAddr),
    /// `fe80::1%nosuch0`
    #[error("there is no interface \"{0}\" here; see: ip link")]
    Interface(String),
    /// `10.0.0.1`, where a port belongs behind it.
    #[error("\"{0}\" is no address with a port, as 10.0.0.1:2049, [fd00::1]:2049 or [fe80::1%eth0]:2049")]
    NotASocketAddress(String),
}

impl Address {
    /// The address without its zone.
    #[must_use]
    pub const fn ip(&self) -> IpAddr {
        self.ip
    }

    /// The number of the interface of a link-local address, otherwise 0.
    #[must_use]
    pub const fn zone(&self) -> u32 {
        self.zone
    }

    /// Whether this is an IPv4 address.
    #[must_use]
    pub const fn is_ipv4(&self) -> bool {
        self.ip.is_ipv4()
    }

    /// Whether this is an IPv6 address.
    #[must_use]
    pub const fn is_ipv6(&self) -> bool {
        self.ip.is_ipv6()
    }

    /// Whether the address leads back to this machine.
    #[must_use]
    pub const fn is_loopback(&self) -> bool {
        self.ip.is_loopback()
    }

    /// Whether this is an IPv6 address that is valid on one link only.
    #[must_use]
    pub const fn is_link_local(&self) -> bool {
        is_link_local(self.ip)
    }

    /// An address of an interface; the number matters for link-local addresses only.
    #[must_use]
    pub const fn of_interface(ip: IpAddr, index: u32) -> Self {
        Self { ip, zone: if is_link_local(ip) { index } else { 0 } }
    }

    /// A port at this address.
    #[must_use]
    pub const fn with_port(&self, port: u16) -> SocketAddr {
        match self.ip {
            IpAddr::V4(_) => SocketAddr::new(self.ip, port),
            IpAddr::V6(ip) => SocketAddr::V6(SocketAddrV6::new(ip, port, 0, self.zone)),
        }
    }

    /// Writes the address as a URL or a mount source has it: IPv6 in brackets.
    #[must_use]
    pub fn in_brackets(&self) -> String {
        if self.is_ipv6() { format!("[{self}]") } else { self.to_string() }
    }
}

impl From<IpAddr> for Address {
    fn from(ip: IpAddr) -> Self {
        Self { ip, zone: 0 }
    }
}

impl From<Ipv6Addr> for Address {
    fn from(ip: Ipv6Addr) -> Self {
        IpAddr::V6(ip).into()
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        let zone = match address {
            SocketAddr::V4(_) => 0,
            SocketAddr::V6(address) => address.scope_id(),
        };
        Self::of_interface(address.ip(), zone)
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let bad = || AddressError::NotAnAddress(text.to_owned());
        match text.split_once('%') {
            None => match text.parse().map_err(|_| bad())? {
                ip if is_link_local(ip) => Err(AddressError::ZoneMissing(ip)),
                ip => Ok(ip.into()),
            },
            Some((ip, zone)) => match ip.parse().map_err(|_| bad())? {
                ip if is_link_local(ip) => Ok(Self { ip, zone: interface_index(zone)? }),
                ip => Err(AddressError::NoZone(ip)),
            },
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.ip.fmt(f)?;
        match self.zone {
            0 => Ok(()),
            zone => write!(f, "%{}", interface_name(zone).unwrap_or_else(|| zone.to_string())),
        }
    }
}

/// Reads an address with a port: `10.0.0.1:2049`, `[fd00::1]:2049`, `[fe80::1%eth0]:2049`.
///
/// # Errors
/// Why the text is not such an address.
pub fn parse_with_port(text: &str) -> Result<SocketAddr, AddressError> {
    let bad = || AddressError::NotASocketAddress(text.to_owned());
    let (address, port) = match text.strip_prefix('[') {
        Some(rest) => rest.split_once("]:").ok_or_else(bad)?,
        None => text.split_once(':').ok_or_else(bad)?,
    };
    let is_number = !port.is_empty() && port.bytes().all(|digit| digit.is_ascii_digit());
    let port = port.parse().ok().filter(|_| is_number).ok_or_else(bad)?;
    let address: Address = address.parse().map_err(|error| match error {
        AddressError::NotAnAddress(_) => bad(),
        error => error,
    })?;
    if address.is_ipv6() != text.starts_with('[') {
        return Err(bad());
    }
    Ok(address.with_port(port))
}

const fn is_link_local(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local())
}

/// The number of an interface that is given by its name or its number.
///
/// # Errors
/// If there is no such interface.
pub fn interface_index(zone: &str) -> Result<u32, AddressError> {
    let unknown = || AddressError::Interface(zone.to_owned());
    if let Ok(number) = zone.parse() {
        return interface_name(number).map(|_| number).ok_or_else(unknown);
    }
    let socket = any_socket().ok_or_else(unknown)?;
    netdevice::name_to_index(socket, zone).map_err(|_| unknown())
}

/// The name of an interface; `None` if there is none with this number.
fn interface_name(index: u32) -> Option<String> {
    netdevice::index_to_name(any_socket()?, index).ok()
}

/// The system answers questions about interfaces on any socket.
fn any_socket() -> Option<std::os::fd::OwnedFd> {
    socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_is_an_interface_by_its_name_or_its_number() {
        let by_name: Address = "fe80::1%lo".parse().unwrap();
        let by_number: Address = format!("fe80::1%{}", by_name.zone()).parse().unwrap();
        assert_eq!((by_name, by_name.to_string().as_str()), (by_number, "fe80::1%lo"));
        assert_eq!(by_name.in_brackets(), "[fe80::1%lo]");
        let SocketAddr::V6(with_port) = by_name.with_port(2049) else { panic!("IPv6") };
        assert_eq!((with_port.scope_id(), with_port.port()), (by_name.zone(), 2049));
        assert_eq!(Address::from(SocketAddr::V6(with_port)), by_name);
        assert_ne!(Address::of_interface(by_name.ip(), 77), by_name, "two links may have the same address");
    }

    #[test]
    fn only_link_local_addresses_have_a_zone_and_each_needs_one() {
        let error = |text: &str| text.parse::<Address>().unwrap_err().to_string();
        assert_eq!(error("fe80::1"), "fe80::1 is link-local: name its interface, as in fe80::1%eth0");
        assert!(error("10.0.0.1%lo").contains("only link-local"));
        assert!(error("fd00::1%lo").contains("only link-local"));
        assert_eq!(error("fe80::1%nosuch0"), "there is no interface \"nosuch0\" here; see: ip link");
        for zone in ["0", "4000000000", "", "lo%lo"] {
            assert!(error(&format!("fe80::1%{zone}")).contains("no interface"), "{zone}");
        }
        for text in ["", "%lo", "10.0.0", "fe80::1 ", "[fd00::1]", "nas"] {
            assert!(error(text).contains("no IP address"), "{text}");
        }
        let global = Address::from(SocketAddr::V6(SocketAddrV6::new(Ipv6Addr::LOCALHOST, 1, 0, 9)));
        assert_eq!((global.zone(), global.to_string().as_str()), (0, "::1"));
    }

    #[test]
    fn an_address_with_a_port_is_read_in_each_form() {
        for text in ["10.0.0.1:2049", "[fd00::1]:2049", "[::]:0"] {
            assert_eq!(parse_with_port(text).unwrap().to_string(), text);
        }
        let zoned = parse_with_port("[fe80::1%lo]:4060").unwrap();
        assert_eq!(zoned, "fe80::1%lo".parse::<Address>().unwrap().with_port(4060));
        for text in [
            "10.0.0.1",
            "10.0.0.1:",
            "10.0.0.1:+1",
            "10.0.0.1:65536",
            "[10.0.0.1]:1",
            "fd00::1:1",
            "[fd00::1]",
            ":1",
            "nas:1",
        ] {
            assert!(parse_with_port(text).unwrap_err().to_string().contains("with a port"), "{text}");
        }
        assert!(parse_with_port("[fe80::1]:1").unwrap_err().to_string().contains("name its interface"));
    }
}
