//! The installed program fio on a directory: a workload becomes a job file, and fio's JSON a
//! sample.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::process::Command;
use std::time::{Duration, Instant};

use fio::results::Moved;
use record::{Direction, LatencyCounts};
use rustix::fs::OFlags;

use super::files::{LocalFile, forget};
use crate::error::Error;
use crate::fio_program::{self, Finished, first_line};
use crate::jobs::{BlockSizes, Order, Window};
use crate::machine::{CpuMeter, CpuShares};
use crate::measure::{Flow, Sample};
use crate::rdma::Ports;
use crate::stop::Stop;
use crate::workload::{PlannedJob, PlannedWorkload};

/// Runs a workload once; `None` after a stop.
///
/// # Errors
/// The first error.
pub(super) fn run_until_stop(
    direct: bool,
    workload: &PlannedWorkload,
    files: &[LocalFile],
    window: Window,
    stop: &Stop,
) -> Result<Option<Sample>, String> {
    let text = job_file(direct, workload, files, window).map_err(|error| error.to_string())?;
    let mut file = tempfile::Builder::new().prefix("trunkline-").suffix(".fio").tempfile();
    let written = file.as_mut().map(|file| file.write_all(text.as_bytes()));
    if let Err(error) | Ok(Err(error)) =
        written.map_err(|error| io::Error::new(error.kind(), error.to_string()))
    {
        return Err(format!("cannot write a job file for fio: {error}"));
    }
    let Ok(file) = file else { return Err("no job file".to_owned()) };
    if !direct {
        let opened = files.iter().try_for_each(|file| forget(&file.open(OFlags::RDONLY)?));
        opened.map_err(|error| error.to_string())?;
    }
    let mut command = Command::new("fio");
    command.arg("--output-format=json+").arg(file.path());
    let (began, ports, busy) = (Instant::now(), Ports::now(), CpuMeter::start());
    let Finished { output, messages, success } = match fio_program::run(command, stop) {
        Ok(finished) => finished,
        Err(Error::Stopped) => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let busy = busy.share();
    let failed = |cause: String| {
        let said = first_line(&messages).unwrap_or(cause);
        let advice = if direct { "; where O_DIRECT is the cause: --buffered (direct = false)" } else { "" };
        format!("fio: {said}{advice}")
    };
    let moved = fio::results::jobs(&output).map_err(|error| failed(error.to_string()))?;
    if let Some(job) = moved.iter().find(|job| job.error != 0) {
        let error = io::Error::from_raw_os_error(i32::try_from(job.error).unwrap_or_default());
        return Err(failed(format!("{}: {error}", job.name)));
    }
    if !success || moved.len() != workload.jobs.len() {
        return Err(failed(format!("it has results of {} of {} jobs", moved.len(), workload.jobs.len())));
    }
    Ok(Some(sample(workload, &moved, window, began, busy, Ports::now().since(&ports))))
}

/// The workload as a job file. The jobs are in the workload's order.
fn job_file(
    direct: bool,
    workload: &PlannedWorkload,
    files: &[LocalFile],
    window: Window,
) -> io::Result<String> {
    let mut text = String::from(
        "[global]\nthread=1\nallow_file_create=0\nfallocate=none\ninvalidate=1\nlat_percentiles=1\n\
         clat_percentiles=0\nkb_base=1024\n",
    );
    // Writing to a string cannot fail.
    let _ = writeln!(text, "direct={}", u8::from(direct));
    if !workload.ends() {
        let (warm, measured) = (window.warm.as_millis(), (window.end - window.warm).as_millis());
        let _ = writeln!(text, "time_based=1\nramp_time={warm}ms\nruntime={measured}ms");
    }
    for (index, job) in workload.jobs.iter().enumerate() {
        let _ = writeln!(text, "[job{index}]");
        for (name, value) in options(direct, job, files)? {
            let _ = writeln!(text, "{name}={value}");
        }
    }
    Ok(text)
}

/// The options of one job.
fn options(direct: bool, job: &PlannedJob, files: &[LocalFile]) -> io::Result<Vec<(&'static str, String)>> {
    let used: Vec<&LocalFile> = job.files.iter().filter_map(|file| files.get(*file)).collect();
    // These names have no character that means something in a job file, whatever the path has.
    let names: Vec<String> = used.iter().map(|file| file.name_for_fio()).collect::<io::Result<_>>()?;
    let random = if job.order == Order::Sequential { "" } else { "rand" };
    let access = match job.read_percent {
        100.. => {
            if random.is_empty() {
                "read"
            } else {
                "randread"
            }
        }
        0 => {
            if random.is_empty() {
                "write"
            } else {
                "randwrite"
            }
        }
        _ => {
            if random.is_empty() {
                "rw"
            } else {
                "randrw"
            }
        }
    };
    let range = |sizes: BlockSizes| format!("{}-{}", sizes.min, sizes.max);
    let [read, write] = job.blocks;
    let mut options = vec![
        ("filename", names.join(":")),
        ("filesize", job.file_bytes.to_string()),
        ("size", (job.file_bytes * used.len().max(1) as u64).to_string()),
        ("rw", access.to_owned()),
        ("bsrange", format!("{},{}", range(read), range(write))),
        ("ioengine", engine(direct, job.depth).to_owned()),
        ("iodepth", job.depth.to_string()),
    ];
    if used.len() > 1 {
        options.push(("nrfiles", used.len().to_string()));
    }
    if !matches!(job.read_percent, 0 | 100..) {
        options.push(("rwmixread", job.read_percent.to_string()));
    }
    if job.order == Order::Random {
        options.push(("norandommap", "1".to_owned()));
    }
    if let Some(bytes) = job.io_bytes {
        options.push(("io_size", bytes.to_string()));
    }
    Ok(options)
}

/// The engine of fio that keeps this many operations in flight. libaio does that only with
/// O_DIRECT.
const fn engine(direct: bool, depth: u32) -> &'static str {
    match (direct, depth) {
        (_, 1) => "psync",
        (true, _) => "libaio",
        (false, _) => "io_uring",
    }
}

