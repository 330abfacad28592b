//! Two nodes in one process.

use crate::peer::{
    BLOCK, Host, PATIENCE, blocks, config, export, host_config, memory_volume, random_bytes, wait_until_empty,
};
use nvme::host::{CommandData, HostConfig};
use nvme::io::IoFlags;
use nvme::log_page::AnaState;
use nvme::pdu::Digests;
use nvme::{HostId, IoOpcode, Status};
use std::time::Duration;
use target::{Config, Error, Export, Listen, Node, Target, Transport, Volume};
use testkit::Deadline;

const BEST: AnaState = AnaState::OPTIMIZED;
const OTHER: AnaState = AnaState::NON_OPTIMIZED;

pub fn of_nodes(nodes: &[Node]) -> Config {
    let listen = |node: &Node| Listen {
        address: "127.0.0.1:0".parse().unwrap(),
        transport: Transport::Tcp,
        node: *node,
    };
    Config { listen: nodes.iter().map(listen).collect(), ..config() }
}

pub fn owned(nsid: u32, volume: Volume, owner: Node) -> Export {
    Export { owner, ..export(nsid, volume) }
}

/// Volume 1 is owned by A, volume 2 by B; each has an address.
fn pair() -> Target {
    let exports = [owned(1, memory_volume(1), Node::A), owned(2, memory_volume(2), Node::B)];
    Target::start(&of_nodes(&[Node::A, Node::B]), &exports).unwrap()
}

/// The same host at both nodes.
fn hosts(target: &Target) -> [Host; 2] {
    [0, 1].map(|at| Host::connect_to(target.addresses()[at], host_config(1), Digests::default()).unwrap())
}

#[test]
fn each_node_is_the_best_way_to_what_it_owns_and_a_way_to_the_rest() {
    let target = pair();
    let [mut a, mut b] = hosts(&target);
    assert!(a.limits.cntlid < 0x8000 && b.limits.cntlid >= 0x8000);
    assert_eq!((&a.namespaces, &b.namespaces), (&vec![1, 2], &vec![1, 2]));
    for (host, states) in [(&mut a, [BEST, OTHER]), (&mut b, [OTHER, BEST])] {
        host.wait_for_ana(&target).unwrap();
        assert_eq!(host.ana, [(1, states[0]), (2, states[1])].into());
    }
    for nsid in [1, 2] {
        let data = random_bytes(nsid.into(), 64 * BLOCK);
        assert_eq!(a.io[0].write(nsid, 5, &data), Status::SUCCESS);
        assert!(b.io[0].read(nsid, 5, 64) == data);
    }
    drop((a, b));
    wait_until_empty(&target);
}

#[test]
fn hosts_learn_who_owns_a_volume_and_commands_go_on_meanwhile() {
    let target = pair();
    let [mut a, mut b] = hosts(&target);
    for host in [&mut a, &mut b] {
        host.wait_for_ana(&target).unwrap();
    }
    for (owner, states) in [(Node::B, [OTHER, BEST]), (Node::A, [BEST, OTHER])] {
        assert!(target.set_owner(1, owner).unwrap());
        for (host, state) in [&mut a, &mut b].into_iter().zip(states) {
            assert_eq!(host.io[0].write(1, 0, &vec![7; BLOCK]), Status::SUCCESS);
            host.wait_for_ana(&target).unwrap();
            assert_eq!(host.ana[&1], state);
        }
    }
    assert!(!target.set_owner(1, Node::A).unwrap(), "it has it");
    assert!(!target.set_owner(9, Node::A).unwrap(), "there is no such volume");
}

/// What one node has begun is over before the other node writes the same blocks.
#[test]
fn a_write_that_is_repeated_at_the_other_node_is_not_overwritten_by_its_late_original() {
    let (volume, faults) = volumes::testing::faulty_volume(1024, volumes::BlockSize::B4096, false);
    let exports = [owned(1, volume.clone(), Node::A)];
    let target = Target::start(&of_nodes(&[Node::A, Node::B]), &exports).unwrap();
    let [mut a, mut b] = hosts(&target);
    faults.hold_writes();
    let sqe = blocks(IoOpcode::WRITE, 1, 0, 1, IoFlags::NONE);
    a.io[0].submit(&sqe, CommandData::Send(vec![1; BLOCK]));
    Deadline::wait_until("the original", PATIENCE, || (volume.commands() == 1).then_some(()));
    // Its path breaks while the drive has it; the host writes again, and then newer data.
    drop(a);
    let again = b.io[0].submit(&sqe, CommandData::Send(vec![1; BLOCK]));
    let newer = b.io[0].submit(&sqe, CommandData::Send(vec![2; BLOCK]));
    Deadline::wait_until("the others", PATIENCE, || (volume.commands() == 3).then_some(()));
    assert_eq!(target.usage().controllers, 2, "the drive may still write for the first");
    faults.release_writes();
    assert_eq!(b.io[0].wait(again).0.status, Status::SUCCESS);
    assert_eq!(b.io[0].wait(newer).0.status, Status::SUCCESS);
    assert!(b.io[0].read(1, 0, 1) == vec![2; BLOCK]);
    Deadline::wait_until("the end of the first", PATIENCE, || {
        (target.usage().controllers == 1).then_some(())
    });
    assert!(b.io[0].read(1, 0, 1) == vec![2; BLOCK]);
}

