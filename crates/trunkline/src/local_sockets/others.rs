//! Root reads what other users' processes tell.
//!
//! What lies in a user's directory is that user's to choose, so nothing there is trusted: no link
//! is followed, only a socket of the user is connected to, and only the process of the user that
//! the socket is named after is listened to. The size of what it tells, the time it takes, and the
//! number of a user's processes are bounded. Nothing is removed there.

use super::{ANSWER_TIMEOUT, named_in, socket_of};
use rustix::fs::{FileType, Mode, OFlags, Stat, fstat, open, openat};
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The runtime directories of users.
const RUNTIME: &str = "/run/user";
/// The most processes of one user that root asks.
const PROCESSES_MAX: usize = 16;
/// The longest document that root reads of another user's process: the counters of hundreds of
/// clients.
const DOCUMENT_BYTES_MAX: usize = 8 << 20;

/// Another user, with a runtime directory.
#[derive(Debug)]
pub(super) struct User {
    uid: u32,
    runtime: PathBuf,
}

/// The other users who have a runtime directory, if this user is root.
pub(super) fn users() -> Vec<User> {
    if !rustix::process::geteuid().is_root() {
        return Vec::new();
    }
    let directories = std::fs::read_dir(RUNTIME).into_iter().flatten().flatten();
    let uids = directories.filter_map(|directory| directory.file_name().to_str()?.parse::<u32>().ok());
    uids.filter(|uid| *uid != 0)
        .map(|uid| User { uid, runtime: Path::new(RUNTIME).join(uid.to_string()) })
        .collect()
}

impl User {
    /// The processes of the user that have a socket in the directory of this name.
    pub(super) fn processes(&self, name: &str) -> Vec<u32> {
        let Ok(directory) = self.open(name) else { return Vec::new() };
        let mut named = named_in(&by_descriptor(&directory));
        named.truncate(PROCESSES_MAX);
        named
    }

    /// The document of a process of the user.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if the user has no such process; or why it tells nothing.
    pub(super) fn read(&self, name: &str, pid: u32, question: &str) -> io::Result<Vec<u8>> {
        let directory = self.open(name)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let socket = openat(&directory, socket_of(Path::new(""), pid), flags, Mode::empty())?;
        let found = fstat(&socket)?;
        if FileType::from_raw_mode(found.st_mode) != FileType::Socket || found.st_uid != self.uid {
            return Err(io::ErrorKind::NotFound.into());
        }
        let mut stream = connect(&by_descriptor(&socket))?;
        let peer = socket_peercred(&stream)?;
        let is_it = u32::try_from(peer.pid.as_raw_nonzero().get()) == Ok(pid);
        if !is_it || peer.uid.as_raw() != self.uid {
            return Err(io::ErrorKind::NotFound.into());
        }
        if !question.is_empty() {
            writeln!(stream, "{question}")?;
        }
        read_within(&mut stream)
    }

