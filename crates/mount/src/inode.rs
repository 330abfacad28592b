//! The objects that the kernel knows, and what is known of each.
//!
//! The server names an object by a handle, and nothing else tells two apart: a file's number may be
//! another's too, where file systems lie below the export, or where a removed file's was given
//! away. The kernel names it by a number of ours: the file's, as long as no other object that the
//! kernel knows has it, and 1 for the root. What stat(2) shows is the file's number in any case, as
//! on a kernel mount.

use crate::caller::As;
use crate::dirty::Dirty;
use crate::growth::{Growing, Growth};
use crate::lineage::Lineage;
use crate::own_writes::OwnWrites;
use crate::policy::Policy;
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
    /// By which the kernel knows it.
    pub ino: u64,
    /// The file's number, which stat(2) shows.
    pub number: u64,
    pub fsid: u64,
    pub handle: FileHandle,
    pub kind: FileKind,
    mount: Mount,
    /// What of it is being read and written. Not to be asked for while its state is locked.
    ranges: Mutex<Ranges>,
    state: Mutex<State>,
}

/// The numbers of the errors that a handle was told of last.
#[derive(Debug)]
pub(crate) struct Told {
    /// By fsync(2), which counts.
    by_sync: AtomicU64,
    /// By write(2). The kernel makes several requests of a long one, and tells of a part that was
    /// done instead.
    by_write: AtomicU64,
}

/// What may change.
#[derive(Debug, Default)]
pub(crate) struct State {
    lookups: u64,
    attributes: Option<Cached>,
    /// Handles that are open on it.
    opens: u32,
    /// Its place on a node, for reads and writes, while it is open.
    file: Option<FileRef>,
    /// It was removed while it was open, and lives on under another name.
    pub hidden: Option<Hidden>,
    /// What the kernel's pages were read from.
    pub pages_of: Option<Version>,
    /// Opens at whose answer the kernel drops its pages, and is not known to have done so.
    pub dropping: u32,
    /// Which content the attributes are of that the kernel was told last.
    pub told_of: Option<Version>,
    /// It was told of another one before, and may not have the last answer yet.
    pub told_otherwise: bool,
    pub dirty: Dirty,
    /// Counts what may have changed any of its data: nothing that was read ahead before is given
    /// out after.
    pub generation: u64,
    /// The ranges that were written from here, out of which nothing is given that was read ahead
    /// before.
    pub own_writes: OwnWrites,
    /// Where the last data end that were written since the size was asked for.
    written_end: u64,
    /// Where the last of them end that the server has.
    stored_end: u64,
    /// Where the file ends for who appends: the size that the server has told, and what was written
    /// since. Unlike attributes it is not forgotten, because an append that began anywhere before
    /// would destroy what is there.
    end: Option<u64>,
    /// A write that was to end there has failed, or nobody knows what became of it.
    pub end_in_doubt: bool,
    /// Writes that programs wait for, and that no attributes tell of yet.
    waited_for: u32,
    /// What the kernel is to learn of from the answers to its writes, and from nothing else.
    pub growth: Growth,
    /// When it was changed last from here.
    changed_at: Option<Instant>,
    /// Which content the newest attributes are of.
    lineage: Lineage,
    /// Counts changes, so that attributes that were asked for before one are known to be old.
    changes: u64,
    /// The newest error of a write that nobody waited for, and which it is.
    error: Option<Errno>,
    error_number: u64,
    /// The one that somebody was told of last.
    error_told: u64,
}

/// Where a removed file lives on.
#[derive(Debug, Clone)]
pub(crate) struct Hidden {
    pub directory: FileHandle,
    pub name: Vec<u8>,
    pub caller: As,
}

#[derive(Debug, Clone, Copy)]
struct Cached {
    attributes: Attributes,
    at: Instant,
    ttl: Duration,
}

/// Attributes and how much longer they hold.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Known {
    pub attributes: Attributes,
    pub ttl: Duration,
}

impl Inode {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What of it is being read and written.
    pub(crate) fn ranges(&self) -> MutexGuard<'_, Ranges> {
        self.ranges.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Attributes that still hold.
    pub(crate) fn known(&self) -> Option<Known> {
        let state = self.lock();
        let cached = state.attributes?;
        let ttl = cached.ttl.checked_sub(cached.at.elapsed()).filter(|left| !left.is_zero())?;
        Some(Known { attributes: state.shown(cached.attributes), ttl })
    }

    /// How often it was changed from here: to be given to [`Inode::learn`] with attributes that
    /// were asked for now.
    pub(crate) fn changes(&self) -> u64 {
        self.lock().changes
    }

