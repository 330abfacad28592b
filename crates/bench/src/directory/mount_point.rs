//! A directory of ours that a file system is mounted on for the time of a measurement.
//!
//! What is mounted there are somebody's files. So the directory is never removed with what is in
//! it, and only after nothing is mounted there any more.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::remains::{Entry, Made, Remains};

/// An empty directory within one that only this user may enter: whatever the mode of the mounted
/// root is, other users do not reach it.
#[derive(Debug)]
pub(crate) struct MountPoint {
    parent: PathBuf,
    path: PathBuf,
    /// Says that it is there until it is removed.
    _entry: Entry,
}

impl MountPoint {
    /// Makes the directories among the temporary files.
    pub(crate) fn new(prefix: &str, remains: &Remains) -> io::Result<Self> {
        // Kept: a temporary directory that removes itself would remove what is mounted in it.
        let private = std::fs::Permissions::from_mode(0o700);
        let parent = tempfile::Builder::new().prefix(prefix).permissions(private).tempdir()?.keep();
        let parent = std::fs::canonicalize(&parent)?;
        let path = parent.join("mnt");
        std::fs::create_dir(&path)?;
        let entry = remains.add(Made::MountPoint(path.clone()));
        Ok(Self { parent, path, _entry: entry })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// What is mounted there, if anything is. Does not ask the file system, which may hang.
    pub(crate) fn mounted(&self) -> Option<Mounted> {
        mounted_at(&self.path)
    }
}

/// What is mounted at a path, if anything is. Does not ask the file system, which may hang.
pub(crate) fn mounted_at(path: &Path) -> Option<Mounted> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    mounted(&mounts, path)
}

/// What is mounted somewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mounted {
    /// The type of the file system.
    pub kind: String,
    /// The options of the file system that are in effect.
    pub options: String,
}

impl Mounted {
    /// The value of an option that is in effect.
    pub(crate) fn option(&self, name: &str) -> Option<&str> {
        self.options.split(',').find_map(|option| option.strip_prefix(name)?.strip_prefix('='))
    }
}

/// A path as the kernel writes it in its lists of mounts.
pub(crate) fn escaped(path: &Path) -> String {
    let path = path.to_string_lossy();
    path.replace('\\', "\\134").replace(' ', "\\040").replace('\t', "\\011")
}

/// The last mount at a path. proc_pid_mountinfo(5)
fn mounted(mounts: &str, path: &Path) -> Option<Mounted> {
    let escaped = escaped(path);
    let line = mounts.lines().rfind(|line| line.split(' ').nth(4) == Some(&escaped))?;
    let (_, after) = line.split_once(" - ")?;
    // The type, the source, and the options.
    let mut fields = after.split(' ');
    let (kind, options) = (fields.next()?, fields.nth(1)?);
    Some(Mounted { kind: kind.to_owned(), options: options.to_owned() })
}

impl Drop for MountPoint {
    fn drop(&mut self) {
        // Fails where something is still mounted, and removes no files of anybody.
        let removed = std::fs::remove_dir(&self.path).and_then(|()| std::fs::remove_dir(&self.parent));
        if let Err(error) = removed {
            tracing::warn!(path = %self.path.display(), %error, "the mount point remains");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_mount_at_a_path_counts() {
        let mounts = "1 0 0:1 / /a rw - ext4 /dev/a rw\n2 1 0:2 / /a\\040b rw shared:1 - ext4 s:/x rw\n\
            3 2 0:3 / /a\\040b rw - nfs s:/x rw,vers=3,nconnect=4,port=2049\n";
        let found = mounted(mounts, Path::new("/a b")).unwrap();
        assert_eq!((&*found.kind, found.option("nconnect"), found.option("rw")), ("nfs", Some("4"), None));
        assert_eq!(mounted(mounts, Path::new("/a")).unwrap().kind, "ext4");
        assert_eq!(mounted(mounts, Path::new("/")), None);
    }

    #[test]
    fn a_mount_point_is_private_and_never_removes_files() {
        let remains = Remains::default();
        let point = MountPoint::new("trunkline-test-", &remains).unwrap();
        assert!(remains.list()[0].what.starts_with("nothing is mounted at "));
        let (path, parent) = (point.path().to_owned(), point.parent.clone());
        assert_eq!(parent.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(point.mounted(), None);
        std::fs::write(path.join("somebody's"), "data").unwrap();
        drop(point);
        assert_eq!(std::fs::read(path.join("somebody's")).unwrap(), b"data");
        std::fs::remove_file(path.join("somebody's")).unwrap();
        let _entry = remains.add(Made::MountPoint(path.clone()));
        drop(MountPoint { parent: parent.clone(), path, _entry });
        assert!(!parent.exists() && remains.list().is_empty());
    }
}
