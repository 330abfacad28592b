//! Checks whether reads of one register go back in time.
//!
//! All operations of one value, its write and the reads that returned it, span a zone: from the
//! first end to the last begin. If the first end is the earlier of the two, the register must have
//! had the value during the whole zone. Such zones must not overlap, and no value may have all its
//! operations within the zone of another. These rules are equivalent to the linearizability of a
//! register in which each value is written once (Gibbons and Korach, "Testing Shared Memories",
//! 1997).
//!
//! Zeros, which do not identify their write, and torn reads are left out: the rest of a correct
//! history is correct. Reads that bypass the kernel's cache are checked separately from those
//! through the cache: during a write one kind may see the write before the other.

use crate::check::{Finding, Read, Write, Wrong};
use std::collections::HashMap;

/// The operations of one value that bound its zone.
#[derive(Debug, Clone, Copy)]
struct Zone {
    word: u64,
    /// When the first operation ended, and its index.
    first_end: (u64, usize),
    /// When the last operation began, and its index.
    last_begin: (u64, usize),
}

impl Zone {
    fn is_forward(&self) -> bool {
        self.first_end.0 < self.last_begin.0
    }
}

/// A contradiction between reads of a cell, if any.
pub fn inversion(writes: &[Write], reads: &[Read], cell: u32) -> Option<Finding> {
    [false, true].into_iter().find_map(|direct| {
        let reads = reads.iter().filter(|read| read.direct == direct && read.words.len() == 1);
        let (outer, inner) = overlap(zones(writes, reads.collect()))?;
        let ops = vec![outer.last_begin.1, outer.first_end.1, inner.first_end.1, inner.last_begin.1];
        Some(Finding { wrong: Wrong::Backwards, cell, ops, words: vec![outer.word] })
    })
}

fn zones(writes: &[Write], reads: Vec<&Read>) -> Vec<Zone> {
    let mut zones: HashMap<u64, Zone> = HashMap::new();
    for write in writes.iter().filter(|write| write.word != 0) {
        let Some(op) = write.op else { continue };
        let zone = Zone { word: write.word, first_end: (write.end, op), last_begin: (write.begin, op) };
        zones.insert(write.word, zone);
    }
    for read in reads {
        if let Some(zone) = zones.get_mut(&read.words[0]) {
            zone.first_end = zone.first_end.min((read.end, read.op));
            zone.last_begin = zone.last_begin.max((read.begin, read.op));
        }
    }
    zones.into_values().collect()
}

/// Two zones that exclude each other; if one lies within the other, the outer one first.
fn overlap(zones: Vec<Zone>) -> Option<(Zone, Zone)> {
    let (mut forward, backward): (Vec<_>, Vec<_>) = zones.into_iter().partition(Zone::is_forward);
    forward.sort_by_key(|zone| zone.first_end);
    let crossing = forward.windows(2).find(|pair| pair[1].first_end.0 < pair[0].last_begin.0);
    if let Some(&[one, other]) = crossing {
        return Some((one, other));
    }
    backward.into_iter().find_map(|inner| {
        let after = forward.partition_point(|outer| outer.first_end.0 < inner.last_begin.0);
        let outer = forward[..after].last()?;
        (inner.first_end.0 < outer.last_begin.0).then_some((*outer, inner))
    })
}
