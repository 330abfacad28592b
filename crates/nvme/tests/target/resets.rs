//! What was outstanding on an admin queue whose controller is reset or shut down: it is not
//! answered, and neither its entry nor its identifier is lost. NVMe Base, "Controller Level Reset".

use crate::support::{Target, config, connect_command, volume};
use nvme::controller::{CloseReason, Config, EndRequest, Kind, Node, Output, QueueId};
use nvme::end_controller::{EndController, Instance};
use nvme::fabrics::{CNTLID_DYNAMIC, Property};
use nvme::feature::{Event, Feature, FeatureId};
use nvme::identify::AsyncEvents;
use nvme::register::{CC, Configuration, Shutdown};
use nvme::{AdminOpcode, Sgl, Sqe, Status};

/// The entries of the admin queues.
const ENTRIES: u16 = 4;
const ENABLE: Configuration = Configuration::ENABLE;
/// The identifiers of the commands that set CC: to disable the controller, and to enable it.
const DISABLED: u16 = 70;
const ENABLED: u16 = 71;

/// A controller with an admin queue of few entries. Connect and Property Set have used two.
fn enabled(target: &mut Target, host: &str) -> u16 {
    let connect = connect_command(0, ENTRIES - 1, 5000);
    let cntlid = target.try_connect(host, CNTLID_DYNAMIC, &connect).expect("accepted").id.cntlid;
    target.configure(cntlid, ENABLE);
    target.outputs();
    cntlid
}

fn send(target: &mut Target, cntlid: u16, sqe: Sqe) -> Vec<Output> {
    target.subsystem.handle_command(target.now, cntlid, &sqe, &[]);
    target.outputs()
}

fn set(target: &mut Target, cntlid: u16, cid: u16, configuration: Configuration) -> Vec<Output> {
    send(target, cntlid, Sqe { cid, ..Property::set(0, CC, configuration.0) })
}

/// Sends a request for events, which has to wait.
fn wait(target: &mut Target, cntlid: u16, cid: u16) {
    assert_eq!(send(target, cntlid, Sqe::new(AdminOpcode::ASYNC_EVENT_REQUEST.0, cid, 0)), [], "{cid}");
}

/// The identifiers of commands that end: whether they are answered, in this order.
fn ends(outputs: &[Output]) -> Vec<(u16, bool)> {
    let end = |output: &Output| match output {
        Output::Respond { cqe, .. } => Some((cqe.cid, true)),
        Output::Dropped { cid, .. } => Some((*cid, false)),
        _ => None,
    };
    outputs.iter().filter_map(end).collect()
}

fn statuses(outputs: &[Output]) -> Vec<(u16, Status)> {
    let answer = |output: &Output| match output {
        Output::Respond { cqe, .. } => Some((cqe.cid, cqe.status)),
        _ => None,
    };
    outputs.iter().filter_map(answer).collect()
}

/// Disables and enables the controller: these commands are dropped, and none else is answered.
fn toggle(target: &mut Target, cntlid: u16, dropped: &[u16]) {
    let outputs = set(target, cntlid, DISABLED, Configuration::default());
    let expected = dropped.iter().map(|cid| (*cid, false)).chain([(DISABLED, true)]);
    assert_eq!(ends(&outputs), expected.collect::<Vec<_>>());
    assert_eq!(ends(&set(target, cntlid, ENABLED, ENABLE)), [(ENABLED, true)]);
}

/// The queue has room for as many commands as it has entries, and for no more.
fn assert_has_all_entries(target: &mut Target, cntlid: u16) {
    (0..ENTRIES).for_each(|cid| wait(target, cntlid, cid));
    let outputs = send(target, cntlid, Sqe::new(AdminOpcode::KEEP_ALIVE.0, ENTRIES, 0));
    let close = Output::Close { queue: QueueId { cntlid, qid: 0 }, reason: CloseReason::Violation };
    assert!(outputs.contains(&close), "{outputs:?}");
}

