//! Gates before the queues of a real controller: the admin queue and an I/O queue.

use chap::message::RECEIVED_BYTES_MAX;
use chap::{
    Admission, Algorithms, Credentials, Entropy, Gate, Group, Hash, Host, Next, Outcome, Secret, Sequence,
    command,
};
use nvme::controller::{
    Access, Action, Config, IoQueue, Kind, Limits, Node, Output, Port, Subsystem, Volume, VolumeId,
};
use nvme::fabrics::{
    CNTLID_DYNAMIC, Connect, ConnectAttributes, ConnectData, Connected, Property, disconnect,
};
use nvme::identify::NamespaceIds;
use nvme::register::CC;
use nvme::{AdminOpcode, Cqe, HostId, IoOpcode, Nqn, Sgl, Sqe, Status, Transport};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const NOW: Duration = Duration::ZERO;
const PORT: Port = Port { node: Node(0), transport: Transport::Tcp, capsule_data_bytes: 8192 };
const ENABLED: u32 = 0x0046_0001;
const REQUIRED: Status = Status::AUTHENTICATION_REQUIRED.no_retry();

fn credentials(host_secret: u8) -> Arc<Credentials> {
    let secret = |byte| Secret::new(Some(Hash::Sha512), &[byte; 64]).expect("64 bytes");
    Arc::new(Credentials {
        host: Nqn::of_uuid([1; 16]),
        subsystem: Nqn::of_uuid([2; 16]),
        host_secret: secret(host_secret),
        controller_secret: Some(secret(9)),
    })
}

fn algorithms() -> Arc<Algorithms> {
    Arc::new(Algorithms::new(&[Hash::Sha384], &[Group::Ffdhe2048]).expect("not empty"))
}

fn subsystem() -> Subsystem {
    let config = Config {
        nqn: credentials(5).subsystem.clone(),
        kind: Kind::Io,
        serial: "1".to_owned(),
        model: "test".to_owned(),
        firmware: "1".to_owned(),
        nodes: 1,
        cntlids: BTreeMap::from([(Node(0), 1..=100)]),
        is_split: false,
        access: Access::Any,
        host_ids: BTreeMap::new(),
        reservations: false,
        limits: Limits::default(),
    };
    let mut subsystem = Subsystem::new(NOW, config);
    let volume = Volume {
        id: VolumeId(1),
        ids: NamespaceIds { uuid: Some([3; 16]), ..NamespaceIds::default() },
        blocks: 1 << 20,
        block_shift: 12,
        owner: Node(0),
        hosts: Access::Any,
        write_protected: false,
        volatile_cache: false,
        deallocated_reads_zero: true,
        preferred_blocks: 0,
    };
    subsystem.set_volume(1, volume).expect("a valid volume");
    subsystem
}

/// A queue with its gate. Without an I/O queue it is the admin queue of controller 1.
struct Queue<'a> {
    subsystem: &'a mut Subsystem,
    gate: Gate,
    io: Option<IoQueue>,
    sequence: Sequence,
}

impl<'a> Queue<'a> {
    fn connect(subsystem: &'a mut Subsystem, qid: u16) -> (Self, Cqe) {
        let ours = credentials(5);
        let attributes = ConnectAttributes::DISABLE_SQ_FLOW;
        let connect = Connect { recfmt: 0, qid, sqsize: 31, attributes, kato_ms: 0 };
        let cntlid = if qid == 0 { CNTLID_DYNAMIC } else { 1 };
        let data = ConnectData::new(HostId([7; 16]), cntlid, &ours.subsystem, &ours.host);
        let accepted = subsystem.connect(NOW, PORT, 1, &connect, &data).expect("the host is allowed");
        let cqe = Cqe { result: Gate::announce(accepted.cqe.result), ..accepted.cqe };
        let io = (qid > 0).then(|| IoQueue::new(accepted.queue, accepted.view));
        (Self { subsystem, gate: Gate::new(ours, algorithms()), io, sequence: Sequence::new(0) }, cqe)
    }

