//! The objects that the kernel knows, and what is known of each.
//!
//! The server identifies an object by its handle. The file's number (fileid) is not enough: another
//! object may have the same number, in another file system below the export, or after the first
//! file was removed. The kernel identifies an object by a number that this module chooses: the
//! file's number, unless another object that the kernel knows has it, and 1 for the root. stat(2)
//! shows the file's number in any case. In a file system other than the root's, the number of the
//! file system is mixed into the file's number ([`Inodes::number`]).

use crate::caller::Credential;
use crate::delegations::Delegated;
use crate::dirty::Dirty;
use crate::growth::{Growth, GrowthGuard};
use crate::own_writes::OwnWrites;
use crate::policy::Policy;
use crate::version_history::VersionHistory;
use crate::write_ranges::Ranges;
use client::{FileRef, Mount};
use fs::{Attributes, Change, FileHandle, FileKind, Version};
use fuser::Errno;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The root's number.
pub(crate) const ROOT: u64 = 1;

/// One object.
#[derive(Debug)]
pub(crate) struct Inode {
    /// The number by which the kernel knows the object.
    pub ino: u64,
    /// The number that stat(2) shows.
    pub number: u64,
    pub fsid: u64,
    pub handle: FileHandle,
    pub kind: FileKind,
    mount: Mount,
    /// The reads and writes under way. Must not be locked while the state is locked.
    ranges: Mutex<Ranges>,
    state: Mutex<State>,
}

/// The numbers of the errors that were last reported to a handle.
#[derive(Debug)]
pub(crate) struct ReportedErrors {
    /// By fsync(2). This decides which errors are still to be reported.
    by_sync: AtomicU64,
    /// By write(2). It does not count as reported: the kernel sends a long write as several
    /// requests, and if a part of them was done it reports that part instead of the error.
    by_write: AtomicU64,
}

/// The part of an object that changes.
#[derive(Debug, Default)]
pub(crate) struct State {
    lookups: u64,
    attributes: Option<CachedAttributes>,
    pub delegated: Delegated,
    /// Number of open handles.
    opens: u32,
    /// The reference for reads and writes, while the object is open. It places the file on a node.
    file: Option<FileRef>,
    /// The name of the file, if it was removed while it was open.
    pub silly_name: Option<SillyName>,
    /// The version of the file from which the kernel's pages were read.
    pub pages_version: Option<Version>,
    /// Number of opens on whose reply the kernel drops its pages, and is not known to have done so
    /// yet.
    pub pending_drops: u32,
    /// The version of the attributes that were last given to the kernel.
    pub sent_version: Option<Version>,
    /// The kernel was given attributes of another version before, and may not have received the
    /// last ones yet.
    pub sent_other_versions: bool,
    /// The kernel was last given a mode with set-user-id or set-group-id.
    pub sent_privileges: bool,
    pub dirty: Dirty,
    /// Counts changes that may affect any data of the file: data that were read ahead before one
    /// are not used after it.
    pub generation: u64,
    /// The ranges that were written from here: data that were read ahead before a write are not
    /// used for its range after it.
    pub own_writes: OwnWrites,
    /// Where the last data end that were written since the server's size was known exactly.
    written_end: u64,
    /// Where the last data end that the server has received since then.
    stored_end: u64,
    /// Where the next append begins: at the size that the server has reported, or behind what was
    /// written since. Unlike attributes this is never forgotten, because an append that begins
    /// earlier would overwrite data.
    end: Option<u64>,
    /// A write that was to end there has failed, or its outcome is unknown.
    pub end_unknown: bool,
    /// Number of writes that programs wait for: attributes may lack them.
    sync_writes: u32,
    /// Writes whose effect on the size the kernel must learn from the replies alone.
    pub growth: Growth,
    /// When the object was last changed from here.
    changed_at: Option<Instant>,
    /// The versions of the file that are known to follow each other.
    version_history: VersionHistory,
    /// Counts changes from here, so that attributes that were requested before a change are
    /// recognized as outdated.
    changes: u64,
    /// The newest error of a write that no program waited for, and the number of that error.
    error: Option<Errno>,
    error_number: u64,
    /// The number of the last error that was reported to any handle.
    error_reported: u64,
}

