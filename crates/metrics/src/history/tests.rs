//! Tests of the history: differences, groups, points, bounds.

use super::*;
use crate::key::SizeClass;
use crate::latency::{Latency, histogram};
use crate::snapshot::example;
use proptest::prelude::*;

const MS: u64 = 1000;

fn key(node: &str, client: &str, operation: &str) -> Key {
    Key {
        node: Some(node.into()),
        client: Some(client.into()),
        operation: Some(operation.into()),
        size: Some(SizeClass::To4K),
        ..Key::default()
    }
}

fn tally(count: u64, ns: u64) -> Tally {
    let mut latencies = histogram();
    latencies.record_n(ns, count).unwrap();
    Tally { count, sent_bytes: count << 12, latency: Latency::of(&latencies), ..Tally::default() }
}

/// A process whose counters grow, read once a second.
struct Source {
    snapshot: Snapshot,
    history: History,
}

impl Source {
    fn new(limits: Limits) -> Self {
        let mut snapshot = example();
        snapshot.operations = Operations::default();
        let mut history = History::new(limits);
        history.push(Arc::new(snapshot.clone()));
        Self { snapshot, history }
    }

    fn second(&mut self, rows: &[(Key, Tally)]) {
        self.snapshot.uptime_ms += MS;
        self.snapshot.taken_unix_ms += MS;
        rows.iter().for_each(|(key, tally)| self.snapshot.operations.add(key.clone(), tally));
        self.history.push(Arc::new(self.snapshot.clone()));
    }

    fn all(&self) -> Range {
        self.history.range().unwrap()
    }

    fn view(&self, by: Dimension, conditions: &[Condition]) -> View {
        let range = self.all();
        self.history.view(&Query { range, by, conditions, points_max: 300, groups_max: 3 })
    }
}

#[test]
fn each_second_is_the_difference_to_the_one_before() {
    let mut source = Source::new(Limits::default());
    source.second(&[(key("a", "10.0.0.7", "READ"), tally(5, 9_000))]);
    source.second(&[]);
    source.second(&[
        (key("a", "10.0.0.7", "READ"), tally(2, 70_000)),
        (key("b", "10.0.0.7", "WRITE"), tally(3, 9_000)),
    ]);
    let view = source.view(Dimension::Node, &[]);
    let counts: Vec<_> = view.points.iter().map(|point| (point.ms, point.total.count)).collect();
    assert_eq!(counts, [(MS, 5), (MS, 0), (MS, 5)]);
    let of = |number: usize| view.groups[number].points.iter().map(|moved| moved.count).collect::<Vec<_>>();
    assert_eq!((view.groups[0].value.as_deref(), of(0)), (Some("a"), vec![5, 0, 2]));
    assert_eq!((view.groups[1].value.as_deref(), of(1)), (Some("b"), vec![0, 0, 3]));
    assert_eq!(view.points[2].total.latency.count(), 5);
    assert!(!view.is_folded && view.ms == 3 * MS);
    assert_eq!(
        source.history.dimensions(),
        [Dimension::Node, Dimension::Client, Dimension::Operation, Dimension::Size]
    );
}

#[test]
fn conditions_leave_others_out_and_an_absent_value_is_one() {
    let mut source = Source::new(Limits::default());
    source.second(&[
        (key("a", "10.0.0.7", "READ"), tally(5, 9_000)),
        (key("a", "10.0.0.8", "READ"), tally(1, 9_000)),
        (Key { node: Some("a".into()), ..Key::default() }, tally(7, 9_000)),
    ]);
    let on_client = [(Dimension::Client, Some("10.0.0.7".to_owned()))];
    assert_eq!(source.view(Dimension::Operation, &on_client).total, tally(5, 9_000));
    let without = [(Dimension::Client, None), (Dimension::Node, Some("a".to_owned()))];
    assert_eq!(source.view(Dimension::Operation, &without).total.count, 7);
    let (totals, ms) = source.history.totals(source.all(), &[Dimension::Client], &[]);
    assert_eq!((totals.len(), totals.total().count, ms), (3, 13, MS));
}

#[test]
fn the_busiest_groups_come_first_and_the_rest_is_one() {
    let mut source = Source::new(Limits::default());
    let rows: Vec<_> = (1..=9).map(|n| (key("a", &format!("10.0.0.{n}"), "READ"), tally(n, 9_000))).collect();
    source.second(&rows);
    let view = source.view(Dimension::Client, &[]);
    let found: Vec<_> =
        view.groups.iter().map(|group| (group.value.as_deref(), group.rest_of, group.total.count)).collect();
    let expected =
        [(Some("10.0.0.9"), 0, 9), (Some("10.0.0.8"), 0, 8), (Some("10.0.0.7"), 0, 7), (None, 6, 21)];
    assert_eq!(found, expected);
}