    /// Takes attributes from the server, and gives what is to be shown. `asked` is the count of
    /// changes when they were asked for, nothing when they came along with something else.
    pub(crate) fn learn(&self, attributes: Attributes, asked: Option<u64>, policy: &Policy) -> Known {
        let bounds = policy.bounds(attributes.kind == FileKind::Directory);
        let mut state = self.lock();
        state.learn(attributes, asked, bounds, Instant::now())
    }

    /// What is known holds no longer.
    pub(crate) fn expire(&self) {
        self.lock().attributes = None;
    }

    /// The object was changed from here.
    pub(crate) fn changed(&self) {
        let mut state = self.lock();
        state.generation += 1;
        state.change();
    }

    /// The file was cut, or grown, to a size.
    pub(crate) fn resized(&self, size: u64) {
        let mut state = self.lock();
        state.generation += 1;
        state.change();
        state.written_end = state.written_end.min(size);
        state.stored_end = state.stored_end.min(size);
        state.end = Some(size);
    }

    /// Nobody knows whether the file was cut, or grown.
    pub(crate) fn resize_failed(&self) {
        let mut state = self.lock();
        state.generation += 1;
        state.change();
        state.end_in_doubt = true;
    }

    /// A write is waited for, until this is dropped.
    pub(crate) fn wait_for_write(self: &Arc<Self>) -> WaitedFor {
        self.lock().waited_for += 1;
        WaitedFor(Arc::clone(self))
    }

    /// A write past the kernel's pages is under way, until this is dropped, which makes the file
    /// longer if it ends there.
    pub(crate) fn begin_growth(self: &Arc<Self>, state: &mut State, end: u64) -> Option<Growing> {
        let before = state.end.filter(|before| end > *before)?;
        state.growth.begin(before);
        Some(Growing(Arc::clone(self)))
    }

    /// One more handle is open on it.
    pub(crate) fn open(&self) -> FileRef {
        let mut state = self.lock();
        state.opens += 1;
        *state.file.get_or_insert_with(|| self.mount.file_ref(self.handle))
    }

    /// One handle less. After the last, the place is free, and where a removed file lived on is to
    /// be removed.
    pub(crate) fn close(&self) -> Option<Hidden> {
        let mut state = self.lock();
        state.opens = state.opens.saturating_sub(1);
        if state.opens > 0 {
            return None;
        }
        if let Some(file) = state.file.take() {
            self.mount.release(&file);
        }
        state.hidden.take()
    }

    /// Its place on a node; none while it is not open.
    pub(crate) fn place(&self, state: &State) -> Option<FileRef> {
        state.file
    }

    pub(crate) fn is_open(&self) -> bool {
        self.lock().is_open()
    }
}

/// A write that is waited for.
#[derive(Debug)]
pub(crate) struct WaitedFor(Arc<Inode>);

impl WaitedFor {
    /// It was answered.
    pub(crate) fn follow(&self, change: Change) {
        self.0.lock().follow(change);
    }

    /// It was answered, and nobody waits any more: what was asked about the file while it was on
    /// its way is old now.
    pub(crate) fn outlive(&self, change: Change) {
        let mut state = self.0.lock();
        state.follow(change);
        state.change();
    }
}

impl Drop for WaitedFor {
    fn drop(&mut self) {
        self.0.lock().waited_for -= 1;
    }
}

impl State {
    /// Data were taken to be written.
    pub(crate) fn written(&mut self, range: Range<u64>) {
        self.change();
        self.written_end = self.written_end.max(range.end);
        self.end = self.end.map(|before| before.max(range.end));
        self.own_writes.note(range);
    }

    /// A write from here was answered: what it did to the file's version is our own.
    pub(crate) fn follow(&mut self, change: Change) {
        self.lineage.follow(change);
    }

    /// A write has ended, well or not: what was asked about the file while it was on its way is old
    /// now.
    pub(crate) fn ended(&mut self, range: Range<u64>) {
        self.change();
        self.own_writes.note(range);
    }

    fn change(&mut self) {
        self.changes += 1;
        self.attributes = None;
        self.changed_at = Some(Instant::now());
    }

    /// Whether it was changed from here after a moment.
    pub(crate) fn has_changed_since(&self, then: Instant) -> bool {
        self.changed_at.is_some_and(|at| at >= then)
    }

    pub(crate) const fn is_open(&self) -> bool {
        self.opens > 0
    }

