//! Which of two nodes owns a volume: the state machine of one node, whose process may end at any
//! time, as may that of its partner. docs/decisions/0022-pair.md has the rules.
//!
//! ```text
//!                   partner ended, gave it, or is not there
//!      Theirs ──────────────────────────────────────────────> Taking ── lock ──> Saving
//!        ^ ^                                                                       │ saved
//!        │ └── partner owns it ── Given <── closed ── Giving <── own ── Ours <─────┘
//! ```
//!
//! The lock of a volume's backing decides: a node serves a volume only while it has the backing
//! open and locked and its record is durable with its name and the next epoch. The driver has the
//! lock, the files, the connection to the partner and the partner's process; this machine says what
//! to do with them. Messages between two processes arrive in order or not at all.
//!
//! Left out: commands, and how they are forwarded.

mod volume;

use crate::controller::{Node, Reach};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
pub use volume::Record;
use volume::{Stage, Volume};

/// What the nodes tell each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message {
    /// The sender lives.
    Heartbeat,
    /// The sender owns the volume, in this epoch.
    Owned {
        /// The volume.
        nsid: u32,
        /// The epoch.
        epoch: u64,
    },
    /// The receiver is to give the volume to the sender.
    Ask {
        /// The volume.
        nsid: u32,
    },
    /// The sender has closed the volume, and the receiver is to take it.
    Given {
        /// The volume.
        nsid: u32,
    },
    /// The sender cannot open the volume that it was given.
    Declined {
        /// The volume.
        nsid: u32,
    },
}

/// A request to the driver. Those of one volume are executed in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// Send this to the partner, if it is connected.
    Send(Message),
    /// Open the backing, lock it, and then read the record; then [`Pair::handle_opened`].
    Open {
        /// The volume.
        nsid: u32,
    },
    /// Make this record durable; then [`Pair::handle_saved`].
    Save {
        /// The volume.
        nsid: u32,
        /// What to write.
        record: Record,
    },
    /// Admit no more commands, wait for those that were, and close the backing, which frees its
    /// lock; then [`Pair::handle_closed`].
    Close {
        /// The volume.
        nsid: u32,
    },
    /// Kill the partner's process; [`Pair::handle_partner_ended`] when it has ended.
    Kill,
    /// The volume is owned and reached like this from now on: the ANA state, and whether commands
    /// are executed here, forwarded, or refused.
    Reach {
        /// The volume.
        nsid: u32,
        /// Its owner, as far as it is known, and the epoch.
        record: Record,
        /// How the owner is reached.
        reach: Reach,
    },
}

/// How an attempt to open a backing ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opened {
    /// It is open and locked, and this is its record, read after that.
    Locked(Record),
    /// Somebody else has the lock: the partner, or the kernel for a process that has ended.
    Held,
    /// It cannot be opened.
    Failed,
}

/// Why a volume is not moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Misuse {
    /// There is no such volume.
    #[error("there is no namespace {0}")]
    Unknown(u32),
    /// The other node is needed for it.
    #[error("the other node is not there")]
    Alone,
    /// It moves already.
    #[error("the volume is moving already")]
    Moving,
}

/// The times of a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// How often a node says that it lives.
    pub heartbeat: Duration,
    /// A partner that was silent for longer is killed.
    pub silence: Duration,
    /// How long a node that starts waits for its partner, before it takes what is the partner's.
    pub appearance: Duration,
    /// How often a lock is asked for that somebody has.
    pub retry: Duration,
    /// How long a volume may be in the ANA state of change.
    pub transition: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_millis(250),
            // A busy host delays a process by a second; disks of hosts wait for 30.
            silence: Duration::from_secs(3),
            // A reboot starts both within seconds.
            appearance: Duration::from_secs(10),
            retry: Duration::from_millis(100),
            // ANATT, as `Limits::ana_transition` of the controllers.
            transition: Duration::from_secs(10),
        }
    }
}

