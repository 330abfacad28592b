//! What headers leave of a link, by transport and MTU.
//!
//! Counted for a long stream of full packets in one direction:
//!
//! - Ethernet, IEEE 802.3: preamble and start 8, header 14, check sequence 4, gap 12 around each
//!   packet.
//! - TCP over IPv4, RFC 791 and 9293, with timestamps, RFC 7323: 20 + 20 + 12 within the MTU. IPv6,
//!   RFC 8200: 40 for 20.
//! - RoCE v2, InfiniBand Architecture Specification volume 1, annex A17: IPv4 20, UDP 8, BTH 12,
//!   ICRC 4, plus at most an RDMA MTU of payload. The RDMA MTU is the largest that fits the
//!   Ethernet MTU.
//! - InfiniBand, the same volume: LRH 8, BTH 12, ICRC 4, VCRC 2, plus at most an MTU of payload.
//! - IP over InfiniBand, RFC 4391: an encapsulation of 4 and DETH 8 more around an IP packet, one
//!   InfiniBand packet each; connected mode, RFC 4755, for an MTU above 4092: cut into packets of
//!   2048.

use crate::error::{Error, Result, refuse};
use std::fmt;
use std::str::FromStr;

/// Around each Ethernet packet: preamble and start, header, check sequence, gap. IEEE 802.3 clauses
/// 3 and 4.
const ETHERNET_BYTES: u32 = 8 + 14 + 4 + 12;
/// RFC 791 s3.1.
const IPV4_BYTES: u32 = 20;
/// RFC 8200 s3.
const IPV6_BYTES: u32 = 40;
/// RFC 9293 s3.1, and the timestamps option with its padding, RFC 7323 s3.
const TCP_BYTES: u32 = 20 + 12;
/// RFC 768.
const UDP_BYTES: u32 = 8;
/// Base transport header and invariant CRC.
const BTH_ICRC_BYTES: u32 = 12 + 4;
/// Local route header and variant CRC.
const LRH_VCRC_BYTES: u32 = 8 + 2;
/// Datagram extended transport header, and IPoIB's encapsulation. RFC 4391 s6.
const DETH_IPOIB_BYTES: u32 = 8 + 4;
/// The largest datagram of IPoIB: an InfiniBand MTU of 4096 less the encapsulation. RFC 4391 s7.
const IPOIB_DATAGRAM_MAX: u32 = 4092;
/// Packets into which connected mode is cut.
const IPOIB_CONNECTED_PACKET: u32 = 2048;
/// The MTUs of RDMA.
const RDMA_MTUS: [u32; 5] = [4096, 2048, 1024, 512, 256];
/// The part of the Ethernet MTU that network stacks reserve for RDMA headers: IPv6, UDP, BTH, the
/// largest extended headers, ICRC.
const RDMA_RESERVE_BYTES: u32 = 40 + 8 + 12 + 4 + 28 + 4;
/// IPv4 hosts accept 576 (RFC 791 s3.2). 65520 is the maximum of connected IPoIB (RFC 4755).
const MTU_MIN: u32 = 576;
const ETHERNET_MTU_MAX: u32 = 9216;
const IPOIB_MTU_MAX: u32 = 65_520;

/// The transport of the payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Transport {
    /// TCP with timestamps over IPv4 over Ethernet.
    Tcp,
    /// TCP with timestamps over IPv6 over Ethernet.
    TcpIpv6,
    /// RDMA over Converged Ethernet, version 2.
    RoceV2,
    /// RDMA over InfiniBand.
    InfiniBand,
    /// TCP with timestamps over IPv4 over InfiniBand.
    Ipoib,
}

impl Transport {
    /// All transports.
    pub const ALL: [Self; 5] = [Self::Tcp, Self::TcpIpv6, Self::RoceV2, Self::InfiniBand, Self::Ipoib];