/// A host that was silent may have sent its write again at the other node: its controller is gone
/// only when the drive has finished, and its identifier is not given again before.
#[test]
fn an_expired_keep_alive_waits_for_the_drive_before_the_identifier_is_free() {
    let (volume, faults) = volumes::testing::faulty_volume(1024, volumes::BlockSize::B4096, false);
    let exports = [owned(1, volume.clone(), Node::A)];
    let target = Target::start(&of_nodes(&[Node::A, Node::B]), &exports).unwrap();
    let [at_a, at_b] = [0, 1].map(|at| target.addresses()[at]);
    let silent = HostConfig { keep_alive: Duration::from_secs(1), ..host_config(1) };
    let mut silent = Host::connect_to(at_a, silent, Digests::default()).unwrap();
    let mut other = Host::connect_to(at_b, host_config(1), Digests::default()).unwrap();
    faults.hold_writes();
    let sqe = blocks(IoOpcode::WRITE, 1, 0, 1, IoFlags::NONE);
    silent.io[0].submit(&sqe, CommandData::Send(vec![1; BLOCK]));
    Deadline::wait_until("the original", PATIENCE, || (volume.commands() == 1).then_some(()));
    silent.io[0].wait_for_end();
    silent.admin.wait_for_end();
    assert_eq!(target.usage().controllers, 2, "the drive still writes for it");
    let next = Host::connect_to(at_a, host_config(1), Digests::default()).unwrap();
    assert_ne!(next.limits.cntlid, silent.limits.cntlid);
    let again = other.io[0].submit(&sqe, CommandData::Send(vec![2; BLOCK]));
    Deadline::wait_until("the retry", PATIENCE, || (volume.commands() == 2).then_some(()));
    faults.release_writes();
    assert_eq!(other.io[0].wait(again).0.status, Status::SUCCESS);
    Deadline::wait_until("its end", PATIENCE, || (target.usage().controllers == 2).then_some(()));
    assert!(other.io[0].read(1, 0, 1) == vec![2; BLOCK]);
}

#[test]
fn a_host_identifier_stands_for_one_host_at_both_nodes() {
    let target = pair();
    let [at_a, at_b] = [0, 1].map(|at| target.addresses()[at]);
    let _one = Host::connect_to(at_a, host_config(1), Digests::default()).unwrap();
    let same = |id| {
        let host = crate::peer::nqn("nqn.2026-11.test:other");
        HostConfig { host, host_id: HostId(id), ..host_config(1) }
    };
    assert!(Host::connect_to(at_b, same([7; 16]), Digests::default()).is_err());
    assert!(Host::connect_to(at_b, same([8; 16]), Digests::default()).is_ok());
}

#[test]
fn a_volume_whose_owner_has_no_address_is_refused() {
    let volume = || [owned(1, memory_volume(1), Node::B)];
    let refused = Target::start(&of_nodes(&[Node::A]), &volume()).unwrap_err();
    assert!(matches!(refused, Error::Owner { node: Node::B, .. }), "{refused}");
    let refused = Target::start(&of_nodes(&[Node::A, Node(2)]), &volume()).unwrap_err();
    assert!(refused.to_string().contains("no node C"), "{refused}");
    // The second one alone is no pair, and has its own identifiers all the same.
    let target = Target::start(&of_nodes(&[Node::B]), &volume()).unwrap();
    let mut host = Host::connect(&target, 1);
    host.wait_for_ana(&target).unwrap();
    assert_eq!((host.limits.cntlid, host.ana[&1]), (0x8000, BEST));
    assert!(target.set_owner(1, Node::A).is_err());
}
