//! A walk of a tree with many threads. Each lists directories, and hands those below to the others
//! as long as the queue has room; otherwise it descends by itself.

use super::{Entry, Failure, Node};
use client::{Mount, Pages};
use fs::FileKind;
use std::collections::VecDeque;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// The number of threads, each with one call in flight and a page requested ahead.
const THREADS: usize = 16;
/// The maximum number of jobs that wait for a thread.
const QUEUE_MAX: usize = 256;
/// The number of files in one job.
const BATCH_FILES: usize = 16;

/// What to do after a directory was left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaveOutcome {
    /// The directory is finished.
    Finished,
    /// The directory could not be finished; it counts as a failure.
    Failed,
    /// The directory is listed again.
    ListAgain,
}

/// What a walk does with a tree. Methods are called by all threads.
pub trait Visitor: Sync {
    /// What a directory holds for the visitor.
    type Data: Default + Send + Sync;
    /// Whether the visitor makes calls for files, so that other threads should help.
    const CALLS_FOR_FILES: bool;
    /// Files and everything else but directories, in this directory. Returns whether all went well.
    fn files(&self, directory: &Node<Self::Data>, entries: &[Entry]) -> bool;
    /// Everything in the directory was visited. `is_complete` says that nothing failed.
    fn leave(&self, directory: &Node<Self::Data>, is_complete: bool) -> LeaveOutcome;
    /// A part of the tree was left out.
    fn fail(&self, path: &[u8], failure: Failure);
}

type NodeRef<V> = Arc<Node<<V as Visitor>::Data>>;

enum Job<V: Visitor> {
    Directory(NodeRef<V>),
    Files(NodeRef<V>, Vec<Entry>),
}

struct Queue<V: Visitor> {
    jobs: VecDeque<Job<V>>,
    /// Jobs that wait or are being done.
    unfinished: usize,
}

struct Walk<'a, V: Visitor> {
    mount: &'a Mount,
    visitor: &'a V,
    queue: Mutex<Queue<V>>,
    changed: Condvar,
}

/// Visits a directory and everything below it.
pub fn walk<V: Visitor>(mount: &Mount, root: NodeRef<V>, visitor: &V) -> std::io::Result<()> {
    let queue = Queue { jobs: VecDeque::from([Job::Directory(root)]), unfinished: 1 };
    let walk = Walk { mount, visitor, queue: Mutex::new(queue), changed: Condvar::new() };
    std::thread::scope(|scope| {
        let started = (0..THREADS).map(|_| {
            std::thread::Builder::new().name("tl-walk".to_owned()).spawn_scoped(scope, || walk.run_worker())
        });
        // One thread is enough to finish.
        let started: Vec<_> = started.collect();
        if started.iter().any(Result::is_ok) {
            Ok(())
        } else {
            started.into_iter().find_map(Result::err).map_or(Ok(()), Err)
        }
    })
}