#[test]
fn seconds_of_a_long_time_are_put_together() {
    let mut source = Source::new(Limits::default());
    (0..100).for_each(|_| source.second(&[(key("a", "c", "READ"), tally(2, 9_000))]));
    let range = source.all();
    let query = Query { range, by: Dimension::Node, conditions: &[], points_max: 20, groups_max: 3 };
    let view = source.history.view(&query);
    assert_eq!(view.step_ms, 5 * MS);
    assert!(view.points.len() <= 21, "{}", view.points.len());
    assert_eq!((view.total.count, view.ms), (200, 100 * MS));
    assert!(view.points[1..19].iter().all(|point| point.ms == 5 * MS && point.total.count == 10));
    let part = Range { from_ms: range.from_ms + 10 * MS, until_ms: range.from_ms + 20 * MS };
    let view = source.history.view(&Query { range: part, ..query });
    assert_eq!((view.points.len(), view.total.count), (10, 20));
}

#[test]
fn paths_have_their_worst_state_of_each_point() {
    let mut source = Source::new(Limits::default());
    for state in ["up", "down", "probing", "up"] {
        source.snapshot.paths[0].state = state.into();
        source.second(&[]);
    }
    let view = source.view(Dimension::Path, &[]);
    assert_eq!(view.paths.len(), 1);
    assert_eq!(view.paths[0].states, [Some("up"), Some("down"), Some("probing"), Some("up")]);
    let range = source.all();
    let one = Query { range, by: Dimension::Path, conditions: &[], points_max: 1, groups_max: 1 };
    let paths = source.history.view(&one).paths;
    assert_eq!((paths[0].states.last(), paths[0].last), (Some(&Some("down")), "up"));
    let not_up =
        |second: u64| source.history.not_up(&source.snapshot.paths[0].name, range.from_ms + second * MS);
    let expected = [None, Some(NotUp::For(MS)), Some(NotUp::For(2 * MS)), None];
    assert_eq!([1, 2, 3, 4].map(not_up), expected);
}

#[test]
fn a_path_that_was_never_up_has_not_been_up_for_the_whole_history_at_least() {
    let mut source = Source::new(Limits::default());
    for second in 0..9 {
        source.snapshot.paths[0].state = if second % 2 == 0 { "down" } else { "probing" }.into();
        source.second(&[]);
    }
    let not_up = source.history.not_up(&source.snapshot.paths[0].name, source.all().until_ms);
    assert_eq!(not_up, Some(NotUp::AtLeast(9 * MS)));
}

#[test]
fn seconds_are_at_the_times_of_the_clock_also_after_a_sleep_and_after_the_clock_was_set() {
    let read = || [(key("a", "c", "READ"), tally(1, 9_000))];
    let mut source = Source::new(Limits::default());
    let ends =
        |source: &Source| -> Vec<u64> { source.history.seconds.iter().map(|second| second.end_ms).collect() };
    source.snapshot.taken_unix_ms = 1_700_000_000_000;
    source.second(&read());
    let first = source.snapshot.taken_unix_ms;
    // The host sleeps for an hour: only the clock of the process stands still.
    source.snapshot.taken_unix_ms += 3_600 * MS;
    source.second(&read());
    assert_eq!(ends(&source), [first, first + 3_601 * MS]);
    // The clock is set back by two hours, which moves what there is.
    source.snapshot.taken_unix_ms -= 7_200 * MS;
    source.second(&read());
    let last = source.snapshot.taken_unix_ms;
    assert_eq!(ends(&source), [last - 3_602 * MS, last - MS, last]);
    let total = source.view(Dimension::Node, &[]).total.count;
    assert_eq!(total, 3);
}

#[test]
fn sizes_that_are_not_told_apart_any_more_are_others_and_not_none() {
    let mut source = Source::new(Limits { second_bytes: 8 << 10, ..Limits::default() });
    let rows: Vec<_> =
        (0..2_000).map(|n| (key("a", &format!("c{n}"), &format!("OP{n}")), tally(1, n + 200))).collect();
    source.second(&rows);
    let view = source.view(Dimension::Size, &[]);
    let values: Vec<_> = view.groups.iter().map(|group| group.value.as_deref()).collect();
    assert!(view.is_folded && values.contains(&Some("others")), "{values:?}");
    assert!(values.iter().all(Option::is_some), "{values:?}");
}

#[test]
fn an_hour_and_no_more_is_kept() {
    let mut source = Source::new(Limits { seconds: 60, ..Limits::default() });
    (0..100).for_each(|n| source.second(&[(key("a", &format!("c{n}"), "READ"), tally(1, 9_000))]));
    assert_eq!(source.history.len(), 60);
    // The names of the clients that are gone are forgotten.
    assert_eq!(source.history.totals(source.all(), &[Dimension::Client], &[]).0.len(), 60);
    let found = source.history.keys.all(|key| key.client.is_some());
    assert_eq!(found.into_iter().filter(|has_client| *has_client).count(), 60);
}

