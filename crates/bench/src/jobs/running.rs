//! A job while it runs: which operation is next, and the buffers.

use std::time::Duration;

use client::{Buffer, Io};
use record::Direction;

use super::Job;
use super::cursor::{Cursor, Region, random};
use crate::stamps;

impl<F> Job<F> {
    /// Whether all operations have this direction.
    pub(super) fn has_only(&self, direction: Direction) -> bool {
        self.read_percent == if direction == Direction::Read { 100 } else { 0 }
    }

    /// The maximum size of one READ or WRITE.
    pub(super) fn piece_bytes_of(&self, direction: Direction) -> usize {
        let [read, write] = self.piece_bytes;
        if direction == Direction::Read { read.max(1) } else { write.max(1) }
    }

    /// The maximum number of READs or WRITEs of an operation.
    pub(super) fn pieces_max(&self) -> u64 {
        let pieces = self.blocks.iter().zip(self.piece_bytes);
        pieces.map(|(blocks, piece)| blocks.max.div_ceil(piece.max(1) as u64)).max().unwrap_or(1)
    }

    /// Whether each block consists of whole pages, so that a buffer keeps its noise.
    fn has_whole_pages(&self) -> bool {
        self.blocks.iter().all(|blocks| blocks.min.is_multiple_of(stamps::PAGE_BYTES as u64))
            && self.piece_bytes.iter().all(|piece| piece.is_multiple_of(stamps::PAGE_BYTES))
    }

    /// This part's share of the bytes after which the job ends.
    fn own_io_bytes(&self) -> Option<u64> {
        let all = self.io_bytes?;
        // A mixed job moves its bytes in both directions; its blocks of reads decide.
        let [read, write] = self.blocks;
        let sizes = if self.read_percent > 0 { read } else { write };
        let region = |part| Region { bytes: self.file_bytes, part, of: self.of }.own_bytes(sizes);
        let total: u64 = (0..self.of).map(region).sum();
        let share = |part| u128::from(all) * u128::from(region(part)) / u128::from(total.max(1));
        let own = share(self.part);
        // The first part takes what the division leaves.
        let rest = u128::from(all) - (0..self.of).map(share).sum::<u128>();
        u64::try_from(if self.part == 0 { own + rest } else { own }).ok()
    }
}

/// A job while it runs.
#[derive(Debug)]
pub(super) struct Running<F> {
    pub(super) job: Job<F>,
    /// The position in each file: of reads and of writes.
    cursors: Vec<[Cursor; 2]>,
    /// The file of the next operation.
    turn: usize,
    seed: u64,
    /// The bytes that are left to this part; `None` if time ends the job.
    left: Option<u64>,
    /// The number of scheduled operations that were started.
    pub(super) started: u64,
    /// Unused slots; they wait for the schedule.
    pub(super) idle: Vec<usize>,
    /// Unused buffers.
    spare: Vec<Buffer>,
    spare_max: usize,
    pub(super) whole_pages: bool,
}

impl<F> Running<F> {
    pub(super) fn new(job: Job<F>) -> Self {
        let number = job.files.first().map_or(0, |file| file.number);
        // Jobs start at different offsets, so that they do not run in lockstep.
        let seed = (u64::from(number) * job.of + job.part + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let region = Region { bytes: job.file_bytes, part: job.part, of: job.of };
        let cursors = job.files.iter().map(|file| {
            let seed = seed ^ u64::from(file.number);
            job.blocks.map(|sizes| Cursor::new(region, sizes, job.order, seed))
        });
        Self {
            cursors: cursors.collect(),
            turn: 0,
            seed,
            left: job.own_io_bytes(),
            started: 0,
            idle: Vec::with_capacity(job.depth as usize),
            spare: Vec::new(),
            spare_max: job.depth as usize * usize::try_from(job.pieces_max()).unwrap_or(1),
            whole_pages: job.has_whole_pages(),
            job,
        }
    }

    /// The direction of the next operation.
    pub(super) fn next_direction(&mut self) -> Direction {
        match self.job.read_percent {
            0 => Direction::Write,
            100.. => Direction::Read,
            percent if (random(&mut self.seed) >> 33) % 100 < u64::from(percent) => Direction::Read,
            _ => Direction::Write,
        }
    }

    /// Direction, file, offset and length of the next operation, unless the job has done its bytes.
    pub(super) fn next_operation(&mut self) -> Option<(Direction, usize, u64, u64)> {
        let direction = self.next_direction();
        let sizes = self.job.blocks.get(usize::from(direction == Direction::Write))?;
        if self.left.is_some_and(|left| left < sizes.min) {
            // The other direction may have smaller blocks, but the job has ended.
            self.left = Some(0);
            return None;
        }
        let file = self.turn;
        self.turn = (self.turn + 1) % self.cursors.len().max(1);
        let [read, write] = self.cursors.get_mut(file)?;
        let (offset, wished) = if direction == Direction::Read { read.next() } else { write.next() };
        let bytes = match &mut self.left {
            Some(left) => {
                let bytes = wished.min(*left / sizes.min * sizes.min);
                *left -= bytes;
                bytes
            }
            None => wished,
        };
        Some((direction, file, offset, bytes))
    }

    /// The scheduled start of the next operation, since the load's start. `None` without a
    /// schedule, or after its end.
    pub(super) fn due(&self, end: Duration) -> Option<Duration> {
        let schedule = self.job.schedule?;
        let [read, write] = self.job.blocks;
        if self.left.is_some_and(|left| left < read.min.min(write.min)) {
            return None;
        }
        let seconds = schedule.first_s + self.started as f64 * schedule.interval_s;
        Duration::try_from_secs_f64(seconds).ok().filter(|due| *due < end)
    }

    /// A buffer of this length, filled with noise if blocks consist of whole pages.
    pub(super) fn buffer(&mut self, io: &Io<'_>, len: usize) -> Buffer {
        // Most jobs have blocks of one size, so the last one fits.
        if let Some(at) = self.spare.iter().rposition(|buffer| buffer.len() == len) {
            return self.spare.swap_remove(at);
        }
        let buffer = io.buffer(len);
        if self.whole_pages { stamps::noise_in(buffer) } else { buffer }
    }

    /// Keeps a buffer for the next operation.
    pub(super) fn keep(&mut self, buffer: Buffer) {
        if self.spare.len() >= self.spare_max {
            self.spare.swap_remove(0);
        }
        self.spare.push(buffer);
    }

    /// Gives a block its content.
    pub(super) fn stamp(&self, buffer: &mut [u8], number: u32, offset: u64) {
        if self.whole_pages {
            stamps::write_stamps(buffer, number, offset);
        } else {
            stamps::write_any(buffer, number, offset);
        }
    }
}
