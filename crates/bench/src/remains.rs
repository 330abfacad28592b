//! What a run has made and not removed yet, for who ends it at once: a removal may wait for ever
//! for a file system or a server that does not answer.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::directory::mount_point;

/// Something that a run has made and will remove.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Made {
    /// A directory on which a file system is mounted, or may be.
    MountPoint(PathBuf),
    /// A directory of this machine, with files.
    Directory(PathBuf),
    /// A directory on a server, with files: `nfs://HOST/EXPORT/NAME`.
    OnServer(String),
}

/// What stays when the run ends at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remnant {
    /// What it is: `/tmp/x/mnt is still mounted (nfs)`.
    pub what: String,
    /// The command that removes it.
    pub advice: String,
}

/// What a run has made and not removed yet. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Remains {
    made: Arc<Mutex<Vec<(u64, Made)>>>,
}

impl Remains {
    /// Adds something, until the entry is dropped.
    pub(crate) fn add(&self, made: Made) -> Entry {
        let mut all = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let number = all.last().map_or(0, |(number, _)| number + 1);
        all.push((number, made));
        Entry { remains: self.clone(), number }
    }

    /// What would stay now, the latest first: a mount within a directory comes before it. Asks no
    /// file system, because it may not answer.
    #[must_use]
    pub fn list(&self) -> Vec<Remnant> {
        let all = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().rev().map(|(_, made)| made.remnant()).collect()
    }
}

/// An entry of [`Remains`]: dropped when what was made is removed.
#[derive(Debug)]
#[must_use]
pub(crate) struct Entry {
    remains: Remains,
    number: u64,
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut all = self.remains.made.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|(number, _)| *number != self.number);
    }
}

impl Made {
    fn remnant(&self) -> Remnant {
        let (what, advice) = match self {
            Self::MountPoint(path) => match mount_point::mounted_at(path) {
                Some(mounted) => (
                    format!("{} is still mounted ({})", path.display(), mounted.kind),
                    format!("umount {0}        or umount -l {0}, if its server does not answer", word(path)),
                ),
                None => (
                    format!("nothing is mounted at {}, but the directory is there", path.display()),
                    format!("rmdir {}", word(path)),
                ),
            },
            Self::Directory(path) => {
                (format!("{} is not removed", path.display()), format!("rm -r {}", word(path)))
            }
            Self::OnServer(url) => {
                (format!("{url} is not removed"), format!("trunkline rm -r {}", word(Path::new(url))))
            }
        };
        Remnant { what, advice }
    }
}

/// A path as a word of a shell.
fn word(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |it: char| it.is_ascii_alphanumeric() || "/._-+:@%,[]".contains(it);
    if text.chars().all(is_plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_removed_does_not_remain_and_the_latest_comes_first() {
        let remains = Remains::default();
        let files = remains.clone().add(Made::Directory("/mnt/it's/trunkline-bench-1".into()));
        let server = remains.add(Made::OnServer("nfs://h/e/trunkline-bench-1".into()));
        let mount = remains.add(Made::MountPoint("/proc".into()));
        let of = |remains: &Remains| remains.list().into_iter().map(|it| it.what).collect::<Vec<_>>();
        assert_eq!(of(&remains)[0], "/proc is still mounted (proc)");
        assert_eq!(of(&remains)[1], "nfs://h/e/trunkline-bench-1 is not removed");
        assert_eq!(remains.list()[2].advice, r"rm -r '/mnt/it'\''s/trunkline-bench-1'");
        assert!(remains.list()[0].advice.contains("umount -l /proc"));
        drop(server);
        assert_eq!(of(&remains).len(), 2);
        let empty = remains.add(Made::MountPoint("/proc/self".into()));
        assert_eq!(remains.list()[0].advice, "rmdir /proc/self");
        drop((files, mount, empty));
        assert_eq!(remains.list(), []);
    }
}
