//! Where snapshots come from.

use crate::error::Error;
use crate::live::{FILE_SOCKETS, SOCKETS};
use crate::names;
use metrics::Snapshot;
use std::collections::BTreeSet;
use std::io;
use std::str::FromStr;
use std::time::Duration;

/// How long a metrics address may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest answer that is read: the counters of some thousand clients.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// What is watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// Every process of this user on this host; of every user, if this user is root.
    All,
    /// One process.
    Process(u32),
    /// The process that answers on a metrics address: `10.0.0.1:9100`.
    Address(String),
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(pid) = text.parse::<u32>().ok().filter(|pid| *pid > 0) {
            return Ok(Self::Process(pid));
        }
        let address = text.strip_prefix("http://").unwrap_or(text).trim_end_matches('/');
        let has_port = address.rsplit_once(':').is_some_and(|(host, port)| {
            !host.is_empty() && !host.contains('/') && port.parse::<u16>().is_ok_and(|port| port > 0)
        });
        let wanted = "the number of a process, or the metrics address of one, such as 10.0.0.1:9100";
        has_port.then(|| Self::Address(address.to_owned())).ok_or_else(|| wanted.to_owned())
    }
}

/// A process that can be asked for its counters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// A process of this user on this host, or of any user, if this user is root.
    Process(u32),
    /// The process behind a metrics address.
    Address(String),
    /// The embedded group within such a process, a bench.
    Group(Box<Source>),
}

/// Why a process tells nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Silent {
    /// The process, unless it is behind an address.
    pid: Option<u32>,
    /// `process 4711`.
    pub who: String,
    /// The cause.
    pub cause: String,
    /// What to do.
    advice: String,
    /// Whether there is no such process, or not any more.
    pub has_ended: bool,
}

impl Silent {
    /// Whether this may be the process of this number.
    pub fn may_be(&self, pid: u32) -> bool {
        self.pid.is_none_or(|own| own == pid)
    }

    /// Process 7, which tells nothing for this reason.
    #[cfg(test)]
    pub fn for_test(cause: &str, has_ended: bool) -> Self {
        let (who, cause, advice) = ("process 7".into(), cause.into(), "wait".into());
        Self { pid: Some(7), who, cause, advice, has_ended }
    }
}

impl From<Silent> for Error {
    fn from(silent: Silent) -> Self {
        let sentence = format!("{} cannot be watched", silent.who);
        Self::Usage { sentence, cause: silent.cause, advice: silent.advice }
    }
}

/// What the processes that are watched have told.
#[derive(Debug, Default)]
pub struct Answers {
    /// A snapshot of each process: servers first, then in the order of their numbers.
    pub snapshots: Vec<Snapshot>,
    /// The processes that run, but tell nothing.
    pub silent: Vec<Silent>,
}

impl Answers {
    /// The same with embedded groups beside the benches that they are within.
    pub fn with_groups(mut self) -> Self {
        let groups: Vec<_> = self.snapshots.iter_mut().filter_map(|one| one.group.take()).collect();
        self.snapshots.extend(groups.into_iter().map(|group| *group));
        self.snapshots.sort_by_key(|snapshot| (snapshot.process.kind, snapshot.process.pid));
        self
    }
}

impl Target {
    /// The processes to ask.
    pub fn sources(&self) -> Vec<Source> {
        match self {
            Self::All => {
                let processes = SOCKETS.processes().into_iter().chain(SOCKETS.processes_of_others());
                // One number may be in both, of a process that was killed and of one that runs.
                processes.collect::<BTreeSet<u32>>().into_iter().map(Source::Process).collect()
            }
            Self::Process(pid) => vec![Source::Process(*pid)],
            Self::Address(address) => vec![Source::Address(address.clone())],
        }
    }

    /// Asks all processes at once, so that a slow one does not delay the others. `token` is shown
    /// to an address. Servers count by file for the time `by_file`.
    ///
    /// # Errors
    /// The process that was asked for is not there.
    pub fn ask(&self, token: Option<&str>, by_file: Option<Duration>) -> Result<Answers, Error> {
        let sources = self.sources();
        let answers = std::thread::scope(|scope| {
            let asked = sources.iter().map(|source| scope.spawn(|| source.ask(token, by_file)));
            let asked: Vec<_> = asked.collect();
            asked.into_iter().filter_map(|thread| thread.join().ok()).collect::<Vec<_>>()
        });
        let mut found = Answers::default();
        for answer in answers {
            match answer {
                Ok(snapshot) => found.snapshots.push(snapshot),
                Err(silent) if silent.has_ended && *self != Self::All => return Err(silent.into()),
                Err(silent) if silent.has_ended => {}
                Err(silent) => found.silent.push(silent),
            }
        }
        found.snapshots.sort_by_key(|snapshot| (snapshot.process.kind, snapshot.process.pid));
        Ok(found)
    }
}

impl Source {
    /// The process that answers.
    pub fn process(&self) -> &Self {
        if let Self::Group(process) = self { process } else { self }
    }

