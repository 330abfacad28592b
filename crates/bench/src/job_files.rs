//! fio job files as experiments: each file is a route, each phase of a file a workload.
//!
//! A job file names files below a directory, and a map says which server stands for the directory.
//! Everything that cannot run is refused here, before anything is created.

mod convert;
mod maps;
mod results;
mod sizes;

use std::path::{Path, PathBuf};
use std::time::Duration;

use fio::{Context, JobFile};
use record::Procedure;

use self::maps::Map;
use self::results::ReportedRoute;
use self::sizes::Sizes;
use crate::error::{Error, ExperimentError, Result};
use crate::experiment::{Experiment, RouteSpec, Target};
use crate::workload::PlannedWorkload;

/// The memory of an embedded group beyond its files: a write needs new pages before the old ones
/// are free.
const GROUP_SPARE_BYTES: u64 = 256 << 20;
/// What stands in a note about an option of a job file that is mapped to a directory.
const DIRECT_IN_DIRECTORIES: &str = "directories are measured with O_DIRECT, unless --buffered is given";
const ENGINE_IN_DIRECTORIES: &str = "--engine says what makes the load on directories";
const SYNC_IN_DIRECTORIES: &str = "nothing is synchronous or followed by fsync(2) in a directory: with O_DIRECT a \
    write ends when the file system says so, with --buffered when its data are in the page cache";
const CACHE_IN_DIRECTORIES: &str = "what the page cache has of the files is dropped before each repeat";
const THREADS_IN_DIRECTORIES: &str =
    "a thread makes each operation in flight, with memory of its own; with --engine fio, fio does";
/// A larger job file is a mistake.
const JOB_FILE_BYTES_MAX: u64 = 4 << 20;

/// Job files, and how they are run.
#[derive(Debug, Clone, Default)]
pub struct JobFiles {
    /// The files.
    pub files: Vec<PathBuf>,
    /// Which server stands for which directory: `DIRECTORY=nfs://HOST/EXPORT?OPTIONS` or
    /// `DIRECTORY=group:?OPTIONS`.
    pub maps: Vec<String>,
    /// The room for all files together. Larger files are scaled down.
    pub shrink_bytes: Option<u64>,
    /// The time of each phase instead of the file's.
    pub runtime: Option<Duration>,
    /// The number of repeats.
    pub repeats: Option<u32>,
    /// Quick, standard or thorough.
    pub procedure: Procedure,
    /// Whether each job has results of its own, for [`Plan::fio_json`].
    pub details: bool,
}

/// An experiment of job files.
#[derive(Debug)]
pub struct Plan {
    /// The experiment.
    pub experiment: Experiment,
    /// What the job files ask for that changes nothing here, one remark a line.
    pub notes: Vec<String>,
    reported: Vec<ReportedRoute>,
}

/// A job file that was read.
struct Read {
    path: PathBuf,
    jobs: JobFile,
    map: Map,
}

impl JobFiles {
    /// Reads the job files and plans the experiment.
    ///
    /// # Errors
    /// [`Error::Experiment`] and [`Error::JobFile`] with the place and the reason,
    /// [`Error::Refused`] for maps and sizes.
    pub fn plan(&self) -> Result<Plan> {
        let maps = self.maps.iter().map(|text| Map::parse(text)).collect::<Result<Vec<_>>>()?;
        maps::check(&maps)?;
        let environment = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        let context = Context { environment: environment.collect() };
        let mut read = Vec::new();
        for path in &self.files {
            let jobs = parse(path, &context)?;
            let map = maps::of_file(path, &jobs, &maps)?.clone();
            read.push(Read { path: path.clone(), jobs, map });
        }
        let sizes =
            Sizes::plan(read.iter().map(|read| (read.path.as_path(), &read.jobs)), self.shrink_bytes)?;
        let names = names(&read);
        let (mut workloads, mut routes, mut reported) =
            (Vec::<PlannedWorkload>::new(), Vec::new(), Vec::new());
        for (index, (read, name)) in read.iter().zip(names).enumerate() {
            let phases = convert::phases(&read.path, &read.jobs, sizes.of_file(index), self.runtime)?;
            let mut indices = Vec::new();
            let mut of_route = ReportedRoute::new(&name, &read.jobs);
            for (mut phase, jobs) in phases.into_iter().zip(&read.jobs.phases) {
                if self.details {
                    of_route.add(jobs, &mut phase);
                }
                indices.push(add(&mut workloads, phase, &name, &indices));
            }
            of_route.workloads.clone_from(&indices);
            reported.push(of_route);
            routes.push(RouteSpec {
                name,
                options: read.map.options.clone(),
                target: Some(read.map.target.clone()),
                workloads: Some(indices),
                ..RouteSpec::default()
            });
        }
        size_group(&mut routes, &sizes)?;
        Ok(Plan { notes: notes(&read), experiment: self.experiment(routes, workloads), reported })
    }

    fn experiment(&self, routes: Vec<RouteSpec>, workloads: Vec<PlannedWorkload>) -> Experiment {
        let base = Experiment::built_in(self.procedure);
        // A file alone runs once, as with fio; a verdict needs repeats.
        let repeats = self.repeats.unwrap_or(if routes.len() > 1 { base.repeats } else { 1 });
        let window = workloads.first().and_then(|workload| workload.window);
        let target = routes.first().and_then(|route| route.target.clone());
        Experiment {
            name: "fio job files".into(),
            target: target.unwrap_or(base.target.clone()),
            window: window.map_or(base.window, |window| window.end - window.warm),
            warm: window.map_or(base.warm, |window| window.warm),
            routes,
            workloads: Vec::new(),
            job_files: workloads,
            repeats,
            pace_bits_per_s: None,
            ..base
        }
    }
}

