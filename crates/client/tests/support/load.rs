//! A load of stamped blocks: each of several threads writes and reads its own file, knows what the
//! file must contain, and keeps the longest time between two of its replies.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use client::{Answer, File, Mount, Pending};

const THREADS: usize = 4;
const BLOCKS: usize = 64;
const BLOCK_BYTES: usize = 64 << 10;
const DEPTH: usize = 8;
/// No wait in these tests takes longer.
const DEADLINE: Duration = Duration::from_secs(120);

#[derive(Debug, Default)]
struct Progress {
    answered: [u64; THREADS],
    worst_gap: Duration,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct Load {
    progress: Mutex<Progress>,
    changed: Condvar,
    stop: AtomicBool,
}

fn stamped(thread: usize, block: usize, generation: u64) -> Vec<u8> {
    let stamp = [(thread as u64) << 32 | block as u64, generation];
    let mut out = Vec::with_capacity(BLOCK_BYTES);
    while out.len() < BLOCK_BYTES {
        out.extend(stamp.iter().flat_map(|word| word.to_be_bytes()));
        out.extend((out.len() as u64).to_be_bytes());
    }
    out.truncate(BLOCK_BYTES);
    out
}

impl Load {
    /// Runs the load while `during` injects faults into the paths; checks all files at the end.
    /// Returns the longest time that a thread waited for a reply.
    pub fn run(mount: &Mount, during: impl FnOnce(&Self)) -> Duration {
        let load = Self::default();
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let load = &load;
                scope.spawn(move || load.work(mount, thread));
            }
            let stop = Stop(&load.stop);
            load.advance(100);
            during(&load);
            load.advance(100);
            drop(stop);
        });
        load.progress.into_inner().unwrap().worst_gap
    }

    /// Waits until every thread has had this many more replies.
    pub fn advance(&self, answers: u64) {
        let progress = self.progress.lock().unwrap();
        let wanted = progress.answered.map(|count| count + answers);
        let behind =
            |progress: &mut Progress| progress.answered.iter().zip(&wanted).any(|(have, want)| have < want);
        let (progress, timeout) = self.changed.wait_timeout_while(progress, DEADLINE, behind).unwrap();
        assert!(!timeout.timed_out(), "{:?} answers, {wanted:?} wanted", progress.answered);
    }

    fn answered(&self, thread: usize, gap: Duration) {
        let mut progress = self.progress.lock().unwrap();
        progress.answered[thread] += 1;
        progress.worst_gap = progress.worst_gap.max(gap);
        self.changed.notify_all();
    }

    fn work(&self, mount: &Mount, thread: usize) {
        let file = mount.create_file(format!("/load {thread}").as_bytes(), 0o644).unwrap();
        let mut generations = [0; BLOCKS];
        let mut seed = thread as u64 + 1;
        let mut last = Instant::now();
        let mut round = |file: &File, generations: &mut [u64; BLOCKS]| {
            // Eight blocks somewhere are written again, and eight others are read.
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = |step: usize| ((seed >> 40) as usize + step) % BLOCKS;
            let writes: Vec<(usize, u64, Pending)> = (0..DEPTH)
                .map(|step| {
                    let (block, generation) = (at(step), generations[at(step)] + 1);
                    let data = stamped(thread, block, generation);
                    (block, generation, file.write_at(data, (block * BLOCK_BYTES) as u64))
                })
                .collect();
            let reads: Vec<(usize, Pending)> = (DEPTH..2 * DEPTH)
                .map(|step| (at(step), file.read_at(vec![0; BLOCK_BYTES], (at(step) * BLOCK_BYTES) as u64)))
                .collect();
            let mut gap = || {
                let now = Instant::now();
                now - std::mem::replace(&mut last, now)
            };
            for (block, generation, pending) in writes {
                let done = pending.wait();
                assert!(matches!(done.result, Ok(Answer::Written)), "{:?}", done.result);
                generations[block] = generation;
                self.answered(thread, gap());
            }
            for (block, pending) in reads {
                let done = pending.wait();
                check(thread, block, generations[block], &done.result.unwrap(), &done.buffer);
                self.answered(thread, gap());
            }
        };
        while !self.stop.load(Ordering::Relaxed) {
            round(&file, &mut generations);
        }
        for (block, generation) in generations.iter().enumerate() {
            let done = file.read_at(vec![0; BLOCK_BYTES], (block * BLOCK_BYTES) as u64).wait();
            check(thread, block, *generation, &done.result.unwrap(), &done.buffer);
        }
    }
}

/// Checks a block. A block that was never written is absent or zero.
fn check(thread: usize, block: usize, generation: u64, answer: &Answer, buffer: &[u8]) {
    let Answer::Read { count, .. } = answer else { panic!("{answer:?}") };
    let read = &buffer[..*count as usize];
    if generation == 0 {
        assert!(read.iter().all(|byte| *byte == 0), "block {block} of file {thread} was never written");
    } else {
        assert!(
            read == stamped(thread, block, generation),
            "block {block} of file {thread}: not what was written last (time {generation})"
        );
    }
}

/// Stops the load, also when an assertion fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
