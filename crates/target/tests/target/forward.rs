//! Commands at the port of the node that does not own their volume: the owner executes them. Both
//! nodes are targets of their own, with a socket between them, as if each were a process.

use crate::peer::{
    BLOCK, Host, PATIENCE, Queue, blocks, config, host_config, memory_volume, nqn, random_bytes,
    wait_until_empty,
};
use crate::reservations::{Store, acquire, register, report, with};
use crate::unix_relay::UnixRelay;
use nvme::command::{FUSE_FIRST, FUSE_SECOND};
use nvme::host::CommandData;
use nvme::io::IoFlags;
use nvme::log_page::AnaState;
use nvme::pdu::Digests;
use nvme::reservation::{AcquireAction, Persistence, ReservationType};
use nvme::{HostId, IoOpcode, Sqe, Status};
use std::sync::Arc;
use std::thread;
use target::pair::Record;
use target::{Access, Config, Facts, Hosts, Listen, Namespace, Node, Reach, Target, Transport, Volume};
use tempfile::TempDir;
use testkit::Deadline;
use volumes::BlockSize;

/// Both nodes. A owns the volume, in epoch 1.
struct Nodes {
    a: Target,
    b: Target,
    volume: Volume,
    _directory: TempDir,
}

pub fn of_node(config: &Config, node: Node) -> Config {
    Config {
        listen: vec![Listen { address: "127.0.0.1:0".parse().unwrap(), transport: Transport::Tcp, node }],
        ..config.clone()
    }
}

impl Nodes {
    fn new(volume: &Volume) -> Self {
        Self::with(volume, config())
    }

    fn with(volume: &Volume, config: Config) -> Self {
        Self::with_relay(volume, config, false).0
    }

    /// Perhaps with a relay before the socket of A.
    fn with_relay(volume: &Volume, config: Config, relayed: bool) -> (Self, Option<UnixRelay>) {
        let directory = TempDir::new().unwrap();
        let namespace = Namespace { nsid: 1, facts: Facts::of(volume), hosts: Access::Any, owner: Node::A };
        let start = |node| {
            let namespaces = std::slice::from_ref(&namespace);
            Target::start_node(&of_node(&config, node), namespaces, directory.path()).unwrap()
        };
        let a = start(Node::A);
        let relay = relayed.then(|| UnixRelay::before(&directory.path().join("forward-A.sock")));
        let b = start(Node::B);
        a.set_backing(1, volume).unwrap();
        let nodes = Self { a, b, volume: volume.clone(), _directory: directory };
        nodes.reach(Node::A, 1, Reach::Serving);
        (nodes, relay)
    }

    /// Tells both nodes.
    fn reach(&self, owner: Node, epoch: u64, reach: Reach) {
        [&self.a, &self.b].iter().for_each(|node| node.set_reach(1, Record { owner, epoch }, reach));
    }

    /// A host that knows the port of B alone.
    fn connect(&self) -> Host {
        self.connect_as(7)
    }

    fn connect_as(&self, number: u8) -> Host {
        let host = nqn(&format!("nqn.2026-11.test:host-{number}"));
        let config = nvme::host::HostConfig { host, host_id: HostId([number; 16]), ..host_config(1) };
        Host::connect_to(self.b.addresses()[0], config, Digests::default()).unwrap()
    }
}

fn wait_for(host: &mut Host, target: &Target, state: AnaState) {
    while host.ana.get(&1) != Some(&state) {
        host.wait_for_ana(target).unwrap();
    }
}

fn status(queue: &mut Queue, opcode: IoOpcode, start: u64, data: CommandData, count: usize) -> Status {
    queue.command(&blocks(opcode, 1, start, count, IoFlags::NONE), data).0.status
}

pub fn half(part: u8, start: u64) -> Sqe {
    let opcode = if part == FUSE_FIRST { IoOpcode::COMPARE } else { IoOpcode::WRITE };
    let sqe = blocks(opcode, 1, start, 1, IoFlags::NONE);
    Sqe { flags: sqe.flags | part, ..sqe }
}

