//! Rounds: each has a seed, its own mounts, some worker processes, and a history, which is checked
//! when all workers have ended.

use crate::access::{Access, name};
use crate::check::{Rules, check};
use crate::excerpt::excerpt;
use crate::mounts::Mounted;
use crate::op::{AccessMethod, Effect, OBSERVER, Op, kept};
use crate::places::TestTarget;
use crate::plan::{Abilities, FilePlan, Kind, Meeting, Plan};
use crate::worker::{self, KNOWN_LIMITS};
use std::fs::{self, File};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use testkit::{Process, Stream, temp_dir};

/// Many times the length of a round.
const TIMEOUT: Duration = Duration::from_secs(240);
/// Enough rounds with findings to examine.
const BAD_ROUNDS_MAX: usize = 8;

/// Runs rounds at a place for the number of minutes that the environment sets, or else for
/// `minutes`.
pub fn run(test: &str, place: fn() -> TestTarget, minutes: f64) {
    if worker::is_asked_for() {
        return;
    }
    let asked = |name: &str| std::env::var(name).ok();
    let minutes = asked("TRUNKLINE_HISTORY_MINUTES").and_then(|text| text.parse().ok()).unwrap_or(minutes);
    let drawn = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_millis() as u64);
    let first_seed = asked("TRUNKLINE_SEED").and_then(|text| text.parse().ok()).unwrap_or_else(drawn);
    let mut place = place();
    let abilities = place.abilities(asked("TRUNKLINE_HISTORY_OPTIONS"), asked(KNOWN_LIMITS).is_some());
    println!("history on {}: {minutes} minutes from seed {first_seed}", place.name);
    let (begun, mut seed, mut bad) = (Instant::now(), first_seed, Vec::new());
    while begun.elapsed().as_secs_f64() < minutes * 60.0 && bad.len() < BAD_ROUNDS_MAX {
        bad.extend(round(test, &mut place, &abilities, seed));
        seed += 1;
    }
    let rounds = seed - first_seed;
    assert!(bad.is_empty(), "{} of {rounds} rounds with findings:\n{}", bad.len(), bad.join("\n"));
    println!("{rounds} rounds on {} without a finding", place.name);
}

/// Runs a round; returns a description of its findings.
fn round(test: &str, place: &mut TestTarget, abilities: &Abilities, seed: u64) -> Option<String> {
    let plan = Plan::of(seed, abilities);
    let title = format!("seed {seed} on {}: {}", place.name, description(&plan));
    println!("{title}");
    let orders = temp_dir("history-orders");
    let mounts: Vec<Mounted> = (0..plan.mounts).filter_map(|_| place.mount(&plan.options)).collect();
    let mut directories: Vec<PathBuf> = mounts.iter().map(|mount| mount.directory.clone()).collect();
    directories.resize(plan.mounts, place.directory());
    directories.iter_mut().for_each(|directory| directory.push(format!("round-{seed}")));
    fs::create_dir(&directories[0]).expect("made");
    for (number, file) in plan.files.iter().enumerate() {
        let made = File::create(directories[0].join(name(number))).expect("made");
        if file.kind != Kind::Cut && file.kind != Kind::Appended {
            made.set_len(file.bytes()).expect("a file can be made longer");
        }
    }
    let at = |process: u8| &directories[usize::from(process) % directories.len()];
    let start = |process| worker::start(test, &plan, abilities, process, at(process), orders.path());
    let mut workers: Vec<Process> = (0..plan.processes).map(start).collect();
    worker::go(&workers, orders.path());
    for worker in &mut workers {
        let status = worker.wait(TIMEOUT);
        if !status.success() {
            let said: String = mounts.iter().map(|mount| mount.process.output(Stream::Err)).collect();
            panic!("{title}: a worker: {status}: {}\nmounts: {said}", worker.all_output());
        }
    }
    let mut histories: Vec<Vec<Op>> = vec![Vec::new(); plan.files.len()];
    for writer in 1..=plan.workers() {
        kept(&worker::log(orders.path(), writer)).into_iter().for_each(|(file, op)| histories[file].push(op));
    }
    let mut words = String::new();
    for (number, (mut ops, file)) in histories.into_iter().zip(&plan.files).enumerate() {
        let rules = observe(&mut ops, file, number, &directories, (plan.meeting, abilities));
        for finding in check(&ops, rules) {
            words.push_str(&format!("{}, {}", name(number), excerpt(&ops, &finding, rules)));
        }
    }
    fs::remove_dir_all(&directories[0]).expect("removed");
    if words.is_empty() {
        return None;
    }
    println!("FINDING: {title}\n{words}");
    Some(format!("{title}\n{words}"))
}

/// Reads the whole file on each mount, and also past the cache on one mount if O_DIRECT takes any
/// length there.
fn observe(
    ops: &mut Vec<Op>,
    file: &FilePlan,
    number: usize,
    directories: &[PathBuf],
    (meeting, abilities): (Meeting, &Abilities),
) -> Rules {
    let mut cells = file.cells;
    let mut ways: Vec<(usize, AccessMethod)> =
        (0..directories.len()).map(|mount| (mount, AccessMethod::Buffered)).collect();
    // Last, since appended records are located where the server has them.
    if abilities.direct_anywhere {
        ways.push((0, AccessMethod::Direct));
    }
    for (mount, method) in ways {
        let mut access = Access::new(file, &directories[mount], number, OBSERVER, Meeting::CloseToOpen);
        if file.kind == Kind::Appended {
            cells = cells.max(access.cells_now());
        }
        let (runs, [begin, end]) = access.read(method, 0, cells);
        ops.push(Op { writer: OBSERVER, method, begin, end, first: 0, effect: Effect::Read(runs) });
    }
    Rules { cells, ordered: meeting == Meeting::OneMount && abilities.known_limits }
}

/// A description of a plan.
fn description(plan: &Plan) -> String {
    let Plan { processes, threads, mounts, options, meeting, .. } = plan;
    let mut description =
        format!("{processes} processes with {threads} threads, {mounts} mounts ({options}), {meeting:?}");
    for (number, file) in plan.files.iter().enumerate() {
        let FilePlan { kind, cell_bytes, cells, shift, writes, reads, owned, hot } = file;
        let names =
            |ways: &[AccessMethod]| ways.iter().map(|method| method.name()).collect::<Vec<_>>().join(" ");
        description.push_str(&format!(
            "; {}: {kind:?}, {cells} cells of {cell_bytes} bytes from {shift}, owned by {owned}, hot {hot}, written {}, read {}",
            name(number),
            names(writes),
            names(reads)
        ));
    }
    description
}
