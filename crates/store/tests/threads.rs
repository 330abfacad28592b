//! Tests concurrent readers and writers: a READ sees a whole WRITE or none of it, and the data that
//! were read do not change.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use smallvec::SmallVec;
use store::{
    Caller, CreateMode, FileKind, MemStore, NewObject, ObjectId, Segment, SetAttributes, Stability, Store,
    Wait,
};

const ANN: Caller<'static> = Caller { uid: 1000, gid: 100, gids: &[] };
const BLOCKS: u64 = 24;
const ROUNDS: u64 = 3000;

fn file(store: &MemStore, name: &[u8]) -> ObjectId {
    let set = SetAttributes { mode: Some(0o644), ..SetAttributes::default() };
    store.create(ANN, store.root(), name, NewObject::File(CreateMode::Unchecked(set))).1.unwrap().object
}

/// Writes a stamp into each 16 bytes: the number of the block and the round that wrote it.
fn stamp(block: &mut [u8], number: u64, round: u64) {
    for piece in block.chunks_exact_mut(16) {
        piece[..8].copy_from_slice(&number.to_le_bytes());
        piece[8..].copy_from_slice(&round.to_le_bytes());
    }
}

/// Checks that all of a block is of one round; returns the round.
fn check(segments: &[Segment], number: u64) -> u64 {
    let bytes: Vec<u8> = segments.iter().flat_map(|segment| segment.as_bytes().unwrap()).copied().collect();
    let round = u64::from_le_bytes(bytes[8..16].try_into().unwrap());
    let mut expected = vec![0; bytes.len()];
    stamp(&mut expected, number, round);
    assert!(bytes == expected, "block {number} is torn");
    round
}

/// Small pseudo-random numbers, the same in each run.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % bound
    }
}

