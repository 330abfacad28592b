//! What is around two nodes: processes that end or hang, the locks and records of the volumes, and
//! the connection between the nodes. Every step checks what must hold at any time.

use fastrand::Rng;
use nvme::controller::{Node, Reach};
use nvme::pair::{Message, Opened, Output, Pair, Record, Timing};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

pub const NODES: [Node; 2] = [Node(0), Node(1)];

/// What a driver has begun for its machine.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Job {
    Open(u32),
    Save(u32, Record),
    Close(u32),
}

#[derive(Debug)]
struct Process {
    machine: Pair,
    /// Which process of all, so that a lock of an earlier one of the node is told apart.
    id: u64,
    /// It does not run until then: it was stopped, or waits for a device.
    frozen_until: Duration,
    /// It was killed, and ends when the device lets it.
    is_killed: bool,
    /// Of each volume in their order, with the time when they are done.
    jobs: VecDeque<(Duration, Job)>,
    /// How volumes are reached, as it was told.
    reaches: BTreeMap<u32, (Record, Reach)>,
    ran: Duration,
}

/// How long things take, at most, in milliseconds.
#[derive(Debug, Clone, Copy)]
pub struct Delays {
    pub job: u64,
    pub message: u64,
    /// What the kernel still writes for a process that has ended.
    pub late_write: u64,
    /// Until a killed process has ended.
    pub kill: u64,
}

#[derive(Debug)]
pub struct World {
    pub now: Duration,
    pub random: Rng,
    pub delays: Delays,
    processes: [Option<Process>; 2],
    next_id: u64,
    /// By volume: the process that has the lock, and until when the kernel keeps it after its end.
    locks: BTreeMap<u32, (u64, Option<Duration>)>,
    pub records: BTreeMap<u32, Record>,
    /// To each node, with the process that has sent it.
    wires: [VecDeque<(Duration, Message)>; 2],
    connects_at: Option<Duration>,
    /// The nodes that are to hear of the end of the other's process.
    ends: [Option<Duration>; 2],
    /// Backings that cannot be opened by a node.
    pub broken: Vec<(usize, u32)>,
    /// Records that cannot be written by a node.
    pub read_only: Option<usize>,
    pub kills: usize,
    pub took: Vec<(usize, u32)>,
}

impl World {
    /// Volumes 1 to `volumes`, alternating; no process runs.
    pub fn new(seed: u64, volumes: u32) -> Self {
        let record = |nsid: u32| Record { owner: Node((nsid - 1) % 2), epoch: 1 };
        Self {
            now: Duration::ZERO,
            random: Rng::with_seed(seed),
            delays: Delays { job: 20, message: 5, late_write: 50, kill: 20 },
            processes: [None, None],
            next_id: 0,
            locks: BTreeMap::new(),
            records: (1..=volumes).map(|nsid| (nsid, record(nsid))).collect(),
            wires: [VecDeque::new(), VecDeque::new()],
            connects_at: None,
            ends: [None, None],
            broken: Vec::new(),
            read_only: None,
            kills: 0,
            took: Vec::new(),
        }
    }

    fn delay(&mut self, most: u64) -> Duration {
        self.now + Duration::from_millis(1 + self.random.u64(..most.max(1)))
    }

    pub fn is_running(&self, node: usize) -> bool {
        self.processes[node].is_some()
    }

    pub fn start(&mut self, node: usize) {
        // The other one first learns that the last process has ended.
        if self.is_running(node) || self.ends[1 - node].is_some() {
            return;
        }
        let timing = Timing::default();
        let records = self.records.iter().map(|(nsid, record)| (*nsid, *record));
        let machine = Pair::new(self.now, NODES[node], NODES[1 - node], timing, records);
        self.next_id += 1;
        let (jobs, reaches) = (VecDeque::new(), BTreeMap::new());
        let (frozen_until, ran) = (Duration::ZERO, self.now);
        let id = self.next_id;
        self.processes[node] =
            Some(Process { machine, id, frozen_until, is_killed: false, jobs, reaches, ran });
        if self.is_running(1 - node) {
            self.connects_at = Some(self.delay(self.delays.message * 4));
        }
        self.pump(node);
    }

    /// The process gets no processor for this long.
    pub fn freeze(&mut self, node: usize, ms: u64) {
        let until = self.now + Duration::from_millis(ms);
        if let Some(process) = &mut self.processes[node] {
            process.frozen_until = process.frozen_until.max(until);
        }
    }

