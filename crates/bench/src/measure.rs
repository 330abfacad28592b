//! One repeat: runs a workload on a mounted route for a window, with everything counted meanwhile.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use client::{FileRef, Mount, Statistics};
use record::{Direction, Latency, LatencyCounts};
use serde::{Deserialize, Serialize};

use crate::experiment::WorkloadSpec;
use crate::files::PreparedFile;
use crate::jobs::{CompletionTimes, Job, JobFile, Load, Outcome, Schedule, Tally, Window};
use crate::machine::{CpuMeter, CpuShares};
use crate::rdma::Ports;
use crate::stop::Stop;
use crate::workload::{PlannedJob, PlannedWorkload};

/// How long an operation in flight may take after the end of its window. A paced queue drains
/// faster.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(60);
/// How often the wait for the last operations looks for a stop.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// A larger block is split into READs or WRITEs of at most this size, as the kernel's client does.
const PIECE_BYTES_MAX: u32 = 1 << 20;

/// The results of one direction of a repeat.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Flow {
    /// Bytes per second.
    pub bytes_per_s: f64,
    /// Operations per second.
    pub iops: f64,
    /// The number of operations counted.
    pub ops: u64,
    /// The bytes of these operations.
    pub bytes: u64,
    /// The number of all operations that finished before the planned end of the window: those for
    /// which the processor time was used.
    pub finished: u64,
    /// The bytes of these operations.
    pub finished_bytes: u64,
    /// When the first and the last operation finished, since the start.
    pub span: Option<(Duration, Duration)>,
    /// Latencies.
    #[serde(with = "latency_text")]
    pub latency: Latency,
    /// The bytes by interval of the window ([`Window::interval`]).
    pub series: Vec<u64>,
    /// The latencies by interval of the window.
    #[serde(default)]
    pub latencies: LatencyCounts,
}

/// The results of a repeat.
#[derive(Debug, Clone)]
pub struct Sample {
    /// When the repeat was started.
    pub began: Instant,
    /// The results of reads.
    pub read: Option<Flow>,
    /// The results of writes.
    pub write: Option<Flow>,
    /// The results of reads and writes of parts of the workload ([`PlannedJob::result`]).
    pub results: Vec<[Option<Flow>; 2]>,
    /// The bytes read and written on each path, over the whole run including the warm-up.
    pub bytes_by_path: [Vec<u64>; 2],
    /// The number of loops of the mount.
    pub loops: usize,
    /// The longest time in the window in which no operation finished; `None` if it is not known.
    pub longest_gap: Option<Duration>,
    /// When counting began and ended, since the start.
    pub counted: Window,
    /// The number of stamps checked.
    pub stamps: u64,
    /// The processor time of the mount's loops during the window.
    pub client_cpu: Duration,
    /// The processor time of the server's loops, if the server runs here.
    pub server_cpu: Option<Duration>,
    /// The time between the two measurements of processor time. It equals the window if the machine
    /// wakes threads in time.
    pub window: Duration,
    /// How busy the machine was during the window.
    pub busy: CpuShares,
    /// What the ports of RDMA devices counted, over the whole run including the warm-up.
    pub ports: Vec<record::PortCounters>,
    /// When the first and the last loop finished its last operation, since the start.
    pub done: Option<(Duration, Duration)>,
    /// Each client's part; empty if this process was the client.
    pub clients: Vec<ClientPart>,
}

/// What one client of several did in a repeat.
#[derive(Debug, Clone, Default)]
pub struct ClientPart {
    /// The client's name.
    pub name: String,
    /// Its version of Trunkline.
    pub version: String,
    /// Whether it runs on the machine of this process.
    pub is_here: bool,
    /// The number of operations counted.
    pub ops: u64,
    /// The bytes of these operations.
    pub bytes: u64,
    /// How much later than the first client it started.
    pub start_offset: Duration,
    /// The error of that.
    pub clock_error: Duration,
    /// When its first and last loop finished their last operations, since its start.
    pub done: Option<(Duration, Duration)>,
    /// How busy its machine was.
    pub busy: CpuShares,
}

/// A histogram as text, for messages.
mod latency_text {
    use record::Latency;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(latency: &Latency, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&latency.to_text())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Latency, D::Error> {
        Latency::from_text(&String::deserialize(from)?).map_err(serde::de::Error::custom)
    }
}

