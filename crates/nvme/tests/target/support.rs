//! A subsystem, and hosts that connect to it one command at a time.

use nvme::controller::{
    Accepted, Access, CloseReason, Config, Kind, Limits, Node, Output, Port, QueueId, Refusal, Subsystem,
    Volume, VolumeId,
};
use nvme::fabrics::{CNTLID_DYNAMIC, Connect, ConnectAttributes, ConnectData, Property};
use nvme::feature::{Feature, FeatureId};
use nvme::identify::{Cns, CommandSet, Controller, Identify, NamespaceIds};
use nvme::log_page::{GetLogPage, LogId};
use nvme::register::{CC, CSTS, Configuration, ControllerStatus};
use nvme::{AdminOpcode, Cqe, HostId, NSID_ALL, Nqn, Sgl, Sqe, Status, Transport};
use std::collections::BTreeMap;
use std::time::Duration;

pub const TCP: Port = Port { node: Node(0), transport: Transport::Tcp, capsule_data_bytes: 8192 };

pub fn nqn(name: &str) -> Nqn {
    Nqn::new(&format!("nqn.2026-11.test:{name}")).expect("a valid name")
}

pub fn config(kind: Kind) -> Config {
    Config {
        nqn: nqn("array"),
        kind,
        serial: "0001".to_owned(),
        model: "Model".to_owned(),
        firmware: "1.0".to_owned(),
        nodes: 2,
        cntlids: [(Node(0), 1..=100), (Node(1), 201..=300)].into(),
        is_split: false,
        access: Access::Any,
        host_ids: BTreeMap::new(),
        reservations: false,
        limits: Limits::default(),
    }
}

/// A volume of 1000 blocks of 512 bytes that the first node owns and every host sees.
pub fn volume(id: u64) -> Volume {
    Volume {
        id: VolumeId(id),
        ids: NamespaceIds { eui64: None, nguid: None, uuid: Some([id as u8; 16]) },
        blocks: 1000,
        block_shift: 9,
        owner: Node(0),
        hosts: Access::Any,
        write_protected: false,
        volatile_cache: false,
        deallocated_reads_zero: true,
        preferred_blocks: 0,
    }
}

/// Each host has its own.
pub fn host_id(host: &str) -> HostId {
    let mut id = [b'.'; 16];
    id.iter_mut().zip(host.bytes()).for_each(|(place, byte)| *place = byte);
    HostId(id)
}

pub fn only(hosts: &[&str]) -> Access {
    Access::Only(hosts.iter().map(|host| nqn(host)).collect())
}

pub fn connect_command(qid: u16, sqsize: u16, kato_ms: u32) -> Connect {
    Connect { recfmt: 0, qid, sqsize, attributes: ConnectAttributes::NONE, kato_ms }
}

/// A subsystem with a clock.
pub struct Target {
    pub subsystem: Subsystem,
    pub now: Duration,
    cid: u16,
}

impl Target {
    pub fn new(config: Config) -> Self {
        Self { subsystem: Subsystem::new(Duration::ZERO, config), now: Duration::ZERO, cid: 0 }
    }

    /// A subsystem of this kind, for input and output with one volume under NSID 1.
    pub fn of(kind: Kind) -> Self {
        let mut target = Self::new(config(kind));
        if kind == Kind::Io {
            target.subsystem.set_volume(1, volume(1)).expect("a good volume");
        }
        target
    }

    pub fn data(&self, host: &str, cntlid: u16) -> ConnectData {
        ConnectData::new(host_id(host), cntlid, &self.subsystem.config().nqn, &nqn(host))
    }

    pub fn try_connect(&mut self, host: &str, cntlid: u16, connect: &Connect) -> Result<Accepted, Refusal> {
        let data = self.data(host, cntlid);
        self.subsystem.connect(self.now, TCP, 7, connect, &data)
    }

    /// Connects an admin queue with a keep-alive timeout of 5 s.
    pub fn connect(&mut self, host: &str) -> u16 {
        let connect = connect_command(0, 31, 5000);
        self.try_connect(host, CNTLID_DYNAMIC, &connect).expect("accepted").id.cntlid
    }

    /// Connects an admin queue and enables the controller.
    pub fn enabled(&mut self, host: &str) -> u16 {
        let cntlid = self.connect(host);
        self.configure(cntlid, Configuration::ENABLE);
        assert!(self.status(cntlid).ready);
        cntlid
    }

    pub fn connect_io(&mut self, host: &str, cntlid: u16, qid: u16) -> Accepted {
        self.try_connect(host, cntlid, &connect_command(qid, 127, 0)).expect("accepted")
    }

    pub fn outputs(&mut self) -> Vec<Output> {
        std::iter::from_fn(|| self.subsystem.poll_output()).collect()
    }

    /// The queues that are to close, and why; other outputs are dropped.
    pub fn closed(&mut self) -> Vec<(QueueId, CloseReason)> {
        let close = |output: Output| match output {
            Output::Close { queue, reason } => Some((queue, reason)),
            _ => None,
        };
        self.outputs().into_iter().filter_map(close).collect()
    }

