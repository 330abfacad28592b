//! The commands of reservations, and what they let other commands do. NVMe Base, "Reservations".

use crate::support::{Target, config, host_id, volume};
use nvme::controller::{Action, Config, IoQueue, Kind, Output, QueueId, Tag, View};
use nvme::feature::{Event, Feature, FeatureId, NotificationMask};
use nvme::identify::{Cns, Namespace, OptionalCommands, RESCAP_ALL};
use nvme::io::{Blocks, DatasetManagement, IoFlags};
use nvme::log_page::{
    CommandEffects, Effects, LogId, ReservationEvent, ReservationNotification, SupportedPages,
};
use nvme::reservation::{
    Acquire, AcquireAction, GetReport, Key, Keys, Persistence, Register, RegisterAction, Release,
    ReleaseAction, Report, ReservationType,
};
use nvme::{Cqe, IoOpcode, NSID_ALL, Sgl, Sqe, Status};
use std::sync::Arc;

const TYPES: [ReservationType; 6] = [
    ReservationType::WRITE_EXCLUSIVE,
    ReservationType::EXCLUSIVE_ACCESS,
    ReservationType::WRITE_EXCLUSIVE_REGISTRANTS,
    ReservationType::EXCLUSIVE_ACCESS_REGISTRANTS,
    ReservationType::WRITE_EXCLUSIVE_ALL,
    ReservationType::EXCLUSIVE_ACCESS_ALL,
];

/// A subsystem and the I/O queues of its hosts: one for each name.
struct World {
    target: Target,
    queues: Vec<(QueueId, IoQueue)>,
    cid: u16,
    /// What the driver was asked for and has not done.
    asked: Vec<Output>,
    answers: Vec<(QueueId, Tag, Result<Vec<u8>, Status>)>,
    /// What hosts were told on their admin queues.
    events: Vec<(u16, u64)>,
}

fn data_of(length: u64) -> Sgl {
    Sgl::Transport { length: length as u32 }
}

fn register(action: RegisterAction, persistence: Persistence) -> Sqe {
    Register { action, ignore_existing_key: false, persistence }.command(0, 1, data_of(16))
}

fn acquire(action: AcquireAction, kind: ReservationType) -> Sqe {
    Acquire { action, ignore_existing_key: false, kind }.command(0, 1, data_of(16))
}

fn keys(current: u64, other: u64) -> Vec<u8> {
    Keys { current, other }.encode().to_vec()
}

impl World {
    fn new(hosts: &[&str]) -> Self {
        let mut target = Target::new(Config { reservations: true, ..config(Kind::Io) });
        target.subsystem.set_volume(1, volume(1)).expect("good");
        let mut queues = Vec::new();
        for host in hosts {
            let cntlid = target.enabled(host);
            let accepted = target.connect_io(host, cntlid, 1);
            queues.push((accepted.id, IoQueue::new(accepted.queue, accepted.view)));
        }
        Self { target, queues, cid: 0, asked: Vec::new(), answers: Vec::new(), events: Vec::new() }
    }

    /// Does what the machine asks for, except that saving and fencing wait.
    fn drive(&mut self) {
        for output in self.target.outputs() {
            match output {
                Output::View { cntlid, view } => self.view(cntlid, &view),
                Output::Respond { cntlid, cqe, .. } => self.events.push((cntlid, cqe.result)),
                Output::Reserved { queue, tag, result } => self.answers.push((queue, tag, result)),
                other => self.asked.push(other),
            }
        }
    }

    fn view(&mut self, cntlid: u16, view: &Arc<View>) {
        let of_controller = self.queues.iter_mut().filter(|(id, _)| id.cntlid == cntlid);
        of_controller.for_each(|(_, queue)| queue.set_view(Arc::clone(view)));
    }

