//! What every drive must do, with either engine.

use drives::{Choice, Drive, Fault, Operation, Payload, Queue, Refusal, Segment, TRANSFER_BYTES_MAX};
use memory::Buffers;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::HashMap;
use std::sync::Arc;

/// Both engines: whatever the machine permits, and workers.
pub const ENGINES: [Choice; 2] = [Choice::Automatic, Choice::Workers];
/// No operation of a test takes that long.
const PATIENCE: Timespec = Timespec { tv_sec: 30, tv_nsec: 0 };
const DEPTH: usize = 8;
/// Rounds of random operations.
const ROUNDS: usize = 24;

/// The end of an operation: what was read, as one piece.
pub type End = Result<Vec<u8>, Fault>;

/// A drive with a queue.
pub struct Rig {
    pub drive: Drive,
    pub queue: Queue,
    buffers: Arc<Buffers>,
}

impl Rig {
    pub fn new(drive: &Drive, choice: Choice) -> Self {
        let buffers = Arc::new(Buffers::default());
        let queue = Queue::new(DEPTH, choice, Arc::clone(&buffers)).unwrap();
        Self { drive: drive.clone(), queue, buffers }
    }

    /// Submits operations together and waits for all of them; their ends in the order of
    /// submission.
    pub fn run_all(&mut self, operations: Vec<Operation>) -> Vec<End> {
        let count = operations.len();
        for (tag, operation) in (0..).zip(operations) {
            self.queue.submit(&self.drive, tag, operation).unwrap();
        }
        self.queue.kick().unwrap();
        let mut ends = HashMap::new();
        let mut completions = Vec::new();
        loop {
            self.queue.reap(&mut completions);
            for completion in completions.drain(..) {
                assert!(ends.insert(completion.tag, completion.result).is_none(), "completed twice");
            }
            if ends.len() == count {
                assert_eq!(self.queue.in_flight(), 0);
                break;
            }
            match poll(&mut [PollFd::new(&self.queue, PollFlags::IN)], Some(&PATIENCE)) {
                Ok(ready) => assert!(ready > 0, "no completion"),
                Err(error) => assert_eq!(error, rustix::io::Errno::INTR),
            }
        }
        let bytes = |read: Payload| read.iter().flat_map(|one| one.as_bytes().to_vec()).collect();
        (0..count as u64).map(|tag| ends.remove(&tag).unwrap().map(bytes)).collect()
    }

    pub fn run(&mut self, operation: Operation) -> End {
        self.run_all(vec![operation]).pop().unwrap()
    }

    pub fn write(&mut self, at: u64, content: &[u8], durable: bool) -> Result<(), Fault> {
        let payload = self.pieces(content, &[content.len()], 0);
        self.run(Operation::Write { at, payload, durable }).map(drop)
    }

    pub fn read(&mut self, at: u64, bytes: usize) -> End {
        self.run(Operation::Read { at, bytes })
    }

    /// A payload of pieces of these lengths, again and again, each `skew` bytes into its buffer.
    pub fn pieces(&self, content: &[u8], lens: &[usize], skew: usize) -> Payload {
        let mut left = content;
        let mut payload = Payload::new();
        for len in lens.iter().cycle() {
            if left.is_empty() {
                break;
            }
            let (now, later) = left.split_at((*len).clamp(1, left.len()));
            let mut buffer = self.buffers.take(now.len() + skew);
            buffer[skew..].copy_from_slice(now);
            payload.push(match skew {
                0 => Segment::from(buffer),
                _ => Segment::shared(Arc::new(buffer), skew, now.len()),
            });
            left = later;
        }
        payload
    }
}

/// Random operations, several at a time on ranges apart, against a copy in memory.
pub fn model(drive: &Drive, choice: Choice, block: usize, seed: u64) {
    let mut rig = Rig::new(drive, choice);
    let mut random = fastrand::Rng::with_seed(seed);
    let size = drive.info().bytes as usize;
    let part = size / DEPTH / block * block;
    let mut model = vec![0_u8; size];
    let zeros_after_discard = drive.info().discard_zeroes;
    for _ in 0..ROUNDS {
        let (mut operations, mut expected) = (Vec::new(), Vec::new());
        for at in (0..DEPTH).map(|number| number * part) {
            let blocks = random.usize(1..=(part / block).min(TRANSFER_BYTES_MAX / block));
            let len = block * if random.bool() { blocks.min(8) } else { blocks };
            let at = at + random.usize(0..=(part - len) / block) * block;
            let range = at..at + len;
            let mut read = Vec::new();
            let (at, durable) = (at as u64, random.bool());
            operations.push(match random.u8(0..10) {
                0..4 => {
                    read = model[range].to_vec();
                    Operation::Read { at, bytes: len }
                }
                4..8 => {
                    random.fill(&mut model[range.clone()]);
                    let lens = [random.usize(1..len + 1), 4096, random.usize(1..9000)];
                    let skew = if random.bool() { 0 } else { random.usize(1..700) };
                    let lens = if random.bool() { &[64 << 10][..] } else { &lens[..] };
                    Operation::Write { at, payload: rig.pieces(&model[range], lens, skew), durable }
                }
                8 => {
                    model[range].fill(0);
                    Operation::Zero { at, bytes: len as u64, deallocate: random.bool(), durable }
                }
                _ if zeros_after_discard => {
                    model[range].fill(0);
                    Operation::Discard { at, bytes: len as u64 }
                }
                _ => Operation::Flush,
            });
            expected.push(Ok(read));
        }
        assert!(rig.run_all(operations) == expected, "seed {seed}");
    }
    for at in (0..size).step_by(1 << 20) {
        let bytes = (1 << 20).min(size - at);
        assert!(rig.read(at as u64, bytes).unwrap() == model[at..at + bytes], "seed {seed}, at {at}");
    }
}

