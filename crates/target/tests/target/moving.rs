//! Volumes whose backing comes and goes while the target runs: a node whose partner is a process.

use crate::peer::{
    BLOCK, Host, PATIENCE, blocks, config, host_config, memory_volume, random_bytes, wait_until_empty,
};
use nvme::host::CommandData;
use nvme::io::IoFlags;
use nvme::log_page::AnaState;
use nvme::pdu::Digests;
use nvme::{IoOpcode, Status};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use target::pair::Record;
use target::{Access, Config, Error, Facts, Listen, Namespace, Node, Reach, Target, Transport, Volume};
use tempfile::TempDir;
use testkit::Deadline;
use volumes::BlockSize;

fn of_node(node: Node) -> Config {
    Config {
        listen: vec![Listen { address: "127.0.0.1:0".parse().unwrap(), transport: Transport::Tcp, node }],
        ..config()
    }
}

fn namespace(nsid: u32, volume: &Volume) -> Namespace {
    Namespace { nsid, facts: Facts::of(volume), hosts: Access::Any, owner: Node::A }
}

/// The target, and the directory of its pair.
fn start(node: Node, volume: &Volume) -> (Target, TempDir) {
    let directory = TempDir::new().unwrap();
    let target = Target::start_node(&of_node(node), &[namespace(1, volume)], directory.path()).unwrap();
    (target, directory)
}

fn record(owner: Node) -> Record {
    Record { owner, epoch: 1 }
}

fn take(target: &Target, volume: &Volume) {
    target.set_backing(1, volume).unwrap();
    target.set_reach(1, record(Node::A), Reach::Serving);
}

fn wait_for(host: &mut Host, target: &Target, state: AnaState) {
    while host.ana.get(&1) != Some(&state) {
        host.wait_for_ana(target).unwrap();
    }
}

fn read_status(host: &mut Host) -> Status {
    let sqe = blocks(IoOpcode::READ, 1, 0, 1, IoFlags::NONE);
    host.io[0].command(&sqe, CommandData::Receive(BLOCK as u32)).0.status
}

#[test]
fn a_volume_without_its_backing_is_known_and_served_once_that_is_there() {
    let volume = memory_volume(1);
    let (target, _directory) = start(Node::A, &volume);
    let mut host = Host::connect(&target, 1);
    assert_eq!(host.namespaces, [1]);
    wait_for(&mut host, &target, AnaState::CHANGE);
    assert_eq!(read_status(&mut host), Status::ANA_TRANSITION);
    assert_eq!(host.io[0].write(1, 0, &vec![1; 16 * BLOCK]), Status::ANA_TRANSITION);
    let data = random_bytes(3, 64 * BLOCK);
    for (round, other) in [Reach::Moving, Reach::Serving, Reach::Unreachable].into_iter().enumerate() {
        take(&target, &volume);
        wait_for(&mut host, &target, AnaState::OPTIMIZED);
        if round > 0 {
            assert!(host.io[0].read(1, 9, 64) == data);
        }
        assert_eq!(host.io[0].write(1, 9, &data), Status::SUCCESS);
        target.remove_backing(1);
        assert_eq!(read_status(&mut host), Status::ANA_TRANSITION, "at once");
        target.set_reach(1, record(Node::B), other);
        let state = match other {
            Reach::Moving => AnaState::CHANGE,
            Reach::Serving => AnaState::NON_OPTIMIZED,
            _ => AnaState::INACCESSIBLE,
        };
        wait_for(&mut host, &target, state);
        // Of a node that serves and cannot be connected to, nothing is known.
        assert_eq!(read_status(&mut host), state.refusal().unwrap_or(Status::ANA_TRANSITION));
    }
    drop(host);
    wait_until_empty(&target);
}

