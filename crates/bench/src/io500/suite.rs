//! The program io500: where it is, and one run of it.

use std::fs::File;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::error::{Error, Result};
use crate::stop::Stop;

/// How often io500 is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// How long io500 may take to end after a signal.
const END_TIMEOUT: Duration = Duration::from_secs(10);
/// A summary has a line for each phase.
const SUMMARY_BYTES_MAX: u64 = 1 << 20;
/// The end of what io500 says in an error.
const SAID_LINES_MAX: usize = 3;
const SENTENCE: &str = "cannot run IO500";

/// The program io500, and what starts it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suite {
    program: PathBuf,
    /// The words of the command that starts its processes (`mpirun -np 4`); empty for one process.
    launcher: Vec<String>,
}

impl Suite {
    /// Finds io500 in a directory or below it, or on the PATH.
    ///
    /// # Errors
    /// [`Error::Refused`] if it is not there.
    pub fn find(directory: Option<&Path>, launcher: &[String]) -> Result<Self> {
        let places: Vec<PathBuf> = match directory {
            Some(directory) => {
                ["io500", "bin/io500", "io500/io500"].map(|name| directory.join(name)).to_vec()
            }
            None => std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
                .map(|directory| directory.join("io500"))
                .collect(),
        };
        let program = places.into_iter().find(|place| is_program(place)).ok_or_else(|| {
            let place = directory
                .map_or_else(|| "on the PATH".to_owned(), |directory| format!("in {}", directory.display()));
            Error::refused(
                SENTENCE,
                format!("there is no program io500 {place}"),
                "--suite-dir DIR        of io500 as built by its prepare.sh; Debian has no package of it",
            )
        })?;
        let program = std::path::absolute(&program).unwrap_or(program);
        Ok(Self { program, launcher: launcher.to_vec() })
    }

    /// Runs io500 to its end; returns its summary. Its output is beside its results.
    ///
    /// # Errors
    /// [`Error::Refused`] with what it said if it fails, [`Error::Stopped`].
    pub(super) fn run(&self, settings: &Path, results: &Path, stop: &Stop) -> Result<String> {
        let log = results.join("output.txt");
        let wrap = |cause| Error::Write { file: log.display().to_string(), cause };
        let output = File::create(&log).map_err(wrap)?;
        let errors = output.try_clone().map_err(wrap)?;
        let mut words = self.launcher.iter().map(Into::into).chain([self.program.clone().into_os_string()]);
        let first = words.next().unwrap_or_default();
        let mut command = Command::new(&first);
        command.args(words).arg(settings).current_dir(results);
        // A group of its own: a signal to it reaches all of its processes, Ctrl-C only this one.
        command.stdin(Stdio::null()).stdout(output).stderr(errors).process_group(0);
        let child = command.spawn().map_err(|error| {
            let advice = "--mpirun \"mpirun -np 4\"        with a command that is installed";
            Error::refused(SENTENCE, format!("{}: {error}", first.display()), advice)
        })?;
        let failed = |cause: String| {
            let said = said(&log);
            Error::refused(
                SENTENCE,
                format!("{cause}{said}"),
                format!("less {}        for all it said", log.display()),
            )
        };
        let status = wait(child, stop).map_err(|error| failed(error.to_string()))?;
        let Some(status) = status else { return Err(Error::Stopped) };
        let summary = results.join("result_summary.txt");
        let text = match std::fs::metadata(&summary) {
            Ok(found) if found.len() <= SUMMARY_BYTES_MAX => std::fs::read_to_string(&summary),
            Ok(found) => return Err(failed(format!("a summary of {} bytes", found.len()))),
            Err(error) => Err(error),
        };
        match text {
            // A run with a score has done all phases; io500 also fails where they are too short.
            Ok(text) if text.lines().any(|line| line.starts_with("[SCORE")) => Ok(text),
            Ok(_) => Err(failed(format!("it ended with {status} before its score"))),
            Err(_) if !status.success() => Err(failed(format!("it ended with {status}"))),
            Err(error) => Err(failed(format!("it wrote no result_summary.txt ({error})"))),
        }
    }
}

