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
use crate::files::PreparedFile;
use crate::jobs::Window;
use crate::measure::Flow;
use crate::routes::MountPlan;
use crate::workload::PlannedJob;

/// The maximum number of jobs of one client.
const JOBS_MAX: usize = 1024;
/// The maximum size of all blocks in flight together: each has a buffer.
const IN_FLIGHT_BYTES_MAX: u64 = 4 << 30;
/// The longest measured time.
const WINDOW_MAX: Duration = Duration::from_secs(3600);

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
        let in_flight = self.jobs.iter().map(|job| {
            let block = job.blocks.iter().map(|sizes| sizes.max).max().unwrap_or(0);
            block.saturating_mul(u64::from(job.depth))
        });
        let sizes = self.jobs.iter().flat_map(|job| job.blocks);
        if self.jobs.is_empty() || self.jobs.len() > JOBS_MAX {
            Some(format!("{} jobs: 1 to {JOBS_MAX}", self.jobs.len()))
        } else if in_flight.fold(0, u64::saturating_add) > IN_FLIGHT_BYTES_MAX {
            Some("more than 4 GiB in flight".to_owned())
        } else if self.end > WINDOW_MAX || self.warm > self.end {
            Some("it measures for more than an hour, or never".to_owned())
        } else if sizes.into_iter().any(|sizes| sizes.min == 0 || sizes.min > sizes.max) {
            Some("blocks without a size".to_owned())
        } else if self.jobs.iter().any(|job| job.depth == 0 || job.read_percent > 100) {
            Some("a job without operations".to_owned())
        } else {
            let known = |file: &usize| *file < self.files.len();
            let all = self.jobs.iter().all(|job| !job.files.is_empty() && job.files.iter().all(known));
            (!all).then(|| "a job whose file is missing".to_owned())
        }
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
        type Change<'a> = &'a dyn Fn(&mut Assignment);
        let wrong: [(Change<'_>, &str); 6] = [
            (&|it| it.jobs.clear(), "0 jobs"),
            (&|it| it.end = Duration::from_secs(3601), "an hour"),
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
