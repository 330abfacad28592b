//! An address on which hosts connect, as options and files name it: `10.0.0.1:4420`, or over RDMA
//! `rdma:10.0.0.1:4420`.

use serde::Deserialize;
use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use target::{Listen, Node, Transport};

/// See the module's documentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Address {
    pub address: SocketAddr,
    pub transport: Transport,
}

impl Address {
    /// As a port of a node.
    pub const fn of(self, node: Node) -> Listen {
        Listen { address: self.address, transport: self.transport, node }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = if self.transport == Transport::Rdma { "rdma:" } else { "" };
        write!(f, "{prefix}{}", self.address)
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (transport, address) = match text.split_once(':') {
            Some(("rdma", address)) => (Transport::Rdma, address),
            Some(("tcp", address)) => (Transport::Tcp, address),
            _ => (Transport::Tcp, text),
        };
        match address.parse() {
            Ok(address) => Ok(Self { address, transport }),
            Err(_) => Err(format!(
                "\"{text}\" is no address with a port, as 10.0.0.1:4420, [fd00::1]:4420 or rdma:10.0.0.1:4420"
            )),
        }
    }
}

impl TryFrom<String> for Address {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_of_tcp_unless_it_says_otherwise() {
        for (text, transport, address) in [
            ("10.0.0.1:4420", Transport::Tcp, "10.0.0.1:4420"),
            ("tcp:10.0.0.1:4420", Transport::Tcp, "10.0.0.1:4420"),
            ("rdma:10.0.0.1:4420", Transport::Rdma, "10.0.0.1:4420"),
            ("[fd00::1]:4420", Transport::Tcp, "[fd00::1]:4420"),
            ("rdma:[fd00::1]:4420", Transport::Rdma, "[fd00::1]:4420"),
        ] {
            let read = Address { address: address.parse().unwrap(), transport };
            assert_eq!(text.parse(), Ok(read));
            assert_eq!(read.to_string().parse(), Ok(read));
        }
        for text in ["", "rdma:", "rdma:10.0.0.1", "fc:10.0.0.1:1", "10.0.0.1", "rdma:rdma:10.0.0.1:1"] {
            assert!(text.parse::<Address>().unwrap_err().contains(text), "{text}");
        }
    }
}
