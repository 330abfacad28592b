//! Requests, their parts, and the path of each.

use super::path::Controller;
use super::{Engine, Slot};
use crate::error::{Error, Lost};
use crate::queue::{Payload, Slice};
use crate::request::{self, Completion, Operation, Part, Request};
use crate::shared::Shared;
use nvme::host::{Retry, retry};
use nvme::identify::OptionalCommands;
use nvme::log_page::AnaState;
use nvme::{Cqe, Status};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// The most data of a command, whatever the controller takes: more would make others wait.
pub(super) const TRANSFER_BYTES_MAX: u64 = 1 << 20;

/// The most blocks of a command that writes zeroes or moves data.
const BLOCKS_MAX: u64 = 1 << 16;

/// The most bytes of a command that deallocates.
const DEALLOCATE_BYTES_MAX: u64 = 1 << 30;

/// How often a command is sent again because the controller asked for it.
const RETRIES_MAX: u32 = 10;

/// After which time, at least.
const RETRY_DELAY: Duration = Duration::from_millis(20);

/// What a path or a queue that may be lost is worse by: a path that is not optimized is better.
const SUSPECT_RANK: u32 = 2;

/// Where a part goes.
enum Choice {
    Queue(usize),
    /// Paths are there, but their queues are full.
    Full,
    /// No path serves it now.
    Nowhere,
    /// No path ever will.
    Lost,
}

impl Engine {
    /// Whether a request can be executed at all.
    pub(super) fn check(&self, request: &Request) -> Result<(), Error> {
        let Some(namespace) = self.shared.namespace(request.nsid) else {
            return Err(Error::NoNamespace { nsid: request.nsid, present: self.shared.nsids() });
        };
        let (offset, bytes) = request.operation.range();
        let block = u64::from(namespace.block_bytes());
        let is_flush = matches!(request.operation, Operation::Flush);
        let is_within = offset.checked_add(bytes).is_some_and(|end| end <= namespace.bytes());
        let is_aligned = offset.is_multiple_of(block) && bytes.is_multiple_of(block);
        let is_sound = is_flush || (is_within && is_aligned && bytes > 0);
        if !is_sound {
            return Err(Error::OutOfRange { offset, bytes });
        }
        match request.operation {
            Operation::WriteZeroes { .. } if !namespace.write_zeroes => Err(Error::Unsupported),
            Operation::Deallocate { .. } if !namespace.deallocate => Err(Error::Unsupported),
            _ => Ok(()),
        }
    }

    /// Makes the parts of a request.
    pub(super) fn split(&mut self, at: usize) {
        let Some(request) = self.commands.requests.get_mut(at) else { return };
        let most = most_bytes(&self.shared, request, self.transfer_bytes);
        let (_, bytes) = request.operation.range();
        let (mut offset, mut parts) = (0, 0);
        while offset < bytes || parts == 0 {
            let bytes = most.min(bytes - offset);
            let (sent_at, not_before) = (Duration::ZERO, Duration::ZERO);
            let part = Part { request: at, offset, bytes, retries: 0, sent_at, not_before };
            self.waiting.push_back(self.commands.parts.insert(part));
            offset += bytes;
            parts += 1;
        }
        request.parts = parts;
    }

    /// Shortens a part that is more than a controller takes that was connected after the part was
    /// made; the rest is the next part that waits.
    fn shorten(&mut self, at: usize) {
        let Some(part) = self.commands.parts.get_mut(at) else { return };
        let Some(request) = self.commands.requests.get_mut(part.request) else { return };
        let most = most_bytes(&self.shared, request, self.transfer_bytes);
        if part.bytes <= most {
            return;
        }
        let rest = Part { offset: part.offset + most, bytes: part.bytes - most, ..*part };
        part.bytes = most;
        request.parts += 1;
        self.waiting.push_front(self.commands.parts.insert(rest));
    }

    /// Sends what waits, as far as there is room: what a queue gets now, with one system call.
    pub(super) fn dispatch(&mut self) {
        let now = self.now();
        let mut kept = Vec::new();
        while let Some(at) = self.waiting.pop_front() {
            match self.choose(at, now) {
                Choice::Queue(token) => {
                    self.shorten(at);
                    self.submit(at, token, now);
                }
                Choice::Nowhere => kept.push(at),
                Choice::Lost => self.part_ended(at, Some(Error::PersistentLoss)),
                Choice::Full => {
                    kept.push(at);
                    break;
                }
            }
        }
        // They keep their place, before the rest.
        for at in kept.into_iter().rev() {
            self.waiting.push_front(at);
        }
        // A connection that is lost on the way has given its commands back.
        for token in std::mem::take(&mut self.unsent) {
            self.flush(token);
        }
    }

