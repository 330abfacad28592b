//! The file of a group: created by the first process, checked by each process, and never trusted.
//!
//! All decisions about the file are made under one lock, which the kernel releases when the process
//! ends. A file that no live process uses may be recreated: it knew about calls that nobody waits
//! for, or dates from before a restart of the host, after which nothing shows that it was written
//! completely.

use super::layout::{
    ARENA_AT, BOOT_AT, CHANGE_LOCK, CHECKSUM_AT, CONNECTIONS_AT, EXPORT_WORDS, EXPORTS_AT, Form,
    GENERATION_AT, HEAD_WORDS, MAGIC, MAGIC_AT, MEMBERS_AT, SEED_AT, STATE_AT, TABLE_AT, VERSION, VERSION_AT,
    VERSION_WITH_STATE, WINDOWS_AT, WORD, WORDS_AT, member_lock,
};
use super::mapping::Mapping;
use super::{AddressDirectory, ExportIdentity, GroupError, members};
use crate::config::EXPORTS_MAX;
use drc::CONNECTIONS_WORDS;
use drc::shared::{GENERATION_BITS, Host, MEMBERS_MAX, Owner, TABLE_WORDS};
use rustix::fs::{AtFlags, FallocateFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use siphasher::sip::SipHasher24;
use std::hash::Hasher;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The name of the file in the directory.
const NAME: &str = "replies";
/// How long a start waits while another process holds the change lock, which normally takes
/// milliseconds.
const LOCK_ATTEMPTS_MAX: u32 = 1000;
const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(10);
/// Rounds of [`Host::pause`] that only yield to other threads, and all rounds: about 20 ms.
const SPINS: u32 = 50;
const PAUSES: u32 = 250;
const PAUSE: Duration = Duration::from_micros(100);

/// File systems that other hosts may share, by the numbers of statfs(2): mapped memory and locks
/// may not be shared between hosts there. NFS, 9P, Ceph, SMB (three), Lustre, GFS2, OCFS2, AFS, and
/// FUSE, which may be any of them.
const NETWORK_KINDS: [u32; 11] = [
    0x6969,
    0x0102_1997,
    0x00c3_6400,
    0x517b,
    0xff53_4d42,
    0xfe53_4d42,
    0x0bd0_0bd0,
    0x0116_1970,
    0x7461_636f,
    0x5346_414f,
    0x6573_5546,
];

/// The mapped file and this process as one of its members.
#[derive(Debug)]
pub(crate) struct GroupFile {
    directory: OwnedFd,
    path: PathBuf,
    file: OwnedFd,
    /// Device and inode number of the file.
    identity: (u64, u64),
    mapping: Mapping,
    me: Owner,
    seed: u64,
    /// Held together with the change lock, which belongs to the whole process.
    changing: Mutex<()>,
}

/// The change lock, held.
pub(crate) struct ChangeGuard<'a> {
    file: BorrowedFd<'a>,
    _threads: MutexGuard<'a, ()>,
}

impl Drop for ChangeGuard<'_> {
    fn drop(&mut self) {
        members::unlock(self.file, CHANGE_LOCK);
    }
}

impl GroupFile {
    /// Joins the group in `directory`, or creates it, with a file of this form. The state of
    /// clients of NFS version 4 is empty if no other process is there.
    pub(super) fn join(directory: &Path, exports: &[ExportIdentity], form: Form) -> Result<Self, GroupError> {
        let path = directory.join(NAME);
        let fault = |error: io::Error| GroupError::Io { path: path.clone(), error };
        let directory = open_directory(directory)?;
        let (file, identity, changing) = open_locked(&directory, &path)?;
        let any = member_lock(1);
        let others = members::is_locked(file.as_fd(), any, i64::from(MEMBERS_MAX)).map_err(fault)?;
        let boot = boot().map_err(fault)?;
        if !is_sound(&file, &path, others, boot, form)? {
            format(&file, boot, form).map_err(fault)?;
        } else if !others && form.has_state() {
            empty_state(&file, form).map_err(fault)?;
        }
        let mapping = Mapping::new(file.as_fd(), form.words).map_err(fault)?;
        let words = mapping.words();
        if agree(words, exports, others)? == Agreement::Recreate {
            format(&file, boot, form).map_err(fault)?;
            agree(words, exports, others)?;
        }
        if !others {
            AddressDirectory::open(directory.as_fd())
                .and_then(|of_group| of_group.forget())
                .map_err(fault)?;
        }
        let me = enter(&file, words).map_err(fault)?.ok_or(GroupError::Full)?;
        let seed = at(words, SEED_AT);
        drop(changing);
        Ok(Self { directory, path, file, identity, mapping, me, seed, changing: Mutex::default() })
    }