#[test]
fn requests_for_events_of_before_a_reset_take_no_entry_and_are_not_answered() {
    let mut target = Target::of(Kind::Io);
    let cntlid = enabled(&mut target, "h");
    let mut taken = 2;
    for round in 0..5 * ENTRIES {
        let requests = [100, 101, 102].map(|cid| cid + 10 * round);
        requests.into_iter().for_each(|cid| wait(&mut target, cntlid, cid));
        toggle(&mut target, cntlid, &requests);
        // Also of what was dropped the entries are free.
        taken += 3 + 2 + 1;
        let (cqe, _) = target.command(cntlid, Sqe::new(AdminOpcode::KEEP_ALIVE.0, 0, 0), &[]);
        assert_eq!((cqe.status, cqe.sqhd), (Status::SUCCESS, taken % ENTRIES));
    }
    let wanted = Feature::set(1, FeatureId::ASYNC_EVENTS, AsyncEvents::NAMESPACE_CHANGED.0, Sgl::NONE);
    assert_eq!(statuses(&send(&mut target, cntlid, wanted)), [(1, Status::SUCCESS)]);
    wait(&mut target, cntlid, 2);
    target.subsystem.set_volume(2, volume(2)).expect("a good volume");
    let outputs = target.outputs();
    assert_eq!(ends(&outputs), [(2, true)]);
    let event = Event::NAMESPACE_CHANGED.result();
    let is_event = |output: &Output| matches!(output, Output::Respond { cqe, .. } if cqe.result == event);
    assert!(outputs.iter().any(is_event));
    assert_has_all_entries(&mut target, cntlid);
}

#[test]
fn a_shutdown_drops_what_is_outstanding_as_a_reset_does() {
    let mut target = Target::of(Kind::Io);
    let cntlid = enabled(&mut target, "h");
    for round in 0..2 * ENTRIES {
        let requests = [100, 101].map(|cid| cid + 10 * round);
        requests.into_iter().for_each(|cid| wait(&mut target, cntlid, cid));
        let outputs = set(&mut target, cntlid, 9, ENABLE.with_shutdown(Shutdown::Normal));
        assert_eq!(ends(&outputs), [(requests[0], false), (requests[1], false), (9, true)]);
        toggle(&mut target, cntlid, &[]);
    }
    assert_has_all_entries(&mut target, cntlid);
}

#[test]
fn a_reset_that_waits_for_io_queues_drops_nothing_twice() {
    let mut target = Target::of(Kind::Io);
    let cntlid = enabled(&mut target, "h");
    target.connect_io("h", cntlid, 1);
    wait(&mut target, cntlid, 5);
    toggle(&mut target, cntlid, &[5]);
    toggle(&mut target, cntlid, &[]);
    let early = send(&mut target, cntlid, Sqe::new(AdminOpcode::ASYNC_EVENT_REQUEST.0, 6, 0));
    assert_eq!(statuses(&early), [(6, Status::COMMAND_SEQUENCE_ERROR.no_retry())]);
    target.queue_closed(cntlid, 1);
    assert_eq!(ends(&target.outputs()), []);
    assert_has_all_entries(&mut target, cntlid);
}

#[test]
fn the_end_of_other_controllers_is_not_told_to_a_host_that_has_reset_its_own() {
    let mut target = Target::of(Kind::Io);
    let old = target.enabled("h");
    let named = Instance::of(&target.identify_controller(old)).expect("the command is there");
    target.connect_io("h", old, 1);
    let asker = enabled(&mut target, "h");
    for round in 0..5 * ENTRIES {
        let outputs = send(&mut target, asker, Sqe { cid: round, ..EndController::One(named).command(0) });
        assert_eq!(ends(&outputs), []);
        toggle(&mut target, asker, &[round]);
    }
    // The same identifier, for a command of now.
    let outputs = send(&mut target, asker, Sqe { cid: 0, ..EndController::One(named).command(0) });
    assert_eq!(ends(&outputs), []);
    target.queue_closed(old, 0);
    target.queue_closed(old, 1);
    assert_eq!(statuses(&target.outputs()), [(0, Status::SUCCESS)], "which is answered once");
    assert_has_all_entries(&mut target, asker);
}

