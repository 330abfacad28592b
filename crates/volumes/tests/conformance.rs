//! Volumes on every kind of drive, with both engines and both sizes of blocks: random commands
//! against a copy in memory, and several loops at once. Volumes on block devices are tested as
//! drives, in the suite `drives`.

use drives::{Drive, How};
use memory::Buffers;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::HashMap;
use std::sync::Arc;
use tempfile::TempDir;
use volumes::{
    BlockSize, Choice, Command, Event, Fault, Identity, Owner, Payload, Queue, Refusal, Segment, Volume,
};

const BYTES: usize = 8 << 20;
const DEPTH: usize = 32;
const ENGINES: [Choice; 2] = [Choice::Automatic, Choice::Workers];
const PATIENCE: Timespec = Timespec { tv_sec: 30, tv_nsec: 0 };

type End = Result<Vec<u8>, Fault>;

fn volume(drive: &Drive, block: BlockSize) -> Volume {
    Volume::new("v", Identity::of_uuid([3; 16]), drive, Some(block)).unwrap()
}

/// Runs a test on a volume of memory and on one in a file, with both sizes of blocks.
fn on_each(test: impl Fn(&Volume, Choice)) {
    let dir = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let how = How::Create { bytes: BYTES as u64, sparse: true };
    let file = Drive::open(&dir.path().join("drive.img"), how).unwrap();
    for drive in [Drive::memory(BYTES as u64, BYTES as u64), file] {
        for block in [BlockSize::B512, BlockSize::B4096] {
            if block.bytes() < drive.info().block_bytes {
                let refused = Volume::new("v", Identity::of_uuid([3; 16]), &drive, Some(block));
                assert!(matches!(refused, Err(volumes::Error::Block { .. })));
                continue;
            }
            ENGINES.into_iter().for_each(|engine| test(&volume(&drive, block), engine));
        }
    }
}

/// A loop with its queue.
struct Loop {
    volume: Volume,
    owner: Owner,
    queue: Queue,
    buffers: Arc<Buffers>,
}

impl Loop {
    fn new(volume: &Volume, engine: Choice) -> Self {
        let buffers = Arc::new(Buffers::default());
        let queue = Queue::new(DEPTH, engine, Arc::clone(&buffers)).unwrap();
        Self { volume: volume.clone(), owner: volume.open_owner().unwrap(), queue, buffers }
    }

    /// Submits commands together and waits for them; their ends in the order of submission.
    fn run_all(&mut self, commands: Vec<Command>) -> Vec<End> {
        let count = commands.len();
        for (tag, command) in (0..).zip(commands) {
            self.queue.submit(&self.volume, self.owner, tag, command).unwrap();
        }
        let (mut ends, mut events) = (HashMap::new(), Vec::new());
        loop {
            self.queue.turn(&mut |_| true, &mut events).unwrap();
            for event in events.drain(..) {
                let Event::Done { tag, result } = event else { panic!("nothing is drained") };
                let bytes = |read: Payload| read.iter().flat_map(|one| one.as_bytes().to_vec()).collect();
                assert!(ends.insert(tag, result.map(bytes)).is_none(), "ended twice");
            }
            if ends.len() == count {
                return (0..count as u64).map(|tag| ends.remove(&tag).unwrap()).collect();
            }
            match poll(&mut [PollFd::new(&self.queue, PollFlags::IN)], Some(&PATIENCE)) {
                Ok(ready) => assert!(ready > 0, "no event"),
                Err(error) => assert_eq!(error, rustix::io::Errno::INTR),
            }
        }
    }

    fn run(&mut self, command: Command) -> End {
        self.run_all(vec![command]).pop().unwrap()
    }

    /// A payload of pieces that begin `skew` bytes into their buffers.
    fn payload(&self, content: &[u8], len: usize, skew: usize) -> Payload {
        let piece = |part: &[u8]| {
            let mut buffer = self.buffers.take(part.len() + skew);
            buffer[skew..].copy_from_slice(part);
            Segment::shared(Arc::new(buffer), skew, part.len())
        };
        content.chunks(len).map(piece).collect()
    }
}

