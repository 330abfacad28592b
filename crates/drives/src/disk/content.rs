//! Data that no program recognizes, on a file or device that was no drive before: a database
//! without a file system, or a volume whose identity was lost.
//!
//! Samples are read. All zeroes count as empty: what was never written, or was erased.

use super::Disk;
use crate::error::{Error, Result};
use crate::signature::Signature;
use rustix::fs::{SeekFrom, seek};
use std::collections::BTreeSet;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// How much is read at the beginning, at the end, and where a file first has data.
const SAMPLE_BYTES: u64 = 1 << 20;

/// The first data in the samples, if there are any.
pub(super) fn probe(path: &Path, disk: &Disk, bytes: u64) -> Result<Option<Signature>> {
    let length = SAMPLE_BYTES.min(bytes);
    let mut memory = vec![0; length as usize + disk.memory_align];
    let start = memory.as_ptr().align_offset(disk.memory_align);
    let (_, memory) = memory.split_at_mut(start);
    let (sample, _) = memory.split_at_mut(length as usize);
    for offset in samples(disk, bytes, length) {
        disk.file.read_exact_at(sample, offset).map_err(Error::system("read", path))?;
        if let Some(at) = sample.iter().position(|byte| *byte != 0) {
            let kind = "data that nothing recognizes".to_owned();
            return Ok(Some(Signature { kind, label: None, offset: format!("{:#x}", offset + at as u64) }));
        }
    }
    Ok(None)
}

/// Where the samples begin, in whole blocks.
fn samples(disk: &Disk, bytes: u64, length: u64) -> BTreeSet<u64> {
    let last = bytes - length;
    // A device has data everywhere, as far as the system knows.
    let first_data = seek(&disk.file, SeekFrom::Data(0)).ok().filter(|_| !disk.is_device);
    let first_data = first_data.map(|at| (at - at % u64::from(disk.block_bytes)).min(last));
    [0, last].into_iter().chain(first_data).collect()
}