    /// Asks the process for its snapshot. The system knows which process that is; what the process
    /// says is not trusted with that.
    ///
    /// # Errors
    /// The process tells nothing, or nothing that this version can read.
    pub fn ask(&self, token: Option<&str>, by_file: Option<Duration>) -> Result<Snapshot, Silent> {
        match self {
            Self::Process(pid) => {
                let text = read(*pid, by_file).map_err(|error| silent(*pid, &error))?;
                let mut snapshot = parse(Some(*pid), &format!("process {pid}"), &text)?;
                snapshot.process.pid = *pid;
                snapshot.group.iter_mut().for_each(|group| group.process.pid = *pid);
                Ok(snapshot)
            }
            Self::Group(process) => process.ask(token, by_file),
            Self::Address(address) => {
                parse(None, &format!("the process at {address}"), &ask(address, token, by_file)?)
            }
        }
    }
}

fn parse(pid: Option<u32>, who: &str, text: &[u8]) -> Result<Snapshot, Silent> {
    Snapshot::from_json(text).map_err(|error| Silent {
        pid,
        who: who.to_owned(),
        // It may quote what another user's process has told.
        cause: names::escaped(error.to_string().as_bytes()),
        advice: "run the process and `trunkline top` of one version".to_owned(),
        has_ended: false,
    })
}

/// Reads the snapshot of a process. Only servers count by file.
///
/// A socket of this user may be one that a killed process has left, and the number another user's
/// process by now.
fn read(pid: u32, by_file: Option<Duration>) -> io::Result<Vec<u8>> {
    if let Some(time) = by_file {
        let question = time.as_secs().to_string();
        if FILE_SOCKETS.processes().contains(&pid)
            && let Some(read) = unless_gone(FILE_SOCKETS.ask(pid, &question))
        {
            return read;
        }
        if FILE_SOCKETS.processes_of_others().contains(&pid)
            && let Some(read) = unless_gone(FILE_SOCKETS.read_of_others(pid, &question))
        {
            return read;
        }
    }
    unless_gone(SOCKETS.read(pid)).unwrap_or_else(|| SOCKETS.read_of_others(pid, ""))
}

/// What was read, unless nobody is there.
fn unless_gone(read: io::Result<Vec<u8>>) -> Option<io::Result<Vec<u8>>> {
    Some(read).filter(|read| !matches!(read, Err(error) if is_gone(error)))
}

fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

/// Asks a metrics address for a snapshot.
fn ask(address: &str, token: Option<&str>, by_file: Option<Duration>) -> Result<Vec<u8>, Silent> {
    let agent = ureq::Agent::config_builder()
        .timeout_global(Some(ANSWER_TIMEOUT))
        .max_redirects(0)
        .proxy(None)
        .build()
        .new_agent();
    // The address checks the host against web sites that mislead browsers; this is none.
    let by_file = by_file.map(|time| format!("?files={}", time.as_secs())).unwrap_or_default();
    let mut request = agent.get(format!("http://{address}/snapshot{by_file}")).header("Host", "localhost");
    if let Some(token) = token {
        request = request.header("Authorization", &format!("Bearer {token}"));
    }
    let answer = request
        .call()
        .and_then(|mut answer| answer.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_vec());
    answer.map_err(|error| Silent {
        pid: None,
        who: format!("the process at {address}"),
        cause: error.to_string(),
        has_ended: false,
        advice: match error {
            ureq::Error::StatusCode(401) => "--token FILE with the token of its --metrics-token".to_owned(),
            ureq::Error::StatusCode(_) => "the address that a process was given by --metrics".to_owned(),
            _ => "look whether the process runs with --metrics, and whether a firewall lets you reach it"
                .to_owned(),
        },
    })
}

/// Whose processes can be seen, to be said after what they are: root sees those of every user.
pub(super) fn whose() -> &'static str {
    if rustix::process::geteuid().is_root() { "" } else { " of this user" }
}

fn silent(pid: u32, error: &io::Error) -> Silent {
    let has_ended = is_gone(error);
    let cause = match error.kind() {
        _ if has_ended => format!("it is no trunkline serve, mount, bench or agent{}", whose()),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "it does not answer".to_owned(),
        _ => error.to_string(),
    };
    let advice = match has_ended {
        true => "`trunkline top` without a number shows those that can",
        false => "look what the process waits for: its log, and `ps -o stat,wchan PID`",
    };
    Silent { pid: Some(pid), who: format!("process {pid}"), cause, advice: advice.to_owned(), has_ended }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_process_or_an_address() {
        assert_eq!("4711".parse(), Ok(Target::Process(4711)));
        for address in ["10.0.0.1:9100", "[::1]:9100", "node1:80"] {
            assert_eq!(address.parse(), Ok(Target::Address(address.to_owned())));
            assert_eq!(format!("http://{address}/").parse(), Ok(Target::Address(address.to_owned())));
        }
        for wrong in ["", "0", "-1", "x", "99999999999", "host:", ":80", "host:0", "http://a/b:1"] {
            assert!(wrong.parse::<Target>().is_err(), "{wrong}");
        }
    }
}
