//! Reports failures of a test program at once. The test harness keeps the output of tests until all
//! have ended, so a test that hangs would hide why another failed, and where it hangs.
//!
//! A panic is reported immediately. A program that is asked to end (SIGTERM, as by `cargo xtask
//! test` when a suite's time is over) first reports which processes its tests have, and what they
//! have printed.

use crate::process::Shared;
use signal_hook::consts::SIGTERM;
use signal_hook::iterator::Signals;
use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::{Mutex, Once, PoisonError, Weak};
use std::{panic, process, thread};

/// The exit status that a shell reports for a program ended by SIGTERM.
const ENDED_BY_SIGTERM: i32 = 128 + SIGTERM;

/// A process that a test has started.
#[derive(Debug)]
struct Started {
    name: String,
    id: u32,
    /// Gone when the process is dropped.
    output: Weak<Shared>,
}

static STARTED: Mutex<Vec<Started>> = Mutex::new(Vec::new());

/// Registers a process that a test has started.
pub(crate) fn started(name: &str, id: u32, output: Weak<Shared>) {
    static BEGIN: Once = Once::new();
    // A panicking thread may not change the panic hook.
    if !thread::panicking() {
        BEGIN.call_once(install);
    }
    let mut all = STARTED.lock().unwrap_or_else(PoisonError::into_inner);
    all.retain(|one| one.output.strong_count() > 0);
    all.push(Started { name: name.to_owned(), id, output });
}

fn install() {
    let usual = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        let name = thread::current().name().unwrap_or("a thread").to_owned();
        print(&format!("{name} {panic}\n"));
        usual(panic);
    }));
    let mut signals = match Signals::new([SIGTERM]) {
        Ok(signals) => signals,
        Err(error) => return print(&format!("SIGTERM ends this program without a word: {error}\n")),
    };
    thread::spawn(move || {
        if signals.forever().next().is_some() {
            print(&report());
            process::exit(ENDED_BY_SIGTERM);
        }
    });
}

/// Lists each process that a test still has, with its output.
fn report() -> String {
    let all = STARTED.lock().unwrap_or_else(PoisonError::into_inner);
    let mut report = "asked to end, with these processes:\n".to_owned();
    for one in all.iter() {
        let Some(output) = one.output.upgrade() else { continue };
        let state = state_of(one.id).unwrap_or_else(|| "gone".to_owned());
        // Writing to a string cannot fail.
        let _ = writeln!(report, "--- {} ({}, {state}) ---\n{}", one.name, one.id, output.all_output());
    }
    report
}

/// The state as of the system: sleeping, or zombie for a process that has ended.
fn state_of(id: u32) -> Option<String> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("State:")).map(|state| state.trim().to_owned())
}

/// Writes to standard error directly, which the test harness does not capture.
fn print(words: &str) {
    // An error could not be reported anywhere.
    let _ = std::io::stderr().write_all(words.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Deadline, Process};
    use std::process::Command;
    use std::time::Duration;

    const TIMEOUT: Duration = Duration::from_secs(60);

    #[test]
    fn the_account_has_what_is_there_and_its_words() {
        let start = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            Process::spawn(command)
        };
        let staying = start("echo still here; exec sleep 1000");
        staying.wait_for_line("still here", TIMEOUT);
        let mut ended = start("echo was here");
        let id = ended.id();
        ended.wait(TIMEOUT);
        drop(ended);
        // The first process may not be asleep yet, and the output of the second may still be held
        // by its collector.
        Deadline::wait_until("an account of the one and not of the other", TIMEOUT, || {
            let report = report();
            let has = report.contains(&format!("({}, S (sleeping)) ---\nstill here\n", staying.id()));
            (has && !report.contains(&format!("({id},"))).then_some(())
        });
    }
}
