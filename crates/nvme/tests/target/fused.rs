//! Compare, and fused Compare and Write. NVM Command Set, "Compare command", "Fused Operation".

use crate::io::{command, execute, queue, read, refresh, respond};
use crate::support::{only, volume};
use nvme::command::{FUSE_FIRST, FUSE_MASK, FUSE_SECOND};
use nvme::controller::{Action, IoQueue, Kind, Node, Operation, Reach, Request, Volume};
use nvme::identify::OptionalCommands;
use nvme::io::IoFlags;
use nvme::log_page::{CommandEffects, Effects, LogId};
use nvme::{IoOpcode, Sgl, Sqe, Status, fabrics};

fn compare(cid: u16, start: u64, count: u32) -> Sqe {
    command(IoOpcode::COMPARE, cid, start, count, IoFlags::NONE)
}

fn write(cid: u16, start: u64, count: u32) -> Sqe {
    command(IoOpcode::WRITE, cid, start, count, IoFlags::NONE)
}

fn fused(part: u8, sqe: Sqe) -> Sqe {
    Sqe { flags: sqe.flags | part, ..sqe }
}

fn first(cid: u16) -> Sqe {
    fused(FUSE_FIRST, compare(cid, 5, 1))
}

fn second(cid: u16) -> Sqe {
    fused(FUSE_SECOND, write(cid, 5, 1))
}

fn hold(queue: &mut IoQueue, sqe: &Sqe) -> Request {
    match queue.handle_command(sqe).expect("room") {
        Action::Hold(request) => request,
        other => panic!("not held: {other:?}"),
    }
}

#[test]
fn compare_is_a_command_that_reads_and_takes_data() {
    let (mut target, mut queue) = queue();
    let request = execute(&mut queue, &compare(1, 5, 8));
    assert_eq!((request.operation, request.start, request.blocks), (Operation::Compare, 5, 8));
    assert_eq!(request.data_bytes, 4096);
    assert_eq!(respond(&mut queue, &compare(2, 993, 8)).status, Status::LBA_OUT_OF_RANGE.no_retry());
    let short = Sqe { sgl: Sgl::Transport { length: 512 }, ..compare(2, 0, 8) };
    assert_eq!(respond(&mut queue, &short).status, Status::SGL_INVALID_LENGTH.no_retry());
    target.subsystem.set_volume(1, Volume { write_protected: true, ..volume(1) }).expect("good");
    refresh(&mut target, &mut queue);
    execute(&mut queue, &compare(3, 5, 8));
    assert_eq!(respond(&mut queue, &write(4, 5, 8)).status, Status::NAMESPACE_WRITE_PROTECTED.no_retry());
}

#[test]
fn the_pair_that_there_is_is_reported() {
    let mut target = crate::support::Target::of(Kind::Io);
    let cntlid = target.enabled("h");
    let controller = target.identify_controller(cntlid);
    assert!(controller.optional_commands.has(OptionalCommands::COMPARE));
    assert_eq!((controller.fuses, controller.acwu), (1, 0), "one block");
    let log = target.log(cntlid, LogId::COMMAND_EFFECTS, 0, 4096).expect("a log");
    let effects = CommandEffects::decode(&log).io[usize::from(IoOpcode::COMPARE.0)];
    assert!(effects.has(Effects::SUPPORTED) && !effects.has(Effects::CHANGES_BLOCKS));
    let mut discovery = crate::support::Target::of(Kind::Discovery);
    let cntlid = discovery.enabled("h");
    assert_eq!(discovery.identify_controller(cntlid).fuses, 0);
}

