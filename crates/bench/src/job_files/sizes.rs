//! The sizes of the files of job files, scaled down where asked.

use std::collections::BTreeMap;
use std::path::Path;

use fio::JobFile;

use crate::error::{Error, Result};

/// The files of one job file: by name, number and size.
pub(super) type FileSizes = BTreeMap<String, SizedFile>;

/// A file, as the job file has it and as it is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SizedFile {
    /// The number of the file: files are counted as they appear.
    pub(super) number: usize,
    /// The size in the job file.
    pub(super) asked_bytes: u64,
    /// The size that is created.
    pub(super) bytes: u64,
    /// The largest block with which the file is accessed.
    block_bytes: u64,
}

impl SizedFile {
    /// What a job accesses of the file that asked for so many bytes of it.
    pub(super) fn scaled(&self, asked_bytes: u64) -> u64 {
        if asked_bytes >= self.asked_bytes {
            return self.bytes;
        }
        let scaled = u128::from(asked_bytes) * u128::from(self.bytes) / u128::from(self.asked_bytes.max(1));
        let blocks = u64::try_from(scaled).unwrap_or(u64::MAX) / self.block_bytes;
        (blocks.max(1) * self.block_bytes).min(asked_bytes)
    }
}

/// The sizes of all job files.
#[derive(Debug)]
pub(super) struct Sizes {
    files: Vec<FileSizes>,
}

impl Sizes {
    /// Sizes that fit into `room_bytes` together.
    pub(super) fn plan<'a>(
        job_files: impl Iterator<Item = (&'a Path, &'a JobFile)>,
        room_bytes: Option<u64>,
    ) -> Result<Self> {
        let mut files: Vec<FileSizes> = job_files.map(|(_, jobs)| asked(jobs)).collect();
        let total: u128 =
            files.iter().flat_map(BTreeMap::values).map(|file| u128::from(file.asked_bytes)).sum();
        let Some(room) = room_bytes.filter(|room| u128::from(*room) < total) else {
            return Ok(Self { files });
        };
        for file in files.iter_mut().flat_map(BTreeMap::values_mut) {
            let scaled = u128::from(file.asked_bytes) * u128::from(room) / total;
            let blocks = u64::try_from(scaled).unwrap_or(u64::MAX) / file.block_bytes;
            if blocks == 0 {
                let least = u128::from(file.block_bytes) * total / u128::from(file.asked_bytes) + 1;
                return Err(Error::refused(
                    format!("cannot shrink the files to {room} bytes"),
                    format!("a file would have no room for a block of {} bytes", file.block_bytes),
                    format!("--shrink {}MiB", least.div_ceil(1 << 20)),
                ));
            }
            file.bytes = blocks * file.block_bytes;
        }
        Ok(Self { files })
    }

    /// The files of a job file.
    pub(super) fn of_file(&self, index: usize) -> &FileSizes {
        static NONE: FileSizes = FileSizes::new();
        self.files.get(index).unwrap_or(&NONE)
    }

    /// The bytes of all files of a job file.
    pub(super) fn bytes(&self, index: usize) -> u64 {
        self.of_file(index).values().map(|file| file.bytes).sum()
    }
}

/// The files as the job file has them.
fn asked(jobs: &JobFile) -> FileSizes {
    let mut files = FileSizes::new();
    for job in jobs.phases.iter().flat_map(|phase| &phase.jobs) {
        for file in job.instances.iter().flat_map(|instance| &instance.files) {
            let (number, block_bytes) = (files.len(), job.largest_block().min(file.bytes));
            let known = files.entry(file.path.clone()).or_insert(SizedFile {
                number,
                asked_bytes: file.bytes,
                bytes: file.bytes,
                block_bytes,
            });
            known.asked_bytes = known.asked_bytes.max(file.bytes);
            known.bytes = known.asked_bytes;
            known.block_bytes = known.block_bytes.max(block_bytes);
        }
    }
    files
}
