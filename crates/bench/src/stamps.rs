//! The content of an experiment's files, by which a wrong block is found.
//!
//! Each 4 KiB of a file begins with a 16-byte stamp: the file's number and the number of the page.
//! The rest is a fixed noise. Every timed read checks the stamps of its data. The whole payload is
//! compared in an untimed pass, because comparing all of it while timing costs more than a tenth of
//! the speed.

/// The size of a page; each page has a stamp.
pub const PAGE_BYTES: usize = 4096;
const STAMP_BYTES: usize = 16;
/// Marks a stamp, so that neither zeros nor noise are mistaken for one.
const MAGIC: u32 = 0x7472_756e;

/// The bytes of a page after its stamp.
fn noise() -> &'static [u8; PAGE_BYTES] {
    static NOISE: std::sync::OnceLock<[u8; PAGE_BYTES]> = std::sync::OnceLock::new();
    NOISE.get_or_init(|| {
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        std::array::from_fn(|_| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed.to_le_bytes()[3]
        })
    })
}

fn stamp(file: u32, page: u64) -> [u8; STAMP_BYTES] {
    let mut bytes = [0; STAMP_BYTES];
    let (head, tail) = bytes.split_at_mut(8);
    head.copy_from_slice(&(u64::from(MAGIC) << 32 | u64::from(file)).to_le_bytes());
    tail.copy_from_slice(&page.to_le_bytes());
    bytes
}

/// A buffer filled with noise, which a writer stamps repeatedly.
#[must_use]
pub fn noise_in(mut buffer: client::Buffer) -> client::Buffer {
    let noise = noise();
    for part in buffer.chunks_mut(noise.len().max(1)) {
        part.copy_from_slice(noise.get(..part.len()).unwrap_or_default());
    }
    buffer
}

/// Stamps the pages of a block at this offset of a file. Offset and length are multiples of 4 KiB.
#[inline]
pub fn write_stamps(block: &mut [u8], file: u32, offset: u64) {
    let first = offset / PAGE_BYTES as u64;
    for (page, bytes) in (first..).zip(block.chunks_mut(PAGE_BYTES)) {
        if let Some(place) = bytes.first_chunk_mut::<STAMP_BYTES>() {
            *place = stamp(file, page);
        }
    }
}

/// A block that differs from what was written there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("file {file} holds something else at byte {offset}: {what}")]
pub struct WrongBlock {
    /// The file's number within the experiment.
    pub file: u32,
    /// The offset in the file.
    pub offset: u64,
    /// The difference.
    pub what: &'static str,
}

/// Checks the stamps of a block or, with `whole`, every byte.
///
/// # Errors
/// The first page that differs.
#[inline]
pub fn check(block: &[u8], file: u32, offset: u64, whole: bool) -> Result<(), WrongBlock> {
    let first = offset / PAGE_BYTES as u64;
    for (page, bytes) in (first..).zip(block.chunks(PAGE_BYTES)) {
        let wrong = |what| WrongBlock { file, offset: page * PAGE_BYTES as u64, what };
        let Some((found, rest)) = bytes.split_first_chunk::<STAMP_BYTES>() else {
            return Err(wrong("less than a stamp"));
        };
        if *found != stamp(file, page) {
            return Err(wrong("the stamp"));
        }
        if whole && noise().get(STAMP_BYTES..STAMP_BYTES + rest.len()) != Some(rest) {
            return Err(wrong("the payload"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamped_block_passes_and_each_kind_of_damage_is_found() {
        let mut block = noise_in(vec![0; 3 * PAGE_BYTES].into());
        write_stamps(&mut block, 7, 40_960);
        assert_eq!(check(&block, 7, 40_960, true), Ok(()));
        assert_eq!(check(&block, 8, 40_960, false).unwrap_err().what, "the stamp");
        assert_eq!(check(&block, 7, 45_056, false).unwrap_err().offset, 45_056);
        let mut damaged = block.to_vec();
        damaged[PAGE_BYTES + 100] ^= 1;
        assert_eq!(check(&damaged, 7, 40_960, false), Ok(()));
        let wrong = check(&damaged, 7, 40_960, true).unwrap_err();
        assert_eq!((wrong.offset, wrong.what), (40_960 + 4096, "the payload"));
        let stale = noise_in(vec![0; PAGE_BYTES].into());
        assert!(check(&stale, 7, 0, false).is_err());
    }
}
