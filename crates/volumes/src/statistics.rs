//! What a volume has done: operations by kind and size of payload.

use crate::command::Command;
use drives::payload_bytes;
use hdrhistogram::Histogram;
use metrics::latency::{clamped, histogram};
use metrics::{Key, Latency, Operations, SizeClass, Tally};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Kinds of commands, by the names under which they are shown.
const KINDS: [&str; 7] =
    ["READ", "WRITE", "FLUSH", "WRITE ZEROES", "DISCARD", "COMPARE", "COMPARE AND WRITE"];

/// The commands that have moved data of a volume, and the bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IoCounts {
    /// Commands that have read, or compared.
    pub reads: u64,
    /// Commands that have written data of the host.
    pub writes: u64,
    /// The bytes of those that have read.
    pub read_bytes: u64,
    /// The bytes of those that have written.
    pub written_bytes: u64,
}

impl IoCounts {
    /// Adds that of another volume.
    pub const fn add(&mut self, other: &Self) {
        self.reads += other.reads;
        self.writes += other.writes;
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
    }
}

/// What one command counts as.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Account {
    kind: usize,
    /// Bytes that came with the command.
    received_bytes: u64,
    /// Bytes that go out with its answer, if it succeeds.
    sent_bytes: u64,
}

impl Account {
    pub fn of(command: &Command, block_bytes: u32) -> Self {
        let received = |kind, bytes: usize| Self { kind, received_bytes: bytes as u64, sent_bytes: 0 };
        match command {
            Command::Read { blocks, .. } => {
                Self { kind: 0, received_bytes: 0, sent_bytes: u64::from(*blocks) * u64::from(block_bytes) }
            }
            Command::Write { payload, .. } => received(1, payload_bytes(payload)),
            Command::Flush => received(2, 0),
            Command::WriteZeroes { .. } => received(3, 0),
            Command::Discard { .. } => received(4, 0),
            Command::Compare { payload, .. } => received(5, payload_bytes(payload)),
            Command::CompareAndWrite { expected, payload, .. } => {
                received(6, payload_bytes(expected) + payload_bytes(payload))
            }
        }
    }
}

struct Cell {
    errors: u64,
    received_bytes: u64,
    sent_bytes: u64,
    latency: Histogram<u64>,
}

/// Counts. A cell is made with its first command, and takes about 4 KiB; there are no more than
/// kinds times classes of sizes.
#[derive(Default)]
pub(crate) struct Statistics {
    cells: [[Option<Box<Cell>>; SizeClass::ALL.len()]; KINDS.len()],
}

impl Statistics {
    pub fn count(&mut self, account: Account, took: Duration, succeeded: bool) {
        let class = SizeClass::of(account.received_bytes + account.sent_bytes);
        let class = SizeClass::ALL.iter().position(|one| *one == class).unwrap_or_default();
        let cell = self.cells[account.kind][class].get_or_insert_with(|| {
            Box::new(Cell { errors: 0, received_bytes: 0, sent_bytes: 0, latency: histogram() })
        });
        cell.errors += u64::from(!succeeded);
        cell.received_bytes += account.received_bytes;
        cell.sent_bytes += if succeeded { account.sent_bytes } else { 0 };
        cell.latency.saturating_record(clamped(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX)));
    }

    /// What has moved data.
    pub fn io_counts(&self) -> IoCounts {
        let mut counts = IoCounts::default();
        for (kind, cells) in KINDS.iter().zip(&self.cells) {
            for cell in cells.iter().flatten() {
                let (count, received_bytes) = (cell.latency.len(), cell.received_bytes);
                let (reads, writes, read_bytes, written_bytes) = match *kind {
                    "READ" => (count, 0, cell.sent_bytes, 0),
                    "COMPARE" => (count, 0, received_bytes, 0),
                    "WRITE" => (0, count, 0, received_bytes),
                    // Half of the bytes are compared, the other half is written.
                    "COMPARE AND WRITE" => (count, count, received_bytes / 2, received_bytes / 2),
                    _ => continue,
                };
                counts.add(&IoCounts { reads, writes, read_bytes, written_bytes });
            }
        }
        counts
    }

    /// The counts, with the volume in the place of the export.
    pub fn operations(&self, volume: &str) -> Operations {
        let volume: Arc<str> = volume.into();
        let mut operations = Operations::default();
        for (kind, cells) in KINDS.iter().zip(&self.cells) {
            for (class, cell) in SizeClass::ALL.iter().zip(cells) {
                let Some(cell) = cell else { continue };
                let (operation, export) = (Some(Arc::from(*kind)), Some(Arc::clone(&volume)));
                let key = Key { operation, export, size: Some(*class), ..Key::default() };
                let tally = Tally {
                    count: cell.latency.len(),
                    errors: cell.errors,
                    replayed: 0,
                    received_bytes: cell.received_bytes,
                    sent_bytes: cell.sent_bytes,
                    latency: Latency::of(&cell.latency),
                };
                operations.add(key, &tally);
            }
        }
        operations
    }
}

impl fmt::Debug for Statistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cells = self.cells.iter().flatten().flatten();
        write!(f, "{} commands", cells.map(|cell| cell.latency.len()).sum::<u64>())
    }
}
