//! The installed program fio on a directory: a workload becomes a job file, and fio's JSON a
//! sample, with fio's log of latencies over time.

use std::fmt::Write as _;
use std::io;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use fio::results::{Interval, JobMoved, Moved};
use record::{Direction, LatencyCounts};
use rustix::fs::OFlags;

use super::files::{LocalFile, forget};
use crate::error::{self, Error};
use crate::fio_program::{self, Finished, first_line};
use crate::jobs::{BlockSizes, Order, Window};
use crate::machine::{CpuMeter, CpuShares};
use crate::measure::{Flow, Sample};
use crate::rdma::Ports;
use crate::stop::Stop;
use crate::workload::{PlannedJob, PlannedWorkload};

/// The names of fio's logs of latencies begin with this.
const LOG: &str = "latency";
/// A line of a log takes so much of fio's memory until the end.
const LOG_LINE_BYTES: usize = 16 << 10;
/// For more memory, no latencies over time are logged.
const LOG_BYTES_MAX: usize = 256 << 20;

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
    let place = tempfile::Builder::new().prefix("trunkline-fio-").tempdir();
    let place = place.map_err(|error| format!("cannot make a directory for fio's files: {error}"))?;
    let job = place.path().join("job.fio");
    std::fs::write(&job, text).map_err(|error| format!("cannot write a job file for fio: {error}"))?;
    if !direct {
        let opened = files.iter().try_for_each(|file| forget(&file.open(OFlags::RDONLY)?));
        opened.map_err(|error| error.to_string())?;
    }
    let mut command = Command::new("fio");
    // Relative names, because a path may have characters that fio expands.
    command.arg("--output-format=json+").arg("job.fio").current_dir(place.path());
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
        return Err(error::reason(failed(format!("{}: {error}", job.name)), error::lacks_room(&error)));
    }
    if !success || moved.len() != workload.jobs.len() {
        return Err(failed(format!("it has results of {} of {} jobs", moved.len(), workload.jobs.len())));
    }
    let latencies = latencies(workload, &moved, window, place.path())?;
    Ok(Some(sample(workload, &moved, &latencies, window, began, busy, Ports::now().since(&ports))))
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
         clat_percentiles=1\nkb_base=1024\n",
    );
    // Writing to a string cannot fail.
    let _ = writeln!(text, "direct={}", u8::from(direct));
    if !workload.ends() {
        let (warm, measured) = (window.warm.as_millis(), (window.end - window.warm).as_millis());
        let _ = writeln!(text, "time_based=1\nramp_time={warm}ms\nruntime={measured}ms");
    }
    if is_logged(workload, window) {
        let (interval_ms, coarseness) = (window.interval().as_millis().max(1), fio::results::COARSENESS);
        let _ = writeln!(
            text,
            "write_hist_log={LOG}\nlog_hist_msec={interval_ms}\nlog_hist_coarseness={coarseness}"
        );
    }
    for (index, job) in workload.jobs.iter().enumerate() {
        let _ = writeln!(text, "[job{index}]");
        for (name, value) in options(direct, job, files)? {
            let _ = writeln!(text, "{name}={value}");
        }
    }
    Ok(text)
}

/// Whether fio logs latencies over time: not of a load that ends by its size, as with our engine,
/// and not if it would take too much memory.
fn is_logged(workload: &PlannedWorkload, window: Window) -> bool {
    let directions = |job: &PlannedJob| if matches!(job.read_percent, 0 | 100..) { 1 } else { 2 };
    let directions: usize = workload.jobs.iter().map(directions).sum();
    let bytes = directions.saturating_mul(window.intervals()).saturating_mul(LOG_LINE_BYTES);
    !workload.ends() && bytes <= LOG_BYTES_MAX
}

/// The latencies over time of each job, reads and writes, from the logs in a directory.
fn latencies(
    workload: &PlannedWorkload,
    moved: &[JobMoved],
    window: Window,
    place: &Path,
) -> Result<Vec<[LatencyCounts; 2]>, String> {
    if !is_logged(workload, window) {
        return Ok(Vec::new());
    }
    let of_job = |(index, job): (usize, &JobMoved)| {
        let log = place.join(format!("{LOG}_clat_hist.{}.log", index + 1));
        let text = std::fs::read_to_string(log);
        let text = text.map_err(|error| format!("cannot read fio's log of latencies: {error}"))?;
        let logged = fio::results::latency_log(&text)?;
        Ok([(false, &job.read), (true, &job.write)].map(|(is_write, moved)| {
            counts(logged.iter().filter(|it| it.is_write == is_write), moved.as_ref(), window)
        }))
    };
    moved.iter().enumerate().map(of_job).collect()
}