/// The files as a mount knows them, each with its number. A file that is named twice is one file of
/// the mount.
#[must_use]
pub(crate) fn place(mount: &Mount, prepared: &[PreparedFile]) -> Vec<(FileRef, u32)> {
    let mut placed: Vec<(FileRef, u32)> = Vec::with_capacity(prepared.len());
    for file in prepared {
        let known = placed.iter().find(|(_, number)| *number == file.number).copied();
        placed.push(known.unwrap_or_else(|| (mount.file_ref(file.handle), file.number)));
    }
    placed
}

/// Runs a workload once. `server_cpu` returns the processor time of the server's threads so far, if
/// known.
///
/// # Errors
/// The first error.
pub fn run(
    mount: &Mount,
    server_cpu: &dyn Fn() -> Option<Duration>,
    workload: &WorkloadSpec,
    files: &[(FileRef, u32)],
    window: Window,
) -> Result<Sample, String> {
    let workload = PlannedWorkload::from(workload);
    let sample = run_until_stop(mount, server_cpu, &workload, files, window, &Stop::default())?;
    sample.ok_or_else(|| "nobody asked for a stop".to_owned())
}

/// Runs a planned workload once; returns `None` at once after a stop. The mount is then to be
/// dropped, which ends the operations in flight.
///
/// # Errors
/// The first error.
pub(crate) fn run_until_stop(
    mount: &Mount,
    server_cpu: &dyn Fn() -> Option<Duration>,
    workload: &PlannedWorkload,
    files: &[(FileRef, u32)],
    window: Window,
    stop: &Stop,
) -> Result<Option<Sample>, String> {
    let loops = mount.loops().max(1);
    let (sender, receiver) = mpsc::channel();
    let pieces = piece_bytes(mount);
    let (began, before, ports) = (Instant::now(), mount.statistics(), Ports::now());
    let lacking = Arc::default();
    for (index, jobs) in distribute(workload, files, loops, pieces).into_iter().enumerate() {
        if !jobs.is_empty() {
            let load = Load::new(jobs, window, workload.results, sender.clone(), &lacking);
            mount.spawn(index, Box::new(load));
        }
    }
    drop(sender);
    let meters = Meters {
        client_cpu: &|| cpu(&before.threads),
        server_cpu,
        bytes_by_path: &|| bytes_by_path(&before, &mount.statistics()),
        loops,
        ports,
    };
    observe(began, &receiver, workload, window, stop, meters)
}

/// What is counted beside a load.
pub(crate) struct Meters<'a> {
    /// The processor time of the client so far.
    pub(crate) client_cpu: &'a dyn Fn() -> Duration,
    /// The processor time of the server so far, if it is known.
    pub(crate) server_cpu: &'a dyn Fn() -> Option<Duration>,
    /// The bytes read and written on each path since the start.
    pub(crate) bytes_by_path: &'a dyn Fn() -> [Vec<u64>; 2],
    /// The number of loops or threads that make the load.
    pub(crate) loops: usize,
    /// The ports at the start.
    pub(crate) ports: Ports,
}

/// Measures a load that was started, and sends its outcomes; returns `None` at once after a stop.
pub(crate) fn observe(
    began: Instant,
    receiver: &Receiver<Outcome>,
    workload: &PlannedWorkload,
    window: Window,
    stop: &Stop,
    meters: Meters<'_>,
) -> Result<Option<Sample>, String> {
    // Sleeps until a point in time rather than for a duration: if a busy machine lets this thread
    // sleep too long once, the later points must not move.
    if stop.wait_until(began + window.warm) {
        return Ok(None);
    }
    let busy = CpuMeter::start();
    let (from, client_before, server_before) = (Instant::now(), (meters.client_cpu)(), (meters.server_cpu)());
    let timeout = window.latest() + DRAIN_TIMEOUT;
    // Jobs that end by their sizes are measured to their end.
    let mut outcomes = None;
    if workload.ends() {
        let Some(ended) = collect(receiver, timeout, stop)? else { return Ok(None) };
        outcomes = Some(ended);
    } else if stop.wait_until(began + window.end) {
        return Ok(None);
    }
    let (client_after, server_after, took) = ((meters.client_cpu)(), (meters.server_cpu)(), from.elapsed());
    let busy = busy.share();
    let outcomes = match outcomes {
        Some(outcomes) => outcomes,
        None => match collect(receiver, timeout, stop)? {
            Some(outcomes) => outcomes,
            None => return Ok(None),
        },
    };
    let reads = outcomes.iter().map(|outcome| &outcome.read);
    let writes = outcomes.iter().map(|outcome| &outcome.write);
    Ok(Some(Sample {
        began,
        read: workload.has(Direction::Read).then(|| flow(reads)),
        write: workload.has(Direction::Write).then(|| flow(writes)),
        results: results(workload, &outcomes),
        bytes_by_path: (meters.bytes_by_path)(),
        loops: meters.loops,
        longest_gap: Some(longest_gap(&outcomes, workload.ends())),
        counted: window,
        stamps: outcomes.iter().map(|outcome: &Outcome| outcome.stamps).sum(),
        client_cpu: client_after.saturating_sub(client_before),
        server_cpu: server_before.zip(server_after).map(|(before, after)| after.saturating_sub(before)),
        window: took,
        busy,
        ports: Ports::now().since(&meters.ports),
        done: done(&outcomes),
        clients: Vec::new(),
    }))
}

