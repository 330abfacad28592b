//! Runs an experiment from its calibration to its record.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use client::FileRef;
use record::{Counters, Pace, PathCounters, Procedure, Record, Verified, Workload};

use crate::calibration::{Limits, calibrate_all};
use crate::cells;
use crate::error::{Error, Result};
use crate::experiment::{Experiment, RouteSpec};
use crate::file_sets::FileSets;
use crate::files::PreparedFile;
use crate::group::{Group, GroupPlan};
use crate::jobs::Window;
use crate::machine;
use crate::measure::{self, Flow, Sample};
use crate::progress::Progress;
use crate::rdma;
use crate::routes::{self, ReadyRoute};
use crate::stop::Stop;
use crate::workload::PlannedWorkload;
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
}

/// Writes a record to a file, or to a new one under `./trunkline-results/`, and returns its name.
///
/// # Errors
/// [`Error::Write`].
pub fn write_record(record: &Record, file: Option<&Path>) -> Result<PathBuf> {
    let file = file.map_or_else(default_file, Path::to_owned);
    write(&file, &record.write())?;
    Ok(file)
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
    let experiment = match (&options.planned, &options.experiment) {
        (Some(planned), _) => planned.clone(),
        (None, Some(file)) => Experiment::from_file(file, options.procedure)?,
        (None, None) => Experiment::built_in(options.procedure),
    };
    let progress = Progress::new(options.progress, options.stop.clone());
    let record = measure_all(&experiment, &progress);
    progress.finish();
    record
}

/// Writes a file, and creates its directory if necessary.
///
/// # Errors
/// [`Error::Write`].
pub fn write(file: &Path, text: &str) -> Result<()> {
    let wrap = |cause| Error::Write { file: file.display().to_string(), cause };
    if let Some(directory) = file.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        std::fs::create_dir_all(directory).map_err(wrap)?;
    }
    std::fs::write(file, text).map_err(wrap)
}

pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn default_file() -> PathBuf {
    let stamp = record::rfc3339(now()).replace([':', '-'], "");
    let named = |suffix: String| Path::new("trunkline-results").join(format!("{stamp}{suffix}.json"));
    // Two runs may end within one second.
    let mut names = std::iter::once(String::new()).chain((2..1000).map(|number| format!("-{number}")));
    names.find(|suffix| !named(suffix.clone()).exists()).map(named).unwrap_or_else(|| named(String::new()))
}

fn measure_all(experiment: &Experiment, progress: &Progress) -> Result<Measured> {
    let (began, mut jobs) = (Instant::now(), Vec::new());
    // The calibration has both ends of each connection in this process.
    transport::descriptors::raise_limit();
    let mut record = Record {
        trunkline_version: env!("CARGO_PKG_VERSION").into(),
        commit: commit(),
        experiment: cells::describe(experiment),
        environment: machine::environment(),
        ..Record::default()
    };
    let mut limits = Limits::default();
    if let Some((nodes, _)) = experiment.embedded() {
        limits = calibrate_all(experiment, nodes, progress)?;
    }
    record.options = cells::options(experiment, limits.congestion.as_deref());
    record.routes = experiment.routes.iter().map(|spec| routes::describe(spec, experiment)).collect();
    for pace in [None].into_iter().chain(experiment.pace_bits_per_s.map(Some)) {
        jobs.extend(half(experiment, began, pace, &mut limits, &mut record, progress)?);
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

/// The commit of which this program was built, if it was built in a checkout.
fn commit() -> Option<String> {
    option_env!("TRUNKLINE_COMMIT").filter(|commit| !commit.is_empty()).map(str::to_owned)
}

/// One half of the experiment: raw or paced. Returns the results of single jobs.
fn half(
    experiment: &Experiment,
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
    let over_rdma = specs.iter().any(|spec| routes::is_rdma(&spec.options));
    let rdma = if over_rdma { rdma::addresses().unwrap_or_default() } else { Vec::new() };
    let group = match experiment.embedded() {
        Some((nodes, mem_bytes)) => Some(Group::start(&GroupPlan {
            nodes,
            mem_bytes,
            pace_bytes_per_s: pace_bytes,
            congestion: limits.congestion.as_deref(),
            rdma: &rdma,
        })?),
        None => None,
    };
    let mut ready =
        routes::ready(&specs, experiment, group.as_ref(), pace_bytes, limits.congestion.as_deref())?;
    if group.is_some() {
        ready.retain(|route| reaches(route, record));
    }
    if ready.is_empty() {
        return Ok(Vec::new());
    }
    let name = if pace_bits_per_s.is_some() { "paced" } else { "raw" };
    let files = FileSets::prepare(&ready, &workloads, name, progress)?;
    let group = group.as_ref();
    let context = HalfContext { experiment, began, pace_bits_per_s, group, ready: &ready, progress };
    let measured = context.workloads(&workloads, &files, limits, record);
    // Whatever ended the experiment, its files do not stay on the server.
    files.remove_after(measured)
}

/// The routes of a half. Routes over RDMA cannot be paced; their paced workloads state that.
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
            Some(bits) if routes::is_rdma(&spec.options) => {
                route.workloads.extend(workloads.iter().map(|workload| Workload {
                    name: workload.name().to_owned(),
                    pace: Some(Pace { gbit_per_s_per_node: bits as f64 / 1e9 }),
                    skipped: Some(routes::NOT_PACED.into()),
                    ..Workload::default()
                }));
            }
            _ => specs.push(spec),
        }
    }
    specs
}

