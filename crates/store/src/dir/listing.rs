//! READDIR: the names in a directory, in the file system's own order, with its offsets as cookies.
//!
//! ext4, xfs, btrfs, and tmpfs since Linux 6.6 have offsets that stay valid while other names come
//! and go, and after the process has ended. Other file systems count positions, so that a removal
//! shifts the following names. For those, this module numbers the names itself as long as the
//! directory is open, and detects cookies of an earlier numbering. Such a listing goes from the
//! newest name to the oldest, so that it never reaches a name that was created after it began:
//! otherwise a program that renames every listed name would never finish.

use super::Shared;
use super::fault::{OrStatus, status};
use super::find::{is_layered, magic};
use super::node::{Node, READ, found};
use crate::interface::{Caller, DirectoryEnd, Entry, Found, ObjectId, Result, Status};
use rustix::fs::{AtFlags, RawDir, SeekFrom};
use rustix::io::Errno;
use std::collections::{BTreeMap, HashMap};
use std::ffi::{CStr, CString};
use std::hash::{BuildHasher, RandomState};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::PoisonError;

/// The buffer for one request to the kernel.
const BUFFER_BYTES: usize = 32 << 10;
/// The bits of a cookie that hold our number; the rest identify the numbering.
const NUMBER_BITS: u32 = 32;
/// Listed first, with these numbers; the numbers of other names are higher.
const DOTS: [(u64, &CStr); 2] = [(1, c"."), (2, c"..")];
const FIRST_NUMBER: u64 = 3;

/// Whether the offsets of a file system do not stay valid.
pub(super) fn must_number(kind: rustix::fs::FsWord) -> bool {
    const TMPFS: u32 = 0x0102_1994;
    const RAMFS: u32 = 0x8584_58f6;
    let release = rustix::system::uname();
    let mut numbers = release.release().to_str().unwrap_or_default().split(['.', '-']);
    let mut next = || numbers.next().and_then(|number| number.parse::<u32>().ok()).unwrap_or(0);
    let version = (next(), next());
    match magic(kind) {
        _ if is_layered(kind) => true,
        TMPFS => version < (6, 6),
        RAMFS => true,
        _ => false,
    }
}

/// The numbered names of a directory, on file systems where names are numbered.
pub(super) struct CookieTable {
    tag: u64,
    next: u64,
    by_name: HashMap<CString, u64>,
    by_number: BTreeMap<u64, CString>,
}

impl Shared {
    pub fn list(
        &self,
        caller: Caller<'_>,
        directory: ObjectId,
        cookie: u64,
        visit: &mut dyn FnMut(Entry<'_>) -> bool,
    ) -> Result<DirectoryEnd> {
        let node = self.get(directory)?;
        node.require_directory()?;
        let stat = node.stat()?;
        if node.rights(&self.callers, &self.identity, caller, &stat)? & READ == 0 {
            return Err(Status::Access);
        }
        let own = found(directory, &stat);
        let opened = node.to_read()?;
        let fd = opened.as_fd();
        let mut buffer: Vec<u8> = Vec::with_capacity(BUFFER_BYTES);
        // Also protects the position of the descriptor, which all listings of the directory share.
        let mut cookies = node.cookies.lock().unwrap_or_else(PoisonError::into_inner);
        let mut show = |name: &CStr, cookie: u64| {
            // A name that was removed meanwhile, or a mount point, is not listed.
            match self.found_of(&node, fd, name, &own) {
                Some(found) => visit(Entry { name: name.to_bytes(), cookie, found: &found }),
                None => true,
            }
        };
        let eof = if self.number_names {
            let cookies = cookies.get_or_insert_with(CookieTable::new);
            if cookie == 0 {
                cookies.refresh(fd, buffer.spare_capacity_mut())?;
            } else if !cookies.was_assigned(cookie) {
                return Err(Status::BadCookie);
            }
            cookies.list(cookie, &mut show)
        } else {
            list_by_offset(fd, buffer.spare_capacity_mut(), cookie, &mut show)?
        };
        Ok(DirectoryEnd { eof, attributes: own.attributes })
    }

    /// The object of a name in a directory, which is not opened.
    fn found_of(&self, parent: &Node, fd: BorrowedFd<'_>, name: &CStr, own: &Found) -> Option<Found> {
        let root = parent.object == self.root_object;
        if name == c"." || (name == c".." && root) {
            return Some(*own);
        }
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        let stat = self.changes.look(|| rustix::fs::statat(fd, name, flags)).ok()?;
        let object = self.naming.name(fd.as_fd(), name, &stat).ok()?;
        if name != c".." {
            self.note(&object, parent, name.to_bytes());
        }
        Some(found(object, &stat))
    }
}

/// Lists from an offset of the file system. Returns whether the directory ended.
fn list_by_offset(
    fd: BorrowedFd<'_>,
    buffer: &mut [MaybeUninit<u8>],
    cookie: u64,
    show: &mut dyn FnMut(&CStr, u64) -> bool,
) -> Result<bool> {
    // The kernel treats offsets as signed.
    i64::try_from(cookie).map_err(|_| Status::BadCookie)?;
    rustix::fs::seek(fd, SeekFrom::Start(cookie)).map_err(|errno| match errno {
        Errno::INVAL => Status::BadCookie,
        other => status(other),
    })?;
    let mut entries = RawDir::new(fd, buffer);
    while let Some(entry) = entries.next() {
        let entry = entry.or_status()?;
        if !show(entry.file_name(), entry.next_entry_cookie()) {
            return Ok(false);
        }
    }
    Ok(true)
}

impl CookieTable {
    fn new() -> Self {
        Self {
            // 31 bits: cookies stay positive for clients that treat them as signed.
            tag: RandomState::new().hash_one(0) >> 33 << NUMBER_BITS,
            next: FIRST_NUMBER,
            by_name: HashMap::new(),
            by_number: BTreeMap::new(),
        }
    }

    fn was_assigned(&self, cookie: u64) -> bool {
        let number = cookie & ((1 << NUMBER_BITS) - 1);
        cookie - number == self.tag && (1..self.next).contains(&number)
    }

    /// Numbers new names, and forgets names that are gone.
    fn refresh(&mut self, fd: BorrowedFd<'_>, buffer: &mut [MaybeUninit<u8>]) -> Result<()> {
        let mut seen = HashMap::new();
        list_by_offset(fd, buffer, 0, &mut |name, _| {
            if DOTS.iter().any(|(_, dots)| *dots == name) {
                return true;
            }
            let number = self.by_name.get(name).copied().unwrap_or_else(|| {
                self.next += 1;
                self.next - 1
            });
            seen.insert(name.to_owned(), number);
            true
        })?;
        self.by_number = seen.iter().map(|(name, number)| (*number, name.clone())).collect();
        self.by_name = seen;
        if self.next >> NUMBER_BITS == 0 { Ok(()) } else { Err(Status::Io) }
    }

    fn list(&self, cookie: u64, show: &mut dyn FnMut(&CStr, u64) -> bool) -> bool {
        let after = cookie & ((1 << NUMBER_BITS) - 1);
        let dots = DOTS.into_iter().filter(|(number, _)| *number > after);
        let end = if after < FIRST_NUMBER { self.next } else { after };
        let names = self.by_number.range(..end).rev().map(|(number, name)| (*number, name.as_c_str()));
        // After a name there are no dots, as its number is higher than theirs.
        dots.chain(names).all(|(number, name)| show(name, self.tag | number))
    }
}
