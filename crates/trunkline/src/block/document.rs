//! What a running `trunkline block serve` tells the other commands of `trunkline block`, and how
//! these find it.

use super::difference::{self, Difference};
use crate::error::Error;
use crate::local_sockets::Directory;
use clap::Args;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The sockets of servers of block volumes.
pub const SOCKETS: Directory = Directory("trunkline-block");
/// The question for a [`Server`].
pub const SHOW: &str = "show";
/// The question that gives a volume to a node: this, an NSID and a letter.
pub const OWN: &str = "own";
/// The question that refuses a host: this and an NQN.
pub const FENCE: &str = "fence";
/// The question that lets it in again.
pub const UNFENCE: &str = "unfence";
/// The version of the document; a reader refuses a higher one.
pub const FORMAT: u32 = 1;

/// What a server answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    /// To [`SHOW`].
    Server(Box<Server>),
    /// It is done: a sentence.
    Done(String),
    /// It is not done.
    Refused {
        /// The error.
        sentence: String,
        /// The cause.
        cause: String,
        /// What to do.
        advice: String,
    },
}

/// A server, its volumes, and who is connected.
#[derive(Debug, Serialize, Deserialize)]
pub struct Server {
    /// [`FORMAT`].
    pub format: u32,
    /// Its process.
    pub pid: u32,
    /// Trunkline's version.
    pub version: String,
    /// The NQN.
    pub subsystem: String,
    /// The serial number.
    pub serial: String,
    /// The state directory.
    pub state: PathBuf,
    /// Where hosts connect.
    pub addresses: Vec<Address>,
    /// The NQNs of hosts that are refused.
    #[serde(default)]
    pub fenced: Vec<String>,
    /// The NQNs of hosts that the options or the file name, whether a volume is for them or not.
    #[serde(default)]
    pub named: Vec<String>,
    /// The NQNs of hosts that must authenticate.
    #[serde(default)]
    pub authenticated: Vec<String>,
    /// A process of the other node has ended, and something that it has forwarded is still
    /// executed.
    #[serde(default)]
    pub finishing: bool,
    /// The processes that answered of a pair whose nodes are processes of their own; none for a
    /// server that is one process.
    #[serde(default)]
    pub processes: Vec<NodeProcess>,
    /// How these differ; who has asked both finds that out.
    #[serde(default)]
    pub differences: Vec<Difference>,
    /// The volumes.
    pub volumes: Vec<Volume>,
    /// The controllers, those for discovery last.
    pub controllers: Vec<Controller>,
}

/// A process that is one node of a pair.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NodeProcess {
    /// The node.
    pub node: String,
    /// The process.
    pub pid: u32,
    /// Its configuration file.
    pub config: PathBuf,
    /// The identifiers that hosts must have here, by NQN.
    #[serde(default)]
    pub host_ids: BTreeMap<String, String>,
    /// The other node.
    pub other: String,
    /// Whether the process of the other node is connected to this one.
    pub has_other: bool,
}

impl NodeProcess {
    /// How the other node is started.
    pub fn start_of_other(&self) -> String {
        format!("trunkline block serve -c {} --node {}", self.config.display(), self.other)
    }
}

/// Where hosts connect.
#[derive(Debug, Serialize, Deserialize)]
pub struct Address {
    /// The address.
    pub address: SocketAddr,
    /// The transport, as `nvme connect -t` names it.
    pub transport: String,
    /// The node whose port it is.
    pub node: String,
}

/// A volume.
#[derive(Debug, Serialize, Deserialize)]
pub struct Volume {
    /// The NSID.
    pub nsid: u32,
    /// A file, a device, or `mem:SIZE`.
    pub source: String,
    /// The UUID.
    pub uuid: String,
    /// The size in bytes.
    pub bytes: u64,
    /// The size of a block in bytes.
    pub block_bytes: u32,
    /// The node that owns it.
    pub owner: String,
    /// `serving`, `moving`, `unreachable` or `lost`.
    pub reach: String,
    /// Whether what is written may be lost with the power until it is flushed.
    pub volatile_cache: bool,
    /// The NQNs of the hosts that see it; `null` for every host.
    pub hosts: Option<Vec<String>>,
    /// What the one who runs the server should know of the drive.
    pub warnings: Vec<String>,
    /// Commands that are being executed.
    pub commands: usize,
    /// READ since the start.
    pub reads: Count,
    /// WRITE since the start.
    pub writes: Count,
    /// All other commands.
    pub others: Count,
}

/// Commands.
#[derive(Debug, Default, Clone, Copy, Serialize, Deserialize)]
pub struct Count {
    /// How many were answered.
    pub count: u64,
    /// Of these, with an error.
    pub errors: u64,
    /// Payload in bytes.
    pub bytes: u64,
}

