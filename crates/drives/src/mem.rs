//! The memory drive: a sparse array of chunks within a bound.
//!
//! A read takes no copy: it shares the chunks that it covers, and a write that comes meanwhile
//! replaces them instead of changing them. A write of a whole chunk in a buffer of its own takes no
//! copy either, the buffer becomes the chunk; other writes are copied into their chunks. Chunks are
//! as long as the extents of the memory store, because gathering pages is slow; the price is that a
//! small write into a chunk that is being read copies the chunk.

use crate::operation::Fault;
use crate::payload::{CHUNK_BYTES, Payload, Segment};
use memory::{Buffer, Buffers};
use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Parts of the table, each with a lock of its own, so that loops seldom wait for each other.
const SHARDS: u64 = 64;

type Shard = HashMap<u64, Arc<Buffer>>;

/// Content in memory. Chunks that were never written, or were given back, read as zeros.
pub(crate) struct Memory {
    shards: Box<[Mutex<Shard>]>,
    pool: Arc<Buffers>,
    used_bytes: AtomicU64,
    used_bytes_max: u64,
}

/// The part of a range in one chunk.
struct Part {
    chunk: u64,
    from: usize,
    len: usize,
}

/// Cuts a range at the borders of chunks.
fn parts(at: u64, bytes: u64) -> impl Iterator<Item = Part> {
    let (mut at, end) = (at, at + bytes);
    std::iter::from_fn(move || {
        let from = at % CHUNK_BYTES as u64;
        let len = (CHUNK_BYTES as u64 - from).min(end - at);
        let part = Part { chunk: at / CHUNK_BYTES as u64, from: from as usize, len: len as usize };
        at += len;
        (len > 0).then_some(part)
    })
}