/// The name of a file that was removed while it was open ("silly rename").
#[derive(Debug, Clone)]
pub(crate) struct SillyName {
    pub directory: FileHandle,
    pub name: Vec<u8>,
    pub caller: Credential,
}

#[derive(Debug, Clone, Copy)]
struct CachedAttributes {
    attributes: Attributes,
    at: Instant,
    ttl: Duration,
    /// The delegation under which they are valid whatever their age.
    delegation: Option<u64>,
}

/// Attributes, and how much longer they are valid.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ValidAttributes {
    pub attributes: Attributes,
    pub ttl: Duration,
}

impl Inode {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The reads and writes under way.
    pub(crate) fn ranges(&self) -> MutexGuard<'_, Ranges> {
        self.ranges.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Attributes that are still valid.
    pub(crate) fn valid_attributes(&self) -> Option<ValidAttributes> {
        let state = self.lock();
        let cached = state.attributes?;
        let ttl = cached.ttl.checked_sub(cached.at.elapsed()).filter(|left| !left.is_zero())?;
        Some(ValidAttributes { attributes: state.with_own_changes(cached.attributes), ttl })
    }

    /// The number of changes from here. Pass it to [`Inode::update_attributes`] with attributes
    /// that are requested now.
    pub(crate) fn changes(&self) -> u64 {
        self.lock().changes
    }

    /// Takes attributes from the server, and returns those to show. `requested_after` is the number
    /// of changes at the time of the request, or `None` if the attributes came with the reply to
    /// something else.
    pub(crate) fn update_attributes(
        &self,
        attributes: Attributes,
        requested_after: Option<u64>,
        policy: &Policy,
    ) -> ValidAttributes {
        let bounds = policy.bounds(attributes.kind == FileKind::Directory);
        let mut state = self.lock();
        state.update_attributes(attributes, requested_after, bounds, Instant::now())
    }

    /// Takes attributes that came with a delegation, or after it; see
    /// [`Inode::update_attributes`].
    pub(crate) fn update_delegated(
        &self,
        attributes: Attributes,
        requested_after: u64,
        delegation: Option<u64>,
        policy: &Policy,
    ) -> ValidAttributes {
        let bounds = policy.bounds(attributes.kind == FileKind::Directory);
        let mut state = self.lock();
        let known = state.update_attributes(attributes, Some(requested_after), bounds, Instant::now());
        if requested_after == state.changes
            && state.is_complete()
            && let Some(cached) = &mut state.attributes
            && cached.attributes.version() == attributes.version()
        {
            cached.delegation = delegation;
        }
        known
    }

    /// Attributes that nobody else can have changed under this delegation, and nobody here has:
    /// they are as good as new ones.
    pub(crate) fn attributes_under(&self, delegation: u64, policy: &Policy) -> Option<ValidAttributes> {
        let mut state = self.lock();
        let cached = state.attributes.filter(|cached| cached.delegation == Some(delegation))?;
        if !state.is_complete() || state.end_unknown {
            return None;
        }
        let (attributes, changes) = (cached.attributes, state.changes);
        let bounds = policy.bounds(attributes.kind == FileKind::Directory);
        Some(state.update_attributes(attributes, Some(changes), bounds, Instant::now()))
    }

    /// Forgets the attributes.
    pub(crate) fn expire_attributes(&self) {
        self.lock().attributes = None;
    }

    /// The object was changed from here.
    pub(crate) fn changed(&self) {
        let mut state = self.lock();
        state.generation += 1;
        state.record_change();
    }

    /// The file was truncated or extended to a size.
    pub(crate) fn resized(&self, size: u64) {
        let mut state = self.lock();
        state.generation += 1;
        state.record_change();
        state.written_end = state.written_end.min(size);
        state.stored_end = state.stored_end.min(size);
        state.end = Some(size);
    }

    /// It is unknown whether the file was truncated or extended.
    pub(crate) fn resize_failed(&self) {
        let mut state = self.lock();
        state.generation += 1;
        state.record_change();
        state.end_unknown = true;
    }

    /// Counts a write that a program waits for, until the returned value is dropped.
    pub(crate) fn begin_sync_write(self: &Arc<Self>) -> SyncWrite {
        self.lock().sync_writes += 1;
        SyncWrite(Arc::clone(self))
    }

