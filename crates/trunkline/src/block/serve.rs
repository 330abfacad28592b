//! `trunkline block serve`: serves memory, files and block devices over NVMe/TCP and NVMe/RDMA.

pub(super) mod address;
pub(super) mod config;
mod control;
mod fences;
mod hosts;
mod node;
mod open;
mod owners;
mod partner;
mod reservations;
mod secrets;
mod state;

use crate::error::Error;
use crate::live::{self, Identity, MetricsArgs, Publication, Watched};
use crate::output;
use crate::service_manager;
use address::Address;
use clap::Args;
use config::{Allow, Settings, Source};
use fences::Fences;
pub(super) use hosts::host_id;
use open::Opened;
use owners::{Given, Name, Owners};
use partner::Looks;
use reservations::Reservations;
pub(super) use secrets::advice;
use server::config::size;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use state::{State, Subsystem};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use target::{Access, Hosts, Node, Nqn, NqnError, Target, Transport};

/// How often a server that has no signal looks whether it still serves.
const CHECK: Duration = Duration::from_secs(1);

/// Serve block volumes over NVMe/TCP and NVMe/RDMA: memory, files or block devices, to hosts that
/// connect with `nvme connect-all`.
///
/// Each --volume is a namespace. A file or device is locked while it is served, and refused if
/// something is on it; once it was served, its identity is kept in the state directory, and it is
/// taken as what it was. Hosts that are allowed here see all volumes; a file says which of them
/// sees which, with groups of hosts. Hosts are admitted by their names, which are claims and no
/// proof, unless the file has secrets by which they prove who they are; nothing is encrypted: serve
/// on a network that only they reach. docs/BLOCK.md says what is promised.
///
/// SIGHUP reads the configuration file again, and takes over which hosts see which volumes, their
/// secrets for connections that authenticate from then on, and which node owns the volumes.
/// SIGTERM and SIGINT end the connections, wait for commands that have begun (5 s at most) and end;
/// a second one ends at once.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct ServeArgs {
    /// Configuration file (TOML).
    #[arg(short, long, value_name = "FILE.toml", conflicts_with_all = ["volume", "listen", "allow", "state", "nqn", "loops"])]
    config: Option<PathBuf>,
    /// A volume: a file, a block device, or memory (`mem:2GiB`), which is lost when the server
    /// ends. Name a device by /dev/disk/by-id, since other names change. May be repeated.
    #[arg(long, value_name = "FILE|DEVICE|mem:SIZE")]
    volume: Vec<Source>,
    /// Address on which hosts connect, `10.0.0.1:4420` or `[fd00::1]:4420`; discovery tells it to
    /// them. With `rdma:` in front (`rdma:10.0.0.1:4420`) they connect over RDMA. May be repeated;
    /// then addresses are those of node A and of node B in turn, and so are volumes: the addresses
    /// of its node are a host's best way to a volume [default: 127.0.0.1:4420].
    #[arg(long, value_name = "[rdma:]ADDR:PORT")]
    listen: Vec<Address>,
    /// A host that may connect, by its NQN (/etc/nvme/hostnqn on the host), or `any`. May be
    /// repeated; without it no host may.
    #[arg(long, value_name = "HOSTNQN|any")]
    allow: Vec<Allow>,
    /// Name of the subsystem [default: one with a random UUID, which the state directory keeps].
    #[arg(long, value_name = "NQN", value_parser = nqn)]
    nqn: Option<Nqn>,
    /// Directory that keeps the identity of the subsystem and of its volumes, what hosts have
    /// reserved, and which hosts are fenced [default:
    /// /var/lib/trunkline/block for root, else ~/.local/state/trunkline/block].
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Serve files and devices that were not served before whatever is on them: it will be
    /// overwritten.
    #[arg(long)]
    force: bool,
    /// Number of event loops, each a thread [default: one for each CPU].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    loops: Option<u16>,
    /// Be one node only; the other one is a process of its own, with the same file, which takes
    /// the volumes over if this one ends or hangs. Volumes are files and devices.
    #[arg(long, value_name = "NODE", requires = "config", ignore_case = true)]
    node: Option<Name>,
    #[command(flatten)]
    metrics: MetricsArgs,
}

