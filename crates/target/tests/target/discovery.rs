//! The discovery service, on the same ports.

use crate::peer::{HOST, Host, SUBSYSTEM, config, host_config, nqn, start_with, wait_until_empty};
use nvme::feature::Event;
use nvme::host::{CommandData, DiscoveryReader, HostConfig, Reading, Role};
use nvme::log_page::{AddressFamily, DiscoveryLog, SubsystemType, TransportType};
use nvme::pdu::Digests;
use nvme::{AdminOpcode, HostId, Sgl, Sqe, Status};
use std::time::Duration;
use target::{Access, Hosts, Listen, Node, Nqn, Target, Transport};

fn connect(target: &Target, host: &str, keep_alive: Duration) -> Host {
    let mut id = [b'.'; 16];
    id.iter_mut().zip(host.bytes().rev()).for_each(|(place, byte)| *place = byte);
    let (host, host_id) = (nqn(host), HostId(id));
    let (subsystem, role) = (Nqn::discovery(), Role::Discovery);
    let config = HostConfig { host, host_id, subsystem, role, keep_alive, ..host_config(0) };
    Host::connect_with(target, config, Digests::default()).unwrap()
}

fn discover(target: &Target, host: &str) -> DiscoveryLog {
    read(&mut connect(target, host, Duration::ZERO))
}

fn read(host: &mut Host) -> DiscoveryLog {
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
    config.listen.push(Listen {
        address: "[::1]:0".parse().unwrap(),
        transport: Transport::Tcp,
        node: Node::A,
    });
    config.listen.push(Listen {
        address: "127.0.0.1:0".parse().unwrap(),
        transport: Transport::Tcp,
        node: Node::B,
    });
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

/// A host that stays connected, as nvme-stas and `nvme discover --persistent` do. Its wish for
/// events is sent when it connects, and is fulfilled before the log that is read here.
fn stays(target: &Target, host: &str) -> (Host, DiscoveryLog) {
    let mut host = connect(target, host, Duration::from_secs(120));
    let log = read(&mut host);
    (host, log)
}

fn wait_for_event(host: &mut Host) -> u16 {
    let sqe = Sqe::new(AdminOpcode::ASYNC_EVENT_REQUEST.0, 0, 0);
    host.admin.submit(&sqe, CommandData::None)
}

fn is_told(host: &mut Host, cid: u16) {
    let (cqe, _) = host.admin.wait(cid);
    assert_eq!((cqe.status, Event::of(cqe.result)), (Status::SUCCESS, Event::DISCOVERY_CHANGED));
}

#[test]
fn hosts_that_stay_connected_are_told_when_what_they_find_changes() {
    const OTHER: &str = "nqn.2026-11.test:other";
    let only = |hosts: &[&str]| Access::Only(hosts.iter().map(|host| nqn(host)).collect());
    let mut config = config();
    config.hosts = only(&[HOST]);
    let target = start_with(&config);
    let allow = |hosts: &[&str]| {
        let hosts = Hosts { access: only(hosts), ids: [].into(), secrets: [].into(), volumes: Vec::new() };
        target.set_hosts(&hosts);
    };
    let ((mut one, first), (mut other, empty)) = (stays(&target, HOST), stays(&target, OTHER));
    assert_eq!((first.entries.len(), empty.entries.len()), (1, 0));
    let (of_one, of_other) = (wait_for_event(&mut one), wait_for_event(&mut other));
    allow(&[HOST, OTHER]);
    is_told(&mut other, of_other);
    let found = read(&mut other);
    assert_eq!(found.entries, first.entries);
    assert!(found.generation > empty.generation);
    // For the first host nothing has changed. What it asks for is answered, the event is not.
    assert_eq!(read(&mut one), first);
    assert!(!one.admin.is_done(of_one));
    // It may not connect any more, and learns that too.
    allow(&[OTHER]);
    is_told(&mut one, of_one);
    let lost = read(&mut one);
    assert!(lost.entries.is_empty() && lost.generation > first.generation);
    // A change before the log of the last one was read is not told again; one after it is.
    let of_one = wait_for_event(&mut one);
    allow(&[HOST, OTHER]);
    is_told(&mut one, of_one);
    let of_one = wait_for_event(&mut one);
    allow(&[OTHER]);
    assert!(read(&mut one).entries.is_empty());
    assert!(!one.admin.is_done(of_one));
    allow(&[HOST]);
    is_told(&mut one, of_one);
    assert_eq!(read(&mut one).entries, first.entries);
    drop((one, other));
    wait_until_empty(&target);
}
