//! A volume: blocks on a drive, an identity, an order of commands and statistics.

use crate::queue::{Inbox, Waiter};
use crate::range_lock::{Owner, RangeLock, Refusal};
use crate::statistics::{IoCounts, Statistics};
use drives::{Claim, Drive, Warning};
use metrics::Operations;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The longest name of a volume.
const NAME_BYTES_MAX: usize = 64;

/// The size of a logical block. Hosts know these two (Linux takes no others up to its page size).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockSize {
    /// 512 bytes.
    B512,
    /// 4096 bytes.
    B4096,
}

impl BlockSize {
    /// In bytes.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        match self {
            Self::B512 => 512,
            Self::B4096 => 4096,
        }
    }
}

/// By what hosts recognize a volume. It must be the same on all paths and after each restart, and
/// no other volume of theirs may have it, so the owner of the volume keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// Its UUID (RFC 9562), the first byte first.
    pub uuid: [u8; 16],
    /// Its NGUID.
    pub nguid: [u8; 16],
}

impl Identity {
    /// An identity whose NGUID is the UUID.
    #[must_use]
    pub const fn of_uuid(uuid: [u8; 16]) -> Self {
        Self { uuid, nguid: uuid }
    }
}

/// Why a drive cannot be a volume as it is wanted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Blocks of this size cannot be written to the drive.
    #[error(
        "volume {name}: its drive writes no less than {least} bytes at a time; blocks of {wanted} bytes \
        need another drive"
    )]
    Block {
        /// The name of the volume.
        name: String,
        /// The size that is wanted, or the largest there is.
        wanted: u32,
        /// What the drive can write.
        least: u32,
    },
    /// The drive has no whole block.
    #[error("volume {name}: its drive has {bytes} bytes, less than a block")]
    Small {
        /// The name of the volume.
        name: String,
        /// The size of the drive.
        bytes: u64,
    },
    /// The name is empty, too long or has other characters than visible ones of ASCII.
    #[error("{name:?} is no name of a volume: it has 1 to {NAME_BYTES_MAX} visible ASCII characters")]
    Name {
        /// The name.
        name: String,
    },
    /// The drive is that of another volume.
    #[error("volume {name}: its drive is that of another volume")]
    Claimed {
        /// The name of the volume.
        name: String,
    },
    /// An identifier that is all zero is none.
    #[error("volume {name}: a UUID or NGUID of zeros identifies nothing")]
    Identity {
        /// The name of the volume.
        name: String,
    },
}

/// What commands of all queues share.
pub(crate) struct State {
    pub lock: RangeLock<Waiter>,
    /// Whom to tell that an owner was drained, and under which tag.
    pub drains: BTreeMap<Owner, (Arc<Inbox>, u64)>,
    pub statistics: Statistics,
}

struct Inner {
    name: String,
    identity: Identity,
    block: BlockSize,
    blocks: u64,
    drive: Claim,
    state: Mutex<State>,
}

/// A block device for hosts. Clones are the same volume.
#[derive(Clone)]
pub struct Volume(Arc<Inner>);