    /// Sends a command and returns all answers.
    pub fn send(&mut self, cntlid: u16, sqe: Sqe, data: &[u8]) -> Vec<(Cqe, Vec<u8>)> {
        self.subsystem.handle_command(self.now, cntlid, &sqe, data);
        self.answers()
    }

    /// The answers among the outputs; views are dropped.
    pub fn answers(&mut self) -> Vec<(Cqe, Vec<u8>)> {
        let answer = |output: Output| match output {
            Output::Respond { cqe, data, .. } => Some((cqe, data)),
            Output::View { .. } => None,
            other => panic!("no answer: {other:?}"),
        };
        self.outputs().into_iter().filter_map(answer).collect()
    }

    /// Sends a command and returns its answer, the first one.
    pub fn command(&mut self, cntlid: u16, sqe: Sqe, data: &[u8]) -> (Cqe, Vec<u8>) {
        self.cid += 1;
        let answers = self.send(cntlid, Sqe { cid: self.cid, ..sqe }, data);
        let answer = answers.into_iter().next().expect("an answer");
        assert_eq!(answer.0.cid, self.cid);
        answer
    }

    pub fn property(&mut self, cntlid: u16, offset: u32, is_8_bytes: bool) -> Result<u64, Status> {
        let (cqe, _) = self.command(cntlid, Property::get(0, offset, is_8_bytes), &[]);
        if cqe.status.is_success() { Ok(cqe.result) } else { Err(cqe.status) }
    }

    /// Sets CC; returns the queues that are to close.
    pub fn configure(&mut self, cntlid: u16, configuration: Configuration) -> Vec<(QueueId, CloseReason)> {
        self.subsystem.handle_command(self.now, cntlid, &Property::set(9, CC, configuration.0), &[]);
        self.closed()
    }

    pub fn status(&mut self, cntlid: u16) -> ControllerStatus {
        let value = self.property(cntlid, CSTS, false).expect("a property");
        ControllerStatus::decode(u32::try_from(value).expect("four bytes"))
    }

    pub fn identify(&mut self, cntlid: u16, cns: Cns, nsid: u32) -> Result<Vec<u8>, Status> {
        let identify = Identify { cns, cntid: 0, command_set: CommandSet::NVM, nsid };
        self.read(cntlid, identify.command(0, Sgl::Transport { length: 4096 }))
    }

    pub fn identify_controller(&mut self, cntlid: u16) -> Controller {
        let data = self.identify(cntlid, Cns::CONTROLLER, 0).expect("a controller");
        Controller::decode(&data).expect("a structure")
    }

    pub fn log(&mut self, cntlid: u16, log: LogId, offset: u64, bytes: u32) -> Result<Vec<u8>, Status> {
        self.log_retaining(cntlid, log, offset, bytes, false)
    }

    pub fn log_retaining(
        &mut self,
        cntlid: u16,
        log: LogId,
        offset: u64,
        bytes: u32,
        retain_event: bool,
    ) -> Result<Vec<u8>, Status> {
        let bytes64 = bytes.into();
        let get = GetLogPage { log, parameter: 0, retain_event, bytes: bytes64, offset, nsid: NSID_ALL };
        self.read(cntlid, get.command(0, Sgl::Transport { length: bytes }))
    }

    pub fn read(&mut self, cntlid: u16, sqe: Sqe) -> Result<Vec<u8>, Status> {
        let (cqe, data) = self.command(cntlid, sqe, &[]);
        if cqe.status.is_success() { Ok(data) } else { Err(cqe.status) }
    }

    pub fn set_feature(&mut self, cntlid: u16, id: FeatureId, value: u32) -> Result<u64, Status> {
        self.set_feature_data(cntlid, id, value, &[])
    }

    pub fn set_feature_data(
        &mut self,
        cntlid: u16,
        id: FeatureId,
        value: u32,
        data: &[u8],
    ) -> Result<u64, Status> {
        let sgl = Sgl::InCapsule { offset: 0, length: data.len() as u32 };
        let (cqe, _) = self.command(cntlid, Feature::set(0, id, value, sgl), data);
        if cqe.status.is_success() { Ok(cqe.result) } else { Err(cqe.status) }
    }

    /// Sends a request for events of this identifier; returns the answers.
    pub fn wait_for_event(&mut self, cntlid: u16, cid: u16) -> Vec<(Cqe, Vec<u8>)> {
        self.send(cntlid, Sqe::new(AdminOpcode::ASYNC_EVENT_REQUEST.0, cid, 0), &[])
    }

    /// Lets time pass without any traffic.
    pub fn pass(&mut self, time: Duration) {
        self.now += time;
        self.subsystem.handle_timeout(self.now, |_| false);
    }

    pub fn queue_closed(&mut self, cntlid: u16, qid: u16) {
        self.subsystem.handle_queue_closed(self.now, QueueId { cntlid, qid });
    }
}