fn swap(queue: &mut Queue, start: u64, (expected, new): (u8, u8)) -> (Status, Status) {
    let first = queue.submit(&half(FUSE_FIRST, start), CommandData::Send(vec![expected; BLOCK]));
    let second = queue.submit(&half(FUSE_SECOND, start), CommandData::Send(vec![new; BLOCK]));
    (queue.wait(first).0.status, queue.wait(second).0.status)
}

#[test]
fn every_kind_of_command_is_executed_by_the_owner_and_ends_as_it_does_there() {
    let nodes = Nodes::new(&memory_volume(1));
    let mut host = nodes.connect();
    wait_for(&mut host, &nodes.b, AnaState::NON_OPTIMIZED);
    let mut direct = Host::connect(&nodes.a, 1);
    let (queue, direct) = (&mut host.io[0], &mut direct.io[0]);
    // In the capsule and asked for, up to the largest.
    for count in [1, 2, 3, 64, 256] {
        let data = random_bytes(count as u64, count * BLOCK);
        assert_eq!(queue.write(1, 5, &data), Status::SUCCESS);
        assert!(queue.read(1, 5, count) == data && direct.read(1, 5, count) == data, "{count}");
        let send = CommandData::Send(data.clone());
        assert_eq!(status(queue, IoOpcode::COMPARE, 5, send, count), Status::SUCCESS);
        let other = CommandData::Send(random_bytes(9, count * BLOCK));
        let differs = Status::COMPARE_FAILURE.no_retry();
        assert_eq!(status(queue, IoOpcode::COMPARE, 5, other, count), differs);
    }
    assert_eq!(status(queue, IoOpcode::FLUSH, 0, CommandData::None, 1), Status::SUCCESS);
    assert_eq!(status(queue, IoOpcode::WRITE_ZEROES, 6, CommandData::None, 2), Status::SUCCESS);
    assert!(direct.read(1, 6, 2) == vec![0; 2 * BLOCK] && direct.read(1, 8, 1) != vec![0; BLOCK]);
    assert_eq!(queue.trim(1, &[(20, 4), (30, 0), (40, 2)]), Status::SUCCESS);
    for (start, count) in [(20, 4), (40, 2)] {
        assert!(direct.read(1, start, count) == vec![0; count * BLOCK]);
    }
    assert!(direct.read(1, 24, 1) != vec![0; BLOCK]);
    assert_eq!(queue.trim(1, &[(30, 0)]), Status::SUCCESS);
    let done = (Status::SUCCESS, Status::SUCCESS);
    assert_eq!(swap(queue, 6, (0, 1)), done);
    assert_eq!(swap(queue, 6, (0, 2)), (Status::COMPARE_FAILURE.no_retry(), Status::FAILED_FUSED));
    assert!(direct.read(1, 6, 1) == vec![1; BLOCK]);
    drop((host.io, host.admin));
    assert!(nodes.volume.statistics().iter().count() > 0);
    Deadline::wait_until("nothing left", PATIENCE, || (nodes.b.usage().connections == 0).then_some(()));
}

/// Much more than the owner takes at a time, of several queues.
#[test]
fn what_the_owner_does_not_take_now_waits_and_nothing_is_mixed_up() {
    let nodes = Nodes::new(&memory_volume(1));
    thread::scope(|scope| {
        for number in 0..4_u8 {
            let nodes = &nodes;
            scope.spawn(move || {
                let mut host = nodes.connect_as(number + 1);
                let queue = &mut host.io[0];
                let start = |at: usize| number as u64 * 2048 + at as u64 * 256;
                for round in 0..3 {
                    let data = |at: usize| random_bytes(round * 100 + at as u64 + u64::from(number), 1 << 20);
                    let write = |at| blocks(IoOpcode::WRITE, 1, start(at), 256, IoFlags::NONE);
                    let writes: Vec<u16> =
                        (0..8).map(|at| queue.submit(&write(at), CommandData::Send(data(at)))).collect();
                    for id in writes {
                        assert_eq!(queue.wait(id).0.status, Status::SUCCESS);
                    }
                    let read = |at| blocks(IoOpcode::READ, 1, start(at), 256, IoFlags::NONE);
                    let reads: Vec<u16> =
                        (0..8).map(|at| queue.submit(&read(at), CommandData::Receive(1 << 20))).collect();
                    for (at, id) in reads.into_iter().enumerate() {
                        let (cqe, read) = queue.wait(id);
                        assert!(cqe.status == Status::SUCCESS && read == data(at), "{number} {round} {at}");
                    }
                }
            });
        }
    });
    wait_until_empty(&nodes.b);
    assert_eq!(nodes.a.usage().commands, 0);
}

