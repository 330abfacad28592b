//! What this process counts, for whoever watches it: `trunkline top` and the metrics address.
//!
//! A server, a mount, a bench and an agent each make a [`Snapshot`] of their own counters when
//! somebody asks. Nothing is counted for this alone, and without a reader nothing is done. With a
//! metrics address, the counters are also read once a second for the history that its page shows.

pub mod bench;
pub mod block;
mod collector;
mod http;
pub mod mount;
mod page;
pub mod serve;

use crate::error::Error;
use crate::local_sockets::{Directory, Socket};
use clap::Args;
use metrics::{FORMAT, Kind, Operations, Process, Snapshot, prometheus};
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The sockets of processes that count.
pub const SOCKETS: Directory = Directory("trunkline-live");
/// The sockets of servers that count by file while somebody asks. The question is for how many
/// seconds they should go on.
pub const FILE_SOCKETS: Directory = Directory("trunkline-live-files");

/// Who counts, and since when.
#[derive(Debug, Clone)]
pub struct Identity {
    process: Process,
    started: Instant,
}

impl Identity {
    /// This process. `name` is what it serves, mounts or measures.
    pub fn new(kind: Kind, name: &str) -> Self {
        let process = Process {
            pid: std::process::id(),
            kind,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            name: name.to_owned(),
            started_unix_ms: unix_ms(),
        };
        Self { process, started: Instant::now() }
    }

    /// Another process within this one, which began later.
    fn within(&self, kind: Kind, name: &str) -> Self {
        let mut inner = Self::new(kind, name);
        // Who watches tells processes apart by their numbers and when they were started.
        inner.process.started_unix_ms = inner.process.started_unix_ms.max(self.process.started_unix_ms + 1);
        inner
    }

    /// A snapshot of now, without any counts.
    fn snapshot(&self) -> Snapshot {
        Snapshot {
            format: FORMAT,
            process: self.process.clone(),
            taken_unix_ms: unix_ms(),
            uptime_ms: u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX),
            operations: Operations::default(),
            paths: Vec::new(),
            loops: Vec::new(),
            gauges: Vec::new(),
            silent_ms: 0,
            files: None,
            group: None,
        }
    }
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// How long a process that ends waits for its own counters.
const LAST_COUNTS_TIMEOUT: Duration = Duration::from_secs(2);

/// How a process is watched by other than `trunkline top` of its user.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Monitoring")]
pub struct MetricsArgs {
    /// Answer HTTP requests on this address: a page of live analytics for a browser, /metrics for
    /// Prometheus, /snapshot, /health, /ready. Keeps a history of an hour in at most 64 MiB, and
    /// one by file in 16 MiB while somebody asks for it.
    /// Peers on this host need no permission; others may read /health and /ready only.
    #[arg(long, value_name = "ADDR:PORT", value_parser = client::parse_with_port)]
    metrics: Option<SocketAddr>,
    /// Let peers on other hosts read all of --metrics if they show the token in this file: as
    /// `Authorization: Bearer TOKEN`, or as ?token=TOKEN.
    #[arg(long, value_name = "FILE", requires = "metrics", value_parser = absolute)]
    metrics_token: Option<PathBuf>,
    /// At the end, write the metrics for Prometheus to this file; those of a bench's embedded group
    /// to another beside it: NAME.group.prom beside NAME.prom.
    #[arg(long, value_name = "FILE", value_parser = absolute)]
    metrics_file: Option<PathBuf>,
}

/// A process in the background leaves its directory.
fn absolute(text: &str) -> io::Result<PathBuf> {
    std::path::absolute(text)
}

/// What is watched: the counters of this process, and whether it is ready.
#[derive(Clone)]
pub struct Watched {
    /// What has been counted so far.
    pub snapshot: Arc<dyn Fn() -> Snapshot + Send + Sync>,
    /// Whether it serves those for whom it is there.
    pub is_ready: Arc<dyn Fn() -> bool + Send + Sync>,
    /// The same with [`Snapshot::files`], of a server: it counts by file for the time given.
    pub by_file: Option<ByFile>,
}

