//! The mounts of this host, as their serving processes report them ([`crate::local_sockets`]): a
//! client that connects is sent the mount's state as a JSON document.
//!
//! A mount that still waits for its server is in no table of the kernel; here it can be found.

use super::statistics;
use crate::local_sockets::{Directory, Socket};
use client::{PathStatistics, Statistics};
use mount::Unmounter;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// The sockets of mounts.
const SOCKETS: Directory = Directory("trunkline-mounts");
/// How long a process that waits for a server may take to end.
const END_TIMEOUT_S: i64 = 10;

/// The state of a mount.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountState {
    /// What is mounted, as the user wrote it.
    pub source: String,
    /// The directory.
    pub directory: PathBuf,
    /// The options as given.
    pub options: String,
    /// The options in effect, once it is mounted: with all defaults, and with what the server made
    /// of them ([`super::in_effect`]).
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub in_effect: String,
    /// The given options that have no effect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub without_effect: Vec<String>,
    /// The serving process.
    pub pid: Option<u32>,
    /// Seconds since 1970 at which this state began.
    pub since: u64,
    /// What it is doing.
    pub state: Phase,
    /// Why the last try failed, while it is tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The paths to the server.
    #[serde(default)]
    pub paths: Vec<PathState>,
    /// The tables that SIGUSR1 writes to the log.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub details: String,
}

/// What a mount is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Programs can use it.
    Mounted,
    /// Its server is not there yet, or the first try is under way.
    Trying,
    /// Its serving process was killed: the directory answers ENOTCONN.
    Dead,
    /// Nothing is known of its serving process, which another user runs.
    Unknown,
}

/// The state of a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathState {
    /// Its addresses.
    pub name: String,
    /// The states that its loops see: `up`, `down` and others.
    pub state: String,
    /// Calls that were answered.
    pub calls: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
}

impl PathState {
    fn new(path: &PathStatistics) -> Self {
        let counters = &path.counters;
        Self {
            name: path.name.clone(),
            state: statistics::states(path),
            calls: counters.read.calls + counters.write.calls + counters.metadata.calls,
            read_bytes: counters.read.bytes,
            written_bytes: counters.write.bytes,
        }
    }
}

/// A mount's entry in the registry. Dropping it removes the entry.
#[derive(Debug)]
pub struct Registration {
    report: Arc<Report>,
    _socket: Option<Socket>,
}

/// What is sent to a reader.
#[derive(Debug)]
struct Report {
    state: Mutex<MountState>,
    /// Once it is mounted.
    mounted: Mutex<Option<Unmounter>>,
}

impl Registration {
    /// Enters a mount that is about to be tried. Without a place for the socket the mount works
    /// nevertheless, and is not listed.
    pub fn register(source: &str, directory: &Path, options: &str) -> Self {
        let state = MountState {
            source: source.to_owned(),
            directory: directory.to_owned(),
            options: options.to_owned(),
            in_effect: String::new(),
            without_effect: Vec::new(),
            pid: Some(std::process::id()),
            since: now(),
            state: Phase::Trying,
            error: None,
            paths: Vec::new(),
            details: String::new(),
        };
        let report = Arc::new(Report { state: Mutex::new(state), mounted: Mutex::new(None) });
        let answer = {
            let report = Arc::clone(&report);
            move || serde_json::to_vec(&report.now()).unwrap_or_default()
        };
        let socket = SOCKETS.answer("tl-status", answer).inspect_err(|error| {
            tracing::debug!(%error, "`trunkline status` will not list this mount");
        });
        Self { report, _socket: socket.ok() }
    }

    /// Notes the options in effect, and the given ones without effect.
    pub fn in_effect(&self, options: String, without_effect: &[&str]) {
        let mut state = lock(&self.report.state);
        state.in_effect = options;
        state.without_effect = without_effect.iter().map(|option| (*option).to_owned()).collect();
    }

    /// Notes why a try failed.
    pub fn failed(&self, error: &str) {
        lock(&self.report.state).error = Some(error.to_owned());
    }

    /// Notes that programs can use it.
    pub fn mounted(&self, unmounter: Unmounter) {
        *lock(&self.report.mounted) = Some(unmounter);
        let mut state = lock(&self.report.state);
        (state.state, state.since, state.error) = (Phase::Mounted, now(), None);
    }
}

impl Report {
    fn now(&self) -> MountState {
        let mut state = lock(&self.state).clone();
        let mounted = lock(&self.mounted).clone();
        if let Some(unmounter) = mounted {
            let statistics: Statistics = unmounter.statistics();
            state.paths = statistics.paths.iter().map(PathState::new).collect();
            state.details = statistics::table(&statistics, &unmounter.gauges());
        }
        state
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // Each change is one assignment.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// The mounts of this user whose serving processes report their state. Other users' directories
/// are not read, by root neither: what lies there is theirs to choose.
#[must_use]
pub fn query_all() -> Vec<MountState> {
    let reports = SOCKETS.read_all().into_iter();
    let mut states: Vec<_> = reports.filter_map(|(pid, text)| parse(pid, &text)).collect();
    states.sort_by(|a, b| (&a.directory, a.pid).cmp(&(&b.directory, b.pid)));
    states
}

/// Ends the mounts on a directory that still wait for their server, and waits until their processes
/// are gone. Returns whether there was one.
///
/// # Errors
/// Errors of the system; `TimedOut` if a process does not end.
pub fn end_waiting(directory: &Path) -> io::Result<bool> {
    let is_it = |state: &MountState| state.state == Phase::Trying && state.directory == directory;
    let mut ended = false;
    for pid in query_all().into_iter().filter(is_it).filter_map(|state| state.pid) {
        let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { continue };
        let process = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(process) => process,
            // It has ended by itself.
            Err(Errno::SRCH) => continue,
            Err(error) => return Err(error.into()),
        };
        pidfd_send_signal(&process, Signal::TERM)?;
        let mut ends = [PollFd::new(&process, PollFlags::IN)];
        let timeout = Timespec { tv_sec: END_TIMEOUT_S, tv_nsec: 0 };
        if poll(&mut ends, Some(&timeout))? == 0 {
            let cause = format!("process {} does not end", pid.as_raw_nonzero());
            return Err(io::Error::new(io::ErrorKind::TimedOut, cause));
        }
        ended = true;
    }
    Ok(ended)
}

/// The state that a process reports. The system knows which process that is; what the process says
/// is not trusted with that.
fn parse(pid: u32, text: &[u8]) -> Option<MountState> {
    let mut state: MountState = serde_json::from_slice(text).ok()?;
    state.pid = Some(pid);
    Some(state)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_that_is_tried_reports_why_and_is_gone_when_it_is_given_up() {
        let state = |entry: &Registration| entry.report.now();
        let own = || query_all().into_iter().find(|state| state.pid == Some(std::process::id()));
        let entry = Registration::register("nas:/data", Path::new("/absent/of/course"), "bg");
        entry.failed("no answer");
        assert_eq!((state(&entry).state, state(&entry).error.as_deref()), (Phase::Trying, Some("no answer")));
        // Without a directory for sockets, as for some users, the mount is in no list.
        let is_listed = entry._socket.is_some();
        let listed = own().map(|state| (state.source, state.options));
        assert_eq!(listed, is_listed.then(|| ("nas:/data".to_owned(), "bg".to_owned())));
        drop(entry);
        assert_eq!(own(), None);
    }
}
