//! What a drive is asked for, and how that ends.

use crate::payload::Payload;
use rustix::io::Errno;

/// The most bytes of one read or write: more than a controller offers its hosts.
pub const TRANSFER_BYTES_MAX: usize = 4 << 20;

/// One operation. Offsets and lengths are in bytes, and multiples of
/// [`block_bytes`](crate::Info::block_bytes).
#[derive(Debug)]
pub enum Operation {
    /// Read, into buffers that come back with the completion.
    Read {
        /// The first byte.
        at: u64,
        /// The length.
        bytes: usize,
    },
    /// Write.
    Write {
        /// The first byte.
        at: u64,
        /// The data; their memory need not be aligned.
        payload: Payload,
        /// Complete only once the data would survive a loss of power.
        durable: bool,
    },
    /// Make durable what was written by operations that have completed.
    Flush,
    /// Have a range read as zeros.
    Zero {
        /// The first byte.
        at: u64,
        /// The length.
        bytes: u64,
        /// The storage may be given back.
        deallocate: bool,
        /// As for a write.
        durable: bool,
    },
    /// Give back the storage of a range. Does nothing where the drive cannot do it; what the range
    /// holds afterwards says [`discard_zeroes`](crate::Info::discard_zeroes).
    Discard {
        /// The first byte.
        at: u64,
        /// The length.
        bytes: u64,
    },
}

impl Operation {
    /// The range: first byte and length; `None` for a flush.
    pub(crate) fn range(&self) -> Option<(u64, u64)> {
        match self {
            Self::Read { at, bytes } => Some((*at, *bytes as u64)),
            Self::Write { at, payload, .. } => Some((*at, crate::payload_bytes(payload) as u64)),
            Self::Zero { at, bytes, .. } | Self::Discard { at, bytes } => Some((*at, *bytes)),
            Self::Flush => None,
        }
    }
}

/// The end of an operation.
#[derive(Debug)]
pub struct Completion {
    /// What the operation was submitted with.
    pub tag: u64,
    /// What was read, and nothing for other operations.
    pub result: Result<Payload, Fault>,
}

/// Why an operation failed. A write that failed may have changed any of its blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The file system, or the bound of the memory, has no room.
    #[error("no space left")]
    NoSpace,
    /// The drive cannot read or write this place.
    #[error("the medium is damaged there")]
    Medium,
    /// The drive is not there any more.
    #[error("the drive is gone")]
    Gone,
    /// The drive does not accept writes.
    #[error("the drive is read-only")]
    ReadOnly,
    /// Anything else, with the system's number.
    #[error("input/output error {0}")]
    Io(i32),
}

impl From<Errno> for Fault {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::NOSPC | Errno::DQUOT => Self::NoSpace,
            // What the block layer calls a medium error and a failed protection.
            Errno::NODATA | Errno::ILSEQ => Self::Medium,
            Errno::NODEV | Errno::NXIO => Self::Gone,
            Errno::ROFS | Errno::PERM | Errno::ACCESS => Self::ReadOnly,
            other => Self::Io(other.raw_os_error()),
        }
    }
}

/// Why an operation was not taken. Nothing of it was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// As many operations are under way as the queue has places.
    #[error("the queue is full")]
    Full,
    /// The range is not within the drive.
    #[error("the range is not within the drive")]
    OutOfRange,
    /// Offset or length are no multiple of a block.
    #[error("the range does not consist of whole blocks")]
    Misaligned,
    /// Nothing is to be read or written, or more than [`TRANSFER_BYTES_MAX`].
    #[error("the length is not between one block and {TRANSFER_BYTES_MAX} bytes")]
    Length,
}

/// An operation that was not taken.
#[derive(Debug)]
pub struct Rejected {
    /// The operation.
    pub operation: Operation,
    /// Why.
    pub why: Refusal,
}

/// Checks an operation against a drive. Overflows nowhere, whatever the numbers.
pub(crate) fn check(operation: &Operation, drive_bytes: u64, block_bytes: u32) -> Result<(), Refusal> {
    let Some((at, bytes)) = operation.range() else { return Ok(()) };
    let transfers = matches!(operation, Operation::Read { .. } | Operation::Write { .. });
    if bytes == 0 || (transfers && bytes > TRANSFER_BYTES_MAX as u64) {
        return Err(Refusal::Length);
    }
    if at.checked_add(bytes).is_none_or(|end| end > drive_bytes) {
        return Err(Refusal::OutOfRange);
    }
    let block = u64::from(block_bytes);
    if !at.is_multiple_of(block) || !bytes.is_multiple_of(block) {
        return Err(Refusal::Misaligned);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_checked_without_overflow() {
        let read = |at, bytes| check(&Operation::Read { at, bytes }, 8192, 512);
        assert_eq!(read(0, 8192), Ok(()));
        assert_eq!(read(7680, 512), Ok(()));
        assert_eq!(read(7680, 1024), Err(Refusal::OutOfRange));
        assert_eq!(read(u64::MAX - 511, 512), Err(Refusal::OutOfRange));
        assert_eq!(read(u64::MAX, 1024), Err(Refusal::OutOfRange));
        assert_eq!(read(1, 512), Err(Refusal::Misaligned));
        assert_eq!(read(0, 513), Err(Refusal::Misaligned));
        assert_eq!(read(0, 0), Err(Refusal::Length));
        assert_eq!(read(0, TRANSFER_BYTES_MAX + 512), Err(Refusal::Length));
        let zero = Operation::Zero { at: 512, bytes: u64::MAX, deallocate: true, durable: false };
        assert_eq!(check(&zero, u64::MAX, 512), Err(Refusal::OutOfRange));
        let all = Operation::Discard { at: 0, bytes: 1 << 50 };
        assert_eq!(check(&all, 1 << 50, 4096), Ok(()), "only transfers are bounded");
    }
}
