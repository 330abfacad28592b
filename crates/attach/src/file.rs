//! A file of an NFS mount as a disk.
//!
//! Writes are stable when they end, and so are zeroes, so that Flush has nothing to do. The file's
//! size is that of when it was opened; what others do to the file meanwhile is theirs to know.
//!
//! TRIM makes holes, where the mount can: version 4.2, and a file system that has holes. Write
//! Zeroes makes holes too, or reserves storage where the client wants no holes; where neither can
//! be, it writes zeroes.

use crate::disk::{Disk, Operation, Outcome};
use client::{File, Mount};
use nbd::{Errno, Export, Features};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Operations under way at a time. Each is split over all connections of the mount.
const WORKERS: usize = 16;

/// The best size of requests: a small read-modify-write of a page cache.
const PREFERRED_BYTES: u32 = 4096;

/// Zeroes that are written at a time, over all connections of the mount.
const ZEROES_BYTES: usize = 4 << 20;

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

/// The file, and what can be done with it beside reading and writing.
#[derive(Debug)]
struct Backing {
    mount: Mount,
    file: File,
    /// Holes can be made.
    punches: bool,
    /// Storage was never refused to be reserved for zeroes.
    reserves: AtomicBool,
}

/// A file as a disk.
#[derive(Debug)]
pub struct FileDisk {
    name: String,
    bytes: u64,
    /// The mount is (`ro`).
    read_only: bool,
    punches: bool,
    tasks: Option<Sender<Task>>,
    workers: Vec<JoinHandle<()>>,
}

impl FileDisk {
    /// Opens a file of a mount; `name` is for people.
    ///
    /// # Errors
    /// [`FileError`].
    pub fn open(mount: &Mount, path: &[u8], name: &str) -> Result<Self, FileError> {
        let file = mount.open(path)?;
        let bytes = file.attributes()?.size;
        if bytes == 0 {
            return Err(FileError::Empty);
        }
        let read_only = mount.settings().read_only;
        let punches = !read_only && punches(mount, &file, bytes)?;
        let backing =
            Arc::new(Backing { mount: mount.clone(), file, punches, reserves: AtomicBool::new(true) });
        let (tasks, queue) = channel();
        let queue = Arc::new(Mutex::new(queue));
        let worker = |at| {
            let (backing, queue) = (Arc::clone(&backing), Arc::clone(&queue));
            std::thread::Builder::new().name(format!("disk-{at}")).spawn(move || work(&backing, &queue))
        };
        let workers = (0..WORKERS).map(worker).collect::<Result<_, _>>().map_err(FileError::Thread)?;
        Ok(Self { name: name.to_owned(), bytes, read_only, punches, tasks: Some(tasks), workers })
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
            features: Features { read_only: self.read_only, trim: self.punches, write_zeroes: true },
        }
    }

    fn has_volatile_cache(&self) -> bool {
        false
    }

    /// A server of files may still execute what a killed client has sent.
    fn may_repeat(&self) -> bool {
        false
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

/// Whether holes can be made in a file: one behind its end is asked for, which changes nothing.
fn punches(mount: &Mount, file: &File, bytes: u64) -> Result<bool, client::Error> {
    let behind = bytes..bytes.saturating_add(PREFERRED_BYTES.into());
    match mount.deallocate(file.handle(), behind) {
        Ok(()) => Ok(true),
        Err(client::Error::Status { .. } | client::Error::Declined { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

fn work(backing: &Backing, queue: &Mutex<Receiver<Task>>) {
    loop {
        let next = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Task { operation, cookie, reply }) = next else { return };
        let result = backing.execute(operation);
        // Who does not wait for it any more has no use for it.
        let _ = reply.send(Outcome { cookie, result });
    }
}

impl Backing {
    fn execute(&self, operation: Operation) -> Result<Vec<u8>, (Errno, String)> {
        match operation {
            Operation::Read { offset, bytes } => {
                let mut data = vec![0; bytes];
                let read = self.file.read_all_at(&mut data, offset).map_err(failed)?;
                if read < bytes {
                    return Err((Errno::Io, "the file has become shorter".to_owned()));
                }
                return Ok(data);
            }
            Operation::Write { offset, data, .. } => self.file.write_all_at(&data, offset).map_err(failed)?,
            Operation::Flush => {}
            Operation::WriteZeroes { offset, bytes, may_deallocate, .. } => {
                self.zero(offset..offset.saturating_add(bytes), may_deallocate).map_err(failed)?;
            }
            Operation::Trim { offset, bytes } if self.punches => {
                let range = offset..offset.saturating_add(bytes);
                self.mount.deallocate(self.file.handle(), range).map_err(failed)?;
            }
            // Not offered.
            Operation::Trim { .. } => {
                return Err((Errno::Unsupported, "not supported by this disk".to_owned()));
            }
        }
        Ok(Vec::new())
    }

    /// Makes a range zeroes that are stable.
    fn zero(&self, range: Range<u64>, may_deallocate: bool) -> client::Result<()> {
        let handle = self.file.handle();
        let outcome = if may_deallocate && self.punches {
            self.mount.deallocate_stably(handle, range.clone())
        } else if self.punches && self.reserves.load(Ordering::Relaxed) {
            let outcome = self.mount.zero_stably(handle, range.clone());
            if outcome.as_ref().is_err_and(is_unsupported) {
                self.reserves.store(false, Ordering::Relaxed);
            }
            outcome
        } else {
            return self.write_zeroes(range);
        };
        match outcome {
            Err(error) if is_unsupported(&error) => self.write_zeroes(range),
            other => other,
        }
    }

    fn write_zeroes(&self, range: Range<u64>) -> client::Result<()> {
        let zeroes = vec![0; ZEROES_BYTES];
        for start in range.clone().step_by(ZEROES_BYTES) {
            let bytes = usize::try_from(range.end - start).unwrap_or(usize::MAX).min(ZEROES_BYTES);
            self.file.write_all_at(zeroes.get(..bytes).unwrap_or_default(), start)?;
        }
        Ok(())
    }
}

/// Whether the server cannot do it for this file, as opposed to now.
fn is_unsupported(error: &client::Error) -> bool {
    matches!(error, client::Error::Declined { .. }) || error.status() == Some(fs::Status::NotSupported)
}

fn failed(error: client::Error) -> (Errno, String) {
    let errno = match error.status() {
        Some(fs::Status::NoSpace | fs::Status::Quota) => Errno::NoSpace,
        _ => Errno::Io,
    };
    (errno, error.to_string())
}
