//! The order of commands that touch the same blocks of a volume, whichever controller they came to.
//!
//! A host that loses a path sends its writes again on another one, while the target may still hold
//! the originals. An original that is executed after its retry, and after newer writes, destroys
//! data. Two rules prevent that here. Commands of one range are admitted in the order in which they
//! arrived, so a retry never overtakes an original that was admitted before it. And when a
//! connection ends, [`drain`](RangeLock::drain) cancels its commands that are not admitted yet and
//! tells when the last admitted one has finished.
//!
//! - A write excludes all commands of its blocks, reads share theirs. So a read sees each write
//!   wholly or not at all, also where the blocks of the volume are larger than those that the
//!   device writes atomically.
//! - First in, first out: a command waits for every earlier command of its blocks that it conflicts
//!   with, admitted or not. Nothing starves, and nothing waits for commands of other blocks.
//! - An empty range conflicts with nothing. A command without blocks, such as a flush, takes one to
//!   be counted with its owner.
//!
//! Pure: no clock, no threads; who uses it from several threads puts it into a mutex. The number of
//! commands is bounded, in all and for each owner.
//!
//! To find the commands that overlap a range, they are indexed by their first block, in classes of
//! lengths up to each power of two: an overlapping command of a class begins no further before the
//! range than the class is long. So a search visits at most about twice the commands that it finds,
//! and a large range does not slow down the search among small ones.

mod index;
#[cfg(test)]
mod tests;

use index::Index;
use slab::Slab;
use smallvec::SmallVec;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

/// Commands of all owners: the queues of 64 connections with 128 commands each.
pub const ENTRIES_MAX: usize = 8192;
/// Commands of one owner: the deepest queue that a controller may be asked for.
pub const OWNER_ENTRIES_MAX: usize = 1024;
/// Owners of one volume: more connections than a pair of controllers accepts.
pub const OWNERS_MAX: usize = 4096;

/// What a command does to its blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Reads them: shared with other reads.
    Read,
    /// Changes them: alone.
    Write,
}

/// Who sent a command: a connection of a controller. A number is never used twice, so a command
/// that comes late for an owner that was drained is refused for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner(u64);

/// Names a command until it is released or cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    place: usize,
    arrival: u64,
}

/// Whether a command may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acquired {
    /// It may begin now.
    Admitted(Ticket),
    /// It waits; [`Output::Admitted`] tells when it may begin.
    Waits(Ticket),
}

impl Acquired {
    /// The name of the command.
    #[must_use]
    pub const fn ticket(self) -> Ticket {
        match self {
            Self::Admitted(ticket) | Self::Waits(ticket) => ticket,
        }
    }
}

/// Why a command was not taken, or an owner not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The owner was drained, or is being drained.
    #[error("the owner of the command was drained")]
    Drained,
    /// As many commands as there may be, of all owners or of this one.
    #[error("too many commands wait or run")]
    Full,
    /// The end of the range lies before its start.
    #[error("the range ends before it starts")]
    Reversed,
}

/// What happened because of a call, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output<T> {
    /// A command that waited may begin.
    Admitted {
        /// The command.
        ticket: Ticket,
        /// What was given with it.
        token: T,
    },
    /// A command that waited was taken out because its owner is drained. Its ticket is void.
    Cancelled {
        /// What was given with it.
        token: T,
    },
    /// The last command of a drained owner has been released.
    Drained(Owner),
}

/// A command that was admitted or waits.
#[derive(Debug)]
struct Entry<T> {
    arrival: u64,
    owner: Owner,
    range: Range<u64>,
    access: Access,
    /// The earlier commands that it still waits for; admitted once there are none.
    waits_for: usize,
    token: T,
}

impl<T> Entry<T> {
    const fn conflicts(&self, access: Access) -> bool {
        matches!((self.access, access), (Access::Write, _) | (_, Access::Write))
    }
}

/// Commands that may begin now: when they arrived, and their places.
type Admitted = SmallVec<[(u64, usize); 8]>;

#[derive(Debug, Default)]
struct OwnerState {
    entries: usize,
    draining: bool,
}

/// See the [module](self). `T` is what the user wants to be told with each admission.
#[derive(Debug)]
pub struct RangeLock<T> {
    entries: Slab<Entry<T>>,
    index: Index,
    owners: BTreeMap<Owner, OwnerState>,
    next_owner: u64,
    next_arrival: u64,
    outputs: VecDeque<Output<T>>,
}

impl<T> Default for RangeLock<T> {
    fn default() -> Self {
        Self {
            entries: Slab::new(),
            index: Index::default(),
            owners: BTreeMap::new(),
            next_owner: 0,
            next_arrival: 0,
            outputs: VecDeque::new(),
        }
    }
}

impl<T: Clone> RangeLock<T> {
    /// A new owner.
    ///
    /// # Errors
    /// [`Refusal::Full`] at [`OWNERS_MAX`].
    pub fn open_owner(&mut self) -> Result<Owner, Refusal> {
        if self.owners.len() >= OWNERS_MAX {
            return Err(Refusal::Full);
        }
        let owner = Owner(self.next_owner);
        self.next_owner += 1;
        self.owners.insert(owner, OwnerState::default());
        Ok(owner)
    }

