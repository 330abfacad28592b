//! Our host brings up a controller of the kernel's target: its commands are those of the kernel's
//! host, and it is given the answers that these got.

use crate::capture::{Capture, Exchange};
use crate::commands::{HOST, HOST_ID, SUBSYSTEM, nqn};
use nvme::fabrics::{FabricsType, Property};
use nvme::host::{Command, CommandData, HostConfig, HostOutput, Initiator, Limits, Role};
use nvme::identify::OptionalCommands;
use nvme::log_page::{AnaGroup, AnaLog, AnaState};
use nvme::register::{CC, Configuration};
use nvme::{AdminOpcode, Nqn, Sgl, Sqe};
use std::collections::VecDeque;
use std::time::Duration;

const NOW: Duration = Duration::ZERO;
const ENABLE_ALL: u64 = 0x0046_0061;

/// Our host, and what the kernel's target has answered.
struct Host {
    initiator: Initiator,
    /// In their order.
    answers: VecDeque<Exchange>,
    /// What came out besides commands.
    outputs: Vec<HostOutput>,
    /// The request for events that waits.
    waiting: Option<u32>,
    commands: usize,
}

/// The command without what a connection decides.
fn bare(sqe: &Sqe) -> Sqe {
    Sqe { cid: 0, sgl: Sgl::NONE, ..*sqe }
}

/// Whether the kernel's host has sent this command. It selects all I/O command sets, where our host
/// selects that of NVM.
fn is_this(one: &Exchange, sqe: &Sqe) -> bool {
    let is_set = |sqe: &Sqe| {
        AdminOpcode(sqe.opcode) == AdminOpcode::FABRICS && FabricsType::of(sqe) == FabricsType::PROPERTY_SET
    };
    if is_set(sqe) && is_set(&one.sqe) {
        let (ours, kernels) = (Property::of(sqe), Property::of(&one.sqe));
        assert_eq!((ours.offset, ours.value), (CC, Configuration::ENABLE.0.into()));
        return kernels == Property { value: ENABLE_ALL, ..ours };
    }
    bare(&one.sqe) == bare(sqe)
}

impl Host {
    fn new(capture: &Capture, config: HostConfig) -> Self {
        let mut answers = capture.exchanges();
        answers.sort_by_key(|one| one.end);
        let initiator = Initiator::new(NOW, config);
        Self { initiator, answers: answers.into(), outputs: Vec::new(), waiting: None, commands: 0 }
    }

    /// Answers commands until there is none.
    fn run(&mut self) {
        while let Some(output) = self.initiator.poll_output() {
            match output {
                HostOutput::Admin { id, command } => self.answer(0, id, &command),
                HostOutput::ConnectIo { id, qid, command } => self.answer(qid, id, &command),
                other => self.outputs.push(other),
            }
        }
    }

    fn answer(&mut self, qid: u16, id: u32, command: &Command) {
        self.commands += 1;
        if AdminOpcode(command.sqe.opcode) == AdminOpcode::ASYNC_EVENT_REQUEST {
            self.waiting = Some(id);
            return;
        }
        let at = self.answers.iter().position(|one| one.qid == qid && is_this(one, &command.sqe));
        let one = at.and_then(|at| self.answers.remove(at));
        let one = one.unwrap_or_else(|| panic!("the kernel's host has not sent {:?}", command.sqe));
        match &command.data {
            CommandData::None => assert!(one.to_controller.is_empty() && one.to_host.is_empty()),
            CommandData::Send(data) => assert_eq!(*data, one.to_controller),
            CommandData::Receive(bytes) => assert_eq!(*bytes as usize, one.to_host.len()),
        }
        let cqe = one.cqe.unwrap_or_default();
        self.initiator.handle_completion(NOW, id, &cqe, &one.to_host);
    }

    /// Half of the timeout later the next command is the Keep Alive of the kernel's host.
    fn keeps_alive(&mut self, after: Duration) {
        let (before, due) = (self.commands, self.initiator.poll_timeout());
        assert_eq!(due, Some(after));
        self.initiator.handle_timeout(after);
        self.run();
        assert_eq!(self.commands, before + 1);
    }

