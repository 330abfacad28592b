//! The socket and its connections.

use crate::connection;
use crate::disk::Disk;
use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Connections at a time; QEMU and fio use up to 16.
const CONNECTIONS_MAX: usize = 64;

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another process serves the socket, or is about to.
    #[error("{0} is served by another process")]
    InUse(PathBuf),
    /// There is something else.
    #[error("{0} is there and is not a socket")]
    NotASocket(PathBuf),
    /// The system refuses.
    #[error("cannot listen on {0}: {1}")]
    Listen(PathBuf, std::io::Error),
}

/// How the last server of a socket has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Earlier {
    /// By itself, or there was none.
    Ended,
    /// It was killed: its socket was still there.
    Killed,
}

/// The right to bind a path. Of processes that find the socket of a killed server at the same time,
/// one removes and binds it, and no other one takes it for that of a killed server meanwhile.
#[derive(Debug)]
struct Lock {
    /// Locked for as long as it is open.
    _file: File,
    path: PathBuf,
}

impl Lock {
    fn take(socket: &Path) -> Result<Self, Error> {
        use std::os::unix::fs::MetadataExt as _;
        let failed = |error| Error::Listen(socket.to_owned(), error);
        let mut path = socket.as_os_str().to_owned();
        path.push(".lock");
        let path = PathBuf::from(path);
        loop {
            let file =
                File::options().create(true).write(true).truncate(false).open(&path).map_err(failed)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Err(Error::InUse(socket.to_owned())),
                Err(TryLockError::Error(error)) => return Err(failed(error)),
            }
            // Its last owner may have removed the file after it was opened here, and others may
            // lock another one at its place.
            let ours = file.metadata().map_err(failed)?;
            match std::fs::metadata(&path) {
                Ok(there) if (there.dev(), there.ino()) == (ours.dev(), ours.ino()) => {
                    return Ok(Self { _file: file, path });
                }
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed(error)),
                _ => {}
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Still locked. Somebody may have removed it.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// A socket that is bound, and not served yet: clients wait.
#[derive(Debug)]
pub struct Socket {
    listener: UnixListener,
    path: PathBuf,
    _lock: Lock,
    /// How the last server of it has ended.
    pub earlier: Earlier,
}

impl Socket {
    /// Binds a path, also where a killed server has left its socket.
    ///
    /// # Errors
    /// [`Error`].
    pub fn bind(path: &Path) -> Result<Self, Error> {
        use std::os::unix::fs::FileTypeExt as _;
        let failed = |error| Error::Listen(path.to_owned(), error);
        let lock = Lock::take(path)?;
        let earlier = match std::fs::symlink_metadata(path) {
            Ok(metadata) if !metadata.file_type().is_socket() => {
                return Err(Error::NotASocket(path.to_owned()));
            }
            Ok(_) => match UnixStream::connect(path) {
                Ok(_) => return Err(Error::InUse(path.to_owned())),
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                    std::fs::remove_file(path).map_err(failed)?;
                    Earlier::Killed
                }
                Err(error) => return Err(failed(error)),
            },
            Err(error) if error.kind() == ErrorKind::NotFound => Earlier::Ended,
            Err(error) => return Err(failed(error)),
        };
        let listener = UnixListener::bind(path).map_err(failed)?;
        Ok(Self { listener, path: path.to_owned(), _lock: lock, earlier })
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // Somebody may have removed it.
        let _ = std::fs::remove_file(&self.path);
    }
}

#[derive(Debug, Default)]
struct Connections {
    streams: Mutex<Vec<(u64, UnixStream)>>,
    is_ending: AtomicBool,
}

impl Connections {
    fn streams(&self) -> std::sync::MutexGuard<'_, Vec<(u64, UnixStream)>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A server of one disk. It ends when it is dropped, and removes its socket.
#[derive(Debug)]
pub struct Server {
    socket: Arc<Socket>,
    connections: Arc<Connections>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Begins to serve.
    ///
    /// # Errors
    /// [`Error::Listen`] if there is no thread for it.
    pub fn start<D: Disk>(socket: Socket, disk: D) -> Result<Self, Error> {
        let path = socket.path.clone();
        let (socket, connections) = (Arc::new(socket), Arc::<Connections>::default());
        let (listens, shared, disk) = (Arc::clone(&socket), Arc::clone(&connections), Arc::new(disk));
        let builder = std::thread::Builder::new().name("nbd-accept".to_owned());
        let thread = builder.spawn(move || accept(&listens.listener, &shared, &disk));
        let thread = thread.map_err(|error| Error::Listen(path, error))?;
        Ok(Self { socket, connections, thread: Some(thread) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.connections.is_ending.store(true, Ordering::SeqCst);
        // Wakes the thread that accepts, also where somebody has removed the socket.
        if let Ok(listener) = self.socket.listener.try_clone() {
            let _ = UnixStream::from(OwnedFd::from(listener)).shutdown(Shutdown::Both);
        }
        for (_, stream) in self.connections.streams().iter() {
            let _ = stream.shutdown(Shutdown::Read);
        }
        if let Some(thread) = self.thread.take() {
            // It has ended also if it panicked.
            let _ = thread.join();
        }
    }
}

fn accept<D: Disk>(listener: &UnixListener, connections: &Arc<Connections>, disk: &Arc<D>) {
    let mut threads: Vec<JoinHandle<()>> = Vec::new();
    for number in 0_u64.. {
        let accepted = listener.accept();
        if connections.is_ending.load(Ordering::SeqCst) {
            break;
        }
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                std::thread::sleep(std::time::Duration::from_millis(100));
                continue;
            }
        };
        threads.retain(|thread| !thread.is_finished());
        let Ok(other) = stream.try_clone() else { continue };
        if threads.len() >= CONNECTIONS_MAX {
            tracing::warn!("more than {CONNECTIONS_MAX} connections: one was refused");
            continue;
        }
        connections.streams().push((number, other));
        let (shared, disk) = (Arc::clone(connections), Arc::clone(disk));
        let builder = std::thread::Builder::new().name("nbd".to_owned());
        let thread = builder.spawn(move || {
            if let Err(error) = connection::serve(&disk, stream) {
                tracing::warn!(%error, "a connection ended");
            }
            shared.streams().retain(|(one, _)| *one != number);
        });
        match thread {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                tracing::warn!(%error, "no thread for a connection");
                connections.streams().retain(|(one, _)| *one != number);
            }
        }
    }
    for thread in threads {
        let _ = thread.join();
    }
}
