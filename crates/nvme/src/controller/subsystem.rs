//! The controllers of a subsystem: how they come and go, and what all of them are told.

use super::ana::{Away, GROUPS_AWAY, Node, Reach};
use super::association::{Association, Draining};
use super::config::{Access, Config, Kind, Port};
use super::discovery::Record;
use super::ending::{EndRequest, Waiting};
use super::guests::{Guest, GuestId};
use super::logs::IoCounts;
use super::namespace::{View, Volume, VolumeView};
use super::queue::{SubmissionQueue, Tag};
use super::reservations::Asker;
use crate::fabrics::{CNTLID_DYNAMIC, Connect, ConnectAttributes, ConnectData, Connected, InvalidParameter};
use crate::feature::Event;
use crate::{Cqe, HostId, Nqn, Status};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// A queue of a controller; 0 is the admin queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueueId {
    /// The controller.
    pub cntlid: u16,
    /// The queue.
    pub qid: u16,
}

/// A queue that was connected.
#[derive(Debug, Clone)]
pub struct Accepted {
    /// The queue.
    pub id: QueueId,
    /// What is outstanding on it: Connect itself was taken and completed.
    pub queue: SubmissionQueue,
    /// What the host may see; for [`IoQueue::new`](super::IoQueue::new).
    pub view: Arc<View>,
    /// The completion of Connect.
    pub cqe: Cqe,
}

/// Why a queue was not connected: the completion of Connect. The connection closes after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// The status.
    pub status: Status,
    /// Which parameter is at fault, if one is.
    pub parameter: Option<InvalidParameter>,
}

impl Refusal {
    /// The completion of the Connect with this identifier.
    #[must_use]
    pub fn completion(&self, cid: u16) -> Cqe {
        let result = self.parameter.map_or(0, InvalidParameter::result);
        Cqe { result, cid, status: self.status, ..Cqe::default() }
    }

    pub(super) const fn invalid(parameter: InvalidParameter) -> Self {
        let status = Status::CONNECT_INVALID_PARAMETERS.no_retry();
        Self { status, parameter: Some(parameter) }
    }

    const fn of(status: Status) -> Self {
        Self { status, parameter: None }
    }
}

/// Why a queue closes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CloseReason {
    /// The host disabled the controller.
    #[error("the host resets the controller")]
    Reset,
    /// The host shut the controller down.
    #[error("the host shuts the controller down")]
    Shutdown,
    /// The host was silent for longer than its keep-alive timeout.
    #[error("the keep-alive timeout of the host expired")]
    KeepAlive,
    /// The admin queue is gone.
    #[error("the admin queue of the controller is gone")]
    AdminQueueGone,
    /// The host is no longer allowed here.
    #[error("the host is no longer allowed to use the subsystem")]
    Access,
    /// The host asked for it on a newer controller.
    #[error("the host ended the controller from another one")]
    Superseded,
    /// It has reported a volume as lost for good that is served again.
    #[error("a volume that it has reported as lost is served again")]
    LossOver,
    /// The other node has another host with its identifier.
    #[error("another host has its host identifier, at the other node")]
    HostId,
    /// The host does not keep to the rules.
    #[error("the host does not keep to the rules of its queue")]
    Violation,
}

/// Why a volume cannot be a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum VolumeError {
    /// The NSID is out of range.
    #[error("NSID {nsid} is not between 1 and {max}")]
    Nsid {
        /// The NSID.
        nsid: u32,
        /// The largest one.
        max: u32,
    },
    /// Blocks of this size, a power of two, are not supported.
    #[error("blocks of 2^{0} bytes are not supported; Linux takes 512 to 4096")]
    BlockSize(u8),
    /// The NSID stands for a volume with other names or another block size.
    #[error("NSID {0} stands for another volume")]
    Identity(u32),
    /// A connected host still takes the NSID for a volume that was removed.
    #[error("a connected host still takes NSID {0} for the volume that was removed")]
    Remembered(u32),
}

