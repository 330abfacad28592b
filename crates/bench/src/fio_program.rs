//! The installed program fio: whether it can be used, and one run of it.

use std::io::{ErrorKind, Read};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use rustix::process::Signal;

use crate::child::{self, Ended};
use crate::error::{Error, Result};
use crate::stop::Stop;

/// Older versions lack the engine io_uring, which keeps buffered operations in flight.
const VERSION_MIN: (u32, u32) = (3, 13);
const SENTENCE: &str = "cannot make the load by fio";

/// What a run of fio left.
#[derive(Debug)]
pub(crate) struct Finished {
    /// Its standard output.
    pub(crate) output: String,
    /// Its standard error.
    pub(crate) messages: String,
    /// Whether its exit status is 0.
    pub(crate) success: bool,
}

/// Refuses a missing or an old fio.
///
/// # Errors
/// [`Error::Refused`].
pub(crate) fn check_version() -> Result<()> {
    let printed = Command::new("fio").arg("--version").stdin(Stdio::null()).output().map_err(not_started)?;
    let printed = String::from_utf8_lossy(&printed.stdout).trim().to_owned();
    match version(&printed) {
        Some(found) if found >= VERSION_MIN => Ok(()),
        _ => Err(Error::refused(
            SENTENCE,
            format!(
                "`fio --version` says {printed:?}; {}.{} or newer is needed",
                VERSION_MIN.0, VERSION_MIN.1
            ),
            "a newer fio, or --engine ours",
        )),
    }
}

/// Whether fio is installed, and new enough to make the load on directories: as it was when it was
/// first asked, so that all routes of a run have one answer.
pub(crate) fn is_usable() -> bool {
    static IS_USABLE: OnceLock<bool> = OnceLock::new();
    *IS_USABLE.get_or_init(|| check_version().is_ok())
}

/// The version in `fio-3.33` or `fio-3.33-12-gabcdef`.
fn version(printed: &str) -> Option<(u32, u32)> {
    let (major, rest) = printed.strip_prefix("fio-")?.split_once('.')?;
    let minor = rest.split(|it: char| !it.is_ascii_digit()).next()?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn not_started(error: std::io::Error) -> Error {
    let cause = match error.kind() {
        ErrorKind::NotFound => "the program fio is not installed, or not on the PATH".to_owned(),
        _ => format!("fio cannot be started: {error}"),
    };
    Error::refused(SENTENCE, cause, "apt install fio        or --engine ours")
}

/// Runs fio to its end, and reads what it prints. A stop ends it, and with it the jobs on the
/// hosts.
///
/// # Errors
/// [`Error::Refused`] if it cannot be run, [`Error::Stopped`].
pub(crate) fn run(mut command: Command, stop: &Stop) -> Result<Finished> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    wait(command.spawn().map_err(not_started)?, stop)
}

fn wait(mut child: Child, stop: &Stop) -> Result<Finished> {
    let failed = |error: std::io::Error| Error::refused(SENTENCE, error.to_string(), "the same again");
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let read = |stream: Option<Box<dyn Read + Send>>| {
        std::thread::spawn(move || {
            let mut text = Vec::new();
            // What was read until an error is shown.
            let _ = stream.map(|mut stream| stream.read_to_end(&mut text));
            String::from_utf8_lossy(&text).into_owned()
        })
    };
    let out = read(out.map(|it| Box::new(it) as Box<dyn Read + Send>));
    let err = read(err.map(|it| Box::new(it) as Box<dyn Read + Send>));
    // fio ends the jobs on its hosts at this signal.
    let success = match child::wait(&mut child, stop, None, Signal::INT).map_err(failed)? {
        Ended::Itself(status) => status.success(),
        Ended::Stopped | Ended::TimedOut => return Err(Error::Stopped),
    };
    let text = |thread: std::thread::JoinHandle<String>| thread.join().unwrap_or_default();
    Ok(Finished { output: text(out), messages: text(err), success })
}

/// The first line that says something.
pub(crate) fn first_line(text: &str) -> Option<String> {
    text.lines().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_fio_prints_them() {
        assert_eq!(version("fio-3.33"), Some((3, 33)));
        assert_eq!(version("fio-3.33-12-gabcdef"), Some((3, 33)));
        assert_eq!(version("fio-2.2.10"), Some((2, 2)));
        assert!(version("fio-2.2.10") < Some(VERSION_MIN) && version("fio-4.1") > Some(VERSION_MIN));
        assert_eq!((version(""), version("fio 3.33")), (None, None));
    }
}