    /// Counts a write past the kernel's pages, until the returned value is dropped. Returns `None`
    /// if a write that ends there does not make the file longer.
    pub(crate) fn begin_growth(self: &Arc<Self>, state: &mut State, end: u64) -> Option<GrowthGuard> {
        let before = state.end.filter(|before| end > *before)?;
        state.growth.begin(before);
        Some(GrowthGuard(Arc::clone(self)))
    }

    /// Counts one more open handle. The first one places the file on a node.
    pub(crate) fn open(&self) -> FileRef {
        let mut state = self.lock();
        state.opens += 1;
        *state.file.get_or_insert_with(|| self.mount.file_ref(self.handle))
    }

    /// Counts one open handle less. The last one releases the place on the node, and returns
    /// the silly name of a removed file, so that it can be removed.
    pub(crate) fn close(&self) -> Option<SillyName> {
        let mut state = self.lock();
        state.opens = state.opens.saturating_sub(1);
        if state.opens > 0 {
            return None;
        }
        if let Some(file) = state.file.take() {
            self.mount.release(&file);
        }
        state.silly_name.take()
    }

    /// The reference for reads and writes; `None` while the object is not open.
    pub(crate) fn file_ref(&self, state: &State) -> Option<FileRef> {
        state.file
    }

    pub(crate) fn is_open(&self) -> bool {
        self.lock().is_open()
    }
}

/// A write that a program waits for.
#[derive(Debug)]
pub(crate) struct SyncWrite(Arc<Inode>);

impl SyncWrite {
    /// The write was answered.
    pub(crate) fn record_own_change(&self, change: Change) {
        self.0.lock().record_own_change(change);
    }

    /// The write was answered after its program had stopped waiting. Attributes that were requested
    /// while it was under way may lack it.
    pub(crate) fn record_late_change(&self, change: Change) {
        let mut state = self.0.lock();
        state.record_own_change(change);
        state.record_change();
    }
}

impl Drop for SyncWrite {
    fn drop(&mut self) {
        self.0.lock().sync_writes -= 1;
    }
}

impl State {
    /// Data were taken to be written.
    pub(crate) fn record_write(&mut self, range: Range<u64>) {
        self.record_change();
        self.written_end = self.written_end.max(range.end);
        self.end = self.end.map(|before| before.max(range.end));
        self.own_writes.record(range);
    }

    /// A write from here was answered: its change of the file's version is our own.
    pub(crate) fn record_own_change(&mut self, change: Change) {
        self.version_history.record_own_change(change);
    }

    /// A write has ended, well or not. Attributes that were requested while it was under way may
    /// lack it.
    pub(crate) fn record_write_end(&mut self, range: Range<u64>) {
        self.record_change();
        self.own_writes.record(range);
    }

    /// The number of changes from here.
    pub(crate) const fn changes(&self) -> u64 {
        self.changes
    }

    /// Whether the server has all that was written here.
    fn is_complete(&self) -> bool {
        self.dirty.is_clean() && self.sync_writes == 0
    }

    fn record_change(&mut self) {
        self.changes += 1;
        self.attributes = None;
        self.delegated.forget_rights();
        self.changed_at = Some(Instant::now());
    }

    /// Whether the object was changed from here since a time.
    pub(crate) fn has_changed_since(&self, then: Instant) -> bool {
        self.changed_at.is_some_and(|at| at >= then)
    }

    pub(crate) const fn is_open(&self) -> bool {
        self.opens > 0
    }

