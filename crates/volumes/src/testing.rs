//! Volumes for tests: of memory that holds writes, fails, waits, and forgets what was not flushed
//! when its power is cut.

pub use drives::testing::{Executed, Faults, Operations, PAGE_BYTES};

use crate::volume::{BlockSize, Identity, Volume};

/// A volume whose faults the test decides.
///
/// # Panics
/// If the volume would have no block.
#[must_use]
pub fn faulty_volume(blocks: u64, block: BlockSize, volatile_cache: bool) -> (Volume, Faults) {
    let (drive, faults) = drives::testing::faulty(blocks * u64::from(block.bytes()), volatile_cache);
    match Volume::new("faulty", Identity::of_uuid([0xfa; 16]), &drive, Some(block)) {
        Ok(volume) => (volume, faults),
        Err(error) => panic!("{error}"),
    }
}
