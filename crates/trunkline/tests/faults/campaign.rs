//! Tries each fault several times on a mount under load.
//!
//! `TRUNKLINE_FAULTS_REPEATS` says how often each fault is tried, `TRUNKLINE_FAULTS` which faults
//! (a part of a name, or several separated by commas), and `TRUNKLINE_FAULTS_RECORD` where the
//! record is written. With a record each fault lasts longer.

use super::figures::{self, Repeat, Times};
use super::history::Store;
use super::load::Load;
use super::testbed::{Fault, FaultTestbed, NODES};
use std::thread::park_timeout as pass;
use std::time::{Duration, Instant};

/// How often each fault is tried by default.
const REPEATS: u64 = 3;

/// How long each part of a repeat lasts.
struct Schedule {
    before: Duration,
    fault: Duration,
    after: Duration,
}

impl Schedule {
    /// Longer for a record, so that what must recover within five seconds has the time.
    fn of(fault: Fault, figures: bool) -> Self {
        let [before, fault, after] = match (fault, figures) {
            (Fault::AllGone, true) => [1500, 10_000, 6000],
            (Fault::Flap, true) => [1500, 8000, 6000],
            (_, true) => [1500, 4000, 6000],
            (Fault::AllGone | Fault::Flap, false) => [700, 3000, 1200],
            (_, false) => [700, 1500, 1000],
        }
        .map(Duration::from_millis);
        Self { before, fault, after }
    }
}

/// Tries a fault once, on a new mount, so that nothing is known about the paths.
fn try_once(testbed: &mut FaultTestbed, fault: Fault, round: u64, schedule: &Schedule) -> Repeat {
    let mount = testbed.mount(fault.origin());
    let path = round as usize % usize::from(NODES);
    let load = Load::start(&mount, &format!("{}-{round}", fault.name()), fault.store(), round + 1);
    // These are no waits for an event: this is how long each part lasts.
    pass(schedule.before / 3);
    let loaded = Instant::now();
    pass(schedule.before);
    let struck = Instant::now();
    testbed.apply(fault, path, schedule.fault);
    let healed = Instant::now();
    pass(schedule.after);
    let ended = Instant::now();
    let outcome = load.stop();
    let name = fault.name();
    assert_eq!(outcome.failed, [""; 0], "{name}: calls failed");
    assert!(outcome.wrong.is_empty(), "{name}: {:?}", outcome.wrong);
    // A killed process may or may not have done the calls that it had begun. The client says for
    // how many calls it cannot tell.
    let undecided = if fault.kills() { outcome.undecided } else { 0 };
    assert!(
        outcome.doubled.len() as u64 <= undecided,
        "{name}: done twice or not at all: {:?}",
        outcome.doubled
    );
    let statistics = mount.statistics();
    let moved = statistics.paths.iter().flat_map(|path| &path.status).map(|status| status.moved_calls).sum();
    // Connections from an address that was removed do not end, and receive nothing.
    assert!(moved > 0 || fault != Fault::AddressGone, "{name}: no call met the fault");
    Repeat::of(&outcome, Times { loaded, struck, healed, ended }, fault, NODES.into(), moved)
}

#[test]
fn nothing_is_lost_or_done_twice_whatever_fails() {
    let asked = |name: &str| std::env::var(name).ok();
    let repeats = asked("TRUNKLINE_FAULTS_REPEATS").and_then(|text| text.parse().ok()).unwrap_or(REPEATS);
    let chosen = asked("TRUNKLINE_FAULTS").unwrap_or_default();
    let record = asked("TRUNKLINE_FAULTS_RECORD");
    let figures = record.is_some();
    println!("{}", figures::HEAD);
    let mut results = Vec::new();
    for store in [Store::Whole, Store::ByParts] {
        let wanted = |fault: &Fault| {
            fault.store() == store && chosen.split(',').any(|part| fault.name().contains(part))
        };
        let faults: Vec<Fault> = Fault::ALL.into_iter().filter(wanted).collect();
        if faults.is_empty() {
            continue;
        }
        // On its own thread, which moves to the namespace of the client.
        let campaign = std::thread::spawn(move || {
            let mut testbed = FaultTestbed::build(store);
            let each = |fault| {
                let schedule = Schedule::of(fault, figures);
                let repeats: Vec<Repeat> =
                    (0..repeats).map(|round| try_once(&mut testbed, fault, round, &schedule)).collect();
                let stopped = testbed.take_stopped();
                assert!(stopped > 0 || !fault.filters(), "{}: no segment met the fault", fault.name());
                println!("{}", figures::line(fault, &repeats));
                (fault, repeats)
            };
            faults.into_iter().map(each).collect::<Vec<_>>()
        });
        results.extend(campaign.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
    }
    assert!(!results.is_empty(), "no fault has {chosen:?} in its name: {:?}", Fault::ALL.map(Fault::name));
    if let Some(path) = record {
        let value = figures::record(&results);
        let text = serde_json::to_string_pretty(&value).expect("the record is JSON");
        let page = figures::page(&value, &results);
        for (path, text) in [(path.clone(), text + "\n"), (path.replace(".json", ".md"), page)] {
            std::fs::write(&path, text).unwrap_or_else(|error| panic!("cannot write {path}: {error}"));
            println!("written: {path}");
        }
    }
}