#[test]
fn another_process_begins_a_history_of_its_own() {
    let mut source = Source::new(Limits::default());
    source.second(&[(key("a", "c", "READ"), tally(1, 9_000))]);
    source.snapshot.process.pid += 1;
    source.second(&[]);
    assert!(source.history.is_empty() && source.history.last().is_some());
}

const SMALL: Limits = Limits {
    seconds: 50,
    bytes: 512 << 10,
    second_bytes: 24 << 10,
    old_second_bytes: 8 << 10,
    key_bytes: 64 << 10,
};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// However many keys: within the bound, every operation is counted once, and a rare key is
    /// folded before a frequent one.
    #[test]
    fn memory_is_bounded_and_totals_are_exact(
        seconds in prop::collection::vec((0..900_u64, 0..40_u64, 100..1_000_000_u64), 1..70),
    ) {
        let mut source = Source::new(SMALL);
        let mut counts = Vec::new();
        for (clients, shift, ns) in seconds {
            let busy = (key("a", "busy", "READ"), tally(10_000, ns));
            let mut rows = vec![busy];
            rows.extend((0..clients).map(|n| {
                (key("b", &format!("client-{}", n + shift * 50), "GETATTR"), tally(n % 3 + 1, ns + n * 300))
            }));
            counts.push(rows.iter().map(|(_, tally)| tally.count).sum::<u64>());
            source.second(&rows);
            let history = &source.history;
            prop_assert!(history.bytes() <= SMALL.bytes, "{} bytes", history.bytes());
            let exact: usize = history.seconds.iter().map(Second::bytes).sum();
            prop_assert_eq!(history.second_bytes, exact);
        }
        let kept = source.history.len();
        prop_assert!(kept == counts.len().min(SMALL.seconds), "{} seconds", kept);
        let expected: u64 = counts.iter().rev().take(kept).sum();
        let view = source.view(Dimension::Client, &[]);
        prop_assert_eq!(view.total.count, expected);
        prop_assert_eq!(view.total.latency.count(), expected);
        let busy = source.view(Dimension::Operation, &[(Dimension::Client, Some("busy".to_owned()))]);
        prop_assert_eq!(busy.total.count, kept as u64 * 10_000);
        let per_second: Vec<_> = view.points.iter().map(|point| point.total.count).collect();
        prop_assert_eq!(&per_second[..], &counts[counts.len() - kept..]);
    }
}

#[test]
fn files_are_seconds_with_gaps_in_a_memory_of_their_own() {
    let activity = |files: std::ops::Range<usize>| {
        let mut operations = Operations::default();
        for file in files {
            let key = Key {
                file: Some(format!("/data/directory/of/some/depth/file-{file}").into()),
                client: Some("10.0.0.7".into()),
                operation: Some("READ".into()),
                ..Key::default()
            };
            operations.add(key, &Tally { count: if file == 7 { 1000 } else { 1 }, ..Tally::default() });
        }
        FileActivity { seconds: 1.0, operations }
    };
    let mut history = History::new(Limits::FILES);
    history.push_activity(10 * MS, activity(7..9));
    // Nobody asked for three seconds.
    history.push_activity(14 * MS, activity(7..8));
    let query = |range| Query { range, by: Dimension::File, conditions: &[], points_max: 300, groups_max: 3 };
    let view = history.view(&query(history.range().unwrap()));
    assert_eq!(view.points.iter().map(|point| point.end_ms).collect::<Vec<_>>(), [10 * MS, 14 * MS]);
    assert_eq!((view.groups[0].total.count, view.total.count, view.ms), (2000, 2001, 2 * MS));
    assert_eq!((history.dimensions().contains(&Dimension::File), history.last()), (true, None));
    let many = activity(0..900);
    for second in 0..100 {
        history.push_activity((20 + second) * MS, many.clone());
        let last = history.seconds.back().map(Second::bytes);
        assert!(last.is_some_and(|bytes| bytes <= (8 << 10) + second::OVERHEAD_BYTES), "{last:?}");
    }
    let range = history.range().unwrap();
    let view = history.view(&query(Range { from_ms: range.until_ms - 10 * MS, ..range }));
    assert!(view.is_folded && view.total.count == 10 * 1_899, "{}", view.total.count);
    let busiest: Vec<_> = view.groups.iter().take(2).map(|group| group.value.as_deref()).collect();
    assert!(busiest.contains(&Some("/data/directory/of/some/depth/file-7")), "{busiest:?}");
    assert!(busiest.contains(&Some("others")), "{busiest:?}");
}
