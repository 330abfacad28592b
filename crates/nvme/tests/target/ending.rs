//! End Controller: answered when nothing of the named controllers is left, and only for their host.

use crate::support::{Target, config, host_id, nqn};
use nvme::controller::{CloseReason, Config, EndRequest, Kind, Node, Output, QueueId};
use nvme::cross_reset::Impacted;
use nvme::end_controller::{EndController, Instance};
use nvme::log_page::LogId;
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

fn reset(target: &mut Target, cntlid: u16, cid: u16, impacted: Impacted) -> Vec<Output> {
    target.subsystem.handle_command(target.now, cntlid, &impacted.command(cid), &[]);
    target.outputs()
}

fn results(outputs: &[Output]) -> Vec<(u16, Status, u64)> {
    let result = |output: &Output| match output {
        Output::Respond { cqe, .. } => Some((cqe.cid, cqe.status, cqe.result)),
        _ => None,
    };
    outputs.iter().filter_map(result).collect()
}

#[test]
fn a_cross_controller_reset_is_completed_when_the_impacted_controller_is_gone() {
    let mut target = Target::of(Kind::Io);
    target.subsystem.set_instance_base(1 << 40);
    let (old, asker, other) = (target.enabled("a"), target.enabled("a"), target.enabled("bb"));
    let [impacted, own, of_other] = [old, asker, other]
        .map(|cntlid| Impacted::of(&target.identify_controller(cntlid)).expect("the command is there"));
    assert_eq!((impacted.cntlid, impacted.random), (old, 1 << 40));
    target.connect_io("a", old, 1);
    target.outputs();
    let outputs = reset(&mut target, asker, 5, impacted);
    assert_eq!((results(&outputs), outputs.len()), (vec![], 2));
    target.queue_closed(old, 0);
    assert_eq!(results(&target.outputs()), []);
    target.queue_closed(old, 1);
    assert_eq!(results(&target.outputs()), [(5, Status::SUCCESS, 1)]);
    // It is over for one that is gone, also if its identifier is another controller's by now.
    assert_eq!(results(&reset(&mut target, asker, 6, impacted)), [(6, Status::SUCCESS, 1)]);

    let invalid = Status::INVALID_FIELD.no_retry();
    for wrong in [
        own,
        of_other,
        Impacted { uniquifier: impacted.uniquifier.wrapping_add(1), ..impacted },
        Impacted { cntlid: 150, ..impacted },
        Impacted { cntlid: old, ..of_other },
    ] {
        assert_eq!(results(&reset(&mut target, asker, 7, wrong)), [(7, invalid, 0)], "{wrong:?}");
    }
    let log = target.log(asker, LogId::CROSS_CONTROLLER_RESET, 0, 8);
    assert_eq!(log, Ok(vec![0; 8]), "no reset is under way");
}

#[test]
fn resets_of_one_controller_are_bounded_and_those_of_the_other_process_are_asked_of_it() {
    let mut target = split();
    let asker = target.enabled("a");
    let there = |number: u64| Impacted {
        cntlid: 201,
        uniquifier: u8::try_from(number % 255 + 1).expect("a byte"),
        random: number,
    };
    for cid in 0..16 {
        let outputs = reset(&mut target, asker, cid, there(u64::from(cid)));
        let number = u64::from(cid);
        let [request] = asked_elsewhere(&outputs).try_into().expect("one request");
        assert_eq!(request.ends, EndController::One(Instance { node: 1, number }));
    }
    let limit = Status::CROSS_RESET_LIMIT_EXCEEDED;
    assert_eq!(results(&reset(&mut target, asker, 16, there(16))), [(16, limit, 0)]);
    target.subsystem.handle_other_answered((1 << 40) + 3, Status::SUCCESS);
    assert_eq!(results(&target.outputs()), [(3, Status::SUCCESS, 1)]);
}

fn split() -> Target {
    let here = Config { is_split: true, cntlids: [(Node(0), 1..=100)].into(), ..config(Kind::Io) };
    let mut target = Target::new(here);
    target.subsystem.set_instance_base(1 << 40);
    target
}

/// What the other node is asked.
fn asked_elsewhere(outputs: &[Output]) -> Vec<EndRequest> {
    let asked = |output: &Output| match output {
        Output::AskOther(request) => Some(request.clone()),
        _ => None,
    };
    outputs.iter().filter_map(asked).collect()
}

/// What the other node is told.
fn told(outputs: &[Output]) -> Vec<(u64, Status)> {
    let told = |output: &Output| match output {
        Output::AnswerOther { id, status } => Some((*id, *status)),
        _ => None,
    };
    outputs.iter().filter_map(told).collect()
}

