//! A file that is there for as long as an attachment may leave controllers at the target.
//!
//! One that ends by itself removes it. If it is killed, or ends before nothing of the one before it
//! can have an effect any more, the next one finds it: with a target that cannot say when old
//! controllers are finished, its writes wait. The file has the longest keep-alive timeout that they
//! may have, because that is what the target goes by.

use crate::attach::Place;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::{Error, ErrorKind, Read as _, Result};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The longest keep-alive timeout, in seconds.
pub(super) const KEEP_ALIVE_MAX: u64 = 600;
/// The keep-alive timeout unless another one is given, and that of earlier versions, which left no
/// such file.
const KEEP_ALIVE: Duration = Duration::from_secs(5);
const WORD: &str = "keep-alive";
/// What the file has is as long as this always, so that it is written at once.
const BYTES: usize = WORD.len() + 5;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Mark {
    path: PathBuf,
    earlier: Option<Duration>,
    /// Nothing is left at the target, neither of this attachment nor of earlier ones. As long as no
    /// program has the disk, that depends on the earlier ones.
    leaves_nothing: bool,
}

impl Mark {
    /// Finds what an earlier attachment has left, and leaves the mark of this one.
    ///
    /// # Errors
    /// The file, and why it cannot be used.
    pub(super) fn leave(place: &Place, keep_alive: Duration) -> std::result::Result<Self, (PathBuf, Error)> {
        let path = match place {
            Place::Socket(..) => {
                let mut path = place.path().into_os_string();
                path.push(".attached");
                PathBuf::from(path)
            }
            Place::Ublk(_) => {
                let device = place.path();
                let name = device.file_name().unwrap_or_default().display();
                PathBuf::from(format!("/run/trunkline-{name}.attached"))
            }
        };
        match Self::leave_at(&path, place.was_killed(), keep_alive) {
            Ok(earlier) => Ok(Self { path, earlier, leaves_nothing: earlier.is_none() }),
            Err(error) => Err((path, error)),
        }
    }

    fn leave_at(path: &Path, was_killed: bool, keep_alive: Duration) -> Result<Option<Duration>> {
        let mut file = open(path)?;
        let mut text = String::new();
        let read = (&mut file).take(BYTES as u64 + 1).read_to_string(&mut text);
        let earlier = match read {
            Ok(0) if was_killed => Some(KEEP_ALIVE),
            Ok(0) => None,
            // Whatever it is, it was longer than nothing.
            _ => Some(parse(&text).unwrap_or(Duration::from_secs(KEEP_ALIVE_MAX))),
        };
        let longest = keep_alive.max(earlier.unwrap_or_default()).as_secs();
        file.write_all_at(format!("{WORD}{longest:4}\n").as_bytes(), 0)?;
        Ok(earlier)
    }

    /// The longest keep-alive timeout of earlier attachments, if one may have left controllers.
    pub(super) const fn earlier(&self) -> Option<Duration> {
        self.earlier
    }

    /// Programs had the disk, and the attachment ends by itself.
    pub(super) fn end(mut self, leaves_nothing: bool) {
        self.leaves_nothing = leaves_nothing;
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        if self.leaves_nothing {
            // Somebody may have removed it.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// A file of its own: not one that somebody has put there to have it overwritten.
fn open(path: &Path) -> Result<File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let another = || Error::new(ErrorKind::InvalidInput, "it is a link, or no file");
    let file = match rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR) {
        Err(Errno::LOOP) => return Err(another()),
        opened => File::from(opened?),
    };
    let metadata = file.metadata()?;
    if metadata.is_file() && metadata.nlink() == 1 { Ok(file) } else { Err(another()) }
}

fn parse(text: &str) -> Option<Duration> {
    let secs = text.strip_prefix(WORD)?.trim().parse().ok()?;
    (1..=KEEP_ALIVE_MAX).contains(&secs).then_some(Duration::from_secs(secs))
}

#[cfg(test)]
mod tests {
    use super::*;
    use attach::Socket;
    use std::os::unix::net::UnixListener;

    const LONG: Duration = Duration::from_secs(60);
    const SHORT: Duration = Duration::from_secs(2);

    fn claim(path: &Path) -> Place {
        Place::Socket(Socket::bind(path).unwrap(), path.to_owned())
    }

    fn kill(mark: Mark) {
        std::mem::forget(mark);
    }

    #[test]
    fn the_longest_keep_alive_stays_until_one_ends_by_itself() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk.sock");
        let leave = |keep_alive| Mark::leave(&claim(&path), keep_alive).unwrap();
        let first = leave(LONG);
        assert_eq!(first.earlier(), None);
        kill(first);
        // One that fails at once changes nothing.
        for _ in 0..2 {
            let next = leave(SHORT);
            assert_eq!(next.earlier(), Some(LONG));
        }
        leave(SHORT).end(false);
        assert_eq!(leave(SHORT).earlier(), Some(LONG));
        leave(SHORT).end(true);
        assert_eq!(leave(SHORT).earlier(), None);
        assert!(!directory.path().join("disk.sock.attached").exists(), "nothing came of that one");
        // One of an earlier version was killed.
        drop(UnixListener::bind(&path).unwrap());
        assert_eq!(leave(SHORT).earlier(), Some(KEEP_ALIVE));
    }

    #[test]
    fn a_file_that_is_something_else_is_neither_written_nor_believed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk.sock");
        let mark = directory.path().join("disk.sock.attached");
        let other = directory.path().join("other");
        std::fs::write(&other, "precious").unwrap();
        std::os::unix::fs::symlink(&other, &mark).unwrap();
        assert!(Mark::leave(&claim(&path), SHORT).is_err());
        std::fs::remove_file(&mark).unwrap();
        std::fs::hard_link(&other, &mark).unwrap();
        assert!(Mark::leave(&claim(&path), SHORT).is_err());
        assert_eq!(std::fs::read(&other).unwrap(), b"precious");
        std::fs::remove_file(&mark).unwrap();
        for text in ["keep-alive", "keep-alive 0000\n", "keep-alive 9999999999999999999\n", "\0\u{ff}"] {
            std::fs::write(&mark, text).unwrap();
            let earlier = Mark::leave(&claim(&path), SHORT).unwrap().earlier();
            assert_eq!(earlier, Some(Duration::from_secs(KEEP_ALIVE_MAX)), "{text}");
        }
    }
}