    /// Sends a command of reservations and does nothing that it waits for.
    fn begin(&mut self, host: usize, sqe: Sqe, data: &[u8]) {
        self.cid += 1;
        let (id, queue) = &mut self.queues[host];
        match queue.handle_command(&Sqe { cid: self.cid, ..sqe }).expect("room") {
            Action::Reserve(one) => {
                self.target.subsystem.reserve(*id, one.tag, one.nsid, one.command, data);
            }
            Action::Respond(cqe) => self.answers.push((*id, Tag(0), Err(cqe.status))),
            other => panic!("{other:?}"),
        }
        self.drive();
    }

    /// Sends a command of reservations, and does all that it waits for.
    fn send(&mut self, host: usize, sqe: Sqe, data: &[u8]) -> Result<Vec<u8>, Status> {
        self.begin(host, sqe, data);
        while !self.asked.is_empty() {
            match self.asked.remove(0) {
                Output::Save { nsid, .. } => self.target.subsystem.handle_saved(nsid, true),
                Output::Fence { nsid } => self.target.subsystem.handle_fenced(nsid),
                other => panic!("{other:?}"),
            }
            self.drive();
        }
        let (id, tag, result) = self.answers.pop().expect("an answer");
        self.queues[host].1.complete(tag, Status::SUCCESS);
        assert_eq!((id, self.answers.len()), (self.queues[host].0, 0));
        result
    }

    fn registered(&mut self, host: usize, key: u64) {
        let sqe = register(RegisterAction::REGISTER, Persistence::NO_CHANGE);
        self.send(host, sqe, &keys(0, key)).expect("registered");
    }

    /// What a host is answered to a command that touches blocks: success if it is executed.
    fn try_io(&mut self, host: usize, opcode: IoOpcode) -> Status {
        self.cid += 1;
        let moves = matches!(opcode, IoOpcode::READ | IoOpcode::WRITE | IoOpcode::COMPARE);
        let sgl = data_of(if moves { 512 } else { 0 });
        let sqe = if opcode == IoOpcode::DATASET_MANAGEMENT {
            DatasetManagement { ranges: 1, deallocate: true }.command(self.cid, 1, data_of(16))
        } else {
            Blocks { start: 0, count: 1, flags: IoFlags::NONE }.command(opcode, self.cid, 1, sgl)
        };
        let queue = &mut self.queues[host].1;
        match queue.handle_command(&sqe).expect("room") {
            Action::Execute(request) => queue.complete(request.tag, Status::SUCCESS).expect("there").status,
            Action::Respond(Cqe { status, .. }) => status,
            other => panic!("{other:?}"),
        }
    }

    fn report(&mut self, host: usize) -> Report {
        let sqe = GetReport { bytes: 4096, extended: true }.command(0, 1, data_of(4096));
        Report::decode(&self.send(host, sqe, &[]).expect("a report")).expect("whole")
    }
}

/// NVMe Base, "Command Behavior in the Presence of a Reservation": all types, roles and commands.
#[test]
fn commands_are_refused_as_the_table_says() {
    let reads = [IoOpcode::READ, IoOpcode::COMPARE];
    let writes = [IoOpcode::WRITE, IoOpcode::WRITE_ZEROES, IoOpcode::DATASET_MANAGEMENT, IoOpcode::FLUSH];
    // Whether a registrant writes and reads, and whether a stranger reads.
    let table = [
        (false, true, true),
        (false, false, false),
        (true, true, true),
        (true, true, false),
        (true, true, true),
        (true, true, false),
    ];
    for (kind, (registrant_writes, registrant_reads, stranger_reads)) in TYPES.into_iter().zip(table) {
        let mut world = World::new(&["holder", "registrant", "stranger"]);
        world.registered(0, 1);
        world.registered(1, 2);
        assert!(writes.iter().all(|opcode| world.try_io(2, *opcode).is_success()), "no reservation");
        world.send(0, acquire(AcquireAction::ACQUIRE, kind), &keys(1, 0)).expect("acquired");
        let rights = [(true, true), (registrant_writes, registrant_reads), (false, stranger_reads)];
        for (host, (may_write, may_read)) in rights.into_iter().enumerate() {
            for (opcodes, may) in [(&writes[..], may_write), (&reads[..], may_read)] {
                for opcode in opcodes {
                    let conflict = Status::RESERVATION_CONFLICT.no_retry();
                    let expected = if may { Status::SUCCESS } else { conflict };
                    assert_eq!(world.try_io(host, *opcode), expected, "{kind:?} {host} {opcode:?}");
                }
            }
        }
        let release = Release { action: ReleaseAction::RELEASE, ignore_existing_key: false, kind };
        let release = release.command(0, 1, data_of(8));
        world.send(0, release, &Key { current: 1 }.encode()).expect("released");
        assert!(world.try_io(2, IoOpcode::WRITE).is_success());
    }
}

