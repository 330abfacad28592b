//! Long rounds of each sort and of all together: how long the calls of the good client take beside
//! hostile ones, and without them. Nothing is asserted about time.
//!
//! Hostile clients have the lowest priority, because only the server's work for them is of
//! interest: on other hosts they would not take its processors. `TRUNKLINE_HOSTILE_ELSEWHERE=0`
//! lets them compete.
//!
//! `TRUNKLINE_HOSTILE_SECONDS` and `TRUNKLINE_HOSTILE_CLIENTS` change the size, and
//! `TRUNKLINE_HOSTILE_RECORD` names a file for the table.

use crate::good_client::Latencies;
use crate::rounds::{Bounds, Size, round};
use crate::{Hostile, SORTS};
use std::fmt::Write;
use std::sync::OnceLock;
use std::time::Duration;

const SECONDS: u64 = 10;
const CLIENTS: u64 = 52;

fn variable(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |value| value.parse().expect("a number"))
}

/// How long the good client works, without and beside hostile clients.
fn duration() -> Duration {
    static DURATION: OnceLock<Duration> = OnceLock::new();
    *DURATION.get_or_init(|| Duration::from_secs(variable("TRUNKLINE_HOSTILE_SECONDS", SECONDS)))
}

fn milliseconds(all: &[Duration], percent: usize) -> f64 {
    let mut all = all.to_vec();
    all.sort_unstable();
    let at = (all.len() * percent / 100).min(all.len().saturating_sub(1));
    all.get(at).map_or(0.0, |time| time.as_secs_f64() * 1e3)
}

/// The columns of one kind of call: the 99th percentile without and beside hostile clients.
fn columns(quiet: &[Duration], beside: &[Duration]) -> String {
    let [quiet, beside] = [quiet, beside].map(|all| milliseconds(all, 99));
    format!("{quiet:>8.2} {beside:>9.2} {:>6.1}x", beside / quiet)
}

fn row(name: &str, quiet: &Latencies, beside: &Latencies, peak_bytes: u64) -> String {
    format!(
        "{name:<24} {:>6} {} | {} | {} | {:>5}",
        beside.short.len() + beside.writes.len() + beside.reads.len(),
        columns(&quiet.short, &beside.short),
        columns(&quiet.writes, &beside.writes),
        columns(&quiet.reads, &beside.reads),
        peak_bytes >> 20,
    )
}

pub fn run() {
    let clients = usize::try_from(variable("TRUNKLINE_HOSTILE_CLIENTS", CLIENTS)).expect("a small number");
    let size = Size {
        bounds: Bounds { mem_mib: 256, held_mib: 128, connections: 400 },
        clients,
        elsewhere: variable("TRUNKLINE_HOSTILE_ELSEWHERE", 1) != 0,
        goes_on: |_, began| began.elapsed() < duration(),
    };
    let mut table = format!(
        "{clients} hostile clients, {} s; 99th percentile in ms of the good client's calls: without, beside\n\
         {:<24} {:>6} {:^25} | {:^25} | {:^25} | RSS MiB\n",
        duration().as_secs(),
        "sort",
        "calls",
        "short calls",
        "WRITE 1 MiB",
        "READ 1 MiB"
    );
    let each = SORTS.iter().map(std::slice::from_ref);
    for sorts in each.chain([&SORTS[..]]) {
        let sorts: &[&dyn Hostile] = sorts;
        let seen = round(sorts, size);
        let name = if let [sort] = sorts { sort.name() } else { "all at once" };
        let row = row(name, &seen.quiet, &seen.beside, seen.peak_bytes);
        println!("{row}");
        writeln!(table, "{row}").expect("memory");
    }
    print!("{table}");
    if let Some(file) = std::env::var_os("TRUNKLINE_HOSTILE_RECORD") {
        std::fs::write(file, table).expect("the record can be written");
    }
}