/// A request to the driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Answer on the admin queue of this controller, with these data before the completion.
    Respond {
        /// The controller.
        cntlid: u16,
        /// The completion.
        cqe: Cqe,
        /// The data for the host, possibly none.
        data: Vec<u8>,
    },
    /// A command of the admin queue of this controller ends without an answer: the host has reset
    /// the controller, or shut it down. Its identifier may be that of another command from now on,
    /// which is answered after this.
    Dropped {
        /// The controller.
        cntlid: u16,
        /// The identifier of the command.
        cid: u16,
    },
    /// End the connection of this queue: drop what was received and not begun, wait for what was,
    /// then call [`Subsystem::handle_queue_closed`].
    Close {
        /// The queue.
        queue: QueueId,
        /// Why.
        reason: CloseReason,
    },
    /// The I/O queues of this controller have a new view.
    View {
        /// The controller.
        cntlid: u16,
        /// The view.
        view: Arc<View>,
    },
    /// The commands of this host at the other node have a new view.
    GuestView {
        /// The host.
        guest: GuestId,
        /// The view.
        view: Arc<View>,
    },
    /// Make the reservations of a volume durable as they are here, then call
    /// [`Subsystem::handle_saved`].
    Save {
        /// The volume's NSID.
        nsid: u32,
        /// Its reservations.
        report: crate::reservation::Report,
    },
    /// Wait until every command on a volume that was admitted under an older view than those given
    /// out so far has ended, then call [`Subsystem::handle_fenced`]. A view that is on its way to a
    /// queue counts as given out only when the queue has it.
    Fence {
        /// The volume's NSID.
        nsid: u32,
    },
    /// Complete a command of reservations, with these data for the host before.
    Reserved {
        /// The queue.
        queue: QueueId,
        /// The command.
        tag: Tag,
        /// The data, possibly none, or the status.
        result: Result<Vec<u8>, Status>,
    },
    /// The same for a command of a host at the other node.
    GuestReserved {
        /// The host.
        guest: GuestId,
        /// The command.
        tag: Tag,
        /// The data, possibly none, or the status.
        result: Result<Vec<u8>, Status>,
    },
    /// Have the other node, another process, end controllers, then call
    /// [`Subsystem::handle_other_answered`].
    AskOther(EndRequest),
    /// What the other node [has asked](Subsystem::end_for_other) is done, or refused.
    AnswerOther {
        /// The request.
        id: u64,
        /// How it ended.
        status: Status,
    },
    /// Tell the other node, another process, that this host has the identifier from now on, or that
    /// none has it here: [`Subsystem::set_host_elsewhere`].
    HostId {
        /// The identifier.
        host_id: HostId,
        /// The host.
        host: Option<Nqn>,
    },
    /// The controller is gone, and its identifier is free.
    Released {
        /// The controller.
        cntlid: u16,
    },
}

/// The controllers of one subsystem, at the ports of the nodes that are here.
#[derive(Debug)]
pub struct Subsystem {
    pub(super) config: Config,
    pub(super) volumes: BTreeMap<u32, Volume>,
    pub(super) controllers: BTreeMap<u16, Association>,
    /// Hosts at the other node.
    pub(super) guests: BTreeMap<GuestId, Guest>,
    /// By NSID.
    pub(super) reservations: BTreeMap<u32, super::reservations::Volume>,
    /// Set Features of persistence that are not answered, by their numbers.
    pub(super) persisting: BTreeMap<u64, super::reservation_features::Persisting>,
    pub(super) next_persisting: u64,
    pub(super) outputs: VecDeque<Output>,
    /// The volumes that are not served now, by NSID.
    pub(super) away: BTreeMap<u32, Away>,
    /// CHGCNT of the ANA log, and of each group.
    pub(super) ana_changes: u64,
    pub(super) group_changes: Vec<u64>,
    pub(super) records: Vec<Record>,
    pub(super) generation: u64,
    /// Of each node that is here.
    next_cntlids: BTreeMap<Node, u16>,
    pub(super) next_instance: u64,
    /// Requests that wait for the end of controllers.
    pub(super) ending: Vec<Waiting>,
    pub(super) next_end_request: u64,
    /// The hosts of the other node, another process, by their identifiers.
    pub(super) elsewhere: BTreeMap<HostId, Nqn>,
    /// Of other nodes, the instances below which controllers are finished.
    pub(super) finished: BTreeMap<u32, u64>,
    /// For health.
    pub(super) io_counts: IoCounts,
    /// When the machine began, for power-on hours.
    pub(super) began: Duration,
}