/// The latencies of one direction of a job. fio's log ends with the last whole interval; what is
/// missing of the results is in the one after it.
fn counts<'a>(
    logged: impl Iterator<Item = &'a Interval>,
    moved: Option<&Moved>,
    window: Window,
) -> LatencyCounts {
    let (intervals, length_ms) = (window.intervals(), window.interval().as_secs_f64() * 1e3);
    let last = intervals.saturating_sub(1);
    let (mut counts, mut next) = (LatencyCounts::new(intervals), 0);
    for interval in logged {
        // fio looks at the clock when an operation ends, so a line is late by less than one.
        let ended = ((interval.end_ms as f64 / length_ms).round() as usize).saturating_sub(1).min(last);
        interval.calls.iter().for_each(|(ns, calls)| counts.record_many(ended, *ns, *calls));
        next = (ended + 1).min(last);
    }
    let all = moved.map(|moved| moved.completions.as_slice()).unwrap_or_default();
    counts.record_rest(next, all.iter().copied());
    counts
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
    moved: &[JobMoved],
    latencies: &[[LatencyCounts; 2]],
    window: Window,
    began: Instant,
    busy: CpuShares,
    ports: Vec<record::PortCounters>,
) -> Sample {
    let total = |direction: Direction| {
        workload.has(direction).then(|| {
            let mut sum = Flow::empty();
            let flows = (0..moved.len()).filter_map(|job| flow(moved, latencies, job, direction));
            flows.for_each(|flow| sum.add(&flow));
            over_span(sum, workload)
        })
    };
    let result = |result: usize, direction: Direction| {
        let jobs = workload.jobs.iter().enumerate();
        let mut own = jobs
            .filter(|(_, planned)| planned.result == Some(result) && planned.has(direction))
            .filter_map(|(job, _)| flow(moved, latencies, job, direction))
            .peekable();
        own.peek().is_some().then(|| {
            let mut sum = Flow::empty();
            own.for_each(|flow| sum.add(&flow));
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

/// What a job moved in one direction, with its latencies over time.
fn flow(
    moved: &[JobMoved],
    latencies: &[[LatencyCounts; 2]],
    job: usize,
    direction: Direction,
) -> Option<Flow> {
    let (of_job, [reads, writes]) = (moved.get(job)?, latencies.get(job).cloned().unwrap_or_default());
    let (moved, latencies) = match direction {
        Direction::Read => (of_job.read.as_ref()?, reads),
        Direction::Write => (of_job.write.as_ref()?, writes),
    };
    Some(Flow {
        bytes_per_s: moved.bytes_per_s,
        iops: moved.iops,
        ops: moved.ops,
        bytes: moved.bytes,
        finished: moved.ops,
        finished_bytes: moved.bytes,
        span: Some((Duration::ZERO, moved.runtime)),
        latency: moved.latency.clone(),
        series: Vec::new(),
        latencies,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::WorkloadSpec;

    const WINDOW: Window = Window { warm: Duration::from_millis(100), end: Duration::from_millis(300) };

    fn moved(completions: &[(u64, u64)]) -> Moved {
        Moved {
            bytes: 0,
            ops: 0,
            bytes_per_s: 0.0,
            iops: 0.0,
            runtime: Duration::ZERO,
            latency: record::Latency::new(),
            completions: completions.to_vec(),
        }
    }

    fn texts(logged: &[(u64, u64)], all: Option<&Moved>) -> Vec<String> {
        let interval = |(end_ms, calls): &(u64, u64)| Interval {
            end_ms: *end_ms,
            is_write: false,
            calls: vec![(1 << 20, *calls)],
        };
        let logged: Vec<Interval> = logged.iter().map(interval).collect();
        counts(logged.iter(), all, WINDOW).into()
    }

    #[test]
    fn each_line_of_the_log_is_an_interval_and_the_last_one_has_the_rest() {
        assert_eq!(
            texts(&[(51, 3), (103, 2), (149, 1)], Some(&moved(&[(1 << 20, 9)]))),
            ["80:3", "80:2", "80:1", "80:3"]
        );
        // A stall of two intervals, and an end beyond the window.
        assert_eq!(
            texts(&[(51, 3), (201, 2), (260, 4)], Some(&moved(&[(1 << 20, 9)]))),
            ["80:3", "", "", "80:6"]
        );
        assert_eq!(texts(&[], Some(&moved(&[(1 << 20, 9)]))), ["80:9", "", "", ""]);
        assert_eq!(texts(&[], None), [""; 4]);
    }

    #[test]
    fn latencies_are_logged_unless_they_would_take_too_much_memory() {
        let is_logged = |readers: u32, files: u64| {
            let spec = WorkloadSpec {
                name: "w".into(),
                block: 4096,
                depth: 1,
                readers,
                file: 1 << 20,
                ..WorkloadSpec::default()
            };
            let long = Window { end: Duration::from_secs(files), ..WINDOW };
            super::is_logged(&PlannedWorkload::from(&spec), long)
        };
        assert!(is_logged(1, 1) && is_logged(100, 60) && !is_logged(200, 60));
    }

    #[test]
    fn logs_are_read_for_each_job_and_a_broken_one_is_an_error() {
        let spec = WorkloadSpec {
            name: "w".into(),
            block: 4096,
            depth: 1,
            readers: 1,
            file: 1 << 20,
            ..WorkloadSpec::default()
        };
        let (workload, place) = (PlannedWorkload::from(&spec), tempfile::tempdir().unwrap());
        let job = JobMoved {
            name: "job0".into(),
            error: 0,
            read: Some(moved(&[(1000, 2)])),
            write: None,
            runtime: Duration::ZERO,
            cpu: Duration::ZERO,
        };
        let read = || latencies(&workload, std::slice::from_ref(&job), WINDOW, place.path());
        assert!(read().unwrap_err().contains("cannot read fio's log"));
        // fio logs nothing of a job that ends within an interval.
        std::fs::write(place.path().join("latency_clat_hist.1.log"), "").unwrap();
        let [of_job] = read().unwrap().try_into().unwrap();
        assert_eq!(of_job.map(Vec::<String>::from), [["39:2", "", "", ""], [""; 4]]);
        std::fs::write(place.path().join("latency_clat_hist.1.log"), "51, 0, x\n").unwrap();
        assert!(read().unwrap_err().contains("line 1 of fio's log"));
    }
}
