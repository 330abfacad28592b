//! A drive for tests: it holds writes, fails, waits, and forgets what was not flushed when its
//! power is cut.
//!
//! [`faulty`] makes the drive and the [`Faults`] that control it. Its content is in memory, in
//! pages of 4 KiB; what a power cut leaves of writes that were not made durable is any subset of
//! their pages, so writes are torn there.

use crate::drive::{Backend, Drive, Info};
use crate::operation::{Completion, Fault, Operation};
use crate::payload::{Payload, Segment, buffers_for, payload_bytes};
use crate::waker::Mailbox;
use memory::Buffers;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The unit in which writes are torn.
pub const PAGE_BYTES: usize = 4096;

type Page = Box<[u8]>;

/// Kinds of operations, to name those that are to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operations {
    /// Reads.
    Reads,
    /// Writes, zeroes and discards.
    Writes,
    /// Flushes.
    Flushes,
}

impl Operations {
    const fn of(operation: &Operation) -> Self {
        match operation {
            Operation::Read { .. } => Self::Reads,
            Operation::Flush => Self::Flushes,
            Operation::Write { .. } | Operation::Zero { .. } | Operation::Discard { .. } => Self::Writes,
        }
    }
}

/// An operation on its way.
struct Pending {
    tag: u64,
    operation: Operation,
    mailbox: Arc<Mailbox>,
}

impl Pending {
    fn end(self, result: Result<Payload, Fault>) {
        self.mailbox.put(Completion { tag: self.tag, result });
    }
}

#[derive(Default)]
struct State {
    /// What reads see.
    pages: BTreeMap<u64, Page>,
    /// What would be left if the power were cut and no cached page had reached the medium.
    durable: BTreeMap<u64, Page>,
    /// Pages in the order in which they were written since they were last durable.
    cached: Vec<(u64, Page)>,
    holding: bool,
    held: VecDeque<Pending>,
    failing: VecDeque<(Operations, Fault)>,
    stops: Option<Stops>,
    latency: Duration,
    executed: Vec<Executed>,
}

/// Who hands over operations stands still.
#[derive(Default)]
struct Stops {
    /// How many have come, and how many of them were let on.
    stopped: usize,
    let_on: usize,
}

/// Who hands the drive an operation stands still, until this is dropped.
#[derive(Debug)]
pub struct StoppedSubmitters<'a>(&'a Faulty);

/// An operation that was executed, in the order of execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Executed {
    /// What it was submitted with.
    pub tag: u64,
    /// Which kind it was.
    pub kind: Operations,
}

/// See the [module](self).
pub(crate) struct Faulty {
    bytes: u64,
    has_cache: bool,
    buffers: Arc<Buffers>,
    state: Mutex<State>,
    changed: Condvar,
}

/// Controls a faulty drive.
#[derive(Debug, Clone)]
pub struct Faults(Arc<Faulty>);

/// A drive whose faults the test decides. With `volatile_cache`, a write that is not durable is
/// lost by a power cut unless it is flushed.
#[must_use]
pub fn faulty(bytes: u64, volatile_cache: bool) -> (Drive, Faults) {
    let info = Info { volatile_cache, ..Drive::memory_info(bytes) };
    let faulty = Arc::new(Faulty {
        bytes: info.bytes,
        has_cache: volatile_cache,
        buffers: Arc::default(),
        state: Mutex::default(),
        changed: Condvar::new(),
    });
    (Drive::new(info, Backend::Faulty(Arc::clone(&faulty))), Faults(faulty))
}

impl Faults {
    /// Holds writes, zeroes and discards that come from now on: they are neither executed nor
    /// completed until they are released.
    pub fn hold_writes(&self) {
        self.0.lock().holding = true;
    }

    /// Waits until this many writes are held; false if that takes longer than the time.
    #[must_use]
    pub fn wait_held(&self, writes: usize, time: Duration) -> bool {
        let state = self.0.lock();
        let waited = self.0.changed.wait_timeout_while(state, time, |state| state.held.len() < writes);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// Executes the write that has been held longest. False if none is held.
    pub fn release_one(&self) -> bool {
        let pending = self.0.lock().held.pop_front();
        pending.map(|pending| self.0.execute(pending)).is_some()
    }

    /// Executes a held write, by its place among them: the device chooses any order. False if there
    /// are not so many.
    pub fn release_nth(&self, place: usize) -> bool {
        let pending = self.0.lock().held.remove(place);
        pending.map(|pending| self.0.execute(pending)).is_some()
    }

    /// The number of held writes.
    #[must_use]
    pub fn held(&self) -> usize {
        self.0.lock().held.len()
    }

    /// Executes all held writes, and holds none from now on.
    pub fn release_writes(&self) {
        self.0.lock().holding = false;
        while self.release_one() {}
    }

    /// Whoever hands the drive an operation from now on stands still before the drive takes it: a
    /// loop cannot see then what happens in the network.
    #[must_use]
    pub fn stop_submitters(&self) -> StoppedSubmitters<'_> {
        self.0.lock().stops = Some(Stops::default());
        StoppedSubmitters(&self.0)
    }

