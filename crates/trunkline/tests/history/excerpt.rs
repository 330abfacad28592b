//! Describes a finding: the operations that contradict each other, and other operations on the
//! cell.

use crate::appends;
use crate::check::{Finding, Rules, Wrong, words_of};
use crate::op::{Effect, OBSERVER, Op};
use crate::stamp::{ANYWHERE, Stamp};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Operations on the cell in addition to those that contradict each other, the last ones before the
/// read.
const BESIDE_MAX: usize = 8;

pub fn excerpt(ops: &[Op], finding: &Finding, rules: Rules) -> String {
    let Finding { wrong, cell, words, .. } = finding;
    let read = &ops[finding.ops[0]];
    let mut shown: BTreeSet<usize> = finding.ops.iter().copied().collect();
    if wrong_is_of_appends(*wrong) {
        // The appends at about the same time: one record may have overwritten another.
        let about = ops[finding.ops[1]].begin;
        let mut appends: Vec<usize> = (0..ops.len()).filter(|&index| is_append(&ops[index])).collect();
        appends.sort_by_key(|&index| ops[index].begin.abs_diff(about));
        shown.extend(appends.iter().take(BESIDE_MAX));
    } else {
        let here = |op: &Op| op.begin < read.end && op.cells(rules.cells).contains(cell);
        let mut before: Vec<usize> = (0..ops.len()).filter(|&index| here(&ops[index])).collect();
        before.sort_by_key(|&index| ops[index].end);
        shown.extend(before.iter().rev().take(BESIDE_MAX));
    }
    let mut order: Vec<usize> = shown.into_iter().collect();
    order.sort_by_key(|&index| ops[index].begin);
    let placed = appends::placed(ops).0;
    let zero = order.first().map_or(0, |&index| ops[index].begin);
    let mut text = format!("cell {cell}: {}", what(*wrong));
    if !words.is_empty() {
        let _ =
            write!(text, ": {}", words.iter().map(|&word| value(word, *cell)).collect::<Vec<_>>().join(", "));
    }
    text.push_str("\n   begun us    ended us  thread  what\n");
    for index in order {
        let op = &ops[index];
        let us = |time: u64| (time - zero) as f64 / 1000.0;
        let mark = if finding.ops.contains(&index) { ">" } else { " " };
        let (begin, end) = (us(op.begin), us(op.end));
        let to = placed.get(&index).map_or_else(String::new, |to| format!(", which is in cell {to}"));
        let _ = writeln!(
            text,
            "{mark}{begin:10.1}  {end:10.1}  {:>6}  {}{to}",
            name(op.writer),
            description(op, *cell)
        );
    }
    text
}

fn is_append(op: &Op) -> bool {
    matches!(op.effect, Effect::Appended { .. })
}

fn wrong_is_of_appends(wrong: Wrong) -> bool {
    matches!(wrong, Wrong::Lost | Wrong::Doubled | Wrong::Disordered)
}

fn what(wrong: Wrong) -> &'static str {
    match wrong {
        Wrong::Stale => "a read gave what was overwritten by a write that had returned before the read began",
        Wrong::Foreign => "a read gave what nobody has written there",
        Wrong::Early => "a read gave what had not been written yet when it ended",
        Wrong::Torn => "a read gave a mixture of bytes that no writes beside it explain",
        Wrong::Backwards => "a read gave an older value than another that had ended before",
        Wrong::Lost => "an appended record is not in the file",
        Wrong::Doubled => "an appended record is in the file more than once",
        Wrong::Disordered => "an appended record lies before one that had been appended before it began",
        Wrong::Shared => "two held one lock at the same time",
    }
}

fn name(writer: u8) -> String {
    if writer == OBSERVER { "end".to_owned() } else { format!("w{writer}") }
}

fn value(word: u64, cell: u32) -> String {
    match Stamp::parse(word) {
        _ if word == 0 => "zeros".to_owned(),
        None => format!("{word:#018x}, no stamp"),
        Some(Stamp { writer, number, cell: own }) if u32::from(own) == cell || own == ANYWHERE => {
            format!("w{writer} #{number}")
        }
        Some(Stamp { writer, number, cell: other }) => format!("w{writer} #{number} of cell {other}"),
    }
}

/// The description of an operation with respect to a cell.
fn description(op: &Op, cell: u32) -> String {
    let (method, first) = (op.method.name(), op.first);
    match &op.effect {
        Effect::Wrote { number, cells } => {
            format!("{method} write of #{number} to cells {first} to {}", first + cells - 1)
        }
        Effect::Appended { number } => format!("{method} append of #{number}"),
        Effect::Cut => format!("cut off from cell {first} on"),
        Effect::Held => "held the lock".to_owned(),
        Effect::Read(runs) => {
            let all: Vec<Vec<u64>> = runs.iter().flat_map(words_of).collect();
            let last = first as usize + all.len().max(1) - 1;
            let here = cell.checked_sub(first).and_then(|at| all.get(at as usize));
            let here =
                here.map_or_else(Vec::new, |words| words.iter().map(|&word| value(word, cell)).collect());
            format!("{method} read of cells {first} to {last} gave {}", here.join(", "))
        }
    }
}