    pub(super) fn words(&self) -> &[AtomicU64] {
        self.mapping.words()
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the processes of the group listen.
    pub fn addresses(&self) -> Result<AddressDirectory, GroupError> {
        AddressDirectory::open(self.directory.as_fd())
            .map_err(|error| GroupError::Io { path: self.path.with_file_name(AddressDirectory::NAME), error })
    }

    /// The table of calls from foreign clients.
    pub fn table(&self) -> &[AtomicU64] {
        self.words().get(TABLE_AT..TABLE_AT + TABLE_WORDS).unwrap_or_default()
    }

    /// The connections on which those calls arrived.
    pub fn connections(&self) -> &[AtomicU64] {
        self.words().get(CONNECTIONS_AT..CONNECTIONS_AT + CONNECTIONS_WORDS).unwrap_or_default()
    }

    /// A number that only the group knows.
    pub const fn seed(&self) -> u64 {
        self.seed
    }

    /// Takes the change lock. `None` if another process does not release it in time.
    pub fn lock_for_change(&self) -> Option<ChangeGuard<'_>> {
        let threads = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        for round in 0.. {
            match members::try_lock(self.file.as_fd(), CHANGE_LOCK) {
                Ok(true) => return Some(ChangeGuard { file: self.file.as_fd(), _threads: threads }),
                Ok(false) if self.pause(round) => {}
                Ok(false) => return None,
                Err(error) => {
                    tracing::error!(%error, "the group's file cannot be locked");
                    return None;
                }
            }
        }
        None
    }

    /// As [`lock_for_change`](Self::lock_for_change), at a start: another process that starts may
    /// hold the lock while it waits for its disk.
    pub fn lock_for_start(&self) -> Result<ChangeGuard<'_>, GroupError> {
        let lock = (0..LOCK_ATTEMPTS_MAX).find_map(|_| {
            let lock = self.lock_for_change();
            if lock.is_none() {
                std::thread::sleep(LOCK_RETRY_INTERVAL);
            }
            lock
        });
        lock.ok_or_else(|| GroupError::Busy { path: self.path.clone() })
    }

    /// Allocates memory for words of the file, so that writing them cannot fail.
    pub(super) fn provide(&self, from: usize, words: usize) -> io::Result<()> {
        provide(&self.file, from, words)
    }

    /// Agrees with the other processes on one more export.
    pub fn add_export(&self, export: &ExportIdentity) -> Result<(), GroupError> {
        let busy = || GroupError::Busy { path: self.path.clone() };
        let _lock = self.lock_for_change().ok_or_else(busy)?;
        match find_export(self.words(), export)? {
            Some(_) => Ok(()),
            None => write_export(self.words(), export),
        }
    }

    /// The write verifier that an export had when the reply cache began to remember its calls.
    pub fn first_verifier(&self, fsid: u32) -> Option<u64> {
        let words = self.words();
        (0..EXPORTS_MAX)
            .find_map(|slot| read_export(words, slot).filter(|known| known.0 == fsid))
            .map(|known| known.2)
    }

    /// Logs an error if the file was removed or replaced, because then this process shares nothing
    /// with processes that start later.
    pub fn check_path(&self) {
        let there = rustix::fs::statat(&self.directory, NAME, AtFlags::SYMLINK_NOFOLLOW);
        if !there.is_ok_and(|there| identity(&there) == self.identity) {
            tracing::error!(
                "{} was removed or replaced while the group serves: nodes that start share no reply cache with this \
                 one; restart all nodes of the group",
                self.path.display()
            );
        }
    }
}

impl Host for GroupFile {
    fn me(&self) -> Owner {
        self.me
    }

    fn is_alive(&self, owner: Owner) -> bool {
        if owner == self.me {
            return true;
        }
        let is_there =
            at(self.words(), MEMBERS_AT + usize::from(owner.member)) == u64::from(owner.generation);
        // If the kernel cannot say, the process may be alive.
        owner.member != 0
            && is_there
            && members::is_locked(self.file.as_fd(), member_lock(owner.member), 1).unwrap_or(true)
    }

