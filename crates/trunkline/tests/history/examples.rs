//! Tests the checker with histories written by hand: the errors that it finds, and the histories
//! that it must accept.

use crate::appends;
use crate::check::{Finding, Rules, Wrong, check};
use crate::excerpt::excerpt;
use crate::op::{AccessMethod, Effect, OBSERVER, Op, Run};
use crate::stamp::Stamp;

const RULES: Rules = Rules { cells: 8, ordered: true };

fn write(writer: u8, number: u32, [begin, end]: [u64; 2]) -> Op {
    Op {
        writer,
        method: AccessMethod::Buffered,
        begin,
        end,
        first: 2,
        effect: Effect::Wrote { number, cells: 3 },
    }
}

/// A read of cell 3.
fn read_words(words: Vec<u64>, [begin, end]: [u64; 2]) -> Op {
    let run = match words[..] {
        [word] => Run::Whole { word, cells: 1 },
        _ => Run::Torn(words),
    };
    Op { writer: 9, method: AccessMethod::Buffered, begin, end, first: 3, effect: Effect::Read(vec![run]) }
}

fn read(writer: u8, number: u32, times: [u64; 2]) -> Op {
    read_words(vec![word(writer, number)], times)
}

fn zeros(times: [u64; 2]) -> Op {
    read_words(vec![0], times)
}

fn cut([begin, end]: [u64; 2]) -> Op {
    Op { writer: 5, method: AccessMethod::Cut, begin, end, first: 1, effect: Effect::Cut }
}

fn word(writer: u8, number: u32) -> u64 {
    Stamp { writer, number, cell: 3 }.word()
}

fn append(writer: u8, number: u32, [begin, end]: [u64; 2]) -> Op {
    Op { writer, method: AccessMethod::Buffered, begin, end, first: 0, effect: Effect::Appended { number } }
}

/// The observer's read of all records.
fn records(records: &[(u8, u32)]) -> Op {
    let runs = records.iter().map(|&(writer, number)| match (writer, number) {
        (0, 0) => Run::Whole { word: 0, cells: 1 },
        _ => Run::Whole { word: appends::word(writer, number), cells: 1 },
    });
    let effect = Effect::Read(runs.collect());
    Op { writer: OBSERVER, method: AccessMethod::Buffered, begin: 1000, end: 1001, first: 0, effect }
}

fn found(ops: &[Op]) -> Vec<Wrong> {
    check(ops, RULES).into_iter().map(|finding| finding.wrong).collect()
}

#[test]
fn a_read_after_a_write_returns_the_written_value() {
    assert_eq!(found(&[write(1, 1, [10, 20]), read(1, 1, [21, 22])]), []);
    assert_eq!(found(&[write(1, 1, [10, 20]), zeros([21, 22])]), [Wrong::Stale]);
}

