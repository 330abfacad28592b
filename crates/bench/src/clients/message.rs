//! What the coordinator and an agent say to each other after the handshake.
//!
//! Each request has one answer, except [`Request::Stop`]: it ends what runs, whose answer is then
//! [`Answer::Stopped`]. Before the answer to [`Request::Start`], any number of [`Answer::Told`]
//! come.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use fs::FileHandle;
use record::{PathCounters, PortCounters};
use serde::{Deserialize, Serialize};

use super::key::{hex, unhex};
use super::told::ClientLoad;
use crate::experiment::{IN_FLIGHT_BYTES_MAX, RATE_MAX, THREADS_MAX};
use crate::files::PreparedFile;
use crate::jobs::{BlockSizes, UNTIMED, Window};
use crate::measure::Flow;
use crate::routes::MountPlan;
use crate::workload::{PlannedFile, PlannedJob};

/// The maximum number of files of one client, and of files that its jobs name: those of a job file.
const FILES_MAX: usize = 1 << 14;
/// The maximum number of jobs of one client: the clones of a job file.
const JOBS_MAX: usize = 1 << 12;
/// The maximum number of operations in flight of one client. Each takes memory, however small its
/// block.
const DEPTH_MAX: u64 = 1 << 18;
/// The longest name of a file.
const NAME_BYTES_MAX: usize = 255;
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
    /// What is this directory of yours? Answered by [`Answer::Directory`].
    Inspect {
        /// Its path.
        directory: PathBuf,
        /// Whether it would be accessed past the page cache.
        direct: bool,
    },
    /// Makes files in a directory. Answered by [`Answer::Ready`].
    Make(Box<Files>),
    /// Compares files of a set, byte for byte. Answered by [`Answer::Compared`].
    Compare {
        /// The set.
        set: u32,
        /// The numbers of the files.
        files: Vec<u32>,
    },
    /// Removes the files of a set. Answered by [`Answer::Ready`]. It cannot be stopped.
    Remove {
        /// The set.
        set: u32,
    },
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
    /// The directory.
    Directory(Inspected),
    /// The agent's owner does not let it be measured.
    NotAllowed,
    /// The files were compared.
    Compared {
        /// The bytes of those that are right.
        bytes: u64,
        /// The first wrong block.
        wrong: Option<String>,
    },
    /// It is done: the route is mounted, or the files are made or removed.
    Ready,
    /// What was done since the last of these. It is no answer: that comes later.
    Told(Box<ClientLoad>),
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

/// A directory of an agent's machine.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Inspected {
    /// The bytes that are free for the agent, if the file system says.
    pub(crate) free_bytes: Option<u64>,
    /// The number of its device.
    pub(crate) device: u64,
    /// The type and the source, if it is on a network.
    pub(crate) source: Option<String>,
    /// How it is accessed, in words.
    pub(crate) access: String,
}

/// Files that an agent is to make.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Files {
    /// The number of the set.
    pub(super) set: u32,
    /// The directory in which a directory for them is made.
    pub(super) directory: PathBuf,
    /// Whether they will be accessed past the page cache.
    pub(super) direct: bool,
    /// The files, in the order of their numbers.
    pub(super) files: Vec<FileToMake>,
}

/// A file that an agent is to make.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct FileToMake {
    pub(super) name: String,
    pub(super) bytes: u64,
}

impl Files {
    /// The reason why this is more than an agent does, if it is.
    pub(super) fn fault(&self) -> Option<String> {
        let is_plain = |name: &str| {
            (1..=NAME_BYTES_MAX).contains(&name.len())
                && !name.contains(['/', '\0'])
                && ![".", ".."].contains(&name)
        };
        let names: BTreeSet<&str> = self.files.iter().map(|file| file.name.as_str()).collect();
        if self.files.len() > FILES_MAX {
            Some(format!("more than {FILES_MAX} files"))
        } else if names.len() < self.files.len() || !self.files.iter().all(|file| is_plain(&file.name)) {
            Some("a name of a file that is none, or there twice".to_owned())
        } else if self.files.iter().any(|file| file.bytes > FILE_BYTES_MAX) {
            Some("a file of more than 1 PiB".to_owned())
        } else if !self.directory.is_absolute() {
            Some(format!("{}: the directory's path from / on", self.directory.display()))
        } else {
            None
        }
    }

