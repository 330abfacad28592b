//! Runs an experiment from its calibration to its record.

use std::cell::RefCell;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use record::{Counters, Half, Pace, PathCounters, Procedure, Record, Verified, Workload};

use crate::binding::steps;
use crate::calibration::{Limits, calibrate_all};
use crate::cells;
use crate::clients::{self, ClientSpec, Fleet};
use crate::directory::DirectoryRoute;
use crate::directory::files::LocalFile;
use crate::error::{Error, Result};
use crate::experiment::{DirectoryChoice, EngineChoice, Experiment, RouteSpec, Target};
use crate::file_sets::FileSets;
use crate::files::PreparedFile;
use crate::group::{Group, GroupPlan};
use crate::jobs::Window;
use crate::machine;
use crate::measure::{self, Flow, Sample};
use crate::progress::Progress;
use crate::rdma;
use crate::routes::{self, Access, EmbeddedServers, MountPlan, ReadyRoute};
use crate::stop::Stop;
use crate::volume::{EmbeddedVolume, VolumeFile, VolumeRoute};
use crate::watch::Watch;
use crate::workload::{CLIENTS_WARM_MIN, PlannedWorkload};
use transport::rdma::Counters as Done;

/// The maximum size of files of the paced half, because creating and comparing them is paced too.
const PACED_FILE_BYTES_MAX: u64 = 16 << 20;

/// The paced repeats of blocks of at least this size warm up for [`PACED_WARM`].
const LARGE_BLOCK_BYTES: u64 = 256 << 10;
const PACED_WARM: Duration = Duration::from_millis(250);

/// The options of `trunkline bench`.
#[derive(Debug, Clone, Default)]
pub struct RunOptions {
    /// An experiment file; without one, the built-in experiment runs.
    pub experiment: Option<PathBuf>,
    /// An experiment that is planned already ([`crate::job_files`]).
    pub planned: Option<Experiment>,
    /// Quick, standard or thorough.
    pub procedure: Procedure,
    /// Whether to show progress on the terminal.
    pub progress: bool,
    /// Stops the experiment early.
    pub stop: Stop,
    /// The clients; if empty, those of the experiment file.
    pub clients: Vec<ClientSpec>,
    /// How clients are reached.
    pub access: clients::Access,
    /// The addresses of the nodes of an embedded group; if empty, those of the experiment file, or
    /// loopback.
    pub nodes_on: Vec<IpAddr>,
    /// Who watches the experiment.
    pub watch: Watch,
    /// What makes the load on directories, instead of what the experiment says.
    pub engine: Option<EngineChoice>,
    /// Whether directories are measured with O_DIRECT, instead of what the experiment says.
    pub direct: Option<bool>,
    /// The repeats of each workload on each route, instead of what the experiment says.
    pub repeats: Option<u32>,
}

/// Runs an experiment and returns its record without writing it. A record that fails is not an
/// error: its `failed` lists the reasons.
///
/// # Errors
/// An error that ended the experiment, or [`Error::Stopped`].
pub fn run_for_record(options: &RunOptions) -> Result<Record> {
    run_for_results(options).map(|measured| measured.record)
}

/// What an experiment measured.
#[derive(Debug, Default)]
pub struct Measured {
    /// The record.
    pub record: Record,
    /// The results of single jobs, if the experiment asks for them.
    pub jobs: Vec<MeasuredJobs>,
}

/// The results of the jobs of a workload on a route.
#[derive(Debug)]
pub struct MeasuredJobs {
    /// The name of the route.
    pub route: String,
    /// The workload's index.
    pub workload: usize,
    /// For each repeat, the reads and the writes of each result.
    pub repeats: Vec<Vec<[Option<Flow>; 2]>>,
}