    /// The name in options and files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::TcpIpv6 => "tcp-ipv6",
            Self::RoceV2 => "roce",
            Self::InfiniBand => "infiniband",
            Self::Ipoib => "ipoib",
        }
    }

    /// Whether the transport runs on Ethernet.
    #[must_use]
    pub const fn is_on_ethernet(self) -> bool {
        matches!(self, Self::Tcp | Self::TcpIpv6 | Self::RoceV2)
    }

    /// The usual MTU: that of standard Ethernet frames, and the default of InfiniBand hosts.
    #[must_use]
    pub const fn usual_mtu(self) -> u32 {
        match self {
            Self::Tcp | Self::TcpIpv6 | Self::RoceV2 => 1500,
            Self::InfiniBand => 4096,
            Self::Ipoib => 2044,
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl From<Transport> for String {
    fn from(transport: Transport) -> Self {
        transport.name().to_owned()
    }
}

impl TryFrom<String> for Transport {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl FromStr for Transport {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let plain = text.trim().to_ascii_lowercase();
        if let Some(transport) = Self::ALL.into_iter().find(|transport| transport.name() == plain) {
            return Ok(transport);
        }
        let nearest = match plain.as_str() {
            "rocev2" | "roce-v2" | "roce2" => "roce",
            "rdma" | "verbs" => "roce on Ethernet, infiniband on InfiniBand",
            "ib" => "infiniband",
            "tcp6" | "tcpv6" => "tcp-ipv6",
            _ => "tcp",
        };
        refuse(
            format!("cannot use the transport {text}"),
            "a transport is tcp, tcp-ipv6, roce, infiniband or ipoib",
            "the transports of this model",
            nearest,
        )
    }
}

/// The payload of a full packet, and the bytes that the packet takes on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Framing {
    /// Bytes of payload.
    pub payload: u32,
    /// Bytes on the wire.
    pub wire: u32,
}

/// The RDMA MTU that fits an Ethernet MTU: 1024 in 1500, 4096 in 9000.
#[must_use]
pub fn rdma_mtu(ethernet_mtu: u32) -> Option<u32> {
    RDMA_MTUS.into_iter().find(|mtu| mtu + RDMA_RESERVE_BYTES <= ethernet_mtu)
}

/// A full packet of this transport with this MTU. For `roce`, the MTU is that of Ethernet.
///
/// # Errors
/// An MTU that the transport does not support.
pub fn framing(transport: Transport, mtu: u32) -> Result<Framing> {
    match transport {
        Transport::Tcp | Transport::TcpIpv6 | Transport::RoceV2
            if !(MTU_MIN..=ETHERNET_MTU_MAX).contains(&mtu) =>
        {
            let nearest = if mtu > ETHERNET_MTU_MAX { 9000 } else { 1500 };
            refuse(
                format!("cannot use an MTU of {mtu} for {transport}"),
                format!(
                    "Ethernet carries IP packets of {MTU_MIN} to {ETHERNET_MTU_MAX} bytes, jumbo frames included"
                ),
                "RFC 791 section 3.2; switches' jumbo frames",
                format!("--mtu {nearest}"),
            )
        }
        Transport::Tcp => Ok(on_ethernet(mtu - IPV4_BYTES - TCP_BYTES, mtu)),
        Transport::TcpIpv6 => Ok(on_ethernet(mtu - IPV6_BYTES - TCP_BYTES, mtu)),
        Transport::RoceV2 => {
            let payload = rdma_mtu(mtu).unwrap_or(256);
            Ok(on_ethernet(payload, payload + IPV4_BYTES + UDP_BYTES + BTH_ICRC_BYTES))
        }
        Transport::InfiniBand if !RDMA_MTUS.contains(&mtu) => {
            let below = RDMA_MTUS.into_iter().find(|one| *one <= mtu).unwrap_or(256);
            refuse(
                format!("cannot use an MTU of {mtu} for infiniband"),
                "InfiniBand's MTU is 256, 512, 1024, 2048 or 4096",
                "InfiniBand Architecture Specification, volume 1",
                format!("--mtu {below}"),
            )
        }
        Transport::InfiniBand => Ok(Framing { payload: mtu, wire: mtu + LRH_VCRC_BYTES + BTH_ICRC_BYTES }),
        Transport::Ipoib if !(MTU_MIN..=IPOIB_MTU_MAX).contains(&mtu) => refuse(
            format!("cannot use an MTU of {mtu} for ipoib"),
            format!(
                "IPoIB carries packets of {MTU_MIN} to {IPOIB_MTU_MAX} bytes: 2044 or 4092 as datagrams, more when connected"
            ),
            "RFC 4391 section 7, RFC 4755",
            format!("--mtu {}", if mtu > IPOIB_MTU_MAX { IPOIB_MTU_MAX } else { 2044 }),
        ),
        Transport::Ipoib => Ok(on_ipoib(mtu)),
    }
}

const fn on_ethernet(payload: u32, packet: u32) -> Framing {
    Framing { payload, wire: packet + ETHERNET_BYTES }
}

fn on_ipoib(mtu: u32) -> Framing {
    let payload = mtu - IPV4_BYTES - TCP_BYTES;
    let around = LRH_VCRC_BYTES + BTH_ICRC_BYTES;
    if mtu <= IPOIB_DATAGRAM_MAX {
        return Framing { payload, wire: mtu + DETH_IPOIB_BYTES + around };
    }
    // Connected mode has no DETH; each packet of the message has the other headers.
    let message = mtu + 4;
    Framing { payload, wire: message + message.div_ceil(IPOIB_CONNECTED_PACKET) * around }
}

/// The share of a line's rate that is payload.
///
/// # Errors
/// An MTU that the transport does not support.
pub fn efficiency(transport: Transport, mtu: u32) -> Result<f64> {
    framing(transport, mtu).map(|framing| f64::from(framing.payload) / f64::from(framing.wire))
}

/// The payload rate of a line in bits per second in each direction, with which a route is compared.
///
/// # Errors
/// An MTU that the transport does not support.
pub fn payload_bits_per_s(line_bits_per_s: f64, transport: Transport, mtu: u32) -> Result<f64> {
    efficiency(transport, mtu).map(|share| line_bits_per_s * share)
}
