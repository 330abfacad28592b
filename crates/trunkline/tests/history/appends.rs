//! Finds the cells of appended records, and the records that are missing.
//!
//! All records of a file have the same length, so each record lies in a cell. The observer's reads
//! of the whole file, after all other operations, show in which cell; the append is then treated as
//! a write of that cell.

use crate::check::{Finding, Wrong, words_of};
use crate::op::{Effect, OBSERVER, Op, Run};
use crate::stamp::{ANYWHERE, Stamp};
use std::collections::{HashMap, HashSet};

/// The word that fills a record.
pub fn word(writer: u8, number: u32) -> u64 {
    Stamp { writer, number, cell: ANYWHERE }.word()
}

/// The cell of each append, by index, and findings about records that have no cell or several, and
/// about their order.
pub fn placed(ops: &[Op]) -> (HashMap<usize, u32>, Vec<Finding>) {
    let appends: Vec<(usize, u64)> = (0..)
        .zip(ops)
        .filter_map(|(index, op)| match op.effect {
            Effect::Appended { number } => Some((index, word(op.writer, number))),
            _ => None,
        })
        .collect();
    let seen =
        ops.iter().enumerate().rfind(|(_, op)| op.writer == OBSERVER && matches!(op.effect, Effect::Read(_)));
    let (Some((seen, Op { effect: Effect::Read(runs), .. })), false) = (seen, appends.is_empty()) else {
        return Default::default();
    };
    let mut cells: HashMap<u64, Vec<u32>> = HashMap::new();
    for (cell, words) in (0..).zip(runs.iter().flat_map(words_of)) {
        if let [word] = words[..] {
            cells.entry(word).or_default().push(cell);
        }
    }
    let (mut placed, mut findings) = (HashMap::new(), Vec::new());
    for (index, word) in appends {
        let finding = |wrong, cell| Finding { wrong, cell, ops: vec![seen, index], words: vec![word] };
        match cells.get(&word).map_or(&[][..], Vec::as_slice) {
            [] => findings.push(finding(Wrong::Lost, 0)),
            &[cell, ref more @ ..] => {
                placed.insert(index, cell);
                findings.extend(more.iter().map(|&cell| finding(Wrong::Doubled, cell)));
            }
        }
    }
    report_gaps(&mut findings, &placed, runs, ops);
    findings.extend(disorder(ops, &placed));
    (placed, findings)
}

/// For each lost record, the finding shows a cell, in order, that no append explains: the record
/// may have been there.
fn report_gaps(findings: &mut [Finding], placed: &HashMap<usize, u32>, runs: &[Run], ops: &[Op]) {
    let explained: HashSet<u32> = placed.values().copied().collect();
    let last = explained.iter().max().copied().unwrap_or(0);
    let cells = (0..=last).zip(runs.iter().flat_map(words_of));
    let gaps = cells.filter(|(cell, _)| !explained.contains(cell));
    let mut lost: Vec<&mut Finding> =
        findings.iter_mut().filter(|finding| finding.wrong == Wrong::Lost).collect();
    lost.sort_by_key(|finding| ops[finding.ops[1]].begin);
    for (finding, (cell, words)) in lost.into_iter().zip(gaps) {
        (finding.cell, finding.words) = (cell, words);
    }
}

/// Checks the order of the records in the file: no record's append may have begun after the append
/// of a later record had returned.
fn disorder(ops: &[Op], placed: &HashMap<usize, u32>) -> Option<Finding> {
    let mut order: Vec<(u32, usize)> = placed.iter().map(|(&index, &cell)| (cell, index)).collect();
    order.sort_unstable();
    let mut earliest: Option<usize> = None;
    order.into_iter().rev().find_map(|(cell, index)| {
        let behind = earliest.filter(|&behind| ops[behind].end < ops[index].begin);
        earliest = [earliest, Some(index)].into_iter().flatten().min_by_key(|&index| ops[index].end);
        behind.map(|behind| Finding {
            wrong: Wrong::Disordered,
            cell,
            ops: vec![index, behind],
            words: vec![],
        })
    })
}
