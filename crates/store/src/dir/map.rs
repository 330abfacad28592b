//! The locations of objects that cannot be opened by their name alone: an append-only file.
//!
//! An entry says in which directory, and under which name, an object was last seen. An object found
//! that way is compared with the requested name, so a wrong entry leads to a stale handle, never to
//! another file. Renames through this store are recorded; a rename on the server itself is noticed
//! when the new name is looked up.
//!
//! Each record carries a code over its bytes. A process or machine that stops in the middle of a
//! record leaves a tail whose code does not match; the tail is cut off. Several processes may
//! append: each record is written by one write under a lock, and a process that misses an entry
//! reads the records that others have added.
//!
//! Records are not synced individually. The end of a process loses none; a crash of the machine may
//! lose the last records, whose handles are stale then.

use crate::interface::ObjectId;
use rustix::fs::{FlockOperation, flock};
use siphasher::sip::SipHasher24;
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::hash::Hasher;
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The most objects in the map; above this number a new object has a valid handle only as long as
/// it is open. This bounds memory: about 200 bytes for each object.
const ENTRIES_MAX: usize = 8 << 20;
/// The most bytes of a record: two names of objects and one directory entry.
const RECORD_BYTES_MAX: usize = 512;
/// The file is rewritten when it has more records than this, and more than twice its entries. So
/// its size is bounded whatever clients do: each lookup of the other one of two names of a file
/// adds a record.
const COMPACT_ABOVE: usize = 10_000;
const HEAD: &[u8; 8] = b"tl-map1\n";

type Entry = (ObjectId, Box<[u8]>);

struct MapState {
    entries: HashMap<ObjectId, Entry>,
    path: PathBuf,
    file: File,
    /// How much of the file has been read.
    end: u64,
    records: usize,
}

/// See the module's documentation.
pub(super) struct Map {
    known: Mutex<MapState>,
    /// Locked to read or append; a file of its own, because the map's file is replaced at times.
    lock: File,
    hasher: SipHasher24,
}

fn put_object(out: &mut Vec<u8>, object: &ObjectId) {
    out.extend_from_slice(&object.fileid.to_le_bytes());
    out.push(u8::try_from(object.name().len()).unwrap_or_default());
    out.extend_from_slice(object.name());
}

fn take_object(bytes: &mut &[u8]) -> Option<ObjectId> {
    let (fileid, rest) = bytes.split_first_chunk::<8>()?;
    let (len, rest) = rest.split_first()?;
    let (name, rest) = rest.split_at_checked(usize::from(*len))?;
    *bytes = rest;
    ObjectId::named(u64::from_le_bytes(*fileid), name)
}

impl Map {
    pub fn open(directory: &Path, secret: &[u8; 16]) -> io::Result<Self> {
        let path = directory.join("map");
        let hasher = SipHasher24::new_with_key(secret);
        let file = open_file(&path)?;
        let known = MapState { entries: HashMap::new(), path, file, end: 0, records: 0 };
        let map = Self { known: Mutex::new(known), lock: open_file(&directory.join("map.lock"))?, hasher };
        map.locked(|known, hasher| known.compact(hasher))?;
        Ok(map)
    }

    /// Calls `act` under the lock of all processes, after the records that others have added were
    /// read.
    fn locked<T>(&self, act: impl FnOnce(&mut MapState, SipHasher24) -> io::Result<T>) -> io::Result<T> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        flock(&self.lock, FlockOperation::LockExclusive)?;
        let done = known.catch_up(self.hasher).and_then(|()| act(&mut known, self.hasher));
        flock(&self.lock, FlockOperation::Unlock)?;
        done
    }

    /// The location where an object was last seen.
    pub fn find(&self, object: &ObjectId) -> Option<Entry> {
        let known = |known: &MapState| known.entries.get(object).cloned();
        let found = known(&self.known.lock().unwrap_or_else(PoisonError::into_inner));
        // A neighbour may have recorded it.
        found.or_else(|| self.locked(|now, _| Ok(known(now))).ok()?)
    }

    /// Records the location of an object. After a failure the entry is missing from the next start
    /// on, and the handle is stale then.
    pub fn note(&self, object: &ObjectId, parent: &ObjectId, name: &[u8]) {
        let same = |(at, called): &Entry| at == parent && &**called == name;
        let full = {
            let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            if known.entries.get(object).is_some_and(same) {
                return;
            }
            known.entries.len() >= ENTRIES_MAX && !known.entries.contains_key(object)
        };
        if full {
            return;
        }
        let noted = self.locked(|known, hasher| {
            known.entries.insert(*object, (*parent, name.into()));
            known.append(&record(hasher, object, Some((parent, name))))?;
            known.compact(hasher)
        });
        if let Err(error) = noted {
            tracing::warn!(%error, "the map of file handles cannot be written to");
        }
    }

    /// Removes the entry of an object that is gone.
    pub fn forget(&self, object: &ObjectId) {
        let _ = self.locked(|known, hasher| match known.entries.remove(object) {
            Some(_) => {
                known.append(&record(hasher, object, None))?;
                known.compact(hasher)
            }
            None => Ok(()),
        });
    }
}