    /// Takes a command, which is admitted at once or waits.
    ///
    /// # Errors
    /// The command was not taken.
    pub fn acquire(
        &mut self,
        owner: Owner,
        range: Range<u64>,
        access: Access,
        token: T,
    ) -> Result<Acquired, Refusal> {
        if range.end < range.start {
            return Err(Refusal::Reversed);
        }
        if self.room(owner)? == 0 {
            return Err(Refusal::Full);
        }
        if let Some(state) = self.owners.get_mut(&owner) {
            state.entries += 1;
        }
        let conflicting =
            |place: &usize| self.entries.get(*place).is_some_and(|other| other.conflicts(access));
        let waits_for = self.index.overlapping(&range).filter(conflicting).count();
        let arrival = self.next_arrival;
        self.next_arrival += 1;
        let entry = Entry { arrival, owner, range: range.clone(), access, waits_for, token };
        let ticket = Ticket { place: self.entries.insert(entry), arrival };
        self.index.insert(&range, arrival, ticket.place);
        Ok(if waits_for == 0 { Acquired::Admitted(ticket) } else { Acquired::Waits(ticket) })
    }

    /// Ends a command that was admitted, and admits those that waited for it alone. False if there
    /// is no such admitted command.
    pub fn release(&mut self, ticket: Ticket) -> bool {
        if self.entry(ticket).is_none_or(|entry| entry.waits_for > 0) {
            return false;
        }
        self.end(ticket.place);
        true
    }

    /// Takes out a command that still waits. False if it was admitted, or is not there any more.
    pub fn cancel(&mut self, ticket: Ticket) -> bool {
        if self.entry(ticket).is_none_or(|entry| entry.waits_for == 0) {
            return false;
        }
        self.end(ticket.place);
        true
    }

    /// Takes out the commands of an owner that wait, refuses further ones, and puts out
    /// [`Output::Drained`] as soon as its admitted ones have been released. The owner is forgotten
    /// then. False if there is no such owner, or if it is being drained already.
    pub fn drain(&mut self, owner: Owner) -> bool {
        let Some(state) = self.owners.get_mut(&owner).filter(|state| !state.draining) else { return false };
        state.draining = true;
        let waiting = |entry: &Entry<T>| entry.owner == owner && entry.waits_for > 0;
        let mut out: Vec<_> = self.entries.iter().filter(|(_, entry)| waiting(entry)).collect();
        out.sort_by_key(|(_, entry)| entry.arrival);
        let out: Vec<_> = out.into_iter().map(|(place, entry)| (place, entry.token.clone())).collect();
        let mut admitted = Admitted::new();
        // The latest first, so that none of them is admitted because an earlier one goes.
        for (place, _) in out.iter().rev() {
            self.remove(*place, &mut admitted);
        }
        self.outputs.extend(out.into_iter().map(|(_, token)| Output::Cancelled { token }));
        self.put_out(admitted);
        self.forget_if_drained(owner);
        true
    }

    /// How many commands of an owner would be taken now.
    ///
    /// # Errors
    /// [`Refusal::Drained`].
    pub fn room(&self, owner: Owner) -> Result<usize, Refusal> {
        let state = self.owners.get(&owner).filter(|state| !state.draining).ok_or(Refusal::Drained)?;
        let (all, own) = (ENTRIES_MAX - self.entries.len(), OWNER_ENTRIES_MAX - state.entries);
        Ok(all.min(own))
    }

    /// What happened, the earliest first. To be asked until there is nothing more after each call
    /// of [`release`](Self::release), [`cancel`](Self::cancel) and [`drain`](Self::drain).
    pub fn poll_output(&mut self) -> Option<Output<T>> {
        self.outputs.pop_front()
    }

    /// Whether there is something to be [polled](Self::poll_output).
    #[must_use]
    pub fn has_output(&self) -> bool {
        !self.outputs.is_empty()
    }

    /// Commands that were admitted or wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no command.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The commands of an owner that were admitted or wait; `None` for an owner that was drained.
    #[must_use]
    pub fn of_owner(&self, owner: Owner) -> Option<usize> {
        self.owners.get(&owner).map(|state| state.entries)
    }

    fn entry(&self, ticket: Ticket) -> Option<&Entry<T>> {
        self.entries.get(ticket.place).filter(|entry| entry.arrival == ticket.arrival)
    }

    /// Takes a command out, and does what follows from that.
    fn end(&mut self, place: usize) {
        let mut admitted = Admitted::new();
        let owner = self.remove(place, &mut admitted);
        self.put_out(admitted);
        if let Some(owner) = owner {
            self.forget_if_drained(owner);
        }
    }

    /// Takes a command out, and appends those that waited for it alone. Returns its owner.
    fn remove(&mut self, place: usize, admitted: &mut Admitted) -> Option<Owner> {
        let entry = self.entries.try_remove(place)?;
        self.index.remove(&entry.range, entry.arrival);
        for place in self.index.overlapping(&entry.range) {
            if let Some(other) = self.entries.get_mut(place)
                && other.arrival > entry.arrival
                && other.conflicts(entry.access)
            {
                other.waits_for -= 1;
                if other.waits_for == 0 {
                    admitted.push((other.arrival, place));
                }
            }
        }
        if let Some(state) = self.owners.get_mut(&entry.owner) {
            state.entries -= 1;
        }
        Some(entry.owner)
    }

    fn put_out(&mut self, mut admitted: Admitted) {
        admitted.sort_unstable();
        for (arrival, place) in admitted {
            if let Some(entry) = self.entries.get(place) {
                let ticket = Ticket { place, arrival };
                self.outputs.push_back(Output::Admitted { ticket, token: entry.token.clone() });
            }
        }
    }

    fn forget_if_drained(&mut self, owner: Owner) {
        if self.owners.get(&owner).is_some_and(|state| state.draining && state.entries == 0) {
            self.owners.remove(&owner);
            self.outputs.push_back(Output::Drained(owner));
        }
    }
}
