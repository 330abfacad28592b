//! Requests.

use crate::export::Export;
use crate::{Errno, Reader, Violation};

const MAGIC: u32 = 0x2560_9513;

/// The length of a request without its data.
pub const HEADER_BYTES: usize = 28;

/// The most bytes of a read or a write that is executed.
pub const REQUEST_BYTES_MAX: u32 = 32 << 20;

/// The most data of a write that are received, in order to refuse it.
pub const PAYLOAD_BYTES_MAX: u32 = 64 << 20;

const FUA: u16 = 1 << 0;
const NO_HOLE: u16 = 1 << 1;
const DF: u16 = 1 << 2;

/// The type of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// READ.
    Read,
    /// WRITE, whose data follow.
    Write,
    /// DISC: the client ends the connection, once its requests have ended.
    Disconnect,
    /// FLUSH.
    Flush,
    /// TRIM.
    Trim,
    /// WRITE_ZEROES.
    WriteZeroes,
    /// Another one.
    Other(u16),
}

/// The head of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The flags.
    pub flags: u16,
    /// The type.
    pub kind: Kind,
    /// What the client calls it.
    pub cookie: u64,
    /// The first byte.
    pub offset: u64,
    /// The length.
    pub bytes: u32,
}

/// A request that can be executed: its range is within the export, and on its blocks except for a
/// trim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Reads.
    Read,
    /// Writes the data that follow; with `durable`, they are durable before the reply.
    Write {
        /// FUA.
        durable: bool,
    },
    /// Makes what was replied to durable.
    Flush,
    /// A range is not needed any more: the whole blocks of the request's.
    Trim {
        /// FUA.
        durable: bool,
        /// The first byte.
        offset: u64,
        /// The length; zero if the request has no whole block.
        bytes: u32,
    },
    /// Writes zeroes.
    WriteZeroes {
        /// FUA.
        durable: bool,
        /// Not NO_HOLE: the range may be deallocated if it reads as zeroes then.
        may_deallocate: bool,
    },
}

impl Header {
    /// Reads the head of a request.
    ///
    /// # Errors
    /// [`Violation`]: the connection ends.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, Violation> {
        let mut reader = Reader(bytes);
        let magic = reader.u32().unwrap_or_default();
        if magic != MAGIC {
            return Err(Violation::Magic(magic.into()));
        }
        let (flags, kind) = (reader.u16().unwrap_or_default(), reader.u16().unwrap_or_default());
        let kind = match kind {
            0 => Kind::Read,
            1 => Kind::Write,
            2 => Kind::Disconnect,
            3 => Kind::Flush,
            4 => Kind::Trim,
            6 => Kind::WriteZeroes,
            other => Kind::Other(other),
        };
        let cookie = reader.u64().unwrap_or_default();
        let offset = reader.u64().unwrap_or_default();
        let bytes = reader.u32().unwrap_or_default();
        if kind == Kind::Write && bytes > PAYLOAD_BYTES_MAX {
            return Err(Violation::PayloadTooLong(bytes));
        }
        Ok(Self { flags, kind, cookie, offset, bytes })
    }

    /// How many bytes of data follow.
    #[must_use]
    pub const fn payload_bytes(&self) -> u32 {
        if matches!(self.kind, Kind::Write) { self.bytes } else { 0 }
    }
}

impl Export {
    /// What a request asks for, or why it is refused.
    ///
    /// A trim need not be on blocks: QEMU passes on what its guest does not need any more, however
    /// small its blocks are. It is advice, so the parts of blocks are left as they are.
    ///
    /// # Errors
    /// [`Errno`], for the reply.
    pub fn check(&self, header: &Header, structured: bool) -> Result<Command, Errno> {
        let has = |flag| header.flags & flag != 0;
        let durable = has(FUA);
        let (allowed, command) = match header.kind {
            // The whole range is in one chunk in any case.
            Kind::Read => (if structured { FUA | DF } else { FUA }, Command::Read),
            Kind::Write => (FUA, Command::Write { durable }),
            Kind::Flush => (FUA, Command::Flush),
            Kind::Trim if self.features.trim => {
                let (offset, bytes) = self.whole_blocks(header);
                (FUA, Command::Trim { durable, offset, bytes })
            }
            // Without FAST_ZERO, which is not offered.
            Kind::WriteZeroes if self.features.write_zeroes => {
                (FUA | NO_HOLE, Command::WriteZeroes { durable, may_deallocate: !has(NO_HOLE) })
            }
            _ => return Err(Errno::Invalid),
        };
        if header.flags & !allowed != 0 {
            return Err(Errno::Invalid);
        }
        let is_read = matches!(command, Command::Read | Command::Flush);
        if self.features.read_only && !is_read {
            return Err(Errno::Permission);
        }
        if command == Command::Flush {
            // Offset and length are reserved.
            return if (header.offset, header.bytes) == (0, 0) { Ok(command) } else { Err(Errno::Invalid) };
        }
        let block = u64::from(self.block_min.max(1));
        let on_blocks = header.offset.is_multiple_of(block) && u64::from(header.bytes).is_multiple_of(block);
        if header.bytes == 0 || !(on_blocks || header.kind == Kind::Trim) {
            return Err(Errno::Invalid);
        }
        let end = header.offset.checked_add(header.bytes.into());
        if end.is_none_or(|end| end > self.bytes) {
            return Err(if is_read { Errno::Invalid } else { Errno::NoSpace });
        }
        let moves = matches!(command, Command::Read | Command::Write { .. });
        if moves && header.bytes > REQUEST_BYTES_MAX {
            return Err(if has(DF) { Errno::Overflow } else { Errno::Invalid });
        }
        Ok(command)
    }

    /// The range of the whole blocks within that of a request, which may be empty.
    fn whole_blocks(&self, header: &Header) -> (u64, u32) {
        let block = u64::from(self.block_min.max(1));
        let end = header.offset.saturating_add(header.bytes.into());
        let Some(start) = header.offset.checked_next_multiple_of(block) else { return (header.offset, 0) };
        let bytes = (end - end % block).saturating_sub(start);
        // It is not longer than the request.
        (start, u32::try_from(bytes).unwrap_or(0))
    }
}