const EXAMPLES: &str = "Examples:\n  \
    trunkline block serve --volume mem:2GiB --listen 127.0.0.1:4420 --allow any\n  \
    trunkline block serve --volume /dev/disk/by-id/nvme-eui.0001 --volume /srv/vm.img \\\n      \
        --listen 10.0.0.1:4420 --listen 10.0.1.1:4420 \\\n      \
        --allow nqn.2014-08.org.nvmexpress:uuid:4c4c4544-0042-3510-8047-b7c04f313233\n  \
    trunkline block serve --volume /srv/vm.img --listen rdma:10.0.0.1:4420 --allow any\n  \
    nvme connect-all -t tcp -a 10.0.0.1 -s 4420     # on the host, as root";

fn nqn(text: &str) -> Result<Nqn, NqnError> {
    Nqn::new(text)
}

/// Serves until a signal ends the server.
pub fn run(args: &ServeArgs) -> Result<ExitCode, Error> {
    server::map_large_allocations();
    let settings = args.settings()?;
    let mut state = State::open(settings.state.as_deref(), settings.node.is_some())?;
    // Before the start, so that a signal during the start is not lost.
    let signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(Error::Signals)?;
    let subsystem = state.subsystem(settings.nqn.as_ref())?;
    let mut reservations = Reservations::open(&state)?;
    let mut fences = Fences::open(&state)?;
    let mut opened = open::all(&settings.volumes, &mut state, args.force)?;
    let (sender, events) = mpsc::channel();
    // Who fences a host looks for servers once that is on disk. One that cannot be found yet reads
    // it below, before it serves anybody.
    let socket = control::listen(sender.clone()).inspect_err(|error| {
        tracing::warn!(
            %error,
            "`trunkline block list` and its like will not find this server, and fence no host here"
        );
    });
    // Hosts learn the identities only after they are kept.
    state.begin()?;
    reservations.begin(&state)?;
    fences.begin(&mut state)?;
    state.save()?;
    let hosts = opened.iter().map(|opened| (opened.export.nsid, opened.export.hosts.clone())).collect();
    let access = settings.access();
    let name = subsystem.nqn.clone();
    let mut config = target::Config::new(name, &subsystem.serial, fences.apply(&access), Vec::new());
    config.listen.clone_from(&settings.listen);
    config.elsewhere.clone_from(&settings.elsewhere);
    config.host_ids.clone_from(&settings.host_ids);
    config.secrets.clone_from(&settings.secrets);
    config.reservations = Some(Arc::new(reservations));
    config.loops = settings.loops.map_or(config.loops, usize::from);
    if let Some(bytes) = settings.memory_bytes {
        config.limits.memory_bytes = bytes;
    }
    let looks = settings.node.map(|_| Looks::start()).transpose();
    let looks =
        looks.inspect_err(|error| tracing::warn!(%error, "nobody looks how the other node is configured"));
    let looks = looks.ok().flatten();
    let (target, owners) = match settings.node {
        Some(node) => node::start(node, &config, (&mut opened, &fences), &state, looks.as_ref())?,
        None => start(&config, &settings, (&mut opened, &fences), &state)?,
    };
    state.started();
    let greeting = greeting(&target, (&config, settings.node), &opened);
    let published = publish(args, &target, &subsystem)?;
    let mut serving =
        Serving { args, settings, state, subsystem, opened, owners, access, hosts, fences, looks, target };
    pass_signals(signals, sender);
    output::print(&greeting)?;
    service_manager::ready("serving");
    let ended = serving.run(&events);
    drop(socket);
    published.count();
    ended?;
    stop(serving.target, &events)
}

