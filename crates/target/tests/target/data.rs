//! Reads, writes and the other I/O commands.

use crate::peer::{
    BLOCK, Host, VOLUME_BYTES, blocks, config, export, host_config, memory_volume, random_bytes, start,
    wait_until_empty,
};
use drives::{Drive, How};
use nvme::host::CommandData;
use nvme::io::IoFlags;
use nvme::pdu::Digests;
use nvme::{IoOpcode, Status};
use std::path::Path;
use std::thread;
use target::Target;
use volumes::{BlockSize, Choice, Identity, Volume};

pub fn file_volume(dir: &Path) -> Volume {
    let how = How::Create { bytes: VOLUME_BYTES, sparse: true };
    let drive = Drive::open(&dir.join("volume.img"), how).unwrap();
    Volume::new("file", Identity::of_uuid([9; 16]), &drive, Some(BlockSize::B4096)).unwrap()
}

fn write_and_read(host: &mut Host, nsid: u32) {
    // In the capsule; asked for; the most there is; in several chunks of the memory, unaligned.
    for (at, count) in [(0, 1), (1, 2), (7, 16), (100, 256), (513, 255), (4, 17), (1023, 33)] {
        let data = random_bytes(at + count as u64, count * BLOCK);
        assert_eq!(host.io[0].write(nsid, at, &data), Status::SUCCESS);
        assert!(host.io[0].read(nsid, at, count) == data, "{count} blocks at {at}");
    }
}

#[test]
fn what_was_written_is_read_with_and_without_digests_and_flow_control() {
    let target = start();
    for (header, data, flow_control) in
        [(false, false, false), (true, false, true), (false, true, false), (true, true, true)]
    {
        let config = nvme::host::HostConfig { flow_control, ..host_config(1) };
        let mut host = Host::connect_with(&target, config, Digests { header, data }).unwrap();
        write_and_read(&mut host, 1);
    }
    wait_until_empty(&target);
}

#[test]
fn volumes_in_files_are_served_by_both_engines() {
    for engine in [Choice::Automatic, Choice::Workers] {
        let dir = tempfile::TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let mut config = config();
        config.limits.engine = engine;
        let exports = [export(3, file_volume(dir.path())), export(5, memory_volume(5))];
        let target = Target::start(&config, &exports).unwrap();
        let mut host = Host::connect(&target, 2);
        assert_eq!(host.namespaces, [3, 5]);
        assert!(host.limits.volatile_cache, "a file has a cache, and so the controller has");
        write_and_read(&mut host, 3);
        write_and_read(&mut host, 5);
        let flush = blocks(IoOpcode::FLUSH, 3, 0, 1, IoFlags::NONE);
        assert_eq!(host.io[1].command(&flush, CommandData::None).0.status, Status::SUCCESS);
        let fua = blocks(IoOpcode::WRITE, 3, 9, 1, IoFlags::FORCE_UNIT_ACCESS);
        let data = random_bytes(77, BLOCK);
        assert_eq!(host.io[1].command(&fua, CommandData::Send(data.clone())).0.status, Status::SUCCESS);
        target.stop();
        let content = std::fs::read(dir.path().join("volume.img")).unwrap();
        assert!(content[9 * BLOCK..10 * BLOCK] == data[..]);
    }
}

#[test]
fn trimmed_and_zeroed_blocks_read_as_zeroes_and_their_neighbours_stay() {
    let target = start();
    let mut host = Host::connect(&target, 1);
    let data = random_bytes(1, 64 * BLOCK);
    assert_eq!(host.io[0].write(1, 0, &data), Status::SUCCESS);
    assert_eq!(host.io[0].trim(1, &[(3, 2), (10, 20), (0, 0), (29, 1)]), Status::SUCCESS);
    assert_eq!(host.io[0].trim(1, &[(7, 0)]), Status::SUCCESS, "nothing to do is no error");
    let zeroes = blocks(IoOpcode::WRITE_ZEROES, 1, 40, 5, IoFlags::NONE);
    assert_eq!(host.io[0].command(&zeroes, CommandData::None).0.status, Status::SUCCESS);
    let mut expected = data;
    for block in [3..5, 10..30, 40..45].into_iter().flatten() {
        expected[block * BLOCK..(block + 1) * BLOCK].fill(0);
    }
    assert!(host.io[0].read(1, 0, 64) == expected);
    // One bad range of several: none is trimmed.
    let last = VOLUME_BYTES / BLOCK as u64;
    let status = host.io[0].trim(1, &[(0, 1), (last, 1)]);
    assert!(status.is(Status::LBA_OUT_OF_RANGE) && status.dnr());
    assert!(host.io[0].read(1, 0, 64) == expected);
}

