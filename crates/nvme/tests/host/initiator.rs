//! How a host brings a controller up, and what it refuses.

use nvme::fabrics::{Connect, ConnectData, Connected, FabricsType, InvalidParameter, Property};
use nvme::feature::{Event, QueueCounts};
use nvme::host::{Command, CommandData, Failure, HostConfig, HostOutput, Initiator, Purpose, Role};
use nvme::identify::{AsyncEvents, CntrlType, Controller, MultiPath, NamespaceList, SglSupport};
use nvme::log_page::{AnaGroup, AnaLog, AnaState, LogId};
use nvme::register::{CC, CSTS, Capabilities, Configuration, ControllerStatus};
use nvme::{AdminOpcode, Cqe, HostId, Nqn, Sqe, Status};
use std::collections::VecDeque;
use std::time::Duration;

fn config(role: Role) -> HostConfig {
    HostConfig {
        host: Nqn::new("nqn.2026-11.test:host").expect("valid"),
        host_id: HostId([7; 16]),
        subsystem: Nqn::new("nqn.2026-11.test:array").expect("valid"),
        role,
        entries: 128,
        keep_alive: Duration::from_secs(5),
        flow_control: false,
        keyed: false,
    }
}

/// A controller that Linux would take.
fn good() -> Controller {
    Controller {
        cntlid: 9,
        keep_alive_100_ms: 10,
        ioccsz: 4,
        iorcsz: 1,
        sgls: SglSupport::SUPPORTED,
        kind: CntrlType::IO,
        multi_path: MultiPath::ANA,
        events: AsyncEvents::NAMESPACE_CHANGED.with(AsyncEvents::ANA_CHANGED),
        nn: 100,
        mnan: 100,
        ana_groups: 2,
        mdts: 5,
        ..Controller::default()
    }
}

/// Answers what the initiator sends, in order.
struct Peer {
    initiator: Initiator,
    now: Duration,
    controller: Controller,
    ready_after: u32,
    status: ControllerStatus,
    /// Requests that wait for an event.
    waiting: VecDeque<u32>,
    outputs: Vec<HostOutput>,
    commands: Vec<Sqe>,
    silent: bool,
    namespaces: Vec<u32>,
    /// Commands that are answered later.
    later: Vec<(u32, Command)>,
    /// What Connect asks for.
    connected: Connected,
}

impl Peer {
    fn new(role: Role, controller: Controller) -> Self {
        Self {
            initiator: Initiator::new(Duration::ZERO, config(role)),
            now: Duration::ZERO,
            controller,
            ready_after: 0,
            status: ControllerStatus { ready: true, ..ControllerStatus::default() },
            waiting: VecDeque::new(),
            outputs: Vec::new(),
            commands: Vec::new(),
            silent: false,
            namespaces: vec![1, 5],
            later: Vec::new(),
            connected: Connected::new(9),
        }
    }

    /// Answers until nothing more is sent.
    fn run(&mut self) {
        for _ in 0..1000 {
            while let Some(output) = self.initiator.poll_output() {
                match output {
                    HostOutput::Admin { id, command } | HostOutput::ConnectIo { id, command, .. } => {
                        self.answer(id, &command);
                    }
                    other => self.outputs.push(other),
                }
            }
            let authenticates = matches!(self.outputs.last(), Some(HostOutput::Authenticate { .. }));
            if self.initiator.is_live() || self.silent || authenticates {
                return;
            }
            let Some(next) = self.initiator.poll_timeout() else { return };
            self.now = next;
            self.initiator.handle_timeout(self.now);
        }
    }

    fn answer(&mut self, id: u32, command: &Command) {
        self.commands.push(command.sqe);
        if self.silent {
            return;
        }
        if command.sqe.opcode == AdminOpcode::ASYNC_EVENT_REQUEST.0 {
            return self.waiting.push_back(id);
        }
        let (result, mut data) = self.result(command);
        if let CommandData::Receive(bytes) = command.data {
            data.resize(bytes as usize, 0);
        }
        self.initiator.handle_completion(self.now, id, &Cqe { result, ..Cqe::default() }, &data);
    }

