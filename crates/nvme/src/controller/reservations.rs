//! The commands of reservations, on the node that owns the volume. NVMe Base, "Reservations".
//!
//! One command of a volume at a time goes through these steps; others of that volume wait.
//!
//! ```text
//!  taken ──> Save ── durable ──> every host has its new view ──> Fence ── ended ──> answered
//!        └── neither before nor after is it to persist ─┘    └─ nobody may do less ─┘
//! ```
//!
//! A state that cannot be saved is not there: the command fails, and nothing has changed. A host
//! that has the answer of a command knows that no command of another host has an effect any more
//! which this one excludes.

use super::Node;
use super::association::Association;
use super::guests::{Guest, GuestId};
use super::namespace::View;
use super::queue::Tag;
use super::reservation_features::Persisting;
use super::subsystem::{Output, QueueId, Subsystem};
use crate::feature::Event;
use crate::log_page::{ReservationEvent, ReservationNotification};
use crate::reservation::{
    Acquire, Change, GetReport, Key, Keys, Notice, Register, Release, Report, Reservations, RestoreError,
};
use crate::{HostId, IoOpcode, Sgl, Sqe, Status};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// What a command of reservations asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reserve {
    /// Reservation Register.
    Register(Register),
    /// Reservation Acquire.
    Acquire(Acquire),
    /// Reservation Release.
    Release(Release),
    /// Reservation Report.
    Report(GetReport),
}

impl Reserve {
    /// Reads a command; `None` if it is no command of reservations.
    #[must_use]
    pub const fn of(sqe: &Sqe) -> Option<Self> {
        Some(match IoOpcode(sqe.opcode) {
            IoOpcode::RESERVATION_REGISTER => Self::Register(Register::of(sqe)),
            IoOpcode::RESERVATION_ACQUIRE => Self::Acquire(Acquire::of(sqe)),
            IoOpcode::RESERVATION_RELEASE => Self::Release(Release::of(sqe)),
            IoOpcode::RESERVATION_REPORT => Self::Report(GetReport::of(sqe)),
            _ => return None,
        })
    }

    /// The command that asks for it.
    #[must_use]
    pub fn command(&self, nsid: u32) -> Sqe {
        match self {
            Self::Register(arguments) => arguments.command(0, nsid, Sgl::NONE),
            Self::Acquire(arguments) => arguments.command(0, nsid, Sgl::NONE),
            Self::Release(arguments) => arguments.command(0, nsid, Sgl::NONE),
            Self::Report(arguments) => arguments.command(0, nsid, Sgl::NONE),
        }
    }

    /// The data that move, in bytes.
    #[must_use]
    pub const fn data_bytes(&self) -> u64 {
        match self {
            Self::Register(_) | Self::Acquire(_) => Keys::BYTES as u64,
            Self::Release(_) => Key::BYTES as u64,
            Self::Report(report) => report.bytes,
        }
    }
}

/// Who is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asker {
    /// A command of an I/O queue.
    Queue(QueueId, Tag),
    /// A command of a host at the other node.
    Guest(GuestId, Tag),
    /// A Set Features on an admin queue, by the number of the request.
    Feature(u64),
    /// Nobody any more: the queue is closed.
    Nobody,
}

/// What is asked for.
#[derive(Debug)]
pub(super) enum Ask {
    /// A command, with its data.
    Command(Reserve, Vec<u8>),
    /// Feature 83h.
    Persistence(bool),
}

/// What waits for its turn.
#[derive(Debug)]
struct Waiting {
    asker: Asker,
    ask: Ask,
}

/// What the command that is executed waits for.
#[derive(Debug)]
enum Step {
    /// Its state is made durable.
    Saving(Box<Reservations>, Change),
    /// Commands that were admitted earlier end.
    Fencing,
}

/// The most notifications that a controller keeps; the log counts no more.
const NOTIFICATIONS_MAX: usize = 255;

