//! Local trees: creates a tree with every kind of file, and compares two trees.

use super::fixtures::pattern;
use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// The properties of a file that are compared.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    mode: u32,
    owner: (u32, u32),
    mtime: (i64, i64),
    links: u64,
    content: Content,
}

#[derive(Debug, PartialEq, Eq)]
enum Content {
    File(usize, u64),
    Link(PathBuf),
    Directory,
    Other,
}

impl Seen {
    /// Ignores what some servers cannot set.
    #[allow(dead_code, reason = "one of the suites that share this needs it")]
    pub(crate) fn forget_time_of_link(&mut self) {
        if matches!(self.content, Content::Link(_)) {
            self.mtime = (0, 0);
        }
    }
}

/// Creates a tree with every kind of file.
pub(crate) fn plant(tree: &Path) {
    fs::create_dir_all(tree.join("deep/er/est")).unwrap();
    fs::create_dir(tree.join("empty directory")).unwrap();
    fs::write(tree.join("empty"), b"").unwrap();
    fs::write(tree.join("plain"), b"contents").unwrap();
    fs::write(tree.join("deep/er/est/large"), pattern(9_000_001, 5)).unwrap();
    fs::write(tree.join(OsStr::from_bytes(b"odd \xff\n\\ %41 name?")), b"odd").unwrap();
    fs::write(tree.join("x".repeat(255)), b"long").unwrap();
    fs::hard_link(tree.join("plain"), tree.join("deep/second name")).unwrap();
    fs::hard_link(tree.join("plain"), tree.join("third name")).unwrap();
    symlink("deep/er/../nowhere", tree.join("dangling")).unwrap();
    symlink("/etc/passwd", tree.join("deep/absolute")).unwrap();
    rustix::fs::mknodat(CWD, tree.join("pipe"), FileType::Fifo, Mode::from_raw_mode(0o620), 0).unwrap();
    let sparse = fs::File::create(tree.join("sparse")).unwrap();
    sparse.set_len(48 << 20).unwrap();
    sparse.write_all_at(b"in the middle", (20 << 20) + 17).unwrap();
    sparse.write_all_at(b"near the end", (47 << 20) + 5).unwrap();
    fs::set_permissions(tree.join("plain"), PermissionsExt::from_mode(0o4751)).unwrap();
    fs::set_permissions(tree.join("empty"), PermissionsExt::from_mode(0o400)).unwrap();
    fs::set_permissions(tree.join("pipe"), PermissionsExt::from_mode(0o620)).unwrap();
    fs::set_permissions(tree.join("deep/er"), PermissionsExt::from_mode(0o1711)).unwrap();
    for (number, name) in ["plain", "sparse", "pipe", "dangling", "deep/er", "deep", "."].iter().enumerate() {
        let time = Timespec { tv_sec: 1_000_000_000 + number as i64, tv_nsec: 123_456_789 };
        let times = Timestamps { last_access: time, last_modification: time };
        rustix::fs::utimensat(CWD, tree.join(name), &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }
}

/// Everything below a directory, and the directory itself.
pub(crate) fn snapshot(tree: &Path) -> BTreeMap<PathBuf, Seen> {
    let mut seen = BTreeMap::new();
    let mut todo = vec![tree.to_owned()];
    while let Some(path) = todo.pop() {
        let metadata = fs::symlink_metadata(&path).unwrap();
        let content = if metadata.is_dir() {
            todo.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            Content::Directory
        } else if metadata.is_symlink() {
            Content::Link(fs::read_link(&path).unwrap())
        } else if metadata.is_file() {
            let data = fs::read(&path).unwrap();
            let sum =
                data.iter().fold(7_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
            Content::File(data.len(), sum)
        } else {
            Content::Other
        };
        // File systems count the links of directories differently.
        let links = if metadata.is_dir() { 0 } else { metadata.nlink() };
        let one = Seen {
            mode: if metadata.is_symlink() { 0 } else { metadata.mode() },
            owner: (metadata.uid(), metadata.gid()),
            mtime: (metadata.mtime(), metadata.mtime_nsec()),
            links,
            content,
        };
        seen.insert(path.strip_prefix(tree).unwrap().to_owned(), one);
    }
    seen
}

/// Fails with the first difference.
#[track_caller]
pub(crate) fn compare(wanted: &BTreeMap<PathBuf, Seen>, found: &BTreeMap<PathBuf, Seen>) {
    assert_eq!(wanted.keys().collect::<Vec<_>>(), found.keys().collect::<Vec<_>>());
    for (path, wanted) in wanted {
        assert_eq!(found.get(path), Some(wanted), "{}", path.display());
    }
}
