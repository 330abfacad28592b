//! The queue of one thread: operations go in, completions come out, and nothing waits.

use crate::disk::Disk;
use crate::drive::{Backend, Drive};
use crate::mem::Memory;
use crate::operation::{Completion, Fault, Operation, Refusal, Rejected, check};
use crate::payload::{Payload, buffers_for, chunks_for};
use crate::ring::Ring;
use crate::waker::{Mailbox, Waker};
use memory::{Buffer, Buffers};
use smallvec::SmallVec;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// The most operations that a queue may be made for: its memory is bounded by that of their
/// payloads.
pub const QUEUE_DEPTH_MAX: usize = 4096;
/// The memory drive clears no more than this at once on the thread of a queue; a worker clears
/// more.
const CLEARED_BYTES_MAX: u64 = 1 << 20;

/// How a queue is to execute operations of files and devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// With io_uring where the system permits it, otherwise with workers.
    Automatic,
    /// With workers.
    Workers,
}

/// How a queue executes operations of files and devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Engine {
    /// The kernel executes them (io_uring).
    Ring,
    /// Threads execute them.
    Workers {
        /// Why not the kernel.
        why: String,
    },
}

/// Takes operations for drives and gives their completions, for one thread.
///
/// After operations were [submitted](Self::submit), [`kick`](Self::kick) hands them to the kernel,
/// all with one system call. Then [`reap`](Self::reap) gives what has completed already; for the
/// rest the [descriptor](AsFd) becomes readable, level-triggered. A wait for it may also end with
/// `EINTR`, because the kernel completes operations in the thread that submitted them.
///
/// Dropping a queue waits a few seconds for what the kernel still executes, and abandons its memory
/// if that takes longer.
#[derive(Debug)]
pub struct Queue {
    depth: usize,
    in_flight: usize,
    // Before the mailbox, which its poll refers to.
    ring: Option<Ring>,
    mailbox: Arc<Mailbox>,
    engine: Engine,
    ready: Vec<Completion>,
    buffers: Arc<Buffers>,
}