/// What is known of the partner's process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Partner {
    /// It has ended, or was not seen yet.
    Absent,
    /// It is connected, and was heard at this time.
    Connected(Duration),
    /// It was silent, and is killed; it has not ended.
    Killed,
}

/// The ownership of volumes, at one node.
#[derive(Debug)]
pub struct Pair {
    here: Node,
    other: Node,
    timing: Timing,
    partner: Partner,
    /// Since when the partner is absent, or connected.
    since: Duration,
    beats_at: Duration,
    volumes: BTreeMap<u32, Volume>,
    outputs: VecDeque<Output>,
}

impl Pair {
    /// A node that starts, with the records of all volumes. What is its own by them it takes.
    #[must_use]
    pub fn new(
        now: Duration,
        here: Node,
        other: Node,
        timing: Timing,
        records: impl IntoIterator<Item = (u32, Record)>,
    ) -> Self {
        let mut this = Self {
            here,
            other,
            timing,
            partner: Partner::Absent,
            since: now,
            beats_at: now,
            volumes: BTreeMap::new(),
            outputs: VecDeque::new(),
        };
        for (nsid, record) in records {
            this.volumes.insert(nsid, Volume::new(now, record));
            if record.owner == here {
                this.take(now, nsid);
            }
        }
        this.settle(now);
        this
    }

    /// The next request to the driver; `None` until the next input.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Whether this node owns the volume: its backing is open and locked here, and its record says
    /// so.
    #[must_use]
    pub fn owns(&self, nsid: u32) -> bool {
        self.volumes.get(&nsid).is_some_and(|volume| volume.stage == Stage::Ours)
    }

    /// Whether this node owns all volumes.
    #[must_use]
    pub fn owns_all(&self) -> bool {
        self.volumes.values().all(|volume| volume.stage == Stage::Ours)
    }

    /// The partner's process is connected. One that was killed must have ended before.
    pub fn handle_partner_connected(&mut self, now: Duration) {
        if self.partner == Partner::Killed {
            return;
        }
        (self.partner, self.since, self.beats_at) = (Partner::Connected(now), now, now);
        let ours: Vec<(u32, u64)> = self
            .volumes
            .iter()
            .filter(|(_, volume)| volume.stage == Stage::Ours)
            .map(|(nsid, volume)| (*nsid, volume.record.epoch))
            .collect();
        for (nsid, epoch) in ours {
            self.outputs.push_back(Output::Send(Message::Owned { nsid, epoch }));
        }
        self.settle(now);
    }

    /// The partner's process has ended. What the kernel still does for it keeps its locks.
    pub fn handle_partner_ended(&mut self, now: Duration) {
        (self.partner, self.since) = (Partner::Absent, now);
        let nsids: Vec<u32> = self.volumes.keys().copied().collect();
        for nsid in nsids {
            if self.stage(nsid).is_some_and(|stage| matches!(stage, Stage::Theirs { .. } | Stage::Given)) {
                self.take(now, nsid);
            }
        }
        self.settle(now);
    }

    /// The partner says something. What one says that is to be killed does not count.
    pub fn handle_message(&mut self, now: Duration, message: Message) {
        let Partner::Connected(heard) = &mut self.partner else { return };
        *heard = now;
        match message {
            Message::Heartbeat => {}
            Message::Owned { nsid, epoch } => self.owned_by_partner(nsid, epoch),
            // It asks again if it still wants it.
            Message::Ask { nsid } => _ = self.own(now, nsid, self.other),
            Message::Given { nsid } => match self.stage(nsid) {
                Some(Stage::Theirs { .. }) => self.take(now, nsid),
                Some(_) => {}
                // It is not in the file with which this process was started.
                None => self.outputs.push_back(Output::Send(Message::Declined { nsid })),
            },
            Message::Declined { nsid } => {
                if self.stage(nsid) == Some(Stage::Given) {
                    self.take(now, nsid);
                }
            }
        }
        self.settle(now);
    }

