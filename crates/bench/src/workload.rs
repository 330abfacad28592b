//! A workload as it is run: its files, its jobs and its times, whether an experiment file or a fio
//! job file defines it.

use std::time::Duration;

use record::steps::Unit;
use record::{Direction, Pattern, Shape, Step};
use serde::{Deserialize, Serialize};

use crate::experiment::WorkloadSpec;
use crate::jobs::{BlockSizes, Order, Window};

/// The shortest warm-up on several clients, which do not start at the same instant.
pub(crate) const CLIENTS_WARM_MIN: Duration = Duration::from_millis(250);

/// A file of a workload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedFile {
    /// Its name in the experiment's directory. Workloads that name the same file share it.
    pub name: String,
    /// Its size.
    pub bytes: u64,
}

/// A job: what one reader or writer does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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
    /// The client that runs the job, among those of the workload.
    #[serde(skip)]
    pub client: usize,
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
    /// The step, if the workload is part of a step test.
    pub step: Option<Step>,
    /// The number of clients; 0 if this process is the client.
    pub clients: usize,
}

impl PlannedWorkload {
    /// A workload without jobs.
    #[must_use]
    pub(crate) fn empty() -> Self {
        Self {
            shape: Shape::default(),
            files: Vec::new(),
            jobs: Vec::new(),
            results: 0,
            window: None,
            step: None,
            clients: 0,
        }
    }

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

    /// The same workload on no more than this many clients.
    #[must_use]
    pub fn on_clients(&self, most: usize) -> Self {
        let mut workload = self.clone();
        workload.clients = workload.clients.min(most);
        workload.jobs.retain(|job| job.client < most);
        workload
    }

    /// The jobs of one client, and the files that they use: indices into those of the whole
    /// workload.
    #[must_use]
    pub fn of_client(&self, client: usize) -> (Self, Vec<usize>) {
        let mut used: Vec<usize> = Vec::new();
        let mut jobs: Vec<PlannedJob> = self.jobs.iter().filter(|it| it.client == client).cloned().collect();
        for file in jobs.iter_mut().flat_map(|job| &mut job.files) {
            let known = used.iter().position(|known| known == file);
            let index = known.unwrap_or_else(|| {
                used.push(*file);
                used.len() - 1
            });
            *file = index;
        }
        let files = used.iter().filter_map(|file| self.files.get(*file)).cloned().collect();
        (Self { files, jobs, ..self.clone() }, used)
    }

    /// The workload of a job file on each of so many clients, which have files of their own.
    /// Clients do not start at the same instant, so that a load that time ends warms up for a
    /// while.
    #[must_use]
    pub fn on_each_client(&self, clients: usize) -> Self {
        let each = || (0..clients).map(|client| (client, client * self.files.len()));
        let file = |(client, _): (usize, usize)| {
            let named =
                |file: &PlannedFile| PlannedFile { name: format!("client{client}.{}", file.name), ..*file };
            self.files.iter().map(named).collect::<Vec<_>>()
        };
        let jobs = |(client, first): (usize, usize)| {
            let moved = move |job: &PlannedJob| {
                let files = job.files.iter().map(|file| first + file).collect();
                PlannedJob { files, client, ..job.clone() }
            };
            self.jobs.iter().map(moved).collect::<Vec<_>>()
        };
        let mut workload = Self { clients, ..self.clone() };
        workload.files = each().flat_map(file).collect();
        workload.jobs = each().flat_map(jobs).collect();
        if clients > 1 {
            let note = format!("on each of {clients} clients");
            let before = workload.shape.note.take().map(|before| format!("{before}, ")).unwrap_or_default();
            workload.shape.note = Some(before + &note);
        }
        if !workload.ends()
            && let Some(window) = &mut workload.window
        {
            let longer = CLIENTS_WARM_MIN.saturating_sub(window.warm);
            (window.warm, window.end) = (window.warm + longer, window.end + longer);
        }
        workload
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
        plan(spec, spec.name.clone(), 0, None)
    }
}

