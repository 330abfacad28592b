//! I/O queues. NVM Command Set, "NVM Command Set Commands".

use crate::support::{Target, only, volume};
use nvme::command::PSDT_SGL;
use nvme::controller::{
    Action, IoQueue, Kind, Node, Operation, Output, Reach, Request, SubmissionQueue, Tag, Violation, Volume,
    VolumeId,
};
use nvme::io::{Blocks, DatasetManagement, DsmRange, IoFlags};
use nvme::{Cqe, IoOpcode, NSID_ALL, Sgl, Sqe, Status, fabrics};

/// A queue of 128 entries on a subsystem whose NSID 1 has 1000 blocks of 512 bytes.
pub fn queue() -> (Target, IoQueue) {
    let mut target = Target::of(Kind::Io);
    let cntlid = target.enabled("h");
    let accepted = target.connect_io("h", cntlid, 1);
    (target, IoQueue::new(accepted.queue, accepted.view))
}

/// Gives the queue the last view among the outputs.
pub fn refresh(target: &mut Target, queue: &mut IoQueue) {
    for output in target.outputs() {
        if let Output::View { view, .. } = output {
            queue.set_view(view);
        }
    }
}

pub fn command(opcode: IoOpcode, cid: u16, start: u64, count: u32, flags: IoFlags) -> Sqe {
    let moves = matches!(opcode, IoOpcode::READ | IoOpcode::WRITE | IoOpcode::COMPARE);
    let sgl = Sgl::Transport { length: if moves { count * 512 } else { 0 } };
    Blocks { start, count, flags }.command(opcode, cid, 1, sgl)
}

pub fn read(cid: u16, start: u64, count: u32) -> Sqe {
    command(IoOpcode::READ, cid, start, count, IoFlags::NONE)
}

pub fn execute(queue: &mut IoQueue, sqe: &Sqe) -> Request {
    match queue.handle_command(sqe).expect("room") {
        Action::Execute(request) => request,
        other => panic!("not executed: {other:?}"),
    }
}

pub fn respond(queue: &mut IoQueue, sqe: &Sqe) -> Cqe {
    match queue.handle_command(sqe).expect("room") {
        Action::Respond(cqe) => cqe,
        other => panic!("no answer: {other:?}"),
    }
}

#[test]
fn commands_become_ranges_of_a_volume() {
    let (_, mut queue) = queue();
    let request = Request {
        tag: Tag(0),
        volume: VolumeId(1),
        operation: Operation::Read,
        start: 5,
        blocks: 8,
        data_bytes: 4096,
    };
    assert_eq!(execute(&mut queue, &read(1, 5, 8)), request);
    let write = command(IoOpcode::WRITE, 2, 5, 8, IoFlags::FORCE_UNIT_ACCESS);
    let expected = Request { tag: Tag(1), operation: Operation::Write { durable: true }, ..request };
    assert_eq!(execute(&mut queue, &write), expected);
    let flush = Sqe { sgl: Sgl::NONE, ..Sqe::new(IoOpcode::FLUSH.0, 3, 1) };
    let expected =
        Request { tag: Tag(2), operation: Operation::Flush, start: 0, blocks: 0, data_bytes: 0, ..request };
    assert_eq!(execute(&mut queue, &flush), expected);
    let zeroes = command(IoOpcode::WRITE_ZEROES, 4, 0, 1000, IoFlags::DEALLOCATE);
    let operation = Operation::WriteZeroes { deallocate: true, durable: false };
    let expected = Request { tag: Tag(3), operation, start: 0, blocks: 1000, data_bytes: 0, ..request };
    assert_eq!(execute(&mut queue, &zeroes), expected);
    assert_eq!(queue.outstanding(), 4);
    let cqe = queue.complete(Tag(1), Status::SUCCESS).expect("outstanding");
    assert_eq!((cqe.cid, cqe.status, cqe.sqhd), (2, Status::SUCCESS, 2), "Connect was the first");
    assert_eq!(queue.complete(Tag(1), Status::SUCCESS), None, "it is completed");
    assert_eq!(queue.complete(Tag(999), Status::SUCCESS), None);
    assert_eq!(queue.outstanding(), 3);
}