impl Volume {
    /// A volume of all whole blocks of a drive. Without a size, its blocks are those that the drive
    /// prefers.
    ///
    /// # Errors
    /// The drive cannot be written in such blocks, has none or is another volume's; or name or
    /// identity are none.
    pub fn new(
        name: &str,
        identity: Identity,
        drive: &Drive,
        block: Option<BlockSize>,
    ) -> Result<Self, Error> {
        let info = drive.info();
        let is_named = (1..=NAME_BYTES_MAX).contains(&name.len());
        let name = name.to_owned();
        if !is_named || !name.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(Error::Name { name });
        }
        if identity.uuid == [0; 16] || identity.nguid == [0; 16] {
            return Err(Error::Identity { name });
        }
        let preferred = if info.preferred_block_bytes > 512 { BlockSize::B4096 } else { BlockSize::B512 };
        let block = block.unwrap_or(preferred);
        if block.bytes() < info.block_bytes {
            return Err(Error::Block { name, wanted: block.bytes(), least: info.block_bytes });
        }
        let blocks = info.bytes / u64::from(block.bytes());
        if blocks == 0 {
            return Err(Error::Small { name, bytes: info.bytes });
        }
        let Some(drive) = drive.claim() else { return Err(Error::Claimed { name }) };
        let state =
            State { lock: RangeLock::default(), drains: BTreeMap::new(), statistics: Statistics::default() };
        Ok(Self(Arc::new(Inner { name, identity, block, blocks, drive, state: Mutex::new(state) })))
    }

    /// Its name, for people.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// By what hosts recognize it.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.0.identity
    }

    /// The size of a block.
    #[must_use]
    pub fn block_size(&self) -> BlockSize {
        self.0.block
    }

    /// The number of blocks.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.0.blocks
    }

    /// Whether a write that has ended can be lost with the power until a flush has ended, unless it
    /// was durable. Told to hosts as VWC; where it is false they send no flushes.
    #[must_use]
    pub fn has_volatile_write_cache(&self) -> bool {
        self.0.drive.info().volatile_cache
    }

    /// Whether a discard gives storage back.
    #[must_use]
    pub fn discards(&self) -> bool {
        self.0.drive.info().discards
    }

    /// Whether discarded blocks read as zeros. Otherwise they hold anything, and may change.
    #[must_use]
    pub fn discard_zeroes(&self) -> bool {
        self.0.drive.info().discard_zeroes
    }

    /// The number of blocks, a power of two, that are written without reading first if they are
    /// aligned.
    #[must_use]
    pub fn write_granularity(&self) -> u32 {
        let blocks = self.0.drive.info().physical_block_bytes / self.0.block.bytes();
        if blocks.is_power_of_two() { blocks } else { 1 }
    }

    /// The number of blocks of a transfer that the drive likes, such as a stripe of an array.
    #[must_use]
    pub fn optimal_transfer(&self) -> Option<u32> {
        self.0
            .drive
            .info()
            .optimal_bytes
            .map(|bytes| bytes / self.0.block.bytes())
            .filter(|blocks| *blocks > 0)
    }

    /// What its owner should know of the drive.
    #[must_use]
    pub fn warnings(&self) -> &[Warning] {
        &self.0.drive.info().warnings
    }

    /// The drive that it is on.
    #[must_use]
    pub fn drive(&self) -> &Drive {
        &self.0.drive
    }

    /// A new owner of commands, such as a connection of a controller. It ends with
    /// [`Queue::drain`](crate::Queue::drain).
    ///
    /// # Errors
    /// There are too many.
    pub fn open_owner(&self) -> Result<Owner, Refusal> {
        self.state().lock.open_owner()
    }

    /// What was done since the volume was opened: for each operation and size of payload, how many
    /// and how long they took from their arrival to their end.
    #[must_use]
    pub fn statistics(&self) -> Operations {
        self.state().statistics.operations(&self.0.name)
    }

    /// What has moved data since the volume was opened.
    #[must_use]
    pub fn io_counts(&self) -> IoCounts {
        self.state().statistics.io_counts()
    }

    /// Commands that were taken and have not ended.
    #[must_use]
    pub fn commands(&self) -> usize {
        self.state().lock.len()
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it holds the lock.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Volume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { name, block, blocks, .. } = &*self.0;
        write!(f, "volume {name}, {blocks} blocks of {} bytes", block.bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: Identity = Identity::of_uuid([7; 16]);

    fn memory(bytes: u64) -> Drive {
        Drive::memory(bytes, 1 << 20)
    }

    #[test]
    fn a_volume_has_the_whole_blocks_of_its_drive() {
        let volume = Volume::new("a", ID, &memory((1 << 20) + 4096), None).unwrap();
        assert_eq!((volume.block_size(), volume.blocks()), (BlockSize::B4096, 257));
        assert_eq!(volume.write_granularity(), 1);
        let small = Volume::new("a", ID, &memory(1 << 20), Some(BlockSize::B512)).unwrap();
        assert_eq!((small.blocks(), small.write_granularity()), (2048, 8));
        assert!(!small.has_volatile_write_cache() && small.discards() && small.discard_zeroes());
    }

    #[test]
    fn what_is_no_volume_is_refused_with_its_reason() {
        let refused =
            |name: &str, identity, bytes| Volume::new(name, identity, &memory(bytes), None).unwrap_err();
        for name in ["", "a b", "ä", &"a".repeat(65)] {
            assert!(matches!(refused(name, ID, 1 << 20), Error::Name { .. }), "{name}");
        }
        assert!(matches!(refused("a", Identity::of_uuid([0; 16]), 1 << 20), Error::Identity { .. }));
        let half = Identity { nguid: [0; 16], ..ID };
        assert!(matches!(refused("a", half, 1 << 20), Error::Identity { .. }));
        assert_eq!(refused("a", ID, 4095), Error::Small { name: "a".to_owned(), bytes: 0 });
    }

    #[test]
    fn a_drive_is_that_of_one_volume() {
        let drive = memory(1 << 20);
        let first = Volume::new("a", ID, &drive, None).unwrap();
        let second = || Volume::new("b", ID, &drive, None);
        assert_eq!(second().unwrap_err(), Error::Claimed { name: "b".to_owned() });
        drop(first);
        assert!(second().is_ok());
    }
}