    /// Fails the next operation of this kind that is not set to fail yet.
    pub fn fail_next(&self, kind: Operations, fault: Fault) {
        self.0.lock().failing.push_back((kind, fault));
    }

    /// Lets each operation take this long.
    pub fn set_latency(&self, latency: Duration) {
        self.0.lock().latency = latency;
    }

    /// Cuts the power and turns it on again. Of the pages that were not durable, those of held
    /// writes included, the seed decides which have reached the medium. Held writes end with
    /// [`Fault::Gone`].
    pub fn cut_power(&self, seed: u64) {
        let held: Vec<_> = {
            let mut state = self.0.lock();
            let held: Vec<_> = state.held.drain(..).collect();
            for pending in &held {
                self.0.change(&mut state, &pending.operation);
            }
            let mut choice = Choice(seed);
            let cached = std::mem::take(&mut state.cached);
            for (page, content) in cached {
                if choice.next() {
                    state.durable.insert(page, content);
                }
            }
            state.pages = state.durable.clone();
            held
        };
        held.into_iter().for_each(|pending| pending.end(Err(Fault::Gone)));
    }

    /// The operations that were executed, in order. Held ones are not among them.
    #[must_use]
    pub fn executed(&self) -> Vec<Executed> {
        self.0.lock().executed.clone()
    }

    /// What reads see.
    #[must_use]
    pub fn content(&self, range: Range<u64>) -> Vec<u8> {
        let mut content = vec![0; (range.end - range.start) as usize];
        self.0.copy(&self.0.lock(), range.start, &mut content);
        content
    }
}

impl StoppedSubmitters<'_> {
    /// Waits until so many have been stopped in all; false if that takes longer than the time.
    #[must_use]
    pub fn wait_stopped(&self, count: usize, time: Duration) -> bool {
        let stopped = |state: &State| state.stops.as_ref().map_or(0, |stops| stops.stopped);
        let waited = self.0.changed.wait_timeout_while(self.0.lock(), time, |state| stopped(state) < count);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// Lets one more go on.
    pub fn let_one_on(&self) {
        if let Some(stops) = &mut self.0.lock().stops {
            stops.let_on += 1;
        }
        self.0.changed.notify_all();
    }
}

impl Drop for StoppedSubmitters<'_> {
    fn drop(&mut self) {
        self.0.lock().stops = None;
        self.0.changed.notify_all();
    }
}

/// A sequence of decisions from a seed (splitmix64).
struct Choice(u64);

impl Choice {
    fn next(&mut self) -> bool {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) & 1 == 1
    }
}

/// Cuts a range at the borders of pages: the page, and the range in it.
fn parts(at: u64, bytes: u64) -> impl Iterator<Item = (u64, Range<usize>)> {
    let page_bytes = PAGE_BYTES as u64;
    let end = at + bytes;
    (at / page_bytes..end.div_ceil(page_bytes)).map(move |page| {
        let start = page * page_bytes;
        (page, (at.max(start) - start) as usize..(end.min(start + page_bytes) - start) as usize)
    })
}

impl Faulty {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stands still for as long as that is asked for.
    fn wait_to_submit(&self) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        let Some(stops) = &mut state.stops else { return state };
        stops.stopped += 1;
        let place = stops.stopped;
        self.changed.notify_all();
        let stands = |state: &mut State| state.stops.as_ref().is_some_and(|stops| stops.let_on < place);
        self.changed.wait_while(state, stands).unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes an operation, which a worker executes if that is to take some time.
    pub(crate) fn begin(self: &Arc<Self>, drive: &Drive, tag: u64, operation: Operation, to: &Arc<Mailbox>) {
        let pending = Pending { tag, operation, mailbox: Arc::clone(to) };
        let mut state = self.wait_to_submit();
        if state.holding && Operations::of(&pending.operation) == Operations::Writes {
            state.held.push_back(pending);
            self.changed.notify_all();
            return;
        }
        let due = Instant::now() + state.latency;
        let takes_time = !state.latency.is_zero();
        drop(state);
        if !takes_time {
            return self.execute(pending);
        }
        let this = Arc::clone(self);
        let work = move || {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            this.execute(pending);
        };
        assert!(drive.workers().give(Box::new(work)).is_ok(), "no thread for a test");
    }

