//! `trunkline block serve`: serves memory, files and block devices over NVMe/TCP.

mod config;
mod hosts;
mod open;
mod state;

use crate::error::Error;
use crate::output;
use clap::Args;
use config::{Allow, Settings, Source};
use open::Opened;
use server::config::size;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use state::State;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;
use target::{Access, Hosts, Nqn, NqnError, Target};

/// How often a server that has no signal looks whether it still serves.
const CHECK: Duration = Duration::from_secs(1);

/// Serve block volumes over NVMe/TCP: memory, files or block devices, to hosts that connect with
/// `nvme connect-all`.
///
/// Each --volume is a namespace. A file or device is locked while it is served, and refused if
/// something else is recognized on it; once it was served, its identity is kept in the state
/// directory, and it is taken as what it was. Hosts that are allowed here see all volumes; a file
/// says which of them sees which, with groups of hosts. Hosts are admitted by their names, which
/// are claims and no proof: serve on a network that only they reach. docs/BLOCK.md says what is
/// promised.
///
/// SIGHUP reads the configuration file again, and takes over which hosts see which volumes.
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
    /// them. May be repeated [default: 127.0.0.1:4420].
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Vec<SocketAddr>,
    /// A host that may connect, by its NQN (/etc/nvme/hostnqn on the host), or `any`. May be
    /// repeated; without it no host may.
    #[arg(long, value_name = "HOSTNQN|any")]
    allow: Vec<Allow>,
    /// Name of the subsystem [default: one with a random UUID, which the state directory keeps].
    #[arg(long, value_name = "NQN", value_parser = nqn)]
    nqn: Option<Nqn>,
    /// Directory that keeps the identity of the subsystem and of its volumes [default:
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
}

const EXAMPLES: &str = "Examples:\n  \
    trunkline block serve --volume mem:2GiB --listen 127.0.0.1:4420 --allow any\n  \
    trunkline block serve --volume /dev/disk/by-id/nvme-eui.0001 --volume /srv/vm.img \\\n      \
        --listen 10.0.0.1:4420 --listen 10.0.1.1:4420 \\\n      \
        --allow nqn.2014-08.org.nvmexpress:uuid:4c4c4544-0042-3510-8047-b7c04f313233\n  \
    nvme connect-all -t tcp -a 10.0.0.1 -s 4420     # on the host, as root";

fn nqn(text: &str) -> Result<Nqn, NqnError> {
    Nqn::new(text)
}

/// Serves until a signal ends the server.
pub fn run(args: &ServeArgs) -> Result<ExitCode, Error> {
    server::map_large_allocations();
    let settings = args.settings()?;
    let mut state = State::open(settings.state.as_deref())?;
    // Before the start, so that a signal during the start is not lost.
    let signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(Error::Signals)?;
    let subsystem = state.subsystem(settings.nqn.as_ref())?;
    let opened = open::all(&settings.volumes, &mut state, args.force)?;
    // Hosts learn the identities only after they are kept.
    state.save()?;
    let exports: Vec<_> = opened.iter().map(|opened| opened.export.clone()).collect();
    let mut config =
        target::Config::new(subsystem.nqn, &subsystem.serial, settings.access(), settings.listen.clone());
    config.host_ids.clone_from(&settings.host_ids);
    config.loops = settings.loops.map_or(config.loops, usize::from);
    if let Some(bytes) = settings.memory_bytes {
        config.limits.memory_bytes = bytes;
    }
    let target = Target::start(&config, &exports).map_err(|error| explain(&error))?;
    output::print(&greeting(&target, &config, &opened))?;
    let reload = |target: &Target| match reload(target, args, &settings, &opened) {
        Ok(text) => output::print_to_stderr(&text),
        Err(error) => output::print_to_stderr(&format!("not reloaded: {error}\n")),
    };
    wait(target, signals, reload)
}

