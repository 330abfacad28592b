//! Sockets by which the Trunkline processes of this host tell their state: each process has a
//! socket in a directory of its user, and who connects is sent a document.
//!
//! A process that was killed leaves its socket behind: nothing accepts connections there, and the
//! next reader removes it. Another user's directory is read by root only, and only when root asks
//! for the processes of all users ([`others`]).

mod others;

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A process that accepts the connection, but tells nothing for this long, is left out.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest document that is read: the counters of some thousand clients.
const DOCUMENT_BYTES_MAX: u64 = 64 << 20;

/// A reader that has a question sends it at once.
const QUESTION_TIMEOUT: Duration = Duration::from_secs(1);
const QUESTION_BYTES_MAX: u64 = 256;

/// A directory of sockets by its name, which stands for one kind of document.
#[derive(Debug, Clone, Copy)]
pub struct Directory(pub &'static str);

/// A socket that is answered by a thread. Dropping it removes it.
#[derive(Debug)]
pub struct Socket(PathBuf);

impl Drop for Socket {
    fn drop(&mut self) {
        // Who connects from now on learns that it is gone.
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Directory {
    /// Sends a document to each reader, one after another, until the process ends.
    ///
    /// # Errors
    /// This user has no directory for sockets, or errors of the system.
    pub fn answer(self, thread: &str, document: impl Fn() -> Vec<u8> + Send + 'static) -> io::Result<Socket> {
        let (socket, listener) = listen(&self.path()?)?;
        let socket = Socket(socket);
        let answering = std::thread::Builder::new().name(thread.to_owned());
        answering.spawn(move || answer(&listener, document))?;
        Ok(socket)
    }

    /// The same for readers that ask for something in a line first. A question that is none gets no
    /// answer.
    ///
    /// # Errors
    /// As of [`Directory::answer`].
    pub fn answer_questions(
        self,
        thread: &str,
        document: impl Fn(&str) -> Option<Vec<u8>> + Send + 'static,
    ) -> io::Result<Socket> {
        let (socket, listener) = listen(&self.path()?)?;
        let socket = Socket(socket);
        let answering = std::thread::Builder::new().name(thread.to_owned());
        answering.spawn(move || {
            answer_each(&listener, |stream| {
                let question = question(stream)?;
                document(&question)
            });
        })?;
        Ok(socket)
    }

    /// The document with which a process of this user answers a question.
    ///
    /// # Errors
    /// As of [`Directory::read`].
    pub fn ask(self, pid: u32, question: &str) -> io::Result<Vec<u8>> {
        let directory = self.path()?;
        if !is_private(&directory) {
            return Err(io::ErrorKind::NotFound.into());
        }
        read(&socket_of(&directory, pid), question).map(|(_, document)| document)
    }

    /// The processes of other users that have a socket, if this user is root, who may ask them.
    pub fn processes_of_others(self) -> Vec<u32> {
        let others = others::users().into_iter();
        let mut processes: Vec<u32> = others.flat_map(|user| user.processes(self.0)).collect();
        processes.sort_unstable();
        processes
    }

    /// The document of another user's process, with a question if it wants one.
    ///
    /// # Errors
    /// There is no such process, this user is not root, or the process tells nothing.
    pub fn read_of_others(self, pid: u32, question: &str) -> io::Result<Vec<u8>> {
        let read = others::users().into_iter().map(|user| user.read(self.0, pid, question));
        let absent =
            |read: &io::Result<_>| matches!(read, Err(error) if error.kind() == io::ErrorKind::NotFound);
        read.into_iter().find(|read| !absent(read)).unwrap_or(Err(io::ErrorKind::NotFound.into()))
    }

    /// The documents of this user's processes, each with the number of its process.
    pub fn read_all(self) -> Vec<(u32, Vec<u8>)> {
        let directory = self.path().ok().filter(|directory| is_private(directory));
        directory.map(|directory| read_all_in(&directory)).unwrap_or_default()
    }

    /// The document of one process of this user.
    ///
    /// # Errors
    /// There is no such process, or it tells nothing.
    pub fn read(self, pid: u32) -> io::Result<Vec<u8>> {
        let directory = self.path()?;
        if !is_private(&directory) {
            return Err(io::ErrorKind::NotFound.into());
        }
        read(&socket_of(&directory, pid), "").map(|(_, document)| document)
    }

    /// The processes of this user that have a socket, in the order of their numbers. Those that
    /// were killed are among them until somebody reads.
    pub fn processes(self) -> Vec<u32> {
        let directory = self.path().ok().filter(|directory| is_private(directory));
        let mut processes: Vec<u32> = directory.map(|directory| named_in(&directory)).unwrap_or_default();
        processes.sort_unstable();
        processes
    }

    /// Root's directory is in /run, others' in their own runtime directory.
    fn path(self) -> io::Result<PathBuf> {
        let uid = rustix::process::geteuid();
        let base = match std::env::var_os("XDG_RUNTIME_DIR") {
            _ if uid.is_root() => PathBuf::from("/run"),
            Some(directory) if !directory.is_empty() => PathBuf::from(directory),
            _ => PathBuf::from(format!("/run/user/{}", uid.as_raw())),
        };
        if !base.is_dir() {
            let cause = format!("there is no {}", base.display());
            return Err(io::Error::new(io::ErrorKind::NotFound, cause));
        }
        Ok(base.join(self.0))
    }
}

/// The processes that have a socket in a directory, by the names of the sockets.
fn named_in(directory: &Path) -> Vec<u32> {
    let sockets = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let names = sockets.map(|socket| socket.file_name());
    names.filter_map(|name| name.to_str()?.strip_suffix(".sock")?.parse().ok()).collect()
}

fn answer(listener: &UnixListener, document: impl Fn() -> Vec<u8>) {
    answer_each(listener, |_| Some(document()));
}

/// A line of a reader, who sends it at once.
fn question(stream: &UnixStream) -> Option<String> {
    stream.set_read_timeout(Some(QUESTION_TIMEOUT)).ok()?;
    let mut line = String::new();
    BufReader::new(stream.take(QUESTION_BYTES_MAX)).read_line(&mut line).ok()?;
    line.strip_suffix('\n').map(str::to_owned)
}

fn answer_each(listener: &UnixListener, document: impl Fn(&UnixStream) -> Option<Vec<u8>>) {
    for stream in listener.incoming() {
        let Ok(mut stream) = stream else {
            // Descriptors may be short for a moment.
            std::thread::sleep(Duration::from_millis(100));
            continue;
        };
        // A reader that does not read gets no document.
        let _ = stream.set_write_timeout(Some(ANSWER_TIMEOUT));
        if let Some(document) = document(&stream) {
            let _ = stream.write_all(&document);
        }
        let _ = stream.shutdown(Shutdown::Both);
    }
}

/// Whether a directory belongs to this user, who alone can enter it. A symbolic link is not
/// followed: what is removed in the directory is removed nowhere else.
fn is_private(directory: &Path) -> bool {
    let owner = rustix::process::geteuid().as_raw();
    std::fs::symlink_metadata(directory)
        .is_ok_and(|found| found.is_dir() && found.uid() == owner && found.mode() & 0o077 == 0)
}

fn socket_of(directory: &Path, pid: u32) -> PathBuf {
    directory.join(format!("{pid}.sock"))
}

fn listen(directory: &Path) -> io::Result<(PathBuf, UnixListener)> {
    match std::fs::DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    if !is_private(directory) {
        let cause = format!("{} is not a directory of this user alone", directory.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, cause));
    }
    let socket = socket_of(directory, std::process::id());
    remove_stale(&socket);
    let listener = UnixListener::bind(&socket)?;
    Ok((socket, listener))
}

/// Removes the socket of a process that was killed.
fn remove_stale(socket: &Path) {
    if std::fs::symlink_metadata(socket).is_ok_and(|found| found.file_type().is_socket()) {
        // Another reader may have removed it.
        let _ = std::fs::remove_file(socket);
    }
}

fn read_all_in(directory: &Path) -> Vec<(u32, Vec<u8>)> {
    let sockets = std::fs::read_dir(directory).into_iter().flatten().flatten();
    sockets.filter_map(|socket| read(&socket.path(), "").ok()).collect()
}

/// Asks the process behind a socket, with a question if it wants one. Returns its number, as the
/// system knows it, and its document.
fn read(socket: &Path, question: &str) -> io::Result<(u32, Vec<u8>)> {
    let mut stream = UnixStream::connect(socket).inspect_err(|error| {
        if error.kind() == io::ErrorKind::ConnectionRefused {
            remove_stale(socket);
        }
    })?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    let pid = rustix::net::sockopt::socket_peercred(&stream)?.pid.as_raw_nonzero().get();
    if !question.is_empty() {
        writeln!(stream, "{question}")?;
    }
    let mut document = Vec::new();
    stream.take(DOCUMENT_BYTES_MAX).read_to_end(&mut document)?;
    Ok((u32::try_from(pid).unwrap_or_default(), document))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn only_a_directory_of_this_user_alone_is_read_and_cleaned() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("mounts");
        std::fs::DirBuilder::new().mode(0o700).create(&directory).unwrap();
        assert!(is_private(&directory));
        let link = place.path().join("link");
        symlink(&directory, &link).unwrap();
        assert!(!is_private(&link), "a link may lead anywhere");
        std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o770)).unwrap();
        assert!(!is_private(&directory), "others may put things there");
        assert!(!is_private(&place.path().join("absent")));
    }

    #[test]
    fn the_socket_of_a_killed_process_is_removed_and_no_other_file() {
        let place = tempfile::tempdir().unwrap();
        let (socket, file) = (place.path().join("1.sock"), place.path().join("passwd"));
        drop(UnixListener::bind(&socket).unwrap());
        std::fs::write(&file, "kept").unwrap();
        symlink(&file, place.path().join("link")).unwrap();
        assert_eq!(read_all_in(place.path()), []);
        assert!(!socket.exists(), "nothing accepts connections there");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "kept");
        assert!(place.path().join("link").is_symlink());
    }

    #[test]
    fn each_reader_gets_a_document_and_the_number_of_its_process() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("sockets");
        let (socket, listener) = listen(&directory).unwrap();
        std::thread::spawn(move || answer(&listener, || b"document".to_vec()));
        for _ in 0..2 {
            assert_eq!(read_all_in(&directory), [(std::process::id(), b"document".to_vec())]);
        }
        drop(Socket(socket.clone()));
        assert!(!socket.exists());
    }
}