    fn pause(&self, round: u32) -> bool {
        match round {
            ..SPINS => std::thread::yield_now(),
            SPINS..PAUSES => std::thread::sleep(PAUSE),
            PAUSES.. => return false,
        }
        true
    }
}

/// Reads a word; words behind the end are zero.
fn at(words: &[AtomicU64], at: usize) -> u64 {
    words.get(at).map_or(0, |word| word.load(Ordering::SeqCst))
}

fn set(words: &[AtomicU64], at: usize, value: u64) {
    if let Some(word) = words.get(at) {
        word.store(value, Ordering::SeqCst);
    }
}

fn identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

/// Checks that only the user of this process can change the file.
fn check_rights(stat: &Stat, path: &Path) -> Result<(), GroupError> {
    let user = rustix::process::geteuid().as_raw();
    let path = path.to_owned();
    if stat.st_uid != user {
        return Err(GroupError::Owner { path, owner: stat.st_uid, user });
    }
    match stat.st_mode & 0o022 {
        0 => Ok(()),
        _ => Err(GroupError::Mode { path, mode: stat.st_mode & 0o7777 }),
    }
}

fn open_directory(path: &Path) -> Result<OwnedFd, GroupError> {
    let fault = |error: io::Error| GroupError::Io { path: path.to_owned(), error };
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(fault)?;
    let how = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(path, how, Mode::empty()).map_err(|errno| fault(errno.into()))?;
    let stat = rustix::fs::fstat(&directory).map_err(|errno| fault(errno.into()))?;
    check_rights(&stat, path)?;
    let kind = rustix::fs::fstatfs(&directory).map_err(|errno| fault(errno.into()))?.f_type;
    if NETWORK_KINDS.contains(&(kind as u32)) {
        return Err(GroupError::Network { path: path.to_owned() });
    }
    Ok(directory)
}

/// Opens the file, creates it if necessary, and takes the change lock on it. Dropping the returned
/// guard releases the lock.
fn open_locked(
    directory: &OwnedFd,
    path: &Path,
) -> Result<(OwnedFd, (u64, u64), impl Drop + use<>), GroupError> {
    struct Unlock(OwnedFd);
    impl Drop for Unlock {
        fn drop(&mut self) {
            members::unlock(self.0.as_fd(), CHANGE_LOCK);
        }
    }
    let fault = |error: io::Error| GroupError::Io { path: path.to_owned(), error };
    let system = |errno: Errno| fault(errno.into());
    let how = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    for _ in 0..LOCK_ATTEMPTS_MAX {
        let file = rustix::fs::openat(directory, NAME, how, Mode::RUSR | Mode::WUSR).map_err(system)?;
        let stat = rustix::fs::fstat(&file).map_err(system)?;
        check_rights(&stat, path)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(GroupError::Foreign { path: path.to_owned() });
        }
        if !members::try_lock(file.as_fd(), CHANGE_LOCK).map_err(fault)? {
            std::thread::sleep(LOCK_RETRY_INTERVAL);
            continue;
        }
        // A second descriptor of the same open file description, so that the lock ends with either.
        let unlock = Unlock(file.try_clone().map_err(fault)?);
        // The file may have been removed before the lock was taken.
        let there = rustix::fs::statat(directory, NAME, AtFlags::SYMLINK_NOFOLLOW);
        if there.is_ok_and(|there| identity(&there) == identity(&stat)) {
            return Ok((file, identity(&stat), unlock));
        }
    }
    Err(GroupError::Busy { path: path.to_owned() })
}

/// Identifies this boot of this host.
fn boot() -> io::Result<[u64; 2]> {
    let id = std::fs::read("/proc/sys/kernel/random/boot_id")?;
    Ok([0, 1].map(|half| {
        let mut hasher = SipHasher24::new_with_keys(half, 0);
        hasher.write(&id);
        hasher.finish()
    }))
}

pub(super) fn checksum(words: &[u64]) -> u64 {
    let mut hasher = SipHasher24::new();
    words.iter().for_each(|word| hasher.write_u64(*word));
    hasher.finish()
}