fn parse(path: &Path, context: &Context) -> Result<JobFile> {
    let file = || path.display().to_string();
    let wrap = |cause| Error::Experiment { file: file(), cause };
    let size = std::fs::metadata(path).map_err(|error| wrap(error.into()))?.len();
    if size > JOB_FILE_BYTES_MAX {
        return Err(wrap(ExperimentError::Value(format!("{size} bytes are too many for a job file"))));
    }
    let text = std::fs::read_to_string(path).map_err(|error| wrap(error.into()))?;
    JobFile::parse(&text, context).map_err(|cause| Error::JobFile { file: file(), cause })
}

/// The names of the routes: the last parts of the mapped directories, or of the files where those
/// are the same.
fn names(read: &[Read]) -> Vec<String> {
    let stem =
        |path: &Path| path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let of_maps: Vec<String> = read
        .iter()
        .map(|read| match read.map.directory.rsplit('/').next() {
            None | Some("" | ".") => stem(&read.path),
            Some(last) => last.to_owned(),
        })
        .collect();
    let of_files: Vec<String> = read.iter().map(|read| stem(&read.path)).collect();
    let differ = |names: &[String]| {
        let unique: std::collections::BTreeSet<_> = names.iter().collect();
        unique.len() == names.len()
    };
    match (differ(&of_maps), differ(&of_files)) {
        (true, _) => of_maps,
        (false, true) => of_files,
        _ => of_files.iter().enumerate().map(|(index, name)| format!("{name}-{}", index + 1)).collect(),
    }
}

/// Adds a phase of a route to the workloads, or finds the same phase of another route. The route
/// has the workloads `own` already.
fn add(
    workloads: &mut Vec<PlannedWorkload>,
    mut phase: PlannedWorkload,
    route: &str,
    own: &[usize],
) -> usize {
    let mut known = workloads.iter().enumerate();
    let same = known.find(|(index, known)| !own.contains(index) && convert::is_same(known, &phase));
    if let Some((index, _)) = same {
        return index;
    }
    let taken = |name: &str| workloads.iter().any(|known| known.name() == name);
    let name = phase.shape.name.clone();
    let first = [name.clone(), format!("{route}-{name}")];
    let mut names = first.into_iter().chain((2..).map(|number| format!("{route}-{name}-{number}")));
    phase.shape.name = names.find(|name| !taken(name)).unwrap_or(name);
    workloads.push(phase);
    workloads.len() - 1
}

/// Gives the embedded group memory for the files of all of its routes.
fn size_group(routes: &mut [RouteSpec], sizes: &Sizes) -> Result<()> {
    let is_embedded = |route: &RouteSpec| matches!(route.target, Some(Target::Embedded { .. }));
    let needed: u64 = routes
        .iter()
        .enumerate()
        .filter(|(_, route)| is_embedded(route))
        .map(|(at, _)| sizes.bytes(at))
        .sum();
    if needed == 0 {
        return Ok(());
    }
    let memory = needed + needed / 8 + GROUP_SPARE_BYTES;
    let free = crate::machine::free_memory_bytes();
    if free.is_some_and(|free| memory > free) {
        let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
        let free = gib(free.unwrap_or_default());
        return Err(Error::refused(
            "the files do not fit into the memory of an embedded group",
            format!("they need {:.1} GiB, and {free:.1} GiB of this machine's memory are free", gib(memory)),
            format!("--shrink {}MiB", (free / 2.0 * 1024.0).max(16.0) as u64),
        ));
    }
    for route in routes {
        if let Some(Target::Embedded { mem_bytes, .. }) = &mut route.target {
            *mem_bytes = memory;
        }
    }
    Ok(())
}

/// What is said of an option in a directory instead of what holds for the client library.
fn in_directories(option: &str) -> Option<&'static str> {
    match option {
        "direct" | "buffered" => Some(DIRECT_IN_DIRECTORIES),
        "ioengine" => Some(ENGINE_IN_DIRECTORIES),
        "sync" | "fsync" | "fdatasync" | "end_fsync" | "fsync_on_close" | "create_fsync" => {
            Some(SYNC_IN_DIRECTORIES)
        }
        "invalidate" | "fadvise_hint" | "pre_read" => Some(CACHE_IN_DIRECTORIES),
        "thread" | "mem" | "mem_align" | "lockmem" | "hugepage-size" => Some(THREADS_IN_DIRECTORIES),
        _ => None,
    }
}

fn notes(read: &[Read]) -> Vec<String> {
    let of_file = |read: &Read| {
        let file = read.path.display().to_string();
        let is_directory = matches!(read.map.target, Target::Directory(_) | Target::Kernel(_));
        let line = move |note: &fio::Note| {
            let own = in_directories(&note.option).filter(|_| is_directory);
            let text = own.unwrap_or(&note.text);
            format!("{file}, line {}: {}: {text}", note.line, note.option)
        };
        read.jobs.notes.iter().map(line).collect::<Vec<_>>()
    };
    read.iter().flat_map(of_file).collect()
}

#[cfg(test)]
mod tests;
