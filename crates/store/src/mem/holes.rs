//! SEEK, ALLOCATE, DEALLOCATE and COPY. RFC 7862
//!
//! A clone would need pages with several owners, so there is none. A copy reads pinned pages, so it
//! sees one state of each piece of its source.

use smallvec::SmallVec;

use super::MemStore;
use super::data::may_write;
use super::inode::Inode;
use super::layout::PAGE_BYTES;
use super::pool::FreedPages;
use crate::interface::{
    Caller, Effect, ObjectId, Result, Seek, Sought, Stability, Status, Written, bytes_to_copy,
};
use crate::payload::Segment;

/// The bytes that a copy pins at a time.
const COPY_BYTES: u32 = 1 << 20;

impl MemStore {
    pub(super) fn find_in_file(
        &self,
        caller: Caller<'_>,
        object: ObjectId,
        offset: u64,
        what: Seek,
    ) -> Result<Sought> {
        let inode = self.table.read(object)?;
        let content = inode.content()?;
        if !inode.may_read_data(caller) {
            return Err(Status::Access);
        }
        if offset >= inode.size {
            return Err(Status::NoAddress);
        }
        let found = match what {
            Seek::Data => content.next_data(offset),
            Seek::Hole => Some(content.next_hole(offset)),
        };
        let offset = found.map_or(inode.size, |found| found.min(inode.size));
        Ok(Sought { offset, eof: offset == inode.size })
    }

    pub(super) fn allocate_range(
        &self,
        caller: Caller<'_>,
        object: ObjectId,
        offset: u64,
        len: u64,
    ) -> (Effect, Result<()>) {
        self.change_range(caller, object, len, |inode, freed| {
            let end = may_write(inode, caller, offset, len)?;
            // What cannot fit is not even begun.
            let content = inode.content_mut()?;
            let most = content.used().saturating_add(self.pool.free_bytes());
            if len / PAGE_BYTES as u64 > most / PAGE_BYTES as u64 {
                return Err(Status::NoSpace);
            }
            content.allocate(&self.pool, offset, len, freed)?;
            inode.size = inode.size.max(end);
            Ok(())
        })
    }

    pub(super) fn deallocate_range(
        &self,
        caller: Caller<'_>,
        object: ObjectId,
        offset: u64,
        len: u64,
    ) -> (Effect, Result<()>) {
        self.change_range(caller, object, len, |inode, freed| {
            may_write(inode, caller, 0, 0)?;
            let end = offset.checked_add(len).ok_or(Status::Invalid)?;
            // The last page is zero beyond the end of the file, so all of it may go.
            let whole = inode.size.next_multiple_of(PAGE_BYTES as u64);
            let end = if end >= inode.size { whole } else { end };
            if offset < end {
                inode.content_mut()?.deallocate(&self.pool, offset, end, freed)?;
            }
            Ok(())
        })
    }

    fn change_range(
        &self,
        caller: Caller<'_>,
        object: ObjectId,
        len: u64,
        change: impl FnOnce(&mut Inode, &mut FreedPages) -> Result<()>,
    ) -> (Effect, Result<()>) {
        let mut freed = FreedPages::default();
        let mut inode = match self.table.write(object) {
            Ok(inode) => inode,
            Err(error) => return (Effect::default(), Err(error)),
        };
        let before = inode.version();
        let allowed = match inode.content() {
            Ok(_) if !inode.may_write_data(caller) => Err(Status::Access),
            Ok(_) if len == 0 => Err(Status::Invalid),
            known => known.map(drop),
        };
        let result = allowed.and_then(|()| change(&mut inode, &mut freed));
        if result.is_ok() {
            inode.drop_privileges(caller);
            inode.touch_modified();
        }
        let effect = inode.effect_since(before);
        drop(inode);
        self.pool.free(freed);
        (effect, result)
    }

    pub(super) fn copy_data(
        &self,
        caller: Caller<'_>,
        from: (ObjectId, u64),
        to: (ObjectId, u64),
        count: u32,
    ) -> (Effect, Result<Written>) {
        let mut whole = match self.table.read(to.0) {
            Ok(inode) => inode.no_effect(),
            Err(error) => return (Effect::default(), Err(error)),
        };
        // A target that cannot be written is told even if there is nothing to copy.
        let allowed = self.table.read(to.0).and_then(|inode| may_write(&inode, caller, to.1, count.into()));
        if let Err(error) = allowed {
            return (whole, Err(error));
        }
        let count = match self.table.read(from.0).and_then(|inode| bytes_to_copy(from, to, count, inode.size))
        {
            Ok(count) => count,
            Err(error) => return (whole, Err(error)),
        };
        let mut done = 0_u32;
        let result = loop {
            let (source, target) = (from.1.saturating_add(done.into()), to.1 + u64::from(done));
            let len = (count - done).min(COPY_BYTES);
            match self.copy_piece(caller, (from.0, source), (to.0, target), len, &mut whole) {
                Ok(0) => break Ok(()),
                Ok(more) => done += more,
                // What is done is done: the next call tells the failure.
                Err(error) => break if done == 0 { Err(error) } else { Ok(()) },
            }
            if done == count {
                break Ok(());
            }
        };
        let written = Written { count: done, committed: Stability::Unstable, verifier: self.verifier };
        (whole, result.map(|()| written))
    }

    /// Copies one piece. Returns its length: 0 where the source ends.
    fn copy_piece(
        &self,
        caller: Caller<'_>,
        from: (ObjectId, u64),
        to: (ObjectId, u64),
        len: u32,
        whole: &mut Effect,
    ) -> Result<u32> {
        let mut segments: SmallVec<[Segment; 1]> = SmallVec::new();
        self.read_data(caller, from.0, from.1, len, &mut segments)?;
        let mut copied = 0_u32;
        for bytes in segments.iter().filter_map(Segment::as_bytes) {
            let at = to.1 + u64::from(copied);
            let (effect, written) = self.write_data(caller, to.0, at, bytes, Stability::Unstable);
            // One after the other, each under a lock of its own.
            whole.atomic &= whole.after.map(|after| after.version()) == effect.before;
            whole.after = effect.after.or(whole.after);
            match written {
                Ok(written) => copied += written.count,
                Err(error) if copied == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(copied)
    }
}
