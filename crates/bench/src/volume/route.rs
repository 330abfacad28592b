//! A route to a volume: how it is attached, and what may be done with it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use initiator::{
    Address, Algorithms, Attachment, Config, Digests, HostId, Namespace, Nqn, PathState, Secrets, Transport,
    Volume, identity, secret_file,
};
use record::{Direction, PathCounters};

use super::options::{VolumeOptions, VolumeTarget};
use super::{EmbeddedVolume, regions};
use crate::binding::steps::Behind;
use crate::directory::counts::DirectoryCounts;
use crate::error::{Error, Result};
use crate::routes::is_of_this_host;
use crate::watch::Watch;
use crate::workload::PlannedWorkload;

/// How long attaching may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often the paths are looked at meanwhile.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Why a workload is not run where what is on a volume is to stay.
pub(crate) const READ_ONLY: &str =
    "its writes would destroy what is on the volume; the option overwrite allows that";

/// A volume that is measured.
#[derive(Debug)]
pub struct VolumeRoute {
    name: String,
    config: Config,
    nsid: Option<u32>,
    may_write: bool,
    namespace: Namespace,
    /// Where operations are counted for whoever watches.
    counts: Option<Arc<DirectoryCounts>>,
}

/// A volume that is attached over all paths of its route, until it is dropped.
#[derive(Debug)]
pub(crate) struct Attached {
    pub(crate) volume: Volume,
    pub(crate) attachment: Attachment,
}

impl VolumeRoute {
    /// Attaches the volume once, and looks at it.
    ///
    /// # Errors
    /// [`Error::Volume`] if it cannot be attached over all paths; [`Error::Refused`] without a name
    /// of this host, or if the volume is to be overwritten and must not be.
    pub(crate) fn open(
        name: &str,
        target: &VolumeTarget,
        options: &VolumeOptions,
        embedded: Option<&EmbeddedVolume>,
        watch: &Watch,
    ) -> Result<Self> {
        let host = options.host.clone().map_or_else(identity::host, Ok).or_else(|cause| {
            // An embedded target takes any name.
            embedded.map(|embedded| embedded.subsystem.clone()).ok_or(cause)
        });
        let host = host.map_err(|cause| {
            let advice = "the option hostnqn=NQN, or nvme gen-hostnqn > /etc/nvme/hostnqn";
            Error::refused(format!("{name}: this host has no name"), cause.to_string(), advice)
        })?;
        let (subsystem, addresses) = place(target, options, embedded);
        // Controllers of another host with the same identifier would be ended.
        let mut id = [0; 16];
        getrandom::fill(&mut id).map_err(|error| {
            Error::refused(format!("{name}: no identifier"), error.to_string(), "the same again")
        })?;
        let mut config = Config::new(host, HostId(id), subsystem, addresses);
        config.queues = options.queues;
        config.digests = Digests { header: options.digests, data: options.digests };
        config.secrets = secrets(name, options)?;
        let nsid = options.namespace;
        let failed = |cause| Error::Volume { route: name.to_owned(), cause: Box::new(cause) };
        let attached = attach(&config, nsid).map_err(failed)?;
        let namespace = *attached.volume.namespace();
        let may_write = options.overwrite;
        if may_write && namespace.write_protected {
            let sentence = format!("{name}: the volume is write-protected");
            return Err(Error::refused(sentence, "the target refuses to change it", "without overwrite"));
        }
        let counts = watch.directory(name);
        let nsid = Some(namespace.nsid);
        Ok(Self { name: name.to_owned(), config, nsid, may_write, namespace, counts })
    }

    /// The name of the route.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Whether the volume may be overwritten.
    pub(crate) const fn may_write(&self) -> bool {
        self.may_write
    }

    /// Its size in bytes.
    pub(crate) const fn bytes(&self) -> u64 {
        self.namespace.bytes()
    }

    /// Where its operations are counted for whoever watches.
    pub(crate) fn counts(&self) -> Option<&DirectoryCounts> {
        self.counts.as_deref()
    }

    /// The addresses, each a path.
    pub(crate) fn addresses(&self) -> &[Address] {
        &self.config.addresses
    }

    /// Whether some of them are of this transport.
    pub(crate) fn uses(&self, transport: Transport) -> bool {
        self.config.addresses.iter().any(|address| address.transport == transport)
    }

    /// The connections for commands.
    pub(crate) fn connections(&self) -> u32 {
        u32::from(self.config.queues) * u32::try_from(self.config.addresses.len()).unwrap_or(u32::MAX)
    }

    /// How the volume is accessed, for the record.
    pub(crate) fn describe(&self) -> String {
        let digests = if self.config.digests == Digests::default() { "" } else { " with digests" };
        let writes = if self.may_write { "" } else { ", only read" };
        let transports = match (self.uses(Transport::Tcp), self.uses(Transport::Rdma)) {
            (true, true) => "NVMe/TCP and NVMe/RDMA",
            (_, false) => "NVMe/TCP",
            (false, true) => "NVMe/RDMA",
        };
        format!("{transports}{digests}, by our host{writes}")
    }

    /// What a reader must know about the results.
    pub(crate) fn note(&self) -> Option<String> {
        (!self.may_write).then(|| "reads what is on the volume, so nothing is compared".to_owned())
    }

    /// Tells the volume from others whose files must not be in the same place.
    pub(crate) fn key(&self) -> String {
        let Namespace { nsid, nguid, .. } = self.namespace;
        let writes = if self.may_write { "written" } else { "read" };
        match nguid {
            [0, ..] if nguid == [0; 16] => format!("{} {nsid} {writes}", self.config.subsystem),
            nguid => format!("{:032x} {writes}", u128::from_be_bytes(nguid)),
        }
    }

