//! The limits of an experiment, measured before it and again between its workloads.

use std::net::IpAddr;
use std::ops::{ControlFlow, RangeInclusive};
use std::time::Duration;

use initiator::Transport;

use crate::error::{Error, Result};
use crate::experiment::{Embedded, Experiment};
use crate::limit::{self, Direction, Mode, Shape, Traffic, Try, calibrate_with, measure_once, verbs};
use crate::progress::Progress;
use crate::routes::{self, Access, ReadyRoute};
use crate::volume::VolumeTarget;
use crate::workload::PlannedWorkload;

/// The sizes of blocks whose limit is measured.
const BLOCK_BYTES: RangeInclusive<u64> = 4096..=1 << 20;

/// The limits by workload.
#[derive(Debug, Default)]
pub struct Limits {
    /// `None` for a workload whose traffic has no shape that can be measured by itself.
    by_workload: Vec<Option<Limit>>,
    /// The limits over RDMA by workload; empty if no route uses RDMA.
    over_rdma: Vec<Option<RdmaLimit>>,
    /// The limits over NVMe/TCP by workload; empty if no route leads to the embedded target.
    on_volume: Vec<Option<Limit>>,
    /// The same over NVMe/RDMA.
    on_volume_over_rdma: Vec<Option<RdmaLimit>>,
    per_try: Duration,
    /// The congestion control with the highest throughput; both ends of the embedded group use it.
    pub congestion: Option<String>,
}

#[derive(Debug)]
struct Limit {
    name: String,
    shape: Shape,
    tries: Vec<Try>,
}

#[derive(Debug)]
struct RdmaLimit {
    name: String,
    shape: Shape,
    tries: Vec<verbs::Try>,
}

impl RdmaLimit {
    fn best(&self) -> Option<&verbs::Try> {
        self.tries.iter().max_by(|one, other| one.gbytes_per_s.total_cmp(&other.gbytes_per_s))
    }
}

impl Limit {
    fn best(&self) -> Option<&Try> {
        self.tries.iter().max_by(|one, other| one.gbytes_per_s.total_cmp(&other.gbytes_per_s))
    }

    /// Measures the best mode again.
    fn measure_again(&mut self, per_try: Duration, progress: &Progress) -> Result<()> {
        let Some(best) = self.best().cloned() else { return Ok(()) };
        progress.stage(&format!("limit of {}", self.name), 1);
        match measure_once(&self.shape, best.mode, &best.congestion, per_try) {
            Ok(tried) => self.tries.push(tried),
            // The machine has not become faster, so the earlier result still holds.
            Err(error @ (limit::Error::Stalled { .. } | limit::Error::Unready { .. })) => {
                tracing::warn!(%error, "the limit is not measured again");
            }
            Err(error) => return Err(Error::Calibrate(error.into())),
        }
        Ok(())
    }

    /// The workload and the shape of its traffic, in one line.
    fn describe(&self) -> String {
        let over = if self.shape.traffic == Traffic::Nfs { "" } else { ", over NVMe/TCP" };
        format!("{}{over}", describe(&self.name, &self.shape))
    }
}

/// The workload and the shape of its payload, in one line.
fn describe(name: &str, shape: &Shape) -> String {
    let Shape { block_bytes, depth, connections, direction, .. } = shape;
    let verb = match direction {
        Direction::Read => "reads",
        Direction::Write => "writes",
        Direction::Mixed => "reads and writes at once",
    };
    let block = match block_bytes {
        bytes if bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        bytes => format!("{} KiB", bytes >> 10),
    };
    format!("{name}: {verb}, {block} blocks, depth {depth} on each of {connections} connections")
}

impl Limits {
    /// The limit of a workload on a route, in GB/s of both directions together. A limit measured
    /// over TCP does not apply to RDMA, and a route that mixes both has no known limit.
    #[must_use]
    pub fn of_route(&self, workload: usize, route: &ReadyRoute) -> Option<f64> {
        // What loopback carries is no limit of another server or of a directory.
        if !route.is_embedded {
            return None;
        }
        let (over_tcp, over_rdma) = match route.access {
            Access::Volume(_) => (&self.on_volume, &self.on_volume_over_rdma),
            _ => (&self.by_workload, &self.over_rdma),
        };
        match (route.is_rdma(), route.mixes()) {
            (_, true) => None,
            (false, _) => Some(over_tcp.get(workload)?.as_ref()?.best()?.gbytes_per_s),
            (true, _) => Some(over_rdma.get(workload)?.as_ref()?.best()?.gbytes_per_s),
        }
    }

    /// Measures the best mode of a workload again. Otherwise a machine that has become faster
    /// meanwhile would seem to exceed its limit.
    ///
    /// # Errors
    /// [`Error::Calibrate`].
    pub fn measure_again(&mut self, workload: usize, progress: &Progress) -> Result<()> {
        let per_try = self.per_try;
        for limits in [&mut self.by_workload, &mut self.on_volume] {
            if let Some(Some(limit)) = limits.get_mut(workload) {
                limit.measure_again(per_try, progress)?;
            }
        }
        for limits in [&mut self.over_rdma, &mut self.on_volume_over_rdma] {
            if let Some(Some(limit)) = limits.get_mut(workload)
                && let Some(mode) = limit.best().map(|best| best.mode)
            {
                let tried = verbs::measure_once(&limit.shape, mode, per_try);
                limit.tries.push(tried.map_err(|error| Error::CalibrateRdma(error.into()))?);
            }
        }
        Ok(())
    }