/// Whether the file can be used as it is. Returns false if the file must be recreated and no
/// process uses it.
fn is_sound(
    file: &OwnedFd,
    path: &Path,
    others: bool,
    boot: [u64; 2],
    form: Form,
) -> Result<bool, GroupError> {
    let path = || path.to_owned();
    let fault = |errno: Errno| GroupError::Io { path: path(), error: errno.into() };
    let damaged = |what| Err(GroupError::Damaged { path: path(), what });
    let size = u64::try_from(rustix::fs::fstat(file).map_err(fault)?.st_size).unwrap_or(0);
    let mut bytes = [0; HEAD_WORDS * WORD];
    rustix::io::pread(file, &mut bytes, 0).map_err(fault)?;
    let mut head = [0; HEAD_WORDS];
    for (word, chunk) in head.iter_mut().zip(bytes.chunks_exact(WORD)) {
        *word = u64::from_ne_bytes(chunk.try_into().unwrap_or_default());
    }
    match head[MAGIC_AT] {
        // The process that began to create the file ended before it finished.
        0 => {
            return if others { damaged("its beginning is gone") } else { Ok(false) };
        }
        MAGIC => {}
        _ => return Err(GroupError::Foreign { path: path() }),
    }
    if head[CHECKSUM_AT] != checksum(&head[..CHECKSUM_AT]) {
        return damaged("its beginning does not agree with itself");
    }
    let theirs = head[VERSION_AT];
    if theirs != form.version {
        return match theirs {
            _ if !others => Ok(false),
            VERSION | VERSION_WITH_STATE => Err(GroupError::Versions { path: path() }),
            _ => Err(GroupError::Version { path: path(), theirs, ours: form.version }),
        };
    }
    if head[BOOT_AT..][..2] != boot {
        return if others { Err(GroupError::Host { path: path() }) } else { Ok(false) };
    }
    // A process may have ended while it emptied the state.
    let is_cut = form.has_state() && !others && size == (STATE_AT * WORD) as u64;
    if head[WORDS_AT] != form.words as u64 {
        // The state has other bounds where version 4 is served.
        return if others { Err(GroupError::Versions { path: path() }) } else { Ok(false) };
    }
    if size != (form.words * WORD) as u64 && !is_cut {
        return damaged("it has not the length that it should have");
    }
    Ok(true)
}

/// Empties the state of clients of NFS version 4, which no process uses.
fn empty_state(file: &OwnedFd, form: Form) -> io::Result<()> {
    rustix::fs::ftruncate(file, (STATE_AT * WORD) as u64)?;
    rustix::fs::ftruncate(file, (form.words * WORD) as u64)?;
    provide(file, STATE_AT, ARENA_AT - STATE_AT)
}

/// Formats the file as an empty cache.
fn format(file: &OwnedFd, boot: [u64; 2], form: Form) -> io::Result<()> {
    let mut seed = [0; WORD];
    getrandom::fill(&mut seed).map_err(io::Error::other)?;
    let mut head = [0, form.version, form.words as u64, boot[0], boot[1], u64::from_ne_bytes(seed), 0];
    rustix::fs::ftruncate(file, 0)?;
    rustix::fs::ftruncate(file, (form.words * WORD) as u64)?;
    provide(file, 0, WINDOWS_AT)?;
    if form.has_state() {
        provide(file, STATE_AT, ARENA_AT - STATE_AT)?;
    }
    head[MAGIC_AT] = MAGIC;
    head[CHECKSUM_AT] = checksum(&head[..CHECKSUM_AT]);
    let bytes = head.map(u64::to_ne_bytes).concat();
    // The magic number is written last: a file without it counts as not created.
    rustix::io::pwrite(file, bytes.get(WORD..).unwrap_or_default(), WORD as u64)?;
    rustix::io::pwrite(file, bytes.get(..WORD).unwrap_or_default(), 0)?;
    Ok(())
}

fn provide(file: &OwnedFd, from: usize, words: usize) -> io::Result<()> {
    let (at, len) = ((from * WORD) as u64, (words * WORD) as u64);
    match rustix::fs::fallocate(file, FallocateFlags::empty(), at, len) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
        other => return Ok(other?),
    }
    // A file system without fallocate: zeros are written. They only overwrite bytes that have no
    // meaning yet.
    let zeros = [0; 1 << 16];
    let mut done = 0;
    while done < len {
        let piece =
            zeros.get(..usize::try_from(len - done).map_or(zeros.len(), |left| left.min(zeros.len())));
        done += rustix::io::pwrite(file, piece.unwrap_or(&zeros), at + done)? as u64;
    }
    Ok(())
}