impl Subsystem {
    /// A subsystem without namespaces, whose nodes all serve.
    #[must_use]
    pub fn new(now: Duration, config: Config) -> Self {
        let last = config.cntlids.last_key_value().map_or(0, |(node, _)| node.0 + 1);
        let nodes = usize::try_from(config.nodes.max(last)).unwrap_or(usize::MAX);
        let next_cntlids = config.cntlids.iter().map(|(node, range)| (*node, *range.start())).collect();
        Self {
            config,
            volumes: BTreeMap::new(),
            controllers: BTreeMap::new(),
            guests: BTreeMap::new(),
            reservations: BTreeMap::new(),
            persisting: BTreeMap::new(),
            next_persisting: 0,
            outputs: VecDeque::new(),
            away: BTreeMap::new(),
            ana_changes: 0,
            group_changes: vec![0; nodes.saturating_add(GROUPS_AWAY)],
            records: Vec::new(),
            generation: 0,
            next_cntlids,
            next_instance: 0,
            ending: Vec::new(),
            next_end_request: 0,
            elsewhere: BTreeMap::new(),
            finished: BTreeMap::new(),
            io_counts: IoCounts::default(),
            began: now,
        }
    }

    /// What the subsystem is.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// The next request to the driver; `None` until the next input.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// The controllers, and the hosts that they belong to.
    pub fn controllers(&self) -> impl Iterator<Item = (u16, &Nqn, HostId)> {
        self.controllers.iter().map(|(cntlid, controller)| (*cntlid, &controller.host, controller.host_id))
    }

    /// Whether Connect to this name comes here.
    #[must_use]
    pub fn answers_to(&self, name: &Nqn) -> bool {
        *name == self.config.nqn || (self.config.kind == Kind::Discovery && name.is_discovery())
    }

    /// Connects a queue. NVMe over Fabrics, "Connect Command"
    ///
    /// # Errors
    /// [`Refusal`]: answer with it, and close the connection.
    pub fn connect(
        &mut self,
        now: Duration,
        port: Port,
        cid: u16,
        connect: &Connect,
        data: &ConnectData,
    ) -> Result<Accepted, Refusal> {
        if connect.recfmt != 0 {
            return Err(Refusal {
                status: Status::CONNECT_INCOMPATIBLE_FORMAT.no_retry(),
                parameter: Some(InvalidParameter::RECFMT),
            });
        }
        let subnqn = data.subsystem().map_err(|_| Refusal::invalid(InvalidParameter::SUBNQN))?;
        if !self.answers_to(&subnqn) {
            return Err(Refusal::invalid(InvalidParameter::SUBNQN));
        }
        let host = data.host().map_err(|_| Refusal::invalid(InvalidParameter::HOSTNQN))?;
        if data.host_id == HostId::default() {
            return Err(Refusal::invalid(InvalidParameter::HOST_ID));
        }
        // With DNR, so that hosts that understand it do not try for minutes.
        if !self.config.access.allows(&host) {
            let status = Status::CONNECT_INVALID_HOST.no_retry();
            return Err(Refusal { status, parameter: Some(InvalidParameter::HOSTNQN) });
        }
        // Both count from zero: MQES of n allows SQSIZE of n.
        if connect.sqsize == 0 || u32::from(connect.sqsize) > self.mqes() {
            return Err(Refusal::invalid(InvalidParameter::SQSIZE));
        }
        if connect.qid == 0 {
            self.connect_admin(now, port, cid, connect, data, host)
        } else {
            self.connect_io(port, cid, connect, data, &host)
        }
    }

    /// MQES: the most entries of a queue, minus one.
    pub(super) fn mqes(&self) -> u32 {
        self.config.limits.queue_entries.clamp(super::config::ADMIN_ENTRIES_MIN, 1 << 16) - 1
    }

    fn connect_admin(
        &mut self,
        now: Duration,
        port: Port,
        cid: u16,
        connect: &Connect,
        data: &ConnectData,
        host: Nqn,
    ) -> Result<Accepted, Refusal> {
        if data.cntlid != CNTLID_DYNAMIC {
            return Err(Refusal::invalid(InvalidParameter::CNTLID));
        }
        self.check_host_id(&host, data.host_id)?;
        let keep_alive = Association::rounded(connect.kato_ms);
        if keep_alive > self.config.limits.keep_alive {
            return Err(Refusal::invalid(InvalidParameter::KATO));
        }
        let of_host =
            |controller: &&Association| controller.host == host && controller.host_id == data.host_id;
        let limits = self.config.limits;
        // Without DNR: what is in the way may be a controller of the same host that is ending.
        if self.controllers.len() >= limits.controllers
            || self.controllers.values().filter(of_host).count() >= limits.controllers_per_host
        {
            return Err(Refusal::of(Status::CONNECT_CONTROLLER_BUSY));
        }
        let cntlid = self.free_cntlid(port.node).ok_or(Refusal::of(Status::CONNECT_CONTROLLER_BUSY))?;
        let (queue, cqe) = accepted(cid, cntlid, connect);
        let view = Arc::new(self.view_of(port.node, (&host, data.host_id), false));
        let mut controller = Association::new(
            now,
            (host, data.host_id),
            port,
            self.config.kind,
            queue,
            keep_alive,
            Arc::clone(&view),
            self.generation,
        );
        controller.instance = self.next_instance;
        self.next_instance = self.next_instance.wrapping_add(1);
        self.host_id_taken(&controller.host, controller.host_id);
        self.controllers.insert(cntlid, controller);
        Ok(Accepted { id: QueueId { cntlid, qid: 0 }, queue, view, cqe })
    }