    /// What the driver does with a command, and the answer to the host.
    fn command(&mut self, sqe: &Sqe, data: &[u8]) -> (Status, Vec<u8>, Outcome) {
        let entropy = Entropy::new(&[0x5a; Entropy::BYTES], self.sequence.take());
        match self.gate.admit(sqe) {
            Admission::Pass => {
                self.subsystem.handle_command(NOW, 1, sqe, data);
                self.answered(Outcome::Continue)
            }
            Admission::Refuse(status) => {
                let (status, data) = self.answer(sqe, Err(status));
                (status, data, Outcome::Continue)
            }
            Admission::Send { bytes } => {
                assert_eq!(bytes, data.len());
                let outcome = self.gate.handle_send(data, &entropy);
                let (status, data) = self.answer(sqe, Ok(Vec::new()));
                (status, data, outcome)
            }
            Admission::Receive { room } => match self.gate.handle_receive(room) {
                Ok((message, outcome)) => {
                    assert_eq!(message.len(), room);
                    let (status, data) = self.answer(sqe, Ok(message));
                    (status, data, outcome)
                }
                Err(_) => {
                    let (status, data) = self.answer(sqe, Err(Status::INVALID_FIELD));
                    (status, data, Outcome::Continue)
                }
            },
        }
    }

    fn answer(&mut self, sqe: &Sqe, result: Result<Vec<u8>, Status>) -> (Status, Vec<u8>) {
        if let Some(queue) = &mut self.io {
            let (status, data) =
                result.map_or_else(|status| (status, Vec::new()), |data| (Status::SUCCESS, data));
            let cqe = queue.refuse(sqe, status).expect("room in the queue");
            assert_eq!((cqe.cid, queue.outstanding()), (sqe.cid, 0));
            return (cqe.status, data);
        }
        match result {
            Ok(data) => self.subsystem.answer_command(1, sqe, data),
            Err(status) => self.subsystem.refuse_command(1, sqe, status),
        }
        let (status, data, _) = self.answered(Outcome::Continue);
        (status, data)
    }

    fn answered(&mut self, outcome: Outcome) -> (Status, Vec<u8>, Outcome) {
        match self.subsystem.poll_output() {
            Some(Output::Respond { cntlid: 1, cqe, data }) => (cqe.status, data, outcome),
            other => panic!("an answer, not {other:?}"),
        }
    }

    /// What a host does with this secret. Returns the last outcome at the controller.
    fn authenticate(&mut self, secret: u8) -> Outcome {
        let mut host = Host::new(credentials(secret), algorithms(), 3);
        let mut last = Outcome::Continue;
        loop {
            match host.next() {
                Next::Send(message) => {
                    let length = u32::try_from(message.len()).expect("short");
                    let sqe = command::send(2, Sgl::InCapsule { offset: 0, length }, length);
                    let (status, _, outcome) = self.command(&sqe, message);
                    assert_eq!(status, Status::SUCCESS);
                    last = outcome;
                    host.handle_sent();
                }
                Next::Receive => {
                    let length = 4096;
                    let sqe = command::receive(3, Sgl::Transport { length }, length);
                    let (status, data, outcome) = self.command(&sqe, &[]);
                    assert_eq!(status, Status::SUCCESS);
                    last = outcome;
                    let entropy = Entropy::new(&[0xa5; Entropy::BYTES], self.sequence.take());
                    host.handle_received(&data, &entropy);
                }
                Next::Authenticated | Next::Failed(_) => return last,
            }
        }
    }
}

fn enable() -> Sqe {
    Property::set(4, CC, ENABLED)
}

