//! What the coordinator and an agent say to each other after the handshake.
//!
//! Each request has one answer, except [`Request::Stop`]: it ends what runs, whose answer is then
//! [`Answer::Stopped`].

use std::collections::BTreeMap;
use std::time::Duration;

use fs::FileHandle;
use record::{PathCounters, PortCounters};
use serde::{Deserialize, Serialize};

use super::key::{hex, unhex};
use crate::experiment::{
    BLOCK_BYTES_MAX, BLOCK_BYTES_MULTIPLE, DEPTH_MAX, IN_FLIGHT_BYTES_MAX, JOBS_MAX, RATE_MAX,
};
use crate::files::PreparedFile;
use crate::jobs::{BlockSizes, UNTIMED, Window};
use crate::measure::Flow;
use crate::routes::MountPlan;
use crate::workload::PlannedJob;

/// The maximum number of files of one client, and of files that its jobs name.
const FILES_MAX: usize = 4096;
/// The largest file.
const FILE_BYTES_MAX: u64 = 1 << 50;
/// The maximum number of operations that are scheduled: those of an hour at three million a second.
/// All that a server does not keep up with are counted one by one.
const SCHEDULED_MAX: f64 = 1e10;
/// The longest warm-up and measured time. A load that ends by its size may take a day.
const WINDOW_MAX: Duration = Duration::from_secs(2 * 3600);

/// What the coordinator asks of an agent.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Request {
    /// Who are you? Answered by [`Answer::Machine`].
    Describe,
    /// What time is it? Answered by [`Answer::Clock`].
    Clock,
    /// Mounts a route and gets ready. Answered by [`Answer::Ready`].
    Prepare(Box<Assignment>),
    /// Runs the load from this time of the agent's clock on. Answered by [`Answer::Done`].
    Start {
        /// Nanoseconds of the agent's clock.
        at_ns: u64,
    },
    /// Ends what runs.
    Stop,
}

/// What an agent answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Answer {
    /// The agent's machine.
    Machine(Machine),
    /// Nanoseconds of the agent's clock, and microseconds since 1970.
    Clock {
        /// Nanoseconds since the agent's start.
        now_ns: u64,
        /// Microseconds since 1970.
        wall_us: u64,
    },
    /// The route is mounted.
    Ready,
    /// What was measured.
    Done(Box<ClientSample>),
    /// Stopped before the end.
    Stopped,
    /// It cannot be done.
    Failed(String),
}

/// An agent's machine.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Machine {
    /// Tells whether two agents run on the same machine. Differs after each start of the system.
    pub(super) boot: String,
    /// The reason why there is no RDMA, if there is none.
    pub(super) no_rdma: Option<String>,
}

/// One client's part of a workload on a route.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Assignment {
    pub(super) route: MountPlan,
    /// The jobs. Their files are indices into `files`.
    pub(super) jobs: Vec<PlannedJob>,
    pub(super) files: Vec<SharedFile>,
    pub(super) warm: Duration,
    pub(super) end: Duration,
}

/// A file that the coordinator has created.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SharedFile {
    /// The handle in hexadecimal digits.
    handle: String,
    number: u32,
    bytes: u64,
}

impl From<&PreparedFile> for SharedFile {
    fn from(file: &PreparedFile) -> Self {
        Self { handle: hex(file.handle.as_slice()), number: file.number, bytes: file.bytes }
    }
}

impl SharedFile {
    /// The file, unless its handle is none.
    pub(super) fn prepared(&self) -> Option<PreparedFile> {
        let handle = FileHandle::new(&unhex(&self.handle)?)?;
        Some(PreparedFile { handle, number: self.number, bytes: self.bytes })
    }
}

impl Assignment {
    pub(super) fn window(&self) -> Window {
        Window { warm: self.warm, end: self.end }
    }

    /// The reason why this is more than an agent does, if it is.
    pub(super) fn fault(&self) -> Option<String> {
        let named = self.jobs.iter().fold(0, |sum: usize, job| sum.saturating_add(job.files.len()));
        let in_flight = self.jobs.iter().map(|job| {
            let block = job.blocks.iter().map(|sizes| sizes.max).max().unwrap_or(0);
            block.saturating_mul(u64::from(job.depth))
        });
        let rates: f64 = self.jobs.iter().filter(|it| it.io_bytes.is_none()).filter_map(|it| it.rate).sum();
        let longest = if self.jobs.iter().all(|job| job.io_bytes.is_some()) { UNTIMED } else { WINDOW_MAX };
        if self.jobs.is_empty() || self.jobs.len() > JOBS_MAX as usize {
            Some(format!("{} jobs: 1 to {JOBS_MAX}", self.jobs.len()))
        } else if self.files.len().max(named) > FILES_MAX {
            Some(format!("more than {FILES_MAX} files"))
        } else if in_flight.fold(0, u64::saturating_add) > IN_FLIGHT_BYTES_MAX {
            Some("more than 4 GiB in flight".to_owned())
        } else if self.end > longest || self.warm > self.end {
            Some("it measures for more than two hours, or never".to_owned())
        } else if rates * self.end.as_secs_f64() > SCHEDULED_MAX {
            Some(format!("more than {SCHEDULED_MAX:e} scheduled operations"))
        } else {
            self.jobs.iter().find_map(|job| job_fault(job, self.files.len())).map(str::to_owned)
        }
    }
}