/// What was started, and what to type on a host.
fn greeting(target: &Target, config: &target::Config, opened: &[Opened]) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    for address in target.addresses() {
        let _ = writeln!(text, "listening on {address}");
    }
    let _ = writeln!(text, "subsystem {}", config.subsystem);
    for Opened { export, source, warnings } in opened {
        let volume = &export.volume;
        let block = volume.block_size().bytes();
        let size = size::in_words(volume.blocks() * u64::from(block));
        let _ = writeln!(text, "namespace {}: {source}, {size}, blocks of {block} bytes", export.nsid);
        match &export.hosts {
            Access::Any => {}
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
    let _ = writeln!(text, "  modprobe nvme-tcp");
    for address in target.addresses() {
        let (ip, port) = (address.ip(), address.port());
        let _ = writeln!(text, "  nvme connect -t tcp -a {ip} -s {port} -n {}", config.subsystem);
    }
    if let Some(first) = target.addresses().first() {
        let (ip, port) = (first.ip(), first.port());
        let _ = writeln!(text, "  nvme connect-all -t tcp -a {ip} -s {port}     # all of these at once");
    }
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
        target::Error::Unspecified(address) => (
            format!("cannot listen on {address}"),
            "it stands for every address of this host, and discovery tells hosts where to connect".to_owned(),
            "a --listen for each address that hosts are to use",
        ),
        target::Error::NoAddress => {
            ("there is nowhere to listen".to_owned(), cause, "--listen 10.0.0.1:4420")
        }
        target::Error::Volume { .. } => (error.to_string(), cause, "an nsid of its own, from 1 to 1024"),
        target::Error::Identity(..) => (
            "cannot serve the volumes".to_owned(),
            cause,
            "each file or device once, and a uuid of its own in the state directory",
        ),
        target::Error::Loop(_) => {
            (error.to_string(), cause, "more descriptors (ulimit -n), or fewer --loops")
        }
    };
    Error::Refused { sentence, cause, advice: advice.to_owned() }
}

/// Reads the file again. Which hosts there are and what they see is taken over; all else stays.
fn reload(target: &Target, args: &ServeArgs, old: &Settings, opened: &[Opened]) -> Result<String, Error> {
    if args.config.is_none() {
        return Ok("nothing to reload: there is no configuration file (-c)\n".to_owned());
    }
    let mut new = args.settings()?;
    let access = new.access();
    let mut left: Vec<&Opened> = opened.iter().collect();
    let mut volumes = Vec::new();
    for wanted in std::mem::take(&mut new.volumes) {
        let at = left.iter().position(|one| {
            one.source == wanted.source && wanted.nsid.is_none_or(|nsid| nsid == one.export.nsid)
        });
        if let Some(at) = at {
            volumes.push((left.remove(at).export.nsid, wanted.hosts));
        } else {
            tracing::warn!(volume = %wanted.source, "not taken over: served only after the next start");
        }
    }
    for gone in left {
        // Nothing says any more who may see it.
        volumes.push((gone.export.nsid, Access::Only(BTreeSet::new())));
        tracing::warn!(volume = %gone.source, "not in the file any more: no host sees it until it is");
    }
    let hosts = Hosts { access, ids: std::mem::take(&mut new.host_ids), volumes };
    target.set_hosts(&hosts);
    let rest = Settings { volumes: Vec::new(), host_ids: BTreeMap::new(), ..old.clone() };
    if new != rest {
        tracing::warn!("not taken over: what else the file says counts only after the next start");
    }
    Ok(format!("reloaded: hosts of {} volumes\n", opened.len()))
}

/// Waits for a signal, and ends the target.
fn wait(target: Target, mut signals: Signals, reload: impl Fn(&Target)) -> Result<ExitCode, Error> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for signal in signals.forever() {
            // Once the target has stopped, nobody listens, and the program ends.
            let _ = sender.send(signal);
        }
    });
    loop {
        match receiver.recv_timeout(CHECK) {
            Ok(SIGHUP) => reload(&target),
            Ok(_) | Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                if let Some(cause) = target.failure() {
                    return Err(Error::Refused {
                        sentence: "the server cannot go on".to_owned(),
                        cause,
                        advice: "start it again; hosts connect again by themselves".to_owned(),
                    });
                }
            }
        }
    }
    tracing::info!("ending: commands that have begun are finished");
    let stopping = std::thread::spawn(move || target.stop());
    while !stopping.is_finished() {
        if let Ok(signal) = receiver.recv_timeout(Duration::from_millis(20))
            && signal != SIGHUP
        {
            // The status is that of a shell for a signal.
            return Ok(ExitCode::from(u8::try_from(128 + signal).unwrap_or(u8::MAX)));
        }
    }
    Ok(ExitCode::SUCCESS)
}