/// The same as [`run_for_record`], with the results of single jobs.
///
/// # Errors
/// As [`run_for_record`].
pub fn run_for_results(options: &RunOptions) -> Result<Measured> {
    let experiment = experiment(options)?;
    // Each client is a connection; the calibration has both ends of each in this process.
    transport::descriptors::raise_limit();
    let fleet = match experiment.clients.as_slice() {
        [] => None,
        clients => {
            let directories = directories(&experiment);
            let access = clients::Access { directories, ..options.access.clone() };
            Some(RefCell::new(Fleet::connect(clients, &access)?))
        }
    };
    let progress = Progress::new(options.progress, options.stop.clone(), options.watch.clone());
    let record = measure_all(&experiment, fleet.as_ref(), &progress);
    progress.finish();
    record
}

/// The directories that clients measure.
fn directories(experiment: &Experiment) -> Vec<PathBuf> {
    let of_route = |route: &RouteSpec| match route.target(experiment) {
        Target::Directory(path) => Some(path.clone()),
        Target::Server(_) | Target::Kernel(_) | Target::Embedded { .. } | Target::Volume(_) => None,
    };
    let mut all: Vec<PathBuf> = experiment.routes.iter().filter_map(of_route).collect();
    all.sort();
    all.dedup();
    all
}

/// The experiment with what the options say beyond its file.
fn experiment(options: &RunOptions) -> Result<Experiment> {
    let mut experiment = match (&options.planned, &options.experiment) {
        (Some(planned), _) => planned.clone(),
        (None, Some(file)) => Experiment::from_file(file, options.procedure)?,
        (None, None) => Experiment::built_in(options.procedure),
    };
    if !options.clients.is_empty() {
        experiment.clients.clone_from(&options.clients);
    }
    let DirectoryChoice { engine, direct } = &mut experiment.directories;
    *engine = options.engine.unwrap_or(*engine);
    *direct = options.direct.unwrap_or(*direct);
    experiment.repeats = options.repeats.unwrap_or(experiment.repeats);
    let built_in = options.planned.is_none() && options.experiment.is_none();
    if built_in && !experiment.clients.is_empty() {
        // A pace would apply to each client by itself.
        experiment.pace_bits_per_s = None;
    }
    let wrap = |cause| match &options.experiment {
        Some(file) => Error::Experiment { file: file.display().to_string(), cause },
        None => Error::Refused {
            sentence: "cannot run this experiment".into(),
            cause: Box::new(cause),
            advice: "trunkline bench --help        or docs/EXPERIMENTS.md".into(),
        },
    };
    if !options.nodes_on.is_empty() {
        experiment.listen_on(&options.nodes_on).map_err(wrap)?;
    }
    experiment.check_clients().map_err(wrap)?;
    if !experiment.clients.is_empty() {
        experiment.warm = experiment.warm.max(CLIENTS_WARM_MIN);
        let clients = experiment.clients.len();
        for workload in &mut experiment.job_files {
            *workload = workload.on_each_client(clients);
        }
    }
    Ok(experiment)
}

pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// A new name for a record under `./trunkline-results/`.
#[must_use]
pub fn default_record() -> PathBuf {
    new_name(".json")
}

/// A new name under `./trunkline-results/`.
pub(crate) fn new_name(extension: &str) -> PathBuf {
    let stamp = record::rfc3339(now()).replace([':', '-'], "");
    let named = |suffix: String| Path::new("trunkline-results").join(format!("{stamp}{suffix}{extension}"));
    // Two runs may end within one second.
    let mut names = std::iter::once(String::new()).chain((2..1000).map(|number| format!("-{number}")));
    names.find(|suffix| !named(suffix.clone()).exists()).map(named).unwrap_or_else(|| named(String::new()))
}