/// The log of notifications of a controller.
#[derive(Debug, Default)]
pub(super) struct Notifications {
    waiting: VecDeque<(u32, ReservationEvent)>,
    /// The number of the oldest one, from 1 on.
    count: u64,
}

impl Notifications {
    /// Without room, the oldest is lost; the number of the next one shows it.
    fn add(&mut self, nsid: u32, event: ReservationEvent) {
        if self.waiting.len() == NOTIFICATIONS_MAX {
            self.remove_oldest();
        }
        self.count = self.count.max(1);
        self.waiting.push_back((nsid, event));
    }

    pub(super) fn oldest(&self) -> ReservationNotification {
        let Some((nsid, event)) = self.waiting.front() else { return ReservationNotification::default() };
        let more = u8::try_from(self.waiting.len() - 1).unwrap_or(u8::MAX);
        ReservationNotification { count: self.count, event: *event, more, nsid: *nsid }
    }

    /// Returns whether there are others.
    pub(super) fn remove_oldest(&mut self) -> bool {
        if self.waiting.pop_front().is_some() {
            self.count += 1;
        }
        !self.waiting.is_empty()
    }
}

/// The reservations of a volume, and the commands that change them.
#[derive(Debug, Default)]
pub(super) struct Volume {
    pub(super) state: Reservations,
    step: Option<(Asker, Step)>,
    waiting: VecDeque<Waiting>,
}

impl Subsystem {
    /// The reservations of a volume as they were saved, before hosts connect.
    ///
    /// # Errors
    /// What in the report cannot be: do not serve the volume then.
    pub fn restore_reservations(&mut self, nsid: u32, saved: &Report) -> Result<(), RestoreError> {
        self.reservations.entry(nsid).or_default().state = Reservations::restore(saved)?;
        Ok(())
    }

    /// A volume that was given away or not had comes back, with these reservations: what was saved
    /// of them last, or none. No host may use it yet.
    ///
    /// # Errors
    /// What in the report cannot be: do not serve the volume then.
    pub fn take_reservations(&mut self, nsid: u32, saved: Option<&Report>) -> Result<(), RestoreError> {
        self.reservations.entry(nsid).or_default().state =
            saved.map(Reservations::restore).transpose()?.unwrap_or_default();
        Ok(())
    }

    /// Whether a command of reservations of this volume is being executed.
    #[must_use]
    pub fn is_reserving(&self, nsid: u32) -> bool {
        self.reservations.get(&nsid).is_some_and(|volume| volume.step.is_some())
    }

    /// Executes a command of reservations, with the data that came for it. [`Output::Reserved`]
    /// answers it, unless its controller ends before its turn.
    pub fn reserve(&mut self, queue: QueueId, tag: Tag, nsid: u32, command: Reserve, data: &[u8]) {
        self.ask(nsid, Asker::Queue(queue, tag), Ask::Command(command, data.to_vec()));
    }

    pub(super) fn ask(&mut self, nsid: u32, asker: Asker, ask: Ask) {
        self.reservations.entry(nsid).or_default().waiting.push_back(Waiting { asker, ask });
        self.advance(nsid);
    }

    /// A queue is closed: its commands that wait for their turn are not executed, and that which
    /// has begun is not answered. Tags of the queue belong to another connection from now on.
    pub(super) fn forget_asker(&mut self, is_of: impl Fn(&Asker) -> bool) {
        for volume in self.reservations.values_mut() {
            volume.waiting.retain(|waiting| !is_of(&waiting.asker));
            if let Some((asker, _)) = volume.step.as_mut().filter(|(asker, _)| is_of(asker)) {
                *asker = Asker::Nobody;
            }
        }
    }

    /// What [`Output::Save`] asked for is durable, or with `false` could not be made so.
    pub fn handle_saved(&mut self, nsid: u32, is_durable: bool) {
        let Some(volume) = self.reservations.get_mut(&nsid) else { return };
        match volume.step.take() {
            Some((asker, Step::Saving(state, change))) if is_durable => {
                self.install(nsid, asker, *state, &change);
            }
            // With nothing changed, the host may send it again.
            Some((asker, Step::Saving(..))) => self.reserved(asker, Err(Status::INTERNAL_ERROR)),
            other => volume.step = other,
        }
        self.advance(nsid);
    }

