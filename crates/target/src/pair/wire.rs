//! What the nodes of a pair send each other: packets, little-endian. Most have 16 bytes; a request to
//! end controllers of a host has its names as well.

use nvme::controller::{EndRequest, Node};
use nvme::end_controller::{EndController, Instance};
use nvme::pair::Message;
use nvme::{HostId, Nqn, Status};

/// The longest packet: a head, a number, the node and identifier of a host, and its name.
pub(super) const PACKET_BYTES_MAX: usize = HEAD_BYTES + 8 + 4 + 16 + NAME_BYTES_MAX;

const HEAD_BYTES: usize = 16;
const NAME_BYTES_MAX: usize = 223;

/// Changes with every change of what the nodes say to each other.
const VERSION: u32 = 4;
const MAGIC: u64 = u64::from_le_bytes(*b"TRNKPAIR");

const HELLO: u32 = 0;
const HEARTBEAT: u32 = 1;
const OWNED: u32 = 2;
const ASK: u32 = 3;
const GIVEN: u32 = 4;
const DECLINED: u32 = 5;
const END: u32 = 6;
const ENDED: u32 = 7;
const HOST_ID: u32 = 8;

/// Which controllers a request is to end.
const OLDER: u32 = 0;
const ONE: u32 = 1;

/// A packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Packet {
    /// The first one: who speaks.
    Hello(Node),
    Message(Message),
    /// The receiver is to end controllers of a host, and to answer when they are gone.
    End(EndRequest),
    /// Which host has this identifier at the sender's node, if one has.
    HostId {
        host_id: HostId,
        host: Option<Nqn>,
    },
    /// How such a request ended.
    Ended {
        id: u64,
        status: Status,
    },
}

fn bytes(kind: u32, nsid: u32, number: u64) -> Vec<u8> {
    let mut packet = Vec::with_capacity(HEAD_BYTES);
    packet.extend_from_slice(&kind.to_le_bytes());
    packet.extend_from_slice(&nsid.to_le_bytes());
    packet.extend_from_slice(&number.to_le_bytes());
    packet
}

impl Packet {
    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Hello(node) => bytes(HELLO | VERSION << 8, node.0, MAGIC),
            Self::Message(Message::Heartbeat) => bytes(HEARTBEAT, 0, 0),
            Self::Message(Message::Owned { nsid, epoch }) => bytes(OWNED, *nsid, *epoch),
            Self::Message(Message::Ask { nsid }) => bytes(ASK, *nsid, 0),
            Self::Message(Message::Given { nsid }) => bytes(GIVEN, *nsid, 0),
            Self::Message(Message::Declined { nsid }) => bytes(DECLINED, *nsid, 0),
            Self::End(request) => end(request),
            Self::HostId { host_id, host } => {
                let name = host.as_ref().map_or("", Nqn::as_str);
                let mut packet = bytes(HOST_ID, u32::from(host.is_some()), 0);
                packet.extend_from_slice(&host_id.0);
                packet.extend_from_slice(name.as_bytes());
                packet
            }
            Self::Ended { id, status } => bytes(ENDED, u32::from(status.bits()), *id),
        }
    }

    /// Reads a packet; `None` if it is not one of this version.
    pub(super) fn decode(packet: &[u8]) -> Option<Self> {
        let (kind, rest) = packet.split_first_chunk()?;
        let (nsid, rest) = rest.split_first_chunk()?;
        let (number, rest) = rest.split_first_chunk()?;
        let (kind, nsid) = (u32::from_le_bytes(*kind), u32::from_le_bytes(*nsid));
        let number = u64::from_le_bytes(*number);
        if kind == END {
            return ended(nsid, number, rest).map(Self::End);
        }
        if kind == HOST_ID && number == 0 {
            return host_id(nsid, rest);
        }
        if !rest.is_empty() {
            return None;
        }
        Some(Self::Message(match kind {
            HEARTBEAT => Message::Heartbeat,
            OWNED => Message::Owned { nsid, epoch: number },
            ASK => Message::Ask { nsid },
            GIVEN => Message::Given { nsid },
            DECLINED => Message::Declined { nsid },
            ENDED => {
                let status = Status::from_bits(u16::try_from(nsid).ok()?);
                return Some(Self::Ended { id: number, status });
            }
            _ if kind == HELLO | VERSION << 8 && number == MAGIC => return Some(Self::Hello(Node(nsid))),
            _ => return None,
        }))
    }
}