#[test]
fn who_takes_rights_away_is_answered_when_earlier_commands_have_ended() {
    let mut world = World::new(&["a", "b"]);
    world.registered(0, 1);
    world.begin(0, acquire(AcquireAction::ACQUIRE, ReservationType::WRITE_EXCLUSIVE), &keys(1, 0));
    assert_eq!(world.asked, [Output::Fence { nsid: 1 }]);
    // It holds for new commands before the driver waits for the older ones.
    assert_eq!(world.try_io(1, IoOpcode::WRITE), Status::RESERVATION_CONFLICT.no_retry());
    assert!(world.answers.is_empty());
    // Another command of the volume waits for its turn.
    world.begin(1, register(RegisterAction::REGISTER, Persistence::NO_CHANGE), &keys(0, 9));
    assert!(world.answers.is_empty());
    world.target.subsystem.handle_saved(1, true);
    world.drive();
    assert!(world.answers.is_empty(), "nothing was to be saved");
    world.target.subsystem.handle_fenced(1);
    world.drive();
    let answered: Vec<_> = world.answers.iter().map(|(id, _, result)| (*id, result.is_ok())).collect();
    assert_eq!(answered, [(world.queues[0].0, true), (world.queues[1].0, true)]);
}

#[test]
fn what_is_to_persist_is_answered_when_it_is_durable_and_is_there_after_a_restart() {
    let mut world = World::new(&["a", "b"]);
    world.begin(0, register(RegisterAction::REGISTER, Persistence::PERSISTENT), &keys(0, 1));
    let Some(Output::Save { nsid: 1, report }) = world.asked.pop() else { panic!("not saved") };
    assert!(world.answers.is_empty() && report.persistent);
    assert_eq!((report.registrants.len(), report.registrants[0].host_id), (1, host_id("a")));
    // The disk is full: the command has not happened.
    world.target.subsystem.handle_saved(1, false);
    world.drive();
    assert_eq!(world.answers.pop().map(|(_, _, result)| result), Some(Err(Status::INTERNAL_ERROR)));
    assert_eq!(world.report(0).registrants, []);
    let register = register(RegisterAction::REGISTER, Persistence::PERSISTENT);
    world.send(0, register, &keys(0, 1)).expect("registered");
    let exclusive = acquire(AcquireAction::ACQUIRE, ReservationType::EXCLUSIVE_ACCESS);
    world.begin(0, exclusive, &keys(1, 0));
    let Some(Output::Save { report, .. }) = world.asked.pop() else { panic!("not saved") };
    assert!(world.try_io(1, IoOpcode::READ).is_success(), "it does not hold before it is durable");
    world.target.subsystem.handle_saved(1, true);
    world.drive();
    assert_eq!(world.asked, [Output::Fence { nsid: 1 }]);
    let mut again = World::new(&["a", "b"]);
    again.target.subsystem.restore_reservations(1, &report).expect("good");
    // New views, with what was restored.
    for reach in [nvme::controller::Reach::Moving, nvme::controller::Reach::Serving] {
        again.target.subsystem.set_reach(again.target.now, nvme::controller::Node(0), reach);
    }
    again.drive();
    assert_eq!(again.try_io(1, IoOpcode::READ), Status::RESERVATION_CONFLICT.no_retry());
    assert!(again.try_io(0, IoOpcode::WRITE).is_success());
    let damaged = Report { kind: ReservationType::NONE, ..report };
    assert!(again.target.subsystem.restore_reservations(1, &damaged).is_err());
}

