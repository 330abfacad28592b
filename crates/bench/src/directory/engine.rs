//! Our engine on a directory: a thread for each operation in flight, which calls `pread` or
//! `pwrite`.
//!
//! Threads need nothing of the kernel beyond these calls, so that the engine works on every file
//! system and in every container, and depth means the same with and without O_DIRECT. Each job has
//! its own lock, which its threads take between their calls.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use memory::{Buffer, Buffers};
use record::Direction;
use rustix::fs::OFlags;

use super::counts::{DirectoryCounts, JobCounts};
use super::files::{LocalFile, forget};
use crate::error;
use crate::jobs::on_threads::Operation;
use crate::jobs::{Load, Outcome, TIMER_SLACK_NS, Window};
use crate::machine;
use crate::measure::{self, Meters, Sample};
use crate::rdma::Ports;
use crate::stamps;
use crate::stop::Stop;
use crate::workload::{PlannedJob, PlannedWorkload};

/// A thread calls a few functions with small frames.
const STACK_BYTES: usize = 128 << 10;
/// How long operations may take to end after a stop or an error. Only a file system that answers no
/// more takes longer.
const END_TIMEOUT: Duration = Duration::from_secs(30);
/// How often a thread that waits for its schedule looks for a stop.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// A block is one call, however large it is.
const PIECE_BYTES: usize = usize::MAX;

/// What the threads of a job share.
struct Shared {
    load: Mutex<Running>,
    files: Arc<Vec<File>>,
    buffers: Arc<Buffers>,
    began: Instant,
    ends: Arc<AtomicBool>,
    direct: bool,
    /// Where the job's operations are counted for whoever watches.
    counts: Option<Arc<JobCounts>>,
}

struct Running {
    load: Load<usize>,
    threads: u32,
}

/// Runs a workload once, from the moment on at which `when` returns true, which is called when
/// the files are open; `None` after a stop, or if it returns false. No thread is left, unless the
/// file system does not answer.
///
/// # Errors
/// The first error.
pub(super) fn run_until_stop(
    direct: bool,
    counts: Option<&DirectoryCounts>,
    when: &dyn Fn() -> bool,
    workload: &PlannedWorkload,
    files: &[LocalFile],
    window: Window,
    stop: &Stop,
) -> Result<Option<Sample>, String> {
    let opened = Arc::new(open(direct, files)?);
    if !when() {
        return Ok(None);
    }
    let numbered: Vec<(usize, u32)> = files.iter().map(|file| file.number).enumerate().collect();
    let ends = Arc::new(AtomicBool::new(false));
    let (outcomes, receiver) = mpsc::channel();
    let lacking = Arc::default();
    // Nothing is sent; the channel closes when the last thread has ended.
    let (alive, all_ended) = mpsc::channel::<()>();
    let (cpu_before, ports, began) = (machine::own_cpu(), Ports::now(), Instant::now());
    let mut threads = 0;
    let started: Result<(), String> = workload.jobs.iter().enumerate().try_for_each(|(index, planned)| {
        let shared = Arc::new(Shared {
            load: Mutex::new(Running {
                load: load(workload, index, planned, &numbered, window, &outcomes, &lacking),
                threads: planned.depth,
            }),
            files: Arc::clone(&opened),
            buffers: Arc::default(),
            began,
            ends: Arc::clone(&ends),
            direct,
            counts: counts.map(|counts| counts.job(index)),
        });
        (0..planned.depth as usize).try_for_each(|slot| {
            let (shared, alive) = (Arc::clone(&shared), alive.clone());
            let thread = std::thread::Builder::new().name("load".into()).stack_size(STACK_BYTES);
            threads += 1;
            thread
                .spawn(move || {
                    run(&shared, slot);
                    drop((shared, alive));
                })
                .map(drop)
                .map_err(|error| format!("cannot start thread {threads}: {error}"))
        })
    });
    drop((opened, outcomes, alive));
    let meters = Meters {
        client_cpu: &|| machine::own_cpu().saturating_sub(cpu_before),
        server_cpu: &|| None,
        bytes_by_path: &|| [Vec::new(), Vec::new()],
        loops: threads,
        ports,
    };
    let sample = started.and_then(|()| measure::observe(began, &receiver, workload, window, stop, meters));
    ends.store(true, Ordering::Relaxed);
    match all_ended.recv_timeout(END_TIMEOUT) {
        Err(RecvTimeoutError::Disconnected) | Ok(()) => sample,
        Err(RecvTimeoutError::Timeout) => {
            sample.and(Err(format!("operations were still unanswered {END_TIMEOUT:?} after the end")))
        }
    }
}