    /// An attempt to open a backing has ended.
    pub fn handle_opened(&mut self, now: Duration, nsid: u32, opened: Opened) {
        let (here, timing, partner) = (self.here, self.timing, self.partner);
        let Some(volume) = self.volumes.get_mut(&nsid) else { return };
        volume.is_opening = false;
        match (opened, volume.stage) {
            (Opened::Locked(record), Stage::Taking { .. }) => {
                let record = Record { owner: here, epoch: record.epoch + 1 };
                volume.stage = Stage::Saving(record);
                self.outputs.push_back(Output::Save { nsid, record });
            }
            // The partner has it after all.
            (Opened::Locked(_), _) => self.outputs.push_back(Output::Close { nsid }),
            (Opened::Held, Stage::Taking { .. }) => volume.stage = Stage::Taking { at: now + timing.retry },
            // It will not do better soon. The partner may.
            (Opened::Failed, Stage::Taking { .. }) if matches!(partner, Partner::Connected(_)) => {
                volume.stage = Stage::Theirs { served: false, since: now };
                self.outputs.push_back(Output::Send(Message::Declined { nsid }));
            }
            (Opened::Failed, Stage::Taking { .. }) => {
                volume.stage = Stage::Taking { at: now + timing.appearance };
            }
            (Opened::Held | Opened::Failed, _) => {}
        }
        self.settle(now);
    }

    /// A record is durable, or is not.
    pub fn handle_saved(&mut self, now: Duration, nsid: u32, saved: bool) {
        let Some(volume) = self.volumes.get_mut(&nsid) else { return };
        let Stage::Saving(record) = volume.stage else { return };
        if saved {
            (volume.stage, volume.record) = (Stage::Ours, record);
            self.outputs.push_back(Output::Send(Message::Owned { nsid, epoch: record.epoch }));
        } else {
            volume.stage = Stage::Taking { at: now + self.timing.appearance };
            self.outputs.push_back(Output::Close { nsid });
        }
        self.settle(now);
    }

    /// A backing is closed, and its lock is free.
    pub fn handle_closed(&mut self, now: Duration, nsid: u32) {
        if self.stage(nsid) != Some(Stage::Giving) {
            return;
        }
        if matches!(self.partner, Partner::Connected(_)) {
            if let Some(volume) = self.volumes.get_mut(&nsid) {
                volume.stage = Stage::Given;
            }
            self.outputs.push_back(Output::Send(Message::Given { nsid }));
        } else {
            self.take(now, nsid);
        }
        self.settle(now);
    }

    /// A volume is to be owned by this node from now on, or by the other one.
    ///
    /// # Errors
    /// [`Misuse`]; nothing changes then.
    pub fn handle_own(&mut self, now: Duration, nsid: u32, owner: Node) -> Result<(), Misuse> {
        let outcome = self.own(now, nsid, owner);
        self.settle(now);
        outcome
    }

    fn own(&mut self, now: Duration, nsid: u32, owner: Node) -> Result<(), Misuse> {
        let is_connected = matches!(self.partner, Partner::Connected(_));
        let volume = self.volumes.get_mut(&nsid).ok_or(Misuse::Unknown(nsid))?;
        match volume.stage {
            Stage::Ours if owner == self.here => Ok(()),
            Stage::Theirs { served: true, .. } if owner == self.other => Ok(()),
            Stage::Ours | Stage::Theirs { served: true, .. } if !is_connected => Err(Misuse::Alone),
            Stage::Ours => {
                volume.stage = Stage::Giving;
                volume.unserved_since = now;
                self.outputs.push_back(Output::Close { nsid });
                Ok(())
            }
            Stage::Theirs { served: true, .. } => {
                self.outputs.push_back(Output::Send(Message::Ask { nsid }));
                Ok(())
            }
            _ => Err(Misuse::Moving),
        }
    }

