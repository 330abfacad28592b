//! A directory of ours whose files are never found by their whole path.
//!
//! The directory that is measured may be open to other users (`/tmp`, an export with the mode
//! 1777), and the run may be root's. Whoever may write there can put a symbolic link, or another
//! directory, in the place of ours between two accesses. So the directory is held open, each file
//! is created in it as a new one (`O_EXCL`), and whatever is opened later must be that file: no
//! link, and of the same device and number. A descriptor of each file is held too, because some
//! file systems (FUSE) give a file another number once nobody uses it. It is closed before the file
//! is removed: Linux's NFS client only renames a file that somebody holds (to `.nfs...`), and then
//! the directory is not empty.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, fstat, mkdirat, openat, unlinkat};
use rustix::io::Errno;

/// Processes of several machines may have the same number, and the same directory.
const NAMES_MAX: u32 = 1000;

/// A directory that was made in another one, both held open.
#[derive(Debug)]
pub(super) struct HeldDirectory {
    parent: OwnedFd,
    name: String,
    /// Where it was made, for messages.
    path: PathBuf,
    own: OwnedFd,
}

/// A file in such a directory.
#[derive(Debug, Clone)]
pub(super) struct HeldFile {
    directory: Arc<HeldDirectory>,
    name: String,
    /// The file, without the right to read or write it; `None` once it is to be removed. All clones
    /// share it.
    descriptor: Arc<RwLock<Option<OwnedFd>>>,
}