/// Starts both nodes, or the only one, in this process.
fn start(
    config: &target::Config,
    settings: &Settings,
    (opened, fences): (&mut [Opened], &Fences),
    state: &State,
) -> Result<(Arc<Target>, Owners), Error> {
    let owners = Owners::take(opened, &settings.nodes(), state)?;
    let mut exports: Vec<_> = opened.iter().filter_map(Opened::export).collect();
    exports.iter_mut().for_each(|export| export.hosts = fences.apply(&export.hosts));
    let target = Target::start(config, &exports).map_err(|error| explain(&error))?;
    Ok((Arc::new(target), owners))
}

/// Lets others watch the server: `trunkline top`, and the metrics address.
fn publish(args: &ServeArgs, target: &Target, subsystem: &Subsystem) -> Result<Publication, Error> {
    let identity = Identity::new(metrics::Kind::Block, &subsystem.nqn.to_string());
    let (watcher, last) = (target.watcher(), Mutex::new(None));
    let snapshot = move || {
        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
        // The last counts stay when the target has ended.
        if let Some(overview) = watcher.overview() {
            *last = Some(overview);
        }
        let overview = last.clone().unwrap_or_default();
        live::block::snapshot(&identity, &overview)
    };
    let watched = Watched { snapshot: Arc::new(snapshot), is_ready: Arc::new(|| true), by_file: None };
    let published = Publication::new(&args.metrics, watched)?;
    if let Some(address) = published.address {
        output::print(&format!("metrics on http://{address}/metrics\n"))?;
    }
    Ok(published)
}

/// What runs: the target, and all that it was made of.
struct Serving<'a> {
    args: &'a ServeArgs,
    settings: Settings,
    state: State,
    subsystem: Subsystem,
    opened: Vec<Opened>,
    owners: Owners,
    /// Which hosts may connect, as the file said when it was last read; and which see a volume, by
    /// NSID.
    access: Access,
    hosts: BTreeMap<u32, Access>,
    /// Which of them are refused nevertheless.
    fences: Fences,
    /// Looks how the other node is configured, if that is another process.
    looks: Option<Looks>,
    target: Arc<Target>,
}

/// What the thread that serves waits for.
enum Event {
    Signal(i32),
    Question(control::Question),
}

impl From<control::Question> for Event {
    fn from(question: control::Question) -> Self {
        Self::Question(question)
    }
}

/// What was started, and what to type on a host.
fn greeting(target: &Target, (config, node): (&target::Config, Option<Node>), opened: &[Opened]) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let is_pair = node.is_some() || config.listen.iter().any(|listen| listen.node != Node::A);
    for (address, listen) in target.addresses().iter().zip(&config.listen) {
        let node = if is_pair { format!(" (node {})", listen.node) } else { String::new() };
        let over = if listen.transport == Transport::Rdma { " over RDMA" } else { "" };
        let _ = writeln!(text, "listening on {address}{over}{node}");
    }
    let _ = writeln!(text, "subsystem {}", config.subsystem);
    for Opened { export, source, warnings, .. } in opened {
        let block = export.facts.block.bytes();
        let size = size::in_words(export.facts.blocks * u64::from(block));
        let owner = if is_pair { format!(", node {}", export.owner) } else { String::new() };
        let nsid = export.nsid;
        let _ = writeln!(text, "namespace {nsid}: {source}, {size}, blocks of {block} bytes{owner}");
        match &export.hosts {
            Access::Any | Access::AnyBut(_) => {}
            Access::Only(hosts) if hosts.is_empty() => {
                let _ = writeln!(text, "warning: no host sees namespace {}", export.nsid);
            }
            Access::Only(hosts) => {
                for host in hosts {
                    let _ = writeln!(text, "  for {host}");
                }
            }
        }
        for warning in warnings {
            let _ = writeln!(text, "warning: {warning}");
        }
    }
    if config.hosts == Access::Only(BTreeSet::new()) {
        let _ = writeln!(text, "no host may connect: allow some by their NQN (--allow)");
    }
    let _ = writeln!(text, "on a host, as root:");
    let transports: BTreeSet<&str> = config.listen.iter().map(|listen| listen.transport.name()).collect();
    for transport in transports {
        let _ = writeln!(text, "  modprobe nvme-{transport}");
    }
    let ports = || target.addresses().iter().zip(config.listen.iter().map(|listen| listen.transport.name()));
    for (address, transport) in ports() {
        let (ip, port) = (address.ip(), address.port());
        let _ = writeln!(text, "  nvme connect -t {transport} -a {ip} -s {port} -n {}", config.subsystem);
    }
    if let Some((first, transport)) = ports().next() {
        let (ip, port) = (first.ip(), first.port());
        let all = "     # all of these at once";
        let _ = writeln!(text, "  nvme connect-all -t {transport} -a {ip} -s {port}{all}");
    }
    let secured: BTreeSet<&Nqn> = config.secrets.keys().filter(|host| config.hosts.allows(host)).collect();
    let all_secured =
        matches!(&config.hosts, Access::Only(hosts) if hosts.iter().eq(secured.iter().copied()));
    text.push_str(&advice(secured.iter().map(|host| host.as_str()), all_secured));
    text.push_str("ready\n");
    text
}

