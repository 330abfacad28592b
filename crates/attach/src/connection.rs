//! One connection: the handshake, then requests and replies.

use crate::disk::{Disk, Operation, Outcome};
use nbd::{Command, Errno, Export, HEADER_BYTES, Handshake, Header, Kind, Progress, Violation, reply};
use slab::Slab;
use std::io::{BufReader, Error, ErrorKind, IoSlice, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Requests of a connection that may be under way; more wait in the socket.
const REQUESTS_MAX: usize = 256;

/// Bytes that they may read and write; one request may always be.
const BYTES_MAX: u64 = 64 << 20;

/// The longest message of a handshake that is received, with room to spare.
const HANDSHAKE_BYTES_MAX: usize = 128 << 10;

/// A request that is under way.
#[derive(Debug, Clone, Copy)]
struct Pending {
    cookie: u64,
    is_read: bool,
    offset: u64,
    bytes: u64,
}

/// What both threads of a connection have in common.
#[derive(Debug)]
struct Common {
    stream: Mutex<UnixStream>,
    pending: Mutex<(Slab<Pending>, u64)>,
    ended: Condvar,
    structured: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn violation(violation: Violation) -> Error {
    Error::new(ErrorKind::InvalidData, violation)
}

/// Serves a connection until it ends.
pub(crate) fn serve<D: Disk>(disk: &Arc<D>, mut stream: UnixStream) -> std::io::Result<()> {
    let exports = [disk.export()];
    let Some(structured) = negotiate(&exports, &mut stream)? else { return Ok(()) };
    let common = Arc::new(Common {
        stream: Mutex::new(stream.try_clone()?),
        pending: Mutex::new((Slab::new(), 0)),
        ended: Condvar::new(),
        structured,
    });
    let (completed, completions) = channel();
    let replier = Arc::clone(&common);
    let builder = std::thread::Builder::new().name("nbd-reply".to_owned());
    let thread = builder.spawn(move || reply_all::<D>(&replier, &completions))?;
    let [export] = &exports;
    let outcome = receive_all(disk.as_ref(), export, &common, stream, completed);
    // What is under way is finished, and replied to if the client still listens.
    let _ = thread.join();
    outcome
}

/// The handshake. Returns whether replies are structured, or `None` if the client has ended it.
fn negotiate(exports: &[Export], stream: &mut UnixStream) -> std::io::Result<Option<bool>> {
    let mut out = Vec::new();
    let mut handshake = Handshake::new(exports, &mut out);
    let mut received = Vec::new();
    loop {
        stream.write_all(&out)?;
        out.clear();
        // Exactly as much as is needed: what follows belongs to others.
        match handshake.handle(&received, &mut out).map_err(violation)? {
            Progress::Needs(bytes) => {
                let start = received.len();
                received.resize(bytes.min(HANDSHAKE_BYTES_MAX), 0);
                let room = received.get_mut(start..).unwrap_or_default();
                match stream.read_exact(room) {
                    Err(error) if start == 0 && error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
                    other => other?,
                }
            }
            Progress::Took(bytes) => drop(received.drain(..bytes.min(received.len()))),
            Progress::Begins { structured, .. } => {
                stream.write_all(&out)?;
                return Ok(Some(structured));
            }
            Progress::Aborted => {
                // Who has left already does not read it.
                let _ = stream.write_all(&out);
                return Ok(None);
            }
        }
    }
}

fn receive_all<D: Disk>(
    disk: &D,
    export: &Export,
    common: &Common,
    stream: UnixStream,
    completed: Sender<D::Completion>,
) -> std::io::Result<()> {
    let mut stream = BufReader::with_capacity(16 << 10, stream);
    let mut head = [0; HEADER_BYTES];
    loop {
        match stream.read_exact(&mut head) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(()),
            other => other?,
        }
        let header = Header::decode(&head).map_err(violation)?;
        if header.kind == Kind::Disconnect {
            return Ok(());
        }
        let command = match export.check(&header, common.structured) {
            Ok(command) => command,
            Err(errno) => {
                let payload = u64::from(header.payload_bytes());
                std::io::copy(&mut stream.by_ref().take(payload), &mut std::io::sink())?;
                common.refuse(&header, errno, "the request is not valid for this disk")?;
                continue;
            }
        };
        if matches!(command, Command::Trim { bytes: 0, .. }) {
            common.succeed(&header)?;
            continue;
        }
        let cookie = common.begin(&header);
        let data = match command {
            Command::Write { .. } => {
                let mut data = Vec::with_capacity(header.bytes as usize);
                // Into room that was not zeroed before, from the socket directly where it is long.
                stream.by_ref().take(header.bytes.into()).read_to_end(&mut data)?;
                if data.len() < header.bytes as usize {
                    return Ok(());
                }
                data
            }
            _ => Vec::new(),
        };
        let operation = match operation(command, &header, data) {
            Ok(operation) => operation,
            // There is no TRIM that is durable: it is followed by a flush.
            Err(trim) => {
                let (reply, outcome) = channel();
                disk.submit(trim, 0, &reply);
                drop(reply);
                let outcome = outcome.recv().map(D::outcome).map(|outcome| outcome.result);
                if let Ok(Err((errno, text))) = outcome {
                    common.end(cookie);
                    common.refuse(&header, errno, &text)?;
                    continue;
                }
                Operation::Flush
            }
        };
        disk.submit(operation, cookie, &completed);
    }
}

/// What a command asks of a disk; `Err` for a trim that is to be durable.
fn operation(command: Command, header: &Header, data: Vec<u8>) -> Result<Operation, Operation> {
    let (offset, bytes) = (header.offset, u64::from(header.bytes));
    Ok(match command {
        Command::Read => Operation::Read { offset, bytes: header.bytes as usize },
        Command::Write { durable } => Operation::Write { offset, data, durable },
        Command::Flush => Operation::Flush,
        Command::Trim { durable, offset, bytes } => {
            let trim = Operation::Trim { offset, bytes: bytes.into() };
            return if durable { Err(trim) } else { Ok(trim) };
        }
        Command::WriteZeroes { durable, may_deallocate } => {
            Operation::WriteZeroes { offset, bytes, durable, may_deallocate }
        }
    })
}

/// Replies until the last request has ended and no more come.
fn reply_all<D: Disk>(common: &Common, completions: &Receiver<D::Completion>) {
    let mut head = Vec::new();
    let mut is_broken = false;
    for completion in completions {
        let Outcome { cookie, result } = D::outcome(completion);
        let Some(pending) = common.end(cookie) else { continue };
        if is_broken {
            continue;
        }
        head.clear();
        let data = match result {
            Ok(data) => {
                if pending.is_read {
                    let bytes = u32::try_from(data.len()).unwrap_or(u32::MAX);
                    reply::data(pending.cookie, pending.offset, bytes, common.structured, &mut head);
                } else {
                    reply::success(pending.cookie, &mut head);
                }
                data
            }
            Err((errno, text)) => {
                tracing::warn!(
                    error = text,
                    offset = pending.offset,
                    bytes = pending.bytes,
                    "a request failed"
                );
                let structured = common.structured && pending.is_read;
                reply::failure(pending.cookie, errno, structured, &text, &mut head);
                Vec::new()
            }
        };
        is_broken = common.send(&head, &data).is_err();
    }
}

impl Common {
    /// Waits for room, and notes a request.
    fn begin(&self, header: &Header) -> u64 {
        let moves = matches!(header.kind, Kind::Read | Kind::Write);
        let bytes = if moves { u64::from(header.bytes) } else { 0 };
        let is_full = |pending: &mut (Slab<Pending>, u64)| {
            let (requests, under_way) = pending;
            requests.len() >= REQUESTS_MAX || (*under_way > 0 && *under_way + bytes > BYTES_MAX)
        };
        let pending = lock(&self.pending);
        let mut pending = self.ended.wait_while(pending, is_full).unwrap_or_else(PoisonError::into_inner);
        pending.1 += bytes;
        let is_read = header.kind == Kind::Read;
        let request = Pending { cookie: header.cookie, is_read, offset: header.offset, bytes };
        pending.0.insert(request) as u64
    }

    /// A request has ended.
    fn end(&self, cookie: u64) -> Option<Pending> {
        let mut pending = lock(&self.pending);
        let ended = pending.0.try_remove(usize::try_from(cookie).ok()?)?;
        pending.1 -= ended.bytes;
        drop(pending);
        self.ended.notify_one();
        Some(ended)
    }

    /// Replies to a request that has nothing to do.
    fn succeed(&self, header: &Header) -> std::io::Result<()> {
        let mut out = Vec::new();
        reply::success(header.cookie, &mut out);
        self.send(&out, &[])
    }

    fn refuse(&self, header: &Header, errno: Errno, text: &str) -> std::io::Result<()> {
        let structured = self.structured && header.kind == Kind::Read;
        let mut out = Vec::new();
        reply::failure(header.cookie, errno, structured, text, &mut out);
        self.send(&out, &[])
    }

    fn send(&self, head: &[u8], data: &[u8]) -> std::io::Result<()> {
        let mut stream = lock(&self.stream);
        let sent = loop {
            match stream.write_vectored(&[IoSlice::new(head), IoSlice::new(data)]) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                other => break other?,
            }
        };
        stream.write_all(head.get(sent..).unwrap_or_default())?;
        stream.write_all(data.get(sent.saturating_sub(head.len())..).unwrap_or_default())
    }
}
