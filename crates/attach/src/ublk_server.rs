//! A disk as a block device of the kernel, by its driver ublk.
//!
//! One thread has the queue of the device: it takes the data of writes from the driver and submits
//! what is asked for. Another one gives the data of reads to the driver, from the memory into which
//! they were received, and hands the completions over.

use crate::disk::{Disk, Operation, Outcome};
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use ublk::{Description, Device, Error, Handle, Kind, Queue, Request};
use xxhash_rust::xxh3::xxh3_64;

/// A device that is served. When it is dropped, what the kernel has of it in memory is written, and
/// it is removed.
#[derive(Debug)]
pub struct UblkServer {
    device: Device,
    handle: Option<Handle>,
    threads: Vec<JoinHandle<()>>,
}

impl UblkServer {
    /// Begins to serve a disk; the device is there when this returns. `identity` says which disk it
    /// is: what a killed server has left is taken over if it is of the same disk.
    ///
    /// # Errors
    /// [`Error`].
    pub fn start<D: Disk>(mut device: Device, identity: &str, disk: D) -> Result<Self, Error> {
        let (queue, handle) = device.open(&description(&disk, identity))?;
        let mut server = Self { device, handle: None, threads: Vec::new() };
        let started = server
            .start_threads(queue, handle, disk)
            .map_err(|error| Error::System(format!("serve {}", server.device.path().display()), error));
        if let Err(error) = started.and_then(|()| server.device.start()) {
            server.end_threads();
            server.device.remove();
            // There is nothing to stop.
            server.handle = None;
            return Err(error);
        }
        Ok(server)
    }

    fn start_threads<D: Disk>(&mut self, mut queue: Queue, handle: Handle, disk: D) -> io::Result<()> {
        self.handle = Some(handle.clone());
        let (completed, completions) = channel();
        let replier = handle.clone();
        let builder = std::thread::Builder::new().name("ublk-reply".to_owned());
        self.threads.push(builder.spawn(move || reply_all::<D>(&replier, &completions))?);
        let (fetched, outcome) = channel();
        let builder = std::thread::Builder::new().name("ublk".to_owned());
        self.threads.push(builder.spawn(move || {
            let is_fetched = queue.fetch();
            let is_well = is_fetched.is_ok();
            // The server waits for it.
            let _ = fetched.send(is_fetched);
            if is_well {
                receive_all(&disk, queue, &handle, &completed);
            }
        })?);
        // Without an answer the thread has panicked.
        outcome.recv().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
    }

    fn end_threads(&mut self) {
        if let Some(handle) = self.handle.take() {
            handle.end();
        }
        for thread in self.threads.drain(..) {
            // It has ended also if it panicked.
            let _ = thread.join();
        }
    }
}

impl Drop for UblkServer {
    fn drop(&mut self) {
        if self.handle.is_some() {
            self.device.stop();
            self.end_threads();
            self.device.remove();
        }
    }
}

/// What the kernel is told of a disk.
fn description<D: Disk>(disk: &D, identity: &str) -> Description {
    let export = disk.export();
    let description = Description {
        bytes: export.bytes,
        block_bytes: export.block_min,
        preferred_bytes: export.block_preferred,
        read_only: export.features.read_only,
        discard: export.features.trim,
        write_zeroes: export.features.write_zeroes,
        volatile_cache: disk.has_volatile_cache(),
        reissue: disk.may_repeat(),
        identity: 0,
    };
    // All that a device keeps for as long as it is there belongs to what it is.
    Description { identity: xxh3_64(format!("{identity} {description:?}").as_bytes()), ..description }
}

/// Receives requests until the device is stopped.
fn receive_all<D: Disk>(disk: &D, mut queue: Queue, handle: &Handle, completed: &Sender<D::Completion>) {
    let mut requests = Vec::new();
    loop {
        let goes_on = match queue.next(&mut requests) {
            Ok(goes_on) => goes_on,
            Err(error) => {
                // The kernel takes the end of this thread for that of the server: requests wait.
                tracing::error!(%error, "the device is not served any more");
                false
            }
        };
        for request in requests.drain(..) {
            match operation(&request, handle) {
                Ok(operation) => disk.submit(operation, request.tag.into(), completed),
                Err(errno) => handle.complete(request.tag, Err(errno)),
            }
        }
        if !goes_on {
            return;
        }
    }
}

/// What a request asks of a disk, or why it cannot.
fn operation(request: &Request, handle: &Handle) -> Result<Operation, i32> {
    let Request { kind, offset, bytes, .. } = *request;
    Ok(match kind {
        Kind::Read => {
            let bytes = usize::try_from(bytes).map_err(|_| nbd::Errno::Invalid as i32)?;
            Operation::Read { offset, bytes }
        }
        Kind::Write { durable } => {
            let data = handle.take_data(request).map_err(|error| {
                tracing::warn!(%error, offset, bytes, "cannot take the data of a write");
                nbd::Errno::Io as i32
            })?;
            Operation::Write { offset, data, durable }
        }
        Kind::Flush => Operation::Flush,
        Kind::Discard => Operation::Trim { offset, bytes },
        Kind::WriteZeroes { durable, may_deallocate } => {
            Operation::WriteZeroes { offset, bytes, durable, may_deallocate }
        }
        Kind::Other => return Err(nbd::Errno::Unsupported as i32),
    })
}

/// Completes requests until the last one has ended and no more come.
fn reply_all<D: Disk>(handle: &Handle, completions: &Receiver<D::Completion>) {
    for completion in completions {
        let Outcome { cookie, result } = D::outcome(completion);
        let Ok(tag) = u16::try_from(cookie) else { continue };
        let outcome = match result {
            Ok(data) if data.is_empty() => Ok(0),
            Ok(data) => handle.give_data(tag, &data).map(|()| data.len()).map_err(|error| {
                tracing::warn!(%error, "cannot give the data of a read");
                nbd::Errno::Io as i32
            }),
            Err((errno, text)) => {
                tracing::warn!(error = text, "a request failed");
                // The numbers of the protocol NBD are those of Linux.
                Err(errno as i32)
            }
        };
        handle.complete(tag, outcome);
    }
}