    /// [`Inode::update_attributes`], with the shortest and the longest time for which attributes
    /// are valid.
    fn update_attributes(
        &mut self,
        attributes: Attributes,
        requested_after: Option<u64>,
        (min, max): (Duration, Duration),
        now: Instant,
    ) -> ValidAttributes {
        let is_complete = self.is_complete();
        let exact = requested_after == Some(self.changes) && is_complete;
        if exact {
            (self.written_end, self.stored_end) = (0, 0);
        }
        let ttl = match self.attributes {
            Some(old) if now.duration_since(old.at) < old.ttl => {
                if attributes.ctime < old.attributes.ctime {
                    // This reply was overtaken by a newer one.
                    let left = old.ttl.saturating_sub(now.duration_since(old.at));
                    return ValidAttributes { attributes: self.with_own_changes(old.attributes), ttl: left };
                }
                if old.attributes.version() == attributes.version() { old.ttl } else { min }
            }
            // Unchanged since the last attributes became invalid: the new ones are valid for
            // longer.
            Some(old) if old.attributes.version() == attributes.version() => (old.ttl * 2).clamp(min, max),
            _ => min,
        };
        if self.version_history.observe(attributes.version()) {
            // Data that were read ahead are from another version.
            self.generation += 1;
        }
        self.end_unknown &= !exact;
        self.end = match self.end {
            _ if exact => Some(attributes.size),
            // Writes of others count, and so do writes from here that these attributes may lack.
            end => Some(end.unwrap_or(self.written_end).max(attributes.size)),
        };
        // Attributes that may lack writes from here are requested again soon.
        let uncertain = (requested_after.is_some() && !exact) || !is_complete || self.end_unknown;
        let ttl = if uncertain { Duration::ZERO } else { ttl };
        // What has the same version is valid for as long.
        let same = self.attributes.filter(|old| old.attributes.version() == attributes.version());
        let delegation = same.and_then(|old| old.delegation);
        self.attributes = Some(CachedAttributes { attributes, at: now, ttl, delegation });
        ValidAttributes { attributes: self.with_own_changes(attributes), ttl }
    }

    /// The server's attributes with the effects of writes that the server does not have yet.
    fn with_own_changes(&self, mut attributes: Attributes) -> Attributes {
        attributes.size = self.growth.visible_size(attributes.size.max(self.written_end));
        if self.silly_name.is_some() {
            attributes.nlink = attributes.nlink.saturating_sub(1);
        }
        attributes
    }

    /// The end of the file as far as it is known, including data that the server does not have yet.
    pub(crate) fn known_end(&self) -> u64 {
        self.attributes.map_or(0, |cached| cached.attributes.size).max(self.written_end)
    }

    /// The server has data that end here.
    pub(crate) fn stored(&mut self, end: u64) {
        self.stored_end = self.stored_end.max(end);
    }

    /// A write has failed, or its outcome is unknown. Its end does not count, and the server has to
    /// be asked for the file's end.
    pub(crate) fn mark_end_unknown(&mut self) {
        self.end_unknown = true;
        self.written_end = self.stored_end.max(self.dirty.end());
        self.attributes = None;
    }

    /// Whether data that end here make the file longer, as far as its end is known.
    pub(crate) fn is_past_end(&self, end: u64) -> bool {
        self.end.is_none_or(|known| end > known)
    }

    /// Where an append begins. `offset` is where the file ends for the kernel. The kernel may not
    /// know of a newer end.
    pub(crate) fn append_at(&self, offset: u64) -> u64 {
        self.end.unwrap_or_else(|| offset.max(self.known_end()))
    }

    /// Records an error of a write that no program waited for.
    pub(crate) fn record_error(&mut self, error: Errno) {
        self.error = Some(error);
        self.error_number += 1;
    }

    /// The errors that count as reported to a new handle. An error that was not reported to any
    /// handle yet is to be reported to this one too.
    pub(crate) fn reported_errors_at_open(&self) -> ReportedErrors {
        ReportedErrors {
            by_sync: AtomicU64::new(self.error_reported),
            by_write: AtomicU64::new(self.error_number),
        }
    }

    /// The error that is still to be reported to a handle.
    pub(crate) fn unreported_error(&self, reported_errors: &ReportedErrors) -> Option<Errno> {
        self.error.filter(|_| reported_errors.by_sync.load(Ordering::Acquire) != self.error_number)
    }

    /// Returns the error that is still to be reported to a handle, and marks it as reported.
    pub(crate) fn report_errors(&mut self, reported_errors: &ReportedErrors) -> Result<(), Errno> {
        let unreported_error = self.unreported_error(reported_errors);
        reported_errors.by_sync.store(self.error_number, Ordering::Release);
        self.error_reported = self.error_number;
        unreported_error.map_or(Ok(()), Err)
    }

