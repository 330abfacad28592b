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
    fill_noise(&mut buffer);
    buffer
}

/// Fills memory with noise.
pub fn fill_noise(memory: &mut [u8]) {
    let noise = noise();
    for part in memory.chunks_mut(noise.len().max(1)) {
        part.copy_from_slice(noise.get(..part.len()).unwrap_or_default());
    }
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

/// Gives a block of any length its content at any offset of a file.
pub fn write_any(block: &mut [u8], file: u32, offset: u64) {
    for_pages(block.len(), offset, |page, within, part| {
        let Some(bytes) = block.get_mut(part) else { return };
        let noise = noise().get(within..within + bytes.len()).unwrap_or_default();
        bytes.copy_from_slice(noise);
        let stamp = stamp(file, page);
        for (byte, stamped) in bytes.iter_mut().zip(stamp.iter().skip(within)) {
            *byte = *stamped;
        }
    });
}

/// Checks a block of any length at any offset: the stamps that are in it as a whole or, of a block
/// shorter than a page, every byte. Returns the number of stamps.
///
/// # Errors
/// The first page that differs.
#[inline]
pub fn check_any(block: &[u8], file: u32, offset: u64) -> Result<u64, WrongBlock> {
    let page = PAGE_BYTES as u64;
    if offset.is_multiple_of(page) && block.len().is_multiple_of(PAGE_BYTES) {
        check(block, file, offset, false)?;
        return Ok(block.len() as u64 / page);
    }
    check_parts(block, file, offset, block.len() < PAGE_BYTES)
}

/// The same as [`check_any`]; with `whole`, every byte is compared.
///
/// # Errors
/// The first page that differs.
pub fn check_parts(block: &[u8], file: u32, offset: u64, whole: bool) -> Result<u64, WrongBlock> {
    let (mut stamps, mut wrong) = (0, None);
    for_pages(block.len(), offset, |page, within, part| {
        let bytes = block.get(part).unwrap_or_default();
        let (stamp, stamped) = (stamp(file, page), STAMP_BYTES.saturating_sub(within).min(bytes.len()));
        let is_stamped = within == 0 && stamped == STAMP_BYTES;
        let (head, rest) = bytes.split_at(stamped);
        let offset = page * PAGE_BYTES as u64 + within as u64;
        if (whole || is_stamped) && stamp.get(within..within + stamped).unwrap_or_default() != head {
            wrong.get_or_insert(WrongBlock { file, offset, what: "the stamp" });
        }
        let noise = noise().get(within + stamped..within + bytes.len()).unwrap_or_default();
        if whole && noise != rest {
            wrong.get_or_insert(WrongBlock { file, offset, what: "the payload" });
        }
        stamps += u64::from(is_stamped);
    });
    wrong.map_or(Ok(stamps), Err)
}

/// The parts of a block by page: the page's number, the first byte within it, and the part.
fn for_pages(len: usize, offset: u64, mut each: impl FnMut(u64, usize, std::ops::Range<usize>)) {
    let mut at = 0;
    while at < len {
        let from = offset + at as u64;
        let within = usize::try_from(from % PAGE_BYTES as u64).unwrap_or(0);
        let part = (PAGE_BYTES - within).min(len - at);
        each(from / PAGE_BYTES as u64, within, at..at + part);
        at += part;
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

    #[test]
    fn blocks_of_any_size_at_any_offset_agree_with_whole_pages() {
        let mut pages = noise_in(vec![0; 3 * PAGE_BYTES].into());
        write_stamps(&mut pages, 7, 8192);
        for (offset, len) in [(0, 1), (5, 20), (0, 512), (512, 512), (4090, 4200), (15, 4096), (1, 12_000)] {
            let mut block = vec![0; len];
            write_any(&mut block, 7, 8192 + offset as u64);
            assert_eq!(block, pages[offset..offset + len], "{len} bytes at {offset}");
            let at = 8192 + offset as u64;
            assert!(check_any(&block, 7, at).is_ok() && check_parts(&block, 7, at, true).is_ok());
            let last = block.len() - 1;
            block[last] ^= 1;
            assert!(check_parts(&block, 7, at, true).is_err(), "{len} bytes at {offset}");
        }
        assert_eq!(check_any(&pages[..512], 7, 8192), Ok(1));
        assert_eq!(check_any(&pages[512..1024], 7, 8704), Ok(0));
        assert_eq!(check_any(&pages[4000..9000], 7, 8192 + 4000), Ok(2));
        assert_eq!(check_any(&pages[4000..9000], 8, 8192 + 4000).unwrap_err().what, "the stamp");
    }
}