impl Memory {
    pub fn new(used_bytes_max: u64) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        // What is not full counts as a whole chunk.
        let used_bytes_max = used_bytes_max.checked_next_multiple_of(CHUNK_BYTES as u64).unwrap_or(u64::MAX);
        Self { shards, pool: Arc::default(), used_bytes: AtomicU64::new(0), used_bytes_max }
    }

    pub fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Ordering::Relaxed)
    }

    pub fn read(&self, at: u64, bytes: usize) -> Payload {
        let segment = |part: Part| match self.shard(part.chunk).get(&part.chunk) {
            Some(chunk) => Segment::shared(Arc::clone(chunk), part.from, part.len),
            None => Segment::zeros(part.len),
        };
        parts(at, bytes as u64).map(segment).collect()
    }

    pub fn write(&self, at: u64, payload: Payload) -> Result<(), Fault> {
        let mut at = at;
        for segment in payload {
            let bytes = segment.len() as u64;
            if segment.len() == CHUNK_BYTES && at.is_multiple_of(bytes) {
                self.write_chunk(at / bytes, segment)?;
            } else {
                let mut left = segment.as_bytes();
                for part in parts(at, bytes) {
                    let (now, later) = left.split_at(part.len);
                    self.change(&part, |chunk| chunk.copy_from_slice(now))?;
                    left = later;
                }
            }
            at += bytes;
        }
        Ok(())
    }

    /// Has a range read as zeros. Whole chunks are given back if they may be.
    pub fn zero(&self, at: u64, bytes: u64, deallocate: bool) -> Result<(), Fault> {
        let (chunk, end) = (CHUNK_BYTES as u64, at + bytes);
        let whole = at.div_ceil(chunk)..end / chunk;
        if whole.start >= whole.end {
            return self.fill(at, bytes);
        }
        let (head, tail) = (whole.start * chunk, whole.end * chunk);
        self.fill(at, head - at)?;
        self.fill(tail, end - tail)?;
        for first in whole.start..whole.end.min(whole.start + SHARDS) {
            let mut shard = self.shard(first);
            if deallocate {
                self.give_back(&mut shard, first, &whole);
                continue;
            }
            let there: Vec<u64> = shard.keys().copied().filter(|chunk| whole.contains(chunk)).collect();
            drop(shard);
            there.into_iter().try_for_each(|number| self.fill(number * chunk, chunk))?;
        }
        Ok(())
    }

    /// Writes zeros where there is something else.
    fn fill(&self, at: u64, bytes: u64) -> Result<(), Fault> {
        for part in parts(at, bytes) {
            if self.shard(part.chunk).contains_key(&part.chunk) {
                self.change(&part, |chunk| chunk.fill(0))?;
            }
        }
        Ok(())
    }

    fn shard(&self, chunk: u64) -> MutexGuard<'_, Shard> {
        // Each change of a table is one step, so a panic elsewhere leaves it whole.
        self.shards[(chunk % SHARDS) as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts the content of a whole chunk in its place.
    fn write_chunk(&self, chunk: u64, content: Segment) -> Result<(), Fault> {
        let buffer = content.into_whole().unwrap_or_else(|shared| {
            let mut copy = self.pool.take(CHUNK_BYTES);
            copy.copy_from_slice(shared.as_bytes());
            copy
        });
        let mut shard = self.shard(chunk);
        if !shard.contains_key(&chunk) {
            self.charge()?;
        }
        let before = shard.insert(chunk, Arc::new(buffer));
        drop(shard);
        drop(before);
        Ok(())
    }

    /// Changes a part of a chunk: in place if nobody reads it, otherwise in a copy.
    fn change(&self, part: &Part, change: impl FnOnce(&mut [u8])) -> Result<(), Fault> {
        let range = part.from..part.from + part.len;
        let mut shard = self.shard(part.chunk);
        if let Some(buffer) = shard.get_mut(&part.chunk).and_then(Arc::get_mut) {
            change(buffer.get_mut(range).unwrap_or_default());
            return Ok(());
        }
        let mut buffer = self.pool.take(CHUNK_BYTES);
        match shard.get(&part.chunk) {
            Some(before) => buffer.copy_from_slice(before),
            None => {
                self.charge()?;
                buffer.fill(0);
            }
        }
        change(buffer.get_mut(range).unwrap_or_default());
        shard.insert(part.chunk, Arc::new(buffer));
        Ok(())
    }

    fn charge(&self) -> Result<(), Fault> {
        let more = |used: u64| Some(used + CHUNK_BYTES as u64).filter(|used| *used <= self.used_bytes_max);
        let charged = self.used_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        charged.map(drop).map_err(|_| Fault::NoSpace)
    }

    /// Gives back the chunks of a range that are in the shard of its chunk `first`.
    fn give_back(&self, shard: &mut Shard, first: u64, chunks: &Range<u64>) {
        let before = shard.len();
        // Whichever is shorter: the range or the table.
        if (chunks.end - first).div_ceil(SHARDS) < before as u64 {
            for chunk in (first..chunks.end).step_by(SHARDS as usize) {
                shard.remove(&chunk);
            }
        } else {
            shard.retain(|chunk, _| !chunks.contains(chunk));
        }
        let gone = (before - shard.len()) * CHUNK_BYTES;
        self.used_bytes.fetch_sub(gone as u64, Ordering::Relaxed);
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} bytes", self.used_bytes(), self.used_bytes_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::payload_bytes;

    const CHUNK: u64 = CHUNK_BYTES as u64;

    fn filled(pool: &Arc<Buffers>, bytes: usize, with: u8) -> Payload {
        let mut buffer = pool.take(bytes);
        buffer.fill(with);
        std::iter::once(Segment::from(buffer)).collect()
    }

    fn bytes(payload: &Payload) -> Vec<u8> {
        payload.iter().flat_map(|segment| segment.as_bytes().to_vec()).collect()
    }

    #[test]
    fn a_read_shares_the_memory_and_does_not_see_later_writes() {
        let (memory, pool) = (Memory::new(8 * CHUNK), Arc::new(Buffers::default()));
        let chunk = filled(&pool, CHUNK_BYTES, 1);
        let place = chunk[0].as_bytes().as_ptr();
        memory.write(CHUNK, chunk).unwrap();
        let read = memory.read(CHUNK, CHUNK_BYTES);
        assert_eq!(read[0].as_bytes().as_ptr(), place, "the buffer became the chunk");
        memory.write(CHUNK, filled(&pool, 512, 2)).unwrap();
        assert!(bytes(&read).iter().all(|byte| *byte == 1));
        drop(read);
        let read = memory.read(CHUNK, 1024);
        let place = read[0].as_bytes().as_ptr();
        assert_eq!((bytes(&read)[511], bytes(&read)[512]), (2, 1));
        drop(read);
        memory.write(CHUNK, filled(&pool, 512, 3)).unwrap();
        let read = memory.read(CHUNK, 512);
        assert_eq!(read[0].as_bytes().as_ptr(), place, "nobody read it, so it was changed in place");
        assert_eq!(memory.used_bytes(), CHUNK);
    }

    #[test]
    fn memory_is_bounded_and_given_back() {
        let (memory, pool) = (Memory::new(2 * CHUNK), Arc::new(Buffers::default()));
        memory.write(CHUNK - 512, filled(&pool, 1024, 5)).unwrap();
        assert_eq!(memory.write(2 * CHUNK, filled(&pool, 512, 6)), Err(Fault::NoSpace));
        assert_eq!(memory.write(2 * CHUNK, filled(&pool, CHUNK_BYTES, 6)), Err(Fault::NoSpace));
        memory.write(0, filled(&pool, 512, 7)).unwrap();
        memory.zero(0, 2 * CHUNK, false).unwrap();
        assert_eq!(memory.used_bytes(), 2 * CHUNK, "it was not to be given back");
        assert!(bytes(&memory.read(0, 2 * CHUNK_BYTES)).iter().all(|byte| *byte == 0));
        memory.write(512, filled(&pool, CHUNK_BYTES, 8)).unwrap();
        memory.zero(1024, CHUNK, true).unwrap();
        assert_eq!(memory.used_bytes(), 2 * CHUNK, "neither chunk is whole in the range");
        let rest = bytes(&memory.read(0, 2 * CHUNK_BYTES));
        assert_eq!(rest.iter().filter(|byte| **byte == 8).count(), 512);
        memory.zero(1, 1 << 50, false).unwrap();
        assert_eq!(memory.used_bytes(), 2 * CHUNK, "a range is no longer than what is there");
        memory.zero(0, 1 << 50, true).unwrap();
        assert_eq!(memory.used_bytes(), 0);
        assert_eq!(payload_bytes(&memory.read(1 << 49, 3 * CHUNK_BYTES)), 3 * CHUNK_BYTES);
    }

    #[test]
    fn memory_whose_size_is_no_multiple_of_a_chunk_can_be_filled() {
        let (memory, pool) = (Memory::new(CHUNK + 512), Arc::new(Buffers::default()));
        memory.write(0, filled(&pool, CHUNK_BYTES, 5)).unwrap();
        memory.write(CHUNK, filled(&pool, 512, 6)).unwrap();
        assert_eq!(memory.write(2 * CHUNK, filled(&pool, 512, 6)), Err(Fault::NoSpace));
        assert_eq!(Memory::new(u64::MAX).write(1 << 50, filled(&pool, 512, 6)), Ok(()));
    }
}
