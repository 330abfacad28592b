//! `trunkline block attach`: a volume as a disk for programs of this host, over all paths to it.

mod mark;

use super::serve;
use crate::attach::{self as disk, Place, PlaceArgs};
use crate::error::Error;
use crate::output;
use attach::VolumeDisk;
use clap::{ArgGroup, Args};
use initiator::{
    Address, Algorithms, Attachment, Config, Digests, HostId, Nqn, NqnError, PathState, Refusal, Secrets,
    Status, Transport, Volume, discover, identity, secret_file,
};
use mark::{KEEP_ALIVE_MAX, Mark};
use server::config::size;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the first path may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long the others may take before the disk is served without them.
const OTHERS: Duration = Duration::from_secs(2);

/// Attach a volume of an NVMe/TCP or NVMe/RDMA target as a disk: NBD on a UNIX socket, for QEMU,
/// fio and others, or a block device of the kernel.
///
/// Each --connect is a path; all are used, and a path that fails is left in under a second. A write
/// is sent again on another path only when the target is known to have finished the first one:
/// targets of `trunkline block serve` say so at once, for others that takes three keep-alive
/// timeouts. Without --nqn, this lists what there is, for which no target asks for a secret.
///
/// SIGTERM and SIGINT end it, after the requests that are under way; it removes its socket or
/// device then. A second one ends it at once.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, group = ArgGroup::new("presented").args(["socket", "ublk"]).requires("nqn"))]
pub struct AttachArgs {
    /// Address of a controller or of a discovery service, over RDMA with `rdma:` before it. May be
    /// repeated.
    #[arg(long, value_name = "[rdma:]ADDR:PORT", required = true)]
    connect: Vec<Address>,
    /// Name of the subsystem.
    #[arg(long, value_name = "NQN", value_parser = nqn, requires = "presented")]
    nqn: Option<Nqn>,
    /// Number of the namespace [default: the first one].
    #[arg(long, value_name = "N", requires = "nqn", value_parser = clap::value_parser!(u32).range(1..))]
    namespace: Option<u32>,
    #[command(flatten)]
    place: PlaceArgs,
    /// Name of this host [default: that in /etc/nvme/hostnqn, else one of /etc/machine-id].
    #[arg(long, value_name = "NQN", value_parser = nqn)]
    hostnqn: Option<Nqn>,
    /// Host identifier, a UUID, for a target that expects one of this host [default: one of its own
    /// for each disk]. Only one disk at a time may have it: the next one ends what the last one
    /// left.
    #[arg(long, value_name = "UUID", value_parser = host_id, requires = "nqn")]
    hostid: Option<HostId>,
    /// File with the secret of this host (`DHHC-1:...`), for a target that asks it to authenticate.
    /// Only its owner may be able to read it.
    #[arg(long, value_name = "FILE", requires = "nqn")]
    secret_file: Option<PathBuf>,
    /// File with the secret of the target: it must prove that it has it.
    #[arg(long, value_name = "FILE", requires = "secret_file")]
    controller_secret_file: Option<PathBuf>,
    /// I/O queues on each path.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=32))]
    queues: u16,
    /// Keep-alive timeout in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=KEEP_ALIVE_MAX))]
    keep_alive: u64,
    /// Check headers and data by digests, over TCP.
    #[arg(long)]
    digests: bool,
}

const EXAMPLES: &str = "Examples:\n  \
    trunkline block attach --connect 10.0.0.1:4420     # what is there\n  \
    trunkline block attach --connect 10.0.0.1:4420 --connect 10.0.1.1:4420 \\\n      \
        --nqn nqn.2026-11.org.example:store --namespace 1 --socket /run/vm.sock\n  \
    qemu-system-x86_64 -drive file=nbd+unix:///?socket=/run/vm.sock,format=raw,if=virtio\n  \
    trunkline block attach --connect 10.0.0.1:4420 --nqn nqn.2026-11.org.example:store \\\n      \
        --ublk 0    # /dev/ublkb0";

fn host_id(text: &str) -> Result<HostId, String> {
    serve::host_id(text)
        .ok_or_else(|| "a host identifier is a UUID that is not zero, as in /etc/nvme/hostid".to_owned())
}

fn nqn(text: &str) -> Result<Nqn, NqnError> {
    Nqn::new(text)
}

