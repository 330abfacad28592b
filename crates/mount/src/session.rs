//! A mount from its beginning to its end.

use crate::caller::Callers;
use crate::core::{Core, Handles};
use crate::executor::{Executor, block_on};
use crate::file_system::{Agreement, FileSystem};
use crate::fusermount;
use crate::gauges::Gauges;
use crate::inode::Inodes;
use crate::interrupts::{Interrupts, TICK};
use crate::kernel::Device;
use crate::notices::Notices;
use crate::policy::Policy;
use client::options::MountOptions;
use client::{Mount, Settings};
use fuser::{Config, MountOption, Session, SessionACL};
use rustix::mount::UnmountFlags;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender};
use std::sync::{Arc, OnceLock};

/// Threads that go on with requests that take long: more than that wait for each other.
const WORKERS_MAX: usize = 4;
/// Bytes that are read ahead at least, and at most, however many connections there are.
const AHEAD_BYTES: (usize, usize) = (4 << 20, 16 << 20);
/// What was read ahead in any file is looked at once in so many ticks.
const TICKS_OF_AHEAD: u32 = 5;
/// What the kernel reads ahead, where we may say so. Its own default, 128 KiB, makes small requests.
const KERNEL_READ_AHEAD_KIB: u32 = 1024;

/// Why a directory could not be mounted on, or unmounted.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server's side.
    #[error(transparent)]
    Client(#[from] client::Error),
    /// The kernel's side.
    #[error("cannot mount on {}", directory.display())]
    Fuse {
        /// Where.
        directory: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// Who is not root needs fusermount3, and it is not there.
    #[error("cannot mount on {}", directory.display())]
    NoHelper {
        /// Where.
        directory: PathBuf,
        /// What is missing.
        #[source]
        source: io::Error,
    },
    /// fusermount3 does not mount for this user.
    #[error("cannot mount on {}\n  cause: {said}", directory.display())]
    Refused {
        /// Where.
        directory: PathBuf,
        /// Its words.
        said: String,
    },
    /// This machine has no threads left, or the like.
    #[error("cannot start the mount's threads")]
    Threads(#[source] io::Error),
    /// It stays mounted.
    #[error("cannot unmount {}", directory.display())]
    Unmount {
        /// Where.
        directory: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
}

/// What to mount, and where.
#[derive(Debug, Clone)]
pub struct Request {
    /// What `mount` shows as the source: `SERVER:/EXPORT`.
    pub source: String,
    /// What the user asked for.
    pub options: MountOptions,
    /// The directory to mount on.
    pub directory: PathBuf,
}

/// A directory that is served. It is served until somebody unmounts it.
#[derive(Debug)]
pub struct Mounted {
    ended: Receiver<Ended>,
    unmounter: Unmounter,
}

/// How serving ended.
type Ended = io::Result<()>;

/// Ends a mount from another thread, or looks at it.
#[derive(Debug, Clone)]
pub struct Unmounter {
    core: Arc<Core>,
    directory: PathBuf,
    end: SyncSender<Ended>,
    /// Nobody waits for the server any more.
    given_up: Arc<AtomicBool>,
}

impl Mounted {
    /// Mounts. When it returns, programs can use the directory.
    ///
    /// # Errors
    /// [`Error`], with which side it was.
    pub fn start(mount: Mount, request: &Request) -> Result<Self, Error> {
        let core = Arc::new(make_core(mount, &request.options)?);
        let fuse = |source| Error::Fuse { directory: request.directory.clone(), source };
        // What the kernel shall call by this name, wherever the daemon's working directory is.
        let directory = request.directory.canonicalize().map_err(fuse)?;
        let is_root = rustix::process::geteuid().is_root();
        if !is_root && fusermount::find().is_none() {
            return Err(Error::NoHelper { directory, source: fusermount::missing() });
        }
        let agreement = Agreement { core: Arc::clone(&core) };
        let session = Session::new(agreement, &directory, &fuse_config(request, is_root));
        let session = session.map_err(|source| match source.raw_os_error() {
            // What comes without a number are fusermount3's words.
            None if !is_root && source.kind() != io::ErrorKind::NotFound => {
                let said = source.to_string().trim().to_owned();
                Error::Refused { directory: request.directory.clone(), said }
            }
            _ => fuse(source),
        })?;
        let device = Arc::new(Device::new(session.as_fd()).map_err(fuse)?);
        // Connections over RDMA are made and ended on the loops, which takes the system long: requests must not wait for it.
        let attendant = if core.mount.uses_rdma() {
            None
        } else {
            let waits_for = device.as_fd().try_clone_to_owned();
            Some(waits_for.and_then(|device| core.mount.attendant(device)).map_err(fuse)?)
        };
        // The first notifier stays: there is one session to a core.
        let _ = core.notifier.set(session.notifier());
        let (telling, notifier) = (Arc::clone(&core), session.notifier());
        std::thread::Builder::new()
            .name("tl-fuse-notify".into())
            .spawn(move || {
                telling.notices.tell(&notifier, |ino, range| block_on(telling.done_by_now(ino, range)))
            })
            .map_err(Error::Threads)?;
        // Room for both that may end it, so that neither waits.
        let (end, ended) = std::sync::mpsc::sync_channel(2);
        let file_system = FileSystem::new(Arc::clone(&core), device);
        let session_end = end.clone();
        std::thread::Builder::new()
            .name("tl-fuse".into())
            .spawn(move || {
                let served = catch_unwind(AssertUnwindSafe(|| file_system.serve(attendant)));
                let outcome = served.unwrap_or_else(|_| Err(io::Error::other("a thread panicked")));
                // The crate unmounts what is still mounted.
                drop(session);
                // Nobody listens any more if it was ended in the other way.
                let _ = session_end.send(outcome);
            })
            .map_err(Error::Threads)?;
        let ticking = Arc::downgrade(&core);
        std::thread::Builder::new()
            .name("tl-fuse-tick".into())
            .spawn(move || {
                let mut ticks = (0..TICKS_OF_AHEAD).cycle();
                while let Some(core) = ticking.upgrade() {
                    core.interrupts.tick();
                    core.send_old();
                    if ticks.next() == Some(0) {
                        core.drop_old_ahead();
                    }
                    drop(core);
                    std::thread::sleep(TICK);
                }
            })
            .map_err(Error::Threads)?;
        raise_kernel_read_ahead(&directory);
        Ok(Self { ended, unmounter: Unmounter { core, directory, end, given_up: Arc::default() } })
    }

    /// What ends it.
    #[must_use]
    pub fn unmounter(&self) -> Unmounter {
        self.unmounter.clone()
    }

    /// Serves until the directory is unmounted; what is still open in it then fails when this process ends.
    ///
    /// # Errors
    /// The kernel's, when it stops talking to us in another way.
    pub fn wait(self) -> Result<(), Error> {
        let outcome = self.ended.recv().unwrap_or(Ok(()));
        if !self.unmounter.given_up.load(Ordering::Acquire) {
            self.unmounter.write_all();
        }
        self.unmounter.core.executor.close();
        self.unmounter.core.notices.close();
        let directory = self.unmounter.directory.clone();
        if outcome.is_err() {
            // Nobody serves it any more.
            let _ = unmount(&directory, true);
        }
        outcome.map_err(|source| Error::Fuse { directory, source })
    }
}

impl Unmounter {
    /// Writes what programs have written, then unmounts; a directory that is in use disappears at once, and what is
    /// open in it fails from then on.
    ///
    /// # Errors
    /// [`Error::Unmount`].
    pub fn unmount(&self) -> Result<(), Error> {
        let files = self.core.inodes.unclean().len();
        if files > 0 {
            tracing::warn!(
                files,
                "what was written goes to the server before the unmount; a second signal gives that up"
            );
        }
        self.write_all();
        match unmount(&self.directory, false) {
            Err(Error::Unmount { source, .. }) if source.raw_os_error() == Some(libc::EBUSY) => {
                tracing::warn!(directory = %self.directory.display(), "it is in use, and disappears nevertheless");
                unmount(&self.directory, true)?;
                // What is open in it would keep us here; it fails once we are gone.
                let _ = self.end.send(Ok(()));
                Ok(())
            }
            outcome => outcome,
        }
    }

    /// Unmounts without the server: data that it does not have are lost.
    ///
    /// # Errors
    /// [`Error::Unmount`].
    pub fn give_up(&self) -> Result<(), Error> {
        let files = self.core.inodes.unclean().len();
        tracing::warn!(directory = %self.directory.display(), files, "unmounted; what these files lack on the server is lost");
        self.given_up.store(true, Ordering::Release);
        let outcome = unmount(&self.directory, true);
        // There is room for one from here and one from the thread that serves; more say nothing new.
        let _ = self.end.try_send(Ok(()));
        outcome
    }

    /// What the mount holds now.
    #[must_use]
    pub fn gauges(&self) -> Gauges {
        self.core.gauges()
    }

    /// What its calls have come to.
    #[must_use]
    pub fn statistics(&self) -> client::Statistics {
        self.core.mount.statistics()
    }

    fn write_all(&self) {
        for inode in self.core.inodes.unclean() {
            block_on(self.core.flush(&inode));
        }
    }
}

/// Unmounts a directory; with `lazily` even if it is in use.
///
/// # Errors
/// [`Error::Unmount`].
pub fn unmount(directory: &Path, lazily: bool) -> Result<(), Error> {
    let failed = |source| Error::Unmount { directory: directory.to_owned(), source };
    let flags = if lazily { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    match rustix::mount::unmount(directory, flags | UnmountFlags::NOFOLLOW) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::PERM) => fusermount::unmount(directory, lazily).map_err(failed),
        Err(error) => Err(failed(error.into())),
    }
}

fn make_core(mount: Mount, options: &MountOptions) -> Result<Core, Error> {
    let policy = Policy::new(options);
    let root = mount.attributes(mount.root())?;
    let sizes = mount.transfer_sizes();
    let sizes = (sizes.0 as usize, sizes.1 as usize);
    let connections = usize::from(options.bulk_connections(1));
    let ahead_max = (connections * 2 * sizes.0).clamp(AHEAD_BYTES.0, AHEAD_BYTES.1);
    Ok(Core {
        inodes: Inodes::new(mount.clone(), &root),
        policy,
        files: Handles::new(),
        directories: Handles::new(),
        callers: Callers::new(rustix::process::geteuid().is_root()),
        executor: Executor::start(workers()).map_err(Error::Threads)?,
        interrupts: Interrupts::default(),
        budget: Arc::default(),
        buffers: Arc::default(),
        pipes: Arc::default(),
        notifier: OnceLock::new(),
        notices: Notices::default(),
        open_files: AtomicUsize::new(0),
        writes_under_way: AtomicUsize::new(0),
        sizes,
        ahead_max,
        ahead_held: Arc::default(),
        // As good as random: seeded by the system for each.
        unique: AtomicU64::new(RandomState::new().hash_one(std::process::id())),
        mount,
    })
}

/// Settings as a mounted directory wants them: each loop reaches every node, where there are connections enough, as one
/// of them makes most of the calls.
#[must_use]
pub fn settings(settings: Settings) -> Settings {
    let rounds = usize::from(settings.nconnect) / settings.remotes.len().max(1);
    Settings { loops: settings.loops.min(rounds.max(1)), ..settings }
}

fn workers() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from).clamp(2, WORKERS_MAX)
}

