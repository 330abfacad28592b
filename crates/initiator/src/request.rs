//! What callers ask for, and the parts into which it is split.

use crate::error::Error;
use nvme::io::{Blocks, DatasetManagement, DsmRange, IoFlags};
use nvme::{IoOpcode, Sgl, Sqe};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

/// What to do with a volume. Offsets and lengths are in bytes and multiples of its blocks.
#[derive(Debug, Clone)]
pub enum Operation {
    /// Reads into this memory, which comes back with the completion.
    Read {
        /// The first byte.
        offset: u64,
        /// The memory.
        memory: Vec<u8>,
    },
    /// Writes.
    Write {
        /// The first byte.
        offset: u64,
        /// The data.
        data: Arc<Vec<u8>>,
        /// Whether they are durable before the completion.
        durable: bool,
    },
    /// Makes completed writes durable.
    Flush,
    /// Writes zeroes.
    WriteZeroes {
        /// The first byte.
        offset: u64,
        /// The length.
        bytes: u64,
        /// Whether the blocks may be deallocated.
        deallocate: bool,
        /// Whether the zeroes are durable before the completion.
        durable: bool,
    },
    /// Says that these bytes are not needed any more. What they read as is not defined.
    Deallocate {
        /// The first byte.
        offset: u64,
        /// The length.
        bytes: u64,
    },
}

impl Operation {
    /// Whether it changes data, so that a late original would undo something.
    #[must_use]
    pub const fn changes(&self) -> bool {
        matches!(self, Self::Write { .. } | Self::WriteZeroes { .. } | Self::Deallocate { .. })
    }

    pub(crate) fn range(&self) -> (u64, u64) {
        match self {
            Self::Read { offset, memory } => (*offset, memory.len() as u64),
            Self::Write { offset, data, .. } => (*offset, data.len() as u64),
            Self::Flush => (0, 0),
            Self::WriteZeroes { offset, bytes, .. } | Self::Deallocate { offset, bytes } => (*offset, *bytes),
        }
    }
}

/// How an operation ended.
#[derive(Debug)]
pub struct Completion {
    /// What the caller calls it.
    pub cookie: u64,
    /// The memory of a read, else empty; or why it failed.
    pub result: Result<Vec<u8>, Error>,
}

/// Whom the end of a request concerns.
#[derive(Debug)]
pub(crate) enum Reply {
    Channel(Sender<Completion>),
    /// The task with this number.
    Task(usize),
}

/// A request that is under way.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) nsid: u32,
    pub(crate) operation: Operation,
    pub(crate) cookie: u64,
    pub(crate) reply: Reply,
    pub(crate) since: Duration,
    /// Parts that have not ended.
    pub(crate) parts: usize,
    pub(crate) error: Option<Error>,
}

impl Request {
    /// Whether both change some byte.
    pub(crate) fn conflicts(&self, other: &Self) -> bool {
        let ((a, a_bytes), (b, b_bytes)) = (self.operation.range(), other.operation.range());
        self.nsid == other.nsid
            && self.operation.changes()
            && other.operation.changes()
            && a < b.saturating_add(b_bytes)
            && b < a.saturating_add(a_bytes)
    }
}

/// A command's worth of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    pub(crate) request: usize,
    /// From the beginning of the request, in bytes.
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    /// How often it was answered with a status that asks for a retry.
    pub(crate) retries: u32,
    /// When it was sent last.
    pub(crate) sent_at: Duration,
    /// It is not sent before.
    pub(crate) not_before: Duration,
}

/// The command of a part; blocks have 2 to the power of `shift` bytes.
pub(crate) fn command(request: &Request, part: &Part, shift: u32) -> Sqe {
    let start = (request.operation.range().0 + part.offset) >> shift;
    let count = u32::try_from(part.bytes >> shift).unwrap_or(u32::MAX);
    let blocks = |opcode, flags| Blocks { start, count, flags }.command(opcode, 0, request.nsid, Sgl::NONE);
    let durable = |durable| if durable { IoFlags::FORCE_UNIT_ACCESS } else { IoFlags::NONE };
    match &request.operation {
        Operation::Read { .. } => blocks(IoOpcode::READ, IoFlags::NONE),
        Operation::Write { durable: fua, .. } => blocks(IoOpcode::WRITE, durable(*fua)),
        Operation::Flush => Sqe::new(IoOpcode::FLUSH.0, 0, request.nsid),
        Operation::WriteZeroes { deallocate, durable: fua, .. } => {
            let deac = if *deallocate { IoFlags::DEALLOCATE } else { IoFlags::NONE };
            blocks(IoOpcode::WRITE_ZEROES, durable(*fua).with(deac))
        }
        Operation::Deallocate { .. } => {
            DatasetManagement { ranges: 1, deallocate: true }.command(0, request.nsid, Sgl::NONE)
        }
    }
}

/// The range of a part that deallocates.
pub(crate) fn range(request: &Request, part: &Part, shift: u32) -> Vec<u8> {
    let start = (request.operation.range().0 + part.offset) >> shift;
    let count = u32::try_from(part.bytes >> shift).unwrap_or(u32::MAX);
    DsmRange { attributes: 0, count, start }.encode().to_vec()
}
