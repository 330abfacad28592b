//! Links: a port's signal rate, what remains after the encoding, and what a transport leaves for
//! payload.
//!
//! There are three rates. The *signal* rate counts symbols on the wire. The *line* rate is what
//! remains after the encoding (8b/10b, 64b/66b); a port is named after it. The *payload* rate is
//! what remains after the headers of each packet. `bench` compares routes with
//! [`payload_bits_per_s`].
//!
//! Left out: acknowledgements in the other direction, headers of RPC, NFS and NVMe (a hundred bytes
//! per MiB), VLAN tags, retransmissions and flow control. docs/MODEL.md says how much that is.

mod pcie;
mod transport;

pub use pcie::Pcie;
pub use transport::{Framing, Transport, efficiency, framing, payload_bits_per_s, rdma_mtu};

use crate::error::{Error, Result, refuse};
use crate::units::trim;
use std::fmt;
use std::str::FromStr;

/// How bits are encoded as symbols.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// 8 bits in 10: InfiniBand up to QDR, gigabit Ethernet (IEEE 802.3 clause 36), PCIe 1 and 2.
    B8b10,
    /// 64 bits in 66: InfiniBand from FDR, 10 to 100 gigabit Ethernet (IEEE 802.3 clause 49).
    B64b66,
    /// 128 bits in 130: PCIe 3 to 5.
    B128b130,
    /// 256 bits in 257, with a Reed-Solomon code of 514 in 544 on top: 200 gigabit and faster (IEEE
    /// 802.3 clause 119).
    B256b257Rs,
}

impl Encoding {
    /// The share of signalled bits that carry data.
    #[must_use]
    pub const fn efficiency(self) -> f64 {
        match self {
            Self::B8b10 => 8.0 / 10.0,
            Self::B64b66 => 64.0 / 66.0,
            Self::B128b130 => 128.0 / 130.0,
            Self::B256b257Rs => 256.0 / 257.0 * 514.0 / 544.0,
        }
    }

    /// The name of the encoding.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::B8b10 => "8b/10b",
            Self::B64b66 => "64b/66b",
            Self::B128b130 => "128b/130b",
            Self::B256b257Rs => "256b/257b and RS(544,514)",
        }
    }
}

/// A family of links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fabric {
    /// Ethernet.
    Ethernet,
    /// InfiniBand.
    InfiniBand,
}

/// A kind of port.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
#[serde(into = "String")]
pub struct Link {
    name: &'static str,
    fabric: Fabric,
    signal_gbit_per_s: f64,
    encoding: Encoding,
}

const fn ethernet(name: &'static str, signal_gbit_per_s: f64, encoding: Encoding) -> Link {
    Link { name, fabric: Fabric::Ethernet, signal_gbit_per_s, encoding }
}

const fn infiniband(name: &'static str, signal_gbit_per_s: f64, encoding: Encoding) -> Link {
    Link { name, fabric: Fabric::InfiniBand, signal_gbit_per_s, encoding }
}

use Encoding::{B8b10, B64b66, B256b257Rs};

/// All kinds of ports. Ethernet is after IEEE 802.3, InfiniBand (4 lanes) after volume 2 of the
/// IBTA's Architecture Specification: the number of lanes times the rate of a lane.
pub const LINKS: [Link; 16] = [
    ethernet("1GbE", 1.25, B8b10),
    ethernet("10GbE", 10.3125, B64b66),
    ethernet("25GbE", 25.78125, B64b66),
    ethernet("40GbE", 4.0 * 10.3125, B64b66),
    ethernet("50GbE", 2.0 * 25.78125, B64b66),
    ethernet("100GbE", 4.0 * 25.78125, B64b66),
    ethernet("200GbE", 212.5, B256b257Rs),
    ethernet("400GbE", 425.0, B256b257Rs),
    infiniband("SDR", 4.0 * 2.5, B8b10),
    infiniband("DDR", 4.0 * 5.0, B8b10),
    infiniband("QDR", 4.0 * 10.0, B8b10),
    infiniband("FDR10", 4.0 * 10.3125, B64b66),
    infiniband("FDR", 4.0 * 14.0625, B64b66),
    infiniband("EDR", 4.0 * 25.78125, B64b66),
    infiniband("HDR", 212.5, B256b257Rs),
    infiniband("NDR", 425.0, B256b257Rs),
];

impl Link {
    /// The name of the port.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.name
    }

    /// The family of the port.
    #[must_use]
    pub const fn fabric(self) -> Fabric {
        self.fabric
    }

    /// The encoding of the port.
    #[must_use]
    pub const fn encoding(self) -> Encoding {
        self.encoding
    }

    /// The signal rate, in Gbit/s.
    #[must_use]
    pub const fn signal_gbit_per_s(self) -> f64 {
        self.signal_gbit_per_s
    }

    /// The line rate, in Gbit/s, after which the port is named.
    #[must_use]
    pub fn line_gbit_per_s(self) -> f64 {
        // The rates of the lanes are defined so that the result is a round number; rounding removes
        // floating-point errors.
        (self.signal_gbit_per_s * self.encoding.efficiency() * 1e6).round() / 1e6
    }

    /// The usual transport on such a port.
    #[must_use]
    pub const fn usual_transport(self) -> Transport {
        match self.fabric {
            Fabric::Ethernet => Transport::Tcp,
            Fabric::InfiniBand => Transport::InfiniBand,
        }
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl From<Link> for String {
    fn from(link: Link) -> Self {
        link.name.to_owned()
    }
}

impl<'de> serde::Deserialize<'de> for Link {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl FromStr for Link {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let plain = text.trim();
        if let Some(link) = LINKS.iter().find(|link| link.name.eq_ignore_ascii_case(plain)) {
            return Ok(*link);
        }
        let names: Vec<_> = LINKS.iter().map(|link| link.name).collect();
        let digits: String = plain.chars().take_while(char::is_ascii_digit).collect();
        let rate = digits.parse::<f64>().ok();
        let ethernet = |rate: f64| {
            let mut ports = LINKS.iter().filter(|link| link.fabric == Fabric::Ethernet);
            let first = ports.next().copied();
            ports.fold(first, |best, link| {
                let apart = |one: &Link| (one.line_gbit_per_s() - rate).abs();
                best.filter(|best| apart(best) <= apart(link)).or(Some(*link))
            })
        };
        let nearest = rate.and_then(ethernet).map_or("100GbE, or EDR", Link::name);
        refuse(
            format!("cannot use the link {plain}"),
            format!("a link is one of {}", names.join(", ")),
            "IEEE 802.3; InfiniBand Architecture Specification, volume 2",
            nearest,
        )
    }
}

/// The rates of a port as text: signal rate, encoding, line rate.
#[must_use]
pub fn describe(link: Link) -> String {
    format!(
        "{} signals {} Gbit/s, {} leaves {}",
        link.name,
        trim(link.signal_gbit_per_s),
        link.encoding.name(),
        trim(link.line_gbit_per_s())
    )
}

#[cfg(test)]
mod tests;