fn measure_all(
    experiment: &Experiment,
    fleet: Option<&RefCell<Fleet>>,
    progress: &Progress,
) -> Result<Measured> {
    let (began, mut jobs) = (Instant::now(), Vec::new());
    let mut record = Record {
        trunkline_version: env!("CARGO_PKG_VERSION").into(),
        commit: commit(),
        experiment: cells::describe(experiment),
        environment: machine::environment(),
        ..Record::default()
    };
    let mut limits = Limits::default();
    // What this machine carries over loopback is no limit of other clients.
    if fleet.is_none() {
        limits = calibrate_all(experiment, progress)?;
    }
    record.options = cells::options(experiment, limits.congestion.as_deref());
    record.routes = experiment.routes.iter().map(|spec| routes::describe(spec, experiment)).collect();
    if let Some(fleet) = fleet {
        record.options.extend(fleet.borrow().notes());
        skip_without_rdma(experiment, &fleet.borrow(), &mut record);
    }
    for pace in [None].into_iter().chain(experiment.pace_bits_per_s.map(Some)) {
        jobs.extend(half(experiment, fleet, began, pace, &mut limits, &mut record, progress)?);
    }
    record.limits = limits.into_record();
    let names: Vec<String> = record
        .routes
        .iter()
        .filter(|route| route.skipped.is_none())
        .map(|route| route.name.clone())
        .collect();
    for (first, second) in names.iter().zip(names.iter().skip(1)) {
        record.compare(second, first, 1);
    }
    record.check_limits();
    record.made_at = record::rfc3339(now());
    Ok(Measured { record, jobs })
}

/// Skips routes over RDMA whose clients have none.
fn skip_without_rdma(experiment: &Experiment, fleet: &Fleet, record: &mut Record) {
    for (spec, route) in experiment.routes.iter().zip(&mut record.routes) {
        if routes::is_rdma(&spec.options) && route.skipped.is_none() {
            route.skipped = fleet.no_rdma(&experiment.clients_of(spec));
        }
    }
}

/// The commit of which this program was built, if it was built in a checkout.
fn commit() -> Option<String> {
    option_env!("TRUNKLINE_COMMIT").filter(|commit| !commit.is_empty()).map(str::to_owned)
}

/// One half of the experiment: raw or paced. Returns the results of single jobs.
fn half(
    experiment: &Experiment,
    fleet: Option<&RefCell<Fleet>>,
    began: Instant,
    pace_bits_per_s: Option<u64>,
    limits: &mut Limits,
    record: &mut Record,
    progress: &Progress,
) -> Result<Vec<MeasuredJobs>> {
    let workloads: Vec<PlannedWorkload> = experiment
        .planned()
        .into_iter()
        .map(|workload| match pace_bits_per_s {
            None => workload,
            Some(_) => workload.with_files_up_to(PACED_FILE_BYTES_MAX),
        })
        .collect();
    let pace_bytes = pace_bits_per_s.map(|bits| bits / 8);
    let specs = runnable(experiment, pace_bits_per_s, &workloads, record);
    let on_group = specs.iter().filter(|spec| spec.volume(experiment).is_none());
    let over_rdma = on_group.into_iter().any(|spec| routes::is_rdma(&spec.options));
    let rdma = if over_rdma { rdma::addresses().unwrap_or_default() } else { Vec::new() };
    let admitted = fleet.map(|fleet| fleet.borrow().addresses()).unwrap_or_default();
    let group = match experiment.embedded() {
        Some(embedded) => Some(Group::start(&GroupPlan {
            nodes: embedded.nodes,
            addresses: embedded.addresses,
            clients: &admitted,
            mem_bytes: embedded.mem_bytes,
            pace_bytes_per_s: pace_bytes,
            congestion: limits.congestion.as_deref(),
            rdma: &rdma,
            version_4: specs.iter().any(|spec| routes::is_version_4(&spec.options)),
        })?),
        None => None,
    };
    let volume = EmbeddedVolume::of(&specs, experiment, &workloads)?;
    // Ends before the group does.
    let _watched = group.as_ref().map(|group| progress.watch().group(group));
    let congestion = limits.congestion.as_deref();
    let embedded = EmbeddedServers { group: group.as_ref(), volume: volume.as_ref() };
    let mut ready = routes::ready(&specs, experiment, embedded, pace_bytes, congestion, progress, record)?;
    if group.is_some() && fleet.is_none() {
        ready.retain(|route| reaches(route, record));
    }
    if ready.is_empty() {
        return Ok(Vec::new());
    }
    if let Some(fleet) = fleet {
        inspect(&mut ready, &mut fleet.borrow_mut(), record, progress)?;
    }
    let name = if pace_bits_per_s.is_some() { "paced" } else { "raw" };
    let files = FileSets::prepare(&ready, &workloads, name, fleet, progress)?;
    note_skipped(&ready, &workloads, record);
    let context =
        HalfContext { experiment, fleet, began, pace_bits_per_s, embedded, ready: &ready, progress };
    let measured = context.workloads(&workloads, &files, limits, record);
    // Whatever ended the experiment, its files do not stay on the server.
    files.remove_after(measured)
}

