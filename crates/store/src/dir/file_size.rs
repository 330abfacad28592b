//! The largest file of the file system beneath, for FSINFO. A client that knows the limit refuses a
//! write beyond the limit at once; otherwise the program learns of the failure at fsync(2).

use super::FILE_BYTES_MAX;
use rustix::fs::{Mode, OFlags, SeekFrom};
use std::os::fd::BorrowedFd;

/// The size of the largest file in a file system. No system call reports this size, but lseek(2)
/// refuses an offset beyond it. Where no file can be created, the largest offset.
pub(super) fn largest(directory: BorrowedFd<'_>) -> u64 {
    // The file has no name, and is gone when the descriptor is closed.
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::openat(directory, c".", flags, Mode::RUSR | Mode::WUSR) else {
        return FILE_BYTES_MAX;
    };
    let fits = |offset| rustix::fs::seek(&file, SeekFrom::Start(offset)).is_ok();
    if fits(FILE_BYTES_MAX) {
        return FILE_BYTES_MAX;
    }
    let (mut fitting, mut refused) = (0, FILE_BYTES_MAX);
    while refused - fitting > 1 {
        let middle = fitting.midpoint(refused);
        if fits(middle) {
            fitting = middle;
        } else {
            refused = middle;
        }
    }
    fitting
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;
    use std::os::fd::AsFd;

    #[test]
    fn a_file_can_be_as_large_as_the_largest_and_no_larger() {
        let directory = tempfile::tempdir().unwrap();
        let opened = std::fs::File::open(directory.path()).unwrap();
        let largest = largest(opened.as_fd());
        let file = std::fs::File::create(directory.path().join("f")).unwrap();
        rustix::fs::ftruncate(&file, largest).unwrap();
        if largest < FILE_BYTES_MAX {
            assert_eq!(rustix::fs::ftruncate(&file, largest + 1), Err(Errno::FBIG));
        }
    }
}
