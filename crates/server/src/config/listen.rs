//! The addresses on which a node listens, in text form: `10.0.0.1:2049`, `[fd00::1]:2049`, or over
//! RDMA `rdma:10.0.0.1:20049`. A link-local address names its interface: `[fe80::1%eth0]:2049`.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use transport::AddressError;

/// An address to listen on, with its transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListenAddress {
    /// NFS and MOUNT over TCP.
    Tcp(SocketAddr),
    /// NFS over RDMA.
    Rdma(SocketAddr),
}

impl ListenAddress {
    /// The address, without the transport.
    #[must_use]
    pub const fn socket(self) -> SocketAddr {
        match self {
            Self::Tcp(address) | Self::Rdma(address) => address,
        }
    }

    /// The address, if the transport is TCP.
    #[must_use]
    pub const fn tcp(self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(address) => Some(address),
            Self::Rdma(_) => None,
        }
    }

    /// The address, if the transport is RDMA.
    #[must_use]
    pub const fn rdma(self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(_) => None,
            Self::Rdma(address) => Some(address),
        }
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{address}"),
            Self::Rdma(address) => write!(f, "rdma:{address}"),
        }
    }
}

impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let over_rdma = text.strip_prefix("rdma:");
        let address = transport::parse_with_port(over_rdma.unwrap_or(text)).map_err(|error| match error {
            AddressError::NotASocketAddress(_) => format!(
                "\"{text}\" is no address with a port; write 10.0.0.1:2049, [fd00::1]:2049 or \
                 [fe80::1%eth0]:2049, and for RDMA rdma:10.0.0.1:20049"
            ),
            error => format!("\"{text}\": {error}"),
        })?;
        Ok(if over_rdma.is_some() { Self::Rdma(address) } else { Self::Tcp(address) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_says_what_it_is_over_and_is_shown_as_it_was_written() {
        for text in ["10.0.0.1:2049", "[fd00::1]:2049", "rdma:10.0.0.1:20049", "rdma:[fd00::1]:20049"] {
            let address: ListenAddress = text.parse().expect("it is one");
            assert_eq!(address.to_string(), text);
            assert_eq!(address.rdma().is_some(), text.starts_with("rdma:"));
        }
        for text in ["10.0.0.1", "rdma:", "rdma:10.0.0.1", "RDMA:10.0.0.1:1", "tcp:10.0.0.1:1", ""] {
            assert!(text.parse::<ListenAddress>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_link_local_address_names_its_interface_by_name_or_number() {
        let scope = |text: &str| match text.parse() {
            Ok(
                ListenAddress::Tcp(SocketAddr::V6(address)) | ListenAddress::Rdma(SocketAddr::V6(address)),
            ) => address.scope_id(),
            other => panic!("{text}: {other:?}"),
        };
        for text in ["[fe80::1%lo]:2049", "[fe80::1%1]:2049", "rdma:[fe80::1%lo]:20049"] {
            assert_eq!(scope(text), 1, "{text}");
        }
        for (text, why) in [("[fe80::1]:2049", "name its interface"), ("[fe80::1%nosuch0]:1", "no interface")]
        {
            let error = text.parse::<ListenAddress>().unwrap_err();
            assert!(error.contains(text) && error.contains(why), "{error}");
        }
    }
}