    /// The process is killed, and ends at once.
    pub fn crash(&mut self, node: usize) {
        let Some(process) = self.processes[node].take() else { return };
        let keeps = self.delay(self.delays.late_write);
        for (holder, until) in self.locks.values_mut() {
            if *holder == process.id {
                *until = Some(keeps);
            }
        }
        // A record that is being written may be on the disk, or not.
        for (_, job) in process.jobs {
            if let Job::Save(nsid, record) = job
                && self.read_only != Some(node)
                && self.random.u64(..2) == 0
            {
                self.write(process.id, nsid, record);
            }
        }
        self.connects_at = None;
        // What it has sent may arrive first, or not at all.
        let lost = self.random.u64(..3) == 0;
        if lost {
            self.wires[1 - node].clear();
        }
        self.wires[node].clear();
        let arrives = self.wires[1 - node].back().map_or(self.now, |(at, _)| *at);
        self.ends[1 - node] = self.is_running(1 - node).then(|| self.delay(self.delays.message).max(arrives));
        // Of its own end nobody tells it.
        self.ends[node] = None;
    }

    pub fn own(&mut self, node: usize, nsid: u32, owner: usize) -> Result<(), nvme::pair::Misuse> {
        let Some(process) = &mut self.processes[node] else { return Ok(()) };
        let outcome = process.machine.handle_own(self.now, nsid, NODES[owner]);
        self.pump(node);
        outcome
    }

    /// How a node reaches a volume, and who owns it.
    pub fn reach(&self, node: usize, nsid: u32) -> Option<(Record, Reach)> {
        self.processes[node].as_ref()?.reaches.get(&nsid).copied()
    }

    pub fn owner(&self, nsid: u32) -> Option<usize> {
        (0..2).find(|node| self.processes[*node].as_ref().is_some_and(|process| process.machine.owns(nsid)))
    }

    pub fn has_lock(&self, nsid: u32) -> bool {
        self.locks.contains_key(&nsid)
    }

    fn write(&mut self, id: u64, nsid: u32, record: Record) {
        assert_eq!(self.locks[&nsid].0, id, "a record is written under the lock only");
        let before = self.records.insert(nsid, record).expect("a volume");
        assert_eq!(record.epoch, before.epoch + 1, "epochs grow by one");
    }

    /// Does what a machine asks for.
    fn pump(&mut self, node: usize) {
        let (job, message, kill) = (self.delays.job, self.delays.message, self.delays.kill);
        loop {
            let Some(process) = &mut self.processes[node] else { return };
            let Some(output) = process.machine.poll_output() else { return };
            let mut later = |most: u64| self.now + Duration::from_millis(1 + self.random.u64(..most.max(1)));
            let mut begin = |job_of: Job| {
                let last = process.jobs.back().map_or(Duration::ZERO, |(at, _)| *at);
                process.jobs.push_back((later(job).max(last), job_of));
            };
            match output {
                Output::Open { nsid } => begin(Job::Open(nsid)),
                Output::Save { nsid, record } => begin(Job::Save(nsid, record)),
                Output::Close { nsid } => begin(Job::Close(nsid)),
                Output::Reach { nsid, record, reach } => _ = process.reaches.insert(nsid, (record, reach)),
                Output::Send(sent) => {
                    let wire = &mut self.wires[1 - node];
                    let last = wire.back().map_or(Duration::ZERO, |(at, _)| *at);
                    // Before they are connected, there is nobody to hear it.
                    if self.connects_at.is_none() && self.ends[node].is_none() {
                        wire.push_back((later(message).max(last), sent));
                    }
                }
                Output::Kill => {
                    self.kills += 1;
                    let until = later(kill);
                    if let Some(other) = &mut self.processes[1 - node] {
                        other.is_killed = true;
                        other.frozen_until = until;
                    }
                }
            }
        }
    }

