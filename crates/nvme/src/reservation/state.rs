//! Who has registered for a volume, and who holds a reservation of it. NVMe Base, "Reservations".
//!
//! A registration belongs to a host identifier, not to a controller: it survives disconnects. The
//! node that owns the volume has the state; it answers a command only when what has changed is
//! durable (if it is to persist) and, where a host may do less than before, when the commands of
//! that host that were admitted earlier have ended. That wait is the fence.

use super::{
    Acquire, AcquireAction, Key, Keys, Persistence, Register, RegisterAction, Registrant, Release,
    ReleaseAction, Report, ReservationType,
};
use crate::log_page::ReservationEvent;
use crate::{HostId, Status};
use std::collections::BTreeMap;

/// The most registrants of a volume.
pub const REGISTRANTS_MAX: usize = 1024;

/// CNTLID of a registrant without a controller.
const CNTLID_NONE: u16 = 0xffff;

/// What hosts are told: which host, and what happened.
pub type Notice = (HostId, ReservationEvent);

/// What a command has done.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Change {
    /// The state is another one: save it before the answer, if [`Reservations::is_persistent`] or
    /// was.
    pub changed: bool,
    /// Some host may do less than before: before the answer, what was admitted of hosts that
    /// [`Reservations::allows`] no more has to end.
    pub narrowed: bool,
    /// The admitted commands of those hosts may be aborted, with
    /// [`Status::ABORTED_PREEMPTED`].
    pub aborts: bool,
    /// Whom to tell.
    pub notices: Vec<Notice>,
}

/// Who holds the reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Held {
    kind: ReservationType,
    /// The host that acquired it; of the types for all registrants, every registrant holds it.
    holder: HostId,
}

/// The registrations of a volume and its reservation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reservations {
    registrants: BTreeMap<HostId, u64>,
    held: Option<Held>,
    generation: u32,
    persistent: bool,
}

impl ReservationType {
    const fn is_known(self) -> bool {
        matches!(self.0, 1..=6)
    }

    /// Every registrant holds it.
    const fn is_for_all(self) -> bool {
        matches!(self, Self::WRITE_EXCLUSIVE_ALL | Self::EXCLUSIVE_ACCESS_ALL)
    }

    /// Registrants may do what others may not.
    const fn favours_registrants(self) -> bool {
        matches!(self, Self::WRITE_EXCLUSIVE_REGISTRANTS | Self::EXCLUSIVE_ACCESS_REGISTRANTS)
            || self.is_for_all()
    }

    const fn excludes_reads(self) -> bool {
        matches!(
            self,
            Self::EXCLUSIVE_ACCESS | Self::EXCLUSIVE_ACCESS_REGISTRANTS | Self::EXCLUSIVE_ACCESS_ALL
        )
    }
}

impl Reservations {
    /// Whether the state is to survive a restart.
    #[must_use]
    pub const fn is_persistent(&self) -> bool {
        self.persistent
    }

    /// The type of the reservation; [`ReservationType::NONE`] if there is none.
    #[must_use]
    pub fn kind(&self) -> ReservationType {
        self.held.map_or(ReservationType::NONE, |held| held.kind)
    }

    /// Whether this host may read, or with `writes` change blocks. Otherwise the command fails with
    /// [`Status::RESERVATION_CONFLICT`].
    #[must_use]
    pub fn allows(&self, host: HostId, writes: bool) -> bool {
        let Some(held) = self.held else { return true };
        let free = !writes && !held.kind.excludes_reads();
        let registrant = held.kind.favours_registrants() && self.registrants.contains_key(&host);
        free || registrant || held.holder == host
    }

    /// Feature 83h: whether the state is to survive a restart. NVMe Base, "Reservation Persistence
    /// (Feature Identifier 83h)"
    pub fn set_persistent(&mut self, persistent: bool) -> Change {
        let before = std::mem::replace(&mut self.persistent, persistent);
        Change { changed: before != persistent, ..Change::default() }
    }

