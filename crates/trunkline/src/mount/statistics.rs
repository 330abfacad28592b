//! What a mount has done, path by path, and the resources that it holds.

use crate::table::{bytes, lay_out};
use client::{DelegationCounts, PathStatistics, Replays, Statistics};
use mount::Gauges;
use std::time::Duration;

const HEAD: [&str; 12] = [
    "path",
    "state",
    "calls",
    "read",
    "written",
    "sent again",
    "moved",
    "last gap ms",
    "worst gap ms",
    "p50 us",
    "p99 us",
    "max us",
];
/// The number of left-aligned columns; the others have numbers.
const WORDS: usize = 2;

/// A line for each path, one for retransmitted calls that could not be told apart, one for what is
/// delegated, and one for the resources held.
pub fn table(statistics: &Statistics, gauges: &Gauges) -> String {
    let mut rows = vec![HEAD.map(str::to_owned)];
    rows.extend(statistics.paths.iter().map(row));
    let mut text = String::new();
    lay_out(&mut text, &rows, WORDS);
    let Replays { reconciled, undecided, unfenced } = statistics.replays;
    text.push_str(&format!(
        "sent again elsewhere: {reconciled} taken for done, {undecided} in doubt, {unfenced} that a server not of ours may do late\n"
    ));
    let DelegationCounts { held, granted, recalled } = statistics.delegations;
    text.push_str(&format!("delegated: {held} files, {granted} granted, {recalled} recalled\n"));
    let Gauges { objects, open_files, open_directories, unsent_bytes, read_ahead_bytes, pooled_bytes } =
        *gauges;
    let [unsent, ahead, kept] =
        [unsent_bytes, read_ahead_bytes, pooled_bytes].map(|amount| bytes(amount as u64));
    text.push_str(&format!(
        "held: {objects} objects, {open_files} open files, {open_directories} open directories, {unsent} unsent, \
         {ahead} read ahead, {kept} kept for the next requests\n"
    ));
    text
}

fn row(path: &PathStatistics) -> [String; 12] {
    let counters = &path.counters;
    let ms = |time: Option<Duration>| time.unwrap_or_default().as_millis().to_string();
    let latency = counters.latency();
    let us = |quantile| format!("{:.1}", latency.quantile_ns(quantile).unwrap_or_default() as f64 / 1e3);
    let calls = counters.read.calls + counters.write.calls + counters.metadata.calls;
    let moved: u64 = path.status.iter().map(|status| status.moved_calls).sum();
    [
        path.name.clone(),
        states(path),
        calls.to_string(),
        bytes(counters.read.bytes),
        bytes(counters.write.bytes),
        counters.retransmissions.to_string(),
        moved.to_string(),
        ms(path.status.iter().map(|status| status.gap_last).max()),
        ms(path.status.iter().map(|status| status.gap_worst).max()),
        us(0.5),
        us(0.99),
        us(1.0),
    ]
}

/// The path's state in the loops that use it: one word if they agree.
pub(super) fn states(path: &PathStatistics) -> String {
    let mut states: Vec<String> =
        path.status.iter().map(|status| format!("{:?}", status.state).to_lowercase()).collect();
    states.sort();
    states.dedup();
    if states.is_empty() { "unused".to_owned() } else { states.join("/") }
}
