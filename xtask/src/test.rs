//! `cargo xtask test`: runs every suite that this machine can run, and names those that it cannot,
//! with the reason.
//!
//! At the end stands what failed, with its report. The last line is either `all suites ran` or
//! `not run: NAME (reason); ...`. With `CI=true`, a suite that did not run is a failure: a suite
//! never passes without having run.

mod debian;
mod machine;
mod output;
mod packages;
mod suites;

use crate::error::Result;
use crate::workspace::{Metadata, cargo};
use machine::Need;
use rustix::process::Signal;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};
use suites::{Suite, Tier};

/// How long the build of a suite's test programs may take. A first one builds every dependency.
const BUILD_MINUTES_MAX: u32 = 30;
/// The interval between checks whether a suite has ended.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long a test program has to report its state after it is asked to end.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// An environment variable with the directory of external suites.
const SUITE_DIR: &str = "TRUNKLINE_SUITE_DIR";

/// Which suites to run, and whether packages may be installed.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Install missing Debian packages (needs root); CI=true does so too.
    #[arg(long)]
    install: bool,
    /// Run everything, including suites that take too long for CI.
    #[arg(long)]
    full: bool,
    /// Only list what would run and what it needs.
    #[arg(long)]
    list: bool,
    /// Directory of an external suite that you have built (pjdfstest, cthon04, io500, ltp, xfstests
    /// or blktests), or a directory with several of them under these names.
    #[arg(long, value_name = "DIR")]
    suite_dir: Option<PathBuf>,
    /// Run only these suites.
    suites: Vec<String>,
}

/// The result of a suite.
enum Outcome {
    Passed,
    /// How it ended, and what its tests said.
    Failed(String, Vec<output::Failure>),
    NotRun(String),
}

/// Runs the suites and reports the result of each; returns true if all passed.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let ci = std::env::var("CI").is_ok_and(|value| value == "true" || value == "1");
    let Some(chosen) = choose(options) else { return Ok(false) };
    let suite_dir = options.suite_dir.as_deref();
    if options.list {
        list(&chosen, suite_dir);
        return Ok(true);
    }
    let wanted = packages::missing(chosen.iter().flat_map(|suite| suite.packages.iter().copied()));
    if !wanted.is_empty() {
        println!("Debian packages needed and missing: {}", wanted.join(" "));
        if options.install || ci {
            packages::install(&wanted);
        } else {
            println!("to install them: {}   (or: cargo xtask test --install)", packages::command(&wanted));
        }
    }
    if options.install || ci {
        chosen.iter().flat_map(|suite| suite.needs).for_each(|need| machine::prepare(*need));
    }
    let mut outcomes = Vec::new();
    for suite in chosen {
        let start = Instant::now();
        println!("\n=== suite {}: {}", suite.name, suite.about);
        let outcome = match obstacle(suite, suite_dir) {
            Some(reason) => Outcome::NotRun(reason),
            None => run_suite(suite, suite_dir, &[])?,
        };
        let said = match &outcome {
            Outcome::Passed => "passed".to_owned(),
            Outcome::Failed(how, _) => format!("FAILED: {how}"),
            Outcome::NotRun(reason) => format!("not run: {reason}"),
        };
        println!("=== suite {} {said}, {:.0} s", suite.name, start.elapsed().as_secs_f64());
        outcomes.push((suite, outcome));
    }
    Ok(conclude(&outcomes, ci))
}

/// The requested suites in the order of their tiers; `None`, with a message, for an unknown name.
fn choose(options: &Options) -> Option<Vec<&'static Suite>> {
    if let Some(unknown) = options.suites.iter().find(|name| suites::all().all(|suite| suite.name != **name))
    {
        let known = suites::all().map(|suite| suite.name).collect::<Vec<_>>().join(" ");
        eprintln!("error: no suite is called {unknown}; there are: {known}");
        return None;
    }
    let wanted = |suite: &&Suite| {
        if options.suites.is_empty() {
            options.full || suite.tier != Tier::Full
        } else {
            options.suites.iter().any(|name| name == suite.name)
        }
    };
    let mut chosen = suites::all().filter(wanted).collect::<Vec<_>>();
    chosen.sort_by_key(|suite| suite.tier);
    Some(chosen)
}

fn list(chosen: &[&Suite], suite_dir: Option<&Path>) {
    for suite in chosen {
        let tier = format!("{:?}", suite.tier).to_lowercase();
        println!("{:<10} {tier:<6} about {:>2} min   {}", suite.name, suite.minutes, suite.about);
        println!("{:<10} runs: cargo {}", "", suite.command.join(" "));
        if !suite.packages.is_empty() {
            println!("{:<10} packages: {}", "", suite.packages.join(" "));
        }
        if let Some(reason) = obstacle(suite, suite_dir) {
            println!("{:<10} cannot run now: {reason}", "");
        }
    }
    let missing = packages::missing(chosen.iter().flat_map(|suite| suite.packages.iter().copied()));
    if !missing.is_empty() {
        println!("to install what is missing: {}", packages::command(&missing));
    }
}