/// The reason why an agent does not do a job that has this number of files to choose from.
fn job_fault(job: &PlannedJob, files: usize) -> Option<&'static str> {
    let wrong_size = |sizes: &BlockSizes| {
        sizes.min == 0 || !sizes.min.is_multiple_of(BLOCK_BYTES_MULTIPLE) || sizes.min > sizes.max
    };
    let largest = job.blocks.iter().map(|sizes| sizes.max).max().unwrap_or(0);
    if job.blocks.iter().any(wrong_size) || largest > BLOCK_BYTES_MAX {
        Some("blocks without a size, not of whole pages, or of more than 1 MiB")
    } else if !(1..=DEPTH_MAX).contains(&job.depth) || job.read_percent > 100 {
        Some("a job without operations, or with more than 1024 in flight")
    } else if !job.rate.is_none_or(|rate| rate > 0.0 && rate <= RATE_MAX) {
        Some("a rate that is none, or that no loop could submit")
    } else if !(largest..=FILE_BYTES_MAX).contains(&job.file_bytes) {
        Some("a file without a block, or of more than 1 PiB")
    } else if job.files.is_empty() || job.files.iter().any(|file| *file >= files) {
        Some("a job whose file is missing")
    } else {
        None
    }
}

/// What one client measured in a repeat.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ClientSample {
    /// When the load was started, in nanoseconds of the agent's clock.
    pub(crate) began_ns: u64,
    pub(crate) read: Option<Flow>,
    pub(crate) write: Option<Flow>,
    pub(crate) bytes_by_path: [Vec<u64>; 2],
    pub(crate) loops: usize,
    pub(crate) longest_gap: Duration,
    pub(crate) stamps: u64,
    pub(crate) client_cpu: Duration,
    pub(crate) window: Duration,
    /// How busy the machine was, and how much of it the hypervisor took.
    pub(crate) busy: f64,
    pub(crate) stolen: f64,
    pub(crate) ports: Vec<PortCounters>,
    pub(crate) paths: Vec<PathCounters>,
    pub(crate) counters: BTreeMap<String, u64>,
    /// When the first and the last loop finished its last operation, since the start.
    pub(crate) done: Option<(Duration, Duration)>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::WorkloadSpec;
    use crate::workload::PlannedWorkload;

    fn assignment() -> Assignment {
        let spec = WorkloadSpec {
            name: "w".into(),
            block: 4096,
            depth: 4,
            readers: 2,
            file: 8192,
            ..WorkloadSpec::default()
        };
        let prepared = PreparedFile { handle: FileHandle::new(&[1, 2]).unwrap(), number: 3, bytes: 8192 };
        Assignment {
            route: serde_json::from_str(
                r#"{"target": "10.0.0.1:/data", "options": "", "group": null,
                    "pace_bytes_per_s": null, "congestion": null}"#,
            )
            .unwrap(),
            jobs: PlannedWorkload::from(&spec).jobs,
            files: vec![SharedFile::from(&prepared), SharedFile::from(&prepared)],
            warm: Duration::ZERO,
            end: Duration::from_secs(1),
        }
    }

    #[test]
    fn an_assignment_is_bounded() {
        assert_eq!(assignment().fault(), None);
        let text = serde_json::to_string(&assignment()).unwrap();
        let mut read: Assignment = serde_json::from_str(&text).unwrap();
        assert_eq!(read.files[1].prepared().unwrap().handle.as_slice(), [1, 2]);
        read.jobs[0].depth = u32::MAX;
        assert!(read.fault().unwrap().contains("in flight"));
        read.jobs[0].depth = 4;
        read.jobs.iter_mut().for_each(|job| job.io_bytes = Some(1 << 40));
        read.end = UNTIMED;
        assert_eq!(read.fault(), None, "its size ends it");
        type Change<'a> = &'a dyn Fn(&mut Assignment);
        let wrong: [(Change<'_>, &str); 14] = [
            (&|it| it.jobs.clear(), "0 jobs"),
            (&|it| it.end = Duration::from_secs(7201), "two hours"),
            (&|it| it.jobs[0].rate = Some(1e300), "scheduled"),
            (&|it| it.jobs[0].rate = Some(2e8), "rate"),
            (&|it| it.jobs[0].rate = Some(f64::NAN), "rate"),
            (&|it| it.jobs[0].blocks = [BlockSizes::same(1); 2], "whole pages"),
            (&|it| it.jobs[0].depth = 1025, "1024 in flight"),
            (&|it| it.jobs[0].file_bytes = u64::MAX, "1 PiB"),
            (&|it| it.jobs[0].file_bytes = 0, "without a block"),
            (&|it| it.jobs[0].files = vec![0; 5000], "4096 files"),
            (&|it| it.jobs[1].blocks[0].min = 0, "without a size"),
            (&|it| it.jobs[1].depth = 0, "without operations"),
            (&|it| it.jobs[1].files[0] = 2, "missing"),
            (&|it| it.jobs[1].files.clear(), "missing"),
        ];
        for (change, needle) in wrong {
            let mut changed = assignment();
            change(&mut changed);
            assert!(changed.fault().unwrap().contains(needle), "{needle}");
        }
    }

    #[test]
    fn a_handle_that_is_none_is_no_file() {
        let file = |handle: &str| SharedFile { handle: handle.into(), number: 0, bytes: 0 }.prepared();
        assert!(file("0102").is_some());
        assert!(file("xx").is_none() && file(&"00".repeat(200)).is_none());
    }
}