    /// The files as those of a workload.
    pub(super) fn planned(&self) -> Vec<PlannedFile> {
        let planned = |file: &FileToMake| PlannedFile { name: file.name.clone(), bytes: file.bytes };
        self.files.iter().map(planned).collect()
    }
}

/// Where a client makes its load.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Place {
    /// On a route that it mounts.
    Mount {
        /// How it mounts it.
        route: MountPlan,
        /// The files, which the coordinator has made.
        files: Vec<SharedFile>,
    },
    /// In a directory of its machine.
    Directory {
        /// The set of files, which it has made before.
        set: u32,
        /// The numbers of the files.
        files: Vec<u32>,
    },
}

impl Place {
    /// The number of files.
    fn files(&self) -> usize {
        match self {
            Self::Mount { files, .. } => files.len(),
            Self::Directory { files, .. } => files.len(),
        }
    }
}

/// One client's part of a workload on a route.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Assignment {
    pub(super) place: Place,
    /// The jobs. Their files are indices into those of the place.
    pub(super) jobs: Vec<PlannedJob>,
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
        let threads: u64 = self.jobs.iter().map(|job| u64::from(job.depth)).sum();
        let rates: f64 = self.jobs.iter().filter(|it| it.io_bytes.is_none()).filter_map(|it| it.rate).sum();
        let longest = if self.jobs.iter().all(|job| job.io_bytes.is_some()) { UNTIMED } else { WINDOW_MAX };
        if self.jobs.is_empty() || self.jobs.len() > JOBS_MAX {
            Some(format!("{} jobs: 1 to {JOBS_MAX}", self.jobs.len()))
        } else if self.place.files().max(named) > FILES_MAX {
            Some(format!("more than {FILES_MAX} files"))
        } else if threads > THREADS_MAX && matches!(self.place, Place::Directory { .. }) {
            Some(format!(
                "{threads} operations in flight in a directory need as many threads, at most {THREADS_MAX}"
            ))
        } else if in_flight.fold(0, u64::saturating_add) > IN_FLIGHT_BYTES_MAX {
            Some("more than 4 GiB in flight".to_owned())
        } else if threads > DEPTH_MAX {
            Some(format!("{threads} operations in flight, at most {DEPTH_MAX}"))
        } else if self.end > longest || self.warm > self.end {
            Some("it measures for more than two hours, or never".to_owned())
        } else if rates * self.end.as_secs_f64() > SCHEDULED_MAX {
            Some(format!("more than {SCHEDULED_MAX:e} scheduled operations"))
        } else {
            self.jobs.iter().find_map(|job| job_fault(job, self.place.files())).map(str::to_owned)
        }
    }
}

