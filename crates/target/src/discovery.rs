//! The records of the discovery log: one for each address.

use crate::config::Listen;
use nvme::controller::{Access, Record};
use nvme::fabrics::CNTLID_DYNAMIC;
use nvme::log_page::{
    AddressFamily, DiscoveryEntry, EntryFlags, RdmaSubtype, SubsystemType, TransportRequirements,
    TransportType,
};
use nvme::{Nqn, Transport};

/// The admin queue that the log promises. NVMe over Fabrics, "Discovery Log Page Entry"
const ADMIN_ENTRIES: u16 = 32;

/// Where a subsystem is reached, as these hosts are told.
pub(crate) fn records(subsystem: &Nqn, ports: &[Listen], hosts: &Access) -> Vec<Record> {
    let record = |(at, Listen { address, transport, .. }): (usize, &Listen)| {
        let (transport, subtype) = match transport {
            Transport::Tcp => (TransportType::TCP, [0; 256]),
            Transport::Rdma => (TransportType::RDMA, RdmaSubtype::ROCE_2.encode()),
        };
        let mut entry = DiscoveryEntry {
            transport,
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
            subtype,
        };
        entry.set_address(&address.ip().to_string(), &address.port().to_string());
        Record { entry, hosts: hosts.clone() }
    };
    ports.iter().enumerate().map(record).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nvme::controller::Node;

    #[test]
    fn each_port_is_told_with_its_transport() {
        let port =
            |address: &str, transport| Listen { address: address.parse().unwrap(), transport, node: Node::A };
        let ports = [port("10.0.0.1:4420", Transport::Rdma), port("[fd00::1]:4421", Transport::Tcp)];
        let told = records(&Nqn::new("nqn.2026-11.test:s").unwrap(), &ports, &Access::Any);
        let [over_rdma, over_tcp] = [told[0].entry, told[1].entry];
        assert_eq!((over_rdma.transport, over_rdma.family), (TransportType::RDMA, AddressFamily::IPV4));
        assert_eq!((over_rdma.address(), over_rdma.service()), (&b"10.0.0.1"[..], &b"4420"[..]));
        assert_eq!(over_rdma.subtype[..3], [1, 4, 1], "reliable, RoCE 2, RDMA_CM");
        assert_eq!((over_tcp.transport, over_tcp.family), (TransportType::TCP, AddressFamily::IPV6));
        assert_eq!((over_tcp.subtype, over_tcp.port), ([0; 256], 2));
    }
}
