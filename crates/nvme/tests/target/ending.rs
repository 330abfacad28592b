//! End Controller: answered when nothing of the named controllers is left, and only for their host.

use crate::support::Target;
use nvme::controller::{CloseReason, Kind, Output, QueueId};
use nvme::end_controller::{EndController, Instance};
use nvme::{Sqe, Status};

fn instance(target: &mut Target, cntlid: u16) -> Instance {
    Instance::of(&target.identify_controller(cntlid)).expect("the command is there")
}

fn ask(target: &mut Target, cntlid: u16, cid: u16, asked: EndController) -> Vec<Output> {
    let sqe = Sqe { cid, ..asked.command(0) };
    target.subsystem.handle_command(target.now, cntlid, &sqe, &[]);
    target.outputs()
}

/// The identifiers and statuses of the answers.
fn answers(outputs: &[Output]) -> Vec<(u16, Status)> {
    let answer = |output: &Output| match output {
        Output::Respond { cqe, .. } => Some((cqe.cid, cqe.status)),
        _ => None,
    };
    outputs.iter().filter_map(answer).collect()
}

#[test]
fn the_answer_waits_until_every_queue_of_the_old_controller_is_closed() {
    let mut target = Target::of(Kind::Io);
    target.subsystem.set_instance_base(1 << 40);
    let old = target.enabled("a");
    let named = instance(&mut target, old);
    assert_eq!(named, Instance { node: 0, number: 1 << 40 });
    target.connect_io("a", old, 1);
    let new = target.enabled("a");
    target.outputs();

    let outputs = ask(&mut target, new, 77, EndController::One(named));
    let close = |qid| {
        let queue = QueueId { cntlid: old, qid };
        Output::Close { queue, reason: CloseReason::Superseded }
    };
    assert_eq!(outputs, [close(1), close(0)]);
    target.queue_closed(old, 0);
    assert_eq!(answers(&target.outputs()), [], "the I/O queue still executes something");
    target.queue_closed(old, 1);
    let outputs = target.outputs();
    assert!(outputs.contains(&Output::Released { cntlid: old }));
    assert_eq!(answers(&outputs), [(77, Status::SUCCESS)]);
    // What is gone is finished.
    let outputs = ask(&mut target, new, 78, EndController::One(named));
    assert_eq!(answers(&outputs), [(78, Status::SUCCESS)]);
}

#[test]
fn older_ends_all_earlier_controllers_of_the_host_and_no_other() {
    let mut target = Target::of(Kind::Io);
    let (first, other) = (target.enabled("a"), target.enabled("bb"));
    let (second, asker, newer) = (target.enabled("a"), target.enabled("a"), target.enabled("a"));
    target.outputs();
    let outputs = ask(&mut target, asker, 5, EndController::Older);
    assert_eq!(answers(&outputs), []);
    target.queue_closed(first, 0);
    assert_eq!(answers(&target.outputs()), []);
    target.queue_closed(second, 0);
    assert_eq!(answers(&target.outputs()), [(5, Status::SUCCESS)]);
    let left: Vec<u16> = target.subsystem.controllers().map(|(cntlid, ..)| cntlid).collect();
    assert_eq!(left, [other, asker, newer]);
}

#[test]
fn controllers_of_others_and_of_other_nodes_and_the_own_one_are_refused() {
    let mut target = Target::of(Kind::Io);
    let (own, other) = (target.enabled("a"), target.enabled("bb"));
    let (of_own, of_other) = (instance(&mut target, own), instance(&mut target, other));
    let elsewhere = Instance { node: 1, ..of_other };
    for (cid, named) in [(1, of_own), (2, of_other), (3, elsewhere)] {
        let outputs = ask(&mut target, own, cid, EndController::One(named));
        assert_eq!(answers(&outputs), [(cid, Status::INVALID_FIELD.no_retry())]);
        assert_eq!(target.subsystem.controllers().count(), 2);
    }
}

#[test]
fn an_asker_that_goes_is_not_answered_and_requests_are_bounded() {
    let mut target = Target::of(Kind::Io);
    let old = target.enabled("a");
    let named = instance(&mut target, old);
    target.connect_io("a", old, 1);
    let asker = target.enabled("a");
    target.outputs();
    for cid in 0..16 {
        assert_eq!(answers(&ask(&mut target, asker, cid, EndController::One(named))), []);
    }
    let outputs = ask(&mut target, asker, 16, EndController::One(named));
    assert_eq!(answers(&outputs), [(16, Status::COMMAND_INTERRUPTED)]);
    target.queue_closed(asker, 0);
    target.queue_closed(old, 0);
    target.queue_closed(old, 1);
    assert_eq!(answers(&target.outputs()), []);
}