#[test]
fn what_the_other_node_was_asked_before_a_reset_is_bounded_and_not_answered() {
    let here = Config { is_split: true, cntlids: [(Node(0), 1..=100)].into(), ..config(Kind::Io) };
    let mut target = Target::new(here);
    let cntlid = enabled(&mut target, "h");
    let command = |cid| Sqe { cid, ..EndController::One(Instance { node: 1, number: 5 }).command(0) };
    let mut asked = Vec::new();
    for round in 0..16 {
        match &send(&mut target, cntlid, command(round))[..] {
            [Output::AskOther(EndRequest { id, .. })] => asked.push(*id),
            other => panic!("{other:?}"),
        }
        toggle(&mut target, cntlid, &[round]);
    }
    let refused = send(&mut target, cntlid, command(16));
    assert_eq!(statuses(&refused), [(16, Status::COMMAND_INTERRUPTED)]);
    for (id, status) in asked.into_iter().zip([Status::SUCCESS, Status::COMMAND_INTERRUPTED].iter().cycle()) {
        target.subsystem.handle_other_answered(id, *status);
        assert_eq!(target.outputs(), []);
    }
    assert_eq!(ends(&send(&mut target, cntlid, command(17))), [], "it is asked again");
    toggle(&mut target, cntlid, &[17]);
    target.queue_closed(cntlid, 0);
    assert_eq!(target.subsystem.controllers().count(), 0);
}

#[test]
fn a_change_of_persistence_of_before_a_reset_is_not_answered() {
    let mut target = Target::new(Config { reservations: true, ..config(Kind::Io) });
    target.subsystem.set_volume(1, volume(1)).expect("a good volume");
    let cntlid = enabled(&mut target, "h");
    let id = FeatureId::RESERVATION_PERSISTENCE;
    let persist = |cid, value| {
        let sgl = Sgl::Transport { length: 0 };
        Sqe { cid, nsid: 1, ..Feature::set(0, id, value, sgl) }
    };
    let read = |target: &mut Target| {
        let sqe = Feature::get(0, id, 0, Sgl::Transport { length: 0 });
        target.command(cntlid, Sqe { nsid: 1, ..sqe }, &[]).0.result
    };
    assert!(matches!(send(&mut target, cntlid, persist(20, 1))[..], [Output::Save { nsid: 1, .. }]));
    // The next ones wait for their turn.
    assert_eq!(send(&mut target, cntlid, persist(21, 0)), []);
    toggle(&mut target, cntlid, &[20, 21]);
    for _ in 0..5 * ENTRIES {
        assert_eq!(send(&mut target, cntlid, persist(20, 0)), []);
        toggle(&mut target, cntlid, &[20]);
    }
    let waiting = format!("{:?}", target.subsystem).matches("ask: Persistence").count();
    assert_eq!(waiting, 0, "and nothing is kept of them");
    target.subsystem.handle_saved(1, true);
    let outputs = target.outputs();
    assert_eq!(ends(&outputs), []);
    assert!(outputs.iter().all(|output| !matches!(output, Output::Save { .. })), "{outputs:?}");
    assert_eq!(read(&mut target), 1, "only what had begun was executed");
    // The same identifier, for a command of now.
    assert!(matches!(send(&mut target, cntlid, persist(20, 0))[..], [Output::Save { nsid: 1, .. }]));
    target.subsystem.handle_saved(1, true);
    assert_eq!(statuses(&target.outputs()), [(20, Status::SUCCESS)]);
    assert_eq!(read(&mut target), 0);
    assert_has_all_entries(&mut target, cntlid);
}

#[test]
fn each_reset_and_each_shutdown_is_counted() {
    let mut target = Target::of(Kind::Io);
    let cntlid = enabled(&mut target, "h");
    assert_eq!(target.subsystem.resets(cntlid), 0);
    toggle(&mut target, cntlid, &[]);
    set(&mut target, cntlid, 1, ENABLE);
    assert_eq!(target.subsystem.resets(cntlid), 1);
    set(&mut target, cntlid, 1, ENABLE.with_shutdown(Shutdown::Normal));
    assert_eq!(target.subsystem.resets(cntlid), 2);
}