    /// Refuses a write if the server had no room for an earlier one. Each such error refuses one
    /// write of each handle.
    pub(crate) fn refuse_write(&self, reported_errors: &ReportedErrors) -> Result<(), Errno> {
        let Some(error) = self.unreported_error(reported_errors) else { return Ok(()) };
        let is_full = [Errno::ENOSPC, Errno::EDQUOT, Errno::EFBIG].contains(&error);
        if is_full && reported_errors.by_write.swap(self.error_number, Ordering::AcqRel) != self.error_number
        {
            return Err(error);
        }
        Ok(())
    }
}

/// Objects by the kernel's numbers.
#[derive(Debug, Default)]
struct Table {
    by_number: HashMap<u64, Arc<Inode>>,
    /// The numbers of objects whose own number was in use when they were added.
    displaced: HashMap<FileHandle, u64>,
    /// The numbers of files that may be delegated.
    delegated: HashMap<FileHandle, u64>,
    /// The number that was last chosen for such an object.
    last_assigned: u64,
}

impl Table {
    /// The object with a handle, if the kernel knows it.
    fn find(&self, handle: FileHandle, kind: FileKind, number: u64) -> Option<&Arc<Inode>> {
        let matches = |inode: &&Arc<Inode>| inode.handle == handle && inode.kind == kind;
        self.by_number.get(&number).filter(matches).or_else(|| {
            let ino = self.displaced.get(&handle)?;
            self.by_number.get(ino).filter(matches)
        })
    }

    /// Chooses the number for a new object.
    fn assign_number(&mut self, handle: FileHandle, number: u64) -> u64 {
        if !self.by_number.contains_key(&number) {
            return number;
        }
        // Search from the highest number downwards: there the numbers of files are least likely.
        let mut ino = self.last_assigned;
        loop {
            ino = ino.wrapping_sub(1);
            if ino > ROOT && !self.by_number.contains_key(&ino) {
                break;
            }
        }
        self.last_assigned = ino;
        self.displaced.insert(handle, ino);
        ino
    }

    fn remove(&mut self, ino: u64) {
        if let Some(inode) = self.by_number.remove(&ino) {
            for numbers in [&mut self.displaced, &mut self.delegated] {
                if numbers.get(&inode.handle) == Some(&ino) {
                    numbers.remove(&inode.handle);
                }
            }
        }
    }
}

/// All objects that the kernel knows.
#[derive(Debug)]
pub(crate) struct Inodes {
    table: Mutex<Table>,
    fsid: u64,
    mount: Mount,
}