/// A controller: one connection of a host to a node.
#[derive(Debug, Serialize, Deserialize)]
pub struct Controller {
    /// CNTLID.
    pub cntlid: u16,
    /// Whether it is for discovery alone.
    pub for_discovery: bool,
    /// The host's NQN.
    pub host: String,
    /// The host's identifier.
    pub host_id: String,
    /// The node.
    pub node: String,
    /// Where the host connects from.
    pub peer: Option<SocketAddr>,
    /// Whether the host has enabled it.
    pub is_ready: bool,
    /// I/O queues.
    pub io_queues: usize,
    /// The keep-alive timeout in milliseconds; 0 for none.
    pub keep_alive_ms: u64,
    /// The namespaces that the host sees.
    pub namespaces: Vec<u32>,
}

impl Server {
    /// Whether it has two nodes.
    pub fn is_pair(&self) -> bool {
        self.nodes().len() > 1
    }

    /// The nodes, also one whose process has not answered.
    pub fn nodes(&self) -> BTreeSet<&str> {
        let others = self.processes.iter().map(|process| &*process.other);
        self.addresses.iter().map(|address| &*address.node).chain(others).collect()
    }

    /// The only process of a pair that has answered, if the nodes are processes.
    pub fn lone(&self) -> Option<&NodeProcess> {
        if let [process] = &*self.processes { Some(process) } else { None }
    }

    /// Whether both processes are nodes of one pair.
    fn is_partner_of(&self, other: &Self) -> bool {
        (&self.subsystem, &self.state) == (&other.subsystem, &other.state)
            && self.format <= FORMAT
            && other.format <= FORMAT
    }

    /// Adds what the process of the other node knows: of a volume its owner knows best.
    fn join(&mut self, other: Self) {
        self.differences = difference::between(self, &other);
        let nodes: Vec<String> = other.addresses.iter().map(|one| one.node.clone()).collect();
        let is_better = |volume: &Volume| volume.reach == "serving" && nodes.contains(&volume.owner);
        for volume in other.volumes {
            match self.volumes.iter_mut().find(|known| known.nsid == volume.nsid) {
                Some(known) if is_better(&volume) => *known = volume,
                Some(_) => {}
                None => self.volumes.push(volume),
            }
        }
        // A process that was stopped does not know yet what the other one was told.
        self.fenced.retain(|host| other.fenced.contains(host));
        // Of two that have read different files, the stricter one refuses.
        self.authenticated.extend(other.authenticated);
        self.authenticated.sort_unstable();
        self.authenticated.dedup();
        self.named.extend(other.named);
        self.named.sort_unstable();
        self.named.dedup();
        self.finishing |= other.finishing;
        self.processes.extend(other.processes);
        self.processes.sort_by(|one, next| one.node.cmp(&next.node));
        self.addresses.extend(other.addresses);
        self.addresses.sort_by(|one, next| one.node.cmp(&next.node));
        self.controllers.extend(other.controllers);
        self.controllers.sort_by_key(|one| one.for_discovery);
    }

    /// The controllers for input and output.
    pub fn io_controllers(&self) -> impl Iterator<Item = &Controller> {
        self.controllers.iter().filter(|controller| !controller.for_discovery)
    }
}

/// Which server is asked.
#[derive(Debug, Clone, Args)]
pub struct Which {
    /// The process of the server, if several run. Two processes that are the nodes of a pair count
    /// as one server.
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
}

/// How often a server that does not answer is asked again.
const AGAIN: Duration = Duration::from_millis(200);
const START: &str = "trunkline block serve --help        to see how one is started";

impl Which {
    /// The server of this process.
    pub const fn of(pid: u32) -> Self {
        Self { pid: Some(pid) }
    }

    /// The document of the server.
    pub fn server(&self) -> Result<Server, Error> {
        let mut all = joined(self.asked());
        all.retain(|(pids, _)| self.pid.is_none_or(|pid| pids.contains(&pid)));
        match &*all {
            [] => Err(Error::Refused {
                sentence: "there is no server of block volumes to ask".to_owned(),
                cause: "no `trunkline block serve` of this user runs on this host".to_owned(),
                advice: START.to_owned(),
            }),
            [_] => match all.into_iter().next() {
                Some((pids, answer)) => server_of(pids.first().copied().unwrap_or(0), answer),
                None => Err(unexpected(0)),
            },
            several => {
                let pids: Vec<String> = several
                    .iter()
                    .filter_map(|(pids, _)| pids.first())
                    .map(|pid| format!("--pid {pid}"))
                    .collect();
                Err(Error::Refused {
                    sentence: "it is not clear which server is meant".to_owned(),
                    cause: format!("{} of them run on this host", several.len()),
                    advice: pids.join(", or "),
                })
            }
        }
    }