#[test]
fn a_compare_and_the_write_behind_it_are_one_operation() {
    let (_, mut queue) = queue();
    for flags in [IoFlags::NONE, IoFlags::FORCE_UNIT_ACCESS] {
        let held = hold(&mut queue, &first(1));
        assert_eq!((held.operation, held.start, held.data_bytes), (Operation::Compare, 5, 512));
        assert_eq!(queue.take_failed_half(), None);
        let write = fused(FUSE_SECOND, command(IoOpcode::WRITE, 2, 5, 1, flags));
        let request = execute(&mut queue, &write);
        let durable = flags == IoFlags::FORCE_UNIT_ACCESS;
        assert_eq!(request.operation, Operation::CompareAndWrite { durable, compare: held.tag });
        assert_eq!((request.start, request.blocks, request.data_bytes), (5, 1, 512));
        assert_eq!((queue.take_failed_half(), queue.outstanding()), (None, 2));
        assert_eq!(queue.complete(held.tag, Status::SUCCESS).map(|cqe| cqe.cid), Some(1));
        assert_eq!(queue.complete(request.tag, Status::SUCCESS).map(|cqe| cqe.cid), Some(2));
    }
}

/// What can follow a first half, what becomes of it, and what of that first half.
#[test]
fn a_first_half_ends_with_whatever_follows_it() {
    let invalid = Status::INVALID_FIELD.no_retry();
    let missing = Status::MISSING_FUSED.no_retry();
    let unreached = Status::INVALID_NAMESPACE.no_retry();
    let beyond = Status::LBA_OUT_OF_RANGE.no_retry();
    for (what, next, of_next, of_first) in [
        ("another range", fused(FUSE_SECOND, write(2, 6, 1)), Some(invalid), invalid),
        ("another length", fused(FUSE_SECOND, write(2, 5, 2)), Some(invalid), invalid),
        ("another namespace", Sqe { nsid: 2, ..second(2) }, Some(invalid), invalid),
        ("not a write", fused(FUSE_SECOND, read(2, 5, 1)), Some(invalid), Status::FAILED_FUSED),
        (
            "a write without its data",
            Sqe { sgl: Sgl::Transport { length: 0 }, ..second(2) },
            Some(Status::SGL_INVALID_LENGTH.no_retry()),
            Status::FAILED_FUSED,
        ),
        (
            "an identifier in use",
            second(1),
            Some(Status::COMMAND_ID_CONFLICT.no_retry()),
            Status::FAILED_FUSED,
        ),
        ("a read", read(2, 0, 8), None, missing),
        ("a write of no pair", write(2, 5, 1), None, missing),
        ("a bad command", read(2, 1000, 1), Some(beyond), missing),
        ("a bad namespace", Sqe { nsid: 9, ..read(2, 0, 1) }, Some(unreached), missing),
        ("both halves in one", fused(FUSE_MASK, write(2, 5, 1)), Some(invalid), missing),
    ] {
        let (_, mut queue) = queue();
        let held = hold(&mut queue, &first(1));
        match of_next {
            Some(status) => assert_eq!(respond(&mut queue, &next).status, status, "{what}"),
            None => assert_eq!(execute(&mut queue, &next).blocks, u32::from(next.cdw12 as u16) + 1, "{what}"),
        }
        assert_eq!(queue.take_failed_half(), Some((held.tag, of_first)), "{what}");
        assert_eq!(queue.take_failed_half(), None, "{what}");
        assert_eq!(queue.complete(held.tag, of_first).map(|cqe| cqe.cid), Some(1), "{what}");
        // The pair is over.
        assert_eq!(respond(&mut queue, &second(3)).status, missing, "{what}");
    }
}

#[test]
fn a_second_half_without_a_first_one_is_refused() {
    let (_, mut queue) = queue();
    let missing = Status::MISSING_FUSED.no_retry();
    assert_eq!(respond(&mut queue, &second(1)).status, missing);
    execute(&mut queue, &compare(1, 5, 1));
    assert_eq!(respond(&mut queue, &second(2)).status, missing, "a lone Compare is no first half");
    let held = hold(&mut queue, &first(3));
    assert_eq!(hold(&mut queue, &first(4)).start, 5, "a first half behind a first half begins anew");
    assert_eq!(queue.take_failed_half(), Some((held.tag, missing)));
    execute(&mut queue, &second(5));
    assert_eq!(respond(&mut queue, &second(6)).status, missing, "one pair has one second half");
    hold(&mut queue, &first(6));
    assert!(matches!(queue.handle_command(&fabrics::disconnect(7)), Ok(Action::Disconnect(_))));
    assert!(matches!(queue.take_failed_half(), Some((_, status)) if status == missing));
}

