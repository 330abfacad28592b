//! One controller as a host sees it: from Connect to the end.

use crate::fabrics::{
    CNTLID_DYNAMIC, Connect, ConnectAttributes, ConnectData, Connected, InvalidParameter, Property,
};
use crate::feature::{Event, Feature, FeatureId, QueueCounts};
use crate::identify::{
    AsyncEvents, Cns, CntrlType, CommandSet, Controller, IDENTIFY_BYTES, Identify, MultiPath, NSID_LIST_MAX,
    NamespaceList, OptionalCommands, SglSupport, VWC_PRESENT,
};
use crate::log_page::{ANA_GROUP_BYTES, ANA_HEAD_BYTES, AnaLog, AnaLogError, GetLogPage, LogId};
use crate::register::{CAP, CC, CSTS, Capabilities, Configuration, ControllerStatus};
use crate::{AdminOpcode, Cqe, HostId, NSID_ALL, Nqn, Sgl, Sqe, Status};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// How long a command of the bring-up may take.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);

/// The entries of an admin queue.
const ADMIN_ENTRIES: u16 = 32;

/// How long to wait before CSTS is read again, at first and at most.
const POLL: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(100));

/// The most namespaces that are listed.
const NAMESPACES_MAX: usize = 1 << 16;

/// The longest ANA log that is read, in bytes.
const ANA_LOG_BYTES_MAX: u64 = 1 << 20;

/// What a controller is wanted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Input and output, over this many I/O queues if the controller grants them.
    Io {
        /// The I/O queues, at least one.
        queues: u16,
    },
    /// Discovery.
    Discovery,
}

/// Who connects to what.
#[derive(Debug, Clone)]
pub struct HostConfig {
    /// The name of the host.
    pub host: Nqn,
    /// Its identifier, not zero.
    pub host_id: HostId,
    /// The name of the subsystem.
    pub subsystem: Nqn,
    /// What the controller is wanted for.
    pub role: Role,
    /// The entries of an I/O queue that are wanted, at least 2.
    pub entries: u16,
    /// The keep-alive timeout; zero for none.
    pub keep_alive: Duration,
    /// Whether queues have flow control by SQHD.
    pub flow_control: bool,
    /// Whether commands are described by keyed SGLs (RDMA), else by transport SGLs (TCP).
    pub keyed: bool,
}

/// What a controller can do, as far as its user needs to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The controller.
    pub cntlid: u16,
    /// The most data of one command, in bytes; `None` for no limit.
    pub transfer_bytes: Option<u64>,
    /// The most data in a capsule of an I/O queue, in bytes.
    pub capsule_data_bytes: u32,
    /// The I/O queues.
    pub io_queues: u16,
    /// The entries of each.
    pub entries: u16,
    /// Optional commands.
    pub commands: OptionalCommands,
    /// Whether completed writes may be lost without Flush.
    pub volatile_cache: bool,
    /// CRDT 1 to 3, in units of 100 ms.
    pub retry_delays_100_ms: [u16; 3],
}

/// Data of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandData {
    /// None.
    None,
    /// These, for the controller.
    Send(Vec<u8>),
    /// This many bytes, from the controller.
    Receive(u32),
}

/// A command for the driver to send. Its identifier and its SGL are the connection's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// The command.
    pub sqe: Sqe,
    /// Its data.
    pub data: CommandData,
}