impl Inodes {
    pub(crate) fn new(mount: Mount, root: &Attributes) -> Self {
        let inodes = Self { table: Mutex::default(), fsid: root.fsid, mount };
        let handle = inodes.mount.root();
        let inode = inodes.new_inode(ROOT, handle, root, 1);
        inodes.lock().by_number.insert(ROOT, inode);
        inodes
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn new_inode(&self, ino: u64, handle: FileHandle, attributes: &Attributes, lookups: u64) -> Arc<Inode> {
        Arc::new(Inode {
            ino,
            number: self.number(attributes.fsid, attributes.fileid),
            fsid: attributes.fsid,
            handle,
            kind: attributes.kind,
            mount: self.mount.clone(),
            ranges: Mutex::default(),
            state: Mutex::new(State { lookups, ..State::default() }),
        })
    }

    /// The number of an object that stat(2) shows.
    pub(crate) fn number(&self, fsid: u64, fileid: u64) -> u64 {
        let number = if fsid == self.fsid {
            fileid
        } else {
            // A file of another file system below the export may have the same number.
            fileid ^ fsid.rotate_left(32).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        };
        // For Linux, zero means that there is no object.
        if number == 0 { u64::MAX } else { number }
    }

    /// The object with a number of the kernel's.
    pub(crate) fn find(&self, ino: u64) -> Option<Arc<Inode>> {
        self.lock().by_number.get(&ino).cloned()
    }

    /// A file may be delegated from now on, for as long as the kernel knows it.
    pub(crate) fn may_be_delegated(&self, inode: &Inode) {
        let mut table = self.lock();
        if table.by_number.contains_key(&inode.ino) {
            table.delegated.insert(inode.handle, inode.ino);
        }
    }

    /// The file with a handle, if it may be delegated.
    pub(crate) fn find_delegated(&self, file: FileHandle) -> Option<Arc<Inode>> {
        let table = self.lock();
        table.by_number.get(table.delegated.get(&file)?).cloned()
    }

    /// The object with a handle, if the kernel knows it. Does not count as a lookup.
    pub(crate) fn peek(&self, handle: FileHandle, attributes: &Attributes) -> Option<Arc<Inode>> {
        let table = self.lock();
        self.find_in(&table, handle, attributes).cloned()
    }

    fn find_in<'a>(
        &self,
        table: &'a Table,
        handle: FileHandle,
        attributes: &Attributes,
    ) -> Option<&'a Arc<Inode>> {
        let number =
            if handle == self.mount.root() { ROOT } else { self.number(attributes.fsid, attributes.fileid) };
        table.find(handle, attributes.kind, number)
    }

    /// The object with a handle, which is added if the kernel does not know it. Counts as a lookup.
    pub(crate) fn find_or_add(&self, handle: FileHandle, attributes: &Attributes) -> Arc<Inode> {
        let mut table = self.lock();
        if let Some(inode) = self.find_in(&table, handle, attributes) {
            inode.lock().lookups += 1;
            return Arc::clone(inode);
        }
        let ino = table.assign_number(handle, self.number(attributes.fsid, attributes.fileid));
        let inode = self.new_inode(ino, handle, attributes, 1);
        table.by_number.insert(ino, Arc::clone(&inode));
        inode
    }

    /// The kernel forgets some lookups, and the object after the last. One that is delegated is of
    /// no use then.
    pub(crate) fn forget(&self, ino: u64, lookups: u64) {
        let mut table = self.lock();
        let Some(inode) = table.by_number.get(&ino) else { return };
        let mut state = inode.lock();
        state.lookups = state.lookups.saturating_sub(lookups);
        let gone = state.lookups == 0 && ino != ROOT;
        drop(state);
        let handle = inode.handle;
        let may_be_delegated = gone && table.delegated.contains_key(&handle);
        if gone {
            table.remove(ino);
        }
        drop(table);
        if may_be_delegated {
            self.mount.give_up_delegation(handle);
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.lock().by_number.len()
    }

    /// All objects with data that the server does not have yet.
    pub(crate) fn with_unsent_data(&self) -> Vec<Arc<Inode>> {
        self.lock().by_number.values().filter(|inode| !inode.lock().dirty.is_clean()).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fs::Time;

    /// The error number that fsync(2) reports.
    fn sync(state: &mut State, reported_errors: &ReportedErrors) -> Option<i32> {
        state.report_errors(reported_errors).err().map(Errno::code)
    }

    const BOUNDS: (Duration, Duration) = (Duration::from_secs(3), Duration::from_secs(60));

    fn attributes(mtime: u32) -> Attributes {
        let time = Time::from_seconds(mtime.into());
        let of = Attributes::of(FileKind::Regular);
        Attributes { size: 1, fsid: 1, fileid: 2, mtime: time, ctime: time, ..of }
    }

    /// For how many seconds each reply's attributes are valid. Each reply comes some seconds after
    /// the one before it, and has some time of modification.
    fn ttls_of(state: &mut State, bounds: (Duration, Duration), answers: &[(u64, u32)]) -> Vec<u64> {
        let mut now = Instant::now();
        let ttls = answers.iter().map(|(after_s, mtime)| {
            now += Duration::from_secs(*after_s);
            state.update_attributes(attributes(*mtime), Some(0), bounds, now).ttl.as_secs()
        });
        ttls.collect()
    }

    #[test]
    fn attributes_are_valid_for_longer_each_time_that_nothing_has_changed() {
        let mut state = State::default();
        // Each is requested when the last one is no longer valid; the eighth reports a change.
        let answers = [(0, 1), (3, 1), (6, 1), (12, 1), (24, 1), (48, 1), (60, 1), (60, 2), (3, 2)];
        assert_eq!(ttls_of(&mut state, BOUNDS, &answers), [3, 6, 12, 24, 48, 60, 60, 3, 6]);
        // A reply while attributes are valid does not prolong that time, and a change shortens it.
        assert_eq!(ttls_of(&mut State::default(), BOUNDS, &[(0, 1), (3, 1), (1, 1), (1, 2)]), [3, 6, 6, 3]);
        let fixed = (Duration::from_secs(7), Duration::from_secs(7));
        assert_eq!(ttls_of(&mut State::default(), fixed, &[(0, 1), (7, 1), (7, 2)]), [7, 7, 7]);
        let none = (Duration::ZERO, Duration::ZERO);
        assert_eq!(ttls_of(&mut State::default(), none, &[(0, 1), (0, 1)]), [0, 0]);
    }

    #[test]
    fn a_reply_from_before_a_change_is_not_cached_and_one_that_was_overtaken_changes_nothing() {
        let (mut state, now) = (State::default(), Instant::now());
        state.changes = 1;
        assert_eq!(state.update_attributes(attributes(1), Some(0), BOUNDS, now).ttl, Duration::ZERO);
        assert_eq!(state.update_attributes(attributes(5), Some(1), BOUNDS, now).ttl, BOUNDS.0);
        let later = now + Duration::from_secs(1);
        let overtaken = state.update_attributes(attributes(4), Some(1), BOUNDS, later);
        assert_eq!((overtaken.attributes.mtime.seconds, overtaken.ttl.as_secs()), (5, 2));
    }

    #[test]
    fn the_end_of_what_is_lost_does_not_count_and_the_server_is_asked() {
        let (mut state, now) = (State::default(), Instant::now());
        let shown = |state: &mut State, requested_after| {
            let valid = state.update_attributes(attributes(1), requested_after, BOUNDS, now);
            (valid.attributes.size, valid.ttl)
        };
        state.written_end = 400;
        assert_eq!(shown(&mut state, None), (400, BOUNDS.0));
        state.stored(200);
        state.mark_end_unknown();
        assert_eq!(shown(&mut state, None), (200, Duration::ZERO), "what the server has counts");
        state.dirty.write(250, &[0; 50], &None, 1000, now);
        state.mark_end_unknown();
        assert_eq!(shown(&mut state, None), (300, Duration::ZERO), "and what it may still have");
        state.dirty = Dirty::default();
        assert_eq!(shown(&mut state, Some(0)), (1, BOUNDS.0));
        assert_eq!(shown(&mut state, None), (1, BOUNDS.0));
    }

    #[test]
    fn an_error_is_reported_once_to_each_open_handle_and_to_the_next_one_if_to_none_yet() {
        let mut state = State::default();
        let (one, other) = (state.reported_errors_at_open(), state.reported_errors_at_open());
        assert_eq!(sync(&mut state, &one), None);
        state.record_error(Errno::EIO);
        let late = state.reported_errors_at_open();
        for reported_errors in [&one, &late, &other] {
            assert_eq!(sync(&mut state, reported_errors), Some(libc::EIO));
            assert_eq!(sync(&mut state, reported_errors), None);
        }
        let next = state.reported_errors_at_open();
        assert_eq!(sync(&mut state, &next), None);
        state.record_error(Errno::ENOSPC);
        assert_eq!(sync(&mut state, &next), Some(libc::ENOSPC));
    }

    #[test]
    fn one_write_of_each_handle_is_refused_where_there_was_no_room_and_fsync_still_reports_it() {
        let mut state = State::default();
        let reported_errors = state.reported_errors_at_open();
        state.record_error(Errno::EIO);
        assert!(state.refuse_write(&reported_errors).is_ok(), "another write may do better");
        state.record_error(Errno::EDQUOT);
        assert!(state.refuse_write(&state.reported_errors_at_open()).is_ok(), "it was not open then");
        assert_eq!(state.refuse_write(&reported_errors).map_err(Errno::code), Err(libc::EDQUOT));
        assert!(state.refuse_write(&reported_errors).is_ok(), "room may have been made");
        assert_eq!(sync(&mut state, &reported_errors), Some(libc::EDQUOT));
        state.record_error(Errno::EDQUOT);
        assert_eq!(sync(&mut state, &reported_errors), Some(libc::EDQUOT));
        assert!(state.refuse_write(&reported_errors).is_ok(), "it knows");
    }
}