/// The order of commands on the same blocks is one for both nodes.
#[test]
fn a_forwarded_write_waits_for_the_blocks_of_a_local_one_and_is_dropped_with_its_host() {
    let (volume, faults) = volumes::testing::faulty_volume(1024, BlockSize::B4096, false);
    let nodes = Nodes::new(&volume);
    let mut direct = Host::connect(&nodes.a, 1);
    let sqe = |start| blocks(IoOpcode::WRITE, 1, start, 1, IoFlags::NONE);
    faults.hold_writes();
    let begun = direct.io[0].submit(&sqe(0), CommandData::Send(vec![1; BLOCK]));
    Deadline::wait_until("the first", PATIENCE, || (faults.held() == 1).then_some(()));
    let mut host = nodes.connect_as(2);
    let waits = host.io[0].submit(&sqe(0), CommandData::Send(vec![2; BLOCK]));
    Deadline::wait_until("the second", PATIENCE, || (volume.commands() == 2).then_some(()));
    let mut gone = nodes.connect_as(3);
    gone.io[0].submit(&sqe(0), CommandData::Send(vec![3; BLOCK]));
    Deadline::wait_until("the third", PATIENCE, || (volume.commands() == 3).then_some(()));
    drop(gone);
    Deadline::wait_until("its end", PATIENCE, || (volume.commands() == 2).then_some(()));
    Deadline::wait_until("its queue", PATIENCE, || (nodes.b.usage().controllers == 1).then_some(()));
    faults.release_writes();
    assert_eq!(direct.io[0].wait(begun).0.status, Status::SUCCESS);
    assert_eq!(host.io[0].wait(waits).0.status, Status::SUCCESS);
    assert!(host.io[0].read(1, 0, 1) == vec![2; BLOCK]);
    assert_eq!(faults.executed().len(), 3, "two writes and a read");
}

/// A queue is closed only when nothing of it is executed at the owner.
#[test]
fn a_controller_ends_when_the_owner_has_finished_what_it_had_begun() {
    let (volume, faults) = volumes::testing::faulty_volume(1024, BlockSize::B4096, false);
    let nodes = Nodes::new(&volume);
    let mut host = nodes.connect();
    faults.hold_writes();
    let sqe = blocks(IoOpcode::WRITE, 1, 0, 1, IoFlags::NONE);
    host.io[0].submit(&sqe, CommandData::Send(vec![1; BLOCK]));
    Deadline::wait_until("the write", PATIENCE, || (faults.held() == 1).then_some(()));
    drop(host);
    let mut other = nodes.connect_as(2);
    assert_eq!(status(&mut other.io[0], IoOpcode::FLUSH, 0, CommandData::None, 1), Status::SUCCESS);
    assert_eq!(nodes.b.usage().controllers, 2, "the drive still writes");
    faults.release_writes();
    Deadline::wait_until("its end", PATIENCE, || (nodes.b.usage().controllers == 1).then_some(()));
}