/// The reason why a suite cannot run on this machine, if there is one.
fn obstacle(suite: &Suite, suite_dir: Option<&Path>) -> Option<String> {
    let missing = packages::missing(suite.packages.iter().copied());
    if !missing.is_empty() {
        return Some(format!("missing {}; {}", missing.join(" "), packages::command(&missing)));
    }
    suite.needs.iter().find_map(|need: &Need| need.obstacle(suite_dir))
}

/// Reports what failed and, in the last line, what did not run.
fn conclude(outcomes: &[(&Suite, Outcome)], ci: bool) -> bool {
    let failed: Vec<_> = outcomes
        .iter()
        .filter_map(|(suite, outcome)| match outcome {
            Outcome::Failed(how, _) => Some(format!("{} ({how})", suite.name)),
            _ => None,
        })
        .collect();
    let not_run: Vec<_> = outcomes
        .iter()
        .filter_map(|(suite, outcome)| match outcome {
            Outcome::NotRun(reason) => Some(format!("{} ({reason})", suite.name)),
            _ => None,
        })
        .collect();
    for (suite, outcome) in outcomes {
        if let Outcome::Failed(_, failures) = outcome {
            output::show(suite.name, failures);
        }
    }
    println!();
    if !failed.is_empty() {
        println!("failed: {}", failed.join(", "));
    }
    if not_run.is_empty() {
        println!("all suites ran");
    } else {
        println!("not run: {}", not_run.join("; "));
    }
    failed.is_empty() && (not_run.is_empty() || !ci)
}

/// Runs one suite for another command, with a variable for it. Returns whether it ran and passed;
/// if it cannot run, says why: which packages are missing.
pub(crate) fn run_with(name: &str, variable: (&str, &Path)) -> Result<bool> {
    let Some(suite) = suites::all().find(|suite| suite.name == name) else { return Ok(false) };
    if let Some(reason) = obstacle(suite, None) {
        eprintln!("error: {reason}");
        return Ok(false);
    }
    match run_suite(suite, None, &[variable])? {
        Outcome::Passed => Ok(true),
        Outcome::Failed(how, _) | Outcome::NotRun(how) => {
            eprintln!("error: {how}");
            Ok(false)
        }
    }
}

/// Runs a suite's command, passes its output through, and ends it when its time is over.
fn run_suite(suite: &Suite, suite_dir: Option<&Path>, variables: &[(&str, &Path)]) -> Result<Outcome> {
    if let Some(wrong) = build(suite)? {
        return Ok(Outcome::Failed(wrong, Vec::new()));
    }
    let mut command: Command = cargo();
    command.args(suite.command).envs(variables.iter().copied());
    if let Some(directory) = machine::outside_suite(suite.needs, suite_dir) {
        // The command is started in another directory.
        command.env(SUITE_DIR, std::path::absolute(&directory).unwrap_or(directory));
    }
    let failed = |source| crate::error::Error::Run { program: "cargo".to_owned(), source };
    let (from, to) = std::io::pipe().map_err(failed)?;
    // One pipe, so that cargo's lines and those of the test programs stay in order.
    command.stdout(to.try_clone().map_err(failed)?).stderr(to);
    let mut child = command.spawn().map_err(failed)?;
    // The command holds the pipe's other end as long as it is there.
    drop(command);
    let output = output::Output::pass_through(from);
    let minutes_max = suite.minutes * suites::PATIENCE;
    let ended = wait(&mut child, minutes(minutes_max)).map_err(failed)?;
    Ok(match ended {
        Some(status) if status.success() => Outcome::Passed,
        Some(status) => Outcome::Failed(status.to_string(), output.failures()),
        None => Outcome::Failed(format!("ended after {minutes_max} minutes"), output.failures()),
    })
}

/// Builds the test programs of a suite, so that the time that a build takes on a busy machine is
/// not the suite's. Returns what went wrong.
fn build(suite: &Suite) -> Result<Option<String>> {
    let Some(("test", words)) = suite.command.split_first().map(|(first, rest)| (*first, rest)) else {
        return Ok(None);
    };
    let words = words.iter().take_while(|word| **word != "--");
    let mut command: Command = cargo();
    command.args(["test", "--no-run"]).args(words);
    let failed = |source| crate::error::Error::Run { program: "cargo".to_owned(), source };
    let mut child = command.spawn().map_err(failed)?;
    Ok(match wait(&mut child, minutes(BUILD_MINUTES_MAX)).map_err(failed)? {
        Some(status) if status.success() => None,
        Some(status) => Some(format!("the build failed: {status}")),
        None => Some(format!("the build was ended after {BUILD_MINUTES_MAX} minutes")),
    })
}

fn minutes(count: u32) -> Duration {
    Duration::from_secs(u64::from(count) * 60)
}