/// A load that ends by its size has moved all of it by the end of the slowest job, as our engine
/// counts it too.
fn over_span(mut sum: Flow, workload: &PlannedWorkload) -> Flow {
    if workload.ends() {
        sum.divide_by_span();
    }
    sum
}

fn sample(
    workload: &PlannedWorkload,
    moved: &[fio::results::JobMoved],
    window: Window,
    began: Instant,
    busy: CpuShares,
    ports: Vec<record::PortCounters>,
) -> Sample {
    let total = |direction: Direction| {
        workload.has(direction).then(|| {
            let mut sum = Flow::empty();
            moved.iter().filter_map(|job| of(job, direction)).for_each(|moved| sum.add(&flow(moved)));
            over_span(sum, workload)
        })
    };
    let result = |result: usize, direction: Direction| {
        let jobs = workload.jobs.iter().zip(moved);
        let mut own = jobs
            .filter(|(planned, _)| planned.result == Some(result) && planned.has(direction))
            .filter_map(|(_, job)| of(job, direction))
            .peekable();
        own.peek().is_some().then(|| {
            let mut sum = Flow::empty();
            own.for_each(|moved| sum.add(&flow(moved)));
            over_span(sum, workload)
        })
    };
    let took = moved.iter().map(|job| job.runtime).max().unwrap_or_default();
    Sample {
        began,
        read: total(Direction::Read),
        write: total(Direction::Write),
        results: (0..workload.results)
            .map(|at| [Direction::Read, Direction::Write].map(|direction| result(at, direction)))
            .collect(),
        bytes_by_path: [Vec::new(), Vec::new()],
        loops: workload.jobs.len(),
        longest_gap: None,
        counted: window,
        stamps: 0,
        client_cpu: moved.iter().map(|job| job.cpu).sum(),
        server_cpu: None,
        window: took,
        busy,
        ports,
        done: workload.ends().then_some(()).and_then(|()| {
            let ends = || moved.iter().map(|job| job.runtime);
            ends().min().zip(ends().max())
        }),
        clients: Vec::new(),
    }
}

fn of(job: &fio::results::JobMoved, direction: Direction) -> Option<&Moved> {
    match direction {
        Direction::Read => job.read.as_ref(),
        Direction::Write => job.write.as_ref(),
    }
}

fn flow(moved: &Moved) -> Flow {
    Flow {
        bytes_per_s: moved.bytes_per_s,
        iops: moved.iops,
        ops: moved.ops,
        bytes: moved.bytes,
        finished: moved.ops,
        finished_bytes: moved.bytes,
        span: Some((Duration::ZERO, moved.runtime)),
        latency: moved.latency.clone(),
        series: Vec::new(),
        latencies: LatencyCounts::default(),
    }
}
