//! Compare, and fused Compare and Write. NVM Command Set, "Fused Operation".

use crate::peer::{
    BLOCK, Host, Queue, blocks, config, export, host_config, memory_volume, nqn, random_bytes, start,
    wait_until_empty,
};
use nvme::command::{FUSE_FIRST, FUSE_SECOND};
use nvme::host::{CommandData, HostConfig};
use nvme::io::IoFlags;
use nvme::pdu::Digests;
use nvme::tcp::HostReceived;
use nvme::{HostId, IoOpcode, Sqe, Status};
use std::sync::Barrier;
use std::thread;
use target::Target;
use volumes::BlockSize;

/// Whether data come in the capsule of the first half, and in that of the second one.
const WAYS: [(bool, bool); 4] = [(true, true), (true, false), (false, true), (false, false)];

fn half(part: u8, start: u64) -> Sqe {
    let opcode = if part == FUSE_FIRST { IoOpcode::COMPARE } else { IoOpcode::WRITE };
    let sqe = blocks(opcode, 1, start, 1, IoFlags::NONE);
    Sqe { flags: sqe.flags | part, ..sqe }
}

fn block_of(byte: u8) -> Vec<u8> {
    vec![byte; BLOCK]
}

fn submit(queue: &mut Queue, sqe: &Sqe, byte: u8, in_capsule: bool) -> u16 {
    queue.machine.set_capsule_data_bytes(if in_capsule { 8192 } else { 0 });
    queue.submit(sqe, CommandData::Send(block_of(byte)))
}

/// Writes a block if it holds what is expected; how both halves end.
fn swap(queue: &mut Queue, start: u64, (expected, new): (u8, u8), ways: (bool, bool)) -> (Status, Status) {
    let first = submit(queue, &half(FUSE_FIRST, start), expected, ways.0);
    let second = submit(queue, &half(FUSE_SECOND, start), new, ways.1);
    (queue.wait(first).0.status, queue.wait(second).0.status)
}

const DONE: (Status, Status) = (Status::SUCCESS, Status::SUCCESS);
const DIFFERS: (Status, Status) = (Status::COMPARE_FAILURE.no_retry(), Status::FAILED_FUSED);
const MISSING: Status = Status::MISSING_FUSED.no_retry();

#[test]
fn compare_tells_whether_blocks_hold_the_data() {
    let target = start();
    let mut host = Host::connect_with(&target, host_config(1), Digests { header: true, data: true }).unwrap();
    let queue = &mut host.io[0];
    for count in [1, 2, 3, 256] {
        let mut data = random_bytes(count as u64, count * BLOCK);
        assert_eq!(queue.write(1, 5, &data), Status::SUCCESS);
        let compare = blocks(IoOpcode::COMPARE, 1, 5, count, IoFlags::NONE);
        assert_eq!(queue.command(&compare, CommandData::Send(data.clone())).0.status, Status::SUCCESS);
        data[count * BLOCK - 1] ^= 1;
        let (cqe, _) = queue.command(&compare, CommandData::Send(data.clone()));
        assert_eq!(cqe.status, Status::COMPARE_FAILURE.no_retry());
        queue.spoils = true;
        let status = queue.command(&compare, CommandData::Send(data)).0.status;
        assert_eq!(status, Status::TRANSIENT_TRANSPORT_ERROR);
        queue.spoils = false;
    }
}

#[test]
fn a_block_is_written_only_if_it_holds_what_is_expected() {
    let target = start();
    for digests in [Digests::default(), Digests { header: true, data: true }] {
        let mut host = Host::connect_with(&target, host_config(1), digests).unwrap();
        let queue = &mut host.io[0];
        for ways in WAYS {
            assert_eq!(queue.write(1, 7, &block_of(1)), Status::SUCCESS);
            assert_eq!(swap(queue, 7, (1, 2), ways), DONE, "{ways:?}");
            assert_eq!(swap(queue, 7, (1, 3), ways), DIFFERS, "{ways:?}");
            assert_eq!(queue.read(1, 7, 1), block_of(2), "{ways:?}");
            assert_eq!(queue.read(1, 6, 1), block_of(0), "its neighbour stays");
        }
    }
    wait_until_empty(&target);
}