/// Encodes a record: length, code, then the object and its location, or a mark that the object is
/// gone.
fn record(hasher: SipHasher24, object: &ObjectId, at: Option<(&ObjectId, &[u8])>) -> Vec<u8> {
    let mut body = Vec::with_capacity(128);
    body.push(u8::from(at.is_some()));
    put_object(&mut body, object);
    if let Some((parent, name)) = at {
        put_object(&mut body, parent);
        body.extend_from_slice(name);
    }
    let mut code = hasher;
    code.write(&body);
    let mut record = Vec::with_capacity(body.len() + 10);
    record.extend_from_slice(&u16::try_from(body.len()).unwrap_or(u16::MAX).to_le_bytes());
    record.extend_from_slice(&code.finish().to_le_bytes());
    record.extend_from_slice(&body);
    record
}

fn open_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)
}

// All methods run under the lock.
impl MapState {
    /// Reads the records added since the last call, and cuts off a tail whose code does not match:
    /// nobody is writing now, so a process that ended halfway left the tail.
    fn catch_up(&mut self, hasher: SipHasher24) -> io::Result<()> {
        if self.file.metadata()?.ino() != std::fs::metadata(&self.path)?.ino() {
            // A neighbour rewrote the file.
            self.file = open_file(&self.path)?;
            (self.end, self.records) = (0, 0);
            self.entries.clear();
        }
        let len = self.file.metadata()?.len();
        if len < HEAD.len() as u64 {
            self.file.set_len(0)?;
            self.file.write_all(HEAD)?;
            self.end = HEAD.len() as u64;
            return Ok(());
        }
        if self.end == 0 {
            let mut head = [0; HEAD.len()];
            self.file.read_exact_at(&mut head, 0)?;
            if head != *HEAD {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "the file `map` is not one of ours"));
            }
            self.end = HEAD.len() as u64;
        }
        if len == self.end {
            return Ok(());
        }
        let mut bytes = vec![0; usize::try_from(len.saturating_sub(self.end)).unwrap_or_default()];
        self.file.read_exact_at(&mut bytes, self.end)?;
        let mut rest: &[u8] = &bytes;
        while let Some((whole, after)) = split_record(rest, hasher) {
            self.apply(whole);
            self.end += (rest.len() - after.len()) as u64;
            rest = after;
        }
        if rest.is_empty() { Ok(()) } else { self.file.set_len(self.end) }
    }

    fn apply(&mut self, mut body: &[u8]) {
        self.records += 1;
        let Some((put, rest)) = body.split_first() else { return };
        body = rest;
        let Some(object) = take_object(&mut body) else { return };
        if *put == 0 {
            self.entries.remove(&object);
        } else if let Some(parent) = take_object(&mut body)
            && self.entries.len() < ENTRIES_MAX
        {
            self.entries.insert(object, (parent, body.into()));
        }
    }

    fn append(&mut self, record: &[u8]) -> io::Result<()> {
        self.file.write_all(record)?;
        self.end += record.len() as u64;
        self.records += 1;
        Ok(())
    }

    /// Rewrites the file when most records are outdated: the new file is complete and on disk
    /// before it replaces the old one.
    fn compact(&mut self, hasher: SipHasher24) -> io::Result<()> {
        if self.records < COMPACT_ABOVE || self.records < 2 * self.entries.len() {
            return Ok(());
        }
        // After a failure this is tried again only when as many records have been added again.
        self.records = self.entries.len();
        let draft = self.path.with_extension("new");
        let _ = std::fs::remove_file(&draft);
        let mut out = io::BufWriter::new(open_file(&draft)?);
        out.write_all(HEAD)?;
        for (object, (parent, name)) in &self.entries {
            out.write_all(&record(hasher, object, Some((parent, name))))?;
        }
        let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.sync_all()?;
        std::fs::rename(&draft, &self.path)?;
        self.end = file.metadata()?.len();
        self.file = file;
        Ok(())
    }
}