/// Takes an entry among the members.
fn enter(file: &OwnedFd, words: &[AtomicU64]) -> io::Result<Option<Owner>> {
    for member in 1..=MEMBERS_MAX {
        if !members::try_lock(file.as_fd(), member_lock(member))? {
            continue;
        }
        // Generations start at 1, so that zeroed memory belongs to no member.
        let last = at(words, GENERATION_AT);
        let generation = (last % ((1 << GENERATION_BITS) - 1) + 1) as u32;
        set(words, GENERATION_AT, u64::from(generation));
        set(words, MEMBERS_AT + usize::from(member), u64::from(generation));
        return Ok(Some(Owner { member, generation }));
    }
    Ok(None)
}

// The exports.

#[derive(Debug, PartialEq, Eq)]
enum Agreement {
    Agreed,
    /// The cache is for other exports, and no process serves them any more.
    Recreate,
}

const IS_EXPORT: u64 = 1 << 32;

/// Reads an export entry of the file: fsid, fingerprint, first verifier.
fn read_export(words: &[AtomicU64], slot: usize) -> Option<(u32, u64, u64)> {
    let [tagged_fsid, fingerprint, verifier, stored] =
        [0, 1, 2, 3].map(|word| at(words, EXPORTS_AT + slot * EXPORT_WORDS + word));
    let fsid = u32::try_from(tagged_fsid ^ IS_EXPORT).ok()?;
    (stored == checksum(&[tagged_fsid, fingerprint, verifier])).then_some((fsid, fingerprint, verifier))
}

fn write_export(words: &[AtomicU64], export: &ExportIdentity) -> Result<(), GroupError> {
    let full = || GroupError::Exports { what: format!("the group has {EXPORTS_MAX} exports already") };
    let slot = (0..EXPORTS_MAX).find(|slot| read_export(words, *slot).is_none()).ok_or_else(full)?;
    let mut values = [u64::from(export.fsid) | IS_EXPORT, export.fingerprint, export.verifier, 0];
    values[3] = checksum(&values[..3]);
    for (word, value) in values.into_iter().enumerate() {
        set(words, EXPORTS_AT + slot * EXPORT_WORDS + word, value);
    }
    Ok(())
}

/// The entry of an export in the file, if there is one. A different export with the same fsid is an
/// error.
fn find_export(words: &[AtomicU64], export: &ExportIdentity) -> Result<Option<usize>, GroupError> {
    for slot in 0..EXPORTS_MAX {
        match read_export(words, slot) {
            Some((fsid, fingerprint, _)) if fsid == export.fsid => {
                if fingerprint == export.fingerprint {
                    return Ok(Some(slot));
                }
                let (path, fsid) = (&export.path, export.fsid);
                let what = format!(
                    "the nodes that run serve another export with fsid {fsid} than {path}, or keep its `state` elsewhere"
                );
                return Err(GroupError::Exports { what });
            }
            _ => {}
        }
    }
    Ok(None)
}

/// Checks that this process serves what the others do. Exports may be added node by node, so one
/// process may have more than the others for a while.
fn agree(words: &[AtomicU64], exports: &[ExportIdentity], others: bool) -> Result<Agreement, GroupError> {
    let count = (0..EXPORTS_MAX).filter(|slot| read_export(words, *slot).is_some()).count();
    let mut new = Vec::new();
    for export in exports {
        match find_export(words, export) {
            Ok(Some(_)) => {}
            Ok(None) => new.push(export),
            Err(_) if !others => return Ok(Agreement::Recreate),
            Err(error) => return Err(error),
        }
    }
    let missing = count > exports.len() - new.len();
    if missing && !others {
        return Ok(Agreement::Recreate);
    }
    match (missing, new.first()) {
        (true, Some(export)) => {
            let what = format!("the nodes that run serve other exports: {} is not among them", export.path);
            return Err(GroupError::Exports { what });
        }
        (true, None) => tracing::warn!("the group serves exports that this node does not have"),
        (false, _) => {}
    }
    new.into_iter().try_for_each(|export| write_export(words, export))?;
    Ok(Agreement::Agreed)
}
