//! Who is served next: connections by turns, each in the order of its calls.
//!
//! One connection may keep all workers but one busy, so that a client whose store hangs leaves one for the others.

use super::Job;
use std::collections::{HashMap, VecDeque};

/// One connection's calls.
#[derive(Default)]
struct Line {
    waiting: VecDeque<Job>,
    running: usize,
    /// It is among those whose turn comes.
    in_turn: bool,
}

/// All connections' calls.
pub(super) struct Lines {
    of: HashMap<u64, Line>,
    /// Connections with a call that may begin.
    turns: VecDeque<u64>,
    /// Workers that one connection may keep busy.
    share: usize,
    /// Workers that run.
    pub workers: usize,
    /// Calls that run elsewhere, and ask again in a moment.
    put_off: Vec<Job>,
    /// Nothing more will come: workers end when all is done.
    pub ending: bool,
}

impl std::fmt::Debug for Lines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lines").field("connections", &self.of.len()).field("workers", &self.workers).finish()
    }
}

impl Lines {
    pub fn new(workers: usize) -> Self {
        Self {
            of: HashMap::new(),
            turns: VecDeque::new(),
            share: workers.saturating_sub(1).max(1),
            workers: 0,
            put_off: Vec::new(),
            ending: false,
        }
    }

    pub fn push(&mut self, job: Job) {
        let connection = job.client.id;
        self.of.entry(connection).or_default().waiting.push_back(job);
        self.line_up(connection);
    }

    /// Lets a call wait for [`call_again`](Self::call_again).
    pub fn put_off(&mut self, job: Job) {
        self.put_off.push(job);
    }

    /// How often the one that was put off least has been, if any is.
    pub fn put_off_least(&self) -> Option<u32> {
        self.put_off.iter().map(|job| job.put_off).min()
    }

    /// Lets all that were put off ask again.
    pub fn call_again(&mut self) {
        for mut job in std::mem::take(&mut self.put_off) {
            job.put_off = job.put_off.saturating_add(1);
            self.push(job);
        }
    }

    /// The next call; [`done`](Self::done) must follow.
    pub fn take(&mut self) -> Option<Job> {
        loop {
            let connection = self.turns.pop_front()?;
            let Some(line) = self.of.get_mut(&connection) else { continue };
            line.in_turn = false;
            let Some(job) = line.waiting.pop_front() else { continue };
            line.running += 1;
            self.line_up(connection);
            return Some(job);
        }
    }

    /// A call of the connection has ended. Says whether another of it may begin by that.
    pub fn done(&mut self, connection: u64) {
        if let Some(line) = self.of.get_mut(&connection) {
            line.running = line.running.saturating_sub(1);
            if line.running == 0 && line.waiting.is_empty() {
                self.of.remove(&connection);
            }
        }
        self.line_up(connection);
    }

    /// The calls of a connection that have not begun.
    pub fn take_back(&mut self, connection: u64) -> VecDeque<Job> {
        let line = self.of.get_mut(&connection);
        let mut back = line.map(|line| std::mem::take(&mut line.waiting)).unwrap_or_default();
        // No call of it ends any more that would take it away.
        if self.of.get(&connection).is_some_and(|line| line.running == 0) {
            self.of.remove(&connection);
        }
        back.extend(self.put_off.extract_if(.., |job| job.client.id == connection));
        back
    }

    /// All calls that have not begun.
    pub fn clear(&mut self) -> Vec<Job> {
        self.turns.clear();
        let waiting = self.of.drain().flat_map(|(_, line)| line.waiting);
        waiting.chain(std::mem::take(&mut self.put_off)).collect()
    }

    fn line_up(&mut self, connection: u64) {
        if let Some(line) = self.of.get_mut(&connection)
            && !line.in_turn
            && !line.waiting.is_empty()
            && line.running < self.share
        {
            line.in_turn = true;
            self.turns.push_back(connection);
        }
    }
}
