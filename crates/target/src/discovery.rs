//! The records of the discovery log: one for each address.

use nvme::Nqn;
use nvme::controller::{Access, Record};
use nvme::fabrics::CNTLID_DYNAMIC;
use nvme::log_page::{
    AddressFamily, DiscoveryEntry, EntryFlags, SubsystemType, TransportRequirements, TransportType,
};
use std::net::SocketAddr;

/// The admin queue that the log promises. NVMe over Fabrics, "Discovery Log Page Entry"
const ADMIN_ENTRIES: u16 = 32;

/// Where a subsystem is reached, as these hosts are told.
pub(crate) fn records(subsystem: &Nqn, addresses: &[SocketAddr], hosts: &Access) -> Vec<Record> {
    let record = |(at, address): (usize, &SocketAddr)| {
        let mut entry = DiscoveryEntry {
            transport: TransportType::TCP,
            family: if address.is_ipv4() { AddressFamily::IPV4 } else { AddressFamily::IPV6 },
            subsystem_type: SubsystemType::NVM,
            // Nothing about secure channels: nvme-cli takes "not required" for "use TLS", which most
            // kernels lack.
            requirements: TransportRequirements::DISABLE_SQ_FLOW,
            port: u16::try_from(at + 1).unwrap_or(u16::MAX),
            cntlid: CNTLID_DYNAMIC,
            admin_queue_size: ADMIN_ENTRIES,
            flags: EntryFlags::NONE,
            service: [0; 32],
            subnqn: subsystem.encode(),
            address: [0; 256],
            subtype: [0; 256],
        };
        entry.set_address(&address.ip().to_string(), &address.port().to_string());
        Record { entry, hosts: hosts.clone() }
    };
    addresses.iter().enumerate().map(record).collect()
}
