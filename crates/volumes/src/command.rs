//! What a volume is asked for, and how that ends.

use crate::range_lock::{self, Access};
use crate::volume::Volume;
use drives::{Payload, TRANSFER_BYTES_MAX, payload_bytes};
use smallvec::SmallVec;
use std::ops::Range;

/// The most ranges of one discard: those of a Dataset Management command (NVM command set 1.0,
/// 3.2.3).
pub const RANGES_MAX: usize = 256;

/// The block ranges of a command.
pub(crate) type Ranges = SmallVec<[Range<u64>; 1]>;

/// A command for a volume. Payload is whole blocks.
#[derive(Debug)]
pub enum Command {
    /// Read blocks; they come with the event.
    Read {
        /// The first block.
        lba: u64,
        /// How many.
        blocks: u32,
    },
    /// Write blocks.
    Write {
        /// The first block.
        lba: u64,
        /// Their content.
        payload: Payload,
        /// End only once they would survive a loss of power (FUA).
        durable: bool,
    },
    /// Make durable what was written by commands that have ended.
    Flush,
    /// Have blocks read as zeros.
    WriteZeroes {
        /// The first block.
        lba: u64,
        /// How many.
        blocks: u64,
        /// Their storage may be given back.
        deallocate: bool,
        /// As for a write.
        durable: bool,
    },
    /// Give back the storage of blocks (trim). What they hold afterwards says
    /// [`Volume::discard_zeroes`].
    Discard {
        /// The ranges, in any order; they may overlap, and empty ones are allowed.
        ranges: Ranges,
    },
    /// Compare blocks with a payload.
    Compare {
        /// The first block.
        lba: u64,
        /// What they should hold.
        payload: Payload,
    },
    /// Write blocks if they hold what is expected. No other command sees or changes them in
    /// between, whichever controller it came to.
    CompareAndWrite {
        /// The first block.
        lba: u64,
        /// What they should hold.
        expected: Payload,
        /// What is written then, of the same length.
        payload: Payload,
        /// As for a write.
        durable: bool,
    },
}

impl Command {
    pub(crate) const fn access(&self) -> Access {
        match self {
            Self::Read { .. } | Self::Flush | Self::Compare { .. } => Access::Read,
            Self::Write { .. }
            | Self::WriteZeroes { .. }
            | Self::Discard { .. }
            | Self::CompareAndWrite { .. } => Access::Write,
        }
    }

    /// Checks the command against a volume, and gives the ranges to lock: sorted and apart, at
    /// least one, which may be empty. Overflows nowhere, whatever the numbers.
    pub(crate) fn ranges(&self, volume: &Volume) -> Result<Ranges, Refusal> {
        let of_payload = |lba, payload: &Payload| {
            let (bytes, block) = (payload_bytes(payload), volume.block_size().bytes() as usize);
            let whole = bytes.is_multiple_of(block) && bytes <= TRANSFER_BYTES_MAX;
            one(volume, lba, if whole { (bytes / block) as u64 } else { 0 })
        };
        match self {
            Self::Read { lba, blocks } => {
                let bytes = u64::from(*blocks) * u64::from(volume.block_size().bytes());
                one(volume, *lba, if bytes <= TRANSFER_BYTES_MAX as u64 { u64::from(*blocks) } else { 0 })
            }
            Self::Write { lba, payload, .. } | Self::Compare { lba, payload } => of_payload(*lba, payload),
            Self::CompareAndWrite { lba, expected, payload, .. } => {
                let alike = payload_bytes(expected) == payload_bytes(payload);
                if alike { of_payload(*lba, payload) } else { Err(Refusal::Length) }
            }
            Self::WriteZeroes { lba, blocks, .. } => one(volume, *lba, *blocks),
            Self::Flush => Ok(std::iter::once(0..0).collect()),
            Self::Discard { ranges } => apart(volume, ranges),
        }
    }
}

