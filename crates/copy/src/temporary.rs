//! The names of files while they are copied.
//!
//! The temporary name of a large file, which is worth resuming, is derived from its source (file
//! system, number, length and times) and from its final name. So a partial file with that name has
//! the same, unchanged source. Its length says how much of it can be trusted: writes in flight are
//! never further apart than a window, so everything more than a window before the end has been
//! written and is stable. A crash of this machine could lose data of a local file but keep its
//! length, so the name of a local file also depends on the boot. A smaller file has a random name,
//! so that two copies at the same time do not collide.

use crate::entry::Entry;
use fs::Attributes;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The maximum distance of two writes of one file that are in flight.
pub(crate) const WINDOW_BYTES: u64 = 32 << 20;
/// Changes whenever the meaning of the names changes.
const VERSION: u64 = 1;

/// Whether a partial file of this final length can be resumed.
pub(crate) const fn is_resumable(size: u64) -> bool {
    size > 2 * WINDOW_BYTES
}

/// How much of a partial file of this length can be trusted.
pub(crate) const fn trusted_bytes(found: u64, block_bytes: u64) -> u64 {
    let good = found.saturating_sub(WINDOW_BYTES);
    good - good % block_bytes
}

/// The temporary name of a copy of `entry` that will be called `name`.
pub(crate) fn temporary_name(entry: &Entry, name: &[u8], boot_matters: bool) -> Vec<u8> {
    if !is_resumable(entry.attributes.size) {
        let mut random = [0; 8];
        // Without random numbers two copies may collide, but that is only an error: the name must
        // not exist.
        let _ = getrandom::fill(&mut random);
        return format!(".trunkline-{:016x}.tmp", u64::from_ne_bytes(random)).into_bytes();
    }
    let mut identity = identity(&entry.attributes);
    identity.extend_from_slice(name);
    if boot_matters {
        identity.extend(std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default());
    }
    format!(".trunkline-{:016x}.part", xxh3_64_with_seed(&identity, VERSION)).into_bytes()
}

fn identity(of: &Attributes) -> Vec<u8> {
    let times = [of.mtime, of.ctime].map(|time| (time.seconds.to_ne_bytes(), time.nanoseconds.to_ne_bytes()));
    let mut bytes = [of.fsid, of.fileid, of.size].map(u64::to_ne_bytes).concat();
    for (seconds, nanoseconds) in times {
        bytes.extend(seconds);
        bytes.extend(nanoseconds);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use fs::{FileKind, Time};

    fn entry(size: u64, changed: i64) -> Entry {
        let time = |seconds| Time { seconds, nanoseconds: 5 };
        let of = Attributes::of(FileKind::Regular);
        let attributes = Attributes { size, mtime: time(7), ctime: time(changed), ..of };
        Entry { name: b"x".to_vec(), attributes, handle: None }
    }

    #[test]
    fn a_large_file_is_found_again_unless_its_source_has_changed() {
        let name = |size, changed, to: &[u8]| temporary_name(&entry(size, changed), to, false);
        assert_eq!(name(1 << 30, 9, b"a"), name(1 << 30, 9, b"a"));
        assert_ne!(name(1 << 30, 9, b"a"), name(1 << 30, 10, b"a"));
        assert_ne!(name(1 << 30, 9, b"a"), name((1 << 30) + 1, 9, b"a"));
        assert_ne!(name(1 << 30, 9, b"a"), name(1 << 30, 9, b"b"));
        assert_ne!(temporary_name(&entry(1 << 30, 9), b"a", true), name(1 << 30, 9, b"a"));
    }

    #[test]
    fn a_small_file_has_a_name_of_its_own_each_time() {
        assert_ne!(temporary_name(&entry(5, 9), b"a", false), temporary_name(&entry(5, 9), b"a", false));
    }

    #[test]
    fn what_lies_within_a_window_of_the_end_is_written_again() {
        assert_eq!(trusted_bytes(10, 1 << 20), 0);
        assert_eq!(trusted_bytes(WINDOW_BYTES + (5 << 20) + 17, 1 << 20), 5 << 20);
    }
}
