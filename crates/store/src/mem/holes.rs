//! SEEK, ALLOCATE, DEALLOCATE and COPY. RFC 7862
//!
//! A clone would need pages with several owners, so there is none. A copy reads pinned pages, so it
//! sees one state of each piece of its source.
//!
//! A range may be as long as the store is large, and others use the file meanwhile, from threads
//! that may not wait for long: so all of these go by pieces, and hold the file's lock for one
//! piece.

use smallvec::SmallVec;

use super::MemStore;
use super::data::may_write;
use super::inode::Inode;
use super::layout::PAGE_BYTES;
use super::pool::FreedPages;
use super::receive_buffer::Pages;
use crate::interface::{
    Caller, Effect, ObjectId, Result, Seek, Sought, Stability, Status, Written, bytes_to_copy,
};
use crate::payload::Segment;

/// The bytes that a copy pins at a time.
const COPY_BYTES: u32 = 1 << 20;
/// The bytes that are allocated at a time; the file's lock is held only to put them in.
const PIECE_BYTES: u64 = 1 << 20;
/// The bytes that are deallocated under one hold of the file's lock: some ten microseconds.
const FREED_BYTES: u64 = 4 << 20;
/// The bytes that are searched for a hole under one hold of the file's lock.
const SEARCH_BYTES: u64 = 256 << 20;

/// An ALLOCATE that is under way. Others may use the file between its pieces.
struct Allocation {
    /// What it has filled so far.
    filled: Vec<(u64, u64)>,
    /// The size of the file at the beginning, and when its content was changed.
    size: u64,
    modified: u64,
    /// The time of its own last change.
    changed: u64,
    /// Whether nobody else has changed the file since.
    is_alone: bool,
    effect: Effect,
}

impl Allocation {
    fn new(inode: &Inode) -> Self {
        Self {
            filled: Vec::new(),
            size: inode.size,
            modified: inode.modified,
            changed: inode.changed,
            is_alone: true,
            effect: inode.no_effect(),
        }
    }

    /// Before a change: notes whether somebody else has changed the file.
    fn note_others(&mut self, inode: &Inode) {
        self.is_alone &= inode.changed == self.changed;
        self.effect.atomic = self.is_alone;
    }

    /// Notes an own change.
    fn note_own(&mut self, inode: &Inode) {
        self.changed = inode.changed;
        self.effect.after = Some(inode.attributes());
    }
}

/// Adds what came after an effect: one after the other, each under a lock of its own.
fn join(whole: &mut Effect, next: Effect) {
    whole.atomic &= whole.after.map(|after| after.version()) == next.before;
    whole.after = next.after.or(whole.after);
}

/// Whether the caller may change a range of a file, which is not empty.
fn may_change(inode: &Inode, caller: Caller<'_>, len: u64) -> Result<()> {
    inode.content()?;
    if !inode.may_write_data(caller) {
        return Err(Status::Access);
    }
    if len == 0 { Err(Status::Invalid) } else { Ok(()) }
}

impl MemStore {
    pub(super) fn find_in_file(
        &self,
        caller: Caller<'_>,
        object: ObjectId,
        offset: u64,
        what: Seek,
    ) -> Result<Sought> {
        let mut at = offset;
        loop {
            let inode = self.table.read(object)?;
            let content = inode.content()?;
            if !inode.may_read_data(caller) {
                return Err(Status::Access);
            }
            if offset >= inode.size {
                return Err(Status::NoAddress);
            }
            let limit = at.saturating_add(SEARCH_BYTES);
            let found = match what {
                Seek::Data => content.next_data(at).unwrap_or(inode.size),
                Seek::Hole => content.next_hole(at, limit),
            };
            if found >= limit && found < inode.size && what == Seek::Hole {
                at = limit;
                continue;
            }
            let offset = found.min(inode.size);
            return Ok(Sought { offset, eof: offset == inode.size });
        }
    }

    pub(super) fn allocate_range(
        &self,
        caller: Caller<'_>,
        object: ObjectId,
        offset: u64,
        len: u64,
    ) -> (Effect, Result<()>) {
        let (mut allocation, end) = {
            let inode = match self.table.read(object) {
                Ok(inode) => inode,
                Err(error) => return (Effect::default(), Err(error)),
            };
            match self.may_allocate(&inode, caller, offset, len) {
                Ok(end) => (Allocation::new(&inode), end),
                Err(error) => return (inode.no_effect(), Err(error)),
            }
        };
        let mut at = offset;
        while at < end {
            match self.allocate_piece(caller, object, (at, end), &mut allocation) {
                Ok(next) => at = next,
                Err(error) => {
                    self.take_back(object, &mut allocation);
                    return (allocation.effect, Err(error));
                }
            }
        }
        (allocation.effect, Ok(()))
    }

    /// Whether the caller may allocate there; where the range ends.
    fn may_allocate(&self, inode: &Inode, caller: Caller<'_>, offset: u64, len: u64) -> Result<u64> {
        may_change(inode, caller, len)?;
        let end = may_write(inode, caller, offset, len)?;
        // What cannot fit is not even begun.
        let most = inode.content()?.used().saturating_add(self.pool.free_bytes());
        if len / PAGE_BYTES as u64 > most / PAGE_BYTES as u64 {
            return Err(Status::NoSpace);
        }
        Ok(end)
    }

