//! FSSTAT: the space and the objects of the file system beneath.

use super::Shared;
use crate::interface::Space;
use rustix::fs::StatVfs;

impl Shared {
    pub fn space(&self) -> Space {
        rustix::fs::fstatvfs(&self.root).map_or_else(|_| Space::default(), |found| space(&found))
    }
}

/// What is reserved for the system's administrator is free, but not available to callers: `df`
/// counts what is not free as used.
fn space(found: &StatVfs) -> Space {
    Space {
        total_bytes: found.f_blocks.saturating_mul(found.f_frsize),
        free_bytes: found.f_bfree.saturating_mul(found.f_frsize),
        available_bytes: found.f_bavail.saturating_mul(found.f_frsize),
        total_files: found.f_files,
        free_files: found.f_ffree,
        available_files: found.f_favail,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_reserved_is_free_but_not_available() {
        let mut found = rustix::fs::statvfs("/").unwrap();
        (found.f_frsize, found.f_blocks, found.f_bfree, found.f_bavail) = (1024, 100, 80, 40);
        (found.f_files, found.f_ffree, found.f_favail) = (50, 30, 20);
        let found = space(&found);
        assert_eq!(
            (found.total_bytes, found.free_bytes, found.available_bytes),
            (100 << 10, 80 << 10, 40 << 10)
        );
        assert_eq!((found.total_files, found.free_files, found.available_files), (50, 30, 20));
    }
}