/// Wrong ranges are refused, nothing happens, and the operation comes back.
pub fn refusals(drive: &Drive, choice: Choice) {
    let mut rig = Rig::new(drive, choice);
    let (size, block) = (drive.info().bytes, u64::from(drive.info().block_bytes));
    let content = vec![7; block as usize];
    rig.write(size - block, &content, false).unwrap();
    let refused = |rig: &mut Rig, operation| rig.queue.submit(&rig.drive, 0, operation).unwrap_err();
    for (at, bytes, why) in [
        (size, block, Refusal::OutOfRange),
        (size - block, 2 * block, Refusal::OutOfRange),
        (u64::MAX - block + 1, block, Refusal::OutOfRange),
        (1, block, Refusal::Misaligned),
        (0, block + 1, Refusal::Misaligned),
        (0, 0, Refusal::Length),
    ] {
        assert_eq!(refused(&mut rig, Operation::Read { at, bytes: bytes as usize }).why, why);
        let zero = Operation::Zero { at, bytes, deallocate: true, durable: true };
        assert_eq!(refused(&mut rig, zero).why, why);
        assert_eq!(refused(&mut rig, Operation::Discard { at, bytes }).why, why);
        let payload = rig.pieces(&vec![1; bytes as usize], &[512], 0);
        let rejected = refused(&mut rig, Operation::Write { at, payload, durable: false });
        assert_eq!(rejected.why, why);
        let Operation::Write { payload, .. } = rejected.operation else { panic!("another operation") };
        assert_eq!(drives::payload_bytes(&payload) as u64, bytes);
    }
    assert_eq!(rig.queue.in_flight(), 0);
    assert_eq!(rig.read(size - block, block as usize), Ok(content));
}

/// A full queue refuses, and takes operations again once some have been reaped.
pub fn full_queue(drive: &Drive, choice: Choice) {
    let mut rig = Rig::new(drive, choice);
    let read = || Operation::Read { at: 0, bytes: 4096 };
    for tag in 0..DEPTH as u64 {
        rig.queue.submit(&rig.drive, tag, read()).unwrap();
    }
    assert_eq!(rig.queue.submit(&rig.drive, 99, read()).unwrap_err().why, Refusal::Full);
    let mut completions = Vec::new();
    rig.queue.kick().unwrap();
    while completions.len() < DEPTH {
        rig.queue.reap(&mut completions);
        if completions.is_empty() {
            let _ = poll(&mut [PollFd::new(&rig.queue, PollFlags::IN)], Some(&PATIENCE));
        }
    }
    assert!(completions.iter().all(|one| one.result.is_ok() && one.tag < DEPTH as u64));
    assert_eq!(rig.run_all((0..DEPTH).map(|_| read()).collect()).len(), DEPTH);
}

/// A queue that is dropped with operations in flight leaves the drive in order.
pub fn dropped_queue(drive: &Drive, choice: Choice) {
    let mut rig = Rig::new(drive, choice);
    for tag in 0..DEPTH as u64 {
        let payload = rig.pieces(&vec![3; 64 << 10], &[4096], 0);
        rig.queue
            .submit(&rig.drive, tag, Operation::Write { at: tag << 16, payload, durable: true })
            .unwrap();
    }
    rig.queue.kick().unwrap();
    drop(rig);
    let mut rig = Rig::new(drive, choice);
    rig.write(0, &[4; 4096], true).unwrap();
    assert_eq!(rig.read(0, 4096), Ok(vec![4; 4096]));
}

/// Everything that a drive of some megabytes must do.
pub fn all(drive: &Drive, seed: u64) {
    for (choice, seed) in ENGINES.into_iter().zip(seed..) {
        let blank = Operation::Zero { at: 0, bytes: drive.info().bytes, deallocate: true, durable: false };
        Rig::new(drive, choice).run(blank).unwrap();
        for block in [512, 4096].into_iter().filter(|block| *block >= drive.info().block_bytes as usize) {
            model(drive, choice, block, seed);
            let blank =
                Operation::Zero { at: 0, bytes: drive.info().bytes, deallocate: false, durable: true };
            Rig::new(drive, choice).run(blank).unwrap();
        }
        refusals(drive, choice);
        full_queue(drive, choice);
        dropped_queue(drive, choice);
    }
}
