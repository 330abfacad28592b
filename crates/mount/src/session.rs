//! The life of a mount, from mounting to the end of its process.

use crate::attach::{Attached, attach, resolve_mount_point};
use crate::attributes;
use crate::caller::Callers;
use crate::core::{Core, Handles};
use crate::executor::{Executor, block_on};
use crate::file_system::{FileSystem, Negotiation};
use crate::gauges::Gauges;
use crate::inode::Inodes;
use crate::interrupts::{Interrupts, TICK};
use crate::invalidations::Invalidations;
use crate::kernel::Device;
use crate::locks::LockWaits;
use crate::own_mount::{MountId, dead_mount_on};
use crate::policy::Policy;
use crate::silly_names::SillyNames;
use crate::unsupported::Unsupported;
use client::options::MountOptions;
use client::{Mount, Settings};
use fuser::{Config, Session, SessionACL};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender};
use std::sync::{Arc, OnceLock};

/// The most workers: threads that continue requests that take long.
const WORKERS_MAX: usize = 4;
/// The least and the most bytes that are read ahead in one file, however many connections there
/// are.
const READ_AHEAD_BYTES: (usize, usize) = (4 << 20, 16 << 20);
/// Data that were read ahead are checked for their age once in this many ticks.
const TICKS_PER_READ_AHEAD_CHECK: u32 = 5;
/// The kernel's read-ahead, if this process may set it. The kernel's default of 128 KiB makes small
/// requests.
const KERNEL_READ_AHEAD_KIB: u32 = 1024;