/// Says of each workload that a route to a volume does not have why it is not run there.
fn note_skipped(ready: &[ReadyRoute], workloads: &[PlannedWorkload], record: &mut Record) {
    for route in ready {
        let Access::Volume(volume) = &route.access else { continue };
        let described = record.routes.iter_mut().find(|described| described.name == route.name);
        let skipped = |workload: &PlannedWorkload| {
            let reason = volume.skips(workload)?;
            Some(Workload {
                name: workload.name().to_owned(),
                skipped: Some(reason.to_owned()),
                ..Workload::default()
            })
        };
        if let Some(described) = described {
            described.workloads.extend(workloads.iter().filter_map(skipped));
        }
    }
}

/// The routes of a half. Routes that cannot be paced say so in their paced workloads.
fn runnable<'a>(
    experiment: &'a Experiment,
    pace_bits_per_s: Option<u64>,
    workloads: &[PlannedWorkload],
    record: &mut Record,
) -> Vec<&'a RouteSpec> {
    let mut specs = Vec::new();
    for (spec, route) in experiment.routes.iter().zip(&mut record.routes) {
        match pace_bits_per_s {
            _ if route.skipped.is_some() => {}
            Some(bits) => match routes::not_paced(spec, experiment) {
                Some(reason) => route.workloads.extend(workloads.iter().map(|workload| Workload {
                    name: workload.name().to_owned(),
                    pace: Some(Pace { gbit_per_s_per_node: bits as f64 / 1e9 }),
                    skipped: Some(reason.into()),
                    ..Workload::default()
                })),
                None => specs.push(spec),
            },
            None => specs.push(spec),
        }
    }
    specs
}

/// Asks the clients for their directories; the record has how they are accessed.
fn inspect(
    ready: &mut [ReadyRoute],
    fleet: &mut Fleet,
    record: &mut Record,
    progress: &Progress,
) -> Result<()> {
    for route in ready {
        let Access::Remote(directory) = &mut route.access else { continue };
        fleet.inspect(&route.name, directory, &route.clients, progress.stop())?;
        let names: Vec<&str> = route.clients.iter().map(|client| fleet.name(*client)).collect();
        let described = record.routes.iter_mut().find(|described| described.name == route.name);
        if let Some(described) = described {
            described.access = Some(directory.describe(&names));
        }
    }
    Ok(())
}

/// Whether the embedded group can be mounted over this route: a local RDMA device cannot always
/// reach itself. The reason is put into the record.
fn reaches(route: &ReadyRoute, record: &mut Record) -> bool {
    // A volume was attached already.
    if !route.is_rdma() || !route.is_embedded || matches!(route.access, Access::Volume(_)) {
        return true;
    }
    let Err(error) = route.mount() else { return true };
    let causes = std::iter::successors(Some(&error as &dyn std::error::Error), |error| error.source());
    let reason = causes.map(ToString::to_string).collect::<Vec<_>>().join(": ");
    if let Some(described) = record.routes.iter_mut().find(|described| described.name == route.name) {
        described.skipped = Some(reason);
    }
    false
}

/// Whether the last rounds have neither outliers nor a trend in any direction (SNIA PTS: five
/// rounds, data within 20 %, slope within 10 % of the mean).
fn is_steady(samples: &[Sample]) -> bool {
    let directions: [fn(&Sample) -> Option<&Flow>; 2] = [|it| it.read.as_ref(), |it| it.write.as_ref()];
    directions.into_iter().all(|of| {
        let speeds: Vec<f64> = samples.iter().filter_map(of).map(|flow| flow.bytes_per_s).collect();
        speeds.is_empty() || record::stats::steadiness(&speeds).is_some_and(|found| found.is_steady())
    })
}

