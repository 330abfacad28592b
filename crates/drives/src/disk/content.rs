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

/// Data in the samples, as one signature at most.
pub(super) fn probe(path: &Path, disk: &Disk, bytes: u64) -> Result<Vec<Signature>> {
    let align = disk.memory_align.max(1);
    let length = SAMPLE_BYTES.min(bytes);
    let mut memory = vec![0; length as usize + align];
    let start = memory.as_ptr().align_offset(align);
    let Some(sample) = memory.get_mut(start..start + length as usize) else { return Ok(Vec::new()) };
    for offset in samples(disk, bytes, length) {
        let read = disk.file.read_at(sample, offset).map_err(Error::system("read", path))?;
        let data = sample.get(..read).unwrap_or_default();
        if let Some(at) = data.iter().position(|byte| *byte != 0) {
            let offset = format!("{:#x}", offset + at as u64);
            return Ok(vec![Signature {
                kind: "data that nothing recognizes".to_owned(),
                label: None,
                offset,
            }]);
        }
    }
    Ok(Vec::new())
}

/// Where the samples begin, in whole blocks.
fn samples(disk: &Disk, bytes: u64, length: u64) -> BTreeSet<u64> {
    let last = bytes - length;
    // A device has data everywhere, as far as the system knows.
    let first_data = seek(&disk.file, SeekFrom::Data(0)).ok().filter(|_| !disk.is_device);
    let first_data = first_data.map(|at| (at - at % u64::from(disk.block_bytes)).min(last));
    [0, last].into_iter().chain(first_data).collect()
}