    fn choose(&self, at: usize, now: Duration) -> Choice {
        let Some(part) = self.commands.parts.get(at) else { return Choice::Nowhere };
        let Some(request) = self.commands.requests.get(part.request) else { return Choice::Nowhere };
        let changes_wait = now < self.changes_from || self.fences.holds_all();
        let is_early = now < part.not_before || (request.operation.changes() && changes_wait);
        if !self.has_begun || is_early {
            return Choice::Nowhere;
        }
        let (mut best, mut is_full, mut lost, mut live) = (None, false, 0, 0);
        for controller in self.paths.iter().filter_map(super::path::Path::controller) {
            if !controller.is_live() {
                continue;
            }
            live += 1;
            match reach(controller, request.nsid) {
                Reach::Rank(rank) => {
                    let queues =
                        controller.io.iter().filter_map(|token| Some((*token, self.slots.get(*token)?)));
                    let free = queues.filter(|(_, slot)| slot.queue.has_room());
                    let suspect = |slot: &Slot| if slot.health.is_suspect() { SUSPECT_RANK } else { 0 };
                    let least = free.min_by_key(|(_, slot)| (suspect(slot), slot.queue.outstanding()));
                    is_full |= least.is_none();
                    let candidate =
                        least.map(|(token, slot)| (rank + suspect(slot), slot.queue.outstanding(), token));
                    best = best.into_iter().chain(candidate).min();
                }
                Reach::Lost => lost += 1,
                Reach::NotNow => {}
            }
        }
        match best {
            Some((.., token)) => Choice::Queue(token),
            None if is_full => Choice::Full,
            None if lost > 0 && lost == live && live == self.paths.len() => Choice::Lost,
            None => Choice::Nowhere,
        }
    }

    fn submit(&mut self, at: usize, token: usize, now: Duration) {
        let Some(part) = self.commands.parts.get_mut(at) else { return };
        part.sent_at = now;
        let part = *part;
        let Some(request) = self.commands.requests.get(part.request) else { return };
        let shift = self.shared.namespace(request.nsid).map_or(12, |one| one.block_shift.into());
        let sqe = request::command(request, &part, shift);
        let bytes = usize::try_from(part.bytes).unwrap_or(usize::MAX);
        let payload = match &request.operation {
            Operation::Read { .. } => Payload::Receive(u32::try_from(part.bytes).unwrap_or(u32::MAX)),
            Operation::Write { data, .. } => {
                let start = usize::try_from(part.offset).unwrap_or(usize::MAX);
                Payload::Send(Slice { memory: Arc::clone(data), start, bytes })
            }
            Operation::Deallocate { .. } => {
                let range = request::range(request, &part, shift);
                let bytes = range.len();
                Payload::Send(Slice { memory: Arc::new(range), start: 0, bytes })
            }
            Operation::Flush | Operation::WriteZeroes { .. } => Payload::None,
        };
        let Some(slot) = self.slots.get_mut(token) else { return };
        let path = slot.path;
        if slot.queue.submit(&sqe, at as u64, payload).is_err() {
            // The machine takes no command: it was not sent.
            self.waiting.push_back(at);
            return self.lose(path, &Lost::Misuse);
        }
        if !self.unsent.contains(&token) {
            self.unsent.push(token);
        }
    }

    /// A controller has ended a command.
    pub(super) fn part_completed(&mut self, path: usize, tag: u64, cqe: &Cqe) {
        let Ok(at) = usize::try_from(tag) else { return };
        let now = self.now();
        let limits = self.controller(path).and_then(|controller| controller.limits);
        let Some(part) = self.commands.parts.get_mut(at) else { return };
        let request = self.commands.requests.get(part.request);
        let flushes = request.is_some_and(|request| matches!(request.operation, Operation::Flush));
        let delay = match retry(cqe.status, limits.map_or([0; 3], |limits| limits.retry_delays_100_ms)) {
            Retry::Done => {
                self.count(path, at);
                return self.part_ended(at, None);
            }
            Retry::Never => return self.part_ended(at, Some(Error::Command(cqe.status))),
            // The path may be chosen again, before it has said how it is now.
            Retry::Elsewhere => RETRY_DELAY,
            Retry::Here(delay) => {
                // A drive says once that it has lost what it was to make durable.
                let is_over = if flushes { !was_not_begun(cqe.status) } else { part.retries >= RETRIES_MAX };
                if is_over {
                    return self.part_ended(at, Some(Error::Command(cqe.status)));
                }
                part.retries += 1;
                delay.max(RETRY_DELAY)
            }
        };
        part.not_before = now + delay;
        self.waiting.push_back(at);
        if cqe.status.is(Status::ANA_INACCESSIBLE) || cqe.status.is(Status::ANA_PERSISTENT_LOSS) {
            self.note_unreachable(path, at, cqe.status);
        }
    }

    /// Counts a part that a path has completed.
    fn count(&self, path: usize, at: usize) {
        let Some(part) = self.commands.parts.get(at) else { return };
        match self.commands.requests.get(part.request).map(|request| &request.operation) {
            Some(Operation::Read { .. }) => self.shared.count(path, part.bytes, 0),
            Some(Operation::Write { .. }) => self.shared.count(path, 0, part.bytes),
            _ => self.shared.count(path, 0, 0),
        }
    }

