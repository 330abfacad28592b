//! The mounts of this host, as their serving processes report them: each has a socket in a
//! directory of its user, and a client that connects is sent the mount's state as a JSON document.
//!
//! A mount that still waits for its server is in no table of the kernel; here it can be found. A
//! process that was killed leaves its socket behind: nothing accepts connections there, and the
//! next reader removes it.

use super::statistics;
use client::{PathStatistics, Statistics};
use mount::Unmounter;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A process that accepts the connection, but tells nothing for this long, is left out.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a process that waits for a server may take to end.
const END_TIMEOUT_S: i64 = 10;
/// The longest state document that is read: a mount has at most a few thousand paths.
const STATE_BYTES_MAX: u64 = 16 << 20;

/// The state of a mount.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountState {
    /// What is mounted, as the user wrote it.
    pub source: String,
    /// The directory.
    pub directory: PathBuf,
    /// The options as given.
    pub options: String,
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
    socket: Option<PathBuf>,
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
            pid: Some(std::process::id()),
            since: now(),
            state: Phase::Trying,
            error: None,
            paths: Vec::new(),
            details: String::new(),
        };
        let report = Arc::new(Report { state: Mutex::new(state), mounted: Mutex::new(None) });
        let socket = match listen() {
            Ok((socket, listener)) => {
                let report = Arc::clone(&report);
                let answering = std::thread::Builder::new().name("tl-status".into());
                let started = answering.spawn(move || report.answer(&listener));
                if let Err(error) = started {
                    tracing::warn!(%error, "`trunkline status` will not list this mount");
                }
                Some(socket)
            }
            Err(error) => {
                tracing::debug!(%error, "`trunkline status` will not list this mount");
                None
            }
        };
        Self { report, socket }
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

impl Drop for Registration {
    fn drop(&mut self) {
        if let Some(socket) = &self.socket {
            // Who connects from now on learns that it is gone.
            let _ = std::fs::remove_file(socket);
        }
    }
}

impl Report {
    /// Tells each reader the state, one after another, until the process ends.
    fn answer(&self, listener: &UnixListener) {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else {
                // Descriptors may be short for a moment.
                std::thread::sleep(Duration::from_millis(100));
                continue;
            };
            let text = serde_json::to_vec(&self.now()).unwrap_or_default();
            // A reader that does not read gets no state.
            let _ = stream.set_write_timeout(Some(ANSWER_TIMEOUT));
            let _ = stream.write_all(&text);
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

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

/// The directory of this user's sockets: root's in /run, others' in their own runtime directory.
fn runtime_directory() -> io::Result<PathBuf> {
    let uid = rustix::process::geteuid();
    let base = match std::env::var_os("XDG_RUNTIME_DIR") {
        _ if uid.is_root() => PathBuf::from("/run"),
        Some(directory) if !directory.is_empty() => PathBuf::from(directory),
        _ => PathBuf::from(format!("/run/user/{}", uid.as_raw())),
    };
    if !base.is_dir() {
        let cause = format!("there is no {}", base.display());
        return Err(io::Error::new(io::ErrorKind::NotFound, cause));
    }
    Ok(base.join("trunkline-mounts"))
}

/// Whether a directory belongs to this user, who alone can enter it. A symbolic link is not
/// followed: what is removed in the directory is removed nowhere else.
fn is_private(directory: &Path) -> bool {
    let owner = rustix::process::geteuid().as_raw();
    std::fs::symlink_metadata(directory)
        .is_ok_and(|found| found.is_dir() && found.uid() == owner && found.mode() & 0o077 == 0)
}

fn listen() -> io::Result<(PathBuf, UnixListener)> {
    let directory = runtime_directory()?;
    match std::fs::DirBuilder::new().mode(0o700).create(&directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    if !is_private(&directory) {
        let cause = format!("{} is not a directory of this user alone", directory.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, cause));
    }
    let socket = directory.join(format!("{}.sock", std::process::id()));
    remove_stale(&socket);
    let listener = UnixListener::bind(&socket)?;
    Ok((socket, listener))
}

/// Removes the socket of a process that was killed.
fn remove_stale(socket: &Path) {
    if std::fs::symlink_metadata(socket).is_ok_and(|found| found.file_type().is_socket()) {
        // Another reader may have removed it.
        let _ = std::fs::remove_file(socket);
    }
}

/// The mounts of this user whose serving processes report their state. Other users' directories
/// are not read, by root neither: what lies there is theirs to choose.
#[must_use]
pub fn query_all() -> Vec<MountState> {
    let Some(directory) = runtime_directory().ok().filter(|directory| is_private(directory)) else {
        return Vec::new();
    };
    let mut states = query_all_in(&directory);
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

fn query_all_in(directory: &Path) -> Vec<MountState> {
    let sockets = std::fs::read_dir(directory).into_iter().flatten().flatten();
    sockets.filter_map(|socket| query(&socket.path())).collect()
}

/// Asks the process behind a socket.
fn query(socket: &Path) -> Option<MountState> {
    let stream = match UnixStream::connect(socket) {
        Ok(stream) => stream,
        Err(error) => {
            if error.kind() == io::ErrorKind::ConnectionRefused {
                remove_stale(socket);
            }
            return None;
        }
    };
    stream.set_read_timeout(Some(ANSWER_TIMEOUT)).ok()?;
    // The system knows which process listens there; what the process says is not trusted with that.
    let pid = rustix::net::sockopt::socket_peercred(&stream).ok()?.pid;
    let mut text = Vec::new();
    stream.take(STATE_BYTES_MAX).read_to_end(&mut text).ok()?;
    let mut state: MountState = serde_json::from_slice(&text).ok()?;
    state.pid = u32::try_from(pid.as_raw_nonzero().get()).ok();
    Some(state)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn only_a_directory_of_this_user_alone_is_read_and_cleaned() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("mounts");
        std::fs::DirBuilder::new().mode(0o700).create(&directory).unwrap();
        assert!(is_private(&directory));
        let link = place.path().join("link");
        symlink(&directory, &link).unwrap();
        assert!(!is_private(&link), "a link may lead anywhere");
        std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o770)).unwrap();
        assert!(!is_private(&directory), "others may put things there");
        assert!(!is_private(&place.path().join("absent")));
    }

    #[test]
    fn the_socket_of_a_killed_process_is_removed_and_no_other_file() {
        let place = tempfile::tempdir().unwrap();
        let (socket, file) = (place.path().join("1.sock"), place.path().join("passwd"));
        drop(UnixListener::bind(&socket).unwrap());
        std::fs::write(&file, "kept").unwrap();
        symlink(&file, place.path().join("link")).unwrap();
        assert_eq!(query_all_in(place.path()), []);
        assert!(!socket.exists(), "nothing accepts connections there");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "kept");
        assert!(place.path().join("link").is_symlink());
    }

    #[test]
    fn a_mount_that_is_tried_reports_why_and_is_gone_when_it_is_given_up() {
        let state = |entry: &Registration| entry.report.now();
        let entry = Registration::register("nas:/data", Path::new("/absent/of/course"), "bg");
        entry.failed("no answer");
        assert_eq!((state(&entry).state, state(&entry).error.as_deref()), (Phase::Trying, Some("no answer")));
        let socket = entry.socket.clone();
        if let Some(socket) = &socket {
            let state = query(socket).unwrap();
            assert_eq!(state.pid, Some(std::process::id()));
            assert_eq!((state.source.as_str(), state.options.as_str()), ("nas:/data", "bg"));
        }
        drop(entry);
        assert!(socket.is_none_or(|socket| !socket.exists()));
    }
}
