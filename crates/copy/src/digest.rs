//! A hash of a file that depends neither on how the file was cut into blocks, nor on whether zeros
//! were holes.
//!
//! The file is divided into chunks at fixed offsets. Each chunk is hashed with its number as the
//! seed, a chunk of zeros counts as nothing, and the hash of the file is the sum of all. So a hole
//! need not be read to be hashed.

use xxhash_rust::xxh3::xxh3_128_with_seed;

/// Bytes of a chunk.
const CHUNK_BYTES: usize = 64 << 10;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Digest {
    sum: u128,
    /// The number of the chunk that begins with `part`.
    chunk: u64,
    part: Vec<u8>,
}

impl Digest {
    /// Adds bytes; offsets must increase.
    pub(crate) fn add(&mut self, mut offset: u64, mut data: &[u8]) {
        while !data.is_empty() {
            let chunk = offset / CHUNK_BYTES as u64;
            let within = usize::try_from(offset % CHUNK_BYTES as u64).unwrap_or_default();
            if chunk != self.chunk {
                self.flush();
                self.chunk = chunk;
            }
            let (now, later) = data.split_at(data.len().min(CHUNK_BYTES - within));
            if self.part.is_empty() && within == 0 && now.len() == CHUNK_BYTES {
                self.sum = self.sum.wrapping_add(hash(chunk, now));
            } else {
                self.part.resize(within.max(self.part.len()), 0);
                self.part.extend_from_slice(now);
                if self.part.len() >= CHUNK_BYTES {
                    self.flush();
                }
            }
            offset += now.len() as u64;
            data = later;
        }
    }

    fn flush(&mut self) {
        if !self.part.is_empty() {
            self.part.resize(CHUNK_BYTES, 0);
            self.sum = self.sum.wrapping_add(hash(self.chunk, &self.part));
            self.part.clear();
        }
    }

    /// The hash of all bytes added.
    pub(crate) fn finish(mut self) -> u128 {
        self.flush();
        self.sum
    }
}

fn hash(chunk: u64, data: &[u8]) -> u128 {
    if is_zero(data) { 0 } else { xxh3_128_with_seed(data, chunk) }
}

/// Whether all bytes are zero. Most data differ in their first bytes.
pub(crate) fn is_zero(data: &[u8]) -> bool {
    let (describe, rest) = data.as_chunks::<32>();
    describe.iter().all(|word| *word == [0; 32]) && rest.iter().all(|byte| *byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(data: &[u8]) -> u128 {
        let mut digest = Digest::default();
        digest.add(0, data);
        digest.finish()
    }

    fn data() -> Vec<u8> {
        let mut data: Vec<u8> = (0..300_001_u32).map(|at| (at * 7 / 3) as u8).collect();
        data[70_000..200_000].fill(0);
        data
    }

    #[test]
    fn the_cut_makes_no_difference() {
        let data = data();
        for step in [1000, 4096, 65_536, 65_537, 131_072, 400_000] {
            let mut digest = Digest::default();
            for (index, part) in data.chunks(step).enumerate() {
                digest.add((index * step) as u64, part);
            }
            assert_eq!(digest.finish(), whole(&data), "{step}");
        }
    }

    #[test]
    fn a_hole_counts_as_its_zeros() {
        let data = data();
        let mut digest = Digest::default();
        digest.add(0, &data[..70_000]);
        digest.add(200_000, &data[200_000..]);
        assert_eq!(digest.finish(), whole(&data));
    }

    #[test]
    fn a_changed_or_moved_byte_shows() {
        let data = data();
        let mut other = data.clone();
        other[250_000] ^= 1;
        assert_ne!(whole(&other), whole(&data));
        let mut moved = data.clone();
        moved.rotate_right(65_536);
        assert_ne!(whole(&moved), whole(&data));
        let mut filled = data.clone();
        filled[150_000] = 1;
        assert_ne!(whole(&filled), whole(&data));
    }
}
