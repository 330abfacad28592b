//! A drive that hangs: commands for its volume wait, and those for other volumes go on.

use crate::forward::{half, of_node};
use crate::peer::{BLOCK, Host, PATIENCE, Queue, blocks, config, export, memory_volume, wait_until_empty};
use nvme::command::{FUSE_FIRST, FUSE_SECOND};
use nvme::host::CommandData;
use nvme::io::IoFlags;
use nvme::{IoOpcode, Status};
use target::pair::Record;
use target::{Access, Config, Facts, Namespace, Node, Reach, Target};
use tempfile::TempDir;
use testkit::Deadline;
use volumes::testing::{Faults, faulty_volume};
use volumes::{BlockSize, Volume};

/// The largest command.
const MOST: usize = 256;

/// A volume whose drive holds all writes.
fn hanging() -> (Volume, Faults) {
    let (volume, faults) = faulty_volume(1024, BlockSize::B4096, false);
    faults.hold_writes();
    (volume, faults)
}

fn one_loop() -> Config {
    let mut config = config();
    config.loops = 1;
    config
}

/// Sends writes of so many blocks each; returns their identifiers.
fn write(queue: &mut Queue, count: usize, each: usize) -> Vec<u16> {
    let sqe = blocks(IoOpcode::WRITE, 1, 0, each, IoFlags::NONE);
    (0..count).map(|_| queue.submit(&sqe, CommandData::Send(vec![1; each * BLOCK]))).collect()
}

fn wait_for_all(queue: &mut Queue, written: Vec<u16>) {
    for cid in written {
        assert_eq!(queue.wait(cid).0.status, Status::SUCCESS);
    }
}

#[test]
fn writes_that_wait_for_a_drive_leave_memory_of_their_connection_for_other_volumes() {
    let (volume, faults) = hanging();
    let mut config = one_loop();
    // A connection has 4 MiB.
    config.limits.memory_bytes = 64 << 20;
    let target = Target::start(&config, &[export(1, volume.clone()), export(2, memory_volume(2))]).unwrap();
    let mut host = Host::connect(&target, 1);
    let queue = &mut host.io[0];
    let written = write(queue, 8, MOST);
    for start in 0..4 {
        queue.read(2, start, MOST);
        assert_eq!(queue.write(2, start, &vec![2; MOST * BLOCK]), Status::SUCCESS);
    }
    Deadline::wait_until("three", PATIENCE, || (volume.commands() == 3).then_some(()));
    faults.release_writes();
    wait_for_all(queue, written);
    drop(host);
    wait_until_empty(&target);
}

#[test]
fn writes_that_wait_for_a_drive_leave_places_of_their_loop_for_other_volumes() {
    const QUEUES: u16 = 18;
    let (volume, faults) = hanging();
    let exports = [export(1, volume.clone()), export(2, memory_volume(2))];
    let target = Target::start(&one_loop(), &exports).unwrap();
    let mut host = Host::connect(&target, QUEUES);
    // More than the loop has places, with their data in the capsules.
    let mut written: Vec<_> = host.io.iter_mut().map(|queue| write(queue, 62, 1)).collect();
    Deadline::wait_until("its share", PATIENCE, || (volume.commands() == 768).then_some(()));
    let mut other = Host::connect(&target, 1);
    other.io[0].read(2, 0, 1);
    // Also on a queue of its own that is full of them.
    assert_eq!(host.io[17].write(2, 0, &vec![2; BLOCK]), Status::SUCCESS);
    faults.release_writes();
    for (queue, written) in host.io.iter_mut().zip(written.drain(..)) {
        wait_for_all(queue, written);
    }
    drop((host, other));
    wait_until_empty(&target);
}

/// The second half of a pair is complete, and needs memory to ask for the data of the first: the
/// writes that have it come after it.
#[test]
fn a_pair_that_waits_for_memory_does_not_stop_the_writes_that_have_it() {
    const QUEUES: u16 = 18;
    let (volume, faults) = hanging();
    let mut config = one_loop();
    config.limits.memory_bytes = 64 << 20;
    let target = Target::start(&config, &[export(1, volume.clone()), export(2, memory_volume(2))]).unwrap();
    let mut host = Host::connect(&target, QUEUES);
    let capsule = host.limits.capsule_data_bytes;
    let (queue, others) = host.io.split_last_mut().unwrap();
    let places: Vec<_> = others.iter_mut().map(|queue| write(queue, 62, 1)).collect();
    Deadline::wait_until("all places", PATIENCE, || (volume.commands() == 768).then_some(()));
    let written = write(queue, 4, MOST);
    // Those that have memory ask for their data.
    (0..3).for_each(|_| _ = queue.receive().unwrap());
    queue.machine.set_capsule_data_bytes(0);
    let [first, second] = [(FUSE_FIRST, 0), (FUSE_SECOND, capsule)].map(|(part, in_capsule)| {
        queue.machine.set_capsule_data_bytes(in_capsule);
        queue.submit(&half(part, 0), CommandData::Send(vec![1; BLOCK]))
    });
    // All of that is there.
    queue.read(2, 0, 1);
    faults.release_writes();
    wait_for_all(queue, written);
    for half in [first, second] {
        assert_eq!(queue.wait(half).0.status, Status::SUCCESS);
    }
    for (queue, written) in others.iter_mut().zip(places) {
        wait_for_all(queue, written);
    }
    drop(host);
    wait_until_empty(&target);
}

#[test]
fn writes_that_wait_for_a_drive_of_the_other_node_do_not_stop_those_for_other_volumes() {
    let (volume, faults) = hanging();
    let volumes = [volume.clone(), memory_volume(2), memory_volume(3)];
    let owners = [Node::A, Node::A, Node::B];
    let directory = TempDir::new().unwrap();
    let namespaces: Vec<_> = (1..)
        .zip(volumes.iter().zip(owners))
        .map(|(nsid, (volume, owner))| Namespace {
            nsid,
            facts: Facts::of(volume),
            hosts: Access::Any,
            owner,
        })
        .collect();
    let [a, b] = [Node::A, Node::B]
        .map(|node| Target::start_node(&of_node(&one_loop(), node), &namespaces, directory.path()).unwrap());
    for (namespace, volume) in namespaces.iter().zip(&volumes) {
        let owner = if namespace.owner == Node::A { &a } else { &b };
        owner.set_backing(namespace.nsid, volume).unwrap();
        let record = Record { owner: namespace.owner, epoch: 1 };
        [&a, &b].iter().for_each(|node| node.set_reach(namespace.nsid, record, Reach::Serving));
    }
    let mut host = Host::connect(&b, 2);
    let [queue, other] = host.io.as_mut_slice() else { panic!("two queues") };
    let written = write(queue, 16, MOST);
    // Each asks for its data.
    written.iter().for_each(|_| _ = queue.receive().unwrap());
    // What the owner takes of one volume.
    Deadline::wait_until("its share", PATIENCE, || (volume.commands() == 6).then_some(()));
    for queue in [&mut *queue, other] {
        // The third volume is here, the second one with the hanging one.
        for nsid in [3, 2] {
            assert_eq!(queue.write(nsid, 0, &vec![nsid as u8; MOST * BLOCK]), Status::SUCCESS);
            assert!(queue.read(nsid, 0, MOST) == vec![nsid as u8; MOST * BLOCK]);
        }
    }
    assert_eq!(volume.commands(), 6);
    faults.release_writes();
    wait_for_all(queue, written);
    drop(host);
    wait_until_empty(&b);
}