/// What the kernel is told, and who may come in.
fn fuse_config(request: &Request, is_root: bool) -> Config {
    let given = |name: &str| request.options.noted.contains_key(name);
    let mut config = Config::default();
    // fusermount3 takes all options as one text, where a comma would end the name.
    let comma = if is_root { "," } else { "\\," };
    config.mount_options = vec![
        MountOption::FSName(request.source.replace(',', comma)),
        MountOption::CUSTOM("subtype=trunkline".into()),
        MountOption::DefaultPermissions,
    ];
    let mut add = |wished: bool, option: MountOption| {
        if wished {
            config.mount_options.push(option);
        }
    };
    add(request.options.read_only, MountOption::RO);
    // As on a kernel mount, unless it is said otherwise. Who is not root gets neither in any case.
    add(is_root && !given("nodev"), MountOption::Dev);
    add(is_root && !given("nosuid"), MountOption::Suid);
    add(given("noexec") && !given("exec"), MountOption::NoExec);
    add(given("noatime"), MountOption::NoAtime);
    // fusermount3 refuses it where the administrator has not allowed it.
    config.acl = if is_root || given("allow_other") { SessionACL::All } else { SessionACL::Owner };
    config
}

/// Larger requests for programs that read on and on; only root may ask for it, and without it we read ahead alone.
fn raise_kernel_read_ahead(directory: &Path) {
    let device = match rustix::fs::stat(directory) {
        Ok(stat) => stat.st_dev,
        Err(error) => {
            tracing::debug!(%error, "the mount's device is not known");
            return;
        }
    };
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let path = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
    if let Err(error) = std::fs::write(&path, KERNEL_READ_AHEAD_KIB.to_string()) {
        tracing::debug!(%path, %error, "the kernel's read-ahead stays as it is");
    }
}
