//! Metadata under load: tasks on the loops of a mount that keep a number of calls in flight.

use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use client::{Done, Io, Mount, Op, Protocol, Task};
use fs::{CreateMode, FileHandle, SetAttributes};
use record::Latency;

/// How long after the end of the measured time the answers are awaited.
const REPLY_TIMEOUT: Duration = Duration::from_secs(60);

/// The calls that a task repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// LOOKUP of one name in the directory.
    Lookup,
    /// GETATTR of the directory.
    GetAttr,
    /// CREATE and REMOVE of one name for each call in flight, alternating.
    CreateRemove,
    /// CREATE of this number of names, each once.
    Fill(u32),
}

/// The name that LOOKUP looks up.
pub const LOOKUP_NAME: &[u8] = b"looked-up";

/// The result of a run.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Calls answered within the measured time.
    pub calls: u64,
    /// Their latencies.
    pub latency: Latency,
    error: Option<String>,
}

struct Calls {
    kind: Kind,
    protocol: Protocol,
    directory: FileHandle,
    /// The index of this task and the number of tasks.
    part: (usize, usize),
    depth: usize,
    warm: Duration,
    end: Duration,
    began: Duration,
    /// Whether the name of each slot exists.
    name_exists: Vec<bool>,
    issued: u32,
    in_flight: usize,
    outcome: Option<Outcome>,
    report: Sender<Outcome>,
}

impl Calls {
    /// Returns the next call of a slot; `None` if all names have been created.
    fn next(&mut self, slot: usize) -> Option<Op> {
        let (part, parts) = self.part;
        let (protocol, directory) = (self.protocol, self.directory);
        let mode = CreateMode::Unchecked(SetAttributes::mode(0o644));
        let op = match self.kind {
            Kind::Lookup => protocol.lookup(directory, LOOKUP_NAME).into(),
            Kind::GetAttr => protocol.getattr(directory).into(),
            Kind::CreateRemove => {
                let name = format!("made-{part}-{slot}");
                let name = name.as_bytes();
                match self.name_exists.get(slot).copied().unwrap_or_default() {
                    false => protocol.create(directory, name, mode).into(),
                    true => protocol.remove(directory, name).into(),
                }
            }
            Kind::Fill(names) => {
                let number = self.issued * u32::try_from(parts).ok()? + u32::try_from(part).ok()?;
                if number >= names {
                    return None;
                }
                let name = format!("name-{number:06}");
                protocol.create(directory, name.as_bytes(), mode).into()
            }
        };
        self.issued += 1;
        Some(op)
    }

    fn submit(&mut self, io: &mut Io<'_>, slot: usize) {
        if let Some(op) = self.next(slot) {
            self.in_flight += 1;
            io.submit(op, slot as u64);
        }
    }

    fn account(&mut self, since: Duration, slot: usize, done: &Done) {
        let Some(outcome) = &mut self.outcome else { return };
        if let Err(error) = &done.result {
            outcome.error.get_or_insert(error.to_string());
            return;
        }
        if let Some(name_exists) = self.name_exists.get_mut(slot) {
            *name_exists = !*name_exists;
        }
        if since >= self.warm && since < self.end {
            outcome.calls += 1;
            outcome.latency.record_ns(u64::try_from(done.latency.as_nanos()).unwrap_or(u64::MAX));
        }
    }

    fn failed(&self) -> bool {
        self.outcome.as_ref().is_none_or(|outcome| outcome.error.is_some())
    }

    fn report_if_done(&mut self) {
        if self.in_flight == 0
            && let Some(outcome) = self.outcome.take()
        {
            // The receiver may have given up.
            let _ = self.report.send(outcome);
        }
    }
}

impl Task for Calls {
    fn start(&mut self, io: &mut Io<'_>) {
        self.began = io.now();
        (0..self.depth).for_each(|slot| self.submit(io, slot));
        self.report_if_done();
    }

    fn finished(&mut self, io: &mut Io<'_>, token: u64, done: Done) {
        let since = io.now().saturating_sub(self.began);
        self.in_flight -= 1;
        let slot = usize::try_from(token).unwrap_or(usize::MAX);
        self.account(since, slot, &done);
        // A name that was created is removed even after the end.
        let must_remove =
            self.kind == Kind::CreateRemove && self.name_exists.get(slot).copied().unwrap_or_default();
        if !self.failed() && (since < self.end || must_remove) {
            self.submit(io, slot);
        }
        self.report_if_done();
    }

    fn ended(&self) -> bool {
        self.outcome.is_none()
    }
}

/// Keeps `depth` calls in flight over all loops, and counts those answered between `warm` and
/// `end`.
///
/// # Errors
/// The error of the first call that failed.
pub fn run(
    mount: &Mount,
    directory: FileHandle,
    kind: Kind,
    depth: usize,
    (warm, end): (Duration, Duration),
) -> Result<Outcome, String> {
    let (report, reports) = channel();
    let parts = mount.loops().max(1);
    for part in 0..parts {
        let depth = (depth + part) / parts;
        let calls = Calls {
            kind,
            protocol: mount.protocol(),
            directory,
            part: (part, parts),
            depth,
            warm,
            end,
            began: Duration::ZERO,
            name_exists: vec![false; depth],
            issued: 0,
            in_flight: 0,
            outcome: Some(Outcome::default()),
            report: report.clone(),
        };
        mount.spawn(part, Box::new(calls));
    }
    drop(report);
    let until = Instant::now() + end.min(REPLY_TIMEOUT * 10) + REPLY_TIMEOUT;
    let mut sum = Outcome::default();
    for _ in 0..parts {
        let left = until.saturating_duration_since(Instant::now());
        let outcome = reports.recv_timeout(left).map_err(|_| "calls were not answered".to_owned())?;
        if let Some(error) = outcome.error {
            return Err(error);
        }
        sum.calls += outcome.calls;
        sum.latency.merge(&outcome.latency);
    }
    Ok(sum)
}

/// Creates `names` files in a directory.
///
/// # Errors
/// The error of the first call that failed.
pub fn fill(mount: &Mount, directory: FileHandle, names: u32) -> Result<(), String> {
    run(mount, directory, Kind::Fill(names), 64, (Duration::ZERO, Duration::MAX)).map(drop)
}