impl<V: Visitor> Walk<'_, V> {
    fn lock(&self) -> std::sync::MutexGuard<'_, Queue<V>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run_worker(&self) {
        loop {
            let mut queue = self.lock();
            let job = loop {
                if let Some(job) = queue.jobs.pop_front() {
                    break job;
                }
                if queue.unfinished == 0 {
                    return;
                }
                queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
            };
            drop(queue);
            match job {
                Job::Directory(node) => self.descend(node),
                Job::Files(node, entries) => self.files(&node, &entries),
            }
            let mut queue = self.lock();
            queue.unfinished -= 1;
            if queue.unfinished == 0 {
                self.changed.notify_all();
            }
        }
    }

    /// Queues a job, or returns it if the queue is full.
    fn try_enqueue(&self, job: Job<V>) -> Option<Job<V>> {
        let mut queue = self.lock();
        if queue.jobs.len() >= QUEUE_MAX {
            return Some(job);
        }
        queue.jobs.push_back(job);
        queue.unfinished += 1;
        self.changed.notify_one();
        None
    }

    /// Lists a directory, and those below it that no other thread takes.
    fn descend(&self, root: NodeRef<V>) {
        let mut levels = vec![self.level(root)];
        while let Some(level) = levels.last_mut() {
            if let Some(entry) = level.directories.pop_front() {
                match level.node.child(&entry) {
                    Err(failure) => {
                        level.node.failed.store(true, SeqCst);
                        self.visitor.fail(&level.node.path_of(&entry.name), failure);
                    }
                    Ok(child) => {
                        level.node.unfinished.fetch_add(1, SeqCst);
                        if let Some(Job::Directory(child)) = self.try_enqueue(Job::Directory(child)) {
                            levels.push(self.level(child));
                        }
                    }
                }
                continue;
            }
            match level.pages.next() {
                Some(page) => self.page(level, page),
                None => {
                    let node = Arc::clone(&level.node);
                    levels.pop();
                    self.part_finished(node);
                }
            }
        }
    }

    fn level(&self, node: NodeRef<V>) -> Level<V> {
        Level { pages: self.mount.pages(node.handle), directories: VecDeque::new(), node }
    }

    /// Passes the files of a page on, and keeps its directories.
    fn page(&self, level: &mut Level<V>, page: client::Result<Vec<fs::DirectoryEntry>>) {
        let fail = |path: &[u8], error| {
            level.node.failed.store(true, SeqCst);
            self.visitor.fail(path, Failure::Remote(error));
        };
        let page = match page {
            Ok(page) => page,
            // The listing ends with this error.
            Err(error) => return fail(&level.node.path(), error),
        };
        let mut files = Vec::new();
        for found in page {
            let name = found.name.clone();
            match Entry::complete(self.mount, level.node.handle, found) {
                Ok(Some(entry)) if entry.attributes.kind == FileKind::Directory => {
                    level.directories.push_back(entry);
                }
                Ok(Some(entry)) => files.push(entry),
                Ok(None) => {}
                Err(error) => fail(&level.node.path_of(&name), error),
            }
        }
        while !files.is_empty() {
            let rest = files.split_off(files.len().min(BATCH_FILES));
            let batch = std::mem::replace(&mut files, rest);
            level.node.unfinished.fetch_add(1, SeqCst);
            let job = Job::Files(Arc::clone(&level.node), batch);
            let job = if V::CALLS_FOR_FILES { self.try_enqueue(job) } else { Some(job) };
            if let Some(Job::Files(node, batch)) = job {
                self.files(&node, &batch);
            }
        }
    }

    fn files(&self, node: &NodeRef<V>, entries: &[Entry]) {
        if !self.visitor.files(node, entries) {
            node.failed.store(true, SeqCst);
        }
        self.part_finished(Arc::clone(node));
    }

    /// A part of a directory is finished. The last part finishes the directory.
    fn part_finished(&self, node: NodeRef<V>) {
        let mut at = node;
        while at.unfinished.fetch_sub(1, SeqCst) == 1 {
            let is_complete = !at.failed.load(SeqCst);
            match self.visitor.leave(&at, is_complete) {
                LeaveOutcome::Finished if is_complete => {}
                LeaveOutcome::ListAgain => {
                    at.unfinished.store(1, SeqCst);
                    let mut queue = self.lock();
                    queue.jobs.push_back(Job::Directory(at));
                    queue.unfinished += 1;
                    self.changed.notify_one();
                    return;
                }
                LeaveOutcome::Finished | LeaveOutcome::Failed => {
                    if let Some(parent) = &at.parent {
                        parent.failed.store(true, SeqCst);
                    }
                }
            }
            let Some(parent) = at.parent.clone() else { return };
            at = parent;
        }
    }
}

/// A directory that is being listed.
struct Level<V: Visitor> {
    node: NodeRef<V>,
    pages: Pages,
    /// Those of the current page that were not entered yet.
    directories: VecDeque<Entry>,
}