    fn result(&mut self, command: &Command) -> (u64, Vec<u8>) {
        let sqe = &command.sqe;
        let none = Vec::new();
        match AdminOpcode(sqe.opcode) {
            AdminOpcode::FABRICS => match FabricsType::of(sqe) {
                FabricsType::CONNECT => {
                    let CommandData::Send(data) = &command.data else { panic!("Connect has data") };
                    let data = ConnectData::decode(data).expect("whole");
                    let expected = if Connect::of(sqe).qid == 0 { 0xffff } else { 9 };
                    assert_eq!((data.cntlid, data.host_id), (expected, HostId([7; 16])));
                    (self.connected.result(), none)
                }
                FabricsType::PROPERTY_GET if Property::of(sqe).offset == CSTS => {
                    let ready = self.ready_after == 0;
                    self.ready_after = self.ready_after.saturating_sub(1);
                    let status = if ready { self.status } else { ControllerStatus::default() };
                    (status.encode().into(), none)
                }
                FabricsType::PROPERTY_GET => (Capabilities::decode(0x0020_0400_001f).encode(), none),
                _ => {
                    let property = Property::of(sqe);
                    assert_eq!((property.offset, property.value as u32), (CC, Configuration::ENABLE.0));
                    (0, none)
                }
            },
            AdminOpcode::IDENTIFY if sqe.cdw10 == 1 => (0, self.controller.encode().to_vec()),
            AdminOpcode::IDENTIFY => {
                (0, NamespaceList::above(sqe.nsid, self.namespaces.iter().copied()).encode().to_vec())
            }
            AdminOpcode::SET_FEATURES => (QueueCounts { submission: 3, completion: 3 }.encode().into(), none),
            AdminOpcode::GET_LOG_PAGE if sqe.cdw10 as u8 == LogId::ANA.0 => {
                let group = AnaGroup { id: 1, changes: 1, state: AnaState::OPTIMIZED, nsids: vec![1, 5] };
                (0, AnaLog { changes: 1, groups: vec![group] }.encode(false))
            }
            _ => (0, none),
        }
    }

    fn failure(&self) -> Option<Failure> {
        self.outputs.iter().find_map(|output| match output {
            HostOutput::Failed(failure) => Some(*failure),
            _ => None,
        })
    }
}

#[test]
fn a_controller_comes_up_and_tells_what_it_has() {
    let mut peer = Peer::new(Role::Io { queues: 8 }, good());
    peer.ready_after = 4;
    peer.run();
    let [HostOutput::Live(limits), rest @ ..] = peer.outputs.as_slice() else { panic!("{:?}", peer.outputs) };
    assert_eq!((limits.cntlid, limits.io_queues, limits.capsule_data_bytes), (9, 3, 0));
    assert_eq!(limits.transfer_bytes, Some(4096 << 5));
    assert_eq!(limits.entries, 32, "as many as MQES allows");
    assert!(matches!(rest, [HostOutput::Namespaces(nsids), HostOutput::Ana(_)] if *nsids == [1, 5]));
    assert!(peer.now > Duration::ZERO && peer.now < Duration::from_millis(100), "CSTS was polled");
    assert_eq!(peer.waiting.len(), 1);
}

#[test]
fn nothing_is_sent_on_a_queue_before_the_host_has_authenticated_there() {
    let mut peer = Peer::new(Role::Io { queues: 2 }, good());
    peer.connected.authentication_required = true;
    peer.run();
    let [HostOutput::Authenticate { id, qid: 0 }] = *peer.outputs else { panic!("{:?}", peer.outputs) };
    assert_eq!(peer.commands.len(), 1, "Connect alone: {:?}", peer.commands);
    peer.initiator.handle_authenticated(peer.now, id);
    // Once is enough.
    peer.initiator.handle_authenticated(peer.now, id);
    peer.outputs.clear();
    peer.run();
    let outputs = std::mem::take(&mut peer.outputs);
    let [HostOutput::Authenticate { id: one, qid: 1 }, HostOutput::Authenticate { id: two, qid: 2 }] =
        *outputs
    else {
        panic!("{outputs:?}");
    };
    peer.initiator.handle_authenticated(peer.now, two);
    assert!(!peer.initiator.is_live());
    peer.initiator.handle_authenticated(peer.now, one);
    peer.run();
    assert!(peer.initiator.is_live());
}

#[test]
fn a_controller_that_wants_tls_or_that_does_not_authenticate_in_time_is_given_up() {
    let mut peer = Peer::new(Role::Io { queues: 2 }, good());
    peer.connected.secure_channel_required = true;
    peer.run();
    assert_eq!(peer.failure(), Some(Failure::SecureChannel));
    let mut peer = Peer::new(Role::Io { queues: 2 }, good());
    peer.connected.authentication_required = true;
    peer.run();
    peer.now = peer.initiator.poll_timeout().expect("a deadline");
    peer.initiator.handle_timeout(peer.now);
    peer.run();
    assert_eq!(peer.failure(), Some(Failure::Timeout(Purpose::Authenticate(0))));
}