/// What a cluster does with a node that is silent.
#[test]
fn a_preempted_host_writes_no_more_whatever_it_sends() {
    let mut world = World::new(&["good", "silent"]);
    let kind = ReservationType::WRITE_EXCLUSIVE_REGISTRANTS;
    world.registered(0, 1);
    world.registered(1, 2);
    world.send(1, acquire(AcquireAction::ACQUIRE, kind), &keys(2, 0)).expect("acquired");
    world.send(0, acquire(AcquireAction::PREEMPT_AND_ABORT, kind), &keys(1, 2)).expect("preempted");
    let conflict = Status::RESERVATION_CONFLICT.no_retry();
    assert_eq!(
        (world.try_io(1, IoOpcode::WRITE), world.try_io(0, IoOpcode::WRITE)),
        (conflict, Status::SUCCESS)
    );
    assert_eq!(world.send(1, acquire(AcquireAction::ACQUIRE, kind), &keys(2, 0)), Err(conflict));
    let report = world.report(1);
    assert_eq!((report.kind, report.registrants.len()), (kind, 1));
    let holder = report.registrants[0];
    assert_eq!((holder.cntlid, holder.holds, holder.key), (world.queues[0].0.cntlid, 1, 1));
}

#[test]
fn what_is_wrong_is_refused_and_changes_nothing() {
    let mut world = World::new(&["a"]);
    let good = register(RegisterAction::REGISTER, Persistence::NO_CHANGE);
    let report = |bytes: u64, extended| GetReport { bytes, extended }.command(0, 1, data_of(bytes));
    for (sqe, data, status) in [
        (Sqe { nsid: 2, ..good }, keys(0, 1), Status::INVALID_NAMESPACE),
        (Sqe { sgl: data_of(8), ..good }, keys(0, 1), Status::SGL_INVALID_LENGTH),
        (good, keys(0, 0), Status::INVALID_FIELD),
        (good, vec![0; 15], Status::SGL_INVALID_LENGTH),
        (report(64, false), Vec::new(), Status::HOST_ID_INCONSISTENT),
        (report(2 << 20, true), Vec::new(), Status::INVALID_FIELD),
        (acquire(AcquireAction::ACQUIRE, TYPES[0]), keys(0, 0), Status::RESERVATION_CONFLICT),
    ] {
        assert_eq!(world.send(0, sqe, &data), Err(status.no_retry()), "{sqe:?}");
    }
    assert_eq!(world.report(0).registrants, []);
}

#[test]
fn a_command_whose_turn_comes_after_its_controller_has_ended_is_not_executed() {
    let mut world = World::new(&["a", "b"]);
    world.registered(0, 1);
    world.begin(0, acquire(AcquireAction::ACQUIRE, TYPES[0]), &keys(1, 0));
    world.begin(1, register(RegisterAction::REGISTER, Persistence::NO_CHANGE), &keys(0, 2));
    let cntlid = world.queues[1].0.cntlid;
    world.target.queue_closed(cntlid, 1);
    world.target.queue_closed(cntlid, 0);
    world.target.outputs();
    world.target.subsystem.handle_fenced(1);
    world.drive();
    assert_eq!(world.answers.len(), 1);
    world.asked.clear();
    world.answers.clear();
    assert_eq!(world.report(0).registrants.len(), 1);
}

#[test]
fn a_volume_that_is_removed_takes_its_reservations_along() {
    let mut world = World::new(&["a"]);
    world.registered(0, 1);
    world.begin(0, acquire(AcquireAction::ACQUIRE, TYPES[0]), &keys(1, 0));
    world.begin(0, acquire(AcquireAction::ACQUIRE, TYPES[0]), &keys(1, 0));
    world.target.subsystem.remove_volume(1);
    world.drive();
    let gone = Err(Status::INVALID_NAMESPACE.no_retry());
    let answers: Vec<_> = world.answers.drain(..).map(|(_, _, result)| result).collect();
    assert_eq!(answers, [gone.clone(), gone]);
    world.target.subsystem.set_volume(1, volume(1)).expect("the same one");
    world.asked.clear();
    world.drive();
    world.asked.clear();
    assert_eq!(world.report(0).registrants, []);
}

