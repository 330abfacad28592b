//! One controller: its registers, its queues, and when it ends. NVMe Base, "Controller
//! Initialization", "Controller Shutdown", "Keep Alive".

use super::config::{DISABLED_IDLE, DISCOVERY_IDLE, KEEP_ALIVE_UNIT_100_MS, Kind, Port};
use super::events::Events;
use super::namespace::View;
use super::queue::SubmissionQueue;
use super::reservations::Notifications;
use crate::feature::{NotificationMask, Timestamp};
use crate::identify::NamespaceIds;
use crate::log_page::{ChangedNamespaces, ErrorEntry, ReservationEvent};
use crate::register::{Configuration, ControllerStatus, Shutdown, ShutdownStatus};
use crate::{HostId, Nqn};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// How many errors a controller's log keeps.
pub(super) const ERRORS_MAX: usize = 16;

/// What a controller waits for until its I/O queues are closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Draining {
    /// Nothing.
    No,
    /// A reset; then RDY is 0.
    Reset,
    /// A shutdown; then SHST says complete.
    Shutdown,
    /// Its end; then its identifier is free.
    End,
}

/// A controller and the host that it belongs to.
#[derive(Debug)]
pub(super) struct Association {
    pub(super) host: Nqn,
    pub(super) host_id: HostId,
    /// Which of the node's controllers, ever, this one is.
    pub(super) instance: u64,
    pub(super) port: Port,
    pub(super) kind: Kind,
    /// The admin queue; `None` once it is closed.
    pub(super) admin: Option<SubmissionQueue>,
    /// The I/O queues that are connected.
    pub(super) io: BTreeSet<u16>,
    /// How many I/O queues were granted; `None` until the host asks.
    pub(super) granted: Option<u16>,
    pub(super) configuration: Configuration,
    pub(super) status: ControllerStatus,
    pub(super) draining: Draining,
    /// How often the host has reset the controller or shut it down.
    pub(super) resets: u64,
    /// Zero for none.
    pub(super) keep_alive: Duration,
    deadline: Option<Duration>,
    /// Whether a command was received since the deadline was set.
    traffic: bool,
    pub(super) events: Events,
    pub(super) changed: ChangedNamespaces,
    pub(super) notifications: Notifications,
    /// Which notifications of reservations the host does not want, by NSID: feature 82h.
    pub(super) notification_masks: BTreeMap<u32, NotificationMask>,
    /// Volumes that were removed and that the host may still take for there.
    removed: BTreeMap<u32, NamespaceIds>,
    pub(super) errors: VecDeque<ErrorEntry>,
    pub(super) error_count: u64,
    pub(super) retry_delays: bool,
    pub(super) timestamp: Option<(Timestamp, Duration)>,
    /// Simple features that are only kept: by identifier.
    pub(super) kept: BTreeMap<u8, u32>,
    pub(super) view: Arc<View>,
    /// The discovery log as the host reads it: taken when it reads its beginning.
    pub(super) discovery: Option<Vec<u8>>,
    /// GENCTR for this host.
    pub(super) generation: u64,
}

impl Association {
    #[expect(clippy::too_many_arguments, reason = "the parts of one Connect, taken apart by its one caller")]
    pub(super) fn new(
        now: Duration,
        (host, host_id): (Nqn, HostId),
        port: Port,
        kind: Kind,
        admin: SubmissionQueue,
        keep_alive: Duration,
        view: Arc<View>,
        generation: u64,
    ) -> Self {
        let mut this = Self {
            host,
            host_id,
            instance: 0,
            port,
            kind,
            admin: Some(admin),
            io: BTreeSet::new(),
            granted: None,
            configuration: Configuration::default(),
            status: ControllerStatus::default(),
            draining: Draining::No,
            resets: 0,
            keep_alive,
            deadline: None,
            traffic: false,
            events: Events::default(),
            changed: ChangedNamespaces::default(),
            notifications: Notifications::default(),
            notification_masks: BTreeMap::new(),
            removed: BTreeMap::new(),
            errors: VecDeque::new(),
            error_count: 0,
            retry_delays: false,
            timestamp: None,
            kept: BTreeMap::new(),
            view,
            discovery: None,
            generation,
        };
        this.restart_timer(now);
        this
    }

    /// A keep-alive timeout in milliseconds, rounded up to what KAS allows.
    pub(super) fn rounded(kato_ms: u32) -> Duration {
        let unit = u64::from(KEEP_ALIVE_UNIT_100_MS) * 100;
        Duration::from_millis(u64::from(kato_ms).div_ceil(unit) * unit)
    }

    /// Begins to count anew.
    pub(super) fn restart_timer(&mut self, now: Duration) {
        let period = match (self.kind, self.keep_alive) {
            (Kind::Discovery, Duration::ZERO) => DISCOVERY_IDLE,
            (_, Duration::ZERO) => Duration::ZERO,
            (_, period) if self.configuration.enable() => period,
            (_, period) => period.max(DISABLED_IDLE),
        };
        self.deadline = (period > Duration::ZERO && !self.ends()).then(|| now + period);
        self.traffic = false;
    }

