//! Two nodes at one machine: the same volumes at the ports of both.

use crate::support::{TCP, Target, config, connect_command, volume};
use nvme::controller::{Accepted, CloseReason, Config, Kind, Node, Port, QueueId, Reach, Refusal, Volume};
use nvme::end_controller::{EndController, Instance};
use nvme::fabrics::CNTLID_DYNAMIC;
use nvme::feature::{Event, FeatureId};
use nvme::identify::{Cns, Namespace};
use nvme::log_page::{AnaLog, AnaState, LogId};
use nvme::register::Configuration;

/// The ports of the second node.
const SECOND: Port = Port { node: Node(1), ..TCP };

/// Volume 1 is the first node's, volume 2 the second's.
fn target() -> Target {
    let mut target = Target::new(config(Kind::Io));
    target.subsystem.set_volume(1, volume(1)).expect("good");
    target.subsystem.set_volume(2, Volume { owner: Node(1), ..volume(2) }).expect("good");
    target
}

fn connect(target: &mut Target, port: Port, cntlid: u16, qid: u16) -> Result<Accepted, Refusal> {
    let data = target.data("h", cntlid);
    let kato_ms = if qid == 0 { 5000 } else { 0 };
    target.subsystem.connect(target.now, port, 7, &connect_command(qid, 31, kato_ms), &data)
}

fn enabled(target: &mut Target, port: Port) -> Accepted {
    let accepted = connect(target, port, CNTLID_DYNAMIC, 0).expect("accepted");
    target.configure(accepted.id.cntlid, Configuration::ENABLE);
    accepted
}

/// The groups: identifier, state, namespaces.
fn groups(target: &mut Target, cntlid: u16) -> Vec<(u32, AnaState, Vec<u32>)> {
    let data = target.log(cntlid, LogId::ANA, 0, 4096).expect("the log");
    let log = AnaLog::decode(&data).expect("a log");
    log.groups.into_iter().map(|group| (group.id, group.state, group.nsids)).collect()
}

#[test]
fn each_node_has_identifiers_of_its_own_and_the_best_way_to_what_it_owns() {
    let mut target = target();
    let [first, second] = [TCP, SECOND].map(|port| enabled(&mut target, port));
    assert!((1..=100).contains(&first.id.cntlid) && (201..=300).contains(&second.id.cntlid));
    let states =
        |accepted: &Accepted| accepted.view.namespaces().iter().map(|one| one.ana).collect::<Vec<_>>();
    assert_eq!(states(&first), [AnaState::OPTIMIZED, AnaState::NON_OPTIMIZED]);
    assert_eq!(states(&second), [AnaState::NON_OPTIMIZED, AnaState::OPTIMIZED]);
    let (best, other) = (AnaState::OPTIMIZED, AnaState::NON_OPTIMIZED);
    assert_eq!(groups(&mut target, first.id.cntlid), [(1, best, vec![1]), (2, other, vec![2])]);
    assert_eq!(groups(&mut target, second.id.cntlid), [(1, other, vec![1]), (2, best, vec![2])]);
    // A controller stays at the ports of its node, and a node that is not here has none.
    assert!(connect(&mut target, SECOND, first.id.cntlid, 1).is_err());
    assert!(connect(&mut target, TCP, first.id.cntlid, 1).is_ok());
    assert!(connect(&mut target, Port { node: Node(2), ..TCP }, CNTLID_DYNAMIC, 0).is_err());
}

#[test]
fn hosts_learn_by_an_event_of_ana_alone_that_a_volume_has_another_owner() {
    let mut target = target();
    let [first, second] = [TCP, SECOND].map(|port| enabled(&mut target, port).id.cntlid);
    for cntlid in [first, second] {
        let wanted = Event::ANA_CHANGED.mask().with(Event::NAMESPACE_CHANGED.mask());
        target.set_feature(cntlid, FeatureId::ASYNC_EVENTS, wanted.0).expect("set");
        assert_eq!(target.wait_for_event(cntlid, 90), []);
        assert_eq!(target.wait_for_event(cntlid, 91), []);
    }
    assert!(target.subsystem.set_owner(target.now, 1, Node(1), Reach::Serving));
    let results: Vec<u64> = target.answers().iter().map(|(cqe, _)| cqe.result).collect();
    assert_eq!(results, [Event::ANA_CHANGED.result(); 2]);
    let (best, other) = (AnaState::OPTIMIZED, AnaState::NON_OPTIMIZED);
    assert_eq!(groups(&mut target, first), [(1, best, vec![]), (2, other, vec![1, 2])]);
    assert_eq!(groups(&mut target, second), [(1, other, vec![]), (2, best, vec![1, 2])]);
    let data = target.identify(first, Cns::NAMESPACE, 1).expect("a namespace");
    assert_eq!(Namespace::decode(&data).expect("a structure").ana_group, 2);
    // Nothing changes, so nothing is told.
    assert!(
        !target.subsystem.set_owner(target.now, 1, Node(1), Reach::Serving)
            && !target.subsystem.set_owner(target.now, 7, Node(1), Reach::Serving)
    );
    assert_eq!(target.outputs(), []);
}