/// What a workload measured on a route.
#[derive(Clone, Default)]
struct RouteSamples {
    samples: Vec<Sample>,
    /// The counters of its paths.
    paths: Vec<PathCounters>,
    /// The RDMA work of both ends.
    counters: Counters,
    /// The clients that are lost: name and reason. Nothing more is measured then.
    lost: Vec<(String, String)>,
    /// The client that could not run this, and why. Nothing more is measured then either, but other
    /// routes and workloads may need the client.
    failed: Option<(String, String)>,
}

impl RouteSamples {
    /// Whether all repeats so far are complete.
    fn is_complete(&self) -> bool {
        self.lost.is_empty() && self.failed.is_none()
    }
}

/// What stays the same throughout a half.
struct HalfContext<'a> {
    experiment: &'a Experiment,
    /// The clients on other machines; without them this process is the client.
    fleet: Option<&'a RefCell<Fleet>>,
    began: Instant,
    pace_bits_per_s: Option<u64>,
    embedded: EmbeddedServers<'a>,
    ready: &'a [ReadyRoute],
    progress: &'a Progress,
}

impl HalfContext<'_> {
    /// Runs all workloads, and adds their cells to the record.
    fn workloads(
        &self,
        workloads: &[PlannedWorkload],
        files: &FileSets<'_>,
        limits: &mut Limits,
        record: &mut Record,
    ) -> Result<Vec<MeasuredJobs>> {
        let mut jobs = Vec::new();
        let mut are_here = vec![true; self.ready.len()];
        let name = if self.pace_bits_per_s.is_some() { "paced" } else { "raw" };
        for (index, workload) in workloads.iter().enumerate() {
            let samples = self.workload(workload, files, index)?;
            for (are_here, measured) in are_here.iter_mut().zip(&samples) {
                *are_here &= measured.samples.iter().flat_map(|it| &it.clients).all(|client| client.is_here);
            }
            limits.measure_again(index, self.progress)?;
            let compared = files.compare(index, self.progress.stop())?;
            for wrong in compared.iter().flatten().filter_map(|(_, wrong)| wrong.as_ref()) {
                record.fail(format!("{} ({name}): {wrong}", workload.name()));
            }
            for (at, (route, measured)) in self.ready.iter().zip(samples).enumerate() {
                if !route.has_workload(index) {
                    continue;
                }
                let verified = compared.get(files.set_of(at)).cloned().flatten();
                let verified = verified.map(|(bytes, wrong)| Verified {
                    stamps: measured.samples.iter().map(|sample| sample.stamps).sum(),
                    bytes,
                    wrong: u64::from(wrong.is_some()),
                });
                let workload = workload.on_clients(route.clients.len().max(1));
                let cell = self.cell(route, &workload, index, &measured, limits);
                report_clients(record, route, &cell, &measured);
                if workload.results > 0 {
                    let repeats = measured.samples.into_iter().map(|sample| sample.results).collect();
                    jobs.push(MeasuredJobs { route: route.name.clone(), workload: index, repeats });
                }
                let directory = record.routes.iter_mut().find(|described| described.name == route.name);
                if let Some(directory) = directory {
                    let RouteSamples { paths, counters, .. } = measured;
                    directory.nodes.clone_from(&route.node_names);
                    directory.paths = paths.iter().map(|path| path.path.clone()).collect();
                    let over_rdma = route.is_rdma();
                    let simulated = machine::simulated(route.is_embedded, &record.environment, over_rdma);
                    let note = route.note(&workload);
                    directory.workloads.push(Workload { verified, paths, counters, simulated, note, ..cell });
                }
            }
        }
        self.judge_slots(&are_here, record);
        Ok(jobs)
    }

    /// Compares the steps of each route: whether more calls in flight would have helped.
    /// `are_here` says of each whether all its clients are on this machine.
    fn judge_slots(&self, are_here: &[bool], record: &mut Record) {
        let half = if self.pace_bits_per_s.is_some() { Half::Paced } else { Half::Raw };
        for (route, are_here) in self.ready.iter().zip(are_here) {
            let described = record.routes.iter_mut().find(|described| described.name == route.name);
            described.into_iter().for_each(|it| steps::judge(it, half, route.behind(*are_here)));
        }
    }

    /// Runs a workload on all routes, interleaved: A B C, C B A, and so on, so that a drift of the
    /// machine affects all routes alike. Returns the samples by route.
    fn workload(
        &self,
        workload: &PlannedWorkload,
        files: &FileSets<'_>,
        index: usize,
    ) -> Result<Vec<RouteSamples>> {
        let mut done: Vec<RouteSamples> = vec![Default::default(); self.ready.len()];
        let name = if self.pace_bits_per_s.is_some() { "paced" } else { "raw" };
        let repeats = self.experiment.repeats;
        // The thorough procedure continues until every route is steady; the others have a fixed
        // number of repeats.
        let most = if self.experiment.procedure == Procedure::Thorough { repeats * 3 } else { repeats };
        let all: Vec<usize> = (0..self.ready.len())
            .filter(|at| self.ready.get(*at).is_some_and(|it| it.has_workload(index)))
            .collect();
        self.progress.stage(&format!("{name}: {}", workload.name()), u64::from(most) * all.len() as u64);
        for repeat in 0..most {
            let of_routes = || all.iter().filter_map(|at| done.get(*at));
            if repeat >= repeats && of_routes().all(|done| !done.is_complete() || is_steady(&done.samples)) {
                break;
            }
            let mut order = all.clone();
            if repeat % 2 == 1 {
                order.reverse();
            }
            for at in order {
                if let (Some(route), Some(done)) = (self.ready.get(at), done.get_mut(at))
                    && done.is_complete()
                {
                    match &route.access {
                        Access::Mount(mounted) => {
                            let prepared = files.prepared(at, index);
                            self.repeat(route, &mounted.plan, workload, prepared, done)?;
                        }
                        Access::Directory(directory) => {
                            self.in_directory(route, directory, workload, files.local(at, index), done)?;
                        }
                        Access::Volume(volume) => {
                            self.on_volume(route, volume, workload, files.on_volume(at, index), done)?;
                        }
                        Access::Remote(_) => {
                            if let Some(files) = files.remote(at) {
                                let load = clients::Load::Directory { files, workload: index };
                                self.on_fleet(route, load, workload, &|| None, done)?;
                            }
                        }
                    }
                    self.progress.advance(1);
                }
            }
        }
        Ok(done)
    }

    /// Runs a workload once in a directory.
    fn in_directory(
        &self,
        route: &ReadyRoute,
        directory: &DirectoryRoute,
        workload: &PlannedWorkload,
        files: &[LocalFile],
        done: &mut RouteSamples,
    ) -> Result<()> {
        let window = workload.window.unwrap_or_else(|| self.window(workload.shape.block_bytes));
        let sample = directory.run(workload, files, window, self.progress.stop());
        let sample = sample.map_err(|reason| Self::failed(route, workload, reason))?;
        done.samples.push(sample.ok_or(Error::Stopped)?);
        Ok(())
    }

    /// Runs a workload once on a volume, which is attached for that.
    fn on_volume(
        &self,
        route: &ReadyRoute,
        volume: &VolumeRoute,
        workload: &PlannedWorkload,
        files: &[VolumeFile],
        done: &mut RouteSamples,
    ) -> Result<()> {
        let attached = volume.attach()?;
        let embedded = self.embedded.volume.filter(|_| route.is_embedded);
        let server_cpu = || embedded.map(EmbeddedVolume::cpu);
        let window = workload.window.unwrap_or_else(|| self.window(workload.shape.block_bytes));
        let sample = volume.run(&attached, &server_cpu, workload, files, window, self.progress.stop());
        let sample = sample.map_err(|reason| Self::failed(route, workload, reason))?;
        done.samples.push(sample.ok_or(Error::Stopped)?);
        attached.add_counters(&mut done.paths);
        Ok(())
    }

    /// Runs a workload once on a route to a server.
    fn repeat(
        &self,
        route: &ReadyRoute,
        plan: &MountPlan,
        workload: &PlannedWorkload,
        prepared: &[PreparedFile],
        done: &mut RouteSamples,
    ) -> Result<()> {
        let group = self.embedded.group.filter(|_| route.is_embedded);
        let server_before = group.map(rdma::served_counters);
        let serving = group.map(|group| group.server.statistics().loops);
        let serving = serving.map(|loops| loops.iter().map(|cell_of| cell_of.thread).collect::<Vec<_>>());
        let server_cpu = || serving.as_deref().map(measure::cpu);
        let window = workload.window.unwrap_or_else(|| self.window(workload.shape.block_bytes));
        match self.fleet {
            Some(_) => {
                let load = clients::Load::Mount { route: plan, files: prepared };
                self.on_fleet(route, load, workload, &server_cpu, done)?;
            }
            None => self.here(route, workload, prepared, window, &server_cpu, done)?,
        }
        if let (true, Some(group), Some(before)) = (route.is_rdma(), group, server_before) {
            rdma::add_work(&mut done.counters.server, &before, &rdma::served_counters(group));
        }
        Ok(())
    }

    /// Runs a workload once on the clients of a route.
    fn on_fleet(
        &self,
        route: &ReadyRoute,
        load: clients::Load<'_>,
        workload: &PlannedWorkload,
        server_cpu: &dyn Fn() -> Option<Duration>,
        done: &mut RouteSamples,
    ) -> Result<()> {
        let Some(fleet) = self.fleet else { return Ok(()) };
        let window = workload.window.unwrap_or_else(|| self.window(workload.shape.block_bytes));
        let workload = workload.on_clients(route.clients.len());
        let members = route.clients.get(..workload.clients).unwrap_or(&route.clients);
        let stop = self.progress.stop();
        let (name, watch) = (&route.name, self.progress.watch());
        let run =
            clients::Run { load, route: name, watch, members, workload: &workload, window, server_cpu, stop };
        self.on_clients(&mut fleet.borrow_mut(), &run, done)
    }

    /// Runs a workload once with this process as the client.
    fn here(
        &self,
        route: &ReadyRoute,
        workload: &PlannedWorkload,
        prepared: &[PreparedFile],
        window: Window,
        server_cpu: &dyn Fn() -> Option<Duration>,
        done: &mut RouteSamples,
    ) -> Result<()> {
        let mount = route.mount()?;
        let placed = measure::place(&mount, prepared);
        let stop = self.progress.stop();
        let sample = measure::run_until_stop(&mount, server_cpu, workload, &placed, window, stop);
        let sample = sample.map_err(|reason| Self::failed(route, workload, reason))?;
        done.samples.push(sample.ok_or(Error::Stopped)?);
        let group = self.embedded.group.filter(|_| route.is_embedded);
        routes::add_counters(&mut done.paths, &mount, group.map(|group| &group.at));
        if route.is_rdma() {
            rdma::add_work(&mut done.counters.client, &Done::default(), &mount.statistics().rdma);
        }
        Ok(())
    }

    /// Runs a workload once on other machines.
    fn on_clients(&self, fleet: &mut Fleet, run: &clients::Run<'_>, done: &mut RouteSamples) -> Result<()> {
        let repeated = match fleet.run(run) {
            Ok(repeated) => repeated,
            Err(clients::Failure::Stopped) => return Err(Error::Stopped),
            Err(clients::Failure::Failed(member, reason)) => {
                done.failed = Some((fleet.name(member).to_owned(), reason));
                return Ok(());
            }
            Err(clients::Failure::Lost(gone)) => {
                let reason = |client: usize| fleet.lost(client).unwrap_or_default().to_owned();
                done.lost = gone.into_iter().map(|it| (fleet.name(it).to_owned(), reason(it))).collect();
                return Ok(());
            }
        };
        done.samples.push(repeated.sample);
        for paths in &repeated.paths {
            clients::add_paths(&mut done.paths, paths);
        }
        for (name, count) in repeated.counters.iter().flatten() {
            *done.counters.client.entry(name.clone()).or_default() += count;
        }
        Ok(())
    }

    fn failed(route: &ReadyRoute, workload: &PlannedWorkload, reason: String) -> Error {
        Error::Run { route: route.name.clone(), workload: workload.name().to_owned(), reason }
    }

    /// The window of a repeat. A paced repeat of large blocks warms up and is measured for longer,
    /// because the first blocks leave as a burst, and a large block takes many milliseconds on its
    /// connection.
    fn window(&self, block_bytes: u64) -> Window {
        let experiment = self.experiment;
        let (warm, measured) = match self.pace_bits_per_s {
            None => (experiment.warm, experiment.window),
            Some(_) if block_bytes >= LARGE_BLOCK_BYTES => (PACED_WARM, experiment.paced_window),
            Some(_) => (PACED_WARM / 2, experiment.paced_window.mul_f64(0.6)),
        };
        Window { warm, end: warm + measured }
    }

    fn cell(
        &self,
        route: &ReadyRoute,
        workload: &PlannedWorkload,
        index: usize,
        measured: &RouteSamples,
        limits: &Limits,
    ) -> Workload {
        let samples = &measured.samples;
        let pace = self.pace_bits_per_s.map(|bits| Pace { gbit_per_s_per_node: bits as f64 / 1e9 });
        let context = cells::CellContext {
            workload,
            pace,
            nodes_of_paths: &route.node_of_path,
            nodes: route.nodes,
            all_nodes: route.node_names.len(),
            loops: samples.first().map_or(1, |sample| sample.loops),
            calibrated: limits.of_route(index, route),
            links_gbytes_per_s: self.experiment.links.gbytes_per_s(
                route.nodes,
                workload.clients.max(1),
                route.transport(),
            ),
            began: self.began,
            thorough: self.experiment.procedure == Procedure::Thorough,
        };
        let mut workload = cells::build(&context, samples);
        cells::mark_lost(&mut workload, &measured.lost);
        if let (None, None, Some((name, reason))) = (&workload.read, &workload.write, &measured.failed) {
            workload.skipped = Some(format!("client {name}: {reason}"));
        }
        workload
    }
}

