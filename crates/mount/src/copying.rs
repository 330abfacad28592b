//! copy_file_range(2): the server copies, and no data move over the network.
//!
//! Where it cannot, the kernel reads and writes instead, which EOPNOTSUPP asks it to do. The data
//! that were written to both files here are on the server before it copies. The kernel writes back
//! its pages of both ranges before, and drops those of the target afterwards.

use crate::core::Core;
use crate::files::OpenFile;
use crate::unsupported::{Feature, NOT_SUPPORTED};
use fuser::Errno;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The most bytes that are copied for one request; the program asks for the rest.
const COPY_BYTES_MAX: u64 = 1 << 30;

/// How long pieces are begun for one request, so that a slow server does not keep a program in one
/// system call for long.
const COPY_TIME_MAX: Duration = Duration::from_secs(30);

/// What copy_file_range(2) asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CopyRange {
    /// The handles, and where the range begins in the file of each.
    pub source: (u64, u64),
    pub target: (u64, u64),
    pub count: u64,
}

impl Core {
    /// Copies a range, and returns how many bytes were copied. Once `stops` is set, nothing more is
    /// begun.
    pub(crate) async fn copy_range(
        self: &Arc<Self>,
        asked: CopyRange,
        stops: &AtomicBool,
    ) -> Result<u64, Errno> {
        let (source, target) = (self.files.find(asked.source.0)?, self.files.find(asked.target.0)?);
        self.check_locks(&source)?;
        self.check_locks(&target)?;
        let (from, to) = (asked.source.1, asked.target.1);
        let room = self.file_bytes_max.checked_sub(to).filter(|room| *room > 0).ok_or(Errno::EFBIG)?;
        let count = asked.count.min(COPY_BYTES_MAX).min(room).min(u64::MAX - from);
        if count == 0 {
            return Ok(0);
        }
        if Arc::ptr_eq(&source.inode, &target.inode) && from.abs_diff(to) < count {
            return Err(Errno::EINVAL);
        }
        // A call has the rights of one user.
        if source.caller != target.caller {
            return Err(Errno::from_i32(NOT_SUPPORTED));
        }
        self.unsupported.check(Feature::Copy, target.inode.fsid)?;
        // The source comes first: what holds a range waits for nothing in another file.
        source.inode.wait_for_earlier_writes(from..from + count).await;
        self.flush(&source.inode).await;
        // What the server does not have it would not copy. This is reported by the source too.
        if let Some(error) = source.inode.lock().unreported_error(&source.reported_errors) {
            return Err(error);
        }
        self.copy_to(&source, &target, (from, to..to + count), stops).await
    }

    async fn copy_to(
        self: &Arc<Self>,
        source: &OpenFile,
        target: &OpenFile,
        (from, range): (u64, Range<u64>),
        stops: &AtomicBool,
    ) -> Result<u64, Errno> {
        let inode = &target.inode;
        let held = inode.begin_change(range.clone());
        held.wait_for_turn().await;
        self.flush(inode).await;
        let sync_write = inode.begin_sync_write();
        let places = ((source.inode.handle, from), (inode.handle, range.start));
        let (begun, count) = (Instant::now(), range.end - range.start);
        let goes_on = || !stops.load(Ordering::Acquire) && begun.elapsed() < COPY_TIME_MAX;
        let copied = self.operations(&target.caller).copy(places.0, places.1, count, goes_on).await;
        // Of two file systems, either may be the one that lacks copies.
        let copied = if source.inode.fsid == inode.fsid {
            self.unsupported.learn(Feature::Copy, inode.fsid, copied)
        } else {
            self.unsupported.ask_again(Feature::Copy, inode.fsid, copied)
        };
        let end = range.start + copied.as_ref().map_or(0, |count| *count);
        // A copy that ends early may have failed after the server has changed what follows.
        let rest = end..range.end;
        let mut state = inode.lock();
        if end > range.start {
            state.stored(end);
            state.record_write(range.start..end);
        }
        if !rest.is_empty() {
            state.record_write_end(rest.clone());
            if state.is_past_end(rest.end) {
                state.mark_end_unknown();
            }
        }
        drop(state);
        drop((sync_write, held));
        // The kernel drops its pages of what it is told of, unless the program was stopped.
        let kept = if stops.load(Ordering::Acquire) { range } else { rest };
        if !kept.is_empty() {
            self.invalidations.request_range(inode.ino, kept);
        }
        self.forget_privileges(inode);
        copied
    }
}