/// What the drive executes is finished before the backing is gone; all else is not begun.
#[test]
fn a_backing_goes_when_what_was_begun_has_ended_and_nothing_else_is_begun() {
    let (volume, faults) = volumes::testing::faulty_volume(1024, BlockSize::B4096, false);
    let (target, _directory) = start(Node::A, &volume);
    let target = Arc::new(target);
    take(&target, &volume);
    let mut hosts: Vec<Host> = (0..2).map(|_| Host::connect(&target, 1)).collect();
    let sqe = |start| blocks(IoOpcode::WRITE, 1, start, 1, IoFlags::NONE);
    faults.hold_writes();
    let begun = hosts[0].io[0].submit(&sqe(0), CommandData::Send(vec![1; BLOCK]));
    Deadline::wait_until("the first", PATIENCE, || (faults.held() == 1).then_some(()));
    // It waits for the blocks of the first.
    let waits = hosts[1].io[0].submit(&sqe(0), CommandData::Send(vec![2; BLOCK]));
    Deadline::wait_until("the second", PATIENCE, || (volume.commands() == 2).then_some(()));
    // A host that does not send what it is asked for.
    let large = blocks(IoOpcode::WRITE, 1, 8, 16, IoFlags::NONE);
    let asked = hosts[1].io[0].submit(&large, CommandData::Send(vec![3; 16 * BLOCK]));
    hosts[1].io[0].receive_only().unwrap();
    // And one whose connection ends.
    let lost = Host::connect(&target, 1);
    let is_gone = Arc::new(AtomicBool::new(false));
    let giving = {
        let (target, is_gone) = (Arc::clone(&target), Arc::clone(&is_gone));
        std::thread::spawn(move || {
            target.remove_backing(1);
            is_gone.store(true, Ordering::SeqCst);
        })
    };
    assert_eq!(hosts[1].io[0].wait(waits).0.status, Status::ANA_TRANSITION);
    assert_eq!(read_status(&mut hosts[0]), Status::ANA_TRANSITION);
    drop(lost);
    assert!(!is_gone.load(Ordering::SeqCst), "the drive still writes");
    faults.release_writes();
    assert_eq!(hosts[0].io[0].wait(begun).0.status, Status::SUCCESS);
    giving.join().unwrap();
    hosts[1].io[0].send_asked(asked, usize::MAX);
    assert_eq!(hosts[1].io[0].wait(asked).0.status, Status::ANA_TRANSITION, "also after it is gone");
    assert_eq!(volume.commands(), 0);
    assert_eq!(faults.executed().len(), 1);
    wait_for(&mut hosts[1], &target, AnaState::CHANGE);
    take(&target, &volume);
    wait_for(&mut hosts[1], &target, AnaState::OPTIMIZED);
    assert!(hosts[1].io[0].read(1, 0, 1) == vec![1; BLOCK]);
    assert_eq!(hosts[1].io[0].write(1, 0, &vec![4; BLOCK]), Status::SUCCESS);
}

/// A connection that ends while its write is with the drive is waited for as well.
#[test]
fn a_backing_waits_for_the_write_of_a_connection_that_has_ended() {
    let (volume, faults) = volumes::testing::faulty_volume(1024, BlockSize::B4096, false);
    let (target, _directory) = start(Node::A, &volume);
    let target = Arc::new(target);
    take(&target, &volume);
    let mut host = Host::connect(&target, 1);
    faults.hold_writes();
    let sqe = blocks(IoOpcode::WRITE, 1, 0, 1, IoFlags::NONE);
    host.io[0].submit(&sqe, CommandData::Send(vec![1; BLOCK]));
    Deadline::wait_until("the write", PATIENCE, || (faults.held() == 1).then_some(()));
    drop(host);
    Deadline::wait_until("its end", PATIENCE, || (target.usage().connections == 1).then_some(()));
    let giving = {
        let target = Arc::clone(&target);
        std::thread::spawn(move || target.remove_backing(1))
    };
    let mut other = Host::connect(&target, 1);
    wait_for(&mut other, &target, AnaState::CHANGE);
    assert!(!giving.is_finished(), "the drive still writes");
    faults.release_writes();
    giving.join().unwrap();
    assert_eq!(volume.commands(), 0);
    drop(other);
    wait_until_empty(&target);
}

#[test]
fn a_backing_that_is_not_what_hosts_were_told_is_refused() {
    let (target, _directory) = start(Node::A, &memory_volume(1));
    let small = drives::Drive::memory(1 << 20, 1 << 20);
    let identity = memory_volume(1).identity();
    let small = Volume::new("v", identity, &small, Some(BlockSize::B4096)).unwrap();
    let (cached, _) = volumes::testing::faulty_volume(1 << 20, BlockSize::B4096, true);
    for other in [memory_volume(2), small, cached] {
        assert!(matches!(target.set_backing(1, &other), Err(Error::Facts { .. })), "{other:?}");
    }
    let both = Config {
        listen: [Node::A, Node::B]
            .map(|node| Listen { address: "127.0.0.1:0".parse().unwrap(), transport: Transport::Tcp, node })
            .to_vec(),
        ..config()
    };
    let directory = TempDir::new().unwrap();
    let refused = Target::start_node(&both, &[namespace(1, &memory_volume(1))], directory.path());
    assert!(matches!(refused, Err(Error::Split)));
}

/// The other node's identifiers and ports are its own.
#[test]
fn the_second_node_alone_serves_what_it_has_taken_from_the_first() {
    let volume = memory_volume(1);
    let (target, _directory) = start(Node::B, &volume);
    let mut host = Host::connect_to(target.addresses()[0], host_config(1), Digests::default()).unwrap();
    assert_eq!(host.limits.cntlid, 0x8000);
    target.set_backing(1, &volume).unwrap();
    target.set_reach(1, record(Node::B), Reach::Serving);
    wait_for(&mut host, &target, AnaState::OPTIMIZED);
    assert_eq!(host.io[0].write(1, 0, &vec![1; BLOCK]), Status::SUCCESS);
}