/// When the first and the last loop finished its last operation.
fn done(outcomes: &[Outcome]) -> Option<(Duration, Duration)> {
    let last = |outcome: &Outcome| {
        [&outcome.read, &outcome.write].into_iter().filter_map(|tally| Some(tally.span?.1)).max()
    };
    let ends = || outcomes.iter().filter_map(last);
    ends().min().zip(ends().max())
}

/// The maximum size of one READ and of one WRITE, in whole pages if there is room for one.
fn piece_bytes(mount: &Mount) -> [usize; 2] {
    let (read, write) = mount.transfer_sizes();
    [read, write].map(|most| {
        let most = most.min(PIECE_BYTES_MAX) as usize;
        let page = crate::stamps::PAGE_BYTES;
        if most >= page { most / page * page } else { most.max(1) }
    })
}

/// The flows of the workload's parts, over all loops.
fn results(workload: &PlannedWorkload, outcomes: &[Outcome]) -> Vec<[Option<Flow>; 2]> {
    let of = |result: usize, direction: Direction| {
        let has = workload.jobs.iter().any(|job| job.result == Some(result) && job.has(direction));
        let tallies = outcomes.iter().filter_map(|outcome| outcome.results.get(result));
        let tallies = tallies.map(|[read, write]| if direction == Direction::Read { read } else { write });
        has.then(|| flow(tallies))
    };
    (0..workload.results).map(|result| [Direction::Read, Direction::Write].map(|it| of(result, it))).collect()
}

/// The processor time of threads. It is read from the system: a loop under load would answer a
/// request late and count time outside the window.
pub(crate) fn cpu(threads: &[u32]) -> Duration {
    threads.iter().filter_map(|thread| transport::threads::cpu(*thread)).sum()
}

/// Distributes the work over the loops. Every loop works on every file, because every connection of
/// a route may carry every file. With a rate, the operations of all jobs are scheduled one after
/// the other at equal intervals.
fn distribute(
    workload: &PlannedWorkload,
    files: &[(FileRef, u32)],
    loops: usize,
    piece_bytes: [usize; 2],
) -> Vec<Vec<Job>> {
    let mut jobs: Vec<Vec<Job>> = vec![Vec::new(); loops];
    for (index, planned) in workload.jobs.iter().enumerate() {
        let of = u64::from(planned.depth).min(loops as u64).min(fewest_blocks(planned)).max(1);
        for part in 0..of {
            let job = job(workload, index, planned, files, piece_bytes, part, of);
            if let Some(of_loop) = jobs.get_mut((index + usize::try_from(part).unwrap_or(0)) % loops) {
                of_loop.push(job);
            }
        }
    }
    jobs
}

/// A loop's part of a job.
pub(crate) fn job<F: Copy>(
    workload: &PlannedWorkload,
    index: usize,
    planned: &PlannedJob,
    files: &[(F, u32)],
    piece_bytes: [usize; 2],
    part: u64,
    of: u64,
) -> Job<F> {
    let count = workload.jobs.len() as f64;
    let schedule = |rate: f64| Schedule {
        first_s: (index as u64 * of + part) as f64 / (rate * count),
        interval_s: of as f64 / rate,
    };
    let used = planned.files.iter().filter_map(|file| files.get(*file));
    Job {
        files: used.map(|(file, number)| JobFile { file: *file, number: *number }).collect(),
        file_bytes: planned.file_bytes,
        read_percent: planned.read_percent,
        order: planned.order,
        blocks: planned.blocks,
        piece_bytes,
        depth: u32::try_from((u64::from(planned.depth) + part) / of).unwrap_or(u32::MAX),
        part,
        of,
        schedule: planned.rate.map(schedule),
        io_bytes: planned.io_bytes,
        result: planned.result,
    }
}