    /// What [`Output::Fence`] waited for has ended.
    pub fn handle_fenced(&mut self, nsid: u32) {
        let Some(volume) = self.reservations.get_mut(&nsid) else { return };
        match volume.step.take() {
            Some((asker, Step::Fencing)) => self.reserved(asker, Ok(Vec::new())),
            other => volume.step = other,
        }
        self.advance(nsid);
    }

    /// The volume is no namespace any more: its reservations end, and so do commands on them.
    pub(super) fn end_reservations(&mut self, nsid: u32) {
        let Some(Volume { step, waiting, .. }) = self.reservations.remove(&nsid) else { return };
        let begun = step.map(|(asker, _)| asker);
        for asker in begun.into_iter().chain(waiting.into_iter().map(|one| one.asker)) {
            self.reserved(asker, Err(Status::INVALID_NAMESPACE.no_retry()));
        }
    }

    /// Begins commands until one has to wait.
    fn advance(&mut self, nsid: u32) {
        let keeps = self.config.is_split;
        let here: Vec<Node> = self.config.cntlids.keys().copied().collect();
        let elsewhere = |owner| keeps && !here.contains(&owner);
        while let Some(volume) = self.reservations.get_mut(&nsid)
            && volume.step.is_none()
            && let Some(Waiting { asker, ask }) = volume.waiting.pop_front()
        {
            // What has not begun when its controller ends is not executed.
            let Some((host, view)) = asking(asker, (&self.controllers, &self.guests, &self.persisting))
            else {
                continue;
            };
            let owner = self.volumes.get(&nsid).map(|volume| volume.owner);
            let refusal = match view.namespace(nsid) {
                None => Some(Status::INVALID_NAMESPACE.no_retry()),
                // Only the owner has the reservations of a volume.
                Some(_) if owner.is_none_or(&elsewhere) => Some(Status::ANA_INACCESSIBLE),
                Some(namespace) => namespace.ana.refusal(),
            };
            if let Some(status) = refusal {
                self.reserved(asker, Err(status));
                continue;
            }
            if let Ask::Command(Reserve::Report(arguments), _) = ask {
                let report = self.report(nsid, &arguments);
                self.reserved(asker, report);
                continue;
            }
            let mut next = volume.state.clone();
            match execute(&mut next, host, &ask) {
                Err(status) => self.reserved(asker, Err(status)),
                Ok(change)
                    if change.changed && (keeps || next.is_persistent() || volume.state.is_persistent()) =>
                {
                    let report = next.report(|_| Vec::new());
                    volume.step = Some((asker, Step::Saving(Box::new(next), change)));
                    self.outputs.push_back(Output::Save { nsid, report });
                }
                Ok(change) => self.install(nsid, asker, next, &change),
            }
        }
    }

    /// From now on the state holds: hosts get their views, and then what was admitted before ends.
    fn install(&mut self, nsid: u32, asker: Asker, state: Reservations, change: &Change) {
        let Some(volume) = self.reservations.get_mut(&nsid) else { return };
        volume.state = state;
        if change.narrowed {
            volume.step = Some((asker, Step::Fencing));
        }
        self.renew_rights();
        self.notify(nsid, &change.notices);
        if change.narrowed {
            self.outputs.push_back(Output::Fence { nsid });
        } else {
            self.reserved(asker, Ok(Vec::new()));
        }
    }

    /// Tells hosts what has happened to what they had.
    fn notify(&mut self, nsid: u32, notices: &[Notice]) {
        for (host, event) in notices {
            let of_host = |(cntlid, one): (&u16, &Association)| {
                (one.host_id == *host && one.view.namespace(nsid).is_some()).then_some(*cntlid)
            };
            let cntlids: Vec<u16> = self.controllers.iter().filter_map(of_host).collect();
            for cntlid in cntlids {
                let Some(controller) = self.controllers.get_mut(&cntlid) else { continue };
                if controller.has_masked(nsid, *event) {
                    continue;
                }
                controller.notifications.add(nsid, *event);
                controller.events.raise(Event::RESERVATIONS);
                self.send_events(cntlid);
            }
        }
    }