/// Opens a directory, to make others in it.
///
/// # Errors
/// If it cannot be opened, or is none.
pub(super) fn open(path: &Path) -> io::Result<OwnedFd> {
    Ok(openat(CWD, path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

impl HeldDirectory {
    /// Makes a directory whose name begins with this, for this user only. `path` is where `parent`
    /// is, for messages.
    ///
    /// # Errors
    /// If it cannot be made, or is another one when it is opened.
    pub(super) fn make(parent: &OwnedFd, path: &Path, name: &str) -> io::Result<Self> {
        let held = parent.try_clone()?;
        let numbered = (2..NAMES_MAX).map(|number| format!("{name}-{number}"));
        for name in std::iter::once(name.to_owned()).chain(numbered) {
            match mkdirat(&held, name.as_str(), Mode::RWXU) {
                Ok(()) => {
                    let own = openat(
                        &held,
                        name.as_str(),
                        OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
                        Mode::empty(),
                    );
                    let own = own.map_err(|error| replaced(&path.join(&name), error))?;
                    return Ok(Self { path: path.join(&name), parent: held, name, own });
                }
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Where it was made, for messages.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Creates a file, open for writing.
    ///
    /// # Errors
    /// If it cannot be created. If there is something of this name already, or the directory is not
    /// the one that this process has made, somebody else has put it there.
    pub(super) fn create(self: &Arc<Self>, name: &str) -> io::Result<(File, HeldFile)> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = openat(&self.own, name, flags, Mode::RUSR | Mode::WUSR);
        let made = made.map_err(|error| replaced(&self.path.join(name), error))?;
        // A server may give both to another user than this process's (root squash), but to the
        // same.
        let (file, directory) = (fstat(&made)?, fstat(&self.own)?);
        if file.st_uid != directory.st_uid {
            let _ = unlinkat(&self.own, name, AtFlags::empty());
            return Err(foreign(&self.path, "another user's directory is in its place"));
        }
        let descriptor =
            openat(&self.own, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty());
        let descriptor = descriptor.map_err(|error| replaced(&self.path.join(name), error))?;
        let descriptor = Arc::new(RwLock::new(Some(descriptor)));
        let held = HeldFile { directory: Arc::clone(self), name: name.to_owned(), descriptor };
        held.check(&made)?;
        Ok((File::from(made), held))
    }

    /// Removes the directory, which must be empty, if it is still the one that was made.
    ///
    /// # Errors
    /// If it cannot be removed, or is another one.
    pub(super) fn remove(&self) -> io::Result<()> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let found = openat(&self.parent, self.name.as_str(), flags, Mode::empty());
        let found = found.map_err(|error| replaced(&self.path, error))?;
        if !is_same(&found, &self.own)? {
            return Err(foreign(&self.path, "another directory is in its place"));
        }
        Ok(unlinkat(&self.parent, self.name.as_str(), AtFlags::REMOVEDIR)?)
    }
}

impl HeldFile {
    /// Opens the file with these flags.
    ///
    /// # Errors
    /// If it cannot be opened, or something else is in its place.
    pub(super) fn open(&self, flags: OFlags) -> io::Result<File> {
        // Opening a pipe or a device that somebody has put there must not wait.
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = openat(&self.directory.own, self.name.as_str(), flags, Mode::empty());
        let opened = opened.map_err(|error| replaced(&self.directory.path.join(&self.name), error))?;
        self.check(&opened)?;
        Ok(File::from(opened))
    }

    /// A name under which another program of this user opens this very file, while this is held.
    ///
    /// # Errors
    /// If it is held no more.
    pub(super) fn name_for_others(&self) -> io::Result<String> {
        let held = self.descriptor.read().unwrap_or_else(PoisonError::into_inner);
        let number = held.as_ref().ok_or_else(|| self.removed())?.as_raw_fd();
        Ok(format!("/proc/{}/fd/{number}", std::process::id()))
    }

    /// Removes the file, which is held no more, also by the clones. A link is removed, not what it
    /// leads to.
    ///
    /// # Errors
    /// If it cannot be removed; [`io::ErrorKind::NotFound`] if it is not there.
    pub(super) fn remove(&self) -> io::Result<()> {
        drop(self.descriptor.write().unwrap_or_else(PoisonError::into_inner).take());
        Ok(unlinkat(&self.directory.own, self.name.as_str(), AtFlags::empty())?)
    }

    /// Refuses what is not the file.
    fn check(&self, opened: &OwnedFd) -> io::Result<()> {
        let held = self.descriptor.read().unwrap_or_else(PoisonError::into_inner);
        match is_same(opened, held.as_ref().ok_or_else(|| self.removed())?)? {
            true => Ok(()),
            false => Err(foreign(&self.directory.path.join(&self.name), "another file is in its place")),
        }
    }

    fn removed(&self) -> io::Error {
        let path = self.directory.path.join(&self.name);
        io::Error::new(io::ErrorKind::NotFound, format!("{} is removed", path.display()))
    }
}

fn is_same(one: &OwnedFd, other: &OwnedFd) -> io::Result<bool> {
    let (one, other) = (fstat(one)?, fstat(other)?);
    Ok((one.st_dev, one.st_ino) == (other.st_dev, other.st_ino))
}

/// The error of an access to something that this process has made.
fn replaced(path: &Path, error: Errno) -> io::Error {
    match error {
        Errno::LOOP => foreign(path, "a symbolic link is in its place"),
        Errno::NOTDIR => foreign(path, "a file or a link is in its place"),
        Errno::EXIST => foreign(path, "it is there already, and not made by this process"),
        error => error.into(),
    }
}

/// Somebody else is at work in the directory.
fn foreign(path: &Path, what: &str) -> io::Error {
    let text = format!("{}: {what}; a directory that only you may write to is safe", path.display());
    io::Error::other(text)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn held(parent: &Path) -> Arc<HeldDirectory> {
        Arc::new(HeldDirectory::make(&open(parent).unwrap(), parent, "own").unwrap())
    }

    #[test]
    fn a_directory_and_its_files_are_closed_to_others_and_removed() {
        let parent = tempfile::tempdir().unwrap();
        let directory = held(parent.path());
        assert_eq!(std::fs::metadata(directory.path()).unwrap().permissions().mode() & 0o777, 0o700);
        let second = held(parent.path());
        assert_eq!(second.path(), parent.path().join("own-2"), "a name that is taken is left alone");
        let (mut file, held) = directory.create("a").unwrap();
        file.write_all(b"data").unwrap();
        assert_eq!(std::fs::read(held.name_for_others().unwrap()).unwrap(), b"data");
        assert_eq!(held.open(OFlags::RDWR).unwrap().metadata().unwrap().len(), 4);
        assert!(directory.remove().is_err(), "it is not empty");
        drop(file);
        held.clone().remove().unwrap();
        // Linux's NFS client would keep a file that is held, under another name.
        let own = directory.path().join("a").display().to_string();
        let targets = std::fs::read_dir("/proc/self/fd").unwrap();
        let mut targets = targets.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
        let is_held = targets.any(|target| target.display().to_string().starts_with(&own));
        assert!(!is_held);
        assert_eq!(held.remove().unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(held.open(OFlags::RDONLY).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(held.name_for_others().unwrap_err().kind(), io::ErrorKind::NotFound);
        directory.remove().unwrap();
        second.remove().unwrap();
        assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_is_put_in_the_place_of_a_file_is_refused_and_untouched() {
        let parent = tempfile::tempdir().unwrap();
        let victim = parent.path().join("victim");
        std::fs::write(&victim, "precious").unwrap();
        let directory = held(parent.path());
        let (_, file) = directory.create("a").unwrap();
        let place = directory.path().join("a");
        let refused = |needle: &str| {
            let error = file.open(OFlags::WRONLY).unwrap_err().to_string();
            assert!(error.contains(needle) && error.contains("only you may write"), "{error}");
        };
        std::fs::remove_file(&place).unwrap();
        symlink(&victim, &place).unwrap();
        refused("a symbolic link is in its place");
        std::fs::remove_file(&place).unwrap();
        std::fs::hard_link(&victim, &place).unwrap();
        let error = file.open(OFlags::WRONLY).unwrap_err().to_string();
        assert!(error.contains("another file is in its place"), "{error}");
        assert!(directory.create("a").unwrap_err().to_string().contains("it is there already"));
        file.remove().unwrap();
        assert_eq!(std::fs::read(&victim).unwrap(), b"precious");
    }

    #[test]
    fn another_directory_in_its_place_is_not_used_and_not_removed() {
        let parent = tempfile::tempdir().unwrap();
        let directory = held(parent.path());
        let (_, file) = directory.create("a").unwrap();
        let elsewhere = parent.path().join("elsewhere");
        std::fs::rename(directory.path(), &elsewhere).unwrap();
        std::fs::create_dir(directory.path()).unwrap();
        std::fs::write(directory.path().join("a"), "another's").unwrap();
        // Our file is still ours, wherever its directory is now.
        assert_eq!(file.open(OFlags::RDONLY).unwrap().metadata().unwrap().len(), 0);
        file.remove().unwrap();
        let error = directory.remove().unwrap_err().to_string();
        assert!(error.contains("another directory is in its place"), "{error}");
        assert_eq!(std::fs::read(directory.path().join("a")).unwrap(), b"another's");
        std::fs::remove_dir_all(directory.path()).unwrap();
        symlink(&elsewhere, directory.path()).unwrap();
        let error = directory.remove().unwrap_err().to_string();
        assert!(error.contains("a file or a link is in its place"), "{error}");
    }
}