/// The number of the largest blocks in a file, in the direction that has fewer of them.
fn fewest_blocks(job: &PlannedJob) -> u64 {
    job.blocks.iter().map(|sizes| job.file_bytes / sizes.max.max(1)).min().unwrap_or(1)
}

/// The outcomes of the loops' loads, once all have ended; `None` after a stop.
fn collect(
    receiver: &Receiver<Outcome>,
    timeout: Duration,
    stop: &Stop,
) -> Result<Option<Vec<Outcome>>, String> {
    let (mut outcomes, mut last) = (Vec::new(), Instant::now());
    loop {
        match receiver.recv_timeout(STOP_POLL_INTERVAL) {
            Ok(outcome) => {
                outcomes.push(outcome);
                last = Instant::now();
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
            Err(mpsc::RecvTimeoutError::Timeout) if stop.is_requested() => return Ok(None),
            Err(mpsc::RecvTimeoutError::Timeout) if last.elapsed() < timeout => {}
            Err(mpsc::RecvTimeoutError::Timeout) => {
                return Err(format!("operations were still unanswered after {timeout:?}"));
            }
        }
    }
    match outcomes.iter().find_map(|outcome| outcome.error.clone()) {
        Some(error) => Err(error),
        None => Ok(Some(outcomes)),
    }
}

/// The longest time in which nothing finished; if jobs `ends` by their sizes, up to the last
/// operation.
fn longest_gap(outcomes: &[Outcome], ends: bool) -> Duration {
    let all = outcomes.iter().map(|outcome| outcome.completion_times.clone()).reduce(
        |mut all, completion_times| {
            all.merge(&completion_times);
            all
        },
    );
    let gap = if ends { CompletionTimes::longest_gap_until_last } else { CompletionTimes::longest_gap };
    all.as_ref().map_or(Duration::ZERO, gap)
}

/// The sum of the loops' results in one direction.
fn flow<'a>(tallies: impl Iterator<Item = &'a Tally>) -> Flow {
    let (mut sum, mut whole) = (Flow::empty(), false);
    for tally in tallies {
        let (bytes_per_s, iops) = tally.rates();
        whole |= tally.is_whole();
        sum.add(&Flow {
            bytes_per_s,
            iops,
            ops: tally.ops,
            bytes: tally.bytes,
            finished: tally.finished,
            finished_bytes: tally.finished_bytes,
            span: tally.span,
            latency: tally.latency.clone(),
            series: tally.series.clone(),
            latencies: tally.latencies.clone(),
        });
    }
    if whole {
        sum.divide_by_span();
    }
    sum
}

impl Flow {
    /// Nothing moved.
    #[must_use]
    pub fn empty() -> Self {
        Self {
            bytes_per_s: 0.0,
            iops: 0.0,
            ops: 0,
            bytes: 0,
            finished: 0,
            finished_bytes: 0,
            span: None,
            latency: Latency::new(),
            series: Vec::new(),
            latencies: LatencyCounts::default(),
        }
    }

    /// Adds what another loop or client has moved at the same time.
    pub fn add(&mut self, other: &Self) {
        self.bytes_per_s += other.bytes_per_s;
        self.iops += other.iops;
        self.ops += other.ops;
        self.bytes += other.bytes;
        self.finished += other.finished;
        self.finished_bytes += other.finished_bytes;
        self.latency.merge(&other.latency);
        self.latencies.merge(&other.latencies);
        self.series.resize(self.series.len().max(other.series.len()), 0);
        self.series.iter_mut().zip(&other.series).for_each(|(sum, bytes)| *sum += bytes);
        self.span = match (self.span, other.span) {
            (Some((first, last)), Some((other_first, other_last))) => {
                Some((first.min(other_first), last.max(other_last)))
            }
            (one, other) => one.or(other),
        };
    }

    /// Sets the speeds of a load that ends by its size. The loops and clients end at different
    /// times; the load ends with the last of them.
    pub fn divide_by_span(&mut self) {
        if let Some((first, last)) = self.span {
            let seconds = (last - first).as_secs_f64().max(1e-9);
            (self.bytes_per_s, self.iops) = (self.bytes as f64 / seconds, self.ops as f64 / seconds);
        }
    }
}

fn bytes_by_path(before: &Statistics, after: &Statistics) -> [Vec<u64>; 2] {
    let since = |of: fn(&client::PathCounters) -> u64| {
        let pairs = before.paths.iter().zip(&after.paths);
        pairs.map(|(before, after)| of(&after.counters).saturating_sub(of(&before.counters))).collect()
    };
    [since(|counters| counters.read.bytes), since(|counters| counters.write.bytes)]
}