/// The reason why an agent does not do a job that has this number of files to choose from.
fn job_fault(job: &PlannedJob, files: usize) -> Option<&'static str> {
    let wrong_size = |sizes: &BlockSizes| sizes.min == 0 || sizes.min > sizes.max;
    let largest = job.blocks.iter().map(|sizes| sizes.max).max().unwrap_or(0);
    if job.blocks.iter().any(wrong_size) {
        Some("blocks without a size")
    } else if job.depth == 0 || job.read_percent > 100 {
        Some("a job without operations")
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
        let route = serde_json::from_str(
            r#"{"target": "10.0.0.1:/data", "options": "", "group": null,
                "pace_bytes_per_s": null, "congestion": null}"#,
        );
        let files = vec![SharedFile::from(&prepared), SharedFile::from(&prepared)];
        Assignment {
            place: Place::Mount { route: route.unwrap(), files },
            jobs: PlannedWorkload::from(&spec).jobs,
            warm: Duration::ZERO,
            end: Duration::from_secs(1),
        }
    }

    #[test]
    fn an_assignment_is_bounded() {
        assert_eq!(assignment().fault(), None);
        let text = serde_json::to_string(&assignment()).unwrap();
        let mut read: Assignment = serde_json::from_str(&text).unwrap();
        let Place::Mount { files, .. } = &read.place else { panic!() };
        assert_eq!(files[1].prepared().unwrap().handle.as_slice(), [1, 2]);
        read.jobs[0].depth = u32::MAX;
        assert!(read.fault().unwrap().contains("in flight"));
        read.jobs[0].depth = 4;
        read.jobs.iter_mut().for_each(|job| job.io_bytes = Some(1 << 40));
        read.end = UNTIMED;
        assert_eq!(read.fault(), None, "its size ends it");
        type Change<'a> = &'a dyn Fn(&mut Assignment);
        let wrong: [(Change<'_>, &str); 15] = [
            (&|it| it.jobs.clear(), "0 jobs"),
            (&|it| it.end = Duration::from_secs(7201), "two hours"),
            (&|it| it.jobs[0].rate = Some(1e300), "scheduled"),
            (&|it| it.jobs[0].rate = Some(2e8), "rate"),
            (&|it| it.jobs[0].rate = Some(f64::NAN), "rate"),
            (&|it| it.jobs[0].blocks = [BlockSizes { min: 2, max: 1 }; 2], "without a size"),
            (&|it| it.jobs[0].blocks = [BlockSizes::same(1 << 31); 2], "4 GiB in flight"),
            (
                &|it| {
                    it.jobs[0].blocks = [BlockSizes::same(1); 2];
                    it.jobs[0].depth = 1 << 19;
                },
                "operations in flight",
            ),
            (&|it| it.jobs[0].file_bytes = u64::MAX, "1 PiB"),
            (&|it| it.jobs[0].file_bytes = 0, "without a block"),
            (&|it| it.jobs[0].files = vec![0; 20_000], "16384 files"),
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
    fn files_to_make_and_loads_in_a_directory_are_bounded() {
        let file = |name: &str| FileToMake { name: name.into(), bytes: 1 };
        let files = |files: Vec<FileToMake>| Files { set: 0, directory: "/mnt".into(), direct: true, files };
        assert_eq!(files(vec![file("a"), file("b")]).fault(), None);
        let long = "x".repeat(256);
        for name in ["", ".", "..", "a/b", "a\0", &long] {
            assert!(files(vec![file(name)]).fault().unwrap().contains("that is none"), "{name:?}");
        }
        assert!(files(vec![file("a"), file("a")]).fault().is_some());
        assert!(files(vec![FileToMake { bytes: u64::MAX, ..file("a") }]).fault().unwrap().contains("1 PiB"));
        let many = (0..20_000).map(|number| file(&number.to_string())).collect();
        assert!(files(many).fault().unwrap().contains("16384 files"));
        let relative = Files { directory: "mnt".into(), ..files(Vec::new()) };
        assert!(relative.fault().unwrap().contains("from / on"));
        let in_directory = |depth| {
            let mut made = assignment();
            made.place = Place::Directory { set: 0, files: vec![0, 1] };
            made.jobs = vec![PlannedJob { depth, ..made.jobs[0].clone() }; 5];
            made.fault()
        };
        assert_eq!(in_directory(8), None);
        assert!(in_directory(1000).unwrap().contains("as many threads"));
    }

    #[test]
    fn a_handle_that_is_none_is_no_file() {
        let file = |handle: &str| SharedFile { handle: handle.into(), number: 0, bytes: 0 }.prepared();
        assert!(file("0102").is_some());
        assert!(file("xx").is_none() && file(&"00".repeat(200)).is_none());
    }
}