#[test]
fn an_admin_queue_passes_nothing_before_its_host_is_authenticated() {
    let mut subsystem = subsystem();
    let (mut queue, connected) = Queue::connect(&mut subsystem, 0);
    assert!(Connected::of(connected.result).authentication_required);
    assert_eq!(Connected::of(connected.result).cntlid, 1);
    let identify = Sqe { opcode: AdminOpcode::IDENTIFY.0, flags: 0x40, cid: 5, ..Sqe::default() };
    let events = Sqe { opcode: AdminOpcode::ASYNC_EVENT_REQUEST.0, ..identify };
    for sqe in [identify, events, enable(), Property::get(5, CC, false), disconnect(5)] {
        assert_eq!(queue.command(&sqe, &[]).0, REQUIRED, "{sqe:?}");
    }
    assert!(queue.gate.is_waiting());
    assert_eq!(queue.authenticate(5), Outcome::Authenticated);
    assert!(!queue.gate.is_waiting());
    assert_eq!(queue.command(&enable(), &[]).0, Status::SUCCESS);
}

#[test]
fn a_host_with_a_wrong_secret_gets_nothing_but_the_failure() {
    let mut subsystem = subsystem();
    let (mut queue, _) = Queue::connect(&mut subsystem, 0);
    assert!(matches!(queue.authenticate(6), Outcome::Failed(_)));
    assert_eq!(queue.command(&enable(), &[]).0, REQUIRED);
    assert!(matches!(queue.authenticate(5), Outcome::Failed(_)), "the connection is to end");
    assert_eq!(queue.command(&enable(), &[]).0, REQUIRED);
}

#[test]
fn an_io_queue_has_a_gate_of_its_own() {
    let mut subsystem = subsystem();
    let (mut admin, _) = Queue::connect(&mut subsystem, 0);
    admin.authenticate(5);
    assert_eq!(admin.command(&enable(), &[]).0, Status::SUCCESS);
    let (mut queue, connected) = Queue::connect(&mut subsystem, 1);
    assert!(Connected::of(connected.result).authentication_required);
    let sgl = Sgl::Transport { length: 4096 };
    let read = Sqe { opcode: IoOpcode::READ.0, flags: 0x40, cid: 9, nsid: 1, sgl, ..Sqe::default() };
    assert_eq!(queue.command(&read, &[]).0, REQUIRED);
    assert_eq!(queue.authenticate(5), Outcome::Authenticated);
    assert_eq!(queue.gate.admit(&read), Admission::Pass);
    let action = queue.io.as_mut().expect("an I/O queue").handle_command(&read);
    assert!(matches!(action, Ok(Action::Execute(_))), "{action:?}");
}

#[test]
fn a_command_of_authentication_is_checked_before_its_data_are_taken() {
    let mut subsystem = subsystem();
    let (mut queue, _) = Queue::connect(&mut subsystem, 0);
    let long = |length| command::send(1, Sgl::Transport { length }, length);
    assert_eq!(queue.command(&long(1 << 20), &[]).0, Status::INVALID_FIELD.no_retry());
    let vast = command::receive(1, Sgl::Transport { length: 1 << 20 }, 1 << 20);
    assert_eq!(queue.command(&vast, &[]).0, Status::INVALID_FIELD.no_retry());
    assert_eq!(queue.gate.admit(&long(72)), Admission::Send { bytes: 72 });
    // Room for no challenge: the message stays for one who asks with more.
    let mut host = Host::new(credentials(5), algorithms(), 3);
    let Next::Send(message) = host.next() else { panic!("begins with a message") };
    let message = message.to_vec();
    queue.command(&long(72), &message);
    host.handle_sent();
    let narrow = command::receive(1, Sgl::Transport { length: 100 }, 100);
    assert_eq!(queue.command(&narrow, &[]).0, Status::INVALID_FIELD);
    let length = u32::try_from(RECEIVED_BYTES_MAX).expect("short");
    let wide = command::receive(1, Sgl::Transport { length }, length);
    assert_eq!(queue.command(&wide, &[]).0, Status::SUCCESS);
}