    /// The limits in the form of the record.
    #[must_use]
    pub fn into_record(self) -> Vec<record::Calibration> {
        let mode = |name: &str, starved| match starved {
            true => format!("{name} (others were busy)"),
            false => name.to_owned(),
        };
        let tried = |tried: &Try| record::Try {
            mode: mode(tried.mode.name(), tried.starved),
            congestion: Some(tried.congestion.clone()),
            gbytes_per_s: tried.gbytes_per_s,
            iops: tried.iops,
        };
        let over_rdma = |tried: &verbs::Try| record::Try {
            mode: mode(tried.mode.name(), tried.starved),
            congestion: None,
            gbytes_per_s: tried.gbytes_per_s,
            iops: tried.iops,
        };
        let mut all = Vec::new();
        let most = self.by_workload.len().max(self.on_volume.len()).max(self.on_volume_over_rdma.len());
        let of_rdma = |limits: &[Option<RdmaLimit>], index: usize, route: &str, over: &str| {
            let limit = limits.get(index)?.as_ref()?;
            let shape = format!("{}, over {over}", describe(&limit.name, &limit.shape));
            let tries = limit.tries.iter().map(over_rdma).collect();
            Some(record::Calibration::of(shape, Some(route.to_owned()), tries))
        };
        let of = |limits: &[Option<Limit>], index: usize, route: Option<&str>| {
            let limit = limits.get(index)?.as_ref()?;
            let tries = limit.tries.iter().map(tried).collect();
            Some(record::Calibration::of(limit.describe(), route.map(str::to_owned), tries))
        };
        for index in 0..most {
            all.extend(of(&self.by_workload, index, None));
            all.extend(of(&self.on_volume, index, Some("nvme-tcp")));
            all.extend(of_rdma(&self.over_rdma, index, "rdma", "RDMA"));
            all.extend(of_rdma(&self.on_volume_over_rdma, index, "nvme-rdma", "NVMe/RDMA"));
        }
        all
    }
}

/// The shape of a workload's traffic in the embedded group or target; `None` if its blocks have
/// several sizes or one that the wire does not carry in one piece.
fn shape(
    workload: &PlannedWorkload,
    connections: u32,
    remotes: &[IpAddr],
    traffic: Traffic,
) -> Option<Shape> {
    let block_bytes = workload.block_bytes().filter(|bytes| BLOCK_BYTES.contains(bytes))?;
    let in_flight: u32 = workload.jobs.iter().map(|job| job.depth).sum();
    let (reads, writes) = (workload.has(record::Direction::Read), workload.has(record::Direction::Write));
    Some(Shape {
        block_bytes: usize::try_from(block_bytes).unwrap_or(usize::MAX),
        depth: in_flight.div_ceil(connections.max(1)) as usize,
        connections: connections as usize,
        direction: match (reads, writes) {
            (_, false) => Direction::Read,
            (false, _) => Direction::Write,
            _ => Direction::Mixed,
        },
        remotes: remotes.to_vec(),
        traffic,
    })
}

/// Measures the limit of each workload, in the shape of each protocol that an embedded server of
/// the experiment speaks.
///
/// # Errors
/// [`Error::Calibrate`].
pub fn calibrate_all(experiment: &Experiment, progress: &Progress) -> Result<Limits> {
    let planned = experiment.planned();
    let mut limits = Limits { per_try: experiment.calibrate, ..Limits::default() };
    if let Some(group) = experiment.embedded() {
        calibrate_group(experiment, group, &planned, &mut limits, progress)?;
    }
    calibrate_volume(experiment, &planned, &mut limits, progress)?;
    Ok(limits)
}