#[test]
fn each_lie_of_identify_controller_is_found() {
    let wrong = |controller: Controller| {
        let mut peer = Peer::new(Role::Io { queues: 1 }, controller);
        peer.run();
        match peer.failure() {
            Some(Failure::Identify(why)) => why,
            other => panic!("{other:?}"),
        }
    };
    for (controller, word) in [
        (Controller { cntlid: 8, ..good() }, "identifier"),
        (Controller { keep_alive_100_ms: 0, ..good() }, "KAS"),
        (Controller { ioccsz: 3, ..good() }, "IOCCSZ"),
        (Controller { iorcsz: 0, ..good() }, "IORCSZ"),
        (Controller { icdoff: 1, ..good() }, "ICDOFF"),
        (Controller { sgls: SglSupport::NONE, ..good() }, "SGLS"),
        (Controller { kind: CntrlType::DISCOVERY, ..good() }, "CNTRLTYPE"),
        (Controller { mnan: 0, ..good() }, "MNAN"),
        (Controller { mnan: 101, ..good() }, "MNAN"),
    ] {
        let why = wrong(controller);
        assert!(why.contains(word), "{why}");
    }
}

#[test]
fn a_controller_that_fails_or_does_not_get_ready_is_given_up() {
    let mut peer = Peer::new(Role::Io { queues: 1 }, good());
    peer.status = ControllerStatus { fatal: true, ..ControllerStatus::default() };
    peer.run();
    assert_eq!(peer.failure(), Some(Failure::Fatal));
    let mut peer = Peer::new(Role::Io { queues: 1 }, good());
    peer.ready_after = u32::MAX;
    peer.run();
    assert_eq!(peer.failure(), Some(Failure::NotReady));
    // CAP.TO is 4 x 500 ms.
    assert!(peer.now >= Duration::from_secs(2) && peer.now < Duration::from_millis(2200), "{:?}", peer.now);
    assert_eq!(peer.initiator.poll_timeout(), None);
}

#[test]
fn a_refused_command_and_a_silent_controller_say_which_command_it_was() {
    let mut initiator = Initiator::new(Duration::ZERO, config(Role::Discovery));
    let Some(HostOutput::Admin { id, .. }) = initiator.poll_output() else { panic!("no Connect") };
    let status = Status::CONNECT_INVALID_HOST.no_retry();
    initiator.handle_completion(Duration::ZERO, id, &Cqe { status, ..Cqe::default() }, &[]);
    let failed = Some(HostOutput::Failed(Failure::Command(Purpose::Connect, status)));
    assert_eq!(initiator.poll_output(), failed);
    // Of the parameters of Connect, the name of the subsystem is another matter than the rest.
    let status = Status::CONNECT_INVALID_PARAMETERS.no_retry();
    for (parameter, failure) in [
        (InvalidParameter::SUBNQN, Failure::NoSubsystem(status)),
        (InvalidParameter::HOST_ID, Failure::Command(Purpose::Connect, status)),
    ] {
        let mut initiator = Initiator::new(Duration::ZERO, config(Role::Discovery));
        let Some(HostOutput::Admin { id, .. }) = initiator.poll_output() else { panic!("no Connect") };
        let cqe = Cqe { status, result: parameter.result(), ..Cqe::default() };
        initiator.handle_completion(Duration::ZERO, id, &cqe, &[]);
        assert_eq!(initiator.poll_output(), Some(HostOutput::Failed(failure)));
    }
    let mut initiator = Initiator::new(Duration::ZERO, config(Role::Discovery));
    initiator.poll_output();
    let late = initiator.poll_timeout().expect("a deadline");
    initiator.handle_timeout(late);
    let failed = Some(HostOutput::Failed(Failure::Timeout(Purpose::Connect)));
    assert_eq!(initiator.poll_output(), failed);
}

#[test]
fn keep_alive_is_sent_twice_in_its_time_and_has_to_be_answered() {
    let mut peer = Peer::new(Role::Io { queues: 1 }, good());
    peer.run();
    let begun = peer.now;
    peer.commands.clear();
    for _ in 0..4 {
        peer.now = peer.initiator.poll_timeout().expect("a keep-alive");
        peer.initiator.handle_timeout(peer.now);
        peer.run();
    }
    assert!(peer.commands.iter().all(|sqe| sqe.opcode == AdminOpcode::KEEP_ALIVE.0));
    assert!(peer.now - begun <= Duration::from_secs(10) && peer.failure().is_none());
    peer.silent = true;
    for _ in 0..10 {
        let Some(next) = peer.initiator.poll_timeout() else { break };
        peer.now = next;
        peer.initiator.handle_timeout(peer.now);
        peer.run();
    }
    assert_eq!(peer.failure(), Some(Failure::Timeout(Purpose::KeepAlive)));
}