    /// An identifier that no controller has. Identifiers go round, so that a host that lost its
    /// controller does not meet its identifier at once.
    fn free_cntlid(&mut self, node: Node) -> Option<u16> {
        let range = self.config.cntlids.get(&node)?.clone();
        let next = self.next_cntlids.get_mut(&node)?;
        let after = (*next..=*range.end()).chain(range.clone());
        let cntlid = after.into_iter().find(|cntlid| !self.controllers.contains_key(cntlid))?;
        *next = if cntlid == *range.end() { *range.start() } else { cntlid + 1 };
        Some(cntlid)
    }

    fn connect_io(
        &mut self,
        port: Port,
        cid: u16,
        connect: &Connect,
        data: &ConnectData,
        host: &Nqn,
    ) -> Result<Accepted, Refusal> {
        let io_queues = if self.config.kind == Kind::Io { self.config.limits.io_queues } else { 0 };
        let controller = self.controllers.get_mut(&data.cntlid);
        let controller = controller.filter(|controller| !controller.ends());
        let controller = controller.ok_or(Refusal::invalid(InvalidParameter::CNTLID))?;
        if controller.host != *host {
            return Err(Refusal::invalid(InvalidParameter::HOSTNQN));
        }
        if controller.host_id != data.host_id {
            return Err(Refusal::invalid(InvalidParameter::HOST_ID));
        }
        // A controller has its queues on ports of one kind, of one node.
        if (controller.port.transport, controller.port.node) != (port.transport, port.node) {
            return Err(Refusal::invalid(InvalidParameter::CNTLID));
        }
        if !controller.is_ready() {
            return Err(Refusal::of(Status::COMMAND_SEQUENCE_ERROR.no_retry()));
        }
        if connect.qid > controller.granted.unwrap_or(io_queues) {
            return Err(Refusal::invalid(InvalidParameter::QID));
        }
        if !controller.io.insert(connect.qid) {
            return Err(Refusal::of(Status::COMMAND_SEQUENCE_ERROR.no_retry()));
        }
        // Who connects may have to prove yet who it is: that does not keep the controller.
        let (queue, cqe) = accepted(cid, data.cntlid, connect);
        let id = QueueId { cntlid: data.cntlid, qid: connect.qid };
        Ok(Accepted { id, queue, view: Arc::clone(&controller.view), cqe })
    }

    /// A queue's connection is closed, and no command of it is executed or will be. For the admin
    /// queue this also ends the controller.
    pub fn handle_queue_closed(&mut self, now: Duration, queue: QueueId) {
        self.forget_asker(|asker| matches!(asker, Asker::Queue(asker, _) if *asker == queue));
        let Some(controller) = self.controllers.get_mut(&queue.cntlid) else { return };
        if queue.qid == 0 {
            controller.admin = None;
            self.end(queue.cntlid, CloseReason::AdminQueueGone);
        } else {
            controller.io.remove(&queue.qid);
        }
        self.settle(now, queue.cntlid);
    }

    /// What waited for the I/O queues to close goes on, if they are.
    pub(super) fn settle(&mut self, now: Duration, cntlid: u16) {
        let Some(controller) = self.controllers.get_mut(&cntlid) else { return };
        if !controller.io.is_empty() {
            return;
        }
        controller.drained(now);
        if controller.ends() && controller.admin.is_none() {
            let removed = self.controllers.remove(&cntlid);
            self.outputs.push_back(Output::Released { cntlid });
            removed.iter().for_each(|one| self.host_id_left(one.host_id));
            self.drop_persisting(cntlid);
            self.answer_endings();
        }
    }