/// Why the target does not start.
fn explain(error: &target::Error) -> Error {
    let cause = std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string);
    let (sentence, cause, advice) = match error {
        target::Error::Listen { .. } => {
            (error.to_string(), cause, "an address of this host (ip address) with a free port (ss -ltn)")
        }
        target::Error::ListenRdma { .. } => (
            error.to_string(),
            cause,
            "an address of an RDMA device (rdma link), or the address without rdma: for TCP",
        ),
        target::Error::Unspecified(address) => (
            format!("cannot listen on {address}"),
            "it stands for every address of this host, and discovery tells hosts where to connect".to_owned(),
            "a --listen for each address that hosts are to use",
        ),
        target::Error::NoAddress => {
            ("there is nowhere to listen".to_owned(), cause, "--listen 10.0.0.1:4420")
        }
        target::Error::Volume { .. } => (error.to_string(), cause, "an nsid of its own, from 1 to 1024"),
        target::Error::Reservations { .. } => (
            error.to_string(),
            cause,
            "restore the state directory from a backup, with its reservations.toml",
        ),
        target::Error::Identity(..) => (
            "cannot serve the volumes".to_owned(),
            cause,
            "each file or device once, and a uuid of its own in the state directory",
        ),
        target::Error::Owner { .. } | target::Error::Node(_) | target::Error::Split => {
            (error.to_string(), cause, "an address of that node, or another owner for the volume")
        }
        target::Error::Facts { .. } => {
            (error.to_string(), cause, "the drive that it was, or remove its entry from the state directory")
        }
        target::Error::Forward { .. } => {
            (error.to_string(), cause, "a state directory on a local file system, with a short name")
        }
        target::Error::Loop(_) => {
            (error.to_string(), cause, "more descriptors (ulimit -n), or fewer --loops")
        }
    };
    Error::Refused { sentence, cause, advice: advice.to_owned() }
}

