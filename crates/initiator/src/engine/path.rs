//! One address: its controller, and when it is tried again.

use super::{Engine, Health, Slot};
use crate::error::{Lost, Refusal};
use crate::queue::{Queue, Settings};
use crate::shared::PathState;
use nvme::end_controller::Instance;
use nvme::host::{Command, HostConfig, Initiator, Limits, Name, Role, safe_time};
use nvme::identify::{Controller as Identity, MultiPath, Namespace};
use nvme::log_page::{AnaLog, AnaState};
use nvme::{Address, Transport};
use std::collections::BTreeMap;
use std::time::Duration;

/// The entries of an admin queue.
const ADMIN_ENTRIES: u16 = 32;

#[derive(Debug)]
pub(super) struct Path {
    pub(super) address: Address,
    pub(super) state: State,
    pub(super) back_off: Duration,
    /// Why the last controller was lost.
    pub(super) last: Option<String>,
    /// The target refused for good.
    pub(super) refused: Option<Refusal>,
}

#[derive(Debug)]
pub(super) enum State {
    /// Until this time.
    Waiting(Duration),
    Open(Box<Controller>),
}

/// A controller, from its first connection to its end.
#[derive(Debug)]
pub(super) struct Controller {
    /// From when the admin queue takes commands.
    pub(super) initiator: Option<Initiator>,
    pub(super) admin: usize,
    pub(super) io: Vec<usize>,
    /// I/O queues that are being connected: the token, the machine's name, and its Connect.
    pub(super) connecting: Vec<(usize, u32, Command)>,
    /// The queues on which the host was authenticated.
    pub(super) authenticated: usize,
    pub(super) opened: Duration,
    pub(super) limits: Option<Limits>,
    /// The numbers of its namespaces, once it has said so.
    pub(super) listed: Option<Vec<u32>>,
    /// Those that it has not been asked for yet, the next one last. The queue has room for a few
    /// commands, so it is asked for one at a time.
    pub(super) unasked: Vec<u32>,
    /// It is asked for one.
    pub(super) is_asked: bool,
    /// Those that it has described.
    pub(super) namespaces: BTreeMap<u32, Namespace>,
    pub(super) ana: Option<AnaLog>,
    pub(super) health: Health,
}

impl Controller {
    pub(super) fn identity(&self) -> Option<&Identity> {
        self.initiator.as_ref()?.controller()
    }

    pub(super) fn instance(&self) -> Option<Instance> {
        Instance::of(self.identity()?)
    }

    /// By what another controller of its target is asked to end it, if that can be.
    pub(super) fn name(&self) -> Option<Name> {
        Name::of(self.identity()?)
    }

    /// Whether its I/O queues are connected.
    pub(super) fn is_live(&self) -> bool {
        self.initiator.as_ref().is_some_and(Initiator::is_live)
    }

    /// What the ANA log says now. It also says in which group a namespace is: the event of a change
    /// stands for that as well. NVMe Base, "Asynchronous Event Information - Notice"
    pub(super) fn set_ana(&mut self, log: AnaLog) {
        for group in &log.groups {
            for nsid in &group.nsids {
                if let Some(namespace) = self.namespaces.get_mut(nsid) {
                    namespace.ana_group = group.id;
                }
            }
        }
        self.ana = Some(log);
    }

    /// How it reaches a namespace; `None` if it has not said so yet.
    pub(super) fn ana_state(&self, namespace: &Namespace) -> Option<AnaState> {
        if !self.identity()?.multi_path.has(MultiPath::ANA) {
            return Some(AnaState::OPTIMIZED);
        }
        let log = self.ana.as_ref()?;
        log.groups.iter().find(|group| group.id == namespace.ana_group).map(|group| group.state)
    }

    fn ana_states(&self) -> BTreeMap<u32, AnaState> {
        let state = |(nsid, namespace): (&u32, &Namespace)| Some((*nsid, self.ana_state(namespace)?));
        self.namespaces.iter().filter_map(state).collect()
    }
}

impl Path {
    pub(super) const fn new(address: Address) -> Self {
        let state = State::Waiting(Duration::ZERO);
        Self { address, state, back_off: Duration::ZERO, last: None, refused: None }
    }