fn load(
    workload: &PlannedWorkload,
    index: usize,
    planned: &PlannedJob,
    files: &[(usize, u32)],
    window: Window,
    outcomes: &Sender<Outcome>,
    lacking: &Arc<AtomicUsize>,
) -> Load<usize> {
    let job = measure::job(workload, index, planned, files, [PIECE_BYTES; 2], 0, 1);
    Load::new(vec![job], window, workload.results, outcomes.clone(), lacking)
}

/// Opens the files; buffered reads begin without anything in the page cache, as with fio.
fn open(direct: bool, files: &[LocalFile]) -> Result<Vec<File>, String> {
    let flags = if direct { OFlags::RDWR | OFlags::DIRECT } else { OFlags::RDWR };
    let open = |file: &LocalFile| {
        let opened = file.open(flags).map_err(|error| match error.raw_os_error() {
            Some(number) if direct && number == rustix::io::Errno::INVAL.raw_os_error() => format!(
                "{}: this file system has no O_DIRECT; --buffered (direct = false) measures with the page \
                 cache",
                file.path.display()
            ),
            _ => format!("{}: {error}", file.path.display()),
        })?;
        if !direct {
            forget(&opened).map_err(|error| format!("{}: {error}", file.path.display()))?;
        }
        Ok(opened)
    };
    files.iter().map(open).collect()
}

/// The life of a thread.
fn run(shared: &Shared, slot: usize) {
    // If this fails, scheduled operations start a little late.
    let _ = rustix::thread::set_current_timer_slack(Some(TIMER_SLACK_NS));
    let mut buffer: Option<Buffer> = None;
    loop {
        let next = (!shared.ends.load(Ordering::Relaxed))
            .then(|| shared.lock().load.next(shared.began.elapsed(), slot))
            .flatten();
        let Some(operation) = next else { break };
        if !shared.wait_for(operation.scheduled) {
            break;
        }
        let block = shared.block(&mut buffer, operation.bytes);
        if operation.direction == Direction::Write {
            operation.stamp(block);
        }
        let (began, made) = (Instant::now(), shared.make(&operation, block));
        let latency = began.elapsed();
        // Stamping and checking are not part of the operation.
        let checked = made.and_then(|()| check(&operation, block));
        if let Some(counts) = &shared.counts {
            counts.count(operation.direction, operation.bytes as u64, latency, checked.is_err());
        }
        shared.lock().load.done(shared.began.elapsed(), slot, latency, checked);
    }
    let mut running = shared.lock();
    running.threads = running.threads.saturating_sub(1);
    if running.threads == 0 {
        running.load.end();
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Running> {
        self.load.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the scheduled start; false if the load ends meanwhile.
    fn wait_for(&self, scheduled: Option<Duration>) -> bool {
        while let Some(left) = scheduled.and_then(|due| due.checked_sub(self.began.elapsed())) {
            if left.is_zero() || self.ends.load(Ordering::Relaxed) {
                break;
            }
            std::thread::sleep(left.min(STOP_POLL_INTERVAL));
        }
        !self.ends.load(Ordering::Relaxed)
    }

    /// The thread's buffer, page-aligned and with noise, at this length.
    fn block<'a>(&self, buffer: &'a mut Option<Buffer>, len: usize) -> &'a mut [u8] {
        if buffer.as_ref().is_none_or(|buffer| buffer.len() < len) {
            let mut larger = self.buffers.take(len);
            stamps::fill_noise(&mut larger);
            *buffer = Some(larger);
        }
        buffer.as_mut().and_then(|buffer| buffer.get_mut(..len)).unwrap_or_default()
    }

    fn make(&self, operation: &Operation<usize>, block: &mut [u8]) -> Result<(), String> {
        let Some(file) = self.files.get(operation.file) else { return Err("no such file".to_owned()) };
        let made = match operation.direction {
            Direction::Read => file.read_exact_at(block, operation.offset),
            Direction::Write => file.write_all_at(block, operation.offset),
        };
        made.map_err(|error| {
            let place = format!("file {} at byte {}", operation.number, operation.offset);
            if self.direct && is_misaligned(&error) {
                let bytes = operation.bytes;
                return format!(
                    "{place}: {error}: O_DIRECT needs blocks and offsets that are whole blocks of the \
                     device, and a block here has {bytes} bytes; other blocks, or --buffered (direct = \
                     false)"
                );
            }
            error::reason(format!("{place}: {error}"), error::lacks_room(&error))
        })
    }
}

fn is_misaligned(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::INVAL.raw_os_error())
}

/// Checks what was read; returns the number of stamps.
fn check(operation: &Operation<usize>, block: &[u8]) -> Result<u64, String> {
    match operation.direction {
        Direction::Write => Ok(0),
        Direction::Read => {
            stamps::check_any(block, operation.number, operation.offset).map_err(|wrong| wrong.to_string())
        }
    }
}