    /// Opens the user's directory of sockets, where the user alone can put things.
    fn open(&self, name: &str) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let runtime = open(&self.runtime, flags, Mode::empty())?;
        let directory = openat(&runtime, name, flags, Mode::empty())?;
        let is_of_user = |found: Stat| found.st_uid == self.uid && found.st_mode & 0o077 == 0;
        match is_of_user(fstat(&runtime)?) && is_of_user(fstat(&directory)?) {
            true => Ok(directory),
            false => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

/// A path that leads to what is open, whatever its name leads to by now.
fn by_descriptor(open: &impl AsFd) -> PathBuf {
    format!("/proc/self/fd/{}", open.as_fd().as_raw_fd()).into()
}

/// Connects to a socket, whose process need not accept the connection.
fn connect(socket: &Path) -> io::Result<UnixStream> {
    let stream = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&stream, Timeout::Send, Some(ANSWER_TIMEOUT))?;
    rustix::net::connect(&stream, &SocketAddrUnix::new(socket)?)?;
    Ok(stream.into())
}

/// Reads a document that ends within [`ANSWER_TIMEOUT`] altogether, however it trickles.
fn read_within(stream: &mut UnixStream) -> io::Result<Vec<u8>> {
    let (until, mut document, mut piece) = (Instant::now() + ANSWER_TIMEOUT, Vec::new(), vec![0; 64 << 10]);
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        let count = stream.read(&mut piece)?;
        let Some(read) = piece.get(..count).filter(|read| !read.is_empty()) else { return Ok(document) };
        if document.len() + read.len() > DOCUMENT_BYTES_MAX {
            let cause = format!("it tells more than {DOCUMENT_BYTES_MAX} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidData, cause));
        }
        document.extend_from_slice(read);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;

    const NAME: &str = "trunkline-live";

    /// A runtime directory of this user with a directory of sockets, as if of another user.
    fn user() -> (tempfile::TempDir, User) {
        let runtime = tempfile::tempdir().unwrap();
        std::fs::set_permissions(runtime.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
        std::fs::DirBuilder::new().mode(0o700).create(runtime.path().join(NAME)).unwrap();
        let user = User { uid: rustix::process::geteuid().as_raw(), runtime: runtime.path().to_owned() };
        (runtime, user)
    }

    fn answer(socket: &Path, document: &[u8]) {
        let document = document.to_vec();
        let listener = UnixListener::bind(socket).unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                // A reader may have seen enough.
                let _ = stream.unwrap().write_all(&document);
            }
        });
    }

    #[test]
    fn only_the_process_that_a_socket_is_named_after_is_listened_to() {
        let (runtime, user) = user();
        let (sockets, own) = (runtime.path().join(NAME), std::process::id());
        answer(&socket_of(&sockets, own), b"document");
        assert_eq!(user.processes(NAME), [own]);
        assert_eq!(user.read(NAME, own, "").unwrap(), b"document");
        let refused = |pid: u32| {
            let error = user.read(NAME, pid, "").unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::NotFound, "{pid}: {error}");
        };
        answer(&socket_of(&sockets, own + 1), b"of another process");
        refused(own + 1);
        std::fs::write(socket_of(&sockets, own + 2), "no socket").unwrap();
        refused(own + 2);
        refused(own + 3);
        assert!(user.processes("absent").is_empty());
    }

    #[test]
    fn links_and_directories_of_others_lead_nowhere() {
        let (runtime, user) = user();
        let (sockets, own) = (runtime.path().join(NAME), std::process::id());
        let elsewhere = tempfile::tempdir().unwrap();
        answer(&elsewhere.path().join("socket"), b"secret");
        symlink(elsewhere.path().join("socket"), socket_of(&sockets, own)).unwrap();
        assert!(user.read(NAME, own, "").is_err(), "a link to a socket");
        symlink(elsewhere.path(), runtime.path().join("link")).unwrap();
        answer(&socket_of(elsewhere.path(), own), b"secret");
        assert!(user.read("link", own, "").is_err() && user.processes("link").is_empty());
        let stranger = User { uid: user.uid + 1, runtime: user.runtime.clone() };
        std::fs::remove_file(socket_of(&sockets, own)).unwrap();
        answer(&socket_of(&sockets, own), b"document");
        assert!(user.read(NAME, own, "").is_ok());
        assert!(stranger.read(NAME, own, "").is_err() && stranger.processes(NAME).is_empty());
        std::fs::set_permissions(&sockets, std::fs::Permissions::from_mode(0o770)).unwrap();
        assert!(user.read(NAME, own, "").is_err(), "others may put things there");
    }

    #[test]
    fn a_user_with_many_sockets_or_a_long_document_is_bounded() {
        let (runtime, user) = user();
        let (sockets, own) = (runtime.path().join(NAME), std::process::id());
        for number in 0..100 {
            std::fs::write(socket_of(&sockets, 1_000_000 + number), "").unwrap();
        }
        assert_eq!(user.processes(NAME).len(), PROCESSES_MAX);
        answer(&socket_of(&sockets, own), &vec![b' '; DOCUMENT_BYTES_MAX + 1]);
        let error = user.read(NAME, own, "").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
    }
}
