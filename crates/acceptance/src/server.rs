//! A server to measure: any program that a shell command starts.

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use client::{Mount, Settings};
use rustix::process::{Pid, Signal, kill_process};

/// How long a server may take until it can be mounted.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a server may take to end before it is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(3);
/// The interval between two checks.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// How many bytes of a failed server's output are shown, from its end.
const OUTPUT_BYTES: usize = 400;

/// The ports that servers are given. They are below the ports that Linux gives to outgoing
/// connections (`net.ipv4.ip_local_port_range` begins at 32768).
const PORTS: Range<u16> = 10_000..32_768;
/// The number of ports that are tried.
const PORTS_TRIED: usize = 64;

/// A server and the command that starts it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// The name of the server in the table.
    pub name: String,
    /// The shell command, for `sh -c`. `PORT` and `MOUNT_PORT` are the ports of 127.0.0.1 for NFS
    /// and MOUNT. `EXPORT` is an empty directory. The server exports it, or memory of its own, by
    /// that path.
    pub command: String,
}

impl std::str::FromStr for Peer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((name, command)) if !name.trim().is_empty() && !command.trim().is_empty() => {
                Ok(Self { name: name.trim().to_owned(), command: command.trim().to_owned() })
            }
            _ => Err("write NAME=COMMAND, as in my-server='exec my-server --port $PORT'".to_owned()),
        }
    }
}

/// A running server, which is stopped when the value is dropped.
#[derive(Debug)]
pub struct Running {
    /// The name of the server in the table.
    pub name: String,
    /// The port of NFS.
    pub port: u16,
    /// The port of MOUNT.
    pub mount_port: u16,
    /// The path of the export.
    pub export: PathBuf,
    child: Child,
}

fn free_port() -> io::Result<u16> {
    // The port must be none that the system gives to outgoing connections: the check for a server
    // that does not listen yet could be given that very port and connect to itself.
    let from = RandomState::new().hash_one(()) as usize;
    let some = PORTS.cycle().skip(from % PORTS.len()).take(PORTS_TRIED);
    let listen = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port));
    let free = some.map(listen).find(Result::is_ok);
    let bound = free.unwrap_or_else(|| listen(0))?;
    Ok(bound.local_addr()?.port())
}

impl Running {
    /// Starts a server in the directory `directory` and waits until it can be mounted. With
    /// `one_port` the server serves MOUNT on the port of NFS.
    ///
    /// # Errors
    /// The cause as text.
    pub fn start(peer: &Peer, directory: &Path, one_port: bool) -> Result<Self, String> {
        let explain = |what: &str, error: io::Error| format!("{}: {what}: {error}", peer.name);
        let port = free_port().map_err(|error| explain("no free port", error))?;
        let another = if one_port { Ok(port) } else { free_port() };
        let mount_port = another.map_err(|error| explain("no free port", error))?;
        let export = directory.join("export");
        std::fs::create_dir_all(&export).map_err(|error| explain("cannot make its directory", error))?;
        let output = directory.join("output");
        let log = File::create(&output).map_err(|error| explain("cannot keep its output", error))?;
        let errors = log.try_clone().map_err(|error| explain("cannot keep its output", error))?;
        let child = Command::new("sh")
            .args(["-c", &peer.command])
            .envs([("PORT", port.to_string()), ("MOUNT_PORT", mount_port.to_string())])
            .env("EXPORT", &export)
            .current_dir(directory)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .spawn()
            .map_err(|error| explain("cannot be started", error))?;
        let mut running = Self { name: peer.name.clone(), port, mount_port, export, child };
        running.wait_until_ready().map_err(|reason| {
            let said = std::fs::read(&output).unwrap_or_default();
            let tail = said.get(said.len().saturating_sub(OUTPUT_BYTES)..).unwrap_or_default();
            format!("{}: {reason}: {}", peer.name, String::from_utf8_lossy(tail).trim())
        })?;
        Ok(running)
    }