    /// Lets a millisecond pass.
    pub fn step(&mut self) {
        self.now += Duration::from_millis(1);
        let now = self.now;
        self.locks.retain(|_, (_, until)| until.is_none_or(|until| now < until));
        if self.connects_at.is_some_and(|at| now >= at) && self.ends == [None, None] {
            self.connects_at = None;
            self.wires.iter_mut().for_each(VecDeque::clear);
            for node in 0..2 {
                if let Some(process) = &mut self.processes[node] {
                    process.machine.handle_partner_connected(now);
                }
                self.pump(node);
            }
        }
        for node in 0..2 {
            let Some(process) = &mut self.processes[node] else { continue };
            if process.is_killed && now >= process.frozen_until {
                self.crash(node);
            } else if now >= process.frozen_until {
                self.run(node);
            }
        }
        self.check();
    }

    /// A process has a turn.
    fn run(&mut self, node: usize) {
        let now = self.now;
        let Some(process) = &mut self.processes[node] else { return };
        let late = (now - std::mem::replace(&mut process.ran, now)).saturating_sub(Duration::from_millis(1));
        process.machine.handle_timeout(now, late);
        self.pump(node);
        while self.wires[node].front().is_some_and(|(at, _)| now >= *at) {
            let Some((_, message)) = self.wires[node].pop_front() else { break };
            let Some(process) = &mut self.processes[node] else { return };
            process.machine.handle_message(now, message);
            self.pump(node);
        }
        while let Some(process) = &mut self.processes[node]
            && process.jobs.front().is_some_and(|(at, _)| now >= *at)
            && let Some((_, job)) = process.jobs.pop_front()
        {
            self.finish(node, job);
            self.pump(node);
        }
        if self.ends[node].is_some_and(|at| now >= at) {
            self.ends[node] = None;
            if let Some(process) = &mut self.processes[node] {
                process.machine.handle_partner_ended(now);
            }
            self.pump(node);
        }
    }

    fn finish(&mut self, node: usize, job: Job) {
        let now = self.now;
        let Some(id) = self.processes[node].as_ref().map(|process| process.id) else { return };
        let outcome = match job {
            Job::Open(nsid) if self.broken.contains(&(node, nsid)) => Opened::Failed,
            Job::Open(nsid) if self.locks.contains_key(&nsid) => Opened::Held,
            Job::Open(nsid) => {
                self.locks.insert(nsid, (id, None));
                self.took.push((node, nsid));
                Opened::Locked(self.records[&nsid])
            }
            Job::Save(nsid, record) => {
                if self.read_only != Some(node) {
                    self.write(id, nsid, record);
                }
                Opened::Failed
            }
            Job::Close(nsid) => {
                let closed = self.locks.remove(&nsid);
                assert_eq!(closed.map(|(holder, _)| holder), Some(id), "what is closed was open");
                Opened::Failed
            }
        };
        let saved = self.read_only != Some(node);
        let Some(process) = &mut self.processes[node] else { return };
        match job {
            Job::Open(nsid) => process.machine.handle_opened(now, nsid, outcome),
            Job::Save(nsid, _) => process.machine.handle_saved(now, nsid, saved),
            Job::Close(nsid) => process.machine.handle_closed(now, nsid),
        }
    }

    /// What holds at any time.
    fn check(&self) {
        for (nsid, record) in &self.records {
            let owners: Vec<usize> = (0..2)
                .filter(|node| {
                    self.processes[*node].as_ref().is_some_and(|process| process.machine.owns(*nsid))
                })
                .collect();
            assert!(owners.len() <= 1, "{:?}: two owners of {nsid}", self.now);
            let Some(&owner) = owners.first() else { continue };
            let id = self.processes[owner].as_ref().map(|process| process.id);
            assert_eq!(self.locks.get(nsid).map(|(holder, _)| Some(*holder)), Some(id), "it has the lock");
            assert_eq!(record.owner, NODES[owner], "and its name is in the record");
            assert_eq!(self.reach(owner, *nsid), Some((*record, Reach::Serving)));
        }
    }

    pub fn run_ms(&mut self, ms: u64) {
        (0..ms).for_each(|_| self.step());
    }

    /// Runs until this holds.
    pub fn run_until(&mut self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        for _ in 0..60_000 {
            if holds(self) {
                return;
            }
            self.step();
        }
        panic!("not within a minute: {what}");
    }

    /// Whether every volume is owned, and all nodes that run know by whom.
    pub fn is_settled(&self) -> bool {
        self.records.iter().all(|(nsid, record)| {
            let knows = |node: usize| {
                !self.is_running(node) || self.reach(node, *nsid) == Some((*record, Reach::Serving))
            };
            self.owner(*nsid).is_some() && knows(0) && knows(1)
        })
    }
}