    /// Ends a controller: all of its queues close, and then its identifier is free.
    pub(super) fn end(&mut self, cntlid: u16, reason: CloseReason) {
        let Some(controller) = self.controllers.get_mut(&cntlid) else { return };
        let closing = controller.draining != Draining::No;
        if !controller.end() {
            return;
        }
        if !closing {
            self.close_io(cntlid, reason);
        }
        if self.controllers.get(&cntlid).is_some_and(|controller| controller.admin.is_some()) {
            self.outputs.push_back(Output::Close { queue: QueueId { cntlid, qid: 0 }, reason });
        }
    }

    /// The I/O queues of a controller close.
    pub(super) fn close_io(&mut self, cntlid: u16, reason: CloseReason) {
        let Some(controller) = self.controllers.get(&cntlid) else { return };
        let close = |qid: &u16| Output::Close { queue: QueueId { cntlid, qid: *qid }, reason };
        self.outputs.extend(controller.io.iter().map(close));
    }

    /// When [`Subsystem::handle_timeout`] has something to do, if nothing else happens before.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Duration> {
        let keep_alive = self.controllers.values().filter_map(Association::deadline);
        let moving = self.away.values().filter(|away| away.reach == Reach::Moving);
        let moves = moving.map(|away| away.since + self.config.limits.ana_transition);
        keep_alive.chain(moves).min()
    }

    /// Time has passed. `traffic` says whether an I/O queue of a controller has received a command
    /// since it was last asked ([`IoQueue::take_traffic`](super::IoQueue::take_traffic)).
    pub fn handle_timeout(&mut self, now: Duration, mut traffic: impl FnMut(u16) -> bool) {
        let mut expired = Vec::new();
        for (cntlid, controller) in &mut self.controllers {
            if controller.has_expired(now, || traffic(*cntlid)) {
                expired.push(*cntlid);
            }
        }
        for cntlid in expired {
            self.end(cntlid, CloseReason::KeepAlive);
        }
        self.end_moves(now);
    }

    /// This process stood still for this long (it was stopped, or its loop was busy): no host has
    /// been silent in that time.
    pub fn handle_stall(&mut self, lost: Duration) {
        self.controllers.values_mut().for_each(|controller| controller.extend(lost));
    }

    /// Adds or changes a volume.
    ///
    /// # Errors
    /// [`VolumeError`]; nothing changes then.
    pub fn set_volume(&mut self, nsid: u32, volume: Volume) -> Result<(), VolumeError> {
        if nsid == 0 || nsid > self.config.limits.nsid {
            return Err(VolumeError::Nsid { nsid, max: self.config.limits.nsid });
        }
        if !(9..=12).contains(&volume.block_shift) {
            return Err(VolumeError::BlockSize(volume.block_shift));
        }
        let known = self.volumes.get(&nsid).map(|known| (known.ids, known.block_shift));
        if known.is_some_and(|known| known != (volume.ids, volume.block_shift)) {
            return Err(VolumeError::Identity(nsid));
        }
        let remembered = self.controllers.values().any(|controller| controller.remembers(nsid, &volume.ids));
        if known.is_none() && remembered {
            return Err(VolumeError::Remembered(nsid));
        }
        let owner = volume.owner;
        let before = self.volumes.insert(nsid, volume).map(|volume| volume.owner);
        if before != Some(owner) {
            before.into_iter().chain([owner]).for_each(|node| self.touch_group(node.group()));
        }
        self.refresh(Some(nsid));
        Ok(())
    }

    /// Changes which hosts see a volume. Commands that were taken before go on. An NSID without a
    /// volume stays without.
    pub fn set_hosts(&mut self, nsid: u32, hosts: Access) {
        let Some(volume) = self.volumes.get_mut(&nsid) else { return };
        if std::mem::replace(&mut volume.hosts, hosts) != volume.hosts {
            self.refresh(Some(nsid));
        }
    }

    /// Removes a volume. Its NSID stands for another volume only when each host that saw it has
    /// looked at what changed, or has gone.
    pub fn remove_volume(&mut self, nsid: u32) {
        let Some(volume) = self.volumes.remove(&nsid) else { return };
        for controller in self.controllers.values_mut() {
            if controller.view.namespace(nsid).is_some() {
                controller.remember(nsid, volume.ids);
            }
        }
        self.end_reservations(nsid);
        self.away.remove(&nsid);
        self.touch_group(volume.owner.group());
        self.refresh(Some(nsid));
    }

    /// Changes which hosts may connect. Controllers of others end.
    pub fn set_access(&mut self, access: Access) {
        let lost = |(cntlid, controller): (&u16, &Association)| {
            (!access.allows(&controller.host)).then_some(*cntlid)
        };
        let lost: Vec<u16> = self.controllers.iter().filter_map(lost).collect();
        self.config.access = access;
        for cntlid in lost {
            self.end(cntlid, CloseReason::Access);
        }
        self.renew_guests();
    }

    /// Changes which hosts have which identifiers. Hosts that are connected stay.
    pub fn set_host_ids(&mut self, host_ids: BTreeMap<Nqn, HostId>) {
        self.config.host_ids = host_ids;
    }

    /// Gives every controller the view of its host, and tells the hosts what changed for them.
    pub(super) fn refresh(&mut self, changed: Option<u32>) {
        self.ana_changes += 1;
        let cntlids: Vec<u16> = self.controllers.keys().copied().collect();
        for cntlid in cntlids {
            let Some(controller) = self.controllers.get(&cntlid) else { continue };
            let view = self.view_for(controller);
            let Some(controller) = self.controllers.get_mut(&cntlid) else { continue };
            if *controller.view == view {
                continue;
            }
            if let Some(nsid) = changed {
                // It still takes the NSID for the volume that it sees no more.
                if let Some(volume) = self.volumes.get(&nsid)
                    && controller.view.namespace(nsid).is_some()
                    && view.namespace(nsid).is_none()
                {
                    controller.remember(nsid, volume.ids);
                }
                controller.changed.add(nsid);
                controller.events.raise(Event::NAMESPACE_CHANGED);
            }
            // Also after a change of namespaces: older kernels look at the ANA log only then, and
            // a namespace without a state never appears.
            controller.events.raise(Event::ANA_CHANGED);
            let view = Arc::new(view);
            controller.view = Arc::clone(&view);
            self.outputs.push_back(Output::View { cntlid, view });
            self.send_events(cntlid);
        }
        self.renew_guests();
    }

    /// Gives a controller's queues a new view after one of its features changed.
    pub(super) fn renew_view(&mut self, cntlid: u16) {
        let Some(controller) = self.controllers.get(&cntlid) else { return };
        let view = Arc::new(self.view_for(controller));
        if let Some(controller) = self.controllers.get_mut(&cntlid) {
            controller.view = Arc::clone(&view);
        }
        self.outputs.push_back(Output::View { cntlid, view });
    }

    pub(super) fn view_for(&self, one: &Association) -> View {
        self.view_of(one.port.node, (&one.host, one.host_id), one.retry_delays)
    }

    pub(super) fn view_of(&self, here: Node, (host, host_id): (&Nqn, HostId), retry_delays: bool) -> View {
        // What is reserved elsewhere is looked at there.
        let allows = |nsid: &u32, owner, writes| {
            let reserved = self.reservations.get(nsid).filter(|_| !self.is_elsewhere(owner));
            reserved.is_none_or(|volume| volume.state.allows(host_id, writes))
        };
        let seen = self.volumes.iter().filter(|(_, volume)| volume.hosts.allows(host));
        let namespaces = seen.map(|(nsid, volume)| VolumeView {
            nsid: *nsid,
            volume: volume.id,
            blocks: volume.blocks,
            block_shift: volume.block_shift,
            ana: self.ana_state(*nsid, volume.owner, here),
            write_protected: volume.write_protected,
            may_read: allows(nsid, volume.owner, false),
            may_write: allows(nsid, volume.owner, true),
        });
        let transfer_bytes = self.config.limits.transfer_bytes;
        View {
            namespaces: namespaces.collect(),
            transfer_bytes,
            retry_delays,
            reservations: self.config.reservations,
        }
    }
}

/// The queue of a Connect that succeeds: one command was taken and is completed.
fn accepted(cid: u16, cntlid: u16, connect: &Connect) -> (SubmissionQueue, Cqe) {
    let flow_control = !connect.attributes.has(ConnectAttributes::DISABLE_SQ_FLOW);
    let mut queue = SubmissionQueue::new(connect.sqsize, flow_control);
    let sqhd = queue.complete();
    let result = Connected::new(cntlid).result();
    (queue, Cqe { result, sqhd, sqid: 0, cid, status: Status::SUCCESS })
}