/// Both processes live and the connection between them breaks: what was forwarded is answered when
/// the owner says on the next connection that it is over, and until then nothing new is forwarded.
#[test]
fn what_was_on_a_connection_that_broke_is_answered_when_it_is_over() {
    let (volume, faults) = volumes::testing::faulty_volume(1024, BlockSize::B4096, false);
    let (nodes, relay) = Nodes::with_relay(&volume, config(), true);
    let relay = relay.unwrap();
    let mut host = nodes.connect();
    let write = |start| blocks(IoOpcode::WRITE, 1, start, 1, IoFlags::NONE);
    for round in 1..=3 {
        assert_eq!(host.io[0].write(1, 1, &vec![round; BLOCK]), Status::SUCCESS);
        faults.hold_writes();
        let begun = host.io[0].submit(&write(0), CommandData::Send(vec![round; BLOCK]));
        Deadline::wait_until("the write", PATIENCE, || (faults.held() == 1).then_some(()));
        // It waits for the same block.
        let waits = host.io[0].submit(&write(0), CommandData::Send(vec![100 + round; BLOCK]));
        Deadline::wait_until("the other one", PATIENCE, || (volume.commands() == 2).then_some(()));
        relay.cut();
        Deadline::wait_until("its end", PATIENCE, || (volume.commands() == 1).then_some(()));
        Deadline::wait_until("a new connection", PATIENCE, || (relay.connections() > 0).then_some(()));
        let later = host.io[0].submit(&write(0), CommandData::Send(vec![200 + round; BLOCK]));
        faults.release_writes();
        assert_eq!(host.io[0].wait(begun).0.status, Status::ANA_TRANSITION);
        assert_eq!(host.io[0].wait(waits).0.status, Status::ANA_TRANSITION);
        assert_eq!(host.io[0].wait(later).0.status, Status::SUCCESS);
        assert!(host.io[0].read(1, 0, 1) == vec![200 + round; BLOCK]);
    }
    assert_eq!(volume.commands(), 0);
}

#[test]
fn a_command_of_another_epoch_is_not_executed() {
    let nodes = Nodes::new(&memory_volume(1));
    let mut host = nodes.connect();
    assert_eq!(host.io[0].write(1, 0, &vec![1; BLOCK]), Status::SUCCESS);
    // B has not heard yet.
    nodes.a.set_reach(1, Record { owner: Node::A, epoch: 3 }, Reach::Serving);
    nodes.b.set_reach(1, Record { owner: Node::A, epoch: 2 }, Reach::Serving);
    assert_eq!(host.io[0].write(1, 0, &vec![2; BLOCK]), Status::ANA_TRANSITION);
    nodes.b.set_reach(1, Record { owner: Node::A, epoch: 3 }, Reach::Serving);
    assert!(host.io[0].read(1, 0, 1) == vec![1; BLOCK]);
    // And the volume moves.
    nodes.a.remove_backing(1);
    assert_eq!(host.io[0].write(1, 0, &vec![3; BLOCK]), Status::ANA_TRANSITION);
    nodes.reach(Node::A, 3, Reach::Moving);
    nodes.b.set_backing(1, &nodes.volume).unwrap();
    nodes.reach(Node::B, 4, Reach::Serving);
    wait_for(&mut host, &nodes.b, AnaState::OPTIMIZED);
    assert!(host.io[0].read(1, 0, 1) == vec![1; BLOCK]);
    let mut other = Host::connect(&nodes.a, 1);
    assert_eq!(other.io[0].write(1, 0, &vec![4; BLOCK]), Status::SUCCESS, "and the other way round");
    assert!(host.io[0].read(1, 0, 1) == vec![4; BLOCK]);
}

/// The owner alone knows what is reserved, and looks at each command that is forwarded.
#[test]
fn reservations_hold_at_both_nodes_and_may_be_changed_at_both() {
    let (store, volume) = (Arc::new(Store::default()), memory_volume(1));
    let nodes = Nodes::with(&volume, with(&store));
    let [mut one, mut two] = [1, 2].map(|number| nodes.connect_as(number));
    let conflict = Status::RESERVATION_CONFLICT.no_retry();
    let kind = ReservationType::EXCLUSIVE_ACCESS;
    assert_eq!(two.io[0].write(1, 0, &vec![2; BLOCK]), Status::SUCCESS);
    assert!(register(&mut one.io[0], Persistence::NO_CHANGE, 0xa).is_success());
    assert!(acquire(&mut one.io[0], AcquireAction::ACQUIRE, kind, (0xa, 0)).is_success());
    assert_eq!(two.io[0].write(1, 0, &vec![2; BLOCK]), conflict);
    assert_eq!(status(&mut two.io[0], IoOpcode::READ, 0, CommandData::Receive(BLOCK as u32), 1), conflict);
    assert_eq!(one.io[0].write(1, 0, &vec![1; BLOCK]), Status::SUCCESS);
    // The other host, at the other node, sees the same, and takes it.
    let config = nvme::host::HostConfig {
        host: nqn("nqn.2026-11.test:host-2"),
        host_id: HostId([2; 16]),
        ..host_config(1)
    };
    let mut direct = Host::connect_with(&nodes.a, config, Digests::default()).unwrap();
    assert_eq!(direct.io[0].write(1, 0, &vec![2; BLOCK]), conflict);
    let seen = report(&mut two.io[0], 4096);
    assert_eq!((seen.kind, seen.registrants.len()), (kind, 1));
    assert!(register(&mut two.io[0], Persistence::NO_CHANGE, 0xb).is_success());
    assert!(acquire(&mut two.io[0], AcquireAction::PREEMPT, kind, (0xb, 0xa)).is_success());
    assert_eq!(one.io[0].write(1, 0, &vec![1; BLOCK]), conflict);
    assert_eq!(direct.io[0].write(1, 0, &vec![2; BLOCK]), Status::SUCCESS);
    assert_eq!(two.io[0].write(1, 0, &vec![2; BLOCK]), Status::SUCCESS);
}