    pub(super) const fn controller(&self) -> Option<&Controller> {
        match &self.state {
            State::Open(controller) => Some(controller),
            State::Waiting(_) => None,
        }
    }

    pub(super) const fn controller_mut(&mut self) -> Option<&mut Controller> {
        match &mut self.state {
            State::Open(controller) => Some(controller),
            State::Waiting(_) => None,
        }
    }

    pub(super) fn is_live(&self) -> bool {
        self.controller().is_some_and(Controller::is_live)
    }

    pub(super) fn status(&self) -> PathState {
        let live = self.controller().filter(|controller| controller.is_live());
        PathState {
            address: self.address,
            cntlid: live.and_then(|controller| controller.limits.map(|limits| limits.cntlid)),
            ana: live.map(Controller::ana_states).unwrap_or_default(),
            listed: self.controller().and_then(|controller| controller.listed.clone()),
            is_suspect: live.is_some_and(|controller| controller.health.is_suspect()),
            last_error: self.last.clone(),
            refused: self.refused,
        }
    }
}

impl Engine {
    pub(super) fn controller(&self, path: usize) -> Option<&Controller> {
        self.paths.get(path)?.controller()
    }

    pub(super) fn controller_mut(&mut self, path: usize) -> Option<&mut Controller> {
        self.paths.get_mut(path)?.controller_mut()
    }

    pub(super) fn note_heard(&mut self, token: usize, path: usize) {
        let health = Health::new(self.now());
        if let Some(slot) = self.slots.get_mut(token) {
            slot.health = health;
        }
        if let Some(controller) = self.controller_mut(path) {
            controller.health = health;
        }
    }

    pub(super) fn host_config(&self, path: usize) -> HostConfig {
        let transport = self.paths.get(path).map(|path| path.address.transport);
        HostConfig {
            host: self.config.host.clone(),
            host_id: self.config.host_id,
            subsystem: self.config.subsystem.clone(),
            role: Role::Io { queues: self.config.queues },
            entries: self.config.entries,
            keep_alive: self.config.keep_alive,
            flow_control: false,
            keyed: transport == Some(Transport::Rdma),
        }
    }

    /// Begins a connection of this path.
    pub(super) fn open_queue(&mut self, path: usize, qid: u16, entries: u16) -> Result<usize, Lost> {
        let address = self.paths.get(path).map(|path| path.address).ok_or(Lost::Misuse)?;
        let queue = Queue::connect(&Settings { address, qid, entries, digests: self.config.digests })?;
        let token = self.slots.vacant_key();
        queue.register(&self.poller, token as u64)?;
        self.next_serial += 1;
        let serial = self.next_serial;
        let health = Health::new(self.now());
        Ok(self.slots.insert(Slot { queue, path, qid, health, authentication: None, serial }))
    }

    fn open(&mut self, path: usize, now: Duration) {
        let admin = match self.open_queue(path, 0, ADMIN_ENTRIES) {
            Ok(admin) => admin,
            Err(lost) => return self.wait(path, now, &lost),
        };
        let controller = Controller {
            initiator: None,
            admin,
            io: Vec::new(),
            connecting: Vec::new(),
            authenticated: 0,
            opened: now,
            limits: None,
            listed: None,
            unasked: Vec::new(),
            is_asked: false,
            namespaces: BTreeMap::new(),
            ana: None,
            health: Health::new(now),
        };
        if let Some(path) = self.paths.get_mut(path) {
            path.state = State::Open(Box::new(controller));
        }
    }

    /// The path is tried again later.
    fn wait(&mut self, path: usize, now: Duration, lost: &Lost) {
        let (first, most) = self.config.timing.back_off;
        let Some(path) = self.paths.get_mut(path) else { return };
        let last = path.last.replace(lost.to_string());
        path.refused = Refusal::of(lost);
        // A secret that is wrong is wrong in a moment, too.
        let is_patient = matches!(lost, Lost::Refused(_));
        path.back_off = if is_patient { most } else { (path.back_off * 2).clamp(first, most) };
        // Once for each reason: it may be tried for days.
        if last == path.last {
            tracing::debug!(address = %path.address, error = %lost, again_in = ?path.back_off, "still no path");
        } else if path.refused.is_some() {
            tracing::warn!(address = %path.address, error = %lost, "the target refuses this path");
        } else {
            tracing::warn!(address = %path.address, error = %lost, "no path; it is tried again");
        }
        path.state = State::Waiting(now + path.back_off);
    }

