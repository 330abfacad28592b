//! A file of an NFS mount as a disk.
//!
//! Writes are stable when they end, so that Flush has nothing to do. The file's size is that of
//! when it was opened; what others do to the file meanwhile is theirs to know.

use crate::disk::{Disk, Operation, Outcome};
use client::{File, Mount};
use nbd::{Errno, Export, Features};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Operations under way at a time. Each is split over all connections of the mount.
const WORKERS: usize = 16;

/// The best size of requests: a small read-modify-write of a page cache.
const PREFERRED_BYTES: u32 = 4096;

/// Why a file is no disk.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The server or the mount.
    #[error(transparent)]
    Client(#[from] client::Error),
    /// It has no bytes.
    #[error("the file is empty")]
    Empty,
    /// No thread.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
}

struct Task {
    operation: Operation,
    cookie: u64,
    reply: Sender<Outcome>,
}

/// A file as a disk.
#[derive(Debug)]
pub struct FileDisk {
    name: String,
    bytes: u64,
    tasks: Option<Sender<Task>>,
    workers: Vec<JoinHandle<()>>,
}

impl FileDisk {
    /// Opens a file of a mount; `name` is for people.
    ///
    /// # Errors
    /// [`FileError`].
    pub fn open(mount: &Mount, path: &[u8], name: &str) -> Result<Self, FileError> {
        let file = Arc::new(mount.open(path)?);
        let bytes = file.attributes()?.size;
        if bytes == 0 {
            return Err(FileError::Empty);
        }
        let (tasks, queue) = channel();
        let queue = Arc::new(Mutex::new(queue));
        let worker = |at| {
            let (file, queue) = (Arc::clone(&file), Arc::clone(&queue));
            std::thread::Builder::new().name(format!("disk-{at}")).spawn(move || work(&file, &queue))
        };
        let workers = (0..WORKERS).map(worker).collect::<Result<_, _>>().map_err(FileError::Thread)?;
        Ok(Self { name: name.to_owned(), bytes, tasks: Some(tasks), workers })
    }
}

impl Drop for FileDisk {
    fn drop(&mut self) {
        self.tasks = None;
        for worker in self.workers.drain(..) {
            // It has ended also if it panicked.
            let _ = worker.join();
        }
    }
}

impl Disk for FileDisk {
    type Completion = Outcome;

    fn export(&self) -> Export {
        Export {
            name: String::new(),
            description: self.name.clone(),
            bytes: self.bytes,
            block_min: 1,
            block_preferred: PREFERRED_BYTES,
            features: Features::default(),
        }
    }

    fn submit(&self, operation: Operation, cookie: u64, reply: &Sender<Outcome>) {
        if let Some(tasks) = &self.tasks {
            // The workers end after the last task.
            let _ = tasks.send(Task { operation, cookie, reply: reply.clone() });
        }
    }

    fn outcome(completion: Outcome) -> Outcome {
        completion
    }
}

fn work(file: &File, queue: &Mutex<Receiver<Task>>) {
    loop {
        let next = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Task { operation, cookie, reply }) = next else { return };
        let result = execute(file, operation);
        // Who does not wait for it any more has no use for it.
        let _ = reply.send(Outcome { cookie, result });
    }
}

fn execute(file: &File, operation: Operation) -> Result<Vec<u8>, (Errno, String)> {
    let failed = |error: client::Error| (Errno::Io, error.to_string());
    match operation {
        Operation::Read { offset, bytes } => {
            let mut data = vec![0; bytes];
            let read = file.read_all_at(&mut data, offset).map_err(failed)?;
            if read < bytes {
                return Err((Errno::Io, "the file has become shorter".to_owned()));
            }
            Ok(data)
        }
        Operation::Write { offset, data, .. } => {
            file.write_all_at(&data, offset).map_err(failed)?;
            Ok(Vec::new())
        }
        Operation::Flush => Ok(Vec::new()),
        // Not offered.
        Operation::WriteZeroes { .. } | Operation::Trim { .. } => {
            Err((Errno::Unsupported, "not supported by this disk".to_owned()))
        }
    }
}