#[test]
fn a_controller_of_one_node_is_ended_by_way_of_the_other() {
    let mut target = target();
    let [first, second] = [TCP, SECOND].map(|port| enabled(&mut target, port).id.cntlid);
    let known = target.identify_controller(first);
    let instance = Instance::of(&known).expect("an instance");
    let asked = Instance::of(&target.identify_controller(second)).expect("an instance");
    assert_eq!(asked.node, instance.node, "a host asks where this is the same");
    let sqe = EndController::One(instance).command(40);
    target.subsystem.handle_command(target.now, second, &sqe, &[]);
    let admin = QueueId { cntlid: first, qid: 0 };
    assert_eq!(target.closed(), [(admin, CloseReason::Superseded)]);
    target.queue_closed(first, 0);
    let answers = target.outputs().into_iter().filter_map(|output| match output {
        nvme::controller::Output::Respond { cntlid, cqe, .. } => {
            Some((cntlid, cqe.cid, cqe.status.is_success()))
        }
        _ => None,
    });
    assert_eq!(answers.collect::<Vec<_>>(), [(second, 40, true)]);
}

/// A group of ANA has one state, so a volume that moves alone leaves the group of its owner.
#[test]
fn a_volume_that_is_away_is_in_a_group_of_its_own_and_others_stay_as_they_are() {
    let mut target = target();
    target.subsystem.set_volume(3, volume(3)).expect("good");
    let [first, second] = [TCP, SECOND].map(|port| enabled(&mut target, port).id.cntlid);
    let most = target.identify_controller(first);
    assert_eq!((most.ana_groups, most.ana_group_max), (5, 5));
    let (best, other) = (AnaState::OPTIMIZED, AnaState::NON_OPTIMIZED);
    let mut changes = 0;
    for (reach, group, state) in [
        (Reach::Moving, 3, AnaState::CHANGE),
        (Reach::Unreachable, 4, AnaState::INACCESSIBLE),
        (Reach::Lost, 5, AnaState::PERSISTENT_LOSS),
    ] {
        assert!(target.subsystem.set_owner(target.now, 1, Node(0), reach));
        let expected = |one, two| vec![(1, one, vec![3]), (2, two, vec![2]), (group, state, vec![1])];
        assert_eq!(groups(&mut target, first), expected(best, other));
        assert_eq!(groups(&mut target, second), expected(other, best));
        let data = target.identify(second, Cns::NAMESPACE, 1).expect("a namespace");
        assert_eq!(Namespace::decode(&data).expect("a structure").ana_group, group);
        let data = target.log(first, LogId::ANA, 0, 4096).expect("the log");
        let log = AnaLog::decode(&data).expect("a log");
        assert!(log.changes > changes && log.groups[2].changes > 0);
        changes = log.changes;
    }
    // What was said to be lost for good is nothing else on the same controller.
    target.outputs();
    assert!(target.subsystem.set_owner(target.now, 1, Node(1), Reach::Serving));
    let admin = |cntlid| (QueueId { cntlid, qid: 0 }, CloseReason::LossOver);
    assert_eq!(target.closed(), [admin(first), admin(second)]);
    let again = enabled(&mut target, TCP);
    assert_eq!(groups(&mut target, again.id.cntlid), [(1, best, vec![3]), (2, other, vec![1, 2])]);
}

/// Where the nodes are two processes, commands are forwarded to the owner.
#[test]
fn a_node_that_is_a_process_of_its_own_is_another_way_to_what_the_other_owns() {
    let split = Config { is_split: true, cntlids: [(Node(0), 1..=100)].into(), ..config(Kind::Io) };
    let mut target = Target::new(split);
    target.subsystem.set_volume(1, volume(1)).expect("good");
    target.subsystem.set_volume(2, Volume { owner: Node(1), ..volume(2) }).expect("good");
    let accepted = enabled(&mut target, TCP);
    let (best, other) = (AnaState::OPTIMIZED, AnaState::NON_OPTIMIZED);
    let states: Vec<AnaState> = accepted.view.namespaces().iter().map(|one| one.ana).collect();
    assert_eq!(states, [best, other]);
    let cntlid = accepted.id.cntlid;
    assert_eq!(groups(&mut target, cntlid), [(1, best, vec![1]), (2, other, vec![2])]);
    target.subsystem.set_owner(target.now, 1, Node(1), Reach::Serving);
    assert_eq!(groups(&mut target, cntlid), [(1, best, vec![]), (2, other, vec![1, 2])]);
}
