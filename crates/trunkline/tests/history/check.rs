//! The checker: finds reads of a file whose result no order of the operations explains. Pure:
//! operations in, findings out.
//!
//! Each cell is an independent register, and each value of a cell is written once, which makes the
//! rules simple:
//!
//! - a read returns a value that some write of the cell wrote, and that write began before the read
//!   ended;
//! - the value is not overwritten: no other write began after that write ended and ended before the
//!   read began;
//! - where requested, a read does not return an older value than a read of the same kind that ended
//!   before the read began, even while the newer value is being written ([`order`](crate::order));
//! - if a read finds words of several writes in a cell, the read must be allowed to return each of
//!   them. Reads and writes of a cell therefore need not be atomic with respect to each other; they
//!   are not in all local file systems;
//! - the same holds for a word that mixes bytes of several writes.
//!
//! Zeros are cells that no write has written, or that a truncation has removed. Zeros do not
//! identify the truncation, so one truncation that explains them is enough. Appended records are
//! located where the last read of the whole file finds them ([`appends`](crate::appends)).

use crate::appends;
use crate::op::{AccessMethod, Effect, Op, Run};
use crate::order;
use crate::stamp::Stamp;
use std::collections::{HashMap, HashSet};

/// Enough findings of one file.
const FINDINGS_MAX: usize = 3;

/// Properties of the file.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    pub cells: u32,
    /// Reads are also ordered among themselves, even during a write, as in a local directory.
    pub ordered: bool,
}

/// The kind of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Wrong {
    /// A value that was overwritten by a write that had returned before the read began.
    Stale,
    /// A value that no write wrote there.
    Foreign,
    /// A value of a write that had not begun when the read ended.
    Early,
    /// A mixture of bytes that no concurrent writes explain.
    Torn,
    /// An older value than an earlier read returned.
    Backwards,
    /// A record that was appended and is missing.
    Lost,
    /// A record that exists more than once.
    Doubled,
    /// A record that lies before a record whose append had returned when its own append began.
    Disordered,
    /// Two holders of one lock at the same time.
    Shared,
}

/// One error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub wrong: Wrong,
    pub cell: u32,
    /// Indices of the operations that contradict each other, the read first.
    pub ops: Vec<usize>,
    /// The words that were read.
    pub words: Vec<u64>,
}

/// A write of one cell.
#[derive(Debug, Clone, Copy)]
pub struct Write {
    /// `None` for the zeros of a new file.
    pub op: Option<usize>,
    pub begin: u64,
    pub end: u64,
    pub word: u64,
}

/// A read of one cell.
#[derive(Debug, Clone)]
pub struct Read {
    pub op: usize,
    pub begin: u64,
    pub end: u64,
    /// More than one if the cell is torn.
    pub words: Vec<u64>,
    /// Whether the read bypassed the kernel's cache.
    pub direct: bool,
}

/// The errors of a file: for each cell at most one of each kind, and a limited number in total.
pub fn check(ops: &[Op], rules: Rules) -> Vec<Finding> {
    let mut findings = shared_locks(ops);
    let (placed, lost) = appends::placed(ops);
    findings.extend(lost);
    let (writes, reads) = by_cell(ops, &placed, rules);
    let (mut seen, mut description) = (HashSet::new(), HashSet::new());
    for (cell, (writes, reads)) in (0u32..).zip(writes.into_iter().zip(reads)) {
        let register = Register::new(writes);
        let mut here: Vec<Finding> = reads.iter().filter_map(|read| register.judge(read, cell)).collect();
        if rules.ordered && here.is_empty() {
            here.extend(order::inversion(&register.writes, &reads, cell));
        }
        // One finding of each kind for a cell; the same operations in the next cell add no
        // information.
        here.retain(|finding| {
            seen.insert((finding.wrong, cell)) && description.insert((finding.wrong, finding.ops.clone()))
        });
        findings.extend(here);
        if findings.len() >= FINDINGS_MAX {
            break;
        }
    }
    findings.truncate(FINDINGS_MAX);
    findings
}

fn by_cell(ops: &[Op], placed: &HashMap<usize, u32>, rules: Rules) -> (Vec<Vec<Write>>, Vec<Vec<Read>>) {
    let new = Write { op: None, begin: 0, end: 0, word: 0 };
    let mut writes = vec![vec![new]; rules.cells as usize];
    let mut reads = vec![Vec::new(); rules.cells as usize];
    for (index, op) in ops.iter().enumerate() {
        let (begin, end) = (op.begin, op.end);
        let write = |word| Write { op: Some(index), begin, end, word };
        match &op.effect {
            Effect::Wrote { number, .. } => {
                for cell in op.cells(rules.cells) {
                    let stamp = Stamp { writer: op.writer, number: *number, cell: cell as u16 };
                    writes[cell as usize].push(write(stamp.word()));
                }
            }
            Effect::Appended { number } => {
                if let Some(&cell) = placed.get(&index) {
                    writes[cell as usize].push(write(appends::word(op.writer, *number)));
                }
            }
            Effect::Cut => op.cells(rules.cells).for_each(|cell| writes[cell as usize].push(write(0))),
            Effect::Read(runs) => {
                let direct = op.method == AccessMethod::Direct;
                for (cell, words) in (op.first..).zip(runs.iter().flat_map(words_of)) {
                    reads[cell as usize].push(Read { op: index, begin, end, words, direct });
                }
            }
            Effect::Held => {}
        }
    }
    (writes, reads)
}

