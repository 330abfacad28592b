//! A host with two paths to one volume, whose connections break while the device holds writes: it
//! sends them again on the other path at once, as the Linux host does, and goes on with newer
//! writes. From a seed, so that a failure can be repeated.
//!
//! What is checked after each step: a block without a write under way holds what the host was last
//! told to be there. An original that is executed after its retry would break that.

use super::*;
use crate::testing::{Faults, faulty_volume};
use crate::volume::BlockSize;
use drives::Segment;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

const SEEDS: u64 = 300;
const STEPS: usize = 400;
const BLOCKS: u64 = 12;
const BLOCK: u64 = 4096;

/// A write that the host waits for.
struct Outstanding {
    blocks: Range<u64>,
    mark: u32,
    path: usize,
}

/// A connection, as the target sees it.
struct Connection {
    owner: Owner,
    /// The host has given it up, which the target learns later.
    is_broken: bool,
}

struct Simulation {
    random: fastrand::Rng,
    volume: Volume,
    faults: Faults,
    queues: [Queue; 2],
    connections: [Connection; 2],
    buffers: Arc<Buffers>,
    /// The writes of the host by the tag under which they were sent last.
    outstanding: BTreeMap<u64, Outstanding>,
    /// The owner of each tag that was sent.
    sent: HashMap<u64, Owner>,
    next_tag: u64,
    next_mark: u32,
    acknowledged: [u32; BLOCKS as usize],
    drains: u64,
    drained: u64,
    retries: u64,
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let (volume, faults) = faulty_volume(BLOCKS, BlockSize::B4096, false);
        faults.hold_writes();
        let connection = |()| Connection { owner: volume.open_owner().unwrap(), is_broken: false };
        Self {
            random: fastrand::Rng::with_seed(seed),
            connections: [(), ()].map(connection),
            queues: [(); 2].map(|()| Queue::new(64, Choice::Workers, Arc::default()).unwrap()),
            volume,
            faults,
            buffers: Arc::default(),
            outstanding: BTreeMap::new(),
            sent: HashMap::new(),
            next_tag: 0,
            next_mark: 1,
            acknowledged: [0; BLOCKS as usize],
            drains: 0,
            drained: 0,
            retries: 0,
        }
    }

    fn send(&mut self, write: Outstanding) {
        let bytes = (write.blocks.end - write.blocks.start) * BLOCK;
        let mut buffer = self.buffers.take(bytes as usize);
        buffer.chunks_exact_mut(4).for_each(|word| word.copy_from_slice(&write.mark.to_le_bytes()));
        let payload = std::iter::once(Segment::from(buffer)).collect();
        let command = Command::Write { lba: write.blocks.start, payload, durable: false };
        let owner = self.connections[write.path].owner;
        self.queues[write.path].submit(&self.volume, owner, self.next_tag, command).unwrap();
        self.sent.insert(self.next_tag, owner);
        self.outstanding.insert(self.next_tag, write);
        self.next_tag += 1;
    }

    /// Sends a new write of blocks that no other write is under way for.
    fn write(&mut self) {
        let start = self.random.u64(0..BLOCKS);
        let blocks = start..(start + self.random.u64(1..4)).min(BLOCKS);
        let meets = |other: &Outstanding| other.blocks.start < blocks.end && blocks.start < other.blocks.end;
        let path = self.random.usize(0..2);
        if self.connections[path].is_broken || self.outstanding.values().any(meets) {
            return;
        }
        let mark = self.next_mark;
        self.next_mark += 1;
        self.send(Outstanding { blocks, mark, path });
    }

    /// The host gives a connection up, and sends its writes again on the other path.
    fn give_up(&mut self, path: usize) {
        if self.connections.iter().any(|connection| connection.is_broken) {
            return;
        }
        self.connections[path].is_broken = true;
        let moved: Vec<u64> =
            self.outstanding.iter().filter(|(_, write)| write.path == path).map(|(tag, _)| *tag).collect();
        for tag in moved {
            let write = self.outstanding.remove(&tag).unwrap();
            self.retries += 1;
            self.send(Outstanding { path: 1 - path, ..write });
        }
    }

    /// The target sees the end of a connection that the host has given up; the host connects again.
    fn see_the_end(&mut self, path: usize) {
        if self.connections[path].is_broken {
            assert!(self.queues[path].drain(&self.volume, self.connections[path].owner, u64::MAX));
            self.drains += 1;
            self.connections[path] =
                Connection { owner: self.volume.open_owner().unwrap(), is_broken: false };
        }
    }

    fn turn(&mut self, path: usize) {
        let (owner, sent) = (self.connections[path].owner, &self.sent);
        let mut events = Vec::new();
        // What the target knows: whether the command came on the connection that there is.
        self.queues[path].turn(&mut |tag| sent[&tag] == owner, &mut events).unwrap();
        for event in events {
            let (tag, result) = match event {
                Event::Done { tag, result } => (tag, result),
                Event::Drained { .. } => {
                    self.drained += 1;
                    continue;
                }
            };
            // An answer on a connection that the host has given up does not reach it.
            if let Some(write) = self.outstanding.remove(&tag) {
                assert!(result.is_ok(), "a write was cancelled whose connection was there");
                write.blocks.for_each(|block| self.acknowledged[block as usize] = write.mark);
            }
        }
    }

    fn check(&self, seed: u64) {
        for block in 0..BLOCKS {
            if self.outstanding.values().any(|write| write.blocks.contains(&block)) {
                continue;
            }
            let content = self.faults.content(block * BLOCK..block * BLOCK + 4);
            let mark = u32::from_le_bytes(content.try_into().unwrap());
            assert_eq!(mark, self.acknowledged[block as usize], "seed {seed}, block {block}");
        }
    }

    fn step(&mut self) {
        let path = self.random.usize(0..2);
        match self.random.u8(0..20) {
            0..8 => self.write(),
            8..12 => self.turn(path),
            12..17 => {
                let place = self.random.usize(0..self.faults.held().max(1));
                self.faults.release_nth(place);
            }
            17 => self.give_up(path),
            _ => self.see_the_end(path),
        }
    }
}

#[test]
fn no_late_original_undoes_a_newer_write_whatever_breaks_when() {
    let (mut retries, mut writes) = (0, 0);
    for seed in 0..SEEDS {
        let mut simulation = Simulation::new(seed);
        for _ in 0..STEPS {
            simulation.step();
            simulation.check(seed);
        }
        // All ends: nothing hangs, and each connection that ended was drained.
        (0..2).for_each(|path| simulation.see_the_end(path));
        while simulation.volume.commands() > 0 || simulation.drained < simulation.drains {
            let before = (simulation.volume.commands(), simulation.drained);
            simulation.faults.release_nth(0);
            (0..2).for_each(|path| simulation.turn(path));
            simulation.check(seed);
            let after = (simulation.volume.commands(), simulation.drained);
            assert!(before != after || simulation.faults.held() > 0, "seed {seed}: nothing goes on");
        }
        assert!(simulation.outstanding.is_empty(), "seed {seed}");
        (retries, writes) = (retries + simulation.retries, writes + simulation.next_mark);
    }
    assert!(retries > SEEDS && writes > 10 * SEEDS as u32, "{retries} retries of {writes} writes");
}
