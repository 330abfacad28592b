//! Different volumes for different hosts.

use crate::peer::{
    BLOCK, HOST, Host, blocks, config, export, host_config, memory_volume, nqn, wait_until_empty,
};
use nvme::host::{CommandData, Failure, HostConfig};
use nvme::io::IoFlags;
use nvme::pdu::Digests;
use nvme::{HostId, IoOpcode, Status};
use target::{Access, Config, Export, Hosts, Target};

const OTHER: &str = "nqn.2026-11.test:other";

fn only(hosts: &[&str]) -> Access {
    Access::Only(hosts.iter().map(|host| nqn(host)).collect())
}

/// Namespace 1 is for the host, 2 for the other one, 3 for both.
fn start() -> Target {
    let hosts = [only(&[HOST]), only(&[OTHER]), only(&[HOST, OTHER])];
    let exports: Vec<Export> = (1..)
        .zip(hosts)
        .map(|(nsid, hosts)| Export { hosts, ..export(nsid, memory_volume(nsid as u8)) })
        .collect();
    let config = Config { hosts: only(&[HOST, OTHER]), ..config() };
    Target::start(&config, &exports).unwrap()
}

fn of_other() -> HostConfig {
    HostConfig { host: nqn(OTHER), host_id: HostId([8; 16]), ..host_config(1) }
}

fn read(host: &mut Host, nsid: u32) -> Status {
    let sqe = blocks(IoOpcode::READ, nsid, 0, 1, IoFlags::NONE);
    host.io[0].command(&sqe, CommandData::Receive(BLOCK as u32)).0.status
}

fn write(host: &mut Host, nsid: u32) -> Status {
    let sqe = blocks(IoOpcode::WRITE, nsid, 0, 1, IoFlags::NONE);
    host.io[0].command(&sqe, CommandData::Send(vec![9; BLOCK])).0.status
}

#[test]
fn a_namespace_that_a_host_may_not_see_is_not_there_for_it() {
    let target = start();
    let mut one = Host::connect(&target, 1);
    let mut other = Host::connect_with(&target, of_other(), Digests::default()).unwrap();
    assert_eq!((&one.namespaces[..], &other.namespaces[..]), (&[1, 3][..], &[2, 3][..]));
    for (host, hidden) in [(&mut one, 2), (&mut other, 1)] {
        let missing = read(host, 77);
        assert_eq!(missing, Status::INVALID_NAMESPACE.no_retry());
        assert_eq!((read(host, hidden), write(host, hidden)), (missing, missing));
        assert!(write(host, 3).is_success());
    }
    drop((one, other));
    wait_until_empty(&target);
}

#[test]
fn a_host_learns_when_it_sees_other_namespaces_and_ends_when_it_is_not_allowed() {
    let target = start();
    let mut one = Host::connect(&target, 1);
    let mut other = Host::connect_with(&target, of_other(), Digests::default()).unwrap();
    let hosts = Hosts {
        access: only(&[HOST]),
        ids: [(nqn(OTHER), HostId([9; 16]))].into(),
        secrets: [].into(),
        volumes: vec![(2, only(&[HOST])), (1, only(&[]))],
    };
    target.set_hosts(&hosts);
    // It is told, and lists them anew.
    one.wait_for_namespaces(&target).unwrap();
    assert_eq!(one.namespaces, [2, 3]);
    assert_eq!(
        (read(&mut one, 1), read(&mut one, 2)),
        (Status::INVALID_NAMESPACE.no_retry(), Status::SUCCESS)
    );
    other.io[0].wait_for_end();
    other.admin.wait_for_end();
    let refused = Host::connect_with(&target, of_other(), Digests::default());
    assert!(matches!(refused, Err(Failure::Command(_, status)) if status.is(Status::CONNECT_INVALID_HOST)));
}

/// Reservations belong to a host identifier.
#[test]
fn two_hosts_do_not_have_one_identifier() {
    let target = start();
    let one = Host::connect(&target, 1);
    let same = HostConfig { host_id: HostId([7; 16]), ..of_other() };
    assert!(Host::connect_with(&target, same.clone(), Digests::default()).is_err());
    drop(one);
    wait_until_empty(&target);
    Host::connect_with(&target, same, Digests::default()).unwrap();
}