    fn execute(&self, pending: Pending) {
        let mut state = self.lock();
        let kind = Operations::of(&pending.operation);
        state.executed.push(Executed { tag: pending.tag, kind });
        let failing = state.failing.iter().position(|(failing, _)| *failing == kind);
        let fault = failing.and_then(|at| state.failing.remove(at)).map(|(_, fault)| fault);
        let result = match (fault, &pending.operation) {
            (Some(fault), _) => Err(fault),
            (None, Operation::Read { at, bytes }) => Ok(self.read(&state, *at, *bytes)),
            (None, Operation::Flush) => {
                state.cached.clear();
                state.durable = state.pages.clone();
                Ok(Payload::new())
            }
            (None, operation) => {
                self.change(&mut state, operation);
                Ok(Payload::new())
            }
        };
        drop(state);
        pending.end(result);
    }

    fn read(&self, state: &State, at: u64, bytes: usize) -> Payload {
        let mut payload = buffers_for(bytes, &self.buffers);
        let mut at = at;
        for buffer in payload.iter_mut().filter_map(Segment::as_bytes_mut) {
            self.copy(state, at, buffer);
            at += buffer.len() as u64;
        }
        payload
    }

    fn copy(&self, state: &State, at: u64, to: &mut [u8]) {
        assert!(at + to.len() as u64 <= self.bytes, "the queue checks ranges");
        let mut to = to;
        for (page, range) in parts(at, to.len() as u64) {
            let (now, later) = to.split_at_mut(range.len());
            match state.pages.get(&page) {
                Some(content) => now.copy_from_slice(&content[range]),
                None => now.fill(0),
            }
            to = later;
        }
    }

    fn change(&self, state: &mut State, operation: &Operation) {
        let (at, data, durable) = match operation {
            Operation::Write { at, payload, durable } => {
                let mut data = Vec::with_capacity(payload_bytes(payload));
                payload.iter().for_each(|segment| data.extend_from_slice(segment.as_bytes()));
                (*at, data, *durable)
            }
            Operation::Zero { at, bytes, durable, .. } => (*at, vec![0; *bytes as usize], *durable),
            Operation::Discard { at, bytes } => (*at, vec![0; *bytes as usize], false),
            Operation::Read { .. } | Operation::Flush => return,
        };
        let mut left = data.as_slice();
        for (page, range) in parts(at, data.len() as u64) {
            let (now, later) = left.split_at(range.len());
            let content = state.pages.entry(page).or_insert_with(|| vec![0; PAGE_BYTES].into());
            content[range].copy_from_slice(now);
            let content = content.clone();
            left = later;
            if durable || !self.has_cache {
                // What is older must not reach the medium afterwards.
                state.cached.retain(|(cached, _)| *cached != page);
                state.durable.insert(page, content);
            } else {
                state.cached.push((page, content));
            }
        }
    }
}