/// Measures the limits of the embedded target.
fn calibrate_volume(
    experiment: &Experiment,
    planned: &[PlannedWorkload],
    limits: &mut Limits,
    progress: &Progress,
) -> Result<()> {
    let most = |over: Transport| {
        let volumes = experiment.routes.iter().filter_map(|route| route.volume(experiment));
        let embedded = volumes.filter(|(target, _)| **target == VolumeTarget::Embedded);
        let over = embedded.filter(|(_, options)| options.transport() == over);
        let both = over.map(|(target, options)| (options.paths, options.connections(target)));
        both.reduce(|one, other| (one.0.max(other.0), one.1.max(other.1)))
    };
    if let Some((paths, connections)) = most(Transport::Tcp) {
        // Host and target have what the system has.
        let usual: Vec<String> = transport::socket::congestion_controls().into_iter().take(1).collect();
        let remotes = crate::group::addresses(paths, &[]);
        let traffic = Traffic::NvmeTcp { in_capsule_bytes: target::CAPSULE_DATA_BYTES as usize };
        let steps = planned.len() * Mode::ALL.len();
        progress.stage("measuring the limit of NVMe/TCP", steps as u64);
        for workload in planned {
            let shape = shape(workload, connections, &remotes, traffic);
            let limit = shape.map(|shape| measured(workload, shape, &usual, limits.per_try, progress));
            limits.on_volume.push(limit.transpose()?);
        }
    }
    let devices = crate::rdma::addresses().unwrap_or_default();
    if let (Some((_, connections)), false) = (most(Transport::Rdma), devices.is_empty()) {
        progress.stage("measuring the limit of NVMe/RDMA", (planned.len() * verbs::Mode::ALL.len()) as u64);
        for workload in planned {
            // Over RDMA each block is a message and its payload, as for NFS.
            let shape = shape(workload, connections, &devices, Traffic::Nfs);
            let limit = shape
                .map(|shape| calibrate_rdma(workload.name(), &shape, &devices, limits.per_try, progress));
            limits.on_volume_over_rdma.push(limit);
        }
    }
    Ok(())
}

/// The limit of a workload's shape.
fn measured(
    workload: &PlannedWorkload,
    shape: Shape,
    congestion_controls: &[String],
    per_try: Duration,
    progress: &Progress,
) -> Result<Limit> {
    let tries = calibrate_with(&shape, congestion_controls, per_try, || {
        progress.advance(1);
        if progress.stop().is_requested() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    progress.go_on()?;
    let tries = tries.map_err(|error| Error::Calibrate(error.into()))?;
    Ok(Limit { name: workload.name().to_owned(), shape, tries })
}

/// Measures the limits of the embedded group.
fn calibrate_group(
    experiment: &Experiment,
    group: Embedded<'_>,
    planned: &[PlannedWorkload],
    limits: &mut Limits,
    progress: &Progress,
) -> Result<()> {
    let remotes = crate::group::addresses(group.nodes, group.addresses);
    let over_nfs = experiment.routes.iter().filter(|route| route.volume(experiment).is_none());
    let connections = over_nfs.clone().map(|route| route.connections(experiment)).max().unwrap_or(1);
    let offered = transport::socket::congestion_controls();
    let over_rdma = over_nfs.into_iter().any(|route| routes::is_rdma(&route.options));
    let rdma = if over_rdma { crate::rdma::addresses().unwrap_or_default() } else { Vec::new() };
    let of_rdma = if rdma.is_empty() { 0 } else { verbs::Mode::ALL.len() };
    let steps = planned.len() * (offered.len() * Mode::ALL.len() + of_rdma);
    progress.stage("measuring the limit", steps as u64);
    for workload in planned {
        let Some(shape) = shape(workload, connections, &remotes, Traffic::Nfs) else {
            limits.by_workload.push(None);
            limits.over_rdma.extend((!rdma.is_empty()).then_some(None));
            continue;
        };
        let limit = measured(workload, shape, &offered, limits.per_try, progress)?;
        if !rdma.is_empty() {
            let name = workload.name();
            let limit = calibrate_rdma(name, &limit.shape, &rdma, limits.per_try, progress);
            limits.over_rdma.push(Some(limit));
        }
        limits.by_workload.push(Some(limit));
    }
    limits.congestion = best_congestion(&limits.by_workload);
    Ok(())
}

/// Measures the limit of a shape over RDMA. A device that cannot reach itself has no limit; whether
/// it can be mounted over is found out and reported later.
fn calibrate_rdma(
    name: &str,
    shape: &Shape,
    addresses: &[IpAddr],
    per_try: Duration,
    progress: &Progress,
) -> RdmaLimit {
    let shape = Shape { remotes: addresses.to_vec(), ..shape.clone() };
    let mut tries = Vec::new();
    for mode in verbs::Mode::ALL {
        match mode.is_distinct(shape.connections).then(|| verbs::measure_once(&shape, mode, per_try)) {
            Some(Ok(tried)) => tries.push(tried),
            Some(Err(error)) => tracing::warn!(%error, "the limit of RDMA is not measured"),
            None => {}
        }
        progress.advance(1);
        if progress.stop().is_requested() {
            break;
        }
    }
    RdmaLimit { name: name.to_owned(), shape, tries }
}

/// The congestion control with the highest sum of its shares of each limit.
fn best_congestion(limits: &[Option<Limit>]) -> Option<String> {
    limits.iter().flatten().next()?;
    let offered = transport::socket::congestion_controls();
    let score = |name: &String| -> f64 {
        let share = |limit: &Limit| {
            let of_name = limit.tries.iter().filter(|tried| tried.congestion == *name);
            let best = limit.best().map_or(1.0, |best| best.gbytes_per_s);
            of_name.map(|tried| tried.gbytes_per_s).fold(0.0, f64::max) / best.max(1e-9)
        };
        limits.iter().flatten().map(share).sum()
    };
    offered.into_iter().max_by(|one, other| score(one).total_cmp(&score(other)))
}