    /// Reservation Register.
    ///
    /// # Errors
    /// The status of the command; nothing has changed then.
    pub fn register(&mut self, host: HostId, arguments: &Register, keys: &Keys) -> Result<Change, Status> {
        let before = self.clone();
        let key = self.registrants.get(&host).copied();
        let matches = key.is_some_and(|key| arguments.ignore_existing_key || key == keys.current);
        let persistent = match arguments.persistence {
            Persistence::NO_CHANGE => self.persistent,
            Persistence::VOLATILE => false,
            Persistence::PERSISTENT => true,
            _ => return Err(Status::INVALID_FIELD.no_retry()),
        };
        let registers = matches!(arguments.action, RegisterAction::REGISTER | RegisterAction::REPLACE);
        // A key of zero is none.
        if registers && keys.other == 0 {
            return Err(Status::INVALID_FIELD.no_retry());
        }
        let mut notices = Vec::new();
        match arguments.action {
            RegisterAction::REGISTER if key.is_none() => self.add(host, keys.other)?,
            // The same key again is no error, another one is.
            RegisterAction::REGISTER if key == Some(keys.other) => {}
            RegisterAction::REPLACE if matches => self.add(host, keys.other)?,
            // Who ignores the key that there is need not have one.
            RegisterAction::REPLACE if key.is_none() && arguments.ignore_existing_key => {
                self.add(host, keys.other)?;
            }
            RegisterAction::UNREGISTER if matches => {
                let kind = self.kind();
                self.remove(host);
                if self.held.is_none() && kind.favours_registrants() {
                    notices = self.others(host, ReservationEvent::RESERVATION_RELEASED);
                }
            }
            RegisterAction::REGISTER | RegisterAction::REPLACE | RegisterAction::UNREGISTER => {
                return Err(Status::RESERVATION_CONFLICT.no_retry());
            }
            _ => return Err(Status::INVALID_FIELD.no_retry()),
        }
        self.persistent = persistent;
        self.generation = self.generation.wrapping_add(1);
        Ok(self.change(&before, notices))
    }

    /// Reservation Acquire: also Preempt, and Preempt and Abort.
    ///
    /// # Errors
    /// The status of the command; nothing has changed then.
    pub fn acquire(&mut self, host: HostId, arguments: &Acquire, keys: &Keys) -> Result<Change, Status> {
        if arguments.ignore_existing_key || !arguments.kind.is_known() {
            return Err(Status::INVALID_FIELD.no_retry());
        }
        self.check_key(host, keys.current)?;
        let before = self.clone();
        let wanted = Held { kind: arguments.kind, holder: host };
        let notices = match arguments.action {
            AcquireAction::ACQUIRE => {
                match self.held {
                    None => self.held = Some(wanted),
                    Some(held) if self.holds(host) && held.kind == arguments.kind => {}
                    Some(_) => return Err(Status::RESERVATION_CONFLICT.no_retry()),
                }
                Vec::new()
            }
            AcquireAction::PREEMPT | AcquireAction::PREEMPT_AND_ABORT => {
                self.preempt(host, wanted, keys.other)?;
                self.generation = self.generation.wrapping_add(1);
                self.preempted(&before, host)
            }
            _ => return Err(Status::INVALID_FIELD.no_retry()),
        };
        let aborts = arguments.action == AcquireAction::PREEMPT_AND_ABORT;
        Ok(Change { aborts, ..self.change(&before, notices) })
    }

    /// Reservation Release: also Clear.
    ///
    /// # Errors
    /// The status of the command; nothing has changed then.
    pub fn release(&mut self, host: HostId, arguments: &Release, key: Key) -> Result<Change, Status> {
        if arguments.ignore_existing_key {
            return Err(Status::INVALID_FIELD.no_retry());
        }
        self.check_key(host, key.current)?;
        let before = self.clone();
        let notices = match arguments.action {
            // There is nothing to release for who holds nothing, which is no error.
            ReleaseAction::RELEASE if self.held.is_none() => Vec::new(),
            ReleaseAction::RELEASE if arguments.kind != self.kind() => {
                return Err(Status::INVALID_FIELD.no_retry());
            }
            ReleaseAction::RELEASE if !self.holds(host) => Vec::new(),
            ReleaseAction::RELEASE => {
                let told = self.kind().favours_registrants();
                self.held = None;
                if told { self.others(host, ReservationEvent::RESERVATION_RELEASED) } else { Vec::new() }
            }
            ReleaseAction::CLEAR => {
                let notices = self.others(host, ReservationEvent::RESERVATION_PREEMPTED);
                self.registrants.clear();
                self.held = None;
                self.generation = self.generation.wrapping_add(1);
                notices
            }
            _ => return Err(Status::INVALID_FIELD.no_retry()),
        };
        Ok(self.change(&before, notices))
    }

    /// The data of Reservation Report. `controllers` are those of a host.
    #[must_use]
    pub fn report(&self, controllers: impl Fn(HostId) -> Vec<u16>) -> Report {
        let mut registrants = Vec::new();
        for (host_id, key) in &self.registrants {
            let mut connected = controllers(*host_id);
            if connected.is_empty() {
                connected.push(CNTLID_NONE);
            }
            let holds = self.holds(*host_id).into();
            let of = |cntlid| Registrant { cntlid, holds, key: *key, host_id: *host_id };
            registrants.extend(connected.into_iter().map(of));
        }
        let Self { generation, persistent, .. } = *self;
        Report { generation, kind: self.kind(), persistent, registrants }
    }