#[test]
fn a_value_that_was_overwritten_before_the_read_began_is_stale() {
    let ops = [write(1, 1, [10, 20]), write(2, 1, [21, 30]), read(1, 1, [31, 40])];
    let findings = check(&ops, RULES);
    let stale = Finding { wrong: Wrong::Stale, cell: 3, ops: vec![2, 0, 1], words: vec![word(1, 1)] };
    assert_eq!(findings, [stale]);
    let text = excerpt(&ops, &findings[0], RULES);
    for part in ["cell 3", "w1 #1", "buffered write of #1 to cells 2 to 4", "read of cells 3 to 3 gave w1 #1"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_read_during_a_write_returns_the_old_or_the_new_value() {
    let writes = [write(1, 1, [10, 20]), write(2, 1, [30, 60])];
    for seen in [read(1, 1, [40, 50]), read(2, 1, [40, 50]), read(1, 1, [40, 70])] {
        assert_eq!(found(&[&writes[..], &[seen]].concat()), []);
    }
}

#[test]
fn concurrent_writes_may_take_effect_in_either_order() {
    let writes = [write(1, 1, [10, 30]), write(2, 1, [20, 40])];
    for seen in [read(1, 1, [50, 60]), read(2, 1, [50, 60])] {
        assert_eq!(found(&[&writes[..], &[seen]].concat()), []);
    }
}

#[test]
fn a_value_that_no_write_wrote_before_the_read_is_found() {
    let elsewhere = Stamp { writer: 1, number: 1, cell: 4 }.word();
    for strange in [elsewhere, word(7, 7)] {
        let ops = [write(1, 1, [10, 20]), read_words(vec![strange], [21, 22])];
        assert_eq!(found(&ops), [Wrong::Foreign]);
    }
    assert_eq!(found(&[write(1, 1, [10, 20]), read_words(vec![123], [21, 22])]), [Wrong::Torn]);
    assert_eq!(found(&[write(1, 1, [10, 20]), read(1, 1, [1, 2])]), [Wrong::Early]);
}

#[test]
fn a_torn_cell_is_an_error_unless_a_write_is_under_way() {
    let torn = |times| read_words(vec![word(1, 1), word(2, 1)], times);
    let writes = [write(1, 1, [10, 20]), write(2, 1, [30, 60])];
    assert_eq!(found(&[&writes[..], &[torn([40, 50])]].concat()), []);
    assert_eq!(found(&[&writes[..], &[torn([70, 80])]].concat()), [Wrong::Stale]);
}

#[test]
fn a_mixed_word_is_an_error_unless_a_write_is_under_way() {
    let half = u64::from_ne_bytes([0, 0, 0, 0, 255, 255, 255, 255]);
    let mixed = |times| read_words(vec![word(1, 1) & half | word(2, 1) & !half], times);
    let writes = [write(1, 1, [10, 20]), write(2, 1, [30, 60])];
    assert_eq!(found(&[&writes[..], &[mixed([40, 50])]].concat()), []);
    assert_eq!(found(&[&writes[..], &[mixed([70, 80])]].concat()), [Wrong::Torn]);
}

#[test]
fn reads_return_values_in_the_order_of_their_writes() {
    let writes = [write(1, 1, [10, 20]), write(2, 1, [30, 90])];
    let forwards = [read(1, 1, [40, 50]), read(2, 1, [60, 70])];
    assert_eq!(found(&[&writes[..], &forwards].concat()), []);
    let backwards = [read(2, 1, [40, 50]), read(1, 1, [60, 70])];
    assert_eq!(found(&[&writes[..], &backwards].concat()), [Wrong::Backwards]);
    let beside = [read(2, 1, [40, 50]), read(1, 1, [45, 70])];
    assert_eq!(found(&[&writes[..], &beside].concat()), []);
}

#[test]
fn a_direct_read_may_see_a_newer_value_than_a_buffered_one() {
    let mut ops = [write(1, 1, [10, 20]), write(2, 1, [30, 90]), read(2, 1, [40, 50]), read(1, 1, [60, 70])];
    ops[2].method = AccessMethod::Direct;
    assert_eq!(found(&ops), []);
}

#[test]
fn reads_during_a_write_are_ordered_only_where_requested() {
    let ops = [write(1, 1, [10, 20]), write(2, 1, [30, 90]), read(2, 1, [40, 50]), read(1, 1, [60, 70])];
    assert_eq!(check(&ops, Rules { ordered: false, ..RULES }), []);
    assert_eq!(found(&ops).len(), 1);
}

#[test]
fn a_value_that_reappears_after_another_write_is_found() {
    // The first write is slow; its value is seen, then the second write begins and ends, then the
    // value of the first write is seen again.
    let ops = [write(1, 1, [10, 90]), read(1, 1, [20, 25]), write(2, 1, [30, 40]), read(1, 1, [50, 60])];
    assert_eq!(found(&ops), [Wrong::Backwards]);
}

#[test]
fn truncated_cells_read_as_zeros_and_written_cells_do_not() {
    let ops = [write(1, 1, [10, 20]), cut([30, 40])];
    assert_eq!(found(&[&ops[..], &[zeros([50, 60])]].concat()), []);
    assert_eq!(found(&[&ops[..], &[read(1, 1, [50, 60])]].concat()), [Wrong::Stale]);
    let again = [&ops[..], &[write(1, 2, [50, 60])]].concat();
    assert_eq!(found(&[&again[..], &[zeros([70, 80])]].concat()), [Wrong::Stale]);
    assert_eq!(found(&[&again[..], &[zeros([55, 80]), read(1, 2, [70, 80])]].concat()), []);
}

#[test]
fn each_append_is_in_the_file_once() {
    let ops = [append(1, 1, [10, 20]), append(2, 1, [15, 25]), append(1, 2, [30, 40])];
    let with = |last| [&ops[..], &[last]].concat();
    assert_eq!(found(&with(records(&[(1, 1), (2, 1), (1, 2)]))), []);
    assert_eq!(found(&with(records(&[(2, 1), (1, 1), (1, 2)]))), []);
    assert_eq!(found(&with(records(&[(1, 1), (1, 2)]))), [Wrong::Lost]);
    assert!(found(&with(records(&[(1, 1), (2, 1), (1, 2), (2, 1)]))).contains(&Wrong::Doubled));
    assert_eq!(found(&with(records(&[(1, 1), (1, 2), (2, 1)]))), [Wrong::Disordered]);
    assert!(found(&with(records(&[(1, 1), (0, 0), (2, 1), (1, 2)]))).is_empty(), "a gap is no error");
}

#[test]
fn each_read_after_an_append_sees_the_record() {
    let seen = |runs: &[u64], times: [u64; 2]| {
        let runs = runs.iter().map(|&word| Run::Whole { word, cells: 1 }).collect();
        Op { first: 0, effect: Effect::Read(runs), ..read(1, 1, times) }
    };
    let (one, two) = (appends::word(1, 1), appends::word(2, 1));
    let ops = [append(1, 1, [10, 20]), append(2, 1, [15, 25]), records(&[(1, 1), (2, 1)])];
    assert_eq!(found(&[&ops[..], &[seen(&[one, 0], [21, 22])]].concat()), []);
    assert_eq!(found(&[&ops[..], &[seen(&[one, two], [21, 22])]].concat()), []);
    assert_eq!(found(&[&ops[..], &[seen(&[one, 0], [26, 27])]].concat()), [Wrong::Stale]);
}

#[test]
fn one_lock_has_one_holder_at_a_time() {
    let held = |writer, begin, end| Op { writer, effect: Effect::Held, ..cut([begin, end]) };
    assert_eq!(found(&[held(1, 10, 20), held(2, 21, 30)]), []);
    assert_eq!(found(&[held(1, 10, 20), held(2, 15, 30)]), [Wrong::Shared]);
}