impl fmt::Debug for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.lock();
        let (held, cached) = (state.held.len(), state.cached.len());
        f.debug_struct("Faulty").field("held", &held).field("cached", &cached).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::{Choice as Engine, Queue};
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    const LONG: Duration = Duration::from_secs(20);

    fn queue() -> Queue {
        Queue::new(16, Engine::Automatic, Arc::default()).unwrap()
    }

    fn write(queue: &mut Queue, drive: &Drive, at: u64, bytes: usize, with: u8, durable: bool) {
        let mut payload = buffers_for(bytes, queue.buffers());
        payload.iter_mut().for_each(|segment| segment.as_bytes_mut().unwrap().fill(with));
        queue.submit(drive, u64::from(with), Operation::Write { at, payload, durable }).unwrap();
    }

    /// Waits for that many completions.
    fn ends(queue: &mut Queue, count: usize) -> Vec<(u64, Result<(), Fault>)> {
        let mut ends = Vec::new();
        queue.kick().unwrap();
        loop {
            queue.reap(&mut ends);
            if ends.len() >= count {
                return ends.into_iter().map(|end| (end.tag, end.result.map(drop))).collect();
            }
            let limit = Timespec { tv_sec: 20, tv_nsec: 0 };
            let ready = poll(&mut [PollFd::new(&*queue, PollFlags::IN)], Some(&limit));
            assert!(ready != Ok(0), "no completion");
        }
    }

    #[test]
    fn held_writes_change_nothing_until_they_are_released() {
        let (drive, faults) = faulty(1 << 20, false);
        let mut queue = queue();
        faults.hold_writes();
        write(&mut queue, &drive, 0, 4096, 1, false);
        write(&mut queue, &drive, 4096, 4096, 2, false);
        assert!(faults.wait_held(2, LONG) && !faults.wait_held(3, Duration::ZERO));
        queue.submit(&drive, 9, Operation::Read { at: 0, bytes: 512 }).unwrap();
        assert_eq!(ends(&mut queue, 1), [(9, Ok(()))]);
        assert_eq!(faults.content(0..1), [0]);
        assert!(faults.release_one());
        assert_eq!(ends(&mut queue, 1), [(1, Ok(()))]);
        assert_eq!(faults.content(4095..4097), [1, 0]);
        faults.release_writes();
        assert_eq!(ends(&mut queue, 1), [(2, Ok(()))]);
        assert_eq!(faults.executed().iter().map(|one| one.tag).collect::<Vec<_>>(), [9, 1, 2]);
    }

    #[test]
    fn who_hands_over_an_operation_stands_still_until_it_is_let_on() {
        let (drive, faults) = faulty(1 << 20, false);
        let stopped = faults.stop_submitters();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut queue = queue();
                for at in [0, 1, 2] {
                    write(&mut queue, &drive, at * 4096, 4096, 1 + at as u8, false);
                }
            });
            assert!(stopped.wait_stopped(1, LONG));
            assert_eq!(faults.executed(), []);
            stopped.let_one_on();
            assert!(stopped.wait_stopped(2, LONG) && !stopped.wait_stopped(3, Duration::ZERO));
            assert_eq!(faults.executed().iter().map(|one| one.tag).collect::<Vec<_>>(), [1]);
            drop(stopped);
        });
        assert_eq!(faults.executed().iter().map(|one| one.tag).collect::<Vec<_>>(), [1, 2, 3]);
    }

    #[test]
    fn a_power_cut_tears_what_was_not_durable_and_nothing_else() {
        let mut left = [false; 4];
        for seed in 0..64 {
            let (drive, faults) = faulty(1 << 20, true);
            let mut queue = queue();
            write(&mut queue, &drive, 0, 8192, 1, false);
            queue.submit(&drive, 9, Operation::Flush).unwrap();
            write(&mut queue, &drive, 8192, 4096, 2, true);
            write(&mut queue, &drive, 0, 8192, 3, false);
            assert_eq!(ends(&mut queue, 4).len(), 4);
            assert_eq!(faults.content(0..1), [3]);
            faults.cut_power(seed);
            let content = faults.content(0..3 * 4096);
            assert_eq!(content[8192], 2, "it was durable");
            let pages = [content[0], content[4096]];
            assert!(pages.iter().all(|page| matches!(page, 1 | 3)), "old or new: {pages:?}");
            left[usize::from(pages[0] == 3) * 2 + usize::from(pages[1] == 3)] = true;
        }
        assert_eq!(left, [true; 4], "each of them happens");
    }

    #[test]
    fn held_writes_may_be_torn_by_a_power_cut_and_end() {
        let (drive, faults) = faulty(1 << 20, true);
        let mut queue = queue();
        faults.hold_writes();
        write(&mut queue, &drive, 0, 64 << 10, 1, false);
        assert!(faults.wait_held(1, LONG));
        faults.cut_power(3);
        assert_eq!(ends(&mut queue, 1), [(1, Err(Fault::Gone))]);
        let content = faults.content(0..64 << 10);
        assert!(content.chunks(PAGE_BYTES).all(|page| page.iter().all(|byte| *byte == page[0])));
        assert!(content.contains(&0) && content.contains(&1));
    }

    #[test]
    fn operations_fail_and_wait_as_they_are_told() {
        let (drive, faults) = faulty(1 << 20, false);
        let mut queue = queue();
        faults.fail_next(Operations::Writes, Fault::NoSpace);
        faults.fail_next(Operations::Flushes, Fault::Medium);
        faults.set_latency(Duration::from_millis(20));
        let start = Instant::now();
        write(&mut queue, &drive, 0, 512, 1, false);
        assert_eq!(ends(&mut queue, 1), [(1, Err(Fault::NoSpace))]);
        assert!(start.elapsed() >= Duration::from_millis(20));
        write(&mut queue, &drive, 0, 512, 2, false);
        assert_eq!(ends(&mut queue, 1), [(2, Ok(()))]);
        queue.submit(&drive, 3, Operation::Flush).unwrap();
        assert_eq!(ends(&mut queue, 1), [(3, Err(Fault::Medium))]);
        assert_eq!(faults.content(0..1), [2], "the write that failed changed nothing");
    }
}