/// Each host increments a block by pairs alone. Two pairs that expect the same never both win.
#[test]
fn of_two_hosts_that_race_for_a_block_one_wins_each_round() {
    const ROUNDS: u8 = 100;
    let target = start();
    let barrier = Barrier::new(2);
    let run = |number: u8, ways: (bool, bool)| {
        let host = nqn(&format!("nqn.2026-11.test:host-{number}"));
        let config = HostConfig { host, host_id: HostId([number; 16]), ..host_config(1) };
        let mut host = Host::connect_with(&target, config, Digests::default()).unwrap();
        let queue = &mut host.io[0];
        let mut won = Vec::new();
        let mut holds = 0;
        for round in 0..ROUNDS {
            barrier.wait();
            let new = round * 2 + number;
            let statuses = swap(queue, 9, (holds, new), ways);
            assert!(statuses == DONE || statuses == DIFFERS, "{statuses:?}");
            won.push(statuses == DONE);
            barrier.wait();
            let read = queue.read(1, 9, 1);
            holds = read[0];
            assert_eq!(read, block_of(holds), "a block is of one host");
            assert_eq!(holds == new, statuses == DONE, "who has won has written");
        }
        won
    };
    for (one, other) in [((true, true), (true, true)), ((true, true), (false, false))] {
        Host::connect(&target, 1).io[0].write(1, 9, &block_of(0));
        let (one, other) = thread::scope(|scope| {
            let one = scope.spawn(|| run(1, one));
            let other = scope.spawn(|| run(2, other));
            (one.join().unwrap(), other.join().unwrap())
        });
        assert!(one.iter().zip(&other).all(|(one, other)| one != other), "{one:?}, {other:?}");
    }
    wait_until_empty(&target);
}

#[test]
fn half_a_pair_changes_nothing_and_the_queue_goes_on() {
    let target = start();
    let mut host = Host::connect(&target, 1);
    let queue = &mut host.io[0];
    let invalid = Status::INVALID_FIELD.no_retry();
    let two = blocks(IoOpcode::WRITE, 1, 3, 2, IoFlags::NONE);
    for (in_first, in_second) in WAYS {
        // Followed by something else.
        let first = submit(queue, &half(FUSE_FIRST, 3), 0, in_first);
        assert_eq!(queue.read(1, 3, 1), block_of(0));
        assert_eq!(queue.wait(first).0.status, MISSING);
        // Without a first half.
        let second = submit(queue, &half(FUSE_SECOND, 3), 1, in_second);
        assert_eq!(queue.wait(second).0.status, MISSING);
        // Of another range.
        for other in [half(FUSE_SECOND, 4), Sqe { flags: two.flags | FUSE_SECOND, ..two }] {
            let first = submit(queue, &half(FUSE_FIRST, 3), 0, in_first);
            let data = vec![1; (usize::from(other.cdw12 as u16) + 1) * BLOCK];
            queue.machine.set_capsule_data_bytes(if in_second { 8192 } else { 0 });
            let second = queue.submit(&other, CommandData::Send(data));
            assert_eq!((queue.wait(first).0.status, queue.wait(second).0.status), (invalid, invalid));
        }
        // Beyond the end, and longer than what is atomic.
        let first = submit(queue, &half(FUSE_FIRST, 1 << 40), 0, in_first);
        let second = submit(queue, &half(FUSE_SECOND, 1 << 40), 1, in_second);
        assert_eq!(queue.wait(first).0.status, Status::LBA_OUT_OF_RANGE.no_retry());
        assert_eq!(queue.wait(second).0.status, Status::FAILED_FUSED);
        let long = blocks(IoOpcode::COMPARE, 1, 3, 2, IoFlags::NONE);
        let long = Sqe { flags: long.flags | FUSE_FIRST, ..long };
        let first = queue.submit(&long, CommandData::Send(vec![0; 2 * BLOCK]));
        assert_eq!(queue.wait(first).0.status, Status::ATOMIC_WRITE_UNIT_EXCEEDED.no_retry());
        assert_eq!(swap(queue, 3, (0, 0), (in_first, in_second)), DONE, "a new pair is one");
        assert_eq!(queue.read(1, 3, 2), vec![0; 2 * BLOCK]);
    }
    drop(host);
    wait_until_empty(&target);
}

#[test]
fn a_pair_waits_for_the_data_of_both_halves_in_either_order() {
    let target = start();
    let mut host = Host::connect(&target, 1);
    let queue = &mut host.io[0];
    for first_before in [true, false] {
        let first = submit(queue, &half(FUSE_FIRST, 3), 0, false);
        let second = submit(queue, &half(FUSE_SECOND, 3), 0, false);
        for _ in 0..2 {
            assert!(matches!(queue.receive_only().unwrap(), HostReceived::Asked { .. }));
        }
        let order = if first_before { [first, second] } else { [second, first] };
        queue.send_asked(order[0], usize::MAX);
        // The connection is served, and the pair is not executed.
        assert_eq!(queue.read(1, 4, 1), block_of(0));
        assert!(!queue.is_done(first) && !queue.is_done(second));
        queue.send_asked(order[1], usize::MAX);
        assert_eq!((queue.wait(first).0.status, queue.wait(second).0.status), DONE);
    }
    // Nothing is asked for before the pair is whole.
    let first = submit(queue, &half(FUSE_FIRST, 3), 0, false);
    let status = queue.write(1, 4, &block_of(5));
    assert_eq!((status, queue.wait(first).0.status), (Status::SUCCESS, MISSING));
}

