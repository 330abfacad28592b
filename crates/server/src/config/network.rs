//! Clients that may connect: a network, which is an address and a prefix length, or a host by its
//! name.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, ToSocketAddrs};
use std::str::FromStr;

/// An address (`10.0.0.7`, `::1`) or a network (`10.0.0.0/8`, `fd00::/8`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

/// Why a network could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    /// Not an address.
    #[error("\"{0}\" is neither an address nor a network; write 10.0.0.7, 10.0.0.0/8, fd00::/8")]
    Address(String),
    /// A host name that resolves to no address.
    #[error("\"{0}\" is no address, and as a host's name it is not known here: {1}")]
    Name(String, String),
    /// A pattern of host names.
    #[error("\"{0}\" is a pattern of names; name each host, or its network: 10.0.0.0/8")]
    Pattern(String),
    /// The prefix is longer than the address.
    #[error("\"{0}\" has a prefix outside 0 to {1}")]
    Prefix(String, u8),
}

/// Parses an address, a network, or a host name, which stands for the addresses that it has now.
///
/// # Errors
/// [`NetworkError`].
pub fn clients(text: &str) -> Result<Vec<Network>, NetworkError> {
    let text = text.trim();
    if text.contains(['*', '?', '@']) {
        return Err(NetworkError::Pattern(text.to_owned()));
    }
    let letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    let is_name = text.chars().all(letter) && text.chars().any(|c| c.is_ascii_alphabetic());
    if !is_name {
        return Ok(vec![text.parse()?]);
    }
    let unknown = |error: std::io::Error| NetworkError::Name(text.to_owned(), error.to_string());
    // The port is there only because the system's resolver requires one.
    let found = (text, 0).to_socket_addrs().map_err(unknown)?;
    let mut networks = Vec::new();
    for address in found {
        let network = Network::host(address.ip());
        if !networks.contains(&network) {
            networks.push(network);
        }
    }
    Ok(networks)
}

const fn bits(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

/// The address with all bits after `prefix` cleared.
fn masked(address: IpAddr, prefix: u8) -> IpAddr {
    let dropped = u32::from(bits(address).saturating_sub(prefix));
    match address {
        IpAddr::V4(v4) => {
            Ipv4Addr::from_bits(v4.to_bits() & u32::MAX.checked_shl(dropped).unwrap_or(0)).into()
        }
        IpAddr::V6(v6) => {
            Ipv6Addr::from_bits(v6.to_bits() & u128::MAX.checked_shl(dropped).unwrap_or(0)).into()
        }
    }
}

impl Network {
    /// The network of `address` with a prefix of `prefix` bits; a prefix longer than the address
    /// means the address itself.
    #[must_use]
    pub fn new(address: IpAddr, prefix: u8) -> Self {
        let address = address.to_canonical();
        let prefix = prefix.min(bits(address));
        Self { address: masked(address, prefix), prefix }
    }

    /// The network of one address.
    #[must_use]
    pub fn host(address: IpAddr) -> Self {
        Self::new(address, u8::MAX)
    }

    /// Whether the network contains an address. An IPv4-mapped IPv6 address counts as IPv4.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        bits(address) == bits(self.address) && masked(address, self.prefix) == self.address
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let text = text.trim();
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address = address.parse::<IpAddr>().map_err(|_| NetworkError::Address(text.to_owned()))?;
        let prefix = match prefix {
            None => bits(address),
            Some(prefix) => match prefix.parse::<u8>() {
                Ok(prefix) if prefix <= bits(address) => prefix,
                _ => return Err(NetworkError::Prefix(text.to_owned(), bits(address))),
            },
        };
        Ok(Self { address: masked(address, prefix), prefix })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.prefix == bits(self.address) {
            self.address.fmt(f)
        } else {
            write!(f, "{}/{}", self.address, self.prefix)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admits(network: &str, address: &str) -> bool {
        network.parse::<Network>().unwrap().contains(address.parse().unwrap())
    }

    #[test]
    fn an_address_is_in_a_network_when_the_prefix_agrees() {
        assert!(admits("10.0.0.0/8", "10.9.8.7"));
        assert!(admits("10.1.2.3/8", "10.9.8.7"), "bits after the prefix do not count");
        assert!(!admits("10.0.0.0/8", "11.0.0.1"));
        assert!(admits("0.0.0.0/0", "203.0.113.5"));
        assert!(!admits("0.0.0.0/0", "2001:db8::1"));
        assert!(admits("::1", "::1"));
        assert!(admits("fd00::/8", "fd12::9"));
        assert!(admits("127.0.0.0/8", "::ffff:127.0.0.1"), "mapped IPv4 is IPv4");
    }

    #[test]
    fn a_name_stands_for_its_addresses() {
        let local = clients("localhost").unwrap();
        assert!(local.iter().any(|network| network.contains([127, 0, 0, 1].into())), "{local:?}");
        assert!(local.iter().all(|network| !network.contains([10, 0, 0, 1].into())), "{local:?}");
        assert_eq!(clients("fd00::/8").unwrap(), ["fd00::/8".parse().unwrap()]);
        assert_eq!(clients("10.0.0.7").unwrap(), ["10.0.0.7".parse().unwrap()]);
        assert!(matches!(clients("no-such-host.invalid"), Err(NetworkError::Name(..))));
        assert!(matches!(clients("*.example.net"), Err(NetworkError::Pattern(_))));
        assert!(matches!(clients("10.0.0"), Err(NetworkError::Address(_))));
        assert!(matches!(clients("host/8"), Err(NetworkError::Address(_))));
    }

    #[test]
    fn what_is_no_network_is_refused_by_name() {
        assert!("host".parse::<Network>().unwrap_err().to_string().contains("\"host\""));
        assert!("10.0.0.0/33".parse::<Network>().unwrap_err().to_string().contains("0 to 32"));
    }
}