impl AttachArgs {
    fn secrets(&self) -> Result<Option<Secrets>, Error> {
        let read = |file: &PathBuf| {
            secret_file::read(file).map_err(|cause| Error::Refused {
                sentence: "cannot use the secret".to_owned(),
                cause,
                advice: "the secret that the target has for this host, in a file of its own".to_owned(),
            })
        };
        let Some(host) = self.secret_file.as_ref().map(read).transpose()? else { return Ok(None) };
        let controller = self.controller_secret_file.as_ref().map(read).transpose()?;
        Ok(Some(Secrets { host, controller, algorithms: Arc::new(Algorithms::default()) }))
    }
}

/// Lists what there is, or serves the disk until a signal.
pub fn run(args: &AttachArgs) -> Result<ExitCode, Error> {
    if args.digests && args.connect.iter().all(|address| address.transport == Transport::Rdma) {
        return Err(Error::Refused {
            sentence: "cannot use --digests".to_owned(),
            cause: "digests are those of NVMe/TCP, and every address is one for RDMA".to_owned(),
            advice: "without --digests: RDMA devices check what they carry".to_owned(),
        });
    }
    let host = args.hostnqn.clone().map_or_else(identity::host, Ok).map_err(nameless)?;
    let secrets = args.secrets()?;
    let (Some(subsystem), Some(place)) = (&args.nqn, args.place.claim()?) else { return list(args, &host) };
    let keep_alive = Duration::from_secs(args.keep_alive);
    let mark = Mark::leave(&place, keep_alive).map_err(|(path, error)| Error::Refused {
        sentence: "cannot attach the volume".to_owned(),
        cause: format!("{}: {error}", path.display()),
        advice: "a --socket in a directory that this user may write to; remove what is in the way there"
            .to_owned(),
    })?;
    let (attachment, volume) = attach(args, (host, secrets), subsystem, (&place, mark.earlier()))?;
    let mut text = String::new();
    let namespace = volume.namespace();
    let (words, block) = (size::in_words(namespace.bytes()), namespace.block_bytes());
    // Writing to a string does not fail.
    let _ = writeln!(text, "namespace {} of {subsystem}: {words}, blocks of {block} bytes", namespace.nsid);
    for path in settled(&attachment) {
        if let Some(Refusal::NoSubsystem(_)) = path.refused {
            return Err(elsewhere(&path.address, subsystem));
        }
        let state = match (path.cntlid, path.last_error) {
            (Some(cntlid), _) if path.listed.is_some_and(|nsids| !nsids.contains(&namespace.nsid)) => {
                format!("warning: controller {cntlid}, which does not show this namespace to this host")
            }
            (Some(cntlid), _) => format!("controller {cntlid}"),
            (None, Some(error)) => format!("warning: not connected: {error}"),
            (None, None) => "warning: not connected yet".to_owned(),
        };
        let _ = writeln!(text, "path {}: {state}", path.address);
    }
    // The attachment lives until all is served.
    let identity = format!("{subsystem} {} {:?}", namespace.nsid, namespace.nguid);
    let ended = disk::serve(place, VolumeDisk(volume), &identity, &text);
    mark.end(attachment.is_settled());
    ended
}

fn attach(
    args: &AttachArgs,
    (host, secrets): (Nqn, Option<Secrets>),
    subsystem: &Nqn,
    (place, earlier): (&Place, Option<Duration>),
) -> Result<(Attachment, Volume), Error> {
    let host_id = args.hostid.unwrap_or_else(|| identity::of_disk(&host, &place.path()));
    let mut config = Config::new(host.clone(), host_id, subsystem.clone(), args.connect.clone());
    config.queues = args.queues;
    config.keep_alive = Duration::from_secs(args.keep_alive);
    config.digests = Digests { header: args.digests, data: args.digests };
    config.secrets = secrets;
    config.after_crash = earlier;
    let attachment = Attachment::start(config).map_err(|error| explain(args, &error, &host))?;
    let volume = attachment.volume(args.namespace, PATIENCE).map_err(|error| explain(args, &error, &host))?;
    Ok((attachment, volume))
}

/// A target answers at this address, and the subsystem is not there. An address that does not
/// answer is another matter: its controller may come back.
fn elsewhere(address: &Address, subsystem: &Nqn) -> Error {
    Error::Refused {
        sentence: "cannot attach the volume".to_owned(),
        cause: format!("{address} is the address of no controller of {subsystem}"),
        advice: format!(
            "leave the address out, or correct it: `trunkline block attach --connect {address}` lists the \
             subsystems there"
        ),
    }
}