    /// [`Inode::learn`], with the shortest and longest time for which attributes are believed.
    fn learn(
        &mut self,
        attributes: Attributes,
        asked: Option<u64>,
        (min, max): (Duration, Duration),
        now: Instant,
    ) -> Known {
        let told_all = self.dirty.is_clean() && self.waited_for == 0;
        let exact = asked == Some(self.changes) && told_all;
        if exact {
            (self.written_end, self.stored_end) = (0, 0);
        }
        let ttl = match self.attributes {
            Some(old) if now.duration_since(old.at) < old.ttl => {
                if attributes.ctime < old.attributes.ctime {
                    // An answer that was overtaken by a newer one.
                    let left = old.ttl.saturating_sub(now.duration_since(old.at));
                    return Known { attributes: self.shown(old.attributes), ttl: left };
                }
                if old.attributes.version() == attributes.version() { old.ttl } else { min }
            }
            // Unchanged for as long as it was believed: it is believed for longer.
            Some(old) if old.attributes.version() == attributes.version() => (old.ttl * 2).clamp(min, max),
            _ => min,
        };
        if self.lineage.sees(attributes.version()) {
            // What was read ahead is of the content before.
            self.generation += 1;
        }
        self.end_in_doubt &= !exact;
        self.end = match self.end {
            _ if exact => Some(attributes.size),
            // What others have written counts, and what these do not tell yet.
            end => Some(end.unwrap_or(self.written_end).max(attributes.size)),
        };
        // What does not tell all that was written here is asked for again soon.
        let doubted = (asked.is_some() && !exact) || !told_all || self.end_in_doubt;
        let ttl = if doubted { Duration::ZERO } else { ttl };
        self.attributes = Some(Cached { attributes, at: now, ttl });
        Known { attributes: self.shown(attributes), ttl }
    }

    /// The server's attributes, with what it does not know yet.
    fn shown(&self, mut attributes: Attributes) -> Attributes {
        attributes.size = self.growth.known_of(attributes.size.max(self.written_end));
        if self.hidden.is_some() {
            attributes.nlink = attributes.nlink.saturating_sub(1);
        }
        attributes
    }

    /// The end of the file as far as it is known here: what was written counts.
    pub(crate) fn known_end(&self) -> u64 {
        self.attributes.map_or(0, |cached| cached.attributes.size).max(self.written_end)
    }

    /// The server has data that end there.
    pub(crate) fn stored(&mut self, end: u64) {
        self.stored_end = self.stored_end.max(end);
    }

    /// A write was lost, or nobody knows what became of it: its end does not count, and the server
    /// is to be asked for the file's.
    pub(crate) fn doubt_end(&mut self) {
        self.end_in_doubt = true;
        self.written_end = self.stored_end.max(self.dirty.end());
        self.attributes = None;
    }

    /// Whether data that end there make the file longer, as far as its end is known.
    pub(crate) fn is_past_end(&self, end: u64) -> bool {
        self.end.is_none_or(|known| end > known)
    }

    /// Where an append goes for which the kernel has this offset: where it believes the file to
    /// end, which nobody may have told it.
    pub(crate) fn append_at(&self, offset: u64) -> u64 {
        self.end.unwrap_or_else(|| offset.max(self.known_end()))
    }

    /// Remembers an error that nobody waited for.
    pub(crate) fn failed(&mut self, error: Errno) {
        self.error = Some(error);
        self.error_number += 1;
    }

    /// What a new handle was told of: an error that nobody was told of yet is its to tell, too.
    pub(crate) fn told_at_open(&self) -> Told {
        Told { by_sync: AtomicU64::new(self.error_told), by_write: AtomicU64::new(self.error_number) }
    }

    /// An error that whoever has this was not told of yet.
    pub(crate) fn untold(&self, told: &Told) -> Option<Errno> {
        self.error.filter(|_| told.by_sync.load(Ordering::Acquire) != self.error_number)
    }

    /// The same, and that it is told now.
    pub(crate) fn tell(&mut self, told: &Told) -> Result<(), Errno> {
        let untold = self.untold(told);
        told.by_sync.store(self.error_number, Ordering::Release);
        self.error_told = self.error_number;
        untold.map_or(Ok(()), Err)
    }

    /// Refuses a write where there was no room for one before it; each such error refuses one write
    /// of a handle.
    pub(crate) fn refuse(&self, told: &Told) -> Result<(), Errno> {
        let Some(error) = self.untold(told) else { return Ok(()) };
        let is_full = [Errno::ENOSPC, Errno::EDQUOT, Errno::EFBIG].contains(&error);
        if is_full && told.by_write.swap(self.error_number, Ordering::AcqRel) != self.error_number {
            return Err(error);
        }
        Ok(())
    }
}