/// The other node is a process of its own: it is asked, and once it has ended, and what it had was
/// taken, it is known that its controllers are finished.
#[test]
fn controllers_of_another_process_are_finished_when_it_says_so_or_has_ended() {
    let mut target = split();
    let asker = target.enabled("a");
    let ends = |number| EndController::One(Instance { node: 1, number });
    let outputs = ask(&mut target, asker, 1, ends(500));
    let [request] = asked_elsewhere(&outputs).try_into().expect("one request");
    assert_eq!((request.id, request.ends, request.host_id), (1 << 40, ends(500), host_id("a")));
    assert_eq!(answers(&outputs), []);
    target.subsystem.handle_other_answered(request.id + 1, Status::SUCCESS);
    assert_eq!(answers(&target.outputs()), [], "another request");
    target.subsystem.handle_other_answered(request.id, Status::SUCCESS);
    assert_eq!(answers(&target.outputs()), [(1, Status::SUCCESS)]);
    target.subsystem.handle_other_answered(request.id, Status::SUCCESS);
    assert_eq!(answers(&target.outputs()), [], "it was answered");

    for (cid, refusal) in [(2, Status::COMMAND_INTERRUPTED), (3, Status::INVALID_FIELD.no_retry())] {
        let asked = asked_elsewhere(&ask(&mut target, asker, cid, ends(500)));
        target.subsystem.handle_other_answered(asked[0].id, refusal);
        assert_eq!(answers(&target.outputs()), [(cid, refusal)]);
    }
    target.subsystem.set_finished(1, 501);
    assert_eq!(answers(&ask(&mut target, asker, 4, ends(500))), [(4, Status::SUCCESS)]);
    assert_eq!(asked_elsewhere(&ask(&mut target, asker, 5, ends(501))).len(), 1, "of a later process");
}

#[test]
fn all_older_controllers_of_a_host_end_at_both_nodes() {
    let mut target = split();
    let (old, asker) = (target.enabled("a"), target.enabled("a"));
    target.outputs();
    let outputs = ask(&mut target, asker, 9, EndController::Older);
    let [request] = asked_elsewhere(&outputs).try_into().expect("one request");
    assert_eq!(request.ends, EndController::Older);
    // Whichever is last.
    target.queue_closed(old, 0);
    assert_eq!(answers(&target.outputs()), []);
    target.subsystem.handle_other_answered(request.id, Status::SUCCESS);
    assert_eq!(answers(&target.outputs()), [(9, Status::SUCCESS)]);

    let old = target.enabled("b");
    let asker = target.enabled("b");
    target.outputs();
    let [request] =
        asked_elsewhere(&ask(&mut target, asker, 9, EndController::Older)).try_into().expect("one request");
    target.subsystem.handle_other_answered(request.id, Status::SUCCESS);
    assert_eq!(answers(&target.outputs()), []);
    target.queue_closed(old, 0);
    assert_eq!(answers(&target.outputs()), [(9, Status::SUCCESS)]);
}

#[test]
fn the_other_node_ends_controllers_here_as_their_host_would() {
    let mut target = split();
    let (one, two, other) = (target.enabled("a"), target.enabled("a"), target.enabled("bb"));
    let named = [one, other].map(|cntlid| instance(&mut target, cntlid));
    target.outputs();
    let mut id = 70;
    let mut ends = |target: &mut Target, ends| {
        id += 1;
        let (host, host_id) = (nqn("a"), host_id("a"));
        target.subsystem.end_for_other(&EndRequest { id, host, host_id, ends });
        (id, target.outputs())
    };
    let invalid = Status::INVALID_FIELD.no_retry();
    // The controller of another host, and that of another node.
    for refused in [named[1], Instance { node: 1, ..named[0] }] {
        let (id, outputs) = ends(&mut target, EndController::One(refused));
        assert_eq!((told(&outputs), outputs.len()), (vec![(id, invalid)], 1));
    }
    let (first, outputs) = ends(&mut target, EndController::One(named[0]));
    assert_eq!(told(&outputs), []);
    target.queue_closed(one, 0);
    assert_eq!(told(&target.outputs()), [(first, Status::SUCCESS)]);
    let (again, outputs) = ends(&mut target, EndController::One(named[0]));
    assert_eq!(told(&outputs), [(again, Status::SUCCESS)], "gone is finished");

    let (all, outputs) = ends(&mut target, EndController::Older);
    let close = QueueId { cntlid: two, qid: 0 };
    assert_eq!(outputs, [Output::Close { queue: close, reason: CloseReason::Superseded }]);
    // Who asked has ended meanwhile.
    let (forgotten, _) = ends(&mut target, EndController::Older);
    target.subsystem.forget_other();
    target.queue_closed(two, 0);
    assert_eq!(told(&target.outputs()), [], "{all} {forgotten}");
    assert!(target.subsystem.controllers().any(|(cntlid, ..)| cntlid == other), "of another host");
}

#[test]
fn the_other_node_has_a_bounded_number_of_requests() {
    let mut target = split();
    target.enabled("a");
    for id in 0..1024 {
        let (host, host_id) = (nqn("a"), host_id("a"));
        target.subsystem.end_for_other(&EndRequest { id, host, host_id, ends: EndController::Older });
    }
    assert_eq!(told(&target.outputs()), []);
    let (host, host_id) = (nqn("a"), host_id("a"));
    target.subsystem.end_for_other(&EndRequest { id: 1024, host, host_id, ends: EndController::Older });
    assert_eq!(told(&target.outputs()), [(1024, Status::COMMAND_INTERRUPTED)]);
}