#[test]
fn a_first_half_that_is_refused_takes_the_second_one_with_it() {
    let (_, mut queue) = queue();
    for (what, sqe, status) in [
        ("no Compare", fused(FUSE_FIRST, read(1, 5, 1)), Status::INVALID_FIELD),
        ("a write first", fused(FUSE_FIRST, write(1, 5, 1)), Status::INVALID_FIELD),
        ("more than is atomic", fused(FUSE_FIRST, compare(1, 5, 2)), Status::ATOMIC_WRITE_UNIT_EXCEEDED),
        ("no such block", fused(FUSE_FIRST, compare(1, 1000, 1)), Status::LBA_OUT_OF_RANGE),
    ] {
        assert_eq!(respond(&mut queue, &sqe).status, status.no_retry(), "{what}");
        assert_eq!(respond(&mut queue, &second(2)).status, Status::FAILED_FUSED, "{what}");
        assert_eq!(respond(&mut queue, &second(2)).status, Status::MISSING_FUSED.no_retry(), "{what}");
    }
    // The transport refuses one half or the other.
    queue.refuse(&first(1), Status::SGL_INVALID_TYPE).expect("room");
    assert_eq!(respond(&mut queue, &second(2)).status, Status::FAILED_FUSED);
    let held = hold(&mut queue, &first(1));
    queue.refuse(&second(2), Status::SGL_INVALID_TYPE).expect("room");
    assert_eq!(queue.take_failed_half(), Some((held.tag, Status::FAILED_FUSED)));
    // The data of the first half are no good.
    let held = hold(&mut queue, &first(3));
    queue.complete(held.tag, Status::TRANSIENT_TRANSPORT_ERROR).expect("outstanding");
    assert_eq!(respond(&mut queue, &second(4)).status, Status::FAILED_FUSED);
    assert_eq!(queue.take_failed_half(), None, "it is completed already");
    // What is completed later does not concern a pair.
    let other = execute(&mut queue, &read(5, 0, 1));
    hold(&mut queue, &first(6));
    queue.complete(other.tag, Status::SUCCESS).expect("outstanding");
    execute(&mut queue, &second(7));
}

#[test]
fn what_changes_between_the_halves_of_a_pair_counts() {
    let (mut target, mut queue) = queue();
    let now = target.now;
    let held = hold(&mut queue, &first(1));
    target.subsystem.set_reach(now, Node(0), Reach::Unreachable);
    refresh(&mut target, &mut queue);
    assert_eq!(respond(&mut queue, &second(2)).status, Status::FAILED_FUSED);
    assert_eq!(queue.take_failed_half(), Some((held.tag, Status::ANA_INACCESSIBLE)));
    queue.complete(held.tag, Status::ANA_INACCESSIBLE);
    target.subsystem.set_reach(now, Node(0), Reach::Serving);
    refresh(&mut target, &mut queue);
    let held = hold(&mut queue, &first(1));
    target.subsystem.set_volume(1, Volume { write_protected: true, ..volume(1) }).expect("good");
    refresh(&mut target, &mut queue);
    assert_eq!(respond(&mut queue, &second(2)).status, Status::NAMESPACE_WRITE_PROTECTED.no_retry());
    assert_eq!(queue.take_failed_half(), Some((held.tag, Status::FAILED_FUSED)));
    queue.complete(held.tag, Status::FAILED_FUSED);
    let held = hold(&mut queue, &first(1));
    target.subsystem.set_volume(1, Volume { hosts: only(&["x"]), ..volume(1) }).expect("good");
    refresh(&mut target, &mut queue);
    assert_eq!(respond(&mut queue, &second(2)).status, Status::FAILED_FUSED);
    assert_eq!(queue.take_failed_half(), Some((held.tag, Status::INVALID_NAMESPACE.no_retry())));
}
