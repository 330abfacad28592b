//! A drive, and what it promises.

use crate::disk::{Disk, open};
use crate::error::Result;
use crate::mem::Memory;
#[cfg(any(test, feature = "testing"))]
use crate::testing::Faulty;
use crate::workers::Workers;
use std::fmt;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The unit of the memory drive's offsets and lengths.
const MEMORY_BLOCK: u32 = 512;

/// What a drive is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Memory of this process, which is lost with it.
    Memory,
    /// A regular file.
    File,
    /// A block device.
    Device,
}

/// Something that its owner should know of a drive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Warning {
    /// An md array with parity, at or below the drive, that logs neither its writes nor its parity.
    WriteHole {
        /// The array.
        device: String,
        /// Its level.
        level: String,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WriteHole { device, level } => write!(
                f,
                "{device} ({level}) has neither a journal nor a partial parity log: a crash while it is \
                 degraded may damage data that were not being written (write hole); add one with \
                 mdadm --grow --consistency-policy=ppl, or --add-journal"
            ),
        }
    }
}

/// What a drive is and promises; does not change while it is open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Info {
    /// What it is.
    pub kind: Kind,
    /// Where it is; `None` for memory.
    pub path: Option<PathBuf>,
    /// Its size.
    pub bytes: u64,
    /// What offsets and lengths are multiples of.
    pub block_bytes: u32,
    /// The block to offer: that of a device itself, 4096 for files and memory.
    pub preferred_block_bytes: u32,
    /// What the drive writes at a time without reading first.
    pub physical_block_bytes: u32,
    /// What the drive likes to transfer, such as a stripe; `None` if it does not say.
    pub optimal_bytes: Option<u32>,
    /// A completed write that is not durable may be lost with the power before the next flush.
    pub volatile_cache: bool,
    /// What is durable outlives this process.
    pub persistent: bool,
    /// A discard gives storage back.
    pub discards: bool,
    /// What was discarded reads as zeros.
    pub discard_zeroes: bool,
    /// What its owner should know.
    pub warnings: Vec<Warning>,
}

#[derive(Debug, Clone)]
pub(crate) enum Backend {
    Memory(Arc<Memory>),
    Disk(Arc<Disk>),
    #[cfg(any(test, feature = "testing"))]
    Faulty(Arc<Faulty>),
}

#[derive(Debug)]
struct Inner {
    info: Info,
    backend: Backend,
    workers: Workers,
    is_claimed: AtomicBool,
}

/// The right to be the only one who orders the operations of a drive. Ends when it is dropped.
#[derive(Debug)]
pub struct Claim(Drive);

impl Deref for Claim {
    type Target = Drive;

    fn deref(&self) -> &Drive {
        &self.0
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.0.0.is_claimed.store(false, Ordering::Release);
    }
}

/// Memory, a file or a block device, open for operations of any number of queues. Its file is
/// closed, and its lock released, with the last clone and the last operation.
#[derive(Debug, Clone)]
pub struct Drive(Arc<Inner>);

impl Drive {
    /// A drive of `bytes` bytes, rounded down to whole blocks, in memory of this process. Its
    /// content takes no more than `used_bytes_max`; a write beyond that fails as on a full disk.
    #[must_use]
    pub fn memory(bytes: u64, used_bytes_max: u64) -> Self {
        let info = Self::memory_info(bytes);
        Self::new(info, Backend::Memory(Arc::new(Memory::new(used_bytes_max))))
    }

    /// Opens a file or block device, and holds it until it is dropped. This may wait for the device
    /// and runs a program, so it is not for a loop.
    ///
    /// # Errors
    /// It is not there, used by others, not empty, or cannot be used as a drive.
    pub fn open(path: &Path, how: open::How) -> Result<Self> {
        let (disk, info) = open::open(path, how)?;
        Ok(Self::new(info, Backend::Disk(Arc::new(disk))))
    }

    pub(crate) fn new(info: Info, backend: Backend) -> Self {
        let (workers, is_claimed) = (Workers::default(), AtomicBool::new(false));
        Self(Arc::new(Inner { info, backend, workers, is_claimed }))
    }

    pub(crate) fn memory_info(bytes: u64) -> Info {
        let preferred_block_bytes = 4096;
        Info {
            kind: Kind::Memory,
            path: None,
            bytes: bytes - bytes % u64::from(preferred_block_bytes),
            block_bytes: MEMORY_BLOCK,
            preferred_block_bytes,
            physical_block_bytes: preferred_block_bytes,
            optimal_bytes: None,
            // There is nothing that a flush would make more durable.
            volatile_cache: false,
            persistent: false,
            discards: true,
            discard_zeroes: true,
            warnings: Vec::new(),
        }
    }

    /// What it is and promises.
    #[must_use]
    pub fn info(&self) -> &Info {
        &self.0.info
    }

    /// Claims the drive for one user; `None` while another has it. Drives do not order operations,
    /// so two users who did not know of each other would destroy each other's data.
    #[must_use]
    pub fn claim(&self) -> Option<Claim> {
        let before = self.0.is_claimed.swap(true, Ordering::Acquire);
        (!before).then(|| Claim(self.clone()))
    }

    /// Bytes that were copied before they were written because their memory was not aligned.
    #[must_use]
    pub fn bounced_bytes(&self) -> u64 {
        match &self.0.backend {
            Backend::Disk(disk) => disk.bounced_bytes.load(Ordering::Relaxed),
            _ => 0,
        }
    }

    /// Bytes of memory that the content of a memory drive takes; 0 for others.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        match &self.0.backend {
            Backend::Memory(memory) => memory.used_bytes(),
            _ => 0,
        }
    }

    pub(crate) fn backend(&self) -> &Backend {
        &self.0.backend
    }

    pub(crate) fn workers(&self) -> &Workers {
        &self.0.workers
    }
}
