//! Tests that no file stays open for writing once its data are safe: until then nobody on the
//! server can run it or take a lease on it.

use crate::fixture::{Home, ROOT, file, is_tmpfs, read};
use std::path::Path;
use std::time::Duration;
use store::{Stability, Store, Wait};
use testkit::Deadline;

const PATIENCE: Duration = Duration::from_secs(60);

/// How many descriptors of this process may write the file.
fn writers(path: &Path) -> usize {
    let all = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let may_write = |name: &std::ffi::OsStr| {
        let info = std::fs::read_to_string(Path::new("/proc/self/fdinfo").join(name)).ok()?;
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"))?.trim().to_owned();
        // The access mode of open(2); a descriptor that is only a path has none.
        let flags = u32::from_str_radix(&flags, 8).ok()?;
        (flags & 3 != 0 && flags & 0o10_000_000 == 0).then_some(())
    };
    let of_file = all.filter(|fd| std::fs::read_link(fd.path()).is_ok_and(|target| target == path));
    of_file.filter(|fd| may_write(&fd.file_name()).is_some()).count()
}

#[test]
fn a_file_whose_data_are_safe_is_not_open_for_writing() {
    for base in [std::env::temp_dir(), "/dev/shm".into()] {
        if !base.is_dir() {
            continue;
        }
        let home = Home::in_place(base);
        let store = home.open();
        let made = file(&store, ROOT, store.root(), "f", 0o755);
        let path = std::fs::canonicalize(home.path("f")).unwrap();
        let write = |stability| {
            store.write(ROOT, made, 0, b"data", stability, Wait::Allowed).unwrap().1.unwrap();
        };
        for _ in 0..2 {
            write(Stability::Unstable);
            // A file system in memory has no failures to report.
            assert!(is_tmpfs(&home) || writers(&path) == 1, "a failed write-back is reported here");
            store.commit(made, 0, 0, Wait::Allowed).unwrap().1.unwrap();
            assert!(is_tmpfs(&home) || writers(&path) == 0);
        }
        let none = || (writers(&path) == 0).then_some(());
        Deadline::wait_until("no writer after a commit", PATIENCE, none);
        write(Stability::FileSync);
        Deadline::wait_until("no writer after a stable write", PATIENCE, none);
        file(&store, ROOT, store.root(), "new", 0o644);
        let new = std::fs::canonicalize(home.path("new")).unwrap();
        Deadline::wait_until("no writer of a new file", PATIENCE, || (writers(&new) == 0).then_some(()));
        assert_eq!(read(&store, ROOT, made).unwrap(), b"data");
    }
}
