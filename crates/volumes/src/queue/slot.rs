//! A command under way: its tickets, and what is left of it to do.

use crate::command::{Command, Fault, Ranges, first_difference};
use crate::range_lock::Ticket;
use crate::statistics::Account;
use crate::volume::Volume;
use drives::{Operation, Payload, payload_bytes};
use smallvec::SmallVec;
use std::ops::Range;
use std::time::Instant;

/// The tickets of a command: one, but for discards of several ranges.
pub(super) type Tickets = SmallVec<[Ticket; 1]>;

/// A command under way.
#[derive(Debug)]
pub(super) struct Slot {
    pub volume: Volume,
    pub tag: u64,
    pub sequence: u64,
    pub tickets: Tickets,
    /// Tickets that are not admitted yet.
    pub waits_for: usize,
    pub step: Step,
    pub account: Account,
    pub arrived: Instant,
    /// An operation was handed to the drive.
    pub has_begun: bool,
}

/// What is left to do of a command.
#[derive(Debug)]
pub(super) enum Step {
    /// The next operation ends the command; `None` while the drive executes it.
    Last(Option<Command>),
    /// Discard ranges, one after the other.
    Discard { ranges: Ranges, next: usize },
    /// Read and compare; then write, if something is to be written.
    Compare { lba: u64, expected: Payload, then: Option<(Payload, bool)> },
}

impl Step {
    pub fn first(command: Command, volume: &Volume) -> Self {
        match command {
            Command::Compare { lba, payload } => Self::Compare { lba, expected: payload, then: None },
            Command::CompareAndWrite { lba, expected, payload, durable } => {
                Self::Compare { lba, expected, then: Some((payload, durable)) }
            }
            Command::Discard { .. } => {
                let ranges = command.ranges(volume).unwrap_or_default();
                Self::Discard { ranges, next: 0 }
            }
            other => Self::Last(Some(other)),
        }
    }

    /// The next operation for the drive, if there is one.
    pub fn operation(&mut self, block_bytes: u32) -> Option<Operation> {
        let block = u64::from(block_bytes);
        let bytes_of = |range: &Range<u64>| (range.start * block, (range.end - range.start) * block);
        match self {
            Self::Last(command) => Some(match command.take()? {
                Command::Read { lba, blocks } => {
                    Operation::Read { at: lba * block, bytes: blocks as usize * block_bytes as usize }
                }
                Command::Write { lba, payload, durable } => {
                    Operation::Write { at: lba * block, payload, durable }
                }
                Command::WriteZeroes { lba, blocks, deallocate, durable } => {
                    Operation::Zero { at: lba * block, bytes: blocks * block, deallocate, durable }
                }
                // The others have steps of their own.
                _ => Operation::Flush,
            }),
            Self::Discard { ranges, next } => {
                let (at, bytes) = ranges.get(*next).filter(|range| !range.is_empty()).map(bytes_of)?;
                *next += 1;
                Some(Operation::Discard { at, bytes })
            }
            Self::Compare { lba, expected, .. } => {
                Some(Operation::Read { at: *lba * block, bytes: payload_bytes(expected) })
            }
        }
    }

    /// What a fault of the drive means for the command.
    pub const fn fault(&self, fault: drives::Fault) -> Fault {
        match self {
            Self::Compare { .. } => Fault::Unread(fault),
            Self::Last(_) | Self::Discard { .. } => Fault::Drive(fault),
        }
    }

    /// What follows from a completed operation: the end of the command, or `None` if it goes on.
    pub fn completed(&mut self, payload: Payload) -> Result<Option<Payload>, Fault> {
        match self {
            Self::Last(_) => Ok(Some(payload)),
            Self::Discard { ranges, next } => Ok((*next >= ranges.len()).then_some(payload)),
            Self::Compare { lba, expected, then } => {
                if let Some(at) = first_difference(expected, &payload) {
                    return Err(Fault::Miscompare { at });
                }
                let Some((payload, durable)) = then.take() else { return Ok(Some(Payload::new())) };
                *self = Self::Last(Some(Command::Write { lba: *lba, payload, durable }));
                Ok(None)
            }
        }
    }
}