    fn wait_until_ready(&mut self) -> Result<(), String> {
        let until = Instant::now() + START_TIMEOUT;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(format!("it ended at once ({status})"));
            }
            let tried = TcpStream::connect(address).map_err(|error| error.to_string());
            let tried = tried.and_then(|_| self.mount(1).map_err(|error| error.to_string()));
            match tried {
                Ok(_) => return Ok(()),
                Err(reason) if Instant::now() > until => {
                    return Err(format!("it cannot be mounted ({reason})"));
                }
                Err(_) => std::thread::sleep(POLL_INTERVAL),
            }
        }
    }

    /// Mounts the export with our client.
    ///
    /// # Errors
    /// The error of the client.
    pub fn mount(&self, connections: u32) -> client::Result<Mount> {
        let target = format!("127.0.0.1:{}", self.export.display());
        let options =
            format!("noresvport,port={},mountport={},nconnect={connections}", self.port, self.mount_port);
        Mount::with_settings(Settings::from_options(&target, &options)?)
    }

    /// Returns the process and its descendants.
    fn processes(&self) -> Vec<u32> {
        let mut processes = vec![self.child.id()];
        let mut others: Vec<(u32, u32)> = std::fs::read_dir("/proc")
            .into_iter()
            .flatten()
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .filter_map(|pid: u32| Some((pid, stat(pid)?.first()?.parse().ok()?)))
            .collect();
        let mut at = 0;
        while let Some(&parent) = processes.get(at) {
            processes.extend(others.extract_if(.., |(_, of)| *of == parent).map(|(pid, _)| pid));
            at += 1;
        }
        processes
    }

    /// Returns the processor time that the process and its descendants have used, in steps of a
    /// clock tick.
    #[must_use]
    pub fn cpu(&self) -> Duration {
        let tick = rustix::param::clock_ticks_per_second().max(1);
        let ticks = |pid: u32| -> Option<u64> {
            let fields = stat(pid)?;
            // utime and stime are ten and eleven fields after the parent (proc_pid_stat(5)).
            Some(fields.get(10)?.parse::<u64>().ok()? + fields.get(11)?.parse::<u64>().ok()?)
        };
        let all: u64 = self.processes().into_iter().filter_map(ticks).sum();
        Duration::from_secs_f64(all as f64 / tick as f64)
    }

    /// Returns the resident memory of the process and its descendants in bytes.
    #[must_use]
    pub fn resident_bytes(&self) -> u64 {
        let of = |pid: u32| -> Option<u64> {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
            let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
            line.trim().trim_end_matches(" kB").parse::<u64>().ok()
        };
        self.processes().into_iter().filter_map(of).sum::<u64>() * 1024
    }
}

/// Whether a process runs and is not a zombie.
fn is_running(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    status.rsplit_once(')').is_some_and(|(_, fields)| !fields.trim_start().starts_with('Z'))
}

fn signal_all(processes: &[u32], signal: Signal) {
    for pid in processes.iter().copied().filter(|pid| is_running(*pid)) {
        if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
            // A process that has ended meanwhile needs no signal.
            let _ = kill_process(pid, signal);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The descendants are found before the first signal: when a parent ends, its children get
        // another parent.
        let processes = self.processes();
        signal_all(&processes, Signal::TERM);
        let until = Instant::now() + STOP_TIMEOUT;
        while processes.iter().any(|pid| is_running(*pid)) && Instant::now() < until {
            std::thread::sleep(POLL_INTERVAL);
        }
        signal_all(&processes, Signal::KILL);
        // If waiting fails, nothing is left to do.
        let _ = self.child.wait();
    }
}

/// Returns the fields of /proc/PID/stat, beginning with the parent.
fn stat(pid: u32) -> Option<Vec<String>> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = text.rsplit_once(')')?;
    Some(fields.split_whitespace().skip(1).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_a_name_and_a_command() {
        let peer: Peer = "mine=exec mine --port $PORT --x=y".parse().unwrap();
        assert_eq!((peer.name.as_str(), peer.command.as_str()), ("mine", "exec mine --port $PORT --x=y"));
        for wrong in ["mine", "=x", "mine=", " = "] {
            assert!(wrong.parse::<Peer>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_a_server_has_started_ends_with_it() {
        let directory = tempfile::tempdir().unwrap();
        let child = Command::new("sh")
            .args(["-c", "sh -c 'trap \"\" TERM; echo ready; exec sleep 1000' & wait"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn();
        let mut child = child.unwrap();
        let mut first = [0; 6];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut first).unwrap();
        let export = directory.path().to_owned();
        let running = Running { name: "a family".into(), port: 0, mount_port: 0, export, child };
        let processes = running.processes();
        assert_eq!(processes.len(), 2, "{processes:?}");
        drop(running);
        let still = || processes.iter().any(|pid| is_running(*pid));
        let until = Instant::now() + Duration::from_secs(60);
        while still() && Instant::now() < until {
            std::thread::yield_now();
        }
        assert!(!still(), "{processes:?}");
    }

    #[test]
    fn a_server_that_ends_at_once_is_an_error_that_shows_what_it_said() {
        let directory = tempfile::tempdir().unwrap();
        let peer = Peer { name: "broken".into(), command: "echo no such option; exit 3".into() };
        let error = Running::start(&peer, directory.path(), false).unwrap_err();
        assert!(error.contains("broken") && error.contains("no such option"), "{error}");
    }
}