#[test]
fn identify_says_whether_there_are_reservations() {
    for has in [true, false] {
        let mut config = config(Kind::Io);
        config.reservations = has;
        let mut target = Target::new(config);
        target.subsystem.set_volume(1, volume(1)).expect("good");
        let cntlid = target.enabled("h");
        let commands = target.identify_controller(cntlid).optional_commands;
        assert_eq!(commands.has(OptionalCommands::RESERVATIONS), has);
        let data = target.identify(cntlid, Cns::NAMESPACE, 1).expect("a namespace");
        let namespace = Namespace::decode(&data).expect("whole");
        assert_eq!(namespace.reservations, if has { RESCAP_ALL } else { 0 });
        let accepted = target.connect_io("h", cntlid, 1);
        let mut queue = IoQueue::new(accepted.queue, accepted.view);
        let sqe = register(RegisterAction::REGISTER, Persistence::NO_CHANGE);
        let action = queue.handle_command(&Sqe { cid: 1, ..sqe }).expect("room");
        assert_eq!(matches!(action, Action::Reserve(_)), has, "{action:?}");
    }
}

/// NVMe Base, "Reservation Notification (80h)"
#[test]
fn hosts_are_told_what_others_took_from_them_in_its_order() {
    let mut world = World::new(&["a", "b", "c"]);
    let kind = ReservationType::WRITE_EXCLUSIVE_REGISTRANTS;
    for (host, key) in [(0, 1), (1, 2), (2, 3)] {
        world.registered(host, key);
    }
    let cntlids: Vec<u16> = world.queues.iter().map(|(id, _)| id.cntlid).collect();
    for cntlid in &cntlids {
        assert_eq!(world.target.wait_for_event(*cntlid, 70), []);
    }
    world.send(0, acquire(AcquireAction::ACQUIRE, kind), &keys(1, 0)).expect("acquired");
    let release = Release { action: ReleaseAction::RELEASE, ignore_existing_key: false, kind };
    world.send(0, release.command(0, 1, data_of(8)), &Key { current: 1 }.encode()).expect("released");
    let told = Event::RESERVATIONS.result();
    assert_eq!(world.events, [(cntlids[1], told), (cntlids[2], told)], "not who has released it");
    world.send(0, acquire(AcquireAction::PREEMPT, kind), &keys(1, 2)).expect("preempted");
    assert_eq!(world.events.len(), 2, "masked until the log is read");
    let read = |world: &mut World, host: usize| {
        let data = world.target.log(cntlids[host], LogId::RESERVATIONS, 0, 64).expect("the log");
        let ReservationNotification { count, event, more, nsid } =
            ReservationNotification::decode(&data).expect("whole");
        (count, event, more, nsid)
    };
    assert_eq!(read(&mut world, 1), (1, ReservationEvent::RESERVATION_RELEASED, 1, 1));
    let next = world.target.wait_for_event(cntlids[1], 71);
    assert_eq!((next.len(), next[0].0.result), (1, told), "there is another one");
    assert_eq!(read(&mut world, 1), (2, ReservationEvent::REGISTRATION_PREEMPTED, 0, 1));
    assert_eq!(read(&mut world, 1), (0, ReservationEvent::EMPTY, 0, 0));
    assert_eq!(read(&mut world, 2), (1, ReservationEvent::RESERVATION_RELEASED, 0, 1));
    assert_eq!(read(&mut world, 0), (0, ReservationEvent::EMPTY, 0, 0));
    let mut without = Target::of(Kind::Io);
    let cntlid = without.enabled("h");
    let unknown = Err(Status::INVALID_LOG_PAGE.no_retry());
    assert_eq!(without.log(cntlid, LogId::RESERVATIONS, 0, 64), unknown);
}