/// What a command can have wrong, and its status.
#[test]
fn a_command_that_cannot_be_executed_is_refused_before_its_data_move() {
    let (_, mut queue) = queue();
    let good = read(1, 0, 8);
    let write = command(IoOpcode::WRITE, 1, 0, 8, IoFlags::NONE);
    let dsm = |ranges, length| {
        DatasetManagement { ranges, deallocate: true }.command(1, 1, Sgl::Transport { length })
    };
    for (what, sqe, status) in [
        ("an unknown opcode", Sqe { opcode: 0x7a, ..good }, Status::INVALID_OPCODE),
        ("half of a pair of reads", Sqe { flags: PSDT_SGL | 1, ..good }, Status::INVALID_FIELD),
        ("PRPs", Sqe { flags: 0, ..good }, Status::INVALID_FIELD),
        ("no such namespace", Sqe { nsid: 2, ..good }, Status::INVALID_NAMESPACE),
        ("NSID 0", Sqe { nsid: 0, ..good }, Status::INVALID_NAMESPACE),
        ("all namespaces", Sqe { nsid: NSID_ALL, ..good }, Status::INVALID_NAMESPACE),
        ("a range beyond the end", read(1, 993, 8), Status::LBA_OUT_OF_RANGE),
        ("a range that wraps", read(1, u64::MAX, 8), Status::LBA_OUT_OF_RANGE),
        ("protection information", Sqe { cdw12: 7 | 1 << 29, ..good }, Status::INVALID_FIELD),
        (
            "an SGL too short",
            Sqe { sgl: Sgl::Transport { length: 4095 }, ..good },
            Status::SGL_INVALID_LENGTH,
        ),
        (
            "an SGL too long",
            Sqe { sgl: Sgl::Transport { length: u32::MAX }, ..write },
            Status::SGL_INVALID_LENGTH,
        ),
        ("an SGL of segments", Sqe { sgl: Sgl::Other([0x20; 16]), ..good }, Status::SGL_INVALID_TYPE),
        ("ranges of another length", dsm(2, 16), Status::SGL_INVALID_LENGTH),
    ] {
        let cqe = respond(&mut queue, &sqe);
        assert_eq!((cqe.cid, cqe.status), (1, status.no_retry()), "{what}");
    }
    assert_eq!(queue.outstanding(), 0);
}

#[test]
fn more_data_than_mdts_are_refused() {
    let mut target = Target::of(Kind::Io);
    target.subsystem.set_volume(2, Volume { blocks: 1 << 30, ..volume(2) }).expect("good");
    let cntlid = target.enabled("h");
    let accepted = target.connect_io("h", cntlid, 1);
    let mut queue = IoQueue::new(accepted.queue, accepted.view);
    let mdts = 4096_u32 << target.identify_controller(cntlid).mdts;
    let read = |blocks: u32| Sqe { nsid: 2, ..read(1, 0, blocks) };
    assert_eq!(execute(&mut queue, &read(mdts / 512)).data_bytes, mdts);
    let cqe = respond(&mut queue, &Sqe { cid: 2, ..read(mdts / 512 + 1) });
    assert_eq!(cqe.status, Status::INVALID_FIELD.no_retry());
}

#[test]
fn ranges_are_checked_all_together() {
    let (mut target, mut queue) = queue();
    let range = |start, count| DsmRange { attributes: 0, count, start }.encode();
    let dsm = |cid, ranges: u32| {
        DatasetManagement { ranges, deallocate: true }.command(cid, 1, Sgl::Transport { length: ranges * 16 })
    };
    let request = execute(&mut queue, &dsm(1, 3));
    assert_eq!((request.operation, request.data_bytes), (Operation::Deallocate, 48));
    let data = [range(0, 10), range(5, 0), range(990, 10)].concat();
    let ranges: Vec<_> =
        queue.ranges(request.tag, &data).expect("valid").map(|one| (one.start, one.count)).collect();
    assert_eq!(ranges, [(0, 10), (990, 10)], "overlaps do not matter, empty ranges are none");
    let beyond = [range(0, 10), range(5, 5), range(990, 11)].concat();
    let status = |queue: &IoQueue, data: &[u8]| queue.ranges(request.tag, data).err();
    assert_eq!(status(&queue, &beyond), Some(Status::LBA_OUT_OF_RANGE.no_retry()));
    assert_eq!(status(&queue, &data[..32]), Some(Status::SGL_INVALID_LENGTH.no_retry()));
    target.subsystem.remove_volume(1);
    refresh(&mut target, &mut queue);
    assert_eq!(status(&queue, &data), Some(Status::INVALID_NAMESPACE.no_retry()));
    queue.complete(request.tag, Status::SUCCESS).expect("still outstanding");
}

/// Linux sends 4096 bytes, however many ranges there are.
#[test]
fn unused_room_behind_ranges_is_ignored() {
    let (_, mut queue) = queue();
    let dsm = |cid, length| {
        DatasetManagement { ranges: 1, deallocate: true }.command(cid, 1, Sgl::Transport { length })
    };
    let request = execute(&mut queue, &dsm(1, 4096));
    assert_eq!(request.data_bytes, 4096, "all of them move");
    let mut data = DsmRange { attributes: 0, count: 10, start: 5 }.encode().to_vec();
    data.resize(4096, 0xff);
    let ranges: Vec<_> =
        queue.ranges(request.tag, &data).expect("valid").map(|one| (one.start, one.count)).collect();
    assert_eq!(ranges, [(5, 10)]);
    assert_eq!(respond(&mut queue, &dsm(2, 4100)).status, Status::SGL_INVALID_LENGTH.no_retry());
}