    /// What the ANA log says, or will say soon. It is read, since its event may have come before
    /// this answer.
    fn note_unreachable(&mut self, path: usize, part: usize, status: Status) {
        let now = self.now();
        let request = self.commands.parts.get(part).and_then(|part| self.commands.requests.get(part.request));
        let Some(nsid) = request.map(|request| request.nsid) else { return };
        let Some(controller) = self.controller_mut(path) else { return };
        let Some(group) = controller.namespaces.get(&nsid).map(|namespace| namespace.ana_group) else {
            return;
        };
        let lost = status.is(Status::ANA_PERSISTENT_LOSS);
        let state = if lost { AnaState::PERSISTENT_LOSS } else { AnaState::INACCESSIBLE };
        for known in controller.ana.iter_mut().flat_map(|log| &mut log.groups) {
            if known.id == group {
                known.state = state;
            }
        }
        if let Some(initiator) = &mut controller.initiator {
            initiator.refresh_ana(now);
            self.pump(path);
        }
    }

    fn part_ended(&mut self, at: usize, error: Option<Error>) {
        let Some(part) = self.commands.parts.try_remove(at) else { return };
        let Some(request) = self.commands.requests.get_mut(part.request) else { return };
        request.error = request.error.take().or(error);
        request.parts -= 1;
        if request.parts > 0 {
            return;
        }
        let request = self.commands.requests.remove(part.request);
        let was_change = request.operation.changes();
        let Request { operation, cookie, reply, error, .. } = request;
        // The memory of a write is the caller's alone again before the completion is there.
        let memory = match operation {
            Operation::Read { memory, .. } => memory,
            other => {
                drop(other);
                Vec::new()
            }
        };
        self.complete(&reply, Completion { cookie, result: error.map_or(Ok(memory), Err) });
        if was_change {
            self.unblock();
        }
    }

    /// Requests whose turn has come.
    fn unblock(&mut self) {
        let blocked = std::mem::take(&mut self.blocked);
        for at in blocked {
            let Some(request) = self.commands.requests.get(at) else { continue };
            // Those that are blocked themselves and came later do not count.
            let earlier = |(other, one): (usize, &Request)| {
                let is_later = one.parts == 0 && !self.blocked.contains(&other);
                other != at && !is_later && one.conflicts(request)
            };
            if self.commands.requests.iter().any(earlier) {
                self.blocked.push_back(at);
            } else {
                self.split(at);
            }
        }
    }

    /// Requests that have waited for a path for too long fail.
    pub(super) fn fail_late(&mut self, now: Duration) {
        let limit = self.config.no_path_timeout;
        let is_late = |at: &usize| {
            let part = self.commands.parts.get(*at);
            let request = part.and_then(|part| self.commands.requests.get(part.request));
            request.is_some_and(|request| now >= request.since + limit)
        };
        let (late, kept) = std::mem::take(&mut self.waiting).into_iter().partition(is_late);
        self.waiting = kept;
        let late: VecDeque<usize> = late;
        let fenced = self.fences.give_up(is_late);
        late.into_iter().chain(fenced).for_each(|at| self.part_ended(at, Some(Error::NoPath(limit))));
    }

    /// Tells the callers how the paths are.
    pub(super) fn publish(&self) {
        let paths = self.paths.iter().map(super::path::Path::status).collect();
        let is_reachable = |nsid: &u32| {
            let live =
                self.paths.iter().filter_map(super::path::Path::controller).filter(|one| one.is_live());
            live.into_iter().any(|controller| matches!(reach(controller, *nsid), Reach::Rank(_)))
        };
        self.shared.publish(self.has_begun, paths, is_reachable);
    }
}

/// How many bytes one command of a request may have, where a controller takes so many.
fn most_bytes(shared: &Shared, request: &Request, transfer_bytes: u64) -> u64 {
    let block = shared.namespace(request.nsid).map_or(4096, |one| u64::from(one.block_bytes()));
    match request.operation {
        Operation::Deallocate { .. } => DEALLOCATE_BYTES_MAX,
        _ => transfer_bytes.min(BLOCKS_MAX * block),
    }
}

/// How a controller reaches a namespace.
enum Reach {
    /// The smaller the better.
    Rank(u32),
    NotNow,
    Lost,
}

fn reach(controller: &Controller, nsid: u32) -> Reach {
    let Some(namespace) = controller.namespaces.get(&nsid) else { return Reach::NotNow };
    let suspect = if controller.health.is_suspect() { SUSPECT_RANK } else { 0 };
    match controller.ana_state(namespace) {
        Some(AnaState::OPTIMIZED) => Reach::Rank(suspect),
        Some(AnaState::NON_OPTIMIZED) => Reach::Rank(suspect + 1),
        Some(AnaState::PERSISTENT_LOSS) => Reach::Lost,
        _ => Reach::NotNow,
    }
}

/// Whether a command that failed with this status was not begun.
fn was_not_begun(status: Status) -> bool {
    [Status::COMMAND_INTERRUPTED, Status::ABORT_REQUESTED, Status::NAMESPACE_NOT_READY]
        .into_iter()
        .any(|one| status.is(one))
}

/// Whether a controller has the optional commands.
pub(crate) fn optional(commands: OptionalCommands) -> (bool, bool) {
    (commands.has(OptionalCommands::WRITE_ZEROES), commands.has(OptionalCommands::DATASET_MANAGEMENT))
}
