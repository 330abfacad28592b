//! A phase of a job file as a workload.

use std::path::Path;
use std::time::Duration;

use fio::{Access, Blocks, Job, JobFile, Phase};
use record::{Pattern, Shape};

use super::sizes::FileSizes;
use crate::error::{Error, Result};
use crate::jobs::{BlockSizes, Order, UNTIMED, Window};
use crate::workload::{PlannedFile, PlannedJob, PlannedWorkload};

/// All blocks in flight together; each has a buffer.
const IN_FLIGHT_BYTES_MAX: u64 = 4 << 30;
/// The clones of all jobs of a phase.
const JOBS_MAX: usize = 1 << 12;

/// Whether two workloads are the same load; the names of jobs and files do not matter.
pub(super) fn is_same(one: &PlannedWorkload, other: &PlannedWorkload) -> bool {
    let plain = |it: &PlannedWorkload| (it.files.clone(), it.jobs.clone(), it.window, it.results);
    plain(one) == plain(other)
}

/// The phases of a job file.
pub(super) fn phases(
    path: &Path,
    jobs: &JobFile,
    sizes: &FileSizes,
    runtime: Option<Duration>,
) -> Result<Vec<PlannedWorkload>> {
    let mut converted = Vec::new();
    for phase in &jobs.phases {
        let refuse = |cause: String, advice: &str| Error::JobFile {
            file: path.display().to_string(),
            cause: fio::Error {
                line: phase.jobs.first().map_or(1, |job| job.line),
                column: 1,
                cause,
                advice: advice.to_owned(),
            },
        };
        let workload = workload(path, phase, sizes, runtime);
        if workload.jobs.len() > JOBS_MAX {
            let cause = format!("{} jobs at the same time, with their clones", workload.jobs.len());
            return Err(refuse(cause, "a smaller numjobs: at most 4096 run together"));
        }
        let in_flight = phase.jobs.iter().map(|job| {
            u64::from(job.depth)
                .saturating_mul(job.largest_block())
                .saturating_mul(job.instances.len() as u64)
        });
        if in_flight.fold(0, u64::saturating_add) > IN_FLIGHT_BYTES_MAX {
            return Err(refuse("more than 4 GiB in flight".into(), "a smaller iodepth, bs or numjobs"));
        }
        converted.push(workload);
    }
    Ok(converted)
}

fn workload(path: &Path, phase: &Phase, sizes: &FileSizes, runtime: Option<Duration>) -> PlannedWorkload {
    let mut workload = PlannedWorkload {
        shape: Shape::default(),
        files: Vec::new(),
        jobs: Vec::new(),
        results: 0,
        window: Some(window(phase, runtime)),
        step: None,
        clients: 0,
    };
    for job in &phase.jobs {
        for instance in &job.instances {
            workload.jobs.push(planned_job(job, instance, sizes, &mut workload.files));
        }
    }
    workload.shape = shape(path, phase, &workload);
    workload
}

fn window(phase: &Phase, runtime: Option<Duration>) -> Window {
    let first = phase.jobs.first();
    let warm = Duration::from_micros(first.map_or(0, |job| job.ramp_us));
    let asked = first.and_then(|job| job.runtime_us).map(Duration::from_micros);
    Window { warm, end: warm + runtime.or(asked).unwrap_or(UNTIMED) }
}

fn planned_job(
    job: &Job,
    instance: &fio::Instance,
    sizes: &FileSizes,
    files: &mut Vec<PlannedFile>,
) -> PlannedJob {
    let (mut used, mut asked, mut scaled, mut file_bytes) = (Vec::new(), 0, 0, u64::MAX);
    for file in &instance.files {
        let Some(sized) = sizes.get(&file.path) else { continue };
        let planned = PlannedFile { name: format!("file.{}", sized.number), bytes: sized.bytes };
        let index = files.iter().position(|known| *known == planned).unwrap_or_else(|| {
            files.push(planned);
            files.len() - 1
        });
        used.push(index);
        asked += u128::from(file.bytes);
        scaled += u128::from(sized.scaled(file.bytes));
        file_bytes = file_bytes.min(sized.scaled(file.bytes));
    }
    let shrunk = |bytes: u64| u64::try_from(u128::from(bytes) * scaled / asked.max(1)).unwrap_or(u64::MAX);
    let sizes_of = |blocks: Blocks| BlockSizes {
        min: blocks.min,
        max: blocks.max.min(file_bytes / blocks.min * blocks.min),
    };
    let read_percent = match job.access {
        Access::Read => 100,
        Access::Write => 0,
        Access::Mixed => job.read_percent,
    };
    // A direction that the job does not have gets the blocks of the other.
    let (read, write) = match job.access {
        Access::Read => (job.read, job.read),
        Access::Write => (job.write, job.write),
        Access::Mixed => (job.read, job.write),
    };
    PlannedJob {
        files: used,
        file_bytes,
        read_percent,
        order: match (job.random, job.random_map) {
            (false, _) => Order::Sequential,
            (true, true) => Order::RandomOnce,
            (true, false) => Order::Random,
        },
        blocks: [sizes_of(read), sizes_of(write)],
        depth: job.depth,
        io_bytes: job.io_bytes.map(shrunk),
        rate: rate(job, read_percent),
        result: None,
        client: 0,
    }
}