#[test]
fn a_hint_about_ranges_succeeds_without_doing_anything() {
    let (_, mut queue) = queue();
    let hint = DatasetManagement { ranges: 1, deallocate: false };
    let cqe = respond(&mut queue, &hint.command(1, 1, Sgl::Transport { length: 16 }));
    assert_eq!(cqe.status, Status::SUCCESS);
}

#[test]
fn a_view_decides_what_is_served_from_now_on() {
    let (mut target, mut queue) = queue();
    let now = target.now;
    for (reach, status) in
        [(Reach::Moving, Status::ANA_TRANSITION), (Reach::Unreachable, Status::ANA_INACCESSIBLE)]
    {
        target.subsystem.set_reach(now, Node(0), reach);
        refresh(&mut target, &mut queue);
        assert_eq!(respond(&mut queue, &read(1, 0, 8)).status, status, "without DNR");
    }
    target.subsystem.set_reach(now, Node(0), Reach::Serving);
    refresh(&mut target, &mut queue);
    let outstanding = execute(&mut queue, &read(1, 0, 8));
    target.subsystem.set_volume(1, Volume { write_protected: true, ..volume(1) }).expect("good");
    refresh(&mut target, &mut queue);
    let write = command(IoOpcode::WRITE, 2, 0, 8, IoFlags::NONE);
    assert_eq!(respond(&mut queue, &write).status, Status::NAMESPACE_WRITE_PROTECTED.no_retry());
    target.subsystem.set_volume(1, Volume { hosts: only(&["x"]), ..volume(1) }).expect("good");
    refresh(&mut target, &mut queue);
    assert_eq!(respond(&mut queue, &read(2, 0, 8)).status, Status::INVALID_NAMESPACE.no_retry());
    assert!(queue.complete(outstanding.tag, Status::SUCCESS).is_some(), "what was admitted goes on");
    target.subsystem.set_volume(1, volume(1)).expect("good");
    target.subsystem.set_reach(now, Node(0), Reach::Lost);
    refresh(&mut target, &mut queue);
    assert_eq!(respond(&mut queue, &read(3, 0, 8)).status, Status::ANA_PERSISTENT_LOSS);
}

#[test]
fn an_identifier_that_is_in_use_is_refused() {
    let (_, mut queue) = queue();
    let first = execute(&mut queue, &read(7, 0, 8));
    let cqe = respond(&mut queue, &read(7, 0, 8));
    assert_eq!(cqe.status, Status::COMMAND_ID_CONFLICT.no_retry());
    queue.complete(first.tag, Status::SUCCESS);
    execute(&mut queue, &read(7, 0, 8));
}

#[test]
fn a_queue_takes_as_many_commands_as_it_has_entries() {
    let (_, mut queue) = queue();
    let tags: Vec<Tag> = (0..128).map(|cid| execute(&mut queue, &read(cid, 0, 8)).tag).collect();
    assert_eq!(queue.handle_command(&read(128, 0, 8)), Err(Violation::Full(128)));
    for tag in tags {
        queue.complete(tag, Status::SUCCESS).expect("outstanding");
    }
    execute(&mut queue, &read(0, 0, 8));
}

#[test]
fn heads_go_round() {
    let mut queue = SubmissionQueue::new(3, true);
    assert_eq!(queue.entries(), 4);
    let mut next = || {
        queue.take().expect("room");
        queue.complete()
    };
    assert_eq!([next(), next(), next(), next(), next()], [1, 2, 3, 0, 1]);
    let mut largest = SubmissionQueue::new(0xffff, false);
    assert_eq!((largest.entries(), largest.take(), largest.complete()), (0x1_0000, Ok(()), 0xffff));
}

#[test]
fn disconnect_ends_the_queue_and_other_fabrics_commands_do_not_belong_here() {
    let (_, mut queue) = queue();
    assert!(matches!(
        queue.handle_command(&fabrics::disconnect(1)),
        Ok(Action::Disconnect(Cqe { cid: 1, status: Status::SUCCESS, .. }))
    ));
    let connect = crate::support::connect_command(1, 127, 0).command(2, Sgl::NONE);
    assert_eq!(respond(&mut queue, &connect).status, Status::COMMAND_SEQUENCE_ERROR.no_retry());
    let property = fabrics::Property::get(3, 0, true);
    assert_eq!(respond(&mut queue, &property).status, Status::INVALID_OPCODE.no_retry());
}

#[test]
fn traffic_is_noted_once() {
    let (_, mut queue) = queue();
    assert!(!queue.take_traffic());
    execute(&mut queue, &read(1, 0, 8));
    assert!(queue.take_traffic());
    assert!(!queue.take_traffic());
}