fn split_record(bytes: &[u8], hasher: SipHasher24) -> Option<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_first_chunk::<2>()?;
    let (code, rest) = rest.split_first_chunk::<8>()?;
    let len = usize::from(u16::from_le_bytes(*len));
    if len > RECORD_BYTES_MAX {
        return None;
    }
    let (body, rest) = rest.split_at_checked(len)?;
    let mut proof = hasher;
    proof.write(body);
    (proof.finish().to_le_bytes() == *code).then_some((body, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: ObjectId = ObjectId::new(2, 7);

    fn object(number: u64) -> ObjectId {
        ObjectId::new(number, 1)
    }

    fn open(directory: &tempfile::TempDir) -> Map {
        Map::open(directory.path(), &[3; 16]).unwrap()
    }

    #[test]
    fn entries_outlive_the_process_and_the_last_one_counts() {
        let directory = tempfile::tempdir().unwrap();
        let map = open(&directory);
        map.note(&object(1), &PARENT, b"one");
        map.note(&object(2), &PARENT, b"\xff\n");
        map.note(&object(1), &object(9), b"moved");
        map.note(&object(3), &PARENT, b"gone");
        map.forget(&object(3));
        drop(map);
        let map = open(&directory);
        assert_eq!(map.find(&object(1)), Some((object(9), b"moved"[..].into())));
        assert_eq!(map.find(&object(2)), Some((PARENT, b"\xff\n"[..].into())));
        assert_eq!(map.find(&object(3)), None);
    }

    #[test]
    fn a_tail_cut_anywhere_loses_only_its_own_entry() {
        let directory = tempfile::tempdir().unwrap();
        open(&directory).note(&object(1), &PARENT, b"kept");
        let path = directory.path().join("map");
        let kept = std::fs::read(&path).unwrap();
        open(&directory).note(&object(2), &PARENT, b"torn");
        let whole = std::fs::read(&path).unwrap();
        for len in kept.len()..whole.len() {
            std::fs::write(&path, &whole[..len]).unwrap();
            let map = open(&directory);
            assert!(map.find(&object(1)).is_some() && map.find(&object(2)).is_none(), "cut at {len}");
            map.note(&object(3), &PARENT, b"later");
            assert!(open(&directory).find(&object(3)).is_some(), "what comes after a cut is read");
        }
    }

    #[test]
    fn neighbours_see_what_the_other_noted_also_when_one_writes_the_file_anew() {
        let directory = tempfile::tempdir().unwrap();
        let (one, other) = (open(&directory), open(&directory));
        one.note(&object(1), &PARENT, b"a");
        assert!(other.find(&object(1)).is_some());
        let length = || std::fs::metadata(directory.path().join("map")).unwrap().len();
        let few = length();
        for round in 0..COMPACT_ABOVE + 10 {
            one.note(&object(1), &PARENT, if round % 2 == 0 { b"b" } else { b"c" });
        }
        assert!(length() < 100 * few, "names that are looked up in turns do not fill the disk: {}", length());
        let third = open(&directory);
        third.note(&object(4), &PARENT, b"after");
        assert!(one.find(&object(4)).is_some() && other.find(&object(4)).is_some());
        one.note(&object(5), &PARENT, b"in the new one");
        assert!(third.find(&object(5)).is_some());
    }

    #[test]
    fn somebody_elses_file_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("map"), b"something else").unwrap();
        assert!(Map::open(directory.path(), &[3; 16]).is_err());
    }
}