/// The paths, once each is connected or has failed.
fn settled(attachment: &Attachment) -> Vec<PathState> {
    let deadline = Instant::now() + OTHERS;
    loop {
        let paths = attachment.paths();
        let is_settled = |path: &PathState| path.cntlid.is_some() || path.last_error.is_some();
        if paths.iter().all(is_settled) || Instant::now() >= deadline {
            return paths;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// What the discovery services at these addresses know.
fn list(args: &AttachArgs, host: &Nqn) -> Result<ExitCode, Error> {
    let mut found: BTreeMap<String, Vec<Address>> = BTreeMap::new();
    for address in &args.connect {
        let log = discover(*address, host, identity::of_host(host), PATIENCE);
        for one in log.map_err(|error| explain(args, &error, host))? {
            let addresses = found.entry(one.subsystem.to_string()).or_default();
            addresses.extend(one.addresses);
            addresses.sort_unstable();
            addresses.dedup();
        }
    }
    if found.is_empty() {
        return Err(Error::Refused {
            sentence: "there is no subsystem".to_owned(),
            cause: format!("the target shows none to {host}"),
            advice: format!("--allow {host} at the target"),
        });
    }
    let mut text = String::new();
    for (name, addresses) in found {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{name}");
        let connect: Vec<String> = addresses.iter().map(|address| format!("--connect {address}")).collect();
        let _ = writeln!(text, "  trunkline block attach {} --nqn {name} --socket PATH", connect.join(" "));
    }
    output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn nameless(cause: identity::Nameless) -> Error {
    Error::Refused {
        sentence: "this host has no name".to_owned(),
        cause: cause.to_string(),
        advice: "--hostnqn NQN, or nvme gen-hostnqn > /etc/nvme/hostnqn".to_owned(),
    }
}

/// Why there is no volume.
fn explain(args: &AttachArgs, error: &initiator::Error, host: &Nqn) -> Error {
    let advice = match error {
        initiator::Error::Refused { refusal: Refusal::SecretNeeded, .. } => {
            format!("--secret-file FILE with the secret that the target has for {host}")
        }
        initiator::Error::Refused { refusal: Refusal::NotAuthenticated(_), .. } => format!(
            "the secrets that the target has for {host}, also in --hostnqn; the log of the target says more"
        ),
        initiator::Error::Refused { refusal: Refusal::NoProof, .. } => {
            format!("a secret for {host} at the target, or no --controller-secret-file")
        }
        initiator::Error::Refused { refusal: Refusal::Connect(status), .. }
            if status.is(Status::CONNECT_INVALID_HOST) =>
        {
            format!("--allow {host} at the target, or trunkline block unfence {host} there if it was fenced")
        }
        initiator::Error::Refused { refusal: Refusal::NoSubsystem(_), address } => {
            format!("an --nqn that `trunkline block attach --connect {address}` lists, or another address")
        }
        initiator::Error::Refused { refusal: Refusal::Connect(_), .. } => format!(
            "the --hostid that the target expects of {host}, if it does, or another --keep-alive; the log \
             of the target says which"
        ),
        initiator::Error::NoDiscovery { address, .. } => {
            let device = match address.transport {
                Transport::Rdma => {
                    "an RDMA device here that reaches the address, which `rdma link` shows, and "
                }
                Transport::Tcp => "",
            };
            return Error::Refused {
                sentence: "cannot list what there is".to_owned(),
                cause: error.to_string(),
                advice: format!(
                    "{device}an address on which the target listens; `trunkline block map` prints them there"
                ),
            };
        }
        initiator::Error::NoNamespace { .. } => "a --namespace that the subsystem has".to_owned(),
        initiator::Error::NotServed { .. } => "the address of a controller that serves it, also of the other \
             node; `trunkline block list` at the target, or `nvme ana-log` of a connected host, says which does"
            .to_owned(),
        initiator::Error::Unreachable { .. }
            if args.connect.iter().any(|address| address.transport == Transport::Rdma) =>
        {
            "an RDMA device here that reaches the address, which `rdma link` shows, and the address of a \
             controller: `trunkline block attach --connect rdma:ADDR:PORT` lists them"
                .to_owned()
        }
        _ => {
            "the address of a controller: `trunkline block attach --connect ADDR:PORT` lists them".to_owned()
        }
    };
    Error::Refused { sentence: "cannot attach the volume".to_owned(), cause: error.to_string(), advice }
}