/// The words in each cell of a run.
pub fn words_of(run: &Run) -> Vec<Vec<u64>> {
    match run {
        Run::Torn(words) => vec![words.clone()],
        Run::Whole { word, cells } => {
            let stamp = Stamp::parse(*word);
            let one = |index: u32| match stamp {
                Some(stamp) if index > 0 => Stamp { cell: stamp.cell + index as u16, ..stamp }.word(),
                _ => *word,
            };
            (0..*cells).map(|index| vec![one(index)]).collect()
        }
    }
}

/// The writes of one cell, sorted by their begin.
struct Register {
    writes: Vec<Write>,
    /// The earliest end of the writes from each index on.
    ends_from: Vec<(u64, usize)>,
    by_word: HashMap<u64, usize>,
}

impl Register {
    fn new(mut writes: Vec<Write>) -> Self {
        writes.sort_by_key(|write| (write.begin, write.end));
        let mut earliest = (u64::MAX, 0);
        let mut ends_from: Vec<_> = writes
            .iter()
            .enumerate()
            .rev()
            .map(|(index, write)| {
                earliest = earliest.min((write.end, index));
                earliest
            })
            .collect();
        ends_from.reverse();
        let by_word = writes.iter().enumerate().map(|(index, write)| (write.word, index)).collect();
        Self { writes, ends_from, by_word }
    }

    /// The write that first overwrote another, and when that write had returned.
    fn overwritten(&self, write: &Write) -> Option<(u64, usize)> {
        let next = self.writes.partition_point(|other| other.begin <= write.end);
        self.ends_from.get(next).copied()
    }

    fn may_be_read(&self, write: &Write, read: &Read) -> bool {
        write.begin < read.end && self.overwritten(write).is_none_or(|(end, _)| end >= read.begin)
    }

    fn judge(&self, read: &Read, cell: u32) -> Option<Finding> {
        read.words.iter().find_map(|&word| self.judge_word(read, word, cell))
    }

    fn judge_word(&self, read: &Read, word: u64, cell: u32) -> Option<Finding> {
        let finding = |wrong, others: Vec<Option<usize>>| {
            let ops = [Some(read.op)].into_iter().chain(others).flatten().collect();
            Some(Finding { wrong, cell, ops, words: read.words.clone() })
        };
        let known = if word == 0 {
            let begun = self.writes.partition_point(|write| write.begin < read.end);
            let zeros = || self.writes[..begun].iter().rev().filter(|write| write.word == 0);
            if zeros().any(|zero| self.may_be_read(zero, read)) {
                return None;
            }
            self.writes[..begun].iter().rposition(|write| write.word == 0)
        } else {
            self.by_word.get(&word).copied()
        };
        let Some(known) = known else {
            return match Stamp::parse(word) {
                Some(_) => finding(Wrong::Foreign, vec![]),
                None if self.is_mixed(word, read) => None,
                None => finding(Wrong::Torn, self.candidates(read).map(|write| write.op).collect()),
            };
        };
        let write = &self.writes[known];
        match self.overwritten(write) {
            _ if write.begin >= read.end => finding(Wrong::Early, vec![write.op]),
            Some((end, by)) if end < read.begin => finding(Wrong::Stale, vec![write.op, self.writes[by].op]),
            _ => None,
        }
    }

    fn candidates(&self, read: &Read) -> impl Iterator<Item = &Write> {
        self.writes.iter().filter(|write| self.may_be_read(write, read))
    }

    /// Whether each byte of a word is a byte of some write that the read may return, if there are
    /// several such writes.
    fn is_mixed(&self, word: u64, read: &Read) -> bool {
        let words: Vec<[u8; 8]> = self.candidates(read).map(|write| write.word.to_ne_bytes()).collect();
        let bytes = word.to_ne_bytes();
        words.len() > 1 && (0..bytes.len()).all(|at| words.iter().any(|word| word[at] == bytes[at]))
    }
}

/// Pairs of lock holders whose times overlap.
fn shared_locks(ops: &[Op]) -> Vec<Finding> {
    let mut held: Vec<usize> = (0..ops.len()).filter(|&index| ops[index].effect == Effect::Held).collect();
    held.sort_by_key(|&index| ops[index].begin);
    let mut last: Option<usize> = None;
    let mut findings = Vec::new();
    for index in held {
        if let Some(last) = last.filter(|&last| ops[index].begin < ops[last].end) {
            let words = Vec::new();
            findings.push(Finding { wrong: Wrong::Shared, cell: 0, ops: vec![index, last], words });
        }
        last = [last, Some(index)].into_iter().flatten().max_by_key(|&index| ops[index].end);
    }
    findings
}
