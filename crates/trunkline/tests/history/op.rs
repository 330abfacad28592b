//! An operation of one thread on one file: when it began and ended, and what it wrote or read. Each
//! thread keeps its operations in its own file, as 64-bit words; the parent process reads and joins
//! the files.

use rustix::time::{ClockId, clock_gettime};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::ops::Range;
use std::path::Path;

/// The parent process, which reads each file after all workers have ended.
pub const OBSERVER: u8 = 0;

/// Nanoseconds of a clock that all processes of a host share.
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The kind of I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AccessMethod {
    Buffered,
    Sync,
    Dsync,
    Direct,
    Mapped,
    /// With copy_file_range(2).
    Copied,
    /// With ftruncate(2).
    Cut,
}

impl AccessMethod {
    const ALL: [Self; 7] =
        [Self::Buffered, Self::Sync, Self::Dsync, Self::Direct, Self::Mapped, Self::Copied, Self::Cut];

    pub fn name(self) -> &'static str {
        match self {
            Self::Buffered => "buffered",
            Self::Sync => "O_SYNC",
            Self::Dsync => "O_DSYNC",
            Self::Direct => "O_DIRECT",
            Self::Mapped => "mapped",
            Self::Copied => "copy_file_range",
            Self::Cut => "ftruncate",
        }
    }
}

/// What a read returned for adjacent cells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Run {
    /// This number of cells hold stamps of one write, or zeros. A stamp names its cell, so `word`
    /// is the word of the first cell.
    Whole { word: u64, cells: u32 },
    /// One cell with several words.
    Torn(Vec<u64>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Stamps with this number in this number of cells.
    Wrote {
        number: u32,
        cells: u32,
    },
    /// A record of one cell, at the end of the file.
    Appended {
        number: u32,
    },
    /// The file was truncated at the first cell.
    Cut,
    Read(Vec<Run>),
    /// A lock was held from `begin` to `end`.
    Held,
}

/// One operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Op {
    pub writer: u8,
    pub method: AccessMethod,
    /// The time before the call.
    pub begin: u64,
    /// The time after the call.
    pub end: u64,
    pub first: u32,
    pub effect: Effect,
}

impl Op {
    /// The cells that the operation reads or writes.
    pub fn cells(&self, of: u32) -> Range<u32> {
        let first = self.first;
        match &self.effect {
            Effect::Wrote { cells, .. } => first..first + cells,
            Effect::Cut => first..of.max(first),
            Effect::Read(runs) => first..first + runs.iter().map(Run::cells).sum::<u32>(),
            Effect::Appended { .. } | Effect::Held => 0..0,
        }
    }
}

impl Run {
    pub fn cells(&self) -> u32 {
        match self {
            Self::Whole { cells, .. } => *cells,
            Self::Torn(_) => 1,
        }
    }
}

/// The file in which a thread keeps its operations.
pub struct Log {
    to: BufWriter<File>,
}

impl Log {
    pub fn create(path: &Path) -> Self {
        Self { to: BufWriter::new(File::create(path).expect("the history can be kept")) }
    }

    /// Keeps an operation on the file with this number.
    pub fn keep(&mut self, file: usize, op: &Op) {
        let mut words =
            vec![file as u64, u64::from(op.writer), op.method as u64, op.begin, op.end, u64::from(op.first)];
        match &op.effect {
            Effect::Wrote { number, cells } => words.extend([0, u64::from(*number), u64::from(*cells)]),
            Effect::Appended { number } => words.extend([1, u64::from(*number)]),
            Effect::Cut => words.push(2),
            Effect::Held => words.push(3),
            Effect::Read(runs) => {
                words.extend([4, runs.len() as u64]);
                for run in runs {
                    match run {
                        Run::Whole { word, cells } => words.extend([u64::from(*cells), *word]),
                        Run::Torn(torn) => {
                            words.extend([0, torn.len() as u64]);
                            words.extend(torn);
                        }
                    }
                }
            }
        }
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        self.to.write_all(&bytes).expect("the history can be kept");
    }

    pub fn finish(mut self) {
        self.to.flush().expect("the history can be kept");
    }
}

/// The operations that a thread kept, each with the number of its file.
pub fn kept(path: &Path) -> Vec<(usize, Op)> {
    let bytes = std::fs::read(path).expect("the history is there");
    let mut words = bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().expect("8 bytes")));
    let mut all = Vec::new();
    while let Some(file) = words.next() {
        let mut next = || words.next().expect("an operation is kept whole");
        let (writer, method) = (next() as u8, AccessMethod::ALL[next() as usize]);
        let (begin, end, first) = (next(), next(), next() as u32);
        let effect = match next() {
            0 => Effect::Wrote { number: next() as u32, cells: next() as u32 },
            1 => Effect::Appended { number: next() as u32 },
            2 => Effect::Cut,
            3 => Effect::Held,
            _ => {
                let runs = next();
                let run = |_| match next() {
                    0 => Run::Torn((0..next()).map(|_| next()).collect()),
                    cells => Run::Whole { cells: cells as u32, word: next() },
                };
                Effect::Read((0..runs).map(run).collect())
            }
        };
        all.push((file as usize, Op { writer, method, begin, end, first, effect }));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_that_are_kept_can_be_read_back() {
        let runs = vec![
            Run::Whole { word: 7, cells: 2 },
            Run::Torn(vec![1, 2, 3]),
            Run::Whole { word: 0, cells: 1 },
        ];
        let effects = [
            Effect::Wrote { number: 5, cells: 3 },
            Effect::Appended { number: 9 },
            Effect::Cut,
            Effect::Held,
            Effect::Read(runs),
        ];
        let ops = effects.map(|effect| Op {
            writer: 2,
            method: AccessMethod::Direct,
            begin: 10,
            end: 20,
            first: 4,
            effect,
        });
        let place = testkit::temp_dir("kept");
        let path = place.path().join("log");
        let mut log = Log::create(&path);
        ops.iter().enumerate().for_each(|(file, op)| log.keep(file, op));
        log.finish();
        assert_eq!(kept(&path), ops.into_iter().enumerate().collect::<Vec<_>>());
    }
}