#[test]
fn commands_in_any_order_do_what_a_copy_in_memory_does() {
    on_each(|volume, engine| {
        let seed = u64::from(volume.block_size().bytes()) + u64::from(engine == Choice::Workers);
        let mut random = fastrand::Rng::with_seed(seed);
        let mut loops = [Loop::new(volume, engine), Loop::new(volume, engine)];
        let block = volume.block_size().bytes() as usize;
        let mut model = vec![0_u8; BYTES];
        let all = Command::WriteZeroes { lba: 0, blocks: volume.blocks(), deallocate: true, durable: false };
        loops[0].run(all).unwrap();
        for round in 0..40 {
            let looped = &mut loops[round % 2];
            // The commands overlap: they take effect in the order in which they are submitted.
            let (mut commands, mut expected) = (Vec::new(), Vec::new());
            let near = random.usize(0..BYTES / block - 300);
            for _ in 0..random.usize(1..=DEPTH) {
                let lba = near + random.usize(0..200);
                let len = random.usize(1..=100) * block;
                let range = lba * block..lba * block + len;
                let (piece, skew) = (random.usize(1..=len), random.usize(0..2) * random.usize(0..600));
                let (lba, blocks, durable) = (lba as u64, (len / block) as u32, random.u8(0..8) == 0);
                let mut end = Ok(Vec::new());
                commands.push(match random.u8(0..10) {
                    0..3 => {
                        end = Ok(model[range].to_vec());
                        Command::Read { lba, blocks }
                    }
                    3..6 => {
                        random.fill(&mut model[range.clone()]);
                        let payload = looped.payload(&model[range], piece, skew);
                        Command::Write { lba, payload, durable }
                    }
                    6 => {
                        model[range].fill(0);
                        let deallocate = random.bool();
                        Command::WriteZeroes { lba, blocks: blocks.into(), deallocate, durable }
                    }
                    7 => {
                        let again = range.start..range.start + block;
                        model[range].fill(0);
                        model[again].fill(0);
                        let ranges = [lba..lba + u64::from(blocks), lba..lba + 1];
                        Command::Discard { ranges: ranges.into_iter().collect() }
                    }
                    8 => {
                        let mut content = model[range].to_vec();
                        if random.bool() {
                            let at = random.usize(0..len);
                            content[at] ^= 1;
                            end = Err(Fault::Miscompare { at });
                        }
                        Command::Compare { lba, payload: looped.payload(&content, piece, skew) }
                    }
                    _ => {
                        let expected = looped.payload(&model[range.clone()], piece, skew);
                        random.fill(&mut model[range.clone()]);
                        let payload = looped.payload(&model[range], len, 0);
                        Command::CompareAndWrite { lba, expected, payload, durable }
                    }
                });
                expected.push(end);
            }
            assert!(looped.run_all(commands) == expected, "{volume:?}, {engine:?}, round {round}");
        }
        let blocks = (1 << 20) / block;
        for (lba, content) in (0..).step_by(blocks).zip(model.chunks(1 << 20)) {
            assert!(loops[0].run(Command::Read { lba, blocks: blocks as u32 }).unwrap() == content);
        }
    });
}

#[test]
fn a_read_sees_each_write_of_another_loop_wholly_or_not_at_all() {
    const ROUNDS: u8 = 60;
    const WRITE_BYTES: usize = 1 << 20;
    on_each(|volume, engine| {
        let blocks = WRITE_BYTES as u32 / volume.block_size().bytes();
        let blank =
            Command::WriteZeroes { lba: 0, blocks: volume.blocks(), deallocate: true, durable: false };
        Loop::new(volume, engine).run(blank).unwrap();
        std::thread::scope(|scope| {
            for base in [1, 101] {
                scope.spawn(move || {
                    let mut looped = Loop::new(volume, engine);
                    for mark in base..base + ROUNDS {
                        let payload = looped.payload(&vec![mark; WRITE_BYTES], 100 << 10, 0);
                        looped.run(Command::Write { lba: 1, payload, durable: false }).unwrap();
                    }
                });
            }
            scope.spawn(move || {
                let mut looped = Loop::new(volume, engine);
                for _ in 0..2 * ROUNDS {
                    let read = looped.run(Command::Read { lba: 1, blocks }).unwrap();
                    assert!(read.iter().all(|byte| *byte == read[0]), "a torn write");
                }
            });
        });
    });
}