    /// A command was received.
    pub(super) const fn note_traffic(&mut self) {
        self.traffic = true;
    }

    /// When [`Association::has_expired`] has something to decide.
    pub(super) const fn deadline(&self) -> Option<Duration> {
        self.deadline
    }

    /// Whether the host was silent for its keep-alive timeout. Traffic on any queue counts (TBKAS).
    pub(super) fn has_expired(&mut self, now: Duration, io_traffic: impl FnOnce() -> bool) -> bool {
        if self.deadline.is_none_or(|deadline| now < deadline) {
            return false;
        }
        // Asked in any case: it clears what the queues have noted.
        if io_traffic() | self.traffic {
            self.restart_timer(now);
            return false;
        }
        self.deadline = None;
        true
    }

    /// This process stood still: the host is not to blame for what it could not say.
    pub(super) fn extend(&mut self, by: Duration) {
        if let Some(deadline) = &mut self.deadline {
            *deadline += by;
        }
    }

    /// A volume that the host saw was removed.
    pub(super) fn remember(&mut self, nsid: u32, ids: NamespaceIds) {
        self.removed.insert(nsid, ids);
    }

    /// Whether the host may take this NSID for another volume.
    pub(super) fn remembers(&self, nsid: u32, ids: &NamespaceIds) -> bool {
        self.removed.get(&nsid).is_some_and(|removed| removed != ids)
    }

    /// Whether the host does not want to be told of this.
    pub(super) fn has_masked(&self, nsid: u32, event: ReservationEvent) -> bool {
        self.notification_masks.get(&nsid).is_some_and(|mask| mask.covers(event))
    }

    /// The host has read what changed.
    pub(super) fn has_read_changes(&mut self) {
        self.changed = ChangedNamespaces::default();
        self.removed.clear();
    }

    /// Whether the controller is ending or shut down as a whole.
    pub(super) fn ends(&self) -> bool {
        self.draining == Draining::End
    }

    /// Whether I/O queues may be connected and admin commands other than Fabrics executed.
    pub(super) fn is_ready(&self) -> bool {
        let shut_down = self.status.shutdown != ShutdownStatus::Normal;
        self.status.ready && !shut_down && self.draining == Draining::No
    }

    /// The host changed CC. If this resets the controller or shuts it down, returns the requests
    /// for events that end: the I/O queues are to close then.
    pub(super) fn configure(&mut self, now: Duration, new: Configuration) -> Option<VecDeque<u16>> {
        let old = std::mem::replace(&mut self.configuration, new);
        if self.ends() {
            return None;
        }
        if old.enable() && !new.enable() {
            return Some(self.reset(Draining::Reset));
        }
        if old.shutdown() == Shutdown::None && new.shutdown() != Shutdown::None {
            self.status.shutdown = ShutdownStatus::Occurring;
            return Some(self.reset(Draining::Shutdown));
        }
        if new.enable() && !old.enable() && self.draining == Draining::No {
            self.start(now);
        }
        None
    }

    /// Ends what is there of requests and settings; CC and the admin queue stay. Returns the
    /// requests for events.
    fn reset(&mut self, draining: Draining) -> VecDeque<u16> {
        self.draining = draining;
        self.resets += 1;
        self.granted = None;
        self.retry_delays = false;
        self.kept.clear();
        self.notification_masks.clear();
        self.discovery = None;
        self.events.reset()
    }

    /// All I/O queues are closed: what was waited for has come.
    pub(super) fn drained(&mut self, now: Duration) {
        match std::mem::replace(&mut self.draining, Draining::No) {
            Draining::No => {}
            Draining::End => self.draining = Draining::End,
            Draining::Shutdown => {
                self.status.shutdown = ShutdownStatus::Complete;
                self.status.ready &= self.configuration.enable();
            }
            Draining::Reset => {
                self.status = ControllerStatus::default();
                // The host did not wait for RDY to fall.
                if self.configuration.enable() {
                    self.start(now);
                }
            }
        }
    }

    /// RDY, or CFS if the configuration is not supported. NVMe Base, "CC"
    fn start(&mut self, now: Duration) {
        let asked = self.configuration;
        // Discovery controllers have no I/O queues, and hosts differ in what they ask for there.
        let entries = self.kind == Kind::Discovery || (asked.sqe_size() == 6 && asked.cqe_size() == 4);
        let well = entries
            && asked.page_size() == 0
            && asked.arbitration() == 0
            && matches!(asked.command_set(), 0 | 6);
        self.status = ControllerStatus { ready: well, fatal: !well, shutdown: ShutdownStatus::Normal };
        self.restart_timer(now);
    }

    /// The controller ends. Returns false if it was ending already.
    pub(super) fn end(&mut self) -> bool {
        if self.ends() {
            return false;
        }
        self.reset(Draining::End);
        self.status = ControllerStatus { ready: false, fatal: true, ..self.status };
        self.deadline = None;
        true
    }

    /// Notes that a command failed, for the error log.
    pub(super) fn note_error(&mut self, entry: ErrorEntry) {
        self.error_count += 1;
        self.errors.truncate(ERRORS_MAX - 1);
        self.errors.push_front(ErrorEntry { count: self.error_count, ..entry });
    }
}