    /// The state that a report describes: how it comes back after a restart.
    ///
    /// # Errors
    /// What in the report cannot be.
    pub fn restore(report: &Report) -> Result<Self, RestoreError> {
        let mut this =
            Self { generation: report.generation, persistent: report.persistent, ..Self::default() };
        let mut holder = None;
        for registrant in &report.registrants {
            let known = this.registrants.insert(registrant.host_id, registrant.key);
            if registrant.key == 0 || known.is_some_and(|known| known != registrant.key) {
                return Err(RestoreError::Key(registrant.host_id));
            }
            if registrant.holds != 0 {
                let other = holder.replace(registrant.host_id);
                let one = other.is_none_or(|other| other == registrant.host_id);
                if !one && !report.kind.is_for_all() {
                    return Err(RestoreError::Holders);
                }
            }
        }
        this.held = match (report.kind, holder) {
            (ReservationType::NONE, None) => None,
            (kind, Some(holder)) if kind.is_known() => Some(Held { kind, holder }),
            _ => return Err(RestoreError::Holders),
        };
        Ok(this)
    }

    fn holds(&self, host: HostId) -> bool {
        let all = |held: &Held| held.kind.is_for_all() && self.registrants.contains_key(&host);
        self.held.is_some_and(|held| held.holder == host || all(&held))
    }

    fn check_key(&self, host: HostId, key: u64) -> Result<(), Status> {
        if self.registrants.get(&host) == Some(&key) {
            return Ok(());
        }
        Err(Status::RESERVATION_CONFLICT.no_retry())
    }

    fn add(&mut self, host: HostId, key: u64) -> Result<(), Status> {
        if self.registrants.len() >= REGISTRANTS_MAX && !self.registrants.contains_key(&host) {
            return Err(Status::INTERNAL_ERROR);
        }
        self.registrants.insert(host, key);
        Ok(())
    }

    /// A registration ends. What its host held is released, unless another registrant holds it too.
    fn remove(&mut self, host: HostId) {
        self.registrants.remove(&host);
        let Some(held) = &mut self.held else { return };
        if held.holder != host {
            return;
        }
        match self.registrants.keys().next() {
            Some(other) if held.kind.is_for_all() => held.holder = *other,
            _ => self.held = None,
        }
    }

    /// Removes all registrations with this key, except that of `except`.
    fn remove_key(&mut self, key: u64, except: Option<HostId>) -> Result<(), Status> {
        let is_one = |(host, its): (&HostId, &u64)| (*its == key && Some(*host) != except).then_some(*host);
        let hosts: Vec<HostId> = self.registrants.iter().filter_map(is_one).collect();
        if hosts.is_empty() && except.is_none() {
            return Err(Status::RESERVATION_CONFLICT.no_retry());
        }
        hosts.into_iter().for_each(|host| self.remove(host));
        Ok(())
    }

    /// Takes away from those with this key. NVMe Base, "Preempting a Reservation or Registration"
    fn preempt(&mut self, host: HostId, wanted: Held, key: u64) -> Result<(), Status> {
        let all = self.kind().is_for_all();
        // Of a reservation that all hold, zero means all.
        if key == 0 && !all {
            return Err(Status::INVALID_FIELD.no_retry());
        }
        if key == 0 {
            self.registrants.retain(|registrant, _| *registrant == host);
            self.held = Some(wanted);
            return Ok(());
        }
        let holders = self.held.filter(|_| !all).and_then(|held| self.registrants.get(&held.holder));
        if holders == Some(&key) {
            // The host itself stays, also if it preempts itself to change the type.
            self.remove_key(key, Some(host))?;
            self.held = Some(wanted);
            return Ok(());
        }
        self.remove_key(key, None)
    }

    /// Whom a preemption concerns: those who lost their registration, and those who stay registered
    /// while the reservation is another one.
    fn preempted(&self, before: &Self, host: HostId) -> Vec<Notice> {
        let gone =
            before.registrants.keys().filter(|one| **one != host && !self.registrants.contains_key(one));
        let event = ReservationEvent::REGISTRATION_PREEMPTED;
        let mut notices: Vec<Notice> = gone.map(|one| (*one, event)).collect();
        if before.held != self.held {
            notices.extend(self.others(host, ReservationEvent::RESERVATION_RELEASED));
        }
        notices
    }

    fn others(&self, host: HostId, event: ReservationEvent) -> Vec<Notice> {
        self.registrants.keys().filter(|other| **other != host).map(|other| (*other, event)).collect()
    }

    fn change(&self, before: &Self, notices: Vec<Notice>) -> Change {
        // A host that has never registered stands for all of those.
        let stranger = HostId::default();
        let mut hosts = before.registrants.keys().chain(self.registrants.keys()).chain([&stranger]);
        let loses = |host: &HostId, writes| before.allows(*host, writes) && !self.allows(*host, writes);
        let narrowed = hosts.any(|host| loses(host, false) || loses(host, true));
        Change { changed: self != before, narrowed, aborts: false, notices }
    }
}

/// Why a report is no state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// A host has no key, or two.
    #[error("host {0} has no key, or two different ones")]
    Key(HostId),
    /// The holders do not suit the type.
    #[error("the holders of the reservation do not suit its type")]
    Holders,
}

#[cfg(test)]
mod tests;