/// Adds to the record what is wrong with the clients of a workload on a route: those that are lost,
/// and starts too far apart.
fn report_clients(record: &mut Record, route: &ReadyRoute, cell: &Workload, measured: &RouteSamples) {
    let place = format!("{} on {}", cell.name, route.name);
    for (name, reason) in &measured.lost {
        let lost = format!("client {name} is lost");
        if record.failed.iter().any(|reason| reason.contains(&lost)) {
            continue;
        }
        record.fail(format!(
            "{place}: {lost} ({reason}) after {} complete repeats, which remain; what needs that client is \
             not measured any more",
            measured.samples.len()
        ));
    }
    if let Some((name, reason)) = &measured.failed {
        record.fail(format!(
            "{place}: client {name}: {reason}; the {} complete repeats before remain",
            measured.samples.len()
        ));
    }
    let warm = measured.samples.first().map(|sample| sample.counted.warm).unwrap_or_default();
    // A load that ends by its size has no warm-up: it is measured from the first start to the end.
    let timed = measured.samples.iter().all(|sample| !sample.counted.warm.is_zero());
    let latest =
        cell.clients.iter().max_by(|one, other| one.start_offset_ms.total_cmp(&other.start_offset_ms));
    if let Some(client) = latest.filter(|client| timed && client.start_offset_ms > warm.as_secs_f64() * 1e3) {
        record.fail(format!(
            "{place}: client {} started {:.0} ms after the first, more than the warm-up of {} ms",
            client.name,
            client.start_offset_ms,
            warm.as_millis()
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_have_time_to_start_before_anything_is_measured() {
        let nodes_on = (1..=4).map(|node| IpAddr::from([10, 0, 0, node])).collect();
        let clients = vec!["one=10.0.0.11".parse().unwrap()];
        let shared = experiment(&RunOptions { clients, nodes_on, ..RunOptions::default() }).unwrap();
        assert_eq!(shared.warm, CLIENTS_WARM_MIN);
        assert!(experiment(&RunOptions::default()).unwrap().warm < CLIENTS_WARM_MIN);
    }
}