    /// What is behind the route.
    pub(crate) fn behind(&self) -> Behind {
        let are_here = self.config.addresses.iter().all(|address| is_of_this_host(address.socket.ip()));
        if are_here { Behind::Seen } else { Behind::Server }
    }

    /// The bytes that the files of these workloads take.
    pub(crate) fn needed_bytes(workloads: &[PlannedWorkload], wanted: &dyn Fn(usize) -> bool) -> u64 {
        regions::plan(workloads, wanted).1
    }

    /// Why a workload cannot be run, where that is no error.
    pub(crate) fn skips(&self, workload: &PlannedWorkload) -> Option<&'static str> {
        (!self.may_write && workload.has(Direction::Write)).then_some(READ_ONLY)
    }

    /// Refuses a workload whose blocks are not blocks of the volume.
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub(crate) fn check(&self, workload: &PlannedWorkload) -> Result<()> {
        let block = u64::from(self.namespace.block_bytes());
        let sizes = workload.jobs.iter().flat_map(|job| job.blocks.map(|blocks| blocks.min));
        let files = workload.files.iter().map(|file| file.bytes);
        match sizes.chain(files).find(|bytes| !bytes.is_multiple_of(block)) {
            None => Ok(()),
            Some(bytes) => Err(Error::refused(
                format!("{}, {}: {bytes} bytes are not blocks of the volume", self.name, workload.name()),
                format!("its blocks have {block} bytes"),
                format!("blocks and files of multiples of {block} bytes"),
            )),
        }
    }

    /// Attaches the volume over all paths.
    ///
    /// # Errors
    /// [`Error::Volume`].
    pub(crate) fn attach(&self) -> Result<Attached> {
        let failed = |cause| Error::Volume { route: self.name.clone(), cause: Box::new(cause) };
        attach(&self.config, self.nsid).map_err(failed)
    }
}

impl Attached {
    /// Adds what each path has completed.
    pub(crate) fn add_counters(&self, sum: &mut Vec<PathCounters>) {
        let paths = self.attachment.paths();
        sum.resize_with(paths.len().max(sum.len()), PathCounters::default);
        for ((sum, path), counted) in sum.iter_mut().zip(paths).zip(self.attachment.counters()) {
            let prefix = if path.address.transport == Transport::Rdma { "rdma:" } else { "" };
            sum.path = format!("{prefix}{}", path.address.socket.ip());
            sum.state = match (path.cntlid, path.is_suspect) {
                (Some(_), false) => "up",
                (Some(_), true) => "suspect",
                (None, _) => "down",
            }
            .to_owned();
            sum.calls += counted.commands;
            sum.bytes += counted.read_bytes + counted.written_bytes;
        }
    }

    /// The bytes read and written on each path so far.
    pub(crate) fn bytes_by_path(&self) -> [Vec<u64>; 2] {
        let counters = self.attachment.counters();
        [
            counters.iter().map(|path| path.read_bytes).collect(),
            counters.iter().map(|path| path.written_bytes).collect(),
        ]
    }
}

/// The secrets in the files that the options name.
fn secrets(name: &str, options: &VolumeOptions) -> Result<Option<Secrets>> {
    let read = |file: &PathBuf| {
        secret_file::read(file).map_err(|cause| {
            let advice = "the secret that the target has for this host, in a file of its own";
            Error::refused(format!("{name}: cannot use the secret"), cause, advice)
        })
    };
    let Some(host) = options.secret_file.as_ref().map(read).transpose()? else { return Ok(None) };
    let controller = options.controller_secret_file.as_ref().map(read).transpose()?;
    Ok(Some(Secrets { host, controller, algorithms: Arc::new(Algorithms::default()) }))
}

/// The subsystem, and the addresses of the paths.
fn place(
    target: &VolumeTarget,
    options: &VolumeOptions,
    embedded: Option<&EmbeddedVolume>,
) -> (Nqn, Vec<Address>) {
    match (target, embedded) {
        (VolumeTarget::At { address, subsystem }, _) => {
            (subsystem.clone(), [*address].into_iter().chain(options.connect.iter().copied()).collect())
        }
        (VolumeTarget::Embedded, Some(embedded)) => {
            let used = embedded.addresses(options.transport()).take(options.paths.into());
            (embedded.subsystem.clone(), used.collect())
        }
        // It is started before its routes are opened.
        (VolumeTarget::Embedded, None) => (Nqn::discovery(), Vec::new()),
    }
}

/// Attaches a volume, and waits for all paths: without one of them, the route would be measured
/// under a wrong name.
fn attach(config: &Config, nsid: Option<u32>) -> std::result::Result<Attached, initiator::Error> {
    let began = Instant::now();
    let attachment = Attachment::start(config.clone())?;
    let volume = attachment.volume(nsid, PATIENCE)?;
    loop {
        let paths = attachment.paths();
        let missing = |path: &&PathState| path.cntlid.is_none();
        let Some(path) = paths.iter().find(missing) else { return Ok(Attached { volume, attachment }) };
        if let (Some(refusal), address) = (path.refused, path.address) {
            return Err(initiator::Error::Refused { address, refusal });
        }
        let failed = paths
            .iter()
            .filter(missing)
            .find_map(|path| path.last_error.as_ref().map(|error| format!("{}: {error}", path.address)));
        if failed.is_some() || began.elapsed() >= PATIENCE {
            let causes = failed.unwrap_or_else(|| format!("{}: not connected", path.address));
            return Err(initiator::Error::Unreachable { within: PATIENCE, causes });
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}
