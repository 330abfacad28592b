//! A workload as it is run: its files, its jobs and its times, whether an experiment file or a fio
//! job file defines it.

use record::{Direction, Pattern, Shape};

use crate::experiment::WorkloadSpec;
use crate::jobs::{BlockSizes, Order, Window};

/// A file of a workload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedFile {
    /// Its name in the experiment's directory. Workloads that name the same file share it.
    pub name: String,
    /// Its size.
    pub bytes: u64,
}

/// A job: what one reader or writer does.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedJob {
    /// The files, as indices into those of the workload. They take turns.
    pub files: Vec<usize>,
    /// The bytes that the job accesses in each of its files.
    pub file_bytes: u64,
    /// The share of reads among the operations, in percent.
    pub read_percent: u8,
    /// The order of the blocks.
    pub order: Order,
    /// The sizes of the blocks: of reads and of writes.
    pub blocks: [BlockSizes; 2],
    /// The number of operations in flight.
    pub depth: u32,
    /// The bytes after which the job ends; `None` if time ends it.
    pub io_bytes: Option<u64>,
    /// The operations per second that the job starts, whether or not earlier ones have finished.
    pub rate: Option<f64>,
    /// The result in which the job counts besides the total ([`PlannedWorkload::results`]).
    pub result: Option<usize>,
}

impl PlannedJob {
    /// Whether the job has operations of this direction.
    #[must_use]
    pub fn has(&self, direction: Direction) -> bool {
        match direction {
            Direction::Read => self.read_percent > 0,
            Direction::Write => self.read_percent < 100,
        }
    }

    /// The job's rate in one direction.
    fn rate_of(&self, direction: Direction) -> Option<f64> {
        let reads = f64::from(self.read_percent) / 100.0;
        let share = if direction == Direction::Read { reads } else { 1.0 - reads };
        self.rate.map(|rate| rate * share)
    }
}

/// A workload.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedWorkload {
    /// The workload in the form of the record.
    pub shape: Shape,
    /// The files.
    pub files: Vec<PlannedFile>,
    /// The jobs, which run at the same time.
    pub jobs: Vec<PlannedJob>,
    /// The number of results that are counted besides the total.
    pub results: usize,
    /// The times of a repeat; `None` if they are the experiment's.
    pub window: Option<Window>,
}

impl PlannedWorkload {
    /// The name of the workload.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shape.name
    }

    /// The bytes of all files.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// Whether jobs end by their sizes.
    #[must_use]
    pub fn ends(&self) -> bool {
        self.jobs.iter().any(|job| job.io_bytes.is_some())
    }

    /// Whether there are operations of this direction.
    #[must_use]
    pub fn has(&self, direction: Direction) -> bool {
        self.jobs.iter().any(|job| job.has(direction))
    }

    /// The number of operations of this direction in flight. A mixed job counts in both.
    #[must_use]
    pub fn in_flight(&self, direction: Direction) -> u64 {
        self.jobs.iter().filter(|job| job.has(direction)).map(|job| u64::from(job.depth)).sum()
    }

    /// The operations per second of this direction, if all of its jobs have a rate.
    #[must_use]
    pub fn rate(&self, direction: Direction) -> Option<f64> {
        self.jobs.iter().filter(|job| job.has(direction)).map(|job| job.rate_of(direction)).sum()
    }

    /// The size of all blocks, if they have the same.
    #[must_use]
    pub fn block_bytes(&self) -> Option<u64> {
        let used = |job: &PlannedJob| {
            let [read, write] = job.blocks;
            [(Direction::Read, read), (Direction::Write, write)]
                .into_iter()
                .filter(|(it, _)| job.has(*it))
                .map(|(_, sizes)| sizes)
                .collect::<Vec<_>>()
        };
        let mut sizes = self.jobs.iter().flat_map(used);
        let first = sizes.next()?;
        (first.min == first.max && sizes.all(|other| other == first)).then_some(first.max)
    }

    /// The same workload with files that are not larger than this.
    #[must_use]
    pub fn with_files_up_to(mut self, bytes: u64) -> Self {
        self.files.iter_mut().for_each(|file| file.bytes = file.bytes.min(bytes));
        self.jobs.iter_mut().for_each(|job| job.file_bytes = job.file_bytes.min(bytes));
        self.shape.file_bytes = self.shape.file_bytes.map(|file| file.min(bytes));
        self
    }
}

impl From<&WorkloadSpec> for PlannedWorkload {
    fn from(spec: &WorkloadSpec) -> Self {
        let shape = Shape {
            name: spec.name.clone(),
            pattern: spec.pattern,
            block_bytes: spec.block,
            depth: spec.depth,
            readers: spec.readers,
            writers: spec.writers,
            file_bytes: Some(spec.file),
            rate_ops_per_s: spec.rate,
            ..Shape::default()
        };
        let count = spec.readers + spec.writers;
        let bytes = spec.file / spec.block.max(1) * spec.block;
        let file =
            |index: u32| PlannedFile { name: format!("{}.{index}", spec.name.replace('/', "_")), bytes };
        let job = |index: u32| PlannedJob {
            files: vec![index as usize],
            file_bytes: bytes,
            read_percent: if index < spec.readers { 100 } else { 0 },
            order: match spec.pattern {
                Pattern::Sequential => Order::Sequential,
                Pattern::Random => Order::Random,
            },
            blocks: [BlockSizes::same(spec.block); 2],
            depth: spec.depth,
            io_bytes: None,
            rate: spec.rate.map(|rate| rate / f64::from(count.max(1))),
            result: None,
        };
        Self {
            shape,
            files: (0..count).map(file).collect(),
            jobs: (0..count).map(job).collect(),
            results: 0,
            window: None,
        }
    }
}