/// See [`Watched::by_file`].
pub type ByFile = Arc<dyn Fn(Duration) -> Snapshot + Send + Sync>;

impl fmt::Debug for Watched {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Watched")
    }
}

/// A process that is watched, until the value is dropped.
#[derive(Debug)]
pub struct Publication {
    watched: Watched,
    _sockets: [Option<Socket>; 2],
    /// The metrics address, if there is one.
    pub address: Option<SocketAddr>,
    file: Option<PathBuf>,
}

impl Publication {
    /// Lets this user's `trunkline top` find this process, and answers on the metrics address.
    ///
    /// # Errors
    /// The metrics address cannot be used, or the token cannot be read.
    pub fn new(args: &MetricsArgs, watched: Watched) -> Result<Self, Error> {
        let snapshot = Arc::clone(&watched.snapshot);
        let socket = SOCKETS.answer("tl-live", move || snapshot().to_json());
        let socket = socket.inspect_err(|error| {
            tracing::debug!(%error, "`trunkline top` will not find this process");
        });
        let by_file = watched.by_file.clone().map(|by_file| {
            FILE_SOCKETS.answer_questions("tl-live-files", move |question| {
                let seconds = question.parse().ok()?;
                Some(by_file(Duration::from_secs(seconds)).to_json())
            })
        });
        let address = args.metrics.map(|address| args.listen(address, watched.clone())).transpose()?;
        let sockets = [socket.ok(), by_file.and_then(Result::ok)];
        Ok(Self { watched, _sockets: sockets, address, file: args.metrics_file.clone() })
    }

    /// Reads the counters for the file that is written at the end, while they can be read.
    pub fn count(&self) {
        if self.file.is_some() {
            self.read();
        }
    }

    /// The counters, unless an event loop hangs: that must not keep the process from ending.
    fn read(&self) -> Option<Snapshot> {
        let (sender, receiver) = mpsc::channel();
        let snapshot = Arc::clone(&self.watched.snapshot);
        let reader = std::thread::Builder::new().name("tl-last-counts".into());
        // The receiver may have given up.
        reader.spawn(move || _ = sender.send(snapshot())).ok()?;
        receiver.recv_timeout(LAST_COUNTS_TIMEOUT).ok()
    }

    /// Writes the metrics to the file.
    fn write(&self, file: &Path) -> io::Result<()> {
        let snapshot = self.read().ok_or(io::ErrorKind::TimedOut)?;
        std::fs::write(file, prometheus::text(&snapshot))?;
        match &snapshot.group {
            // Beside a pipe or a device there is no other.
            Some(group) if file.metadata()?.is_file() => {
                std::fs::write(of_group(file), prometheus::text(group))
            }
            _ => Ok(()),
        }
    }
}

/// The file with the metrics of an embedded group, beside that of the bench. One file cannot have
/// both: each metric may be in it once.
fn of_group(file: &Path) -> PathBuf {
    let mut name = file.file_stem().unwrap_or_default().to_owned();
    name.push(".group");
    if let Some(ending) = file.extension() {
        name.push(".");
        name.push(ending);
    }
    file.with_file_name(name)
}

impl Drop for Publication {
    fn drop(&mut self) {
        if let Some(file) = &self.file
            && let Err(error) = self.write(file)
        {
            tracing::error!(file = %file.display(), %error, "the last metrics are not written");
        }
    }
}

impl MetricsArgs {
    /// Whether there is any.
    pub const fn is_given(&self) -> bool {
        self.metrics.is_some() || self.metrics_file.is_some()
    }