/// A preemption is answered when no forwarded write of the other host can have an effect any more.
#[test]
fn a_preemption_waits_for_forwarded_writes() {
    let (volume, faults) = volumes::testing::faulty_volume(1024, BlockSize::B4096, false);
    let nodes = Nodes::with(&volume, with(&Arc::new(Store::default())));
    let [mut one, mut two] = [1, 2].map(|number| nodes.connect_as(number));
    for (host, key) in [(&mut one, 0xa), (&mut two, 0xb)] {
        assert!(register(&mut host.io[0], Persistence::NO_CHANGE, key).is_success());
    }
    let kind = ReservationType::WRITE_EXCLUSIVE;
    assert!(acquire(&mut one.io[0], AcquireAction::ACQUIRE, kind, (0xa, 0)).is_success());
    faults.hold_writes();
    let sqe = blocks(IoOpcode::WRITE, 1, 0, 1, IoFlags::NONE);
    let begun = one.io[0].submit(&sqe, CommandData::Send(vec![1; BLOCK]));
    Deadline::wait_until("the write", PATIENCE, || (faults.held() == 1).then_some(()));
    let waits = one.io[0].submit(&sqe, CommandData::Send(vec![2; BLOCK]));
    Deadline::wait_until("another", PATIENCE, || (volume.commands() == 2).then_some(()));
    thread::scope(|scope| {
        let preempt = scope.spawn(|| acquire(&mut two.io[0], AcquireAction::PREEMPT, kind, (0xb, 0xa)));
        assert_eq!(one.io[0].wait(waits).0.status, Status::RESERVATION_CONFLICT.no_retry());
        assert!(!preempt.is_finished(), "the drive still writes");
        faults.release_writes();
        assert!(preempt.join().unwrap().is_success());
    });
    assert_eq!(one.io[0].wait(begun).0.status, Status::SUCCESS);
}

/// A host that is refused by either node writes nothing at the other one.
#[test]
fn a_host_that_may_not_connect_any_more_is_refused_by_the_owner_as_well() {
    let nodes = Nodes::new(&memory_volume(1));
    let [mut one, mut two] = [1, 2].map(|number| nodes.connect_as(number));
    assert_eq!(one.io[0].write(1, 0, &vec![1; BLOCK]), Status::SUCCESS);
    assert_eq!(two.io[0].write(1, 1, &vec![2; BLOCK]), Status::SUCCESS);
    let without = |number: u8| {
        let name = nqn(&format!("nqn.2026-11.test:host-{number}"));
        Hosts {
            access: Access::AnyBut([name].into()),
            ids: [].into(),
            secrets: [].into(),
            volumes: Vec::new(),
        }
    };
    // The owner was told first.
    nodes.a.set_hosts(&without(1));
    assert_eq!(one.io[0].write(1, 0, &vec![3; BLOCK]), Status::INVALID_NAMESPACE);
    assert_eq!(two.io[0].write(1, 1, &vec![4; BLOCK]), Status::SUCCESS);
    nodes.b.set_hosts(&without(2));
    two.io[0].wait_for_end();
    assert!(Host::connect(&nodes.a, 1).io[0].read(1, 0, 1) == vec![1; BLOCK]);
}