fn feature_of(sqe: Sqe, nsid: u32) -> Sqe {
    Sqe { nsid, ..sqe }
}

fn set_persistence(nsid: u32, value: u32) -> Sqe {
    feature_of(Feature::set(60, FeatureId::RESERVATION_PERSISTENCE, value, data_of(0)), nsid)
}

/// NVMe Base, "Reservation Notification Mask (Feature Identifier 82h)"
#[test]
fn a_host_is_not_told_what_it_has_masked() {
    let mut world = World::new(&["a", "b"]);
    let kind = ReservationType::WRITE_EXCLUSIVE_REGISTRANTS;
    world.registered(0, 1);
    world.registered(1, 2);
    let cntlid = world.queues[1].0.cntlid;
    let mask =
        |nsid, value| feature_of(Feature::set(1, FeatureId::RESERVATION_MASK, value, data_of(0)), nsid);
    let read = |nsid| feature_of(Feature::get(1, FeatureId::RESERVATION_MASK, 0, data_of(0)), nsid);
    let released = NotificationMask::RESERVATION_RELEASED.0;
    for (sqe, expected) in [
        (mask(2, released), Err(Status::INVALID_NAMESPACE)),
        (mask(NSID_ALL, NotificationMask::ALL.0), Ok(0)),
        (read(1), Ok(NotificationMask::ALL.0)),
        (mask(1, released | 1), Ok(0)),
        (read(1), Ok(released)),
        (read(NSID_ALL), Err(Status::INVALID_FIELD)),
        (read(0), Err(Status::INVALID_NAMESPACE)),
    ] {
        let (cqe, _) = world.target.command(cntlid, sqe, &[]);
        match expected {
            Ok(value) => assert_eq!((cqe.status, cqe.result), (Status::SUCCESS, value.into()), "{sqe:?}"),
            Err(status) => assert_eq!(cqe.status, status.no_retry(), "{sqe:?}"),
        }
    }
    world.target.wait_for_event(cntlid, 70);
    world.send(0, acquire(AcquireAction::ACQUIRE, kind), &keys(1, 0)).expect("acquired");
    let release = Release { action: ReleaseAction::RELEASE, ignore_existing_key: false, kind };
    world.send(0, release.command(0, 1, data_of(8)), &Key { current: 1 }.encode()).expect("released");
    assert_eq!(world.events, []);
    world.send(0, acquire(AcquireAction::PREEMPT, kind), &keys(1, 2)).expect("preempted");
    assert_eq!(world.events, [(cntlid, Event::RESERVATIONS.result())]);
    let data = world.target.log(cntlid, LogId::RESERVATIONS, 0, 64).expect("the log");
    let notification = ReservationNotification::decode(&data).expect("whole");
    assert_eq!(
        (notification.count, notification.event),
        (1, ReservationEvent::REGISTRATION_PREEMPTED),
        "what is masked is in no log"
    );
}