/// Why a directory could not be mounted on or unmounted.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The client's error.
    #[error(transparent)]
    Client(#[from] client::Error),
    /// The kernel's error.
    #[error("cannot mount on {}", directory.display())]
    Fuse {
        /// The directory.
        directory: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// Users other than root need fusermount3, which is missing.
    #[error("cannot mount on {}", directory.display())]
    NoHelper {
        /// The directory.
        directory: PathBuf,
        /// What is missing.
        #[source]
        source: io::Error,
    },
    /// fusermount3 does not mount for this user.
    #[error("cannot mount on {}\n  cause: {message}", directory.display())]
    Refused {
        /// The directory.
        directory: PathBuf,
        /// The message of fusermount3.
        message: String,
    },
    /// The system has no threads left, or similar.
    #[error("cannot start the mount's threads")]
    Threads(#[source] io::Error),
    /// The directory stays mounted.
    #[error("cannot unmount {}", directory.display())]
    Unmount {
        /// The directory.
        directory: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// What to mount, and where.
#[derive(Debug, Clone)]
pub struct Request {
    /// What mount(8) shows as the source: `SERVER:/EXPORT`.
    pub source: String,
    /// The user's options.
    pub options: MountOptions,
    /// The directory to mount on.
    pub directory: PathBuf,
}

/// A directory that is mounted, and served until it is unmounted.
#[derive(Debug)]
pub struct Mounted {
    ended: Receiver<Ended>,
    unmounter: Unmounter,
}

/// How serving ended.
type Ended = io::Result<()>;

/// Unmounts a directory from another thread, and reports on it.
#[derive(Debug, Clone)]
pub struct Unmounter {
    core: Arc<Core>,
    directory: PathBuf,
    own: MountId,
    device: Arc<Device>,
    end: SyncSender<Ended>,
    /// The mount was ended without waiting for the server.
    given_up: Arc<AtomicBool>,
}

impl Mounted {
    /// Mounts. When this returns, programs can use the directory.
    ///
    /// # Errors
    /// [`Error`]; the variant says which side has failed.
    pub fn start(mount: Mount, request: &Request) -> Result<Self, Error> {
        let core = Arc::new(make_core(mount, &request.options)?);
        let fuse = |source| Error::Fuse { directory: request.directory.clone(), source };
        // Use the path as the kernel names it: a daemon changes its working directory.
        let directory = resolve_mount_point(&request.directory).map_err(fuse)?;
        let Attached { device, mount: own } = attach(request, &directory, dead_mount_on(&directory)?)?;
        Self::begin(core, device, own, directory).inspect_err(|_| {
            // The caller does not know of the mount, and nothing will serve it.
            if let Err(error) = own.unmount(|| true) {
                tracing::warn!(%error, "a failed mount could not be unmounted");
            }
        })
    }

    /// Negotiates with the kernel, and starts to serve the mount.
    fn begin(core: Arc<Core>, device: OwnedFd, own: MountId, directory: PathBuf) -> Result<Self, Error> {
        let fuse = |source| Error::Fuse { directory: directory.clone(), source };
        let negotiation = Negotiation { core: Arc::clone(&core) };
        let session =
            Session::from_fd(negotiation, device, SessionACL::All, Config::default()).map_err(fuse)?;
        let device = Arc::new(Device::new(session.as_fd()).map_err(fuse)?);
        // Loops make and end connections over RDMA, which blocks them for long. Requests must not
        // wait for that, so this thread does not drive a loop.
        listen_to_server(&core);
        let external_driver = if core.mount.uses_rdma() {
            None
        } else {
            let waits_for = device.as_fd().try_clone_to_owned();
            Some(waits_for.and_then(|device| core.mount.external_driver(device)).map_err(fuse)?)
        };
        // A core has one session, so this is the first notifier.
        let _ = core.notifier.set(session.notifier());
        let (sending, notifier) = (Arc::clone(&core), session.notifier());
        std::thread::Builder::new()
            .name("tl-fuse-notify".into())
            .spawn(move || {
                let wait_for_requests = |ino, range| sending.wait_for_earlier_requests(ino, range);
                sending.invalidations.run(&notifier, wait_for_requests);
            })
            .map_err(Error::Threads)?;
        // Room for a message from the serving thread and one from an `Unmounter`, so that neither
        // waits.
        let (end, ended) = std::sync::mpsc::sync_channel(2);
        let file_system = FileSystem::new(Arc::clone(&core), Arc::clone(&device));
        let session_end = end.clone();
        std::thread::Builder::new()
            .name("tl-fuse".into())
            .spawn(move || {
                let served = catch_unwind(AssertUnwindSafe(|| file_system.serve(external_driver)));
                let outcome = served.unwrap_or_else(|_| Err(io::Error::other("a thread panicked")));
                drop(session);
                // Nobody receives this if an `Unmounter` has ended the mount.
                let _ = session_end.send(outcome);
            })
            .map_err(Error::Threads)?;
        let ticking = Arc::downgrade(&core);
        std::thread::Builder::new()
            .name("tl-fuse-tick".into())
            .spawn(move || {
                let mut ticks = (0..TICKS_PER_READ_AHEAD_CHECK).cycle();
                while let Some(core) = ticking.upgrade() {
                    core.interrupts.tick();
                    core.lock_waits.tick();
                    core.send_old();
                    core.silly_names.tick();
                    if ticks.next() == Some(0) {
                        core.drop_expired_read_ahead();
                    }
                    drop(core);
                    std::thread::sleep(TICK);
                }
            })
            .map_err(Error::Threads)?;
        raise_kernel_read_ahead(own.device());
        let given_up = Arc::default();
        Ok(Self { ended, unmounter: Unmounter { core, directory, own, device, end, given_up } })
    }

    /// The identity of the mount.
    #[must_use]
    pub const fn id(&self) -> MountId {
        self.unmounter.own
    }

    /// Returns a handle that can unmount the directory.
    #[must_use]
    pub fn unmounter(&self) -> Unmounter {
        self.unmounter.clone()
    }

    /// Waits until the directory is unmounted, and then, unless it was given up, until the server
    /// has all data and has ended the session of version 4. Files that are still open fail from
    /// then on.
    ///
    /// # Errors
    /// Errors of the device other than those of an unmount.
    pub fn wait(self) -> Result<(), Error> {
        let outcome = self.ended.recv().unwrap_or(Ok(()));
        if !self.unmounter.given_up.load(Ordering::Acquire) {
            self.unmounter.write_all();
        }
        self.unmounter.core.executor.close();
        self.unmounter.core.invalidations.close();
        if outcome.is_ok() && !self.unmounter.given_up.load(Ordering::Acquire) {
            // The mount itself lives on in other threads until this process ends, and a server that
            // keeps the client would wait for it after a restart.
            self.unmounter.core.mount.end_session();
        }
        let directory = self.unmounter.directory;
        // After an error the directory stays mounted, so that no program mistakes the local
        // directory for the mount.
        outcome.map_err(|source| Error::Fuse { directory, source })
    }
}

impl Unmounter {
    /// Sends what programs have written to the server, then unmounts. A directory that is in use
    /// disappears at once, and files that are open in it fail from then on.
    ///
    /// # Errors
    /// [`Error::Unmount`].
    pub fn unmount(&self) -> Result<(), Error> {
        let files = self.core.inodes.with_unsent_data().len();
        if files > 0 {
            tracing::warn!(
                files,
                "what was written goes to the server before the unmount; a second signal gives that up"
            );
        }
        self.write_all();
        self.unmount_own()?;
        if self.device.is_connected() {
            tracing::warn!(directory = %self.directory.display(), "unmounted while in use; open files fail");
            // Do not serve open files any longer: they fail when this process ends. The serving
            // thread may have ended meanwhile.
            let _ = self.end.try_send(Ok(()));
        }
        Ok(())
    }

    /// Unmounts without the server. Data that the server does not have are lost.
    ///
    /// # Errors
    /// [`Error::Unmount`].
    pub fn give_up(&self) -> Result<(), Error> {
        let files = self.core.inodes.with_unsent_data().len();
        tracing::warn!(directory = %self.directory.display(), files, "unmounted; what these files lack on the server is lost");
        self.given_up.store(true, Ordering::Release);
        let outcome = self.unmount_own();
        // If the channel is full, the mount is known to have ended.
        let _ = self.end.try_send(Ok(()));
        outcome
    }

    /// What the mount holds now.
    #[must_use]
    pub fn gauges(&self) -> Gauges {
        self.core.gauges()
    }

    /// Statistics of the client's calls.
    #[must_use]
    pub fn statistics(&self) -> client::Statistics {
        self.core.mount.statistics()
    }

    /// Unmounts this mount and no other, if it is still mounted. While the device is connected, the
    /// kernel does not give the mount's numbers to another mount.
    fn unmount_own(&self) -> Result<(), Error> {
        let outcome = self.own.unmount(|| self.device.is_connected());
        outcome.map_err(|source| Error::Unmount { directory: self.directory.clone(), source })
    }

    fn write_all(&self) {
        for inode in self.core.inodes.with_unsent_data() {
            block_on(self.core.flush(&inode));
        }
    }
}

fn make_core(mount: Mount, options: &MountOptions) -> Result<Core, Error> {
    let policy = Policy::new(options);
    let root = mount.attributes(mount.root())?;
    let sizes = mount.transfer_sizes();
    let sizes = (sizes.0 as usize, sizes.1 as usize);
    let connections = usize::from(options.bulk_connections(1));
    let read_ahead_max = (connections * 2 * sizes.0).clamp(READ_AHEAD_BYTES.0, READ_AHEAD_BYTES.1);
    Ok(Core {
        inodes: Inodes::new(mount.clone(), &root),
        policy,
        files: Handles::new(),
        directories: Handles::new(),
        callers: Callers::new(rustix::process::geteuid().is_root()),
        executor: Executor::start(workers()).map_err(Error::Threads)?,
        interrupts: Interrupts::default(),
        lock_waits: LockWaits::default(),
        budget: Arc::default(),
        buffers: Arc::default(),
        pipes: Arc::default(),
        notifier: OnceLock::new(),
        silly_names: SillyNames::default(),
        unsupported: Unsupported::default(),
        invalidations: Invalidations::default(),
        open_files: AtomicUsize::new(0),
        writes_in_flight: AtomicUsize::new(0),
        sizes,
        file_bytes_max: attributes::file_bytes_max(mount.info()),
        read_ahead_max,
        read_ahead_budget: Arc::default(),
        // As good as random: the system seeds each `RandomState`.
        unique: AtomicU64::new(RandomState::new().hash_one(std::process::id())),
        mount,
    })
}

/// Adapts settings to a mounted directory. The first loop makes most of the calls, so each loop
/// needs connections to every node, if there are enough connections. The server may call back.
#[must_use]
pub fn settings(settings: Settings) -> Settings {
    let rounds = usize::from(settings.nconnect) / settings.remotes.len().max(1);
    Settings { loops: settings.loops.min(rounds.max(1)), call_backs: true, ..settings }
}

/// Has the server's call-backs lead to what they ask.
fn listen_to_server(core: &Arc<Core>) {
    // The mount of the client holds these, and the core holds the mount.
    let (holder, waits) = (Arc::downgrade(core), Arc::downgrade(core));
    core.mount.on_recall(move |recalled| {
        if let Some(core) = holder.upgrade() {
            core.return_delegation(recalled);
        }
    });
    core.mount.on_lock_available(move |file| {
        if let Some(core) = waits.upgrade() {
            core.lock_is_available(file);
        }
    });
}

fn workers() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from).clamp(2, WORKERS_MAX)
}

/// Raises the kernel's read-ahead, so that sequential reads make larger requests. Only root may do
/// so. Without it, only this process reads far ahead.
fn raise_kernel_read_ahead((major, minor): (u32, u32)) {
    let path = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
    if let Err(error) = std::fs::write(&path, KERNEL_READ_AHEAD_KIB.to_string()) {
        tracing::debug!(%path, %error, "the kernel's read-ahead stays as it is");
    }
}