/// The range of a command that must have blocks.
fn one(volume: &Volume, lba: u64, blocks: u64) -> Result<Ranges, Refusal> {
    match lba.checked_add(blocks) {
        _ if blocks == 0 => Err(Refusal::Length),
        Some(end) if end <= volume.blocks() => Ok(std::iter::once(lba..end).collect()),
        _ => Err(Refusal::OutOfRange),
    }
}

/// Sorts ranges and joins those that overlap or touch: a command must not wait for itself.
fn apart(volume: &Volume, ranges: &Ranges) -> Result<Ranges, Refusal> {
    if ranges.is_empty() || ranges.len() > RANGES_MAX {
        return Err(Refusal::Length);
    }
    if ranges.iter().any(|range| range.start > range.end || range.end > volume.blocks()) {
        return Err(Refusal::OutOfRange);
    }
    let mut sorted: Ranges = ranges.iter().filter(|range| !range.is_empty()).cloned().collect();
    sorted.sort_unstable_by_key(|range| range.start);
    let mut apart = Ranges::new();
    for range in sorted {
        match apart.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => apart.push(range),
        }
    }
    if apart.is_empty() {
        apart.push(0..0);
    }
    Ok(apart)
}

/// What a queue tells its loop.
#[derive(Debug)]
pub enum Event {
    /// A command has ended.
    Done {
        /// What it was submitted with.
        tag: u64,
        /// What was read, and nothing for other commands.
        result: Result<Payload, Fault>,
    },
    /// No command of an owner is left, and none will ever be executed.
    Drained {
        /// What the drain was asked for with.
        tag: u64,
    },
}

/// Why a command failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The blocks hold something else. Nothing was written.
    #[error("the blocks differ from what was expected at byte {at}")]
    Miscompare {
        /// The first byte of the payload that differs.
        at: usize,
    },
    /// The blocks that were to be compared could not be read. Nothing was written.
    #[error("the blocks could not be compared: {0}")]
    Unread(drives::Fault),
    /// It was cancelled before it began. Nothing was done.
    #[error("cancelled")]
    Cancelled,
    /// The drive failed. What it was writing may be there in part.
    #[error(transparent)]
    Drive(#[from] drives::Fault),
}

/// Why a command was not taken. Nothing of it was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The queue, or the range lock of the volume, is full; a command that ends makes room.
    #[error("too many commands are under way")]
    Full,
    /// A range is not within the volume.
    #[error("the range is not within the volume")]
    OutOfRange,
    /// No block, no whole blocks, more than a transfer may have, or payloads of different lengths.
    #[error("the length is not between one block and {TRANSFER_BYTES_MAX} bytes")]
    Length,
    /// The owner was drained, or is being drained.
    #[error("the owner of the command was drained")]
    Drained,
}

impl From<range_lock::Refusal> for Refusal {
    fn from(refusal: range_lock::Refusal) -> Self {
        match refusal {
            range_lock::Refusal::Full => Self::Full,
            range_lock::Refusal::Drained => Self::Drained,
            range_lock::Refusal::Reversed => Self::OutOfRange,
        }
    }
}

/// A command that was not taken.
#[derive(Debug)]
pub struct Rejected {
    /// The command.
    pub command: Command,
    /// Why.
    pub why: Refusal,
}