#[test]
fn a_wrong_digest_of_one_half_fails_both_and_nothing_is_written() {
    let target = start();
    let digests = Digests { header: false, data: true };
    let mut host = Host::connect_with(&target, host_config(1), digests).unwrap();
    let queue = &mut host.io[0];
    let spoilt = Status::TRANSIENT_TRANSPORT_ERROR;
    for (in_first, in_second) in WAYS {
        for spoils_first in [true, false] {
            let mut ids = Vec::new();
            for (part, in_capsule, spoils) in
                [(FUSE_FIRST, in_first, spoils_first), (FUSE_SECOND, in_second, !spoils_first)]
            {
                queue.spoils = spoils;
                ids.push(submit(queue, &half(part, 3), 0, in_capsule));
            }
            // What was not in a capsule is asked for once the pair is whole, if it still can be one.
            while ids.iter().any(|cid| !queue.is_done(*cid)) {
                if let HostReceived::Asked { cid } = queue.receive_only().unwrap() {
                    queue.spoils = (cid == ids[0]) == spoils_first;
                    queue.send_asked(cid, usize::MAX);
                }
            }
            let statuses = (queue.wait(ids[0]).0.status, queue.wait(ids[1]).0.status);
            let expected =
                if spoils_first { (spoilt, Status::FAILED_FUSED) } else { (Status::FAILED_FUSED, spoilt) };
            assert_eq!(statuses, expected, "{in_first} {in_second} {spoils_first}");
            queue.spoils = false;
            assert_eq!(queue.read(1, 3, 1), block_of(0));
        }
    }
    drop(host);
    wait_until_empty(&target);
}

#[test]
fn faults_of_the_drive_are_told_to_the_half_that_met_them() {
    let (volume, faults) = volumes::testing::faulty_volume(1024, BlockSize::B4096, true);
    let target = Target::start(&config(), &[export(1, volume)]).unwrap();
    let mut host = Host::connect(&target, 1);
    let queue = &mut host.io[0];
    faults.fail_next(drives::testing::Operations::Reads, drives::Fault::Medium);
    let (first, second) = swap(queue, 3, (0, 1), (true, true));
    assert!(first.is(Status::UNRECOVERED_READ_ERROR) && second.is(Status::FAILED_FUSED));
    faults.fail_next(drives::testing::Operations::Writes, drives::Fault::Medium);
    let (first, second) = swap(queue, 3, (0, 1), (true, true));
    assert!(first.is(Status::SUCCESS) && second.is(Status::WRITE_FAULT), "{first} {second}");
    assert_eq!(swap(queue, 3, (0, 1), (true, true)), DONE);
}

/// One command's data at a time have room: pairs take theirs for both halves at once, so that none
/// waits for another that waits for it.
#[test]
fn pairs_of_many_queues_go_on_where_memory_is_scarce() {
    let mut config = config();
    config.loops = 1;
    config.limits.memory_bytes = 8 << 20;
    let target = Target::start(&config, &[export(1, memory_volume(1))]).unwrap();
    let mut host = Host::connect(&target, 4);
    let big = vec![9; 256 * BLOCK];
    for _ in 0..5 {
        let mut ids = Vec::new();
        for (at, queue) in host.io.iter_mut().enumerate() {
            queue.machine.set_capsule_data_bytes(0);
            let write = blocks(IoOpcode::WRITE, 1, 1000 + at as u64 * 256, 256, IoFlags::NONE);
            let own: Vec<u16> =
                (0..3).map(|_| queue.submit(&write, CommandData::Send(big.clone()))).collect();
            let first = submit(queue, &half(FUSE_FIRST, at as u64), 0, false);
            let second = submit(queue, &half(FUSE_SECOND, at as u64), 0, false);
            ids.push([own, vec![first, second]].concat());
        }
        for (queue, ids) in host.io.iter_mut().zip(ids) {
            ids.into_iter().for_each(|cid| assert_eq!(queue.wait(cid).0.status, Status::SUCCESS));
        }
    }
    drop(host);
    wait_until_empty(&target);
}

#[test]
fn a_connection_that_ends_within_a_pair_leaves_nothing() {
    let target = start();
    for ways in WAYS {
        for parts in 1..=2 {
            let mut host = Host::connect(&target, 1);
            let queue = &mut host.io[0];
            submit(queue, &half(FUSE_FIRST, 3), 0, ways.0);
            if parts == 2 {
                submit(queue, &half(FUSE_SECOND, 3), 1, ways.1);
            }
            drop(host);
            wait_until_empty(&target);
        }
    }
    let mut host = Host::connect(&target, 1);
    let held = host.io[0].read(1, 3, 1)[0];
    assert!(held <= 1, "written wholly or not at all");
}
