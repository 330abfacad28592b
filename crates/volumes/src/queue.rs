//! The queue of one loop: commands go in, events come out, and nothing waits.

mod inbox;
#[cfg(test)]
mod simulation;
mod slot;
#[cfg(test)]
mod tests;

use crate::command::{Command, Event, Fault, Refusal, Rejected};
use crate::range_lock::{Acquired, Output, Owner};
use crate::statistics::Account;
use crate::volume::Volume;
use drives::{Choice, Completion, Engine, Payload, TRANSFER_BYTES_MAX};
pub(crate) use inbox::Inbox;
use inbox::Note;
use memory::{Buffer, Buffers};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use slab::Slab;
use slot::{Slot, Step};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a queue that is dropped waits for commands that a drive executes.
const DROP_WAIT: Duration = if cfg!(test) { Duration::from_millis(50) } else { Duration::from_secs(5) };
const DROP_POLL: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };

/// Whom the range lock tells of a command.
#[derive(Debug, Clone)]
pub(crate) struct Waiter {
    inbox: Arc<Inbox>,
    slot: usize,
    /// The number of the command: its slot may belong to another one by now.
    sequence: u64,
}

/// Takes commands for volumes and gives their events, for one loop.
///
/// The loop submits what has arrived, and ends each of its rounds with a [turn](Self::turn). It
/// waits for the [descriptor](AsFd), which is readable while a turn would do something. A wait may
/// also end with `EINTR`.
///
/// Dropping a queue cancels what has not begun, and waits a few seconds for the rest. The blocks of
/// a command that a drive still executes then stay locked.
#[derive(Debug)]
pub struct Queue {
    depth: usize,
    drives: drives::Queue,
    inbox: Arc<Inbox>,
    slots: Slab<Slot>,
    next_sequence: u64,
    /// Commands whose blocks are all theirs, and that have not begun.
    admitted: VecDeque<(usize, u64)>,
    events: Vec<Event>,
    completions: Vec<Completion>,
    notes: Vec<Note>,
}

