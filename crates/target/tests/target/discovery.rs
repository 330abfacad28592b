//! The discovery service, on the same ports.

use crate::peer::{HOST, Host, SUBSYSTEM, config, host_config, nqn, start_with, wait_until_empty};
use nvme::Sgl;
use nvme::host::{CommandData, DiscoveryReader, HostConfig, Reading, Role};
use nvme::log_page::{AddressFamily, DiscoveryLog, SubsystemType, TransportType};
use nvme::pdu::Digests;
use std::time::Duration;
use target::{Access, Nqn, Target};

fn discover(target: &Target, host: &str) -> DiscoveryLog {
    let config = HostConfig {
        host: nqn(host),
        subsystem: Nqn::discovery(),
        role: Role::Discovery,
        keep_alive: Duration::ZERO,
        ..host_config(0)
    };
    let mut host = Host::connect_with(target, config, Digests::default()).unwrap();
    let (mut reader, mut part) = DiscoveryReader::new();
    loop {
        let sqe = part.command(0, Sgl::Transport { length: 0 });
        let (cqe, data) = host.admin.command(&sqe, CommandData::Receive(part.bytes as u32));
        assert!(cqe.status.is_success());
        match reader.handle_part(&data).unwrap() {
            Reading::Read(next) => part = next,
            Reading::Complete(log) => return log,
        }
    }
}

#[test]
fn a_host_finds_every_address_of_the_subsystem() {
    let mut config = config();
    config.listen.push("[::1]:0".parse().unwrap());
    config.listen.push("127.0.0.1:0".parse().unwrap());
    let target = start_with(&config);
    let log = discover(&target, HOST);
    assert_eq!(log.entries.len(), 3);
    for ((entry, address), port) in log.entries.iter().zip(target.addresses()).zip(1..) {
        assert_eq!(entry.address(), address.ip().to_string().as_bytes());
        assert_eq!(entry.service(), address.port().to_string().as_bytes());
        assert_eq!(entry.subsystem().unwrap().as_str(), SUBSYSTEM);
        assert_eq!((entry.transport, entry.subsystem_type), (TransportType::TCP, SubsystemType::NVM));
        let family = if address.is_ipv4() { AddressFamily::IPV4 } else { AddressFamily::IPV6 };
        assert_eq!((entry.family, entry.port), (family, port));
    }
    wait_until_empty(&target);
}

#[test]
fn a_host_that_may_not_connect_finds_nothing() {
    let mut config = config();
    config.hosts = Access::Only([nqn(HOST)].into());
    let target = start_with(&config);
    assert_eq!(discover(&target, HOST).entries.len(), 1);
    assert_eq!(discover(&target, "nqn.2026-11.test:other").entries.len(), 0);
}