    /// All servers, and the one that is named in any case.
    fn asked(&self) -> Vec<(u32, io::Result<Answer>)> {
        let mut all = servers();
        if let Some(pid) = self.pid.filter(|pid| all.iter().all(|(known, _)| known != pid)) {
            all.push((pid, ask(pid, SHOW)));
        }
        all
    }

    /// The same, but one that does not answer is asked again until this time: it may be starting.
    pub fn all_by(&self, deadline: Instant) -> Result<Vec<Server>, Error> {
        loop {
            let is_silent = |(pid, answer): &(u32, io::Result<Answer>)| {
                let is_silent = answer.as_ref().is_err_and(|error| !has_ended(error));
                is_silent && self.pid.is_none_or(|named| named == *pid)
            };
            if Instant::now() >= deadline || !self.asked().iter().any(is_silent) {
                return self.all();
            }
            std::thread::sleep(AGAIN);
        }
    }

    /// The documents of all servers that are meant: of all of them if none is named.
    pub fn all(&self) -> Result<Vec<Server>, Error> {
        let all = self.asked();
        if all.is_empty() {
            return self.server().map(|server| vec![server]);
        }
        let all = all.into_iter().map(|(pid, answer)| (pid, server_of(pid, answer)));
        let Some(named) = self.pid else { return all.map(|(_, server)| server).collect() };
        let (named, others): (Vec<_>, Vec<_>) = all.partition(|(pid, _)| *pid == named);
        let named: Vec<Server> = named.into_iter().map(|(_, server)| server).collect::<Result<_, _>>()?;
        // The other process of a pair does what the one that is named does.
        let is_partner = |other: &Server| named.iter().any(|named| named.is_partner_of(other));
        let partners: Vec<Server> =
            others.into_iter().filter_map(|(_, other)| other.ok()).filter(is_partner).collect();
        Ok(named.into_iter().chain(partners).collect())
    }
}

/// Has a server do something; returns what it says.
pub fn order(pid: u32, question: &str) -> Result<String, Error> {
    match ask(pid, question).map_err(|error| unreachable(pid, &error))? {
        Answer::Done(text) => Ok(text),
        Answer::Refused { sentence, cause, advice } => Err(Error::Refused { sentence, cause, advice }),
        Answer::Server(_) => Err(unexpected(pid)),
    }
}

fn server_of(pid: u32, answer: io::Result<Answer>) -> Result<Server, Error> {
    match answer.map_err(|error| unreachable(pid, &error))? {
        Answer::Server(server) if server.format <= FORMAT && !server.addresses.is_empty() => Ok(*server),
        Answer::Refused { sentence, cause, advice } => Err(Error::Refused { sentence, cause, advice }),
        Answer::Server(_) | Answer::Done(_) => Err(unexpected(pid)),
    }
}

/// Two processes that are the nodes of one pair count as one server.
fn joined(servers: Vec<(u32, io::Result<Answer>)>) -> Vec<(Vec<u32>, io::Result<Answer>)> {
    let mut all: Vec<(Vec<u32>, io::Result<Answer>)> = Vec::new();
    for (pid, answer) in servers {
        let Ok(Answer::Server(server)) = answer else {
            all.push((vec![pid], answer));
            continue;
        };
        let partner = all.iter_mut().find_map(|(pids, known)| match known {
            Ok(Answer::Server(known)) if known.is_partner_of(&server) => Some((pids, known)),
            _ => None,
        });
        if let Some((pids, known)) = partner {
            pids.push(pid);
            known.join(*server);
        } else {
            all.push((vec![pid], Ok(Answer::Server(server))));
        }
    }
    all
}

/// All servers that live, also those that do not answer: what they serve nobody knows, and a host
/// is not fenced as long as one of them may go on.
fn servers() -> Vec<(u32, io::Result<Answer>)> {
    let mut pids = SOCKETS.processes();
    pids.extend(SOCKETS.processes_of_others());
    pids.dedup();
    let asked = pids.into_iter().map(|pid| (pid, ask(pid, SHOW)));
    asked.filter(|(_, answer)| !answer.as_ref().is_err_and(has_ended)).collect()
}

/// Whether nobody listens any more: the socket of a process that was killed may still be there.
fn has_ended(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

fn ask(pid: u32, question: &str) -> io::Result<Answer> {
    let document = match SOCKETS.ask(pid, question) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => SOCKETS.read_of_others(pid, question)?,
        answer => answer?,
    };
    serde_json::from_slice(&document).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

fn unreachable(pid: u32, error: &io::Error) -> Error {
    Error::Refused {
        sentence: format!("process {pid} does not answer"),
        cause: error.to_string(),
        advice: "the PID of a `trunkline block serve` of this user, or the same as root".to_owned(),
    }
}

fn unexpected(pid: u32) -> Error {
    Error::Refused {
        sentence: format!("the answer of process {pid} is not understood"),
        cause: "it may be a later version of this program".to_owned(),
        advice: "the program that was started as the server".to_owned(),
    }
}