/// Objects by the kernel's numbers.
#[derive(Debug, Default)]
struct Table {
    known: HashMap<u64, Arc<Inode>>,
    /// Those whose own number was another's when they came.
    displaced: HashMap<FileHandle, u64>,
    /// What was given to one of them last.
    last_given: u64,
}

impl Table {
    /// The object of a handle, if the kernel knows it.
    fn find(&self, handle: FileHandle, kind: FileKind, number: u64) -> Option<&Arc<Inode>> {
        let is_it = |inode: &&Arc<Inode>| inode.handle == handle && inode.kind == kind;
        self.known.get(&number).filter(is_it).or_else(|| {
            let given = self.displaced.get(&handle)?;
            self.known.get(given).filter(is_it)
        })
    }

    /// A number for one that is new here.
    fn give(&mut self, handle: FileHandle, number: u64) -> u64 {
        if !self.known.contains_key(&number) {
            return number;
        }
        // From the end, where the numbers of files are the least likely to be.
        let mut given = self.last_given;
        loop {
            given = given.wrapping_sub(1);
            if given > ROOT && !self.known.contains_key(&given) {
                break;
            }
        }
        self.last_given = given;
        self.displaced.insert(handle, given);
        given
    }

    fn remove(&mut self, ino: u64) {
        if let Some(inode) = self.known.remove(&ino)
            && self.displaced.get(&inode.handle) == Some(&ino)
        {
            self.displaced.remove(&inode.handle);
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
        let inode = inodes.make(ROOT, handle, root, 1);
        inodes.lock().known.insert(ROOT, inode);
        inodes
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn make(&self, ino: u64, handle: FileHandle, attributes: &Attributes, lookups: u64) -> Arc<Inode> {
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

    /// What stat(2) shows as an object's number.
    pub(crate) fn number(&self, fsid: u64, fileid: u64) -> u64 {
        let number = if fsid == self.fsid {
            fileid
        } else {
            // Another file system below the mount has numbers of its own.
            fileid ^ fsid.rotate_left(32).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        };
        // Zero would say that there is no object.
        if number == 0 { u64::MAX } else { number }
    }

    /// What the kernel knows by a number of its own.
    pub(crate) fn find(&self, ino: u64) -> Option<Arc<Inode>> {
        self.lock().known.get(&ino).cloned()
    }

    /// What the kernel knows by a handle, without it being looked up.
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

    /// An object that the kernel is told of: it counts as looked up once more.
    pub(crate) fn remember(&self, handle: FileHandle, attributes: &Attributes) -> Arc<Inode> {
        let mut table = self.lock();
        if let Some(inode) = self.find_in(&table, handle, attributes) {
            inode.lock().lookups += 1;
            return Arc::clone(inode);
        }
        let ino = table.give(handle, self.number(attributes.fsid, attributes.fileid));
        let inode = self.make(ino, handle, attributes, 1);
        table.known.insert(ino, Arc::clone(&inode));
        inode
    }

    /// The kernel has forgotten some lookups.
    pub(crate) fn forget(&self, ino: u64, lookups: u64) {
        let mut table = self.lock();
        let Some(inode) = table.known.get(&ino) else { return };
        let mut state = inode.lock();
        state.lookups = state.lookups.saturating_sub(lookups);
        let gone = state.lookups == 0 && ino != ROOT;
        drop(state);
        if gone {
            table.remove(ino);
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.lock().known.len()
    }

    /// All that have data which the server does not have yet.
    pub(crate) fn unclean(&self) -> Vec<Arc<Inode>> {
        self.lock().known.values().filter(|inode| !inode.lock().dirty.is_clean()).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fs::Time;

    /// What fsync(2) says, by the number of the error.
    fn sync(state: &mut State, told: &Told) -> Option<i32> {
        state.tell(told).err().map(Errno::code)
    }

    const BOUNDS: (Duration, Duration) = (Duration::from_secs(3), Duration::from_secs(60));

    fn attributes(mtime: u32) -> Attributes {
        let time = Time::from_seconds(mtime.into());
        let of = Attributes::of(FileKind::Regular);
        Attributes { size: 1, fsid: 1, fileid: 2, mtime: time, ctime: time, ..of }
    }

    /// For how many seconds attributes are believed that were asked for each time when the last
    /// ones were so old.
    fn believed(state: &mut State, bounds: (Duration, Duration), answers: &[(u64, u32)]) -> Vec<u64> {
        let mut now = Instant::now();
        let asked = answers.iter().map(|(after_s, mtime)| {
            now += Duration::from_secs(*after_s);
            state.learn(attributes(*mtime), Some(0), bounds, now).ttl.as_secs()
        });
        asked.collect()
    }

    #[test]
    fn attributes_are_believed_for_longer_each_time_that_nothing_has_changed() {
        let mut state = State::default();
        // Each is asked for when the last one holds no longer; the eighth tells of a change.
        let answers = [(0, 1), (3, 1), (6, 1), (12, 1), (24, 1), (48, 1), (60, 1), (60, 2), (3, 2)];
        assert_eq!(believed(&mut state, BOUNDS, &answers), [3, 6, 12, 24, 48, 60, 60, 3, 6]);
        // What comes along while they hold makes them no older, and a change makes them young.
        assert_eq!(believed(&mut State::default(), BOUNDS, &[(0, 1), (3, 1), (1, 1), (1, 2)]), [3, 6, 6, 3]);
        let fixed = (Duration::from_secs(7), Duration::from_secs(7));
        assert_eq!(believed(&mut State::default(), fixed, &[(0, 1), (7, 1), (7, 2)]), [7, 7, 7]);
        let none = (Duration::ZERO, Duration::ZERO);
        assert_eq!(believed(&mut State::default(), none, &[(0, 1), (0, 1)]), [0, 0]);
    }

    #[test]
    fn an_answer_from_before_a_change_is_not_believed_and_one_that_was_overtaken_changes_nothing() {
        let (mut state, now) = (State::default(), Instant::now());
        state.changes = 1;
        assert_eq!(state.learn(attributes(1), Some(0), BOUNDS, now).ttl, Duration::ZERO);
        assert_eq!(state.learn(attributes(5), Some(1), BOUNDS, now).ttl, BOUNDS.0);
        let later = now + Duration::from_secs(1);
        let overtaken = state.learn(attributes(4), Some(1), BOUNDS, later);
        assert_eq!((overtaken.attributes.mtime.seconds, overtaken.ttl.as_secs()), (5, 2));
    }

    #[test]
    fn the_end_of_what_is_lost_does_not_count_and_the_server_is_asked() {
        let (mut state, now) = (State::default(), Instant::now());
        let shown = |state: &mut State, asked| {
            let known = state.learn(attributes(1), asked, BOUNDS, now);
            (known.attributes.size, known.ttl)
        };
        state.written_end = 400;
        assert_eq!(shown(&mut state, None), (400, BOUNDS.0));
        state.stored(200);
        state.doubt_end();
        assert_eq!(shown(&mut state, None), (200, Duration::ZERO), "what the server has counts");
        state.dirty.write(250, &[0; 50], &None, 1000, now);
        state.doubt_end();
        assert_eq!(shown(&mut state, None), (300, Duration::ZERO), "and what it may still have");
        state.dirty = Dirty::default();
        assert_eq!(shown(&mut state, Some(0)), (1, BOUNDS.0));
        assert_eq!(shown(&mut state, None), (1, BOUNDS.0));
    }

    #[test]
    fn an_error_is_told_once_to_each_that_had_the_file_open_and_to_the_next_if_nobody_was_told() {
        let mut state = State::default();
        let (one, other) = (state.told_at_open(), state.told_at_open());
        assert_eq!(sync(&mut state, &one), None);
        state.failed(Errno::EIO);
        let late = state.told_at_open();
        for told in [&one, &late, &other] {
            assert_eq!(sync(&mut state, told), Some(libc::EIO));
            assert_eq!(sync(&mut state, told), None);
        }
        let next = state.told_at_open();
        assert_eq!(sync(&mut state, &next), None);
        state.failed(Errno::ENOSPC);
        assert_eq!(sync(&mut state, &next), Some(libc::ENOSPC));
    }

    #[test]
    fn one_write_of_each_handle_is_refused_where_there_was_no_room_and_fsync_tells_it_still() {
        let mut state = State::default();
        let told = state.told_at_open();
        state.failed(Errno::EIO);
        assert!(state.refuse(&told).is_ok(), "another write may do better");
        state.failed(Errno::EDQUOT);
        assert!(state.refuse(&state.told_at_open()).is_ok(), "it was not open then");
        assert_eq!(state.refuse(&told).map_err(Errno::code), Err(libc::EDQUOT));
        assert!(state.refuse(&told).is_ok(), "room may have been made");
        assert_eq!(sync(&mut state, &told), Some(libc::EDQUOT));
        state.failed(Errno::EDQUOT);
        assert_eq!(sync(&mut state, &told), Some(libc::EDQUOT));
        assert!(state.refuse(&told).is_ok(), "it knows");
    }
}
