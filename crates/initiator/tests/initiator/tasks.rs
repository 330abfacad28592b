//! Tasks on the loop of an attachment.

use crate::fixture::{PATIENCE, attach, config, target};
use initiator::{Completion, Error, Io, Operation, Task};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

const BLOCK: usize = 4096;

/// Writes blocks one after another, each with its number, then reads them back in the same way.
struct Cycle {
    blocks: u64,
    done: u64,
    /// The wrong blocks, once all are read.
    over: Option<Sender<Vec<u64>>>,
    wrong: Vec<u64>,
}

impl Cycle {
    fn submit(&self, io: &mut Io<'_>) {
        let block = self.done % self.blocks;
        let offset = block * BLOCK as u64;
        let memory = vec![u8::try_from(block % 251).unwrap(); BLOCK];
        if self.done < self.blocks {
            io.submit(Operation::Write { offset, data: Arc::new(memory), durable: false }, block);
        } else {
            io.submit(Operation::Read { offset, memory: vec![0; BLOCK] }, block);
        }
    }
}

impl Task for Cycle {
    fn start(&mut self, io: &mut Io<'_>) {
        self.submit(io);
    }

    fn finished(&mut self, io: &mut Io<'_>, completion: Completion) {
        let block = completion.cookie;
        assert_eq!(block, self.done % self.blocks);
        let memory = completion.result.unwrap();
        if self.done >= self.blocks && memory != vec![u8::try_from(block % 251).unwrap(); BLOCK] {
            self.wrong.push(block);
        }
        self.done += 1;
        if self.done < 2 * self.blocks {
            self.submit(io);
        } else if let Some(over) = self.over.take() {
            over.send(std::mem::take(&mut self.wrong)).unwrap();
        }
    }

    fn ended(&self) -> bool {
        self.over.is_none()
    }
}

#[test]
fn tasks_on_the_loop_write_and_read_beside_other_callers() {
    let target = target();
    let (_attachment, volume) = attach(config(target.addresses().to_vec()));
    let (over, outcome) = channel();
    volume.spawn(Box::new(Cycle { blocks: 300, done: 0, over: Some(over), wrong: Vec::new() }));
    let far = 32 << 20;
    for round in 0..50_u8 {
        volume.write(far, vec![round; BLOCK]).unwrap();
        assert_eq!(volume.read(far, BLOCK).unwrap(), vec![round; BLOCK]);
    }
    assert_eq!(outcome.recv_timeout(PATIENCE).unwrap(), [] as [u64; 0]);
}

/// Submits what is refused at once, several times from within the completion of the one before.
struct Refused {
    left: u32,
    over: Sender<Error>,
}

impl Task for Refused {
    fn start(&mut self, io: &mut Io<'_>) {
        io.submit(Operation::Read { offset: u64::MAX - 8191, memory: vec![0; BLOCK] }, 0);
    }

    fn finished(&mut self, io: &mut Io<'_>, completion: Completion) {
        self.left -= 1;
        match completion.result {
            Err(error) if self.left == 0 => self.over.send(error).unwrap(),
            Err(_) => self.start(io),
            Ok(_) => panic!("nothing is there"),
        }
    }

    fn ended(&self) -> bool {
        self.left == 0
    }
}

#[test]
fn a_task_is_told_of_what_is_refused_at_once() {
    let target = target();
    let (_attachment, volume) = attach(config(target.addresses().to_vec()));
    let (over, outcome) = channel();
    volume.spawn(Box::new(Refused { left: 3, over }));
    let error = outcome.recv_timeout(PATIENCE).unwrap();
    assert!(matches!(error, Error::OutOfRange { .. }), "{error}");
}

/// Waits, and says how long it has waited.
struct Sleeper {
    since: Instant,
    time: Duration,
    over: Option<Sender<Duration>>,
}

impl Task for Sleeper {
    fn start(&mut self, _io: &mut Io<'_>) {}

    fn finished(&mut self, _io: &mut Io<'_>, _completion: Completion) {}

    fn wakes_in(&self) -> Option<Duration> {
        self.over.as_ref().map(|_| self.time.saturating_sub(self.since.elapsed()))
    }

    fn woken(&mut self, _io: &mut Io<'_>) {
        let waited = self.since.elapsed();
        self.over.take().into_iter().for_each(|over| over.send(waited).unwrap());
    }

    fn ended(&self) -> bool {
        self.over.is_none()
    }
}

#[test]
fn a_task_is_woken_when_its_time_has_come_and_dropped_with_its_attachment() {
    let target = target();
    let (attachment, volume) = attach(config(target.addresses().to_vec()));
    let sleeper = |time| {
        let (over, outcome) = channel();
        volume.spawn(Box::new(Sleeper { since: Instant::now(), time, over: Some(over) }));
        outcome
    };
    let never = sleeper(Duration::from_secs(3600));
    let time = Duration::from_millis(30);
    assert!(sleeper(time).recv_timeout(PATIENCE).unwrap() >= time, "not before");
    drop(attachment);
    assert!(never.recv_timeout(PATIENCE).is_err(), "it is dropped");
}
