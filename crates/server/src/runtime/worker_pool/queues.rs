//! The order of calls: connections are served in turn, each in the order of its calls.
//!
//! One connection may keep all workers but one busy, so that a client whose store hangs leaves one
//! worker for the others.

use super::Task;
use std::collections::{HashMap, VecDeque};

/// The calls of one connection.
#[derive(Default)]
struct Queue {
    waiting: VecDeque<Task>,
    running: usize,
    /// The connection is queued in `ready`.
    is_ready: bool,
}

/// The calls of all connections.
pub(super) struct Queues {
    by_connection: HashMap<u64, Queue>,
    /// Connections with a call that may begin.
    ready: VecDeque<u64>,
    /// Workers that one connection may keep busy.
    workers_per_connection: usize,
    /// Running workers.
    pub workers: usize,
    /// Deferred calls: they run elsewhere, and are tried again soon.
    deferred: Vec<Task>,
    /// No more calls will come: workers end when all calls are done.
    pub ending: bool,
}

impl std::fmt::Debug for Queues {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queues")
            .field("connections", &self.by_connection.len())
            .field("workers", &self.workers)
            .finish()
    }
}

impl Queues {
    pub fn new(workers: usize) -> Self {
        Self {
            by_connection: HashMap::new(),
            ready: VecDeque::new(),
            workers_per_connection: workers.saturating_sub(1).max(1),
            workers: 0,
            deferred: Vec::new(),
            ending: false,
        }
    }

    pub fn push(&mut self, task: Task) {
        let connection = task.client.id;
        self.by_connection.entry(connection).or_default().waiting.push_back(task);
        self.make_ready(connection);
    }

    /// Defers a call until [`requeue_deferred`](Self::requeue_deferred).
    pub fn defer(&mut self, task: Task) {
        self.deferred.push(task);
    }

    /// How often the least deferred call has been deferred, if there is any.
    pub fn deferrals_min(&self) -> Option<u32> {
        self.deferred.iter().map(|task| task.deferrals).min()
    }

    /// Queues all deferred calls again.
    pub fn requeue_deferred(&mut self) {
        for mut task in std::mem::take(&mut self.deferred) {
            task.deferrals = task.deferrals.saturating_add(1);
            self.push(task);
        }
    }

    /// Takes the next call; [`done`](Self::done) must follow.
    pub fn take(&mut self) -> Option<Task> {
        loop {
            let connection = self.ready.pop_front()?;
            let Some(queue) = self.by_connection.get_mut(&connection) else { continue };
            queue.is_ready = false;
            let Some(task) = queue.waiting.pop_front() else { continue };
            queue.running += 1;
            self.make_ready(connection);
            return Some(task);
        }
    }

    /// Notes that a call of the connection has ended, so that another call of it may begin.
    pub fn done(&mut self, connection: u64) {
        if let Some(queue) = self.by_connection.get_mut(&connection) {
            queue.running = queue.running.saturating_sub(1);
            if queue.running == 0 && queue.waiting.is_empty() {
                self.by_connection.remove(&connection);
            }
        }
        self.make_ready(connection);
    }

    /// Takes the calls of a connection that have not begun.
    pub fn withdraw(&mut self, connection: u64) -> VecDeque<Task> {
        let queue = self.by_connection.get_mut(&connection);
        let mut back = queue.map(|queue| std::mem::take(&mut queue.waiting)).unwrap_or_default();
        // No running call is left that would remove the queue when it ends.
        if self.by_connection.get(&connection).is_some_and(|queue| queue.running == 0) {
            self.by_connection.remove(&connection);
        }
        back.extend(self.deferred.extract_if(.., |task| task.client.id == connection));
        back
    }

    /// Takes all calls that have not begun.
    pub fn clear(&mut self) -> Vec<Task> {
        self.ready.clear();
        let waiting = self.by_connection.drain().flat_map(|(_, queue)| queue.waiting);
        waiting.chain(std::mem::take(&mut self.deferred)).collect()
    }

    fn make_ready(&mut self, connection: u64) {
        if let Some(queue) = self.by_connection.get_mut(&connection)
            && !queue.is_ready
            && !queue.waiting.is_empty()
            && queue.running < self.workers_per_connection
        {
            queue.is_ready = true;
            self.ready.push_back(connection);
        }
    }
}