    pub(super) fn tick_path(&mut self, at: usize, now: Duration) {
        // Until older controllers are finished, one path at a time: the next one would end this
        // one's.
        let may_open = self.has_begun || self.paths.iter().all(|path| path.controller().is_none());
        let Some(path) = self.paths.get_mut(at) else { return };
        let Some(controller) = path.controller_mut() else {
            if matches!(path.state, State::Waiting(until) if now >= until) && may_open {
                self.open(at, now);
            }
            return;
        };
        let Some(initiator) = &mut controller.initiator else {
            if now >= controller.opened + self.config.timing.connect {
                self.lose(at, &Lost::ConnectTimeout);
            }
            return;
        };
        if initiator.poll_timeout().is_some_and(|due| now >= due) {
            initiator.handle_timeout(now);
            self.pump(at);
        }
        self.check_health(at, now);
    }

    /// A controller that owes answers and says nothing is asked, and lost if it does not answer; so
    /// is one with such a queue, whose connection may be lost while those of others live.
    fn check_health(&mut self, at: usize, now: Duration) {
        let timing = self.config.timing;
        let others = self.paths.iter().enumerate().any(|(other, path)| other != at && path.is_live());
        let limit = if others { timing.silent } else { timing.silent_alone };
        let Some(controller) = self.controller(at).filter(|controller| controller.is_live()) else { return };
        let sent_at = |tag| self.commands.parts.get(usize::try_from(tag).ok()?).map(|part| part.sent_at);
        let owing = |token: &usize| {
            let slot = self.slots.get(*token)?;
            let oldest = slot.queue.tags().into_iter().filter_map(sent_at).min()?;
            Some((*token, slot.qid, slot.health, oldest))
        };
        let queues: Vec<_> = controller.io.iter().filter_map(owing).collect();
        let parts = queues.iter().map(|(.., oldest)| *oldest);
        let Some(oldest) = parts.chain(self.requests_to_end(at)).min() else { return };
        let is_silent = |health: Health| health.probe.is_some_and(|asked| now >= asked + limit);
        let is_due = |health: Health, oldest: Duration| {
            !health.is_suspect() && now >= health.heard.max(oldest) + timing.suspect
        };
        let health = controller.health;
        if is_silent(health) {
            return self.lose(at, &Lost::Silent);
        }
        if now >= oldest + timing.command {
            return self.lose(at, &Lost::CommandTimeout);
        }
        if let Some((_, qid, ..)) = queues.iter().find(|(_, _, health, _)| is_silent(*health)) {
            return self.lose(at, &Lost::QueueSilent(*qid));
        }
        if is_due(health, oldest) {
            self.probe(at, now);
        }
        for (token, _, health, oldest) in queues {
            if is_due(health, oldest) {
                self.probe_queue(token, at, now);
            }
        }
    }

    /// A controller is lost: its reads go elsewhere at once, its changes when it is finished.
    pub(super) fn lose(&mut self, at: usize, lost: &Lost) {
        let now = self.now();
        let Some(path) = self.paths.get_mut(at) else { return };
        let State::Open(controller) = std::mem::replace(&mut path.state, State::Waiting(now)) else { return };
        let connecting = controller.connecting.iter().map(|(token, ..)| *token);
        let tokens: Vec<usize> = connecting.chain(controller.io.iter().copied()).collect();
        let mut changes = Vec::new();
        for token in tokens.into_iter().chain([controller.admin]) {
            let Some(slot) = self.slots.try_remove(token) else { continue };
            for tag in slot.queue.tags() {
                self.take_back(tag, &mut changes);
            }
            // The descriptor leaves the set when it is closed.
            slot.queue.reset(&self.poller);
        }
        if !changes.is_empty() {
            let safe = safe_time(self.config.keep_alive, controller.identity());
            self.fence(safe, controller.name(), changes);
        }
        self.wait(at, now, lost);
    }
}