/// Why a controller cannot be used, or not any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// A command of the bring-up failed.
    #[error("{0:?} failed: {1}")]
    Command(Purpose, Status),
    /// Connect was refused: there is no subsystem of this name at this address.
    #[error("there is no subsystem of this name: {0}")]
    NoSubsystem(Status),
    /// A command was not answered in time.
    #[error("{0:?} was not answered in time")]
    Timeout(Purpose),
    /// The controller did not become ready.
    #[error("the controller did not become ready")]
    NotReady,
    /// The controller reports a fatal error.
    #[error("the controller reports a fatal error")]
    Fatal,
    /// Identify Controller says something that cannot be.
    #[error("Identify Controller: {0}")]
    Identify(&'static str),
    /// Data are shorter than their structure.
    #[error("{0:?} returned too few data")]
    Short(Purpose),
    /// The ANA log is not valid.
    #[error("{0}")]
    Ana(#[from] AnaLogError),
    /// The controller wants TLS.
    #[error("the controller wants a secure channel (TLS) after authentication")]
    SecureChannel,
    /// A list of namespaces that does not end or does not ascend.
    #[error("the list of namespaces does not ascend")]
    Namespaces,
}

/// What a command is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Connect of the admin queue.
    Connect,
    /// Property Get of CAP.
    Capabilities,
    /// Property Set of CC.
    Enable,
    /// Property Get of CSTS.
    Status,
    /// Identify Controller.
    Identify,
    /// Set Features, Number of Queues.
    Queues,
    /// Connect of an I/O queue.
    ConnectIo(u16),
    /// Authentication on a queue.
    Authenticate(u16),
    /// Set Features, Asynchronous Event Configuration.
    Events,
    /// Asynchronous Event Request.
    WaitForEvent,
    /// Get Log Page, changed namespaces.
    ChangedNamespaces,
    /// Identify, active namespaces.
    Namespaces,
    /// Get Log Page, ANA.
    Ana,
    /// Keep Alive.
    KeepAlive,
}

/// A request to the driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostOutput {
    /// Send this on the admin queue, and report by [`Initiator::handle_completion`].
    Admin {
        /// Identifies the command.
        id: u32,
        /// The command.
        command: Command,
    },
    /// Make a connection for this I/O queue, send this on it as its first command, and report by
    /// [`Initiator::handle_completion`].
    ConnectIo {
        /// Identifies the command.
        id: u32,
        /// The queue.
        qid: u16,
        /// The command.
        command: Command,
    },
    /// Authenticate on this queue, which the controller asks for, and report by
    /// [`Initiator::handle_authenticated`]; or end all connections. Other queues go on.
    Authenticate {
        /// Identifies the request.
        id: u32,
        /// The queue.
        qid: u16,
    },
    /// All queues are connected.
    Live(Limits),
    /// The namespaces that the controller has, all of them.
    Namespaces(Vec<u32>),
    /// How it reaches them.
    Ana(AnaLog),
    /// The discovery log changed: read it, which also clears the event.
    DiscoveryChanged,
    /// End all connections.
    Failed(Failure),
}

#[derive(Debug, Clone, Copy)]
struct Outstanding {
    purpose: Purpose,
    /// When it is late; `None` if it may wait for ever.
    deadline: Option<Duration>,
}

/// One controller as a host sees it.
#[derive(Debug)]
pub struct Initiator {
    config: HostConfig,
    outputs: VecDeque<HostOutput>,
    outstanding: BTreeMap<u32, Outstanding>,
    next_id: u32,
    cntlid: u16,
    capabilities: Option<Capabilities>,
    controller: Option<Controller>,
    io_queues: u16,
    io_connected: u16,
    /// When CSTS is read next, how long after that, and when it is too late.
    poll: Option<(Duration, Duration)>,
    ready_deadline: Duration,
    next_keep_alive: Option<Duration>,
    /// What was listed so far.
    namespaces: Vec<u32>,
    /// The list is being read; true if it has to be read again.
    listing: Option<bool>,
    /// The ANA log that is being read is too old.
    reads_ana_again: bool,
    is_live: bool,
    failed: bool,
}

impl Initiator {
    /// Begins: the first output is Connect for the admin queue, whose connection is there.
    #[must_use]
    pub fn new(now: Duration, config: HostConfig) -> Self {
        let mut this = Self {
            config,
            outputs: VecDeque::new(),
            outstanding: BTreeMap::new(),
            next_id: 0,
            cntlid: CNTLID_DYNAMIC,
            capabilities: None,
            controller: None,
            io_queues: 0,
            io_connected: 0,
            poll: None,
            ready_deadline: Duration::ZERO,
            next_keep_alive: None,
            namespaces: Vec::new(),
            listing: None,
            reads_ana_again: false,
            is_live: false,
            failed: false,
        };
        let command = this.connect(0, ADMIN_ENTRIES);
        this.send(now, Purpose::Connect, command);
        this
    }

    /// The next request to the driver; `None` until the next input.
    pub fn poll_output(&mut self) -> Option<HostOutput> {
        self.outputs.pop_front()
    }