impl Serving<'_> {
    /// Serves until a signal ends it, or a loop has failed.
    fn run(&mut self, events: &Receiver<Event>) -> Result<(), Error> {
        loop {
            match events.recv_timeout(CHECK) {
                Ok(Event::Signal(SIGHUP)) => {
                    service_manager::reloading();
                    match self.reload() {
                        Ok(text) => output::print_to_stderr(&text),
                        Err(error) => output::print_to_stderr(&format!("not reloaded: {error}\n")),
                    }
                    service_manager::ready("serving");
                }
                Ok(Event::Question(question)) => {
                    let answer = self.handle(&question.text);
                    question.answer(&answer);
                }
                Ok(Event::Signal(_)) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Err(RecvTimeoutError::Timeout) => {
                    if let Some(cause) = self.target.failure() {
                        return Err(Error::Refused {
                            sentence: "the server cannot go on".to_owned(),
                            cause,
                            advice: "start it again; hosts connect again by themselves".to_owned(),
                        });
                    }
                }
            }
        }
    }

    /// Reads the file again. Which hosts there are, what they see, and who owns what is taken over;
    /// all else stays.
    fn reload(&mut self) -> Result<String, Error> {
        if self.args.config.is_none() {
            return Ok("nothing to reload: there is no configuration file (-c)\n".to_owned());
        }
        let mut new = self.args.settings()?;
        let access = new.access();
        let mut left: Vec<&Opened> = self.opened.iter().collect();
        let (mut volumes, mut moves) = (Vec::new(), Vec::new());
        for wanted in std::mem::take(&mut new.volumes) {
            let at = left.iter().position(|one| {
                one.source == wanted.source && wanted.nsid.is_none_or(|nsid| nsid == one.export.nsid)
            });
            if let Some(at) = at {
                let nsid = left.remove(at).export.nsid;
                volumes.push((nsid, wanted.hosts));
                moves.extend(wanted.owner.map(|owner| (nsid, owner)));
            } else {
                tracing::warn!(volume = %wanted.source, "not taken over: served only after the next start");
            }
        }
        for gone in left {
            tracing::warn!(
                volume = %gone.source, "no longer in the file: no host sees it until the next start"
            );
            volumes.push((gone.export.nsid, Access::Only(BTreeSet::new())));
        }
        self.access = access;
        self.hosts.extend(volumes);
        self.settings.named.clone_from(&new.named);
        self.settings.host_ids.clone_from(&new.host_ids);
        self.settings.secrets.clone_from(&new.secrets);
        self.set_hosts();
        if let Some(looks) = &self.looks {
            looks.ask();
        }
        let rest = Settings { volumes: Vec::new(), ..self.settings.clone() };
        if new != rest {
            tracing::warn!("not taken over: what else the file says counts only after the next start");
        }
        let mut text = format!("reloaded: hosts of {} volumes\n", self.opened.len());
        for (nsid, owner) in moves {
            let given = self.give(nsid, owner)?;
            if given != Given::Already {
                let _ = writeln!(text, "namespace {nsid}: node {owner} {}", given.in_words());
            }
        }
        Ok(text)
    }

    /// As the file says. Of two processes that read it the owner's does it.
    fn give(&mut self, nsid: u32, owner: Node) -> Result<Given, Error> {
        let is_other = |node| {
            let volumes = self.target.overview().volumes;
            volumes.iter().any(|one| one.nsid == nsid && one.owner != node)
        };
        if self.settings.node.is_some_and(is_other) {
            return Ok(Given::Already);
        }
        self.owners.give(&self.target, nsid, owner)
    }
}

impl Serving<'_> {
    /// Tells the target which hosts there are.
    fn set_hosts(&self) {
        let left = |(nsid, hosts): (&u32, &Access)| (*nsid, self.fences.apply(hosts));
        self.target.set_hosts(&Hosts {
            access: self.fences.apply(&self.access),
            ids: self.settings.host_ids.clone(),
            secrets: self.settings.secrets.clone(),
            volumes: self.hosts.iter().map(left).collect(),
        });
    }
}

fn pass_signals(mut signals: Signals, events: Sender<Event>) {
    std::thread::spawn(move || {
        for signal in signals.forever() {
            // Once the target has stopped, nobody listens, and the program ends.
            let _ = events.send(Event::Signal(signal));
        }
    });
}

/// Ends the target; a second signal does not wait for commands that have begun.
fn stop(target: Arc<Target>, events: &Receiver<Event>) -> Result<ExitCode, Error> {
    service_manager::stopping();
    tracing::info!("ending: commands that have begun are finished");
    let stopping = std::thread::spawn(move || target.stop());
    while !stopping.is_finished() {
        if let Ok(Event::Signal(signal)) = events.recv_timeout(Duration::from_millis(20))
            && signal != SIGHUP
        {
            // The status is that of a shell for a signal.
            return Ok(ExitCode::from(u8::try_from(128 + signal).unwrap_or(u8::MAX)));
        }
    }
    Ok(ExitCode::SUCCESS)
}
