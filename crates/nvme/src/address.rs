//! Where a controller listens, in text: `10.0.0.1:4420`, or over RDMA `rdma:10.0.0.1:4420`.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

/// A transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Transport {
    /// NVMe/TCP.
    Tcp,
    /// NVMe/RDMA.
    Rdma,
}

impl Transport {
    /// Its name, as hosts have it (`nvme connect -t`).
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Rdma => "rdma",
        }
    }
}

/// An address and its transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address {
    /// The address.
    pub socket: SocketAddr,
    /// How hosts connect there.
    pub transport: Transport,
}

/// Text that is no address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is no address with a port, as 10.0.0.1:4420, [fd00::1]:4420 or rdma:10.0.0.1:4420")]
pub struct AddressError(String);

impl From<SocketAddr> for Address {
    /// Over TCP.
    fn from(socket: SocketAddr) -> Self {
        Self { socket, transport: Transport::Tcp }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = if self.transport == Transport::Rdma { "rdma:" } else { "" };
        write!(f, "{prefix}{}", self.socket)
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let (transport, socket) = match text.split_once(':') {
            Some(("rdma", socket)) => (Transport::Rdma, socket),
            Some(("tcp", socket)) => (Transport::Tcp, socket),
            _ => (Transport::Tcp, text),
        };
        let socket = socket.parse().map_err(|_| AddressError(text.to_owned()))?;
        Ok(Self { socket, transport })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_of_tcp_unless_it_says_otherwise() {
        for (text, transport, socket) in [
            ("10.0.0.1:4420", Transport::Tcp, "10.0.0.1:4420"),
            ("tcp:10.0.0.1:4420", Transport::Tcp, "10.0.0.1:4420"),
            ("rdma:10.0.0.1:4420", Transport::Rdma, "10.0.0.1:4420"),
            ("[fd00::1]:4420", Transport::Tcp, "[fd00::1]:4420"),
            ("rdma:[fd00::1]:4420", Transport::Rdma, "[fd00::1]:4420"),
        ] {
            let read = Address { socket: socket.parse().expect("an address"), transport };
            assert_eq!(text.parse(), Ok(read));
            assert_eq!(read.to_string().parse(), Ok(read));
        }
        for text in ["", "rdma:", "rdma:10.0.0.1", "fc:10.0.0.1:1", "10.0.0.1", "rdma:rdma:10.0.0.1:1"] {
            let error = text.parse::<Address>().expect_err("no address");
            assert!(error.to_string().contains(text), "{text}");
        }
    }
}