    /// When [`Pair::handle_timeout`] has something to do, if nothing else happens before.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Duration> {
        let partner = match self.partner {
            Partner::Connected(heard) => Some(self.beats_at.min(heard + self.timing.silence)),
            Partner::Absent | Partner::Killed => None,
        };
        let volumes = self.volumes.values().filter_map(|volume| self.due(volume));
        let changes = self.volumes.values().filter_map(|volume| {
            let is_moving = matches!(volume.told, Some((_, Reach::Moving)));
            is_moving.then(|| volume.unserved_since + self.timing.transition)
        });
        partner.into_iter().chain(volumes).chain(changes).min()
    }

    /// When a volume is to be tried.
    fn due(&self, volume: &Volume) -> Option<Duration> {
        match volume.stage {
            Stage::Taking { at } if !volume.is_opening => Some(at),
            // Nobody has it: neither does a partner that is not there, nor one that has nothing of
            // it for as long. The lock says whether that is so.
            Stage::Theirs { served: false, since } if self.partner != Partner::Killed => {
                Some(since.max(self.since) + self.timing.appearance)
            }
            _ => None,
        }
    }

    /// Time has passed, of which this process stood still for a part: then the partner may have
    /// spoken without being heard.
    pub fn handle_timeout(&mut self, now: Duration, lost: Duration) {
        if let Partner::Connected(heard) = &mut self.partner {
            *heard += lost;
            if now >= *heard + self.timing.silence {
                self.partner = Partner::Killed;
                self.outputs.push_back(Output::Kill);
                self.partner_is_silent(now);
            } else if now >= self.beats_at {
                self.beats_at = now + self.timing.heartbeat;
                self.outputs.push_back(Output::Send(Message::Heartbeat));
            }
        }
        let due = self.volumes.iter().filter(|(_, volume)| self.due(volume).is_some_and(|at| now >= at));
        let due: Vec<u32> = due.map(|(nsid, _)| *nsid).collect();
        due.into_iter().for_each(|nsid| self.take(now, nsid));
        self.settle(now);
    }

    fn stage(&self, nsid: u32) -> Option<Stage> {
        self.volumes.get(&nsid).map(|volume| volume.stage)
    }

    /// Asks for the lock of a volume.
    fn take(&mut self, now: Duration, nsid: u32) {
        let Some(volume) = self.volumes.get_mut(&nsid) else { return };
        volume.note_unserved(now);
        volume.stage = Stage::Taking { at: now };
        if !std::mem::replace(&mut volume.is_opening, true) {
            self.outputs.push_back(Output::Open { nsid });
        }
    }

    fn owned_by_partner(&mut self, nsid: u32, epoch: u64) {
        let owner = self.other;
        let Some(volume) = self.volumes.get_mut(&nsid) else { return };
        match volume.stage {
            // Nobody has what is locked here.
            Stage::Saving(_) | Stage::Ours | Stage::Giving => {}
            Stage::Theirs { .. } | Stage::Taking { .. } | Stage::Given => {
                volume.record = Record { owner, epoch };
                volume.stage = Stage::Theirs { served: true, since: Duration::ZERO };
            }
        }
    }

    /// Commands for volumes of a partner that is to end are not sent any more.
    fn partner_is_silent(&mut self, now: Duration) {
        for volume in self.volumes.values_mut() {
            if matches!(volume.stage, Stage::Theirs { served: true, .. }) {
                volume.note_unserved(now);
                volume.stage = Stage::Theirs { served: false, since: now };
            }
        }
    }

    /// Says how volumes are reached, where that has changed. The only place that decides it.
    fn settle(&mut self, now: Duration) {
        for (nsid, volume) in &mut self.volumes {
            let is_over = now >= volume.unserved_since + self.timing.transition;
            let reach = match volume.stage {
                Stage::Ours | Stage::Theirs { served: true, .. } => Reach::Serving,
                _ if !is_over => Reach::Moving,
                _ if self.partner == Partner::Killed => Reach::Lost,
                _ => Reach::Unreachable,
            };
            let told = Some((volume.record, reach));
            if volume.told != told {
                volume.told = told;
                self.outputs.push_back(Output::Reach { nsid: *nsid, record: volume.record, reach });
            }
        }
    }
}