    /// The arguments that say the same to another process.
    pub fn arguments(&self) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = Vec::new();
        if let Some(address) = self.metrics {
            arguments.extend(["--metrics".into(), address.to_string().into()]);
        }
        for (name, file) in [("--metrics-token", &self.metrics_token), ("--metrics-file", &self.metrics_file)]
        {
            if let Some(file) = file {
                arguments.extend([name.into(), file.into()]);
            }
        }
        arguments
    }

    /// These arguments; where they are absent, what a configuration file or mount options say.
    ///
    /// # Errors
    /// A token without an address.
    pub fn or(&self, address: Option<SocketAddr>, token: Option<&Path>) -> Result<Self, Error> {
        let metrics = self.metrics.or(address);
        let token = self.metrics_token.clone().or_else(|| token.map(Path::to_owned));
        if let (None, Some(token)) = (metrics, &token) {
            return Err(Error::Usage {
                sentence: format!("cannot use the token in {}", token.display()),
                cause: "there is no metrics address to show it to".to_owned(),
                advice: "a metrics address too, such as 127.0.0.1:9100; or no token".to_owned(),
            });
        }
        Ok(Self { metrics, metrics_token: token, metrics_file: self.metrics_file.clone() })
    }

    fn listen(&self, address: SocketAddr, watched: Watched) -> Result<SocketAddr, Error> {
        let token = self.metrics_token.as_deref().map(read_token).transpose()?;
        if token.is_none() && !address.ip().is_loopback() {
            tracing::warn!(
                %address,
                "peers on other hosts may read /health and /ready only; --metrics-token FILE admits them"
            );
        }
        http::start(address, token, watched).map_err(|error| Error::Usage {
            sentence: format!("cannot answer on the metrics address {address}"),
            cause: error.to_string(),
            advice: match error.kind() {
                io::ErrorKind::AddrInUse => "another port, or port 0 for any that is free".to_owned(),
                _ => "an address of this host, such as 127.0.0.1:9100".to_owned(),
            },
        })
    }
}

/// The token in a file, which others must not be able to read.
pub fn read_token(file: &Path) -> Result<String, Error> {
    let refused = |cause: String| Error::Usage {
        sentence: format!("cannot use the token in {}", file.display()),
        cause,
        advice: "a file with one line that only its owner can read: \
                 `openssl rand -hex 32 > FILE; chmod 600 FILE`"
            .to_owned(),
    };
    let text = std::fs::read_to_string(file).map_err(|error| refused(error.to_string()))?;
    let token = text.trim();
    let metadata = std::fs::metadata(file).map_err(|error| refused(error.to_string()))?;
    if metadata.mode() & 0o077 != 0 {
        return Err(refused("others than its owner may read or write it".to_owned()));
    }
    if token.len() < TOKEN_BYTES_MIN || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(refused(format!("a token has {TOKEN_BYTES_MIN} or more printable characters")));
    }
    Ok(token.to_owned())
}

/// A shorter token could be guessed.
const TOKEN_BYTES_MIN: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_metrics_of_a_group_are_beside_those_of_the_bench() {
        for (file, expected) in [
            ("/x/last.prom", "/x/last.group.prom"),
            ("/x/metrics", "/x/metrics.group"),
            ("/x.d/a.b.prom", "/x.d/a.b.group.prom"),
            (".hidden", ".hidden.group"),
        ] {
            assert_eq!(of_group(Path::new(file)), Path::new(expected));
        }
    }

    #[test]
    fn a_group_is_written_only_beside_a_file() {
        let bench = Identity::new(Kind::Bench, "x");
        let group = bench.within(Kind::Serve, "embedded group of 2 nodes");
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("last.prom");
        let write = |file: &Path, has_group: bool| {
            let (bench, group) = (bench.clone(), group.clone());
            let snapshot = move || {
                let group = has_group.then(|| Box::new(group.snapshot()));
                Snapshot { group, ..bench.snapshot() }
            };
            let watched =
                Watched { snapshot: Arc::new(snapshot), is_ready: Arc::new(|| true), by_file: None };
            Publication { watched, _sockets: [None, None], address: None, file: None }.write(file)
        };
        write(&file, false).unwrap();
        assert!(!of_group(&file).exists());
        write(&file, true).unwrap();
        let text = |file: &Path| std::fs::read_to_string(file).unwrap();
        assert!(text(&file).contains("kind=\"bench\"") && !text(&file).contains("kind=\"serve\""));
        assert!(text(&of_group(&file)).contains("kind=\"serve\""));
        write(Path::new("/dev/null"), true).unwrap();
        assert!(!Path::new("/dev/null.group").exists());
        assert!(write(&directory.path().join("missing/last.prom"), true).is_err());
    }
}