/// Waits at most this long. Then ends the child with all its descendants, after the test program
/// has reported its state. They stay in this process's group, so that an interrupt from the
/// terminal reaches all.
fn wait(child: &mut Child, limit: Duration) -> std::io::Result<Option<ExitStatus>> {
    let start = Instant::now();
    while start.elapsed() < limit {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        std::thread::sleep(LOOK_EVERY);
    }
    // Stopped, so that it does not start the next program meanwhile.
    machine::Held::all(&[child.id()]).signal(Signal::STOP);
    // Collected first, because a process that loses its parent can no longer be found as a
    // descendant.
    let family = machine::Held::all(&machine::family(child.id()));
    let programs = machine::Held::all(&machine::children(child.id()));
    programs.signal(Signal::TERM);
    programs.wait(LAST_WORDS);
    family.signal(Signal::KILL);
    machine::kill_family(child.id());
    child.wait()?;
    Ok(None)
}

/// Finds test programs that a plain `cargo test` leaves out and no suite runs, so that they would
/// never run, and suites whose program does not exist.
pub(crate) fn unlisted(metadata: &Metadata) -> Vec<String> {
    let programs: Vec<_> = metadata.packages.iter().flat_map(|package| package.suites()).collect();
    let runs = |suite: &Suite, program: &str| {
        let mut words = suite.command.iter().skip_while(|word| **word != "--test").skip(1);
        words.next() == Some(&program)
    };
    let forgotten = programs.iter().filter(|program| !suites::all().any(|suite| runs(suite, program)));
    let mut found: Vec<_> = forgotten
        .map(|program| {
            format!("no suite runs the test program {program}; list it below xtask/src/test/suites")
        })
        .collect();
    let named = suites::all().filter(|suite| suite.command.contains(&"--test"));
    let absent = named.filter(|suite| !programs.iter().any(|program| runs(suite, program)));
    found.extend(absent.map(|suite| {
        let name = suite.name;
        format!("the suite {name} runs a test program that no Cargo.toml declares with `test = false`")
    }));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::{Package, Target};

    #[test]
    fn what_did_not_run_fails_in_ci_only() {
        let suite = suites::all().next().expect("there are suites");
        let not_run = [(suite, Outcome::NotRun("no reason".to_owned()))];
        assert!(conclude(&not_run, false));
        assert!(!conclude(&not_run, true));
        assert!(conclude(&[(suite, Outcome::Passed)], true));
        assert!(!conclude(&[(suite, Outcome::Failed("it broke".to_owned(), Vec::new()))], false));
    }

    #[test]
    fn a_test_program_that_no_suite_runs_is_found() {
        let target = Target { name: "forgotten".to_owned(), kind: vec!["test".to_owned()], test: false };
        let package = Package { name: "a".to_owned(), dependencies: Vec::new(), targets: vec![target] };
        let found = unlisted(&Metadata { packages: vec![package] });
        assert!(found[0].contains("forgotten"), "{found:?}");
    }

    #[test]
    fn the_tier_for_everyone_fits_into_its_time() {
        let everyone = suites::all().filter(|suite| suite.tier != Tier::Full);
        let minutes: u32 = everyone.map(|suite| suite.minutes).sum();
        assert!(minutes <= suites::EVERYONE_MINUTES_MAX, "{minutes} minutes");
    }

    #[test]
    fn a_suite_that_takes_too_long_is_ended_with_its_children() {
        let script = "sleep 1000 & sleep 1000 & wait";
        let mut child = Command::new("sh").args(["-c", script]).spawn().expect("there is a shell");
        let children = loop {
            let children = machine::children(child.id());
            if children.len() == 2 {
                break children;
            }
            std::thread::sleep(LOOK_EVERY);
        };
        let ended = wait(&mut child, Duration::ZERO).expect("it can be waited for");
        assert!(ended.is_none());
        while children.iter().any(|child| machine::is_there(*child)) {
            std::thread::sleep(LOOK_EVERY);
        }
    }

    #[test]
    fn a_test_program_whose_time_is_over_has_the_last_word() {
        let place = tempfile::tempdir().expect("there is room");
        let (ready, said) = (place.path().join("ready"), place.path().join("said"));
        let program = "trap 'echo hung > said; exit 1' TERM; echo > ready; sleep 1000 & wait";
        // The outer shell stays, as cargo does while the test program runs.
        let mut command = Command::new("sh");
        command.args(["-c", "sh -c \"$0\"; exit 1", program]).current_dir(place.path());
        let mut child = command.spawn().expect("there is a shell");
        while !ready.exists() {
            assert!(child.try_wait().expect("it can be waited for").is_none(), "it has ended");
            std::thread::sleep(LOOK_EVERY);
        }
        wait(&mut child, Duration::ZERO).expect("it can be waited for");
        assert_eq!(std::fs::read_to_string(said).expect("it has said something"), "hung\n");
    }
}
