//! The discovery log. NVMe Base, "Discovery (Log Page Identifier 70h)"; NVMe over Fabrics,
//! "Discovery Log Page Entry".

use super::{GetLogPage, LogId};
use crate::Short;
use crate::layout::{flags, layout, numbers, text};
use crate::nqn::{NQN_FIELD_BYTES, Nqn, NqnError};

/// The length of the head in bytes.
pub const DISCOVERY_HEAD_BYTES: usize = DiscoveryHead::BYTES;

/// The length of an entry in bytes.
pub const DISCOVERY_ENTRY_BYTES: usize = DiscoveryEntry::BYTES;

layout! {
    /// The head of the log.
    pub struct DiscoveryHead[1024] {
        /// GENCTR: changes whenever an entry changes. A reader whose parts differ in it begins
        /// again.
        generation: u64 = 0,
        /// NUMREC: the number of entries.
        entries: u64 = 8,
        /// RECFMT: the format of entries, 0.
        format: u16 = 16,
    }
}

numbers! {
    /// TRTYPE: a transport.
    pub struct TransportType(u8) {
        /// RDMA.
        RDMA = 1,
        /// Fibre Channel.
        FIBRE_CHANNEL = 2,
        /// TCP.
        TCP = 3,
        /// Within a host.
        LOOP = 254,
    }
}

numbers! {
    /// ADRFAM: an address family.
    pub struct AddressFamily(u8) {
        /// IPv4.
        IPV4 = 1,
        /// IPv6.
        IPV6 = 2,
        /// InfiniBand.
        INFINIBAND = 3,
    }
}

numbers! {
    /// SUBTYPE: what an entry leads to.
    pub struct SubsystemType(u8) {
        /// Another discovery service.
        REFERRAL = 1,
        /// A subsystem with namespaces.
        NVM = 2,
        /// This discovery service.
        CURRENT_DISCOVERY = 3,
    }
}

flags! {
    /// TREQ: what a transport demands.
    pub struct TransportRequirements(u8) {
        /// A secure channel.
        SECURE_CHANNEL = 1,
        /// No secure channel.
        NO_SECURE_CHANNEL = 2,
        /// Queues without flow control are possible.
        DISABLE_SQ_FLOW = 1 << 2,
    }
}

flags! {
    /// EFLAGS: flags of an entry.
    pub struct EntryFlags(u16) {
        /// DUPRETINFO: other entries return the same information.
        DUPLICATE = 1 << 0,
        /// EPCSD: connections to this discovery service may be persistent.
        PERSISTENT = 1 << 1,
    }
}

layout! {
    /// Where and how a subsystem is reached.
    pub struct DiscoveryEntry[1024] {
        /// TRTYPE.
        transport: TransportType = 0,
        /// ADRFAM.
        family: AddressFamily = 1,
        /// SUBTYPE.
        subsystem_type: SubsystemType = 2,
        /// TREQ.
        requirements: TransportRequirements = 3,
        /// PORTID: the port of the subsystem.
        port: u16 = 4,
        /// CNTLID: FFFFh in the dynamic controller model.
        cntlid: u16 = 6,
        /// ASQSZ: the largest admin queue, at least 32.
        admin_queue_size: u16 = 8,
        /// EFLAGS.
        flags: EntryFlags = 10,
        /// TRSVCID: the port number as text, filled with blanks.
        service: [u8; 32] = 32,
        /// SUBNQN.
        subnqn: [u8; NQN_FIELD_BYTES] = 256,
        /// TRADDR: the address as text, filled with blanks.
        address: [u8; 256] = 512,
        /// TSAS: [`RdmaSubtype`], or for TCP the security in its first byte.
        subtype: [u8; 256] = 768,
    }
}

layout! {
    /// TSAS of an RDMA port.
    pub struct RdmaSubtype[256] {
        /// The type of queue pairs; 1 for reliable connected.
        qp_type: u8 = 0,
        /// The provider; 1 for none specified, 2 InfiniBand, 4 RoCE version 2, 5 iWARP.
        provider: u8 = 1,
        /// The connection manager; 1 for RDMA_CM.
        connection_manager: u8 = 2,
    }
}

impl RdmaSubtype {
    /// RoCE version 2 with the usual connection manager.
    pub const ROCE_2: Self = Self { qp_type: 1, provider: 4, connection_manager: 1 };
}

impl DiscoveryEntry {
    /// Sets address and port number as the texts that hosts connect to.
    pub fn set_address(&mut self, address: &str, service: &str) {
        self.address = text(address, b' ');
        self.service = text(service, b' ');
    }

    /// The address, without what fills its field.
    #[must_use]
    pub fn address(&self) -> &[u8] {
        trimmed(&self.address)
    }

    /// The port number, without what fills its field.
    #[must_use]
    pub fn service(&self) -> &[u8] {
        trimmed(&self.service)
    }

    /// The name of the subsystem.
    ///
    /// # Errors
    /// The rule that it breaks.
    pub fn subsystem(&self) -> Result<Nqn, NqnError> {
        Nqn::decode(&self.subnqn)
    }
}

/// Some fill with blanks and some with NULs.
fn trimmed(field: &[u8]) -> &[u8] {
    let end = field.iter().rposition(|byte| !matches!(byte, 0 | b' ')).map_or(0, |last| last + 1);
    field.get(..end).unwrap_or_default()
}

/// A whole discovery log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DiscoveryLog {
    /// GENCTR.
    pub generation: u64,
    /// The entries.
    pub entries: Vec<DiscoveryEntry>,
}

impl DiscoveryLog {
    /// The log.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let head =
            DiscoveryHead { generation: self.generation, entries: self.entries.len() as u64, format: 0 };
        let mut bytes = Vec::with_capacity(DISCOVERY_HEAD_BYTES + self.entries.len() * DISCOVERY_ENTRY_BYTES);
        bytes.extend_from_slice(&head.encode());
        for entry in &self.entries {
            bytes.extend_from_slice(&entry.encode());
        }
        bytes
    }

    /// Reads a whole log. Its reader compares the generation with that of a head read afterwards.
    ///
    /// # Errors
    /// [`Short`] if the log ends before its last entry.
    pub fn decode(bytes: &[u8]) -> Result<Self, Short> {
        let head = DiscoveryHead::decode(bytes)?;
        let mut rest = bytes.get(DISCOVERY_HEAD_BYTES..).unwrap_or_default();
        let mut entries = Vec::new();
        for _ in 0..head.entries {
            entries.push(DiscoveryEntry::decode(rest)?);
            rest = rest.get(DISCOVERY_ENTRY_BYTES..).unwrap_or_default();
        }
        Ok(Self { generation: head.generation, entries })
    }

    /// The command that reads this part.
    #[must_use]
    pub const fn read(offset: u64, bytes: u64) -> GetLogPage {
        let log = LogId::DISCOVERY;
        GetLogPage { log, parameter: 0, retain_event: false, bytes, offset, nsid: 0 }
    }
}