    /// Puts zeros where the next piece of a range has its first hole. Returns where the rest
    /// begins.
    fn allocate_piece(
        &self,
        caller: Caller<'_>,
        object: ObjectId,
        (at, end): (u64, u64),
        allocation: &mut Allocation,
    ) -> Result<u64> {
        let border = (at / PIECE_BYTES + 1) * PIECE_BYTES;
        let hole = self.table.read(object)?.content()?.hole_within(at, border.min(end));
        // Pages are taken and cleared before the file's lock is taken for writing.
        let mut zeros = hole.and_then(|(from, to)| Pages::new(&self.pool, from, (to - from) as usize));
        let pages = match &mut zeros {
            Some(zeros) => {
                zeros.clear();
                Some(zeros.take().ok_or(Status::NoSpace)?)
            }
            None => None,
        };
        let next = hole.map_or(border.min(end), |(_, to)| to.min(end));
        let mut freed = FreedPages::default();
        let result = self.table.write(object).and_then(|mut inode| {
            allocation.note_others(&inode);
            let filled = match hole {
                Some((from, to)) => {
                    inode.content_mut()?.fill_holes(&self.pool, (from, to), pages, &mut freed)
                }
                None => Ok(()),
            };
            allocation.filled.extend(hole.filter(|_| filled.is_ok()));
            filled?;
            if hole.is_some() || next == end || inode.size < next {
                inode.size = inode.size.max(next);
                inode.drop_privileges(caller);
                inode.touch_modified();
            }
            allocation.note_own(&inode);
            Ok(next)
        });
        self.pool.free(freed);
        result
    }

    /// Makes holes again of what an allocation has filled, and gives the file its size back: unless
    /// somebody else has changed the file since the beginning, whose data may be among that.
    fn take_back(&self, object: ObjectId, allocation: &mut Allocation) {
        let Effect { before, after, .. } = allocation.effect;
        if after.map(|after| after.version()) == before {
            return;
        }
        while allocation.is_alone {
            let mut freed = FreedPages::default();
            let Ok(mut inode) = self.table.write(object) else { return };
            allocation.note_others(&inode);
            if !allocation.is_alone {
                return;
            }
            let last = allocation.filled.pop();
            if let (Some((from, to)), Ok(content)) = (last, inode.content_mut()) {
                content.free_pages(&self.pool, from, to, &mut freed);
            }
            inode.size = match last {
                Some((from, _)) => inode.size.min(from.max(allocation.size)),
                None => allocation.size,
            };
            inode.touch_changed();
            if last.is_none() {
                inode.modified = allocation.modified;
            }
            allocation.note_own(&inode);
            drop(inode);
            self.pool.free(freed);
            if last.is_none() {
                return;
            }
        }
    }

    pub(super) fn deallocate_range(
        &self,
        caller: Caller<'_>,
        object: ObjectId,
        offset: u64,
        len: u64,
    ) -> (Effect, Result<()>) {
        let mut whole: Option<Effect> = None;
        let mut at = offset;
        loop {
            let mut freed = FreedPages::default();
            let mut inode = match self.table.write(object) {
                Ok(inode) => inode,
                Err(error) => return (whole.unwrap_or_default(), Err(error)),
            };
            let before = inode.version();
            let next = may_change(&inode, caller, len)
                .and_then(|()| self.deallocate_piece(&mut inode, (at, offset.checked_add(len)), &mut freed));
            if next.is_ok() {
                inode.drop_privileges(caller);
                inode.touch_modified();
            }
            let effect = inode.effect_since(before);
            drop(inode);
            self.pool.free(freed);
            let whole = match &mut whole {
                Some(whole) => {
                    join(whole, effect);
                    whole
                }
                none => none.insert(effect),
            };
            match next {
                Ok(Some(next)) => at = next,
                Ok(None) => return (*whole, Ok(())),
                Err(error) => return (*whole, Err(error)),
            }
        }
    }

    /// Makes a hole of the next data of a range, as far as one piece goes. Returns where the rest
    /// begins, if there is any.
    fn deallocate_piece(
        &self,
        inode: &mut Inode,
        (at, end): (u64, Option<u64>),
        freed: &mut FreedPages,
    ) -> Result<Option<u64>> {
        let end = end.ok_or(Status::Invalid)?;
        // The last page is zero beyond the end of the file, so all of it may go.
        let whole = inode.size.next_multiple_of(PAGE_BYTES as u64);
        let end = if end >= inode.size { whole } else { end };
        let content = inode.content_mut()?;
        let Some(from) = content.next_data(at).filter(|&from| from < end) else { return Ok(None) };
        let to = ((from / FREED_BYTES + 1) * FREED_BYTES).min(end);
        content.deallocate(&self.pool, from, to, freed)?;
        Ok((to < end).then_some(to))
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
            join(whole, effect);
            match written {
                Ok(written) => copied += written.count,
                Err(error) if copied == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(copied)
    }
}