    /// Gives the controllers whose rights have changed their new views.
    fn renew_rights(&mut self) {
        let differs = |(cntlid, view): (u16, View)| {
            self.controllers.get(&cntlid).is_some_and(|one| *one.view != view).then_some((cntlid, view))
        };
        let views = self.controllers.iter().map(|(cntlid, one)| (*cntlid, self.view_for(one)));
        let changed: Vec<_> = views.filter_map(differs).collect();
        for (cntlid, view) in changed {
            let view = Arc::new(view);
            if let Some(controller) = self.controllers.get_mut(&cntlid) {
                controller.view = Arc::clone(&view);
            }
            self.outputs.push_back(Output::View { cntlid, view });
        }
        self.renew_guests();
    }

    fn report(&self, nsid: u32, arguments: &GetReport) -> Result<Vec<u8>, Status> {
        // The short form has no room for the host identifiers of fabrics.
        if !arguments.extended {
            return Err(Status::HOST_ID_INCONSISTENT.no_retry());
        }
        let Some(volume) = self.reservations.get(&nsid) else { return Err(Status::INTERNAL_ERROR) };
        let of_host = |host: HostId| {
            let its = self.controllers.iter().filter(|(_, one)| one.host_id == host);
            its.map(|(cntlid, _)| *cntlid).collect()
        };
        let mut data = volume.state.report(of_host).encode();
        data.resize(usize::try_from(arguments.bytes).unwrap_or(usize::MAX), 0);
        Ok(data)
    }

    fn reserved(&mut self, asker: Asker, result: Result<Vec<u8>, Status>) {
        match asker {
            Asker::Queue(queue, tag) => self.outputs.push_back(Output::Reserved { queue, tag, result }),
            Asker::Guest(guest, tag) => {
                self.outputs.push_back(Output::GuestReserved { guest, tag, result });
            }
            Asker::Feature(number) => self.persistence_is_set(number, result.err()),
            Asker::Nobody => {}
        }
    }
}

/// What asks are executed for.
type Askers<'a> =
    (&'a BTreeMap<u16, Association>, &'a BTreeMap<GuestId, Guest>, &'a BTreeMap<u64, Persisting>);

/// The host of an asker that is still there, and what it may see.
fn asking<'a>(asker: Asker, (controllers, guests, persisting): Askers<'a>) -> Option<(HostId, &'a View)> {
    let cntlid = match asker {
        Asker::Queue(queue, _) => queue.cntlid,
        Asker::Feature(number) => persisting.get(&number)?.cntlid,
        Asker::Guest(guest, _) => return guests.get(&guest).map(|guest| (guest.host_id, &*guest.view)),
        Asker::Nobody => return None,
    };
    let controller = controllers.get(&cntlid).filter(|one| !one.ends())?;
    Some((controller.host_id, &controller.view))
}

fn execute(state: &mut Reservations, host: HostId, ask: &Ask) -> Result<Change, Status> {
    let short = |_| Status::SGL_INVALID_LENGTH.no_retry();
    let (command, data) = match ask {
        Ask::Command(command, data) => (command, &data[..]),
        Ask::Persistence(persistent) => return Ok(state.set_persistent(*persistent)),
    };
    match command {
        Reserve::Register(arguments) => state.register(host, arguments, &Keys::decode(data).map_err(short)?),
        Reserve::Acquire(arguments) => state.acquire(host, arguments, &Keys::decode(data).map_err(short)?),
        Reserve::Release(arguments) => state.release(host, arguments, Key::decode(data).map_err(short)?),
        Reserve::Report(_) => Ok(Change::default()),
    }
}