/// Whether the embedded group can be mounted over this route: a local RDMA device cannot always
/// reach itself. The reason is put into the record.
fn reaches(route: &ReadyRoute, record: &mut Record) -> bool {
    if !route.is_rdma() {
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

/// The samples of a route, the counters of its paths, and the RDMA work of both ends.
type RouteSamples = (Vec<Sample>, Vec<PathCounters>, Counters);

/// What stays the same throughout a half.
struct HalfContext<'a> {
    experiment: &'a Experiment,
    began: Instant,
    pace_bits_per_s: Option<u64>,
    group: Option<&'a Group>,
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
        let name = if self.pace_bits_per_s.is_some() { "paced" } else { "raw" };
        for (index, workload) in workloads.iter().enumerate() {
            let samples = self.workload(workload, files, index)?;
            limits.measure_again(index, self.progress)?;
            let compared = files.compare(index, self.progress.stop())?;
            for wrong in compared.iter().filter_map(|(_, wrong)| wrong.as_ref()) {
                record.fail(format!("{} ({name}): {wrong}", workload.name()));
            }
            for (at, (route, (samples, paths, counters))) in self.ready.iter().zip(samples).enumerate() {
                if !route.has_workload(index) {
                    continue;
                }
                let (bytes, wrong) = compared.get(files.set_of(at)).cloned().unwrap_or_default();
                let verified = Some(Verified {
                    stamps: samples.iter().map(|sample| sample.stamps).sum(),
                    bytes,
                    wrong: u64::from(wrong.is_some()),
                });
                let cell = self.cell(route, workload, index, &samples, limits);
                if workload.results > 0 {
                    let repeats = samples.into_iter().map(|sample| sample.results).collect();
                    jobs.push(MeasuredJobs { route: route.name.clone(), workload: index, repeats });
                }
                let directory = record.routes.iter_mut().find(|described| described.name == route.name);
                if let Some(directory) = directory {
                    directory.nodes.clone_from(&route.node_names);
                    directory.paths = paths.iter().map(|path| path.path.clone()).collect();
                    let over_rdma = route.is_rdma();
                    let simulated = machine::simulated(route.is_embedded, &record.environment, over_rdma);
                    directory.workloads.push(Workload { verified, paths, counters, simulated, ..cell });
                }
            }
        }
        Ok(jobs)
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
            if repeat >= repeats && of_routes().all(|(samples, ..)| is_steady(samples)) {
                break;
            }
            let mut order = all.clone();
            if repeat % 2 == 1 {
                order.reverse();
            }
            for at in order {
                if let (Some(route), Some(done)) = (self.ready.get(at), done.get_mut(at)) {
                    self.repeat(route, workload, files.prepared(at, index), done)?;
                }
            }
        }
        Ok(done)
    }

    /// Runs a workload once on a route.
    fn repeat(
        &self,
        route: &ReadyRoute,
        workload: &PlannedWorkload,
        prepared: &[PreparedFile],
        (samples, paths, counters): &mut RouteSamples,
    ) -> Result<()> {
        let group = self.group.filter(|_| route.is_embedded);
        let server_before = group.map(rdma::served_counters);
        let mount = route.mount()?;
        // A file that a workload names twice is one file of the mount.
        let mut placed: Vec<(FileRef, u32)> = Vec::with_capacity(prepared.len());
        for file in prepared {
            let known = placed.iter().find(|(_, number)| *number == file.number).copied();
            placed.push(known.unwrap_or_else(|| (mount.file_ref(file.handle), file.number)));
        }
        let serving = group.map(|group| group.server.statistics().loops);
        let serving = serving.map(|loops| loops.iter().map(|cell_of| cell_of.thread).collect::<Vec<_>>());
        let server_cpu = || serving.as_deref().map(measure::cpu);
        let window = workload.window.unwrap_or_else(|| self.window(workload.shape.block_bytes));
        let stop = self.progress.stop();
        let sample = measure::run_until_stop(&mount, &server_cpu, workload, &placed, window, stop);
        let sample = sample.map_err(|reason| Error::Run {
            route: route.name.clone(),
            workload: workload.name().to_owned(),
            reason,
        })?;
        samples.push(sample.ok_or(Error::Stopped)?);
        routes::add_counters(paths, &mount, group);
        if route.is_rdma() {
            rdma::add_work(&mut counters.client, &Done::default(), &mount.statistics().rdma);
            if let (Some(group), Some(before)) = (group, server_before) {
                rdma::add_work(&mut counters.server, &before, &rdma::served_counters(group));
            }
        }
        self.progress.advance(1);
        Ok(())
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
        samples: &[Sample],
        limits: &Limits,
    ) -> Workload {
        let pace = self.pace_bits_per_s.map(|bits| Pace { gbit_per_s_per_node: bits as f64 / 1e9 });
        let context = cells::CellContext {
            workload,
            pace,
            nodes_of_paths: &route.node_of_path,
            nodes: route.nodes,
            all_nodes: route.node_names.len(),
            loops: samples.first().map_or(1, |sample| sample.loops),
            calibrated: limits.of_route(index, route),
            links_gbytes_per_s: self.experiment.links.gbytes_per_s(route.nodes, route.transport()),
            began: self.began,
            thorough: self.experiment.procedure == Procedure::Thorough,
        };
        cells::build(&context, samples)
    }
}
