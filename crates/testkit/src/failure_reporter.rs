//! What a test program says where it could not otherwise be heard: its tests' words are kept until
//! all have ended, so one that hangs would take with it why another failed, and what it hangs at.
//!
//! A panic is told at once; and a program that is asked to end (SIGTERM, as `cargo xtask test` does
//! when a suite's time is over) says first which processes its tests have, and what those have
//! printed.

use crate::process::Shared;
use signal_hook::consts::SIGTERM;
use signal_hook::iterator::Signals;
use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::{Mutex, Once, PoisonError, Weak};
use std::{panic, process, thread};

/// As a shell has it for a program that SIGTERM ended.
const ENDED_BY_SIGTERM: i32 = 128 + SIGTERM;

/// A process that a test has started.
#[derive(Debug)]
struct Started {
    name: String,
    id: u32,
    /// Gone when nobody has the process any more.
    output: Weak<Shared>,
}

static STARTED: Mutex<Vec<Started>> = Mutex::new(Vec::new());

/// A test has started a process.
pub(crate) fn started(name: &str, id: u32, output: Weak<Shared>) {
    static BEGIN: Once = Once::new();
    // A thread that panics may not change what is done at a panic.
    if !thread::panicking() {
        BEGIN.call_once(begin);
    }
    let mut all = STARTED.lock().unwrap_or_else(PoisonError::into_inner);
    all.retain(|one| one.output.strong_count() > 0);
    all.push(Started { name: name.to_owned(), id, output });
}

fn begin() {
    let usual = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        let name = thread::current().name().unwrap_or("a thread").to_owned();
        say(&format!("{name} {panic}\n"));
        usual(panic);
    }));
    let mut signals = match Signals::new([SIGTERM]) {
        Ok(signals) => signals,
        Err(error) => return say(&format!("SIGTERM ends this program without a word: {error}\n")),
    };
    thread::spawn(move || {
        if signals.forever().next().is_some() {
            say(&account());
            process::exit(ENDED_BY_SIGTERM);
        }
    });
}

/// Each process that a test still has, and what it printed.
fn account() -> String {
    let all = STARTED.lock().unwrap_or_else(PoisonError::into_inner);
    let mut account = "asked to end, with these processes:\n".to_owned();
    for one in all.iter() {
        let Some(output) = one.output.upgrade() else { continue };
        let state = state_of(one.id).unwrap_or_else(|| "gone".to_owned());
        // A string takes whatever is written to it.
        let _ = writeln!(account, "--- {} ({}, {state}) ---\n{}", one.name, one.id, output.all_output());
    }
    account
}

/// As the system has it: sleeping, or a zombie where it has ended.
fn state_of(id: u32) -> Option<String> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("State:")).map(|state| state.trim().to_owned())
}

/// Past what keeps a test's words.
fn say(words: &str) {
    // Nobody is left to hear of an error.
    let _ = std::io::stderr().write_all(words.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Deadline, Process};
    use std::process::Command;
    use std::time::Duration;

    const SOON: Duration = Duration::from_secs(60);

    #[test]
    fn the_account_has_what_is_there_and_its_words() {
        let start = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            Process::spawn(command)
        };
        let staying = start("echo still here; exec sleep 1000");
        staying.wait_for_line("still here", SOON);
        let mut ended = start("echo was here");
        let id = ended.id();
        ended.wait(SOON);
        drop(ended);
        // The one is on its way into sleep, the other's output on its way out of its collector.
        Deadline::wait_until("an account of the one and not of the other", SOON, || {
            let account = account();
            let has = account.contains(&format!("({}, S (sleeping)) ---\nstill here\n", staying.id()));
            (has && !account.contains(&format!("({id},"))).then_some(())
        });
    }
}