#[test]
fn an_event_is_followed_by_its_log_and_the_next_request() {
    let mut peer = Peer::new(Role::Io { queues: 1 }, good());
    peer.run();
    for (event, logs) in [(Event::NAMESPACE_CHANGED, vec![0x02, 0x06]), (Event::ANA_CHANGED, vec![0x02])] {
        peer.commands.clear();
        peer.outputs.clear();
        let id = peer.waiting.pop_front().expect("a request waits");
        let cqe = Cqe { result: event.result(), ..Cqe::default() };
        peer.initiator.handle_completion(peer.now, id, &cqe, &[]);
        peer.run();
        let opcodes: Vec<u8> =
            peer.commands.iter().map(|sqe| sqe.opcode).filter(|one| *one != 0x0c).collect();
        assert_eq!((opcodes, peer.waiting.len(), peer.outputs.len()), (logs, 1, 1));
    }
}

// The answer of a namespace and the event of its group come on two queues, in any order.
#[test]
fn the_ana_log_is_read_once_more_when_an_answer_contradicts_it() {
    let mut peer = Peer::new(Role::Io { queues: 1 }, good());
    peer.run();
    peer.commands.clear();
    peer.outputs.clear();
    // The second and third contradictions come while the log is under way.
    peer.initiator.refresh_ana(peer.now);
    peer.initiator.refresh_ana(peer.now);
    peer.initiator.refresh_ana(peer.now);
    peer.run();
    let opcodes: Vec<u8> = peer.commands.iter().map(|sqe| sqe.opcode).collect();
    assert_eq!(opcodes, [AdminOpcode::GET_LOG_PAGE.0; 2]);
    assert!(matches!(*peer.outputs, [HostOutput::Ana(_), HostOutput::Ana(_)]));
}

#[test]
fn more_namespaces_than_a_list_holds_are_read_in_several_and_what_changes_meanwhile_is_read_again() {
    let mut peer = Peer::new(Role::Io { queues: 1 }, good());
    peer.namespaces = (1..=2500).collect();
    peer.run();
    let listed = |outputs: &[HostOutput]| -> Vec<usize> {
        let count = |output: &HostOutput| match output {
            HostOutput::Namespaces(nsids) => Some(nsids.len()),
            _ => None,
        };
        outputs.iter().filter_map(count).collect()
    };
    assert_eq!(listed(&peer.outputs), [2500]);
    // Two changes at once: the second one comes while the first list is under way.
    peer.outputs.clear();
    peer.commands.clear();
    for _ in 0..2 {
        let id = peer.waiting.pop_front().expect("a request waits");
        let cqe = Cqe { result: Event::NAMESPACE_CHANGED.result(), ..Cqe::default() };
        peer.initiator.handle_completion(peer.now, id, &cqe, &[]);
        while let Some(output) = peer.initiator.poll_output() {
            match output {
                HostOutput::Admin { id, command } if command.sqe.opcode != AdminOpcode::IDENTIFY.0 => {
                    peer.answer(id, &command);
                }
                HostOutput::Admin { id, command } => peer.later.push((id, command)),
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(peer.later.len(), 1, "one list at a time");
    peer.namespaces.truncate(3);
    for (id, command) in std::mem::take(&mut peer.later) {
        peer.answer(id, &command);
    }
    peer.run();
    assert_eq!(listed(&peer.outputs), [3, 3]);
}

#[test]
fn a_discovery_controller_has_no_io_queues() {
    let controller = Controller {
        kind: CntrlType::DISCOVERY,
        // As Linux's: it has no I/O capsules.
        // As the Linux kernel's target has it, which answers Keep Alive nevertheless.
        keep_alive_100_ms: 0,
        ioccsz: 0,
        iorcsz: 0,
        multi_path: MultiPath::NONE,
        events: AsyncEvents::DISCOVERY_CHANGED,
        ..good()
    };
    let mut peer = Peer::new(Role::Discovery, controller);
    peer.run();
    assert!(matches!(peer.outputs[..], [HostOutput::Live(limits)] if limits.io_queues == 0));
    let id = peer.waiting.pop_front().expect("a request waits");
    let cqe = Cqe { result: Event::DISCOVERY_CHANGED.result(), ..Cqe::default() };
    peer.initiator.handle_completion(peer.now, id, &cqe, &[]);
    peer.run();
    assert_eq!(peer.outputs.last(), Some(&HostOutput::DiscoveryChanged));
}
