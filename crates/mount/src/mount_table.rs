//! `/proc/self/mountinfo`, the table of mounts. proc(5)
//!
//! A mount has a number, and the file system in it a device number. Several mounts of one file
//! system (bind mounts) share the device number.

use rustix::fs::{CWD, Mode, OFlags};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The file system type of our mounts.
pub const FILE_SYSTEM: &str = "fuse.trunkline";

/// All mounts that this process can see.
#[derive(Debug, Default)]
pub(crate) struct MountTable {
    entries: Vec<Entry>,
}

/// A line of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub id: u64,
    pub parent: u64,
    /// Major and minor number.
    pub device: (u32, u32),
    pub mount_point: PathBuf,
    pub kind: Vec<u8>,
    pub source: Vec<u8>,
}

impl Entry {
    pub(crate) fn is_ours(&self) -> bool {
        self.kind == FILE_SYSTEM.as_bytes()
    }
}

impl MountTable {
    /// Reads the table.
    ///
    /// # Errors
    /// If proc(5) is not mounted.
    pub(crate) fn read() -> io::Result<Self> {
        std::fs::read("/proc/self/mountinfo").map(|text| Self::parse(&text))
    }

    fn parse(text: &[u8]) -> Self {
        Self { entries: text.split(|byte| *byte == b'\n').filter_map(entry).collect() }
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }

    /// The mount on a directory; of several on top of each other, the uppermost.
    pub(crate) fn at(&self, mount_point: &Path) -> Option<&Entry> {
        let here = || self.entries.iter().filter(|entry| entry.mount_point == mount_point);
        here().find(|entry| here().all(|other| other.parent != entry.id))
    }
}

/// Parses a line: `36 35 98:0 /root /mount_point options tag:1 - type source options`.
fn entry(line: &[u8]) -> Option<Entry> {
    let mut fields = line.split(|byte| *byte == b' ');
    let (id, parent) = (number(fields.next()?)?, number(fields.next()?)?);
    let (major, minor) = std::str::from_utf8(fields.next()?).ok()?.split_once(':')?;
    let mount_point = PathBuf::from(OsStr::from_bytes(&unescaped(fields.nth(1)?)));
    // Any number of tags precedes the dash.
    let mut rest = fields.skip_while(|field| *field != b"-").skip(1);
    let (kind, source) = (rest.next()?.to_vec(), unescaped(rest.next()?));
    let device = (major.parse().ok()?, minor.parse().ok()?);
    Some(Entry { id, parent, device, mount_point, kind, source })
}

fn number(field: &[u8]) -> Option<u64> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

/// Decodes blanks, line ends and backslashes, which are written as a backslash and three octal
/// digits.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let octal =
            after.get(..3).filter(|_| *first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                out.push(byte);
                rest = after.get(3..).unwrap_or_default();
            }
            None => {
                out.push(*first);
                rest = after;
            }
        }
    }
    out
}

/// The path of a directory as in the table, with symbolic links resolved. Does not ask the file
/// system of the directory itself: what is mounted there may have no server any more.
#[must_use]
pub fn resolved_path(directory: &Path) -> PathBuf {
    by_descriptor(directory).unwrap_or_else(|| {
        let absolute = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
        let resolved = match (absolute.parent(), absolute.file_name()) {
            (Some(parent), Some(name)) => parent.canonicalize().map(|parent| parent.join(name)),
            _ => absolute.canonicalize(),
        };
        resolved.unwrap_or(absolute)
    })
}

/// The path that the kernel reports for an existing directory.
fn by_descriptor(directory: &Path) -> Option<PathBuf> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let opened = rustix::fs::openat(CWD, directory, flags, Mode::empty()).ok()?;
    let path = std::fs::read_link(format!("/proc/self/fd/{}", opened.as_raw_fd())).ok()?;
    // The kernel appends a word to the path of a directory that was removed.
    (!path.as_os_str().as_bytes().ends_with(b" (deleted)")).then_some(path)
}

/// Reads a number that the kernel reports about a descriptor in `/proc/self/fdinfo`, such as
/// `mnt_id`. Does not ask the file system.
pub(crate) fn fdinfo_number(descriptor: impl AsFd, name: &str) -> io::Result<Option<u64>> {
    let path = format!("/proc/self/fdinfo/{}", descriptor.as_fd().as_raw_fd());
    let text = std::fs::read_to_string(path)?;
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    Ok(lines.find(|(key, _)| *key == name).and_then(|(_, value)| value.trim().parse().ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[u8] = b"\
        22 1 0:21 / / rw,relatime shared:1 - ext4 /dev/vda1 rw\n\
        30 22 0:30 / /a\\040b\\134c rw,nosuid - fuse.trunkline nas:/data rw,user_id=0\n\
        31 22 0:31 / /tmp rw shared:2 master:3 - tmpfs tmpfs rw\n\
        33 32 0:33 / /stack rw - fuse.trunkline nas:/data rw\n\
        32 22 0:32 / /stack rw - tmpfs tmpfs rw\n";

    fn kind(mount_point: &str) -> Option<Vec<u8>> {
        MountTable::parse(TABLE).at(Path::new(mount_point)).map(|entry| entry.kind.clone())
    }

    #[test]
    fn the_table_says_what_is_mounted_where() {
        assert_eq!(kind("/a b\\c").as_deref(), Some(FILE_SYSTEM.as_bytes()));
        assert_eq!(kind("/tmp").as_deref(), Some(&b"tmpfs"[..]));
        assert_eq!(
            kind("/stack").as_deref(),
            Some(FILE_SYSTEM.as_bytes()),
            "the uppermost, wherever it stands"
        );
        assert_eq!(kind("/a"), None);
        assert!(MountTable::parse(b"\n1 2\nnonsense").entries.is_empty());
        let table = MountTable::parse(TABLE);
        let entry = table.at(Path::new("/stack")).unwrap();
        assert_eq!((entry.id, entry.parent, entry.device), (33, 32, (0, 33)));
        assert_eq!(entry.source, b"nas:/data");
    }

    #[test]
    fn a_directory_is_named_as_the_table_names_it() {
        assert_eq!(resolved_path(Path::new("/tmp/../proc/")), Path::new("/proc"));
        assert_eq!(resolved_path(Path::new("/proc/.")), Path::new("/proc"));
        assert_eq!(resolved_path(Path::new("/proc/..")), Path::new("/"));
        assert_eq!(resolved_path(Path::new("/absent/dir")), Path::new("/absent/dir"));
        let directory = tempfile::tempdir().unwrap();
        let link = directory.path().join("link");
        std::os::unix::fs::symlink("/proc", &link).unwrap();
        assert_eq!(resolved_path(&link), Path::new("/proc"));
        assert_eq!(resolved_path(&link.join("")), Path::new("/proc"));
    }

    #[test]
    fn the_kernel_reports_the_mount_of_a_descriptor() {
        let root = std::fs::File::open("/").unwrap();
        let reported = fdinfo_number(&root, "mnt_id").unwrap();
        assert_eq!(reported, MountTable::read().unwrap().at(Path::new("/")).map(|entry| entry.id));
        assert_eq!(fdinfo_number(&root, "fuse_connection").unwrap(), None);
    }
}