/// The workloads of an experiment file's workload: one, or one for each step. `clients` is the
/// number of clients, 0 if this process is the client.
#[must_use]
pub fn planned(spec: &WorkloadSpec, clients: usize) -> Vec<PlannedWorkload> {
    let Some(steps) = &spec.steps else { return vec![plan(spec, spec.name.clone(), clients, None)] };
    let step = |clients: usize, depth, added| {
        let clients = u32::try_from(clients.max(1)).unwrap_or(u32::MAX);
        Some(Step { series: spec.name.clone(), clients, depth, added: Some(added) })
    };
    let of_depth = steps.depth.iter().map(|depth| {
        let spec = WorkloadSpec { depth: *depth, ..spec.clone() };
        plan(&spec, format!("{} depth {depth}", spec.name), clients, step(clients, *depth, Unit::Depth))
    });
    let of_clients = steps.clients.iter().map(|number| {
        let clients = *number as usize;
        let plural = if *number == 1 { "" } else { "s" };
        let name = format!("{} x{number} client{plural}", spec.name);
        plan(spec, name, clients, step(clients, spec.depth, Unit::Clients))
    });
    of_depth.chain(of_clients).collect()
}

/// A workload under a name of its own. Steps of one workload share its files.
fn plan(spec: &WorkloadSpec, name: String, clients: usize, step: Option<Step>) -> PlannedWorkload {
    let shape = Shape {
        name,
        pattern: spec.pattern,
        block_bytes: spec.block,
        depth: spec.depth,
        readers: spec.readers,
        writers: spec.writers,
        file_bytes: Some(spec.file),
        rate_ops_per_s: spec.rate,
        note: (clients > 1).then(|| format!("on each of {clients} clients")),
        ..Shape::default()
    };
    let count = spec.readers + spec.writers;
    let bytes = spec.file / spec.block.max(1) * spec.block;
    let stem = spec.name.replace('/', "_");
    let file = |client: Option<usize>, index: u32| {
        let of_client = client.map(|client| format!("client{client}.")).unwrap_or_default();
        PlannedFile { name: format!("{stem}.{of_client}{index}"), bytes }
    };
    let own_files = clients > 0 && !spec.shared;
    let job = |client: usize, index: u32| PlannedJob {
        files: vec![if own_files { client * count as usize } else { 0 } + index as usize],
        file_bytes: bytes,
        read_percent: if index < spec.readers { 100 } else { 0 },
        order: match spec.pattern {
            Pattern::Sequential => Order::Sequential,
            Pattern::Random => Order::Random,
        },
        blocks: [BlockSizes::same(spec.block); 2],
        depth: spec.depth,
        io_bytes: spec.io,
        rate: spec.rate.map(|rate| rate / f64::from(count.max(1))),
        result: None,
        client,
    };
    let each = |client: usize| (0..count).map(move |index| (client, index));
    let files = match own_files {
        true => (0..clients).flat_map(each).map(|(client, index)| file(Some(client), index)).collect(),
        false => (0..count).map(|index| file(None, index)).collect(),
    };
    let jobs = (0..clients.max(1)).flat_map(each).map(|(client, index)| job(client, index)).collect();
    let window = spec.io.map(|_| Window::untimed());
    PlannedWorkload { shape, files, jobs, results: 0, window, step, clients }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Steps;

    fn spec(steps: Option<Steps>) -> WorkloadSpec {
        let name = "mix/a".into();
        WorkloadSpec {
            name,
            block: 4096,
            depth: 2,
            readers: 2,
            writers: 1,
            file: 8192,
            steps,
            ..<_>::default()
        }
    }

    #[test]
    fn each_client_has_files_of_its_own_which_the_steps_share() {
        let steps = Steps { clients: vec![1, 3], depth: Vec::new() };
        let [one, three] = planned(&spec(Some(steps)), 3).try_into().unwrap();
        assert_eq!((one.name(), three.name()), ("mix/a x1 client", "mix/a x3 clients"));
        assert_eq!(
            three.step,
            Some(Step { series: "mix/a".into(), clients: 3, depth: 2, added: Some(Unit::Clients) })
        );
        assert_eq!((one.files.len(), three.files.len(), three.jobs.len()), (3, 9, 9));
        assert_eq!(one.files, three.files[..3], "the same files");
        assert_eq!(three.files[8].name, "mix_a.client2.2");
        assert_eq!(three.in_flight(Direction::Read), 12);
        let (third, files) = three.of_client(2);
        assert_eq!((third.jobs.len(), files), (3, vec![6, 7, 8]));
        assert_eq!(third.jobs[2].files, [2], "within the client's own files");
    }

    #[test]
    fn a_job_file_on_each_client_has_files_and_a_warm_up_of_its_own() {
        let one = PlannedWorkload {
            window: Some(Window { warm: Duration::ZERO, end: Duration::from_secs(5) }),
            ..PlannedWorkload::from(&spec(None))
        };
        let three = one.on_each_client(3);
        assert_eq!((three.clients, three.files.len(), three.jobs.len()), (3, 9, 9));
        assert_eq!((three.files[3].name.as_str(), &three.jobs[5].files), ("client1.mix_a.0", &vec![5]));
        assert_eq!(
            (three.of_client(2).1, three.of_client(2).0.jobs[0].files.clone()),
            (vec![6, 7, 8], vec![0])
        );
        let window = three.window.unwrap();
        assert_eq!((window.warm.as_millis(), window.end.as_millis()), (250, 5250));
        assert_eq!(three.shape.note.as_deref(), Some("on each of 3 clients"));
        let sized = PlannedWorkload {
            window: one.window,
            ..PlannedWorkload::from(&WorkloadSpec { io: Some(1 << 20), ..spec(None) })
        };
        assert_eq!(sized.on_each_client(2).window, one.window, "it is measured from its start");
        let warm = PlannedWorkload {
            window: Some(Window { warm: CLIENTS_WARM_MIN * 4, ..one.window.unwrap() }),
            ..one
        };
        assert_eq!(warm.on_each_client(2).window, warm.window);
    }

    #[test]
    fn a_route_with_fewer_clients_runs_their_jobs_only() {
        let [workload] = planned(&spec(None), 4).try_into().unwrap();
        assert_eq!(workload.shape.note.as_deref(), Some("on each of 4 clients"));
        let two = workload.on_clients(2);
        assert_eq!((two.clients, two.jobs.len(), two.files.len()), (2, 6, 12));
        assert_eq!(workload.on_clients(9), workload);
    }

    #[test]
    fn a_size_ends_a_load_that_is_measured_from_its_start() {
        assert_eq!(planned(&spec(None), 2)[0].window, None);
        let [sized] = planned(&WorkloadSpec { io: Some(1 << 30), ..spec(None) }, 2).try_into().unwrap();
        let window = sized.window.unwrap();
        assert!(sized.ends() && window.warm.is_zero() && window.latest() == window.end);
    }

    #[test]
    fn shared_files_are_the_same_for_all_clients() {
        let shared = WorkloadSpec { writers: 0, shared: true, ..spec(None) };
        let [workload] = planned(&shared, 4).try_into().unwrap();
        assert_eq!((workload.files.len(), workload.jobs.len()), (2, 8));
        assert_eq!(workload.of_client(3).1, [0, 1]);
    }

    #[test]
    fn steps_of_depth_need_no_clients() {
        let steps = Steps { clients: Vec::new(), depth: vec![1, 8] };
        let found = planned(&spec(Some(steps)), 0);
        assert_eq!(found[1].name(), "mix/a depth 8");
        assert_eq!((found[1].shape.depth, found[1].jobs[0].depth), (8, 8));
        assert_eq!(
            found[1].step,
            Some(Step { series: "mix/a".into(), clients: 1, depth: 8, added: Some(Unit::Depth) })
        );
        assert_eq!(found[0].files, found[1].files);
    }
}
