//! The cost of a fault: gaps, throughput, and what was lost or done twice. A table for people, and
//! a record for programs. Nothing here is asserted on, because times need a quiet machine. Each
//! figure is shown with its aim.

use super::load::{Completion, Outcome};
use super::testbed::Fault;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Throughput is counted in intervals of this length.
const STEP: Duration = Duration::from_millis(200);
/// The percentage of the expected throughput that counts as recovered.
const BACK_PERCENT: f64 = 80.0;
/// The aims: throughput recovers to the share of the remaining paths, and to all of it after the
/// paths are back.
const SHARE_MS_MAX: f64 = 2000.0;
const FULL_MS_MAX: f64 = 5000.0;

/// The times of the parts of a repeat.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    pub loaded: Instant,
    pub struck: Instant,
    pub healed: Instant,
    pub ended: Instant,
}

/// The figures of a fault that was tried once.
#[derive(Debug, Clone, Default)]
pub struct Repeat {
    /// The longest time in which a worker of the load, with its eight calls in flight, got no
    /// reply.
    gap_ms: f64,
    /// The longest wait for a reply among the calls that were in flight during the fault or
    /// submitted then.
    slowest_ms: f64,
    /// The longest wait before the fault.
    usual_ms: f64,
    /// The longest time in which no worker got a reply.
    still_ms: f64,
    /// How long the fault lasted.
    lasted_ms: f64,
    before: f64,
    during: f64,
    after: f64,
    /// From the fault until the throughput is that of the remaining paths.
    share_ms: Option<f64>,
    /// From the end of the fault until the throughput has fully recovered.
    full_ms: Option<f64>,
    calls: u64,
    moved: u64,
    failed: usize,
    lost: usize,
    doubled: usize,
    undecided: u64,
}

fn bytes_per_s(completions: &[Completion], from: Instant, to: Instant) -> f64 {
    let bytes: usize =
        completions.iter().filter(|call| (from..to).contains(&call.ended())).map(|call| call.bytes).sum();
    bytes as f64 / to.saturating_duration_since(from).as_secs_f64().max(1e-9)
}

fn longest_ms(completions: &[Completion], from: Instant, to: Instant) -> f64 {
    let during = |call: &&Completion| call.submitted < to && call.ended() >= from;
    completions.iter().filter(during).map(|call| call.took.as_secs_f64() * 1e3).fold(0.0, f64::max)
}

fn longest_still_ms(completions: &[Completion], from: Instant, to: Instant) -> f64 {
    let mut ends: Vec<Instant> = completions.iter().map(Completion::ended).collect();
    ends.sort();
    let beside =
        ends.iter().zip(ends.iter().skip(1)).filter(|(earlier, later)| **earlier < to && **later >= from);
    beside.map(|(earlier, later)| (*later - *earlier).as_secs_f64() * 1e3).fold(0.0, f64::max)
}

/// The longest time without a reply of any single worker.
fn longest_gap_ms(completions: &[Completion], from: Instant, to: Instant) -> f64 {
    let workers = completions.iter().map(|call| call.worker + 1).max().unwrap_or(0);
    let own = |worker| {
        let calls = completions.iter().copied().filter(|call: &Completion| call.worker == worker);
        longest_still_ms(&calls.collect::<Vec<_>>(), from, to)
    };
    (0..workers).map(own).fold(0.0, f64::max)
}

/// The time from `from` until an interval has at least this throughput.
fn back_ms(completions: &[Completion], from: Instant, to: Instant, wanted: f64) -> Option<f64> {
    let mut at = from;
    while at + STEP <= to {
        if bytes_per_s(completions, at, at + STEP) >= wanted * BACK_PERCENT / 100.0 {
            return Some((at + STEP - from).as_secs_f64() * 1e3);
        }
        at += STEP;
    }
    None
}

impl Repeat {
    pub fn of(outcome: &Outcome, times: Times, fault: Fault, paths: u32, moved: u64) -> Self {
        let Times { loaded, struck, healed, ended } = times;
        let calls = &outcome.completions;
        let before = bytes_per_s(calls, loaded, struck);
        let earlier: Vec<Completion> = calls.iter().copied().filter(|call| call.ended() < struck).collect();
        let share = before * f64::from(fault.paths_left()) / f64::from(paths);
        // The first half of the fault is left out, because the gap covers that time.
        let settled = struck + (healed - struck) / 2;
        let late = healed + (ended - healed) / 2;
        Self {
            gap_ms: longest_gap_ms(calls, struck, healed),
            slowest_ms: longest_ms(calls, struck, healed),
            usual_ms: longest_ms(&earlier, loaded, struck),
            still_ms: longest_still_ms(calls, struck, healed),
            lasted_ms: (healed - struck).as_secs_f64() * 1e3,
            before,
            during: bytes_per_s(calls, settled, healed),
            after: bytes_per_s(calls, late, ended),
            share_ms: if fault.paths_left() > 0 { back_ms(calls, struck, healed, share) } else { None },
            full_ms: back_ms(calls, healed, ended, before),
            calls: outcome.calls,
            moved,
            failed: outcome.failed.len(),
            lost: outcome.wrong.len(),
            doubled: outcome.doubled.len(),
            undecided: outcome.undecided,
        }
    }