    /// Answers the request for events with the next event of the kernel's target. What the host
    /// reads then is what the kernel has answered after it.
    fn next_event(&mut self) {
        let is_request =
            |one: &Exchange| one.qid == 0 && AdminOpcode(one.sqe.opcode) == AdminOpcode::ASYNC_EVENT_REQUEST;
        let at = self.answers.iter().position(is_request).expect("an event");
        self.answers.drain(..at);
        let event = self.answers.pop_front().and_then(|one| one.cqe).expect("an answer");
        assert!(event.status.is_success());
        let id = self.waiting.take().expect("our host waits for events");
        self.initiator.handle_completion(NOW, id, &event, &[]);
        self.run();
        assert!(self.waiting.is_some(), "it waits for the next one");
    }
}

fn config(capture: &Capture, subsystem: Nqn, role: Role) -> HostConfig {
    let connect = nvme::fabrics::Connect::of(&capture.exchanges()[0].sqe);
    HostConfig {
        host: nqn(HOST),
        host_id: HOST_ID,
        subsystem,
        role,
        entries: 128,
        keep_alive: Duration::from_millis(connect.kato_ms.into()),
        flow_control: connect.attributes == nvme::fabrics::ConnectAttributes::NONE,
        keyed: false,
    }
}

fn ana(changes: u64, state: AnaState, nsids: &[u32]) -> HostOutput {
    let group = |id, state, nsids: &[u32]| AnaGroup { id, changes, state, nsids: nsids.to_vec() };
    let groups = vec![group(1, state, &[1]), group(2, AnaState::INACCESSIBLE, nsids)];
    HostOutput::Ana(AnaLog { changes, groups })
}

#[test]
fn our_host_brings_up_the_kernels_controller_by_the_commands_of_the_kernels_host() {
    let all = Capture::all();
    let io = all.iter().filter(|one| one.exchanges().iter().any(|one| one.qid == 1));
    let mut captures = 0;
    for capture in io {
        let mut host = Host::new(capture, config(capture, nqn(SUBSYSTEM), Role::Io { queues: 1 }));
        host.run();
        let limits = Limits {
            cntlid: 1,
            transfer_bytes: None,
            capsule_data_bytes: 16_384,
            io_queues: 1,
            entries: 128,
            commands: OptionalCommands::DATASET_MANAGEMENT.with(OptionalCommands::WRITE_ZEROES),
            volatile_cache: true,
            retry_delays_100_ms: [0; 3],
        };
        let [HostOutput::Live(live), HostOutput::Namespaces(namespaces), HostOutput::Ana(log)] =
            &host.outputs[..]
        else {
            panic!("{}: {:?}", capture.name, host.outputs);
        };
        assert_eq!((live, namespaces), (&limits, &vec![1]), "{}", capture.name);
        assert_eq!((log.groups.len(), log.groups[0].state), (2, AnaState::OPTIMIZED));
        assert!(host.initiator.is_live() && host.waiting.is_some());
        captures += 1;
    }
    assert_eq!(captures, 5);
}

#[test]
fn our_host_follows_the_events_of_the_kernels_target() {
    let capture = Capture::named("commands");
    let mut host = Host::new(&capture, config(&capture, nqn(SUBSYSTEM), Role::Io { queues: 1 }));
    host.run();
    assert_eq!(host.outputs.pop(), Some(ana(1, AnaState::OPTIMIZED, &[])));
    host.outputs.clear();
    for expected in [
        // Write protection on and off.
        vec![HostOutput::Namespaces(vec![1])],
        vec![HostOutput::Namespaces(vec![1])],
        vec![ana(2, AnaState::NON_OPTIMIZED, &[])],
        vec![HostOutput::Namespaces(vec![1, 2])],
        vec![HostOutput::Namespaces(vec![1])],
    ] {
        host.next_event();
        assert_eq!(std::mem::take(&mut host.outputs), expected);
    }
    let before = host.commands;
    let due = host.initiator.poll_timeout().expect("a keep-alive");
    host.initiator.handle_timeout(due);
    host.run();
    assert_eq!(
        (due, host.commands),
        (Duration::from_secs(1), before + 1),
        "Keep Alive is that of the kernel"
    );
}

#[test]
fn our_host_stays_with_the_kernels_discovery_controller_and_hears_of_changes() {
    let capture = Capture::named("discovery_event");
    let mut host = Host::new(&capture, config(&capture, Nqn::discovery(), Role::Discovery));
    host.run();
    assert!(matches!(host.outputs[..], [HostOutput::Live(_)]), "{:?}", host.outputs);
    host.keeps_alive(Duration::from_millis(2500));
    host.next_event();
    assert_eq!(host.outputs[1..], [HostOutput::DiscoveryChanged]);
}