#[test]
fn counters_in_blocks_lose_no_step_of_several_loops() {
    const STEPS: u64 = 40;
    on_each(|volume, engine| {
        let block = volume.block_size().bytes() as usize;
        let mut first = Loop::new(volume, engine);
        let payload = first.payload(&vec![0; block], block, 0);
        first.run(Command::Write { lba: 5, payload, durable: false }).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let mut looped = Loop::new(volume, engine);
                    let mut done = 0;
                    while done < STEPS {
                        let mut content = looped.run(Command::Read { lba: 5, blocks: 1 }).unwrap();
                        let expected = looped.payload(&content, block, 0);
                        let count = u64::from_le_bytes(content[..8].try_into().unwrap()) + 1;
                        content[..8].copy_from_slice(&count.to_le_bytes());
                        let payload = looped.payload(&content, 100, 7);
                        let swap = Command::CompareAndWrite { lba: 5, expected, payload, durable: false };
                        match looped.run(swap) {
                            Ok(_) => done += 1,
                            Err(fault) => assert!(matches!(fault, Fault::Miscompare { .. }), "{fault}"),
                        }
                    }
                });
            }
        });
        let content = first.run(Command::Read { lba: 5, blocks: 1 }).unwrap();
        assert_eq!(u64::from_le_bytes(content[..8].try_into().unwrap()), 3 * STEPS);
    });
}

#[test]
fn wrong_commands_come_back_and_change_nothing() {
    on_each(|volume, engine| {
        let mut looped = Loop::new(volume, engine);
        let block = volume.block_size().bytes() as usize;
        let payload = looped.payload(&vec![8; block], block, 0);
        looped.run(Command::Write { lba: volume.blocks() - 1, payload, durable: true }).unwrap();
        let mut refused = |command| {
            let rejected = looped.queue.submit(volume, looped.owner, 0, command).unwrap_err();
            rejected.why
        };
        let end = volume.blocks();
        for lba in [end, u64::MAX, u64::MAX / block as u64 + 1] {
            assert_eq!(refused(Command::Read { lba, blocks: 1 }), Refusal::OutOfRange);
            let zero = Command::WriteZeroes { lba, blocks: 1, deallocate: true, durable: false };
            assert_eq!(refused(zero), Refusal::OutOfRange);
            let discard =
                Command::Discard { ranges: [0..1, lba..lba.saturating_add(1)].into_iter().collect() };
            assert_eq!(refused(discard), Refusal::OutOfRange);
        }
        assert_eq!(refused(Command::Read { lba: end - 1, blocks: 2 }), Refusal::OutOfRange);
        assert_eq!(refused(Command::Read { lba: 0, blocks: u32::MAX }), Refusal::Length);
        let half = looped.payload(&vec![1; block + 1], block, 0);
        let mut refused = |command| looped.queue.submit(volume, looped.owner, 0, command).unwrap_err().why;
        assert_eq!(refused(Command::Write { lba: 0, payload: half, durable: false }), Refusal::Length);
        assert_eq!(looped.queue.in_flight(), 0);
        assert_eq!(looped.run(Command::Read { lba: end - 1, blocks: 1 }), Ok(vec![8; block]));
    });
}

#[test]
fn a_payload_is_not_copied_on_its_way_to_a_volume_nor_back() {
    on_each(|volume, engine| {
        let mut looped = Loop::new(volume, engine);
        let block = volume.block_size().bytes() as u64;
        let (lba, blocks) = ((64 << 10) / block, (1 << 20) / block as u32);
        let mut buffers = looped.queue.receive_buffers(volume, lba, 1 << 20);
        assert_eq!(buffers.iter().map(|buffer| buffer.len()).sum::<usize>(), 1 << 20);
        (1..).zip(&mut buffers).for_each(|(mark, buffer)| buffer.fill(mark));
        let places: Vec<_> = buffers.iter().map(|buffer| buffer.as_ptr()).collect();
        let bounced = volume.drive().bounced_bytes();
        let payload = buffers.into_iter().map(Segment::from).collect();
        looped.run(Command::Write { lba, payload, durable: false }).unwrap();
        assert_eq!(volume.drive().bounced_bytes(), bounced, "the memory was aligned");
        looped.queue.submit(volume, looped.owner, 7, Command::Read { lba, blocks }).unwrap();
        let mut events = Vec::new();
        while events.is_empty() {
            looped.queue.turn(&mut |_| true, &mut events).unwrap();
        }
        let Some(Event::Done { result: Ok(read), .. }) = events.pop() else { panic!("{events:?}") };
        assert_eq!((read[0].as_bytes()[0], drives::payload_bytes(&read)), (1, 1 << 20));
        if !volume.drive().info().persistent {
            let read: Vec<_> = read.iter().map(|segment| segment.as_bytes().as_ptr()).collect();
            assert_eq!(read, places, "the memory that was received into is what is sent");
        }
    });
}