fn is_program(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// Waits for the end; `None` after a stop, when all processes of the group have been ended.
fn wait(mut child: Child, stop: &Stop) -> io::Result<Option<ExitStatus>> {
    while !stop.is_requested() {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    let group = Pid::from_child(&child);
    let deadline = Instant::now() + END_TIMEOUT;
    kill_process_group(group, Signal::TERM)?;
    while child.try_wait()?.is_none() {
        if Instant::now() > deadline {
            kill_process_group(group, Signal::KILL)?;
            child.wait()?;
            break;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    // What a launcher has left behind; there may be nothing.
    let _ = kill_process_group(group, Signal::KILL);
    Ok(None)
}

/// The last lines of what io500 said.
fn said(log: &Path) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let last = lines.get(lines.len().saturating_sub(SAID_LINES_MAX)..).unwrap_or_default();
    if last.is_empty() { String::new() } else { format!("; it said: {}", last.join(" / ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program of this text called io500, in a new directory.
    fn program(text: &str) -> (tempfile::TempDir, Suite) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("io500");
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let suite = Suite::find(Some(directory.path()), &[]).unwrap();
        (directory, suite)
    }

    fn run(text: &str, stop: &Stop) -> Result<String> {
        let (directory, suite) = program(text);
        suite.run(Path::new("x.ini"), directory.path(), stop)
    }

    #[test]
    fn a_run_without_a_score_is_an_error_with_what_was_said() {
        let cause = |text: &str| match run(text, &Stop::default()) {
            Err(Error::Refused { cause, .. }) => cause.to_string(),
            other => panic!("{other:?}"),
        };
        let said = cause("#!/bin/sh\necho no space left >&2\nexit 3\n");
        assert!(said.contains("exit status: 3") && said.contains("it said: no space left"), "{said}");
        let said = cause("#!/bin/sh\necho '[RESULT] find 1 kIOPS' > result_summary.txt\n");
        assert!(said.contains("before its score"), "{said}");
        assert!(cause("#!/bin/sh\ntrue\n").contains("no result_summary.txt"));
    }

    #[test]
    fn an_invalid_run_with_a_score_is_a_result_although_the_program_fails() {
        let text = "#!/bin/sh\necho \"[SCORE ] $1 [INVALID]\" > result_summary.txt\nexit 1\n";
        assert_eq!(run(text, &Stop::default()).unwrap(), "[SCORE ] x.ini [INVALID]\n");
    }

    #[test]
    fn a_stop_ends_all_processes_of_the_run() {
        let stop = Stop::default();
        let (directory, suite) = program("#!/bin/sh\nsleep 1000 &\necho $! > child\nwait\n");
        std::thread::scope(|scope| {
            let running = scope.spawn(|| suite.run(Path::new("x.ini"), directory.path(), &stop));
            let child = directory.path().join("child");
            let deadline = Instant::now() + Duration::from_secs(60);
            while std::fs::read_to_string(&child).map_or(true, |text| !text.ends_with('\n')) {
                assert!(Instant::now() < deadline, "the program did not start");
                std::thread::yield_now();
            }
            stop.request();
            assert!(matches!(running.join().unwrap(), Err(Error::Stopped)));
            let number = std::fs::read_to_string(&child).unwrap();
            let alive = || {
                let state = std::fs::read_to_string(format!("/proc/{}/stat", number.trim()));
                state.is_ok_and(|state| !state.contains(") Z "))
            };
            while alive() {
                assert!(Instant::now() < deadline, "the child still runs");
                std::thread::yield_now();
            }
        });
    }

    #[test]
    fn a_missing_program_is_named_with_its_place() {
        let directory = tempfile::tempdir().unwrap();
        let error = Suite::find(Some(directory.path()), &[]).unwrap_err();
        let Error::Refused { cause, advice, .. } = error else { panic!("{error}") };
        assert!(cause.to_string().contains(&directory.path().display().to_string()));
        assert!(advice.contains("--suite-dir"));
    }
}