#[test]
fn many_commands_on_many_queues_do_not_mix() {
    let target = start();
    let host = Host::connect(&target, 4);
    assert_eq!(target.usage().io_queues, 4);
    let run = |(index, mut queue): (usize, crate::peer::Queue)| {
        let base = index as u64 * 4096;
        let mut random = fastrand::Rng::with_seed(index as u64);
        for round in 0..10 {
            // Extents apart from each other, each in a slot of 64 blocks.
            let extents: Vec<(u64, Vec<u8>)> = (0..40)
                .map(|slot| {
                    let count = [1, 2, 3, 16, 40][random.usize(..5)];
                    let start = base + slot * 64 + random.u64(..24);
                    (start, random_bytes(round * 1000 + slot, count * BLOCK))
                })
                .collect();
            let writes: Vec<u16> = extents
                .iter()
                .map(|(start, data)| {
                    let sqe = blocks(IoOpcode::WRITE, 1, *start, data.len() / BLOCK, IoFlags::NONE);
                    queue.submit(&sqe, CommandData::Send(data.clone()))
                })
                .collect();
            for cid in writes {
                assert_eq!(queue.wait(cid).0.status, Status::SUCCESS);
            }
            let reads: Vec<u16> = extents
                .iter()
                .map(|(start, data)| {
                    let sqe = blocks(IoOpcode::READ, 1, *start, data.len() / BLOCK, IoFlags::NONE);
                    queue.submit(&sqe, CommandData::Receive(data.len() as u32))
                })
                .collect();
            for (cid, (start, data)) in reads.into_iter().zip(&extents) {
                assert!(queue.wait(cid).1 == *data, "queue {index}, block {start}");
            }
        }
    };
    let threads: Vec<_> =
        host.io.into_iter().enumerate().map(|one| thread::spawn(move || run(one))).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    drop(host.admin);
    wait_until_empty(&target);
}

#[test]
fn less_memory_than_the_commands_need_makes_them_wait() {
    let mut config = config();
    config.loops = 1;
    // Of each half: one queue's capsules, and one byte for data, so one command at a time.
    config.limits.memory_bytes = 2 << 20;
    let target = Target::start(&config, &[export(1, memory_volume(1))]).unwrap();
    let mut host = Host::connect(&target, 1);
    let data = random_bytes(5, 256 * BLOCK);
    let sqe = |opcode, at: u64| blocks(opcode, 1, at * 256, 256, IoFlags::NONE);
    let writes: Vec<u16> = (0..20)
        .map(|at| host.io[0].submit(&sqe(IoOpcode::WRITE, at), CommandData::Send(data.clone())))
        .collect();
    for cid in writes {
        assert_eq!(host.io[0].wait(cid).0.status, Status::SUCCESS);
    }
    let reads: Vec<u16> = (0..20)
        .map(|at| host.io[0].submit(&sqe(IoOpcode::READ, at), CommandData::Receive(data.len() as u32)))
        .collect();
    for cid in reads {
        assert!(host.io[0].wait(cid).1 == data);
    }
    // The capsules of a second queue have no place, which the host may try again.
    let second = Host::connect_with(&target, host_config(1), Digests::default());
    let Err(nvme::host::Failure::Command(_, status)) = second else { panic!("no memory, but connected") };
    assert!(status.is(Status::CONNECT_CONTROLLER_BUSY) && !status.dnr());
}

#[test]
fn commands_that_break_a_rule_are_refused_and_the_queue_goes_on() {
    let target = start();
    let mut host = Host::connect(&target, 1);
    let last = VOLUME_BYTES / BLOCK as u64;
    let queue = &mut host.io[0];
    let data = |count: usize| CommandData::Send(vec![1; count * BLOCK]);
    let cases = [
        (blocks(IoOpcode::WRITE, 1, last - 1, 2, IoFlags::NONE), data(2), Status::LBA_OUT_OF_RANGE),
        (blocks(IoOpcode::WRITE, 1, u64::MAX, 20, IoFlags::NONE), data(20), Status::LBA_OUT_OF_RANGE),
        (blocks(IoOpcode::WRITE, 2, 0, 1, IoFlags::NONE), data(1), Status::INVALID_NAMESPACE),
        (blocks(IoOpcode::WRITE, 1, 0, 2, IoFlags::NONE), data(1), Status::SGL_INVALID_LENGTH),
        (blocks(IoOpcode::WRITE, 1, 0, 257, IoFlags::NONE), data(257), Status::INVALID_FIELD),
        (blocks(IoOpcode(0x95), 1, 0, 1, IoFlags::NONE), data(1), Status::INVALID_OPCODE),
        (blocks(IoOpcode::READ, 1, 0, 1, IoFlags::NONE), CommandData::None, Status::SGL_INVALID_LENGTH),
    ];
    for (sqe, data, expected) in cases {
        let (cqe, _) = queue.command(&sqe, data);
        assert!(cqe.status.is(expected) && cqe.status.dnr(), "{} instead of {expected}", cqe.status);
        assert!(queue.read(1, 0, 1) == vec![0; BLOCK], "nothing was written");
    }
}

#[test]
fn data_with_a_wrong_digest_are_not_written() {
    let target = start();
    let digests = Digests { header: true, data: true };
    let mut host = Host::connect_with(&target, host_config(1), digests).unwrap();
    for count in [1, 64] {
        let good = random_bytes(1, count * BLOCK);
        assert_eq!(host.io[0].write(1, 0, &good), Status::SUCCESS);
        host.io[0].spoils = true;
        let status = host.io[0].write(1, 0, &random_bytes(2, count * BLOCK));
        assert!(status.is(Status::TRANSIENT_TRANSPORT_ERROR) && !status.dnr(), "{status}");
        host.io[0].spoils = false;
        assert!(host.io[0].read(1, 0, count) == good);
    }
}

#[test]
fn faults_of_the_drive_are_told_and_end_nothing() {
    let (volume, faults) = volumes::testing::faulty_volume(1024, BlockSize::B4096, true);
    let target = Target::start(&config(), &[export(1, volume)]).unwrap();
    let mut host = Host::connect(&target, 1);
    faults.fail_next(drives::testing::Operations::Writes, drives::Fault::Medium);
    assert!(host.io[0].write(1, 0, &vec![1; BLOCK]).is(Status::WRITE_FAULT));
    assert_eq!(host.io[0].write(1, 0, &vec![1; BLOCK]), Status::SUCCESS);
}