/// NVMe Base, "Reservation Persistence (Feature Identifier 83h)"
#[test]
fn a_change_of_persistence_is_answered_when_it_is_durable() {
    let mut world = World::new(&["a"]);
    world.target.subsystem.set_volume(2, volume(2)).expect("good");
    world.drive();
    world.events.clear();
    let cntlid = world.queues[0].0.cntlid;
    let read = |world: &mut World, nsid| {
        let sqe = Feature::get(1, FeatureId::RESERVATION_PERSISTENCE, 0, data_of(0));
        let (cqe, _) = world.target.command(cntlid, feature_of(sqe, nsid), &[]);
        (cqe.status, cqe.result)
    };
    assert_eq!(read(&mut world, 1), (Status::SUCCESS, 0));
    assert_eq!(read(&mut world, NSID_ALL).0, Status::INVALID_FIELD.no_retry());
    // Of both namespaces; one of them cannot be saved.
    let now = world.target.now;
    world.target.subsystem.handle_command(now, cntlid, &set_persistence(NSID_ALL, 1), &[]);
    world.drive();
    let saves: Vec<u32> = world
        .asked
        .drain(..)
        .map(|output| match output {
            Output::Save { nsid, report } if report.persistent => nsid,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!((&saves[..], world.events.len()), (&[1, 2][..], 0));
    world.target.subsystem.handle_saved(1, true);
    world.drive();
    assert_eq!(world.events.len(), 0);
    world.target.subsystem.handle_saved(2, false);
    let statuses = |world: &mut World| -> Vec<(u16, Status)> {
        world.target.answers().into_iter().map(|(cqe, _)| (cqe.cid, cqe.status)).collect()
    };
    assert_eq!(statuses(&mut world), [(60, Status::INTERNAL_ERROR)]);
    assert_eq!((read(&mut world, 1).1, read(&mut world, 2).1), (1, 0));
    // What is so already is not saved again; what is wrong is said at once.
    for (sqe, status) in [
        (set_persistence(1, 1), Status::SUCCESS),
        (set_persistence(3, 1), Status::INVALID_NAMESPACE.no_retry()),
        (Sqe { cdw10: 0x8000_0083, ..set_persistence(1, 0) }, Status::FEATURE_NOT_SAVEABLE.no_retry()),
    ] {
        world.target.subsystem.handle_command(now, cntlid, &sqe, &[]);
        assert_eq!(statuses(&mut world), [(60, status)]);
    }
    // A registration does not change it unless it says so.
    world.begin(0, register(RegisterAction::REGISTER, Persistence::NO_CHANGE), &keys(0, 1));
    assert!(matches!(world.asked.pop(), Some(Output::Save { nsid: 1, .. })));
}

#[test]
fn the_answer_of_a_command_does_not_go_to_the_next_connection_of_its_queue() {
    let mut world = World::new(&["a", "b"]);
    world.registered(0, 1);
    world.registered(1, 2);
    world.begin(0, acquire(AcquireAction::ACQUIRE, TYPES[0]), &keys(1, 0));
    world.begin(0, register(RegisterAction::UNREGISTER, Persistence::NO_CHANGE), &keys(1, 0));
    let id = world.queues[0].0;
    world.target.queue_closed(id.cntlid, id.qid);
    let accepted = world.target.connect_io("a", id.cntlid, id.qid);
    world.queues[0].1 = IoQueue::new(accepted.queue, accepted.view);
    world.target.subsystem.handle_fenced(1);
    world.drive();
    assert_eq!(world.answers, [], "neither of the closed connection's commands is answered");
    world.asked.clear();
    let report = world.report(1);
    assert_eq!((report.kind, report.registrants.len()), (TYPES[0], 2), "only the first was executed");
}

#[test]
fn the_logs_of_effects_have_what_there_is_of_reservations() {
    for has in [true, false] {
        let mut target = Target::new(Config { reservations: has, ..config(Kind::Io) });
        let cntlid = target.enabled("h");
        let data = target.log(cntlid, LogId::COMMAND_EFFECTS, 0, 4096).expect("the log");
        let effects = CommandEffects::decode(&data);
        for opcode in [0x0d, 0x0e, 0x11, 0x15] {
            assert_eq!(effects.io[opcode].has(Effects::SUPPORTED), has, "{opcode:x}");
        }
        let data = target.log(cntlid, LogId::FEATURE_EFFECTS, 0, 1024).expect("the log");
        let features = SupportedPages::decode(&data).0;
        assert_eq!([0x82, 0x83].map(|id: usize| features[id].has(Effects::SUPPORTED)), [has; 2]);
        let capabilities = Feature::get(1, FeatureId::RESERVATION_MASK, 0, data_of(0));
        let (cqe, _) = target.command(cntlid, Sqe { cdw10: 0x382, ..capabilities }, &[]);
        let known = (Status::SUCCESS, 6);
        assert_eq!((cqe.status, cqe.result) == known, has, "changeable, and of a namespace");
    }
}