    fn json(&self) -> Value {
        json!({
            "gap_ms": rounded(self.gap_ms), "slowest_ms": rounded(self.slowest_ms),
            "usual_ms": rounded(self.usual_ms), "still_ms": rounded(self.still_ms), "lasted_ms": rounded(self.lasted_ms), "mb_s_before": rounded(self.before / 1e6),
            "mb_s_during": rounded(self.during / 1e6), "mb_s_after": rounded(self.after / 1e6),
            "share_back_ms": self.share_ms.map(rounded), "full_back_ms": self.full_ms.map(rounded),
            "calls": self.calls, "moved": self.moved, "failed": self.failed, "lost": self.lost,
            "doubled": self.doubled, "undecided": self.undecided,
        })
    }
}

fn rounded(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

/// The median and the largest value.
fn median_and_worst(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    Some((*values.get(values.len() / 2)?, *values.last()?))
}

/// Whether the worst repeat of a fault is within the aims, or by how much it misses them.
fn verdict(fault: Fault, repeats: &[Repeat]) -> String {
    let mut short = Vec::new();
    for (what, count) in [
        ("failed", (|repeat| repeat.failed) as fn(&Repeat) -> usize),
        ("lost", |repeat| repeat.lost),
        ("doubled", |repeat| repeat.doubled),
    ] {
        match repeats.iter().map(count).sum::<usize>() {
            0 => {}
            some => short.push(format!("{some} {what}")),
        }
    }
    let mut hold = |what: &str, values: &mut dyn Iterator<Item = Option<f64>>, most: f64| {
        let worst = values.map(|value| value.unwrap_or(f64::INFINITY)).fold(0.0, f64::max);
        if worst.is_infinite() {
            short.push(format!("{what}: not in the time that was watched"));
        } else if worst > most {
            short.push(format!("{what}: {:.0} ms over {most:.0}", worst - most));
        }
    };
    if let Some(most) = fault.gap_ms_max() {
        hold("gap", &mut repeats.iter().map(|repeat| Some(repeat.gap_ms)), most);
    }
    if fault.paths_left() > 0 {
        hold("share", &mut repeats.iter().map(|repeat| repeat.share_ms), SHARE_MS_MAX);
    }
    hold("full", &mut repeats.iter().map(|repeat| repeat.full_ms), FULL_MS_MAX);
    if short.is_empty() { "reached".to_owned() } else { short.join("; ") }
}

pub const HEAD: &str = "\
| fault | times | lasts s | gap ms | worst | still ms | slowest call ms | worst | usual | MB/s before | during | after | share back ms | full back ms | moved | failed | lost | doubled | in doubt | limits |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|";

/// A line of the table: a fault with all its repeats.
pub fn line(fault: Fault, repeats: &[Repeat]) -> String {
    let middle = |value: fn(&Repeat) -> f64| median_and_worst(repeats.iter().map(value)).unwrap_or_default();
    let back = |value: fn(&Repeat) -> Option<f64>| {
        let times = repeats.iter().filter_map(value);
        median_and_worst(times).map_or("-".to_owned(), |(middle, worst)| format!("{middle:.0}, {worst:.0}"))
    };
    let sum = |value: fn(&Repeat) -> usize| repeats.iter().map(value).sum::<usize>().to_string();
    let (gap, worst) = middle(|repeat| repeat.gap_ms);
    let (slowest, slowest_worst) = middle(|repeat| repeat.slowest_ms);
    let cells = [
        fault.name().to_owned(),
        repeats.len().to_string(),
        format!("{:.1}", middle(|repeat| repeat.lasted_ms / 1e3).0),
        format!("{gap:.0}"),
        format!("{worst:.0}"),
        format!("{:.0}", middle(|repeat| repeat.still_ms).0),
        format!("{slowest:.0}"),
        format!("{slowest_worst:.0}"),
        format!("{:.0}", middle(|repeat| repeat.usual_ms).0),
        format!("{:.0}", middle(|repeat| repeat.before / 1e6).0),
        format!("{:.0}", middle(|repeat| repeat.during / 1e6).0),
        format!("{:.0}", middle(|repeat| repeat.after / 1e6).0),
        back(|repeat| repeat.share_ms),
        back(|repeat| repeat.full_ms),
        repeats.iter().map(|repeat| repeat.moved).sum::<u64>().to_string(),
        sum(|repeat| repeat.failed),
        sum(|repeat| repeat.lost),
        sum(|repeat| repeat.doubled),
        repeats.iter().map(|repeat| repeat.undecided).sum::<u64>().to_string(),
        verdict(fault, repeats),
    ];
    format!("| {} |", cells.join(" | "))
}

/// The record of a campaign.
pub fn record(results: &[(Fault, Vec<Repeat>)]) -> Value {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let faults: Vec<Value> = results
        .iter()
        .map(|(fault, repeats)| {
            json!({
                "fault": fault.name(), "connections": fault.origin().connections(),
                "gap_ms_max": fault.gap_ms_max(), "paths_left": fault.paths_left(),
                "verdict": verdict(*fault, repeats), "repeats": repeats.iter().map(Repeat::json).collect::<Vec<_>>(),
            })
        })
        .collect();
    json!({
        "kind": "trunkline faults", "version": env!("CARGO_PKG_VERSION"),
        "nfs_version": std::env::var("TRUNKLINE_TEST_NFS_VERSION").unwrap_or_else(|_| "3".to_owned()),
        "commit": std::env::var("TRUNKLINE_COMMIT").unwrap_or_default(),
        "debug_build": cfg!(debug_assertions), "kernel": read("/proc/sys/kernel/osrelease"),
        "cpus": std::thread::available_parallelism().map_or(0, usize::from),
        "links": "4, simulated (veth and tbf), 200 Mbit/s each way",
        "share_ms_max": SHARE_MS_MAX, "full_ms_max": FULL_MS_MAX, "faults": faults,
    })
}

/// The page for people that belongs to the record.
pub fn page(record: &Value, results: &[(Fault, Vec<Repeat>)]) -> String {
    let word =
        |name: &str| record.get(name).map_or(String::new(), |value| value.to_string().replace('"', ""));
    let build = if cfg!(debug_assertions) { "debug build" } else { "release build" };
    let lines: Vec<String> = results.iter().map(|(fault, repeats)| line(*fault, repeats)).collect();
    format!(
        "# Failover, measured\n\nWritten by `cargo xtask faults`; docs/FAILOVER.md says what the columns mean. Trunkline \
         {} ({build}, commit {}),\nNFS version {}, Linux {}, {} CPUs; links: {}.\n\n{HEAD}\n{}\n",
        word("version"),
        word("commit"),
        word("nfs_version"),
        word("kernel"),
        word("cpus"),
        word("links"),
        lines.join("\n"),
    )
}

#[test]
fn the_median_and_the_worst_of_some_values_are_found() {
    assert_eq!(median_and_worst([3.0, 1.0, 2.0].into_iter()), Some((2.0, 3.0)));
    assert_eq!(median_and_worst([].into_iter()), None);
}

#[test]
fn a_gap_is_the_longest_time_in_which_a_worker_got_no_reply() {
    let start = Instant::now();
    let at = |ms: u64| start + Duration::from_millis(ms);
    let call = |worker: usize, from: u64, to: u64| Completion {
        worker,
        submitted: at(from),
        took: Duration::from_millis(to - from),
        bytes: 1000,
    };
    // The first worker gets replies all the time except for one slow call; the second waits.
    let calls =
        [call(0, 0, 1000), call(0, 0, 1050), call(0, 900, 1100), call(1, 0, 1010), call(1, 990, 1090)];
    assert_eq!(longest_gap_ms(&calls, at(1000), at(1100)).round(), 80.0);
    assert_eq!(longest_still_ms(&calls, at(1000), at(1100)).round(), 40.0);
    assert_eq!(longest_gap_ms(&[], at(1000), at(1100)), 0.0);
}

#[test]
fn the_slowest_call_is_one_that_met_the_fault() {
    let start = Instant::now();
    let at = |ms: u64| start + Duration::from_millis(ms);
    let call = |from: u64, to: u64| Completion {
        worker: 0,
        submitted: at(from),
        took: Duration::from_millis(to - from),
        bytes: 1000,
    };
    let calls = [call(0, 900), call(1000, 1001), call(1990, 2700), call(5000, 5900)];
    assert_eq!(longest_ms(&calls, at(2000), at(3000)), 710.0);
    assert_eq!(longest_still_ms(&calls, at(1100), at(2000)).round(), 1699.0);
    assert_eq!(back_ms(&calls, at(2000), at(4000), 5000.0), Some(800.0));
    assert_eq!(back_ms(&calls, at(2000), at(4000), 50_000.0), None);
}

#[test]
fn a_verdict_says_by_how_much_an_aim_is_missed() {
    let well = Repeat { gap_ms: 90.0, share_ms: Some(400.0), full_ms: Some(400.0), ..Repeat::default() };
    assert_eq!(verdict(Fault::Reset, std::slice::from_ref(&well)), "reached");
    let twice = Repeat { doubled: 2, ..well.clone() };
    assert_eq!(verdict(Fault::Kill, &[twice.clone(), twice]), "4 doubled");
    let late = Repeat { gap_ms: 130.0, share_ms: None, ..well.clone() };
    let said = verdict(Fault::Reset, &[well, late]);
    assert_eq!(said, "gap: 30 ms over 100; share: not in the time that was watched");
}