    /// When [`Initiator::handle_timeout`] has something to do.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Duration> {
        if self.failed {
            return None;
        }
        let late = self.outstanding.values().filter_map(|one| one.deadline);
        late.chain(self.poll.map(|(at, _)| at)).chain(self.next_keep_alive).min()
    }

    /// What the controller has said of itself, once it has.
    #[must_use]
    pub const fn controller(&self) -> Option<&Controller> {
        self.controller.as_ref()
    }

    /// Whether all queues are connected and nothing has failed.
    #[must_use]
    pub const fn is_live(&self) -> bool {
        self.is_live && !self.failed
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Duration) {
        if self.failed {
            return;
        }
        let late = self.outstanding.values().find(|one| one.deadline.is_some_and(|deadline| now >= deadline));
        if let Some(late) = late {
            return self.fail(Failure::Timeout(late.purpose));
        }
        if self.poll.is_some_and(|(at, _)| now >= at) {
            if now >= self.ready_deadline {
                return self.fail(Failure::NotReady);
            }
            let sqe = Property::get(0, CSTS, false);
            self.send(now, Purpose::Status, Command { sqe, data: CommandData::None });
            self.poll = self.poll.take().map(|(_, wait)| (Duration::MAX, (wait * 2).min(POLL.1)));
        }
        if self.next_keep_alive.is_some_and(|at| now >= at) {
            let sqe = Sqe::new(AdminOpcode::KEEP_ALIVE.0, 0, 0);
            self.send(now, Purpose::KeepAlive, Command { sqe, data: CommandData::None });
            self.next_keep_alive = Some(now + self.config.keep_alive / 2);
        }
    }

    /// A command ended, with the data that came for it.
    pub fn handle_completion(&mut self, now: Duration, id: u32, cqe: &Cqe, data: &[u8]) {
        let Some(Outstanding { purpose, .. }) = self.outstanding.remove(&id) else { return };
        if self.failed {
            return;
        }
        if !cqe.status.is_success() {
            return self.fail(refusal(purpose, cqe));
        }
        if let Err(failure) = self.proceed(now, purpose, cqe.result, data) {
            self.fail(failure);
        }
    }

    /// The host is authenticated on the queue of this request.
    pub fn handle_authenticated(&mut self, now: Duration, id: u32) {
        let Some(Outstanding { purpose: Purpose::Authenticate(qid), .. }) = self.outstanding.remove(&id)
        else {
            return;
        };
        if !self.failed {
            self.queue_usable(now, qid);
        }
    }

    fn fail(&mut self, failure: Failure) {
        self.failed = true;
        self.outputs.push_back(HostOutput::Failed(failure));
    }

    fn send(&mut self, now: Duration, purpose: Purpose, command: Command) {
        let id = self.begin(now, purpose);
        self.outputs.push_back(match purpose {
            Purpose::ConnectIo(qid) => HostOutput::ConnectIo { id, qid, command },
            _ => HostOutput::Admin { id, command },
        });
    }

    /// Something is under way from now on.
    fn begin(&mut self, now: Duration, purpose: Purpose) -> u32 {
        let id = self.next_id;
        self.next_id = self.next_id.wrapping_add(1);
        let limit = match purpose {
            Purpose::WaitForEvent => None,
            Purpose::KeepAlive => Some(self.config.keep_alive),
            _ => Some(COMMAND_TIMEOUT),
        };
        let deadline = limit.map(|limit| now + limit);
        self.outstanding.insert(id, Outstanding { purpose, deadline });
        id
    }

    /// A queue is connected: it may be used, unless the host has to authenticate there.
    fn queue_connected(&mut self, now: Duration, qid: u16, connected: Connected) -> Result<(), Failure> {
        if connected.secure_channel_required {
            return Err(Failure::SecureChannel);
        }
        if connected.authentication_required {
            let id = self.begin(now, Purpose::Authenticate(qid));
            self.outputs.push_back(HostOutput::Authenticate { id, qid });
        } else {
            self.queue_usable(now, qid);
        }
        Ok(())
    }

    fn queue_usable(&mut self, now: Duration, qid: u16) {
        if qid == 0 {
            let sqe = Property::get(0, CAP, true);
            return self.send(now, Purpose::Capabilities, Command { sqe, data: CommandData::None });
        }
        self.io_connected += 1;
        if self.io_connected == self.io_queues {
            self.live(now);
        }
    }

    fn connect(&self, qid: u16, entries: u16) -> Command {
        let admin = qid == 0;
        let kato_ms = if admin { self.config.keep_alive.as_millis() } else { 0 };
        let attributes = if self.config.flow_control {
            ConnectAttributes::NONE
        } else {
            ConnectAttributes::DISABLE_SQ_FLOW
        };
        let connect = Connect {
            recfmt: 0,
            qid,
            sqsize: entries.max(2) - 1,
            attributes,
            kato_ms: u32::try_from(kato_ms).unwrap_or(u32::MAX),
        };
        let HostConfig { host_id, subsystem, host, .. } = &self.config;
        let data = ConnectData::new(*host_id, self.cntlid, subsystem, host).encode().to_vec();
        Command { sqe: connect.command(0, Sgl::NONE), data: CommandData::Send(data) }
    }

    fn proceed(&mut self, now: Duration, purpose: Purpose, result: u64, data: &[u8]) -> Result<(), Failure> {
        match purpose {
            Purpose::Connect => {
                let connected = Connected::of(result);
                self.cntlid = connected.cntlid;
                self.queue_connected(now, 0, connected)?;
            }
            Purpose::Capabilities => {
                self.capabilities = Some(Capabilities::decode(result));
                let sqe = Property::set(0, CC, Configuration::ENABLE.0);
                self.send(now, Purpose::Enable, Command { sqe, data: CommandData::None });
            }
            Purpose::Enable => {
                let timeout = self.capabilities.map_or(0, |capabilities| capabilities.timeout_500_ms);
                self.ready_deadline = now + Duration::from_millis(500) * u32::from(timeout.max(1));
                self.poll = Some((now, POLL.0));
                self.handle_timeout(now);
            }
            Purpose::Status => self.ready(now, ControllerStatus::decode(result as u32))?,
            Purpose::Identify => self.identified(now, data)?,
            Purpose::Queues => self.queues_granted(now, result),
            Purpose::ConnectIo(qid) => self.queue_connected(now, qid, Connected::of(result))?,
            // Not a command: it ends by [`Initiator::handle_authenticated`].
            Purpose::Authenticate(_) => {}
            Purpose::Events => self.wait_for_event(now),
            Purpose::WaitForEvent => {
                self.handle_event(now, Event::of(result));
                self.wait_for_event(now);
            }
            Purpose::ChangedNamespaces => self.list_namespaces(now),
            Purpose::Namespaces => self.namespaces_listed(now, data)?,
            Purpose::Ana => {
                self.outputs.push_back(HostOutput::Ana(AnaLog::decode(data)?));
                if std::mem::take(&mut self.reads_ana_again) {
                    self.read_ana(now);
                }
            }
            Purpose::KeepAlive => {}
        }
        Ok(())
    }

    fn ready(&mut self, now: Duration, status: ControllerStatus) -> Result<(), Failure> {
        if status.fatal {
            return Err(Failure::Fatal);
        }
        if !status.ready {
            self.poll = self.poll.map(|(_, wait)| (now + wait, wait));
            return Ok(());
        }
        self.poll = None;
        self.identify(now, Purpose::Identify, Cns::CONTROLLER, 0);
        Ok(())
    }

    fn identify(&mut self, now: Duration, purpose: Purpose, cns: Cns, nsid: u32) {
        let identify = Identify { cns, cntid: 0, command_set: CommandSet::NVM, nsid };
        let sqe = identify.command(0, Sgl::NONE);
        self.send(now, purpose, Command { sqe, data: CommandData::Receive(IDENTIFY_BYTES as u32) });
    }

    /// Checks what a controller says of itself, as Linux does.
    fn identified(&mut self, now: Duration, data: &[u8]) -> Result<(), Failure> {
        let controller = Controller::decode(data).map_err(|_| Failure::Short(Purpose::Identify))?;
        let needed = if self.config.keyed { SglSupport::KEYED } else { SglSupport::NONE };
        let sgls = controller.sgls.0 & 3 != 0 && controller.sgls.has(needed);
        let is_io = matches!(self.config.role, Role::Io { .. });
        let kind = controller.kind == if is_io { CntrlType::IO } else { CntrlType::DISCOVERY };
        let ana = controller.multi_path.has(MultiPath::ANA);
        let names = !ana || (controller.mnan > 0 && controller.mnan <= controller.nn);
        for (well, wrong) in [
            (controller.cntlid == self.cntlid, "another controller identifier than Connect's"),
            // Discovery controllers of Linux have KAS 0, and answer Keep Alive.
            (
                !is_io || controller.keep_alive_100_ms > 0 || self.config.keep_alive.is_zero(),
                "no keep-alive (KAS 0)",
            ),
            // Discovery controllers have no I/O capsules.
            (!is_io || controller.ioccsz >= 4, "command capsules are too short (IOCCSZ)"),
            (!is_io || controller.iorcsz >= 1, "response capsules are too short (IORCSZ)"),
            (controller.icdoff == 0, "data in capsules begin at an offset (ICDOFF)"),
            (sgls, "the SGLs of this transport are not supported (SGLS)"),
            (kind, "a controller of another type (CNTRLTYPE)"),
            (names, "with ANA the most namespaces must be between 1 and NN (MNAN)"),
        ] {
            if !well {
                return Err(Failure::Identify(wrong));
            }
        }
        self.controller = Some(controller);
        if !self.config.keep_alive.is_zero() {
            self.next_keep_alive = Some(now + self.config.keep_alive / 2);
        }
        match self.config.role {
            Role::Discovery => self.live(now),
            Role::Io { queues } => {
                let queues = u32::from(queues.max(1));
                let value = QueueCounts { submission: queues, completion: queues }.encode();
                let sqe = Feature::set(0, FeatureId::NUMBER_OF_QUEUES, value, Sgl::NONE);
                self.send(now, Purpose::Queues, Command { sqe, data: CommandData::None });
            }
        }
        Ok(())
    }

    fn queues_granted(&mut self, now: Duration, result: u64) {
        let Role::Io { queues } = self.config.role else { return };
        let granted = QueueCounts::decode(result as u32).map_or(1, |one| one.submission.min(one.completion));
        self.io_queues = u16::try_from(granted).unwrap_or(u16::MAX).min(queues.max(1));
        for qid in 1..=self.io_queues {
            let command = self.connect(qid, self.io_entries());
            self.send(now, Purpose::ConnectIo(qid), command);
        }
    }

    /// As many entries as the host wants and the controller has. MQES counts from zero.
    fn io_entries(&self) -> u16 {
        let mqes = self.capabilities.map_or(0, |capabilities| capabilities.mqes);
        self.config.entries.min(mqes.saturating_add(1)).max(2)
    }

    fn live(&mut self, now: Duration) {
        let Some(controller) = self.controller else { return };
        self.is_live = true;
        let limits = Limits {
            cntlid: self.cntlid,
            transfer_bytes: (controller.mdts > 0).then(|| 4096_u64 << controller.mdts.min(32)),
            capsule_data_bytes: (controller.ioccsz.saturating_mul(16)).saturating_sub(64),
            io_queues: self.io_queues,
            entries: self.io_entries(),
            commands: controller.optional_commands,
            volatile_cache: controller.vwc & VWC_PRESENT != 0,
            retry_delays_100_ms: controller.retry_delays_100_ms,
        };
        self.outputs.push_back(HostOutput::Live(limits));
        let wanted = AsyncEvents::NAMESPACE_CHANGED
            .with(AsyncEvents::ANA_CHANGED)
            .with(AsyncEvents::DISCOVERY_CHANGED);
        let events = controller.events.0 & wanted.0;
        if events != 0 {
            let sqe = Feature::set(0, FeatureId::ASYNC_EVENTS, events, Sgl::NONE);
            self.send(now, Purpose::Events, Command { sqe, data: CommandData::None });
        }
        if matches!(self.config.role, Role::Io { .. }) {
            self.list_namespaces(now);
            self.read_ana(now);
        }
    }

    /// Reads the ANA log, because an answer of a namespace was not what the last one says: its
    /// event may have come before. If it is being read now, it is read again afterwards.
    pub fn refresh_ana(&mut self, now: Duration) {
        if self.failed || !self.is_live() {
            return;
        }
        if self.outstanding.values().any(|one| one.purpose == Purpose::Ana) {
            self.reads_ana_again = true;
        } else {
            self.read_ana(now);
        }
    }

    fn wait_for_event(&mut self, now: Duration) {
        let sqe = Sqe::new(AdminOpcode::ASYNC_EVENT_REQUEST.0, 0, 0);
        self.send(now, Purpose::WaitForEvent, Command { sqe, data: CommandData::None });
    }

    /// Reads the log page of an event, which makes room for the next one of its kind.
    fn handle_event(&mut self, now: Duration, event: Event) {
        if event == Event::NAMESPACE_CHANGED {
            self.read_log(now, Purpose::ChangedNamespaces, LogId::CHANGED_NAMESPACES, IDENTIFY_BYTES as u64);
        } else if event == Event::ANA_CHANGED {
            self.read_ana(now);
        } else if event == Event::DISCOVERY_CHANGED {
            self.outputs.push_back(HostOutput::DiscoveryChanged);
        }
    }

    fn read_log(&mut self, now: Duration, purpose: Purpose, log: LogId, bytes: u64) {
        let (parameter, retain_event, offset, nsid) = (0, false, 0, NSID_ALL);
        let get = GetLogPage { log, parameter, retain_event, bytes, offset, nsid };
        let room = u32::try_from(bytes).unwrap_or(u32::MAX);
        let sqe = get.command(0, Sgl::NONE);
        self.send(now, purpose, Command { sqe, data: CommandData::Receive(room) });
    }

    /// The ANA log is as long as the most groups and namespaces make it.
    fn read_ana(&mut self, now: Duration) {
        let Some(controller) = self.controller.filter(|one| one.multi_path.has(MultiPath::ANA)) else {
            return;
        };
        let groups = u64::from(controller.ana_groups) * ANA_GROUP_BYTES as u64;
        let bytes = ANA_HEAD_BYTES as u64 + groups + 4 * u64::from(controller.mnan);
        let transfer = if controller.mdts > 0 { 4096_u64 << controller.mdts.min(32) } else { u64::MAX };
        self.read_log(now, Purpose::Ana, LogId::ANA, bytes.min(transfer).min(ANA_LOG_BYTES_MAX));
    }

    /// Lists the namespaces; while that is under way, again afterwards.
    fn list_namespaces(&mut self, now: Duration) {
        if let Some(again) = &mut self.listing {
            *again = true;
            return;
        }
        self.listing = Some(false);
        self.namespaces.clear();
        self.identify(now, Purpose::Namespaces, Cns::ACTIVE_NAMESPACES, 0);
    }

    fn namespaces_listed(&mut self, now: Duration, data: &[u8]) -> Result<(), Failure> {
        if data.len() < IDENTIFY_BYTES {
            return Err(Failure::Short(Purpose::Namespaces));
        }
        let list = NamespaceList::decode(data).0;
        let is_full = list.len() == NSID_LIST_MAX;
        self.namespaces.extend(list);
        if !self.namespaces.is_sorted_by(|a, b| a < b) || self.namespaces.len() > NAMESPACES_MAX {
            return Err(Failure::Namespaces);
        }
        match self.namespaces.last() {
            Some(last) if is_full && *last < NSID_ALL - 1 => {
                let last = *last;
                self.identify(now, Purpose::Namespaces, Cns::ACTIVE_NAMESPACES, last);
            }
            _ => {
                self.outputs.push_back(HostOutput::Namespaces(std::mem::take(&mut self.namespaces)));
                if self.listing.take() == Some(true) {
                    self.list_namespaces(now);
                }
            }
        }
        Ok(())
    }
}

/// Why a command of the bring-up did not succeed. "Connect Response"
fn refusal(purpose: Purpose, cqe: &Cqe) -> Failure {
    let names_none = purpose == Purpose::Connect
        && cqe.status.is(Status::CONNECT_INVALID_PARAMETERS)
        && InvalidParameter::of(cqe.result) == InvalidParameter::SUBNQN;
    if names_none { Failure::NoSubsystem(cqe.status) } else { Failure::Command(purpose, cqe.status) }
}