fn hammer(block_bytes: u64, in_place: bool) {
    let store = &MemStore::new(64 << 20, 1000, 100);
    let objects = &[file(store, b"one"), file(store, b"other")];
    // Not a multiple of a page, so that neighbouring blocks share pages.
    let offset = |number: u64| 1000 + number * block_bytes;
    let done = &AtomicBool::new(false);
    let reads = &AtomicU64::new(0);
    let put = move |object, number, round| {
        let mut block = vec![0; block_bytes as usize];
        stamp(&mut block, number, round);
        if !in_place {
            store
                .write(ANN, object, offset(number), &block, Stability::Unstable, Wait::Allowed)
                .unwrap()
                .1
                .unwrap();
            return;
        }
        let mut receive_buffer = store.receive_buffer(offset(number), block_bytes as u32).unwrap();
        let mut slices = SmallVec::new();
        receive_buffer.unfilled(0, &mut slices);
        let mut rest = &block[..];
        for slice in &mut slices {
            let (now, later) = rest.split_at(slice.len());
            slice.copy_from_slice(now);
            rest = later;
        }
        drop(slices);
        store
            .write_received(ANN, object, &mut Some(receive_buffer), Stability::Unstable, Wait::Allowed)
            .unwrap()
            .1
            .unwrap();
    };
    for &object in objects {
        (0..BLOCKS).for_each(|number| put(object, number, 0));
    }
    thread::scope(|scope| {
        let writers: Vec<_> = (0..2u64)
            .map(|seed| {
                scope.spawn(move || {
                    let mut draw = Draw(seed);
                    for round in 1..ROUNDS {
                        put(objects[draw.below(2) as usize], draw.below(BLOCKS), round);
                    }
                })
            })
            .collect();
        for seed in 0..2u64 {
            scope.spawn(move || {
                let mut draw = Draw(seed + 100);
                // Segments that are held during many writes, each with its number and round.
                let mut held: Vec<(u64, u64, SmallVec<[Segment; 1]>)> = Vec::new();
                while !done.load(Ordering::Relaxed) {
                    let number = draw.below(BLOCKS);
                    let mut out = SmallVec::new();
                    let object = objects[draw.below(2) as usize];
                    store
                        .read(ANN, object, offset(number), block_bytes as u32, &mut out, Wait::Allowed)
                        .unwrap()
                        .unwrap();
                    let round = check(&out, number);
                    held.push((number, round, out));
                    if held.len() > 8 {
                        let (number, round, out) = held.swap_remove(draw.below(8) as usize);
                        assert_eq!(check(&out, number), round, "data that were read have changed");
                    }
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let ended: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        done.store(true, Ordering::Relaxed);
        assert!(ended.iter().all(Result::is_ok));
    });
    assert!(reads.load(Ordering::Relaxed) > 0);
    assert_eq!(store.statistics().pins, 0);
    for name in [&b"one"[..], b"other"] {
        store.remove(ANN, store.root(), name).1.unwrap();
    }
    assert_eq!(store.statistics().arenas, 0, "no page was lost");
    assert_eq!(store.statistics().bytes_used, MemStore::new(1 << 20, 0, 0).statistics().bytes_used);
}

#[test]
fn a_read_sees_a_whole_small_write_or_none_of_it() {
    hammer(4096, false);
}

#[test]
fn a_read_sees_a_whole_medium_write_or_none_of_it() {
    hammer(20_000, false);
}

#[test]
fn a_read_sees_a_whole_write_received_in_place_or_none_of_it() {
    hammer(100_000, true);
}

#[test]
fn the_tree_stays_consistent_while_threads_move_and_remove_names() {
    let store = &MemStore::new(64 << 20, 1000, 100);
    let root = store.root();
    let directory = |parent, name: &[u8]| {
        let set = SetAttributes { mode: Some(0o755), ..SetAttributes::default() };
        store.create(ANN, parent, name, NewObject::Directory(set)).1.map(|made| made.object)
    };
    let tops = [directory(root, b"a").unwrap(), directory(root, b"b").unwrap(), root];
    thread::scope(|scope| {
        for seed in 0..4u64 {
            scope.spawn(move || {
                let mut draw = Draw(seed);
                let name = |draw: &mut Draw| format!("n{}", draw.below(5)).into_bytes();
                let pick = |draw: &mut Draw| {
                    let top = tops[draw.below(3) as usize];
                    let below = store
                        .lookup(ANN, top, format!("n{}", draw.below(5)).as_bytes(), Wait::Allowed)
                        .unwrap()
                        .1;
                    if draw.below(2) == 0 { top } else { below.map_or(top, |found| found.object) }
                };
                for _ in 0..5000 {
                    let (one, other) = (pick(&mut draw), pick(&mut draw));
                    let (from, to) = (name(&mut draw), name(&mut draw));
                    match draw.below(7) {
                        0 => drop(directory(one, &from)),
                        1 => drop(
                            store
                                .create(
                                    ANN,
                                    one,
                                    &from,
                                    NewObject::File(CreateMode::Unchecked(SetAttributes::default())),
                                )
                                .1,
                        ),
                        2 => drop(store.rename(ANN, (one, &from), (other, &to)).2),
                        3 => drop(store.remove(ANN, one, &from).1),
                        4 => drop(store.remove_directory(ANN, one, &from).1),
                        5 => drop(store.link(ANN, one, other, &to).2),
                        _ => drop(store.read_directory(ANN, one, 0, &mut |_| true)),
                    }
                }
            });
        }
    });
    // Every object that is left is in the tree, once.
    fn count(store: &MemStore, at: ObjectId, seen: &mut std::collections::HashSet<ObjectId>) {
        let mut below = Vec::new();
        let visit = &mut |entry: store::Entry<'_>| {
            if entry.cookie > 2 {
                below.push(*entry.found);
            }
            true
        };
        store.read_directory(ANN, at, 0, visit).unwrap();
        let directories = below.iter().filter(|found| found.attributes.kind == FileKind::Directory).count();
        assert_eq!(store.attributes(at, Wait::Allowed).unwrap().unwrap().nlink as usize, 2 + directories);
        for found in below {
            if seen.insert(found.object) && found.attributes.kind == FileKind::Directory {
                count(store, found.object, seen);
            }
        }
    }
    let mut seen = std::collections::HashSet::from([root]);
    count(store, root, &mut seen);
    assert_eq!(store.statistics().objects, seen.len() as u64);
}