/// The operations per second of reads and writes together, in the proportion of the mix.
fn rate(job: &Job, read_percent: u8) -> Option<f64> {
    let [read, write] = job.rate_iops;
    let reads = f64::from(read_percent) / 100.0;
    let limits = [(read, reads), (write, 1.0 - reads)];
    let of_both = limits.iter().filter(|(_, share)| *share > 0.0).map(|(rate, share)| Some((*rate)? / share));
    of_both.reduce(|one, other| Some(one?.min(other?))).flatten()
}

fn shape(path: &Path, phase: &Phase, workload: &PlannedWorkload) -> Shape {
    let jobs = &phase.jobs;
    let count = |access: Access| {
        let instances = jobs.iter().filter(|job| job.access == access).map(|job| job.instances.len());
        u32::try_from(instances.sum::<usize>()).unwrap_or(u32::MAX)
    };
    let all_random = jobs.iter().all(|job| job.random);
    let largest = jobs.iter().map(Job::largest_block).max().unwrap_or_default();
    let depth = jobs.iter().map(|job| job.depth).max().unwrap_or(1);
    let mixed = count(Access::Mixed);
    let rates: Option<f64> = workload.jobs.iter().map(|job| job.rate).sum();
    Shape {
        name: name(phase, largest),
        pattern: if all_random { Pattern::Random } else { Pattern::Sequential },
        block_bytes: largest,
        depth,
        readers: count(Access::Read),
        writers: count(Access::Write),
        mixed,
        read_percent: jobs.iter().find(|job| job.access == Access::Mixed).map(|job| job.read_percent),
        file_bytes: workload.files.iter().map(|file| file.bytes).max(),
        rate_ops_per_s: rates,
        note: Some(note(path, phase)),
    }
}

/// The name of a job that runs alone, or what the jobs do together.
fn name(phase: &Phase, largest: u64) -> String {
    if let [job] = phase.jobs.as_slice() {
        return job.name.clone();
    }
    let all = |access: Access| phase.jobs.iter().all(|job| job.access == access);
    let what = if all(Access::Read) {
        "read"
    } else if all(Access::Write) {
        "write"
    } else {
        "mix"
    };
    let random = if phase.jobs.iter().all(|job| job.random) { "rand" } else { "" };
    format!("{random}{what}-{}", short(largest))
}

fn short(bytes: u64) -> String {
    match bytes {
        bytes if bytes.is_multiple_of(1 << 20) => format!("{}m", bytes >> 20),
        bytes if bytes.is_multiple_of(1 << 10) => format!("{}k", bytes >> 10),
        bytes => bytes.to_string(),
    }
}

/// What the shape cannot say.
fn note(path: &Path, phase: &Phase) -> String {
    let file = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let mut parts = vec![format!("fio job file {file}")];
    let mut blocks: Vec<u64> = Vec::new();
    for job in &phase.jobs {
        for used in match job.access {
            Access::Read => vec![job.read],
            Access::Write => vec![job.write],
            Access::Mixed => vec![job.read, job.write],
        } {
            blocks.extend([used.min, used.max]);
        }
    }
    if let (Some(min), Some(max)) = (blocks.iter().min(), blocks.iter().max())
        && min != max
    {
        parts.push(format!("blocks of {} to {}", short(*min), short(*max)));
    }
    let mut depths = phase.jobs.iter().map(|job| job.depth);
    let first = depths.next();
    if depths.any(|depth| Some(depth) != first) {
        parts.push("several depths".to_owned());
    }
    parts.join(", ")
}