/// The first byte at which two payloads of the same length differ.
pub(crate) fn first_difference(one: &Payload, other: &Payload) -> Option<usize> {
    let (mut ours, mut theirs): (&[u8], &[u8]) = (&[], &[]);
    let (mut more_ours, mut more_theirs) = (one.iter(), other.iter());
    let mut at = 0;
    loop {
        if ours.is_empty() {
            ours = more_ours.next()?.as_bytes();
        }
        if theirs.is_empty() {
            theirs = more_theirs.next()?.as_bytes();
        }
        let count = ours.len().min(theirs.len());
        let (our_part, our_rest) = ours.split_at(count);
        let (their_part, their_rest) = theirs.split_at(count);
        if our_part != their_part {
            let differs = our_part.iter().zip(their_part).position(|(ours, theirs)| ours != theirs);
            return Some(at + differs.unwrap_or_default());
        }
        (ours, theirs, at) = (our_rest, their_rest, at + count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume::{BlockSize, Identity};
    use drives::{Drive, Segment};
    use memory::Buffers;
    use smallvec::smallvec;
    use std::sync::Arc;

    fn volume() -> Volume {
        let drive = Drive::memory(1 << 20, 1 << 20);
        Volume::new("v", Identity::of_uuid([1; 16]), &drive, Some(BlockSize::B512)).unwrap()
    }

    fn payload(content: &[u8], len: usize) -> Payload {
        let pool = Arc::new(Buffers::default());
        let segment = |part: &[u8]| {
            let mut buffer = pool.take(part.len());
            buffer.copy_from_slice(part);
            Segment::from(buffer)
        };
        content.chunks(len).map(segment).collect()
    }

    #[test]
    #[allow(clippy::single_range_in_vec_init)]
    fn ranges_are_checked_before_anything_happens() {
        let volume = volume();
        let read = |lba, blocks| Command::Read { lba, blocks }.ranges(&volume);
        assert_eq!(read(2047, 1).unwrap()[..], [2047..2048]);
        assert_eq!(read(2047, 2), Err(Refusal::OutOfRange));
        assert_eq!(read(u64::MAX, 1), Err(Refusal::OutOfRange));
        assert_eq!(read(u64::MAX - 1, u32::MAX), Err(Refusal::Length));
        assert_eq!(read(0, 0), Err(Refusal::Length));
        let write = |lba, bytes: usize| {
            let payload = payload(&vec![0; bytes], 300);
            Command::Write { lba, payload, durable: false }.ranges(&volume)
        };
        assert_eq!(write(5, 1024).unwrap()[..], [5..7]);
        assert_eq!(write(5, 1000), Err(Refusal::Length));
        assert_eq!(write(0, 0), Err(Refusal::Length));
        assert_eq!(write(u64::MAX, 512), Err(Refusal::OutOfRange));
        let zeroes = |lba, blocks| {
            Command::WriteZeroes { lba, blocks, deallocate: true, durable: false }.ranges(&volume)
        };
        assert_eq!(zeroes(0, 2048).unwrap()[..], [0..2048]);
        assert_eq!(zeroes(1, u64::MAX), Err(Refusal::OutOfRange));
        let (expected, payload) = (payload(&[0; 512], 512), payload(&[0; 1024], 512));
        let unlike = Command::CompareAndWrite { lba: 0, expected, payload, durable: false };
        assert_eq!(unlike.ranges(&volume), Err(Refusal::Length));
    }

    #[test]
    #[allow(clippy::reversed_empty_ranges, clippy::single_range_in_vec_init)]
    fn the_ranges_of_a_discard_are_apart() {
        let volume = volume();
        let discard = |ranges: &[Range<u64>]| {
            let ranges = ranges.iter().cloned().collect();
            Command::Discard { ranges }.ranges(&volume)
        };
        let apart = discard(&[9..12, 0..3, 2..5, 5..6, 1..2, 7..7, 11..20]).unwrap();
        assert_eq!(apart[..], [0..6, 9..20]);
        assert_eq!(discard(&[7..7]).unwrap()[..], [0..0]);
        assert_eq!(discard(&[0..1, 2047..2049]), Err(Refusal::OutOfRange));
        assert_eq!(discard(&[2..1]), Err(Refusal::OutOfRange));
        assert_eq!(discard(&[]), Err(Refusal::Length));
        assert_eq!(discard(&vec![0..1; RANGES_MAX + 1]), Err(Refusal::Length));
    }

    #[test]
    fn payloads_are_compared_whatever_their_pieces_are() {
        let mut content: Vec<u8> = (0..5000).map(|at| (at % 250) as u8).collect();
        let one = payload(&content, 700);
        assert_eq!(first_difference(&one, &payload(&content, 512)), None);
        content[4099] ^= 1;
        content[4100] ^= 1;
        for len in [1, 512, 4099, 4100, 5000] {
            assert_eq!(first_difference(&one, &payload(&content, len)), Some(4099), "{len}");
        }
        assert_eq!(first_difference(&smallvec![], &smallvec![]), None);
    }
}