impl Queue {
    /// A queue for `depth` commands. What is read comes in buffers of the pool.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub fn new(depth: usize, choice: Choice, buffers: Arc<Buffers>) -> io::Result<Self> {
        let drives = drives::Queue::new(depth, choice, buffers)?;
        let inbox = Arc::new(Inbox::new(drives.waker()));
        Ok(Self {
            depth: drives.depth(),
            drives,
            inbox,
            slots: Slab::new(),
            next_sequence: 0,
            admitted: VecDeque::new(),
            events: Vec::new(),
            completions: Vec::new(),
            notes: Vec::new(),
        })
    }

    /// How operations of files and devices are executed.
    #[must_use]
    pub const fn engine(&self) -> &Engine {
        self.drives.engine()
    }

    /// How many commands it takes at a time.
    #[must_use]
    pub const fn depth(&self) -> usize {
        self.depth
    }

    /// Commands that were taken and have not ended.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.slots.len()
    }

    /// Buffers of unspecified content to receive the payload of a write into; from there it goes to
    /// the drive without another copy in memory.
    #[must_use]
    pub fn receive_buffers(&self, volume: &Volume, lba: u64, bytes: usize) -> SmallVec<[Buffer; 1]> {
        let at = lba.saturating_mul(u64::from(volume.block_size().bytes()));
        self.drives.receive_buffers(volume.drive(), at, bytes.min(TRANSFER_BYTES_MAX))
    }

    /// Takes a command. It takes its place in the order of its blocks at once, begins in a later
    /// [turn](Self::turn), and ends with [`Event::Done`] of this tag.
    ///
    /// # Errors
    /// The command was not taken, and nothing was done. It comes back.
    pub fn submit(
        &mut self,
        volume: &Volume,
        owner: Owner,
        tag: u64,
        command: Command,
    ) -> Result<(), Box<Rejected>> {
        let taken = match command.ranges(volume) {
            Ok(_) if self.slots.len() >= self.depth => Err(Refusal::Full),
            Ok(ranges) => self.acquire(volume, owner, &command, &ranges),
            Err(why) => Err(why),
        };
        let (tickets, waits_for) = match taken {
            Ok(taken) => taken,
            Err(why) => return Err(Box::new(Rejected { command, why })),
        };
        let account = Account::of(&command, volume.block_size().bytes());
        let step = Step::first(command, volume);
        let (sequence, volume) = (self.next_sequence, volume.clone());
        let arrived = Instant::now();
        let slot =
            Slot { volume, tag, sequence, tickets, waits_for, step, account, arrived, has_begun: false };
        self.next_sequence += 1;
        let place = self.slots.insert(slot);
        if waits_for == 0 {
            self.admitted.push_back((place, sequence));
        }
        Ok(())
    }

    /// Locks all ranges of a command, or none: the tickets, and how many of them wait.
    fn acquire(
        &self,
        volume: &Volume,
        owner: Owner,
        command: &Command,
        ranges: &crate::command::Ranges,
    ) -> Result<(slot::Tickets, usize), Refusal> {
        let mut state = volume.state();
        if state.lock.room(owner)? < ranges.len() {
            return Err(Refusal::Full);
        }
        let waiter = Waiter {
            inbox: Arc::clone(&self.inbox),
            slot: self.slots.vacant_key(),
            sequence: self.next_sequence,
        };
        let (mut tickets, mut waits_for) = (slot::Tickets::new(), 0);
        for range in ranges {
            let acquired = state.lock.acquire(owner, range.clone(), command.access(), waiter.clone())?;
            waits_for += usize::from(matches!(acquired, Acquired::Waits(_)));
            tickets.push(acquired.ticket());
        }
        Ok((tickets, waits_for))
    }

    /// Cancels a command that has not begun; it ends with [`Fault::Cancelled`]. False if there is
    /// none of this tag, or if it has begun and will end by itself.
    pub fn cancel(&mut self, tag: u64) -> bool {
        let found = self.slots.iter().find(|(_, slot)| slot.tag == tag && !slot.has_begun);
        let Some(place) = found.map(|(place, _)| place) else { return false };
        self.finish(place, Err(Fault::Cancelled));
        true
    }

    /// Ends an owner: its commands that wait are cancelled, further ones are refused, and
    /// [`Event::Drained`] of this tag comes when the last one has ended. Commands that were
    /// admitted and have not begun are up to the `admit` of their queue's turn. False if there is
    /// no such owner any more, or if it is being drained already; there is no event then.
    pub fn drain(&mut self, volume: &Volume, owner: Owner, tag: u64) -> bool {
        let mut state = volume.state();
        let begun = state.lock.drain(owner);
        if begun {
            // Nobody has seen what was put out: the volume is still locked.
            state.drains.insert(owner, (Arc::clone(&self.inbox), tag));
        }
        drop(state);
        self.deliver(volume);
        begun
    }

    /// Does everything that can be done now: begins commands, hands them to their drives, and
    /// appends the events.
    ///
    /// `admit` is asked for the tag of each command right before it begins, when its blocks are
    /// locked and nothing of it was done: false cancels it. A controller says false for a
    /// connection that has ended or whose loop was late: so a write whose host may have sent it
    /// again elsewhere is never begun.
    ///
    /// # Errors
    /// The system executes nothing for this queue any more.
    pub fn turn(&mut self, admit: &mut dyn FnMut(u64) -> bool, out: &mut Vec<Event>) -> io::Result<()> {
        loop {
            self.read_notes();
            while let Some((place, sequence)) = self.admitted.pop_front() {
                let Some(slot) = self.slots.get(place).filter(|slot| slot.sequence == sequence) else {
                    continue;
                };
                if admit(slot.tag) {
                    self.go_on(place);
                } else {
                    self.finish(place, Err(Fault::Cancelled));
                }
            }
            self.drives.kick()?;
            let mut completions = std::mem::take(&mut self.completions);
            self.drives.reap(&mut completions);
            for completion in completions.drain(..) {
                self.completed(completion.tag as usize, completion.result);
            }
            self.completions = completions;
            // What a completion has begun may have completed already.
            let is_ready = self.drives.kick()?;
            if !is_ready && self.admitted.is_empty() && self.inbox.is_empty() {
                break;
            }
        }
        out.append(&mut self.events);
        Ok(())
    }

    fn read_notes(&mut self) {
        let mut notes = std::mem::take(&mut self.notes);
        self.inbox.take(&mut notes);
        for note in notes.drain(..) {
            match note {
                Note::Admitted { slot: place, sequence } => {
                    let slot = self.slots.get_mut(place).filter(|slot| slot.sequence == sequence);
                    if let Some(slot) = slot {
                        slot.waits_for -= 1;
                        if slot.waits_for == 0 {
                            self.admitted.push_back((place, sequence));
                        }
                    }
                }
                Note::Cancelled { slot: place, sequence } => {
                    if self.slots.get(place).is_some_and(|slot| slot.sequence == sequence) {
                        self.finish(place, Err(Fault::Cancelled));
                    }
                }
                Note::Drained { tag } => self.events.push(Event::Drained { tag }),
            }
        }
        self.notes = notes;
    }

    /// Hands the next operation of a command to its drive; without one the command has ended.
    fn go_on(&mut self, place: usize) {
        let Some(slot) = self.slots.get_mut(place) else { return };
        slot.has_begun = true;
        let Some(operation) = slot.step.operation(slot.volume.block_size().bytes()) else {
            return self.finish(place, Ok(Payload::new()));
        };
        if let Err(rejected) = self.drives.submit(slot.volume.drive(), place as u64, operation) {
            // The command was checked, and the queue of the drives is as deep as this one.
            debug_assert!(false, "{}", rejected.why);
            let errno = rustix::io::Errno::INVAL.raw_os_error();
            self.finish(place, Err(Fault::Drive(drives::Fault::Io(errno))));
        }
    }

    fn completed(&mut self, place: usize, result: Result<Payload, drives::Fault>) {
        let Some(slot) = self.slots.get_mut(place) else { return };
        let result = result.map_err(|fault| slot.step.fault(fault));
        match result.and_then(|payload| slot.step.completed(payload)) {
            Ok(None) => self.go_on(place),
            Ok(Some(payload)) => self.finish(place, Ok(payload)),
            Err(fault) => self.finish(place, Err(fault)),
        }
    }

    /// Ends a command, and lets those that waited for its blocks begin.
    fn finish(&mut self, place: usize, result: Result<Payload, Fault>) {
        let Some(slot) = self.slots.try_remove(place) else { return };
        let mut state = slot.volume.state();
        for ticket in &slot.tickets {
            // A ticket that a drain has cancelled is void.
            let _ = state.lock.release(*ticket) || state.lock.cancel(*ticket);
        }
        if slot.has_begun {
            // Who has lost a race by Compare and Write has learned what it asked for.
            let is_well = matches!(result, Ok(_) | Err(Fault::Miscompare { .. }));
            state.statistics.count(slot.account, slot.arrived.elapsed(), is_well);
        }
        let has_output = state.lock.has_output();
        drop(state);
        self.events.push(Event::Done { tag: slot.tag, result });
        if has_output {
            self.deliver(&slot.volume);
        }
    }

    /// Tells the queues of commands what the range lock has put out.
    fn deliver(&self, volume: &Volume) {
        loop {
            // One at a time, so that the lock of the volume and those of inboxes are never both
            // held.
            let mut state = volume.state();
            let Some(output) = state.lock.poll_output() else { return };
            let (inbox, note) = match output {
                Output::Admitted { token, .. } => {
                    let note = Note::Admitted { slot: token.slot, sequence: token.sequence };
                    (token.inbox, note)
                }
                Output::Cancelled { token } => {
                    let note = Note::Cancelled { slot: token.slot, sequence: token.sequence };
                    (token.inbox, note)
                }
                Output::Drained(owner) => match state.drains.remove(&owner) {
                    Some((inbox, tag)) => (inbox, Note::Drained { tag }),
                    None => continue,
                },
            };
            drop(state);
            inbox.put(note, !Arc::ptr_eq(&inbox, &self.inbox));
        }
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.drives.as_fd()
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        let waiting: Vec<usize> =
            self.slots.iter().filter(|(_, slot)| !slot.has_begun).map(|(place, _)| place).collect();
        for place in waiting {
            self.finish(place, Err(Fault::Cancelled));
        }
        let end = Instant::now() + DROP_WAIT;
        while !self.slots.is_empty() && Instant::now() < end {
            if self.turn(&mut |_| false, &mut Vec::new()).is_err() {
                break;
            }
            if !self.slots.is_empty() {
                let _ = poll(&mut [PollFd::new(&self.drives, PollFlags::IN)], Some(&DROP_POLL));
            }
        }
        // The tickets of what is left are not released: its blocks stay locked.
    }
}
