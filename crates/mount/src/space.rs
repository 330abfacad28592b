//! lseek(2) with SEEK_DATA and SEEK_HOLE, and fallocate(2), where the server has version 4.2.
//!
//! Data that were written here are on the server before it is asked. The kernel writes back the
//! pages of a range that is to become a hole, and drops them once it is one.

use crate::calls::errno_of;
use crate::core::Core;
use crate::files::OpenFile;
use crate::unsupported::{Feature, NOT_SUPPORTED};
use crate::write_ranges::WriteGuard;
use client::Sought;
use fuser::Errno;
use std::ops::Range;
use std::sync::Arc;

/// What fallocate(2) is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SpaceChange {
    /// Mode 0: reserve storage. A file that ends before becomes longer.
    Allocate,
    /// FALLOC_FL_KEEP_SIZE: reserve storage. The server makes a file longer that ends before, so
    /// this is done only within the file.
    AllocateWithin,
    /// FALLOC_FL_PUNCH_HOLE.
    Punch,
    /// FALLOC_FL_ZERO_RANGE.
    Zero,
    /// FALLOC_FL_ZERO_RANGE with FALLOC_FL_KEEP_SIZE: within the file.
    ZeroWithin,
}

impl SpaceChange {
    /// From the mode of fallocate(2); `None` for what NFS has not.
    pub(crate) const fn new(mode: u32) -> Option<Self> {
        const KEEP: u32 = libc::FALLOC_FL_KEEP_SIZE.cast_unsigned();
        const PUNCH: u32 = libc::FALLOC_FL_PUNCH_HOLE.cast_unsigned() | KEEP;
        const ZERO: u32 = libc::FALLOC_FL_ZERO_RANGE.cast_unsigned();
        const ZERO_WITHIN: u32 = ZERO | KEEP;
        match mode {
            0 => Some(Self::Allocate),
            KEEP => Some(Self::AllocateWithin),
            PUNCH => Some(Self::Punch),
            ZERO => Some(Self::Zero),
            ZERO_WITHIN => Some(Self::ZeroWithin),
            _ => None,
        }
    }

    const fn needs(self) -> &'static [Feature] {
        match self {
            Self::Allocate | Self::AllocateWithin => &[Feature::Allocate],
            Self::Punch => &[Feature::Deallocate],
            Self::Zero | Self::ZeroWithin => &[Feature::Deallocate, Feature::Allocate],
        }
    }

    const fn is_within_file(self) -> bool {
        matches!(self, Self::AllocateWithin | Self::ZeroWithin)
    }

    const fn extends(self) -> bool {
        matches!(self, Self::Allocate | Self::Zero)
    }
}

impl Core {
    /// lseek(2): the first data, or the first hole, at an offset or behind it.
    pub(crate) async fn seek(
        self: &Arc<Self>,
        handle: u64,
        offset: u64,
        sought: Sought,
    ) -> Result<u64, Errno> {
        let file = self.files.find(handle)?;
        let inode = &file.inode;
        inode.wait_for_earlier_writes(0..u64::MAX).await;
        self.flush(inode).await;
        let fsid = inode.fsid;
        if self.unsupported.check(Feature::Seek, fsid).is_ok() {
            let found = self.operations(&file.caller).seek(inode.handle, offset, sought).await;
            match self.unsupported.learn(Feature::Seek, fsid, found) {
                Err(error) if error.code() == NOT_SUPPORTED => {}
                found => return found?.filter(|at| *at <= i64::MAX.cast_unsigned()).ok_or(Errno::ENXIO),
            }
        }
        // Of a file whose holes nobody knows, all is data. lseek(2)
        let size = self.attributes(&file.caller, inode).await?.attributes.size;
        match sought {
            _ if offset >= size => Err(Errno::ENXIO),
            Sought::Data => Ok(offset),
            Sought::Hole => Ok(size),
        }
    }

    /// fallocate(2).
    pub(crate) async fn change_space(
        self: &Arc<Self>,
        handle: u64,
        range: Range<u64>,
        change: SpaceChange,
    ) -> Result<(), Errno> {
        let file = self.files.find(handle)?;
        self.check_locks(&file)?;
        if range.is_empty() {
            return Err(Errno::EINVAL);
        }
        if range.end > self.file_bytes_max {
            return Err(Errno::EFBIG);
        }
        for feature in change.needs() {
            self.unsupported.check(*feature, file.inode.fsid)?;
        }
        let held = file.inode.begin_change(range.clone());
        held.wait_for_turn().await;
        self.flush(&file.inode).await;
        if change.is_within_file() {
            let size = self.call_getattr(&file.caller, file.inode.handle).await?.size;
            if range.end > size {
                return Err(Errno::from_i32(NOT_SUPPORTED));
            }
        }
        // If the program is killed from here on, later requests wait until the outcome is known.
        let core = Arc::clone(self);
        self.run_to_completion(async move { core.change_space_now(&file, held, range, change).await }).await
    }

    async fn change_space_now(
        &self,
        file: &OpenFile,
        held: WriteGuard,
        range: Range<u64>,
        change: SpaceChange,
    ) -> Result<(), Errno> {
        let inode = &file.inode;
        let sync_write = inode.begin_sync_write();
        let (handle, operations) = (inode.handle, self.operations(&file.caller));
        let of = range.clone();
        let outcome = match change {
            SpaceChange::Allocate | SpaceChange::AllocateWithin => operations.allocate(handle, of).await,
            SpaceChange::Punch => operations.deallocate(handle, of).await,
            SpaceChange::Zero | SpaceChange::ZeroWithin => operations.zero(handle, of).await,
        };
        // A server that lacks one of the two operations that zero a range may have the other.
        let outcome = match change.needs() {
            [feature] => self.unsupported.learn(*feature, inode.fsid, outcome),
            _ => outcome.map_err(errno_of),
        };
        let mut state = inode.lock();
        if outcome.is_ok() && change.extends() {
            state.stored(range.end);
            state.record_write(range.clone());
        } else {
            state.record_write_end(range.clone());
        }
        if outcome.is_err() && change.extends() && state.is_past_end(range.end) {
            state.mark_end_unknown();
        }
        drop(state);
        drop((sync_write, held));
        if outcome.is_err() {
            // The kernel keeps its pages, although the server may have changed the file.
            self.invalidations.request_range(inode.ino, range);
        }
        self.forget_privileges(inode);
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_that_move_data_or_share_it_are_not_those_of_nfs() {
        let of = |mode: i32| SpaceChange::new(mode.cast_unsigned());
        assert_eq!(of(0), Some(SpaceChange::Allocate));
        assert_eq!(of(libc::FALLOC_FL_KEEP_SIZE), Some(SpaceChange::AllocateWithin));
        let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        assert_eq!(of(punch), Some(SpaceChange::Punch));
        assert_eq!(of(libc::FALLOC_FL_ZERO_RANGE), Some(SpaceChange::Zero));
        let zero = libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE;
        assert_eq!(of(zero), Some(SpaceChange::ZeroWithin));
        for mode in [libc::FALLOC_FL_PUNCH_HOLE, libc::FALLOC_FL_COLLAPSE_RANGE, 0x20, 0x40, -1] {
            assert_eq!(of(mode), None, "{mode:#x}");
        }
    }
}