fn end(request: &EndRequest) -> Vec<u8> {
    let (which, node, number) = match request.ends {
        EndController::Older => (OLDER, 0, 0),
        EndController::One(Instance { node, number }) => (ONE, node, number),
    };
    let mut packet = bytes(END, which, request.id);
    packet.extend_from_slice(&number.to_le_bytes());
    packet.extend_from_slice(&node.to_le_bytes());
    packet.extend_from_slice(&request.host_id.0);
    packet.extend_from_slice(request.host.as_str().as_bytes());
    packet
}

/// Reads what follows the head of a request.
fn ended(which: u32, id: u64, rest: &[u8]) -> Option<EndRequest> {
    let (number, rest) = rest.split_first_chunk()?;
    let (node, rest) = rest.split_first_chunk()?;
    let (host_id, name) = rest.split_first_chunk()?;
    let (node, number) = (u32::from_le_bytes(*node), u64::from_le_bytes(*number));
    let ends = match which {
        OLDER if (node, number) == (0, 0) => EndController::Older,
        ONE => EndController::One(Instance { node, number }),
        _ => return None,
    };
    let host = Nqn::new(std::str::from_utf8(name).ok()?).ok()?;
    Some(EndRequest { id, host, host_id: HostId(*host_id), ends })
}

/// Reads what follows the head of who has a host identifier.
fn host_id(has_host: u32, rest: &[u8]) -> Option<Packet> {
    let (host_id, name) = rest.split_first_chunk()?;
    let host = match (has_host, name) {
        (0, []) => None,
        (1, name) => Some(Nqn::new(std::str::from_utf8(name).ok()?).ok()?),
        _ => return None,
    };
    Some(Packet::HostId { host_id: HostId(*host_id), host })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(ends: EndController) -> EndRequest {
        let name = format!("nqn.2026-11.org.example:{}", "x".repeat(199));
        EndRequest { id: u64::MAX, host: Nqn::new(&name).unwrap(), host_id: HostId([7; 16]), ends }
    }

    fn packets() -> Vec<Packet> {
        let nsid = 0x0102_0304;
        vec![
            Packet::Hello(Node::B),
            Packet::Message(Message::Heartbeat),
            Packet::Message(Message::Owned { nsid, epoch: u64::MAX - 1 }),
            Packet::Message(Message::Ask { nsid }),
            Packet::Message(Message::Given { nsid }),
            Packet::Message(Message::Declined { nsid }),
            Packet::End(request(EndController::Older)),
            Packet::End(request(EndController::One(Instance { node: 1, number: 1 << 60 }))),
            Packet::HostId { host_id: HostId([8; 16]), host: None },
            Packet::HostId { host_id: HostId([9; 16]), host: Some(request(EndController::Older).host) },
            Packet::Ended { id: 1 << 50, status: Status::INVALID_FIELD.no_retry() },
        ]
    }

    #[test]
    fn what_is_written_is_read_and_all_else_is_none() {
        for packet in packets() {
            let bytes = packet.encode();
            assert!(bytes.len() <= PACKET_BYTES_MAX);
            assert_eq!(Packet::decode(&bytes), Some(packet.clone()));
            assert_eq!(Packet::decode(&bytes[..15]), None);
            assert_eq!(Packet::decode(&[&bytes[..], &[0]].concat()), None, "{packet:?}");
        }
        let mut other = Packet::Hello(Node::A).encode();
        other[1] += 1;
        assert_eq!(Packet::decode(&other), None, "another version");
        assert_eq!(Packet::decode(&[9; HEAD_BYTES]), None);
        let longest = Packet::End(request(EndController::Older)).encode();
        assert_eq!(longest.len(), PACKET_BYTES_MAX);
    }

    #[test]
    fn hostile_bytes_are_none_or_mean_exactly_what_they_say() {
        let mut random = fastrand::Rng::with_seed(37);
        let packets = packets();
        for _ in 0..100_000 {
            let mut bytes = packets[random.usize(..packets.len())].encode();
            for _ in 0..random.usize(1..4) {
                let at = random.usize(..bytes.len());
                bytes[at] ^= 1 << random.u32(..8);
            }
            bytes.truncate(bytes.len() - random.usize(..3));
            if let Some(packet) = Packet::decode(&bytes) {
                let again = Packet::decode(&packet.encode());
                assert_eq!(again, Some(packet));
            }
        }
    }
}
