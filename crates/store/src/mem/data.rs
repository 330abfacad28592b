//! READ, WRITE and COMMIT.

use smallvec::SmallVec;

use super::inode::Inode;
use super::layout::EXTENT_BYTES;
use super::pool::FreedPages;
use super::receive_buffer::Pages;
use super::{FILE_BYTES_MAX, MemStore};
use crate::interface::{Caller, Effect, ObjectId, ReadEnd, Result, Stability, Status, Written};
use crate::payload::Segment;

impl MemStore {
    pub(super) fn read_data(
        &self,
        caller: Caller<'_>,
        object: ObjectId,
        offset: u64,
        count: u32,
        out: &mut SmallVec<[Segment; 1]>,
    ) -> Result<ReadEnd> {
        let inode = self.table.read(object)?;
        let content = inode.content()?;
        if !inode.may_read_data(caller) {
            return Err(Status::Access);
        }
        let left = inode.size.saturating_sub(offset);
        let count = count.min(u32::try_from(left).unwrap_or(u32::MAX));
        if count > 0 {
            inode.touch_accessed();
            content.read(&self.pool, offset, count as usize, out);
        }
        let eof = u64::from(count) >= left;
        Ok(ReadEnd { count, eof, attributes: inode.attributes() })
    }

    pub(super) fn write_data(
        &self,
        caller: Caller<'_>,
        object: ObjectId,
        offset: u64,
        data: &[u8],
        stability: Stability,
    ) -> (Effect, Result<Written>) {
        // A large write is copied before the file's lock is taken, and then only swapped in.
        if data.len() >= EXTENT_BYTES
            && let Some(mut receive_buffer) = Pages::new(&self.pool, offset, data.len())
        {
            receive_buffer.fill(data);
            return self.write_receive_buffer(caller, object, receive_buffer, stability);
        }
        self.change_content(caller, object, offset, data.len(), stability, |inode, freed| {
            inode.content_mut()?.write(&self.pool, offset, data, freed)
        })
    }

    pub(super) fn write_receive_buffer(
        &self,
        caller: Caller<'_>,
        object: ObjectId,
        mut receive_buffer: Pages,
        stability: Stability,
    ) -> (Effect, Result<Written>) {
        let (offset, len) = (receive_buffer.offset(), receive_buffer.len());
        self.change_content(caller, object, offset, len, stability, |inode, freed| {
            if !receive_buffer.is_of(&self.pool) {
                return Err(Status::Invalid);
            }
            let content = inode.content_mut()?;
            content.prepare_swap(&self.pool, offset, len)?;
            match receive_buffer.take() {
                Some(pages) => content.swap_in(&self.pool, offset, len, pages, freed),
                // A full store is overwritten in place.
                None => content.write(&self.pool, offset, &receive_buffer.copy(), freed)?,
            }
            Ok(())
        })
    }

    /// What all writes have in common: the right to, the bounds, and what changes besides the
    /// bytes.
    fn change_content(
        &self,
        caller: Caller<'_>,
        object: ObjectId,
        offset: u64,
        len: usize,
        stability: Stability,
        write: impl FnOnce(&mut Inode, &mut FreedPages) -> Result<()>,
    ) -> (Effect, Result<Written>) {
        let mut freed = FreedPages::default();
        let mut inode = match self.table.write(object) {
            Ok(inode) => inode,
            Err(error) => return (Effect::default(), Err(error)),
        };
        let before = inode.version();
        let result = may_write(&inode, caller, offset, len as u64).and_then(|end| {
            if len > 0 {
                write(&mut inode, &mut freed)?;
                inode.size = inode.size.max(end);
                inode.drop_privileges(caller);
                inode.touch_modified();
            }
            let count = u32::try_from(len).map_err(|_| Status::Invalid)?;
            Ok(Written { count, committed: stability, verifier: self.verifier })
        });
        let change = inode.effect_since(before);
        drop(inode);
        self.pool.free(freed);
        (change, result)
    }

    pub(super) fn receive_buffer_for(&self, offset: u64, count: u32) -> Option<Pages> {
        Pages::new(&self.pool, offset, count as usize)
    }

    /// Memory is as stable as it gets: there is nothing to do.
    pub(super) fn commit_data(&self, object: ObjectId) -> (Effect, Result<u64>) {
        match self.table.read(object) {
            Ok(inode) => (inode.no_effect(), inode.content().map(|_| self.verifier)),
            Err(error) => (Effect::default(), Err(error)),
        }
    }
}

/// Whether the caller may write there; where the write ends.
pub(super) fn may_write(inode: &Inode, caller: Caller<'_>, offset: u64, len: u64) -> Result<u64> {
    inode.content()?;
    if !inode.may_write_data(caller) {
        return Err(Status::Access);
    }
    let end = offset.checked_add(len).filter(|&end| end <= FILE_BYTES_MAX);
    end.ok_or(Status::FileTooBig)
}