impl Queue {
    /// A queue for `depth` operations, at least one and at most [`QUEUE_DEPTH_MAX`]. What is read
    /// comes in buffers of the pool.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub fn new(depth: usize, choice: Choice, buffers: Arc<Buffers>) -> io::Result<Self> {
        let depth = depth.clamp(1, QUEUE_DEPTH_MAX);
        let mailbox = Arc::new(Mailbox::new()?);
        let ring = match choice {
            Choice::Automatic => Ring::new(depth, &mailbox).map_err(|error| error.to_string()),
            Choice::Workers => Err("workers were asked for".to_owned()),
        };
        let (ring, engine) = match ring {
            Ok(ring) => (Some(ring), Engine::Ring),
            Err(why) => (None, Engine::Workers { why }),
        };
        Ok(Self { depth, in_flight: 0, ring, mailbox, engine, ready: Vec::new(), buffers })
    }

    /// How operations of files and devices are executed.
    #[must_use]
    pub const fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Operations that were submitted and not reaped.
    #[must_use]
    pub const fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Operations that may be in flight.
    #[must_use]
    pub const fn depth(&self) -> usize {
        self.depth
    }

    /// The pool that reads take their buffers from.
    #[must_use]
    pub const fn buffers(&self) -> &Arc<Buffers> {
        &self.buffers
    }

    /// Buffers of unspecified content to receive what will be written to this place: written from
    /// them, the bytes are not copied in memory again, but for the ends of a range that the memory
    /// drive keeps in part of a chunk.
    #[must_use]
    pub fn receive_buffers(&self, drive: &Drive, at: u64, bytes: usize) -> SmallVec<[Buffer; 1]> {
        match drive.backend() {
            Backend::Memory(_) => chunks_for(at, bytes, &self.buffers),
            _ => buffers_for(bytes, &self.buffers)
                .into_iter()
                .filter_map(|one| one.into_whole().ok())
                .collect(),
        }
    }

    /// Wakes the thread of this queue from others.
    #[must_use]
    pub fn waker(&self) -> Waker {
        Waker(Arc::clone(&self.mailbox))
    }

    /// Takes an operation, which ends with a [`Completion`] of this tag.
    ///
    /// # Errors
    /// The operation was not taken, and nothing was done. It comes back.
    pub fn submit(&mut self, drive: &Drive, tag: u64, operation: Operation) -> Result<(), Box<Rejected>> {
        let info = drive.info();
        let why = match check(&operation, info.bytes, info.block_bytes) {
            Ok(()) if self.in_flight >= self.depth => Refusal::Full,
            Ok(()) => {
                self.in_flight += 1;
                self.begin(drive, tag, operation);
                return Ok(());
            }
            Err(why) => why,
        };
        Err(Box::new(Rejected { operation, why }))
    }

    /// Hands what was submitted to the kernel. Returns whether there are completions already.
    ///
    /// # Errors
    /// The kernel refuses operations altogether; the queue is of no use any more.
    pub fn kick(&mut self) -> io::Result<bool> {
        if let Some(ring) = &mut self.ring {
            ring.kick()?;
        }
        Ok(!self.ready.is_empty() || self.mailbox.is_signalled())
    }

    /// Appends the completions that there are.
    pub fn reap(&mut self, out: &mut Vec<Completion>) {
        let before = out.len();
        out.append(&mut self.ready);
        if let Some(ring) = &mut self.ring {
            ring.reap(out);
        }
        self.mailbox.take(out);
        if let Some(ring) = &mut self.ring {
            ring.go_on();
        }
        self.in_flight -= out.len() - before;
    }

    fn begin(&mut self, drive: &Drive, tag: u64, operation: Operation) {
        match drive.backend() {
            Backend::Memory(memory) => self.begin_in_memory(drive, memory, tag, operation),
            Backend::Disk(disk) => self.begin_on_disk(drive, disk, tag, operation),
            #[cfg(any(test, feature = "testing"))]
            Backend::Faulty(faulty) => faulty.begin(drive, tag, operation, &self.mailbox),
        }
    }

    fn begin_in_memory(&mut self, drive: &Drive, memory: &Arc<Memory>, tag: u64, operation: Operation) {
        let nothing = |()| Payload::new();
        let result = match operation {
            Operation::Read { at, bytes } => Ok(memory.read(at, bytes)),
            Operation::Write { at, payload, .. } => memory.write(at, payload).map(nothing),
            Operation::Flush => Ok(Payload::new()),
            Operation::Discard { bytes, .. } | Operation::Zero { bytes, .. } if bytes > CLEARED_BYTES_MAX => {
                let memory = Arc::clone(memory);
                return self.give(drive, tag, move |mailbox| {
                    mailbox.put(Completion { tag, result: clear(&memory, &operation).map(nothing) });
                });
            }
            Operation::Discard { .. } | Operation::Zero { .. } => clear(memory, &operation).map(nothing),
        };
        self.ready.push(Completion { tag, result });
    }

    fn begin_on_disk(&mut self, drive: &Drive, disk: &Arc<Disk>, tag: u64, operation: Operation) {
        let operation = match operation {
            Operation::Write { at, payload, durable } => {
                Operation::Write { at, payload: disk.aligned(payload, &self.buffers), durable }
            }
            other => other,
        };
        let operation = match &mut self.ring {
            Some(ring) => match ring.begin(disk, tag, operation, &self.buffers) {
                Ok(()) => return,
                // The kernel has no request for it, or waits for it in the thread that asks.
                Err(operation) => operation,
            },
            None => operation,
        };
        let payload = match operation {
            Operation::Read { bytes, .. } => buffers_for(bytes, &self.buffers),
            _ => Payload::new(),
        };
        let disk = Arc::clone(disk);
        self.give(drive, tag, move |mailbox| {
            let result = execute(&disk, operation, payload);
            // Before the completion is known: who closes the drive then has closed the file.
            drop(disk);
            mailbox.put(Completion { tag, result });
        });
    }

    /// Has a worker do something that ends with a completion.
    fn give(&mut self, drive: &Drive, tag: u64, work: impl FnOnce(&Mailbox) + Send + 'static) {
        let mailbox = Arc::clone(&self.mailbox);
        if drive.workers().give(Box::new(move || work(&mailbox))).is_err() {
            let result = Err(Fault::Io(rustix::io::Errno::AGAIN.raw_os_error()));
            self.ready.push(Completion { tag, result });
        }
    }
}

fn clear(memory: &Memory, operation: &Operation) -> Result<(), Fault> {
    match operation {
        Operation::Zero { at, bytes, deallocate, .. } => memory.zero(*at, *bytes, *deallocate),
        Operation::Discard { at, bytes } => memory.zero(*at, *bytes, true),
        Operation::Read { .. } | Operation::Write { .. } | Operation::Flush => Ok(()),
    }
}

/// Executes an operation and waits for it. `payload` has the buffers of a read.
fn execute(disk: &Disk, operation: Operation, mut payload: Payload) -> Result<Payload, Fault> {
    match operation {
        Operation::Read { at, .. } => disk.read(at, &mut payload)?,
        Operation::Write { at, payload, durable } => disk.write(at, &payload, durable)?,
        Operation::Flush => disk.flush()?,
        Operation::Zero { at, bytes, deallocate, durable } => disk.zero(at, bytes, deallocate, durable)?,
        Operation::Discard { at, bytes } => disk.discard(at, bytes)?,
    }
    Ok(payload)
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.ring {
            Some(ring) => ring.as_fd(),
            None => self.mailbox.as_fd(),
        }
    }
}
