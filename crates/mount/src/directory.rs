//! Reading directories: READDIRPLUS, whose answers fill the kernel's caches of names and
//! attributes, or READDIR.
//!
//! The kernel continues at the cookie of the last name that it took. A page of the server's stays
//! with the handle until it is used up, so a page is asked for once, however small the kernel's
//! portions. A listing whose cookie the server refuses begins anew and leaves out what the kernel
//! has ([`Listing`]).

use crate::attributes::kind;
use crate::caller::As;
use crate::core::{Core, HandleUse};
use crate::inode::Inode;
use crate::kernel::{Entry, Names};
use crate::listing::Listing;
use client::options::DirectoryReads;
use fs::{Attributes, DirectoryEntry, DirectoryPage, DirectoryPosition, FileHandle, Verifier};
use fuser::{Errno, FileAttr, FileType, INodeNo};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, UNIX_EPOCH};

/// Where `.` ends, and `..`: numbers that a server's cookies are not likely to be. Cookie 0 is the
/// beginning of the directory, which is `.`, so the beginning of what the server lists needs
/// another one.
const AFTER_DOT: u64 = 0x7fff_ffff_ffff_fff1;
const AFTER_DOT_DOT: u64 = 0x7fff_ffff_ffff_fff2;

/// Pages one after the other without a name to tell. Names that were removed meanwhile are none,
/// but so many pages of them are a server's that never ends.
const PAGES_IN_VAIN_MAX: usize = 1000;

/// What a page says of its names is believed for so long at least, however short attributes are
/// believed: it may have been on its way so long.
const PAGE_AGE_MIN: Duration = Duration::from_millis(100);

/// A directory that is being read.
#[derive(Debug)]
pub(crate) struct OpenDirectory {
    pub inode: Arc<Inode>,
    pub caller: As,
    /// The page that was read last.
    page: Mutex<Option<Kept>>,
    listing: Mutex<Listing>,
}

impl HandleUse for OpenDirectory {
    fn is_used(&self) {}
}

/// A page of the server's.
#[derive(Debug, Clone)]
struct Kept {
    /// The cookie that it follows.
    follows: u64,
    page: Arc<DirectoryPage>,
    asked_at: Instant,
}

/// Names of a page, from one on.
#[derive(Debug)]
struct Rest {
    page: Arc<DirectoryPage>,
    from: usize,
    asked_at: Instant,
}

impl Rest {
    fn names(&self) -> &[DirectoryEntry] {
        self.page.entries.get(self.from..).unwrap_or_default()
    }
}

impl OpenDirectory {
    pub(crate) fn new(inode: Arc<Inode>, caller: As) -> Self {
        Self { inode, caller, page: Mutex::default(), listing: Mutex::default() }
    }

    fn listing(&self) -> MutexGuard<'_, Listing> {
        self.listing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the page at hand has behind a cookie.
    fn rest_of_page(&self, cookie: u64) -> Option<Rest> {
        let kept = self.kept();
        let Kept { follows, page, asked_at } = kept.as_ref()?;
        let from = if *follows == cookie {
            0
        } else {
            page.entries.iter().position(|name| name.cookie == cookie)? + 1
        };
        (from < page.entries.len() || page.eof).then(|| Rest {
            page: Arc::clone(page),
            from,
            asked_at: *asked_at,
        })
    }

    fn kept(&self) -> MutexGuard<'_, Option<Kept>> {
        self.page.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The program begins anew, and wants what is there now.
    fn begins(&self) {
        *self.kept() = None;
    }

    fn verifier(&self) -> Verifier {
        self.kept().as_ref().map_or([0; 8], |kept| kept.page.verifier)
    }
}

impl Core {
    /// Names behind a cookie of the server's; none at the end.
    async fn names(&self, directory: &OpenDirectory, cookie: u64) -> Result<Rest, Errno> {
        if let Some(rest) = directory.rest_of_page(cookie) {
            return Ok(rest);
        }
        if directory.listing().is_endless() {
            return Err(endless());
        }
        let start = DirectoryPosition::default();
        let mut from =
            if cookie == 0 { start } else { DirectoryPosition { cookie, verifier: directory.verifier() } };
        // How many names that the program has may still come again.
        let mut again = usize::MAX;
        let (page, asked_at) = loop {
            let asked_at = Instant::now();
            let Some(mut page) = self.page(directory, from).await? else {
                let anew = directory.listing().begin_anew().filter(|_| from.cookie != 0);
                let Some(left_out) = anew else {
                    tracing::warn!("the server refuses the cookies of its own directory");
                    return Err(Errno::EIO);
                };
                // Some may come twice: removed and made again while they are listed.
                (from, again) = (start, left_out.saturating_mul(2));
                continue;
            };
            let Some(last) = page.entries.last().map(|name| name.cookie) else {
                if page.eof {
                    break (page, asked_at);
                }
                tracing::warn!("the server gave a part of a directory without names that is not the last");
                return Err(Errno::EIO);
            };
            let all = page.entries.len();
            directory.listing().retain_new(&mut page.entries);
            if !page.entries.is_empty() || page.eof {
                break (page, asked_at);
            }
            again = again.checked_sub(all).ok_or(Errno::EIO)?;
            from = DirectoryPosition { cookie: last, verifier: page.verifier };
        };
        let page = Arc::new(page);
        *directory.kept() = Some(Kept { follows: cookie, page: Arc::clone(&page), asked_at });
        Ok(Rest { page, from: 0, asked_at })
    }

    /// A page of the server's; none where it refuses the cookie.
    async fn page(
        &self,
        directory: &OpenDirectory,
        from: DirectoryPosition,
    ) -> Result<Option<DirectoryPage>, Errno> {
        let (caller, handle) = (&directory.caller, directory.inode.handle);
        if self.policy.directory_reads == DirectoryReads::NeverPlus {
            return self.call_readdir(caller, handle, from, false).await;
        }
        match self.call_readdir(caller, handle, from, true).await {
            Err(error) if error == Errno::EOPNOTSUPP => self.call_readdir(caller, handle, from, false).await,
            page => page,
        }
    }

    /// readdir(3) without attributes.
    pub(crate) async fn list(
        &self,
        directory: &OpenDirectory,
        from: u64,
        told: &mut Names,
    ) -> Result<(), Errno> {
        let own = directory.inode.number;
        if from == 0 {
            directory.begins();
        }
        let mut from = from;
        if from == 0 && !told.add(own, AFTER_DOT, Some(FileType::Directory), b".") {
            return Ok(());
        }
        if (from == 0 || from == AFTER_DOT) && !told.add(own, AFTER_DOT_DOT, Some(FileType::Directory), b"..")
        {
            return Ok(());
        }
        if matches!(from, 0 | AFTER_DOT | AFTER_DOT_DOT) {
            from = 0;
        }
        directory.listing().goes_on_at(from);
        // One portion may take several pages; the end is an answer without names.
        for _ in 0..PAGES_IN_VAIN_MAX {
            let rest = self.names(directory, from).await?;
            let Some(last) = rest.names().last() else { return Ok(()) };
            from = behind(from, last)?;
            let mut any = false;
            for name in rest.names().iter().filter(|name| is_listed(name)) {
                let (number, kind) = match &name.attributes {
                    Some(known) => (self.inodes.number(known.fsid, known.fileid), Some(kind(known.kind))),
                    None => (self.inodes.number(directory.inode.fsid, name.fileid), None),
                };
                if !told.add(number, name.cookie, kind, &name.name) {
                    return Ok(());
                }
                directory.listing().tells(name.cookie, &name.name);
                any = true;
            }
            if any {
                return Ok(());
            }
        }
        Err(endless())
    }

    /// readdir(3) with attributes: each name that is told counts as looked up.
    pub(crate) async fn list_plus(
        &self,
        directory: &OpenDirectory,
        from: u64,
        told: &mut Names,
    ) -> Result<(), Errno> {
        // The kernel takes neither for a lookup.
        let dot = Entry {
            ino: directory.inode.ino,
            attributes: self.attributes_of_dot(directory),
            name_ttl: Duration::ZERO,
            attributes_ttl: Duration::ZERO,
        };
        if from == 0 {
            directory.begins();
        }
        let mut from = from;
        if from == 0 && !told.add_plus(&dot, AFTER_DOT, b".") {
            return Ok(());
        }
        if (from == 0 || from == AFTER_DOT) && !told.add_plus(&dot, AFTER_DOT_DOT, b"..") {
            return Ok(());
        }
        if matches!(from, 0 | AFTER_DOT | AFTER_DOT_DOT) {
            from = 0;
        }
        directory.listing().goes_on_at(from);
        for _ in 0..PAGES_IN_VAIN_MAX {
            let rest = self.names(directory, from).await?;
            let Some(last) = rest.names().last() else { return Ok(()) };
            from = behind(from, last)?;
            let mut any = false;
            for name in rest.names().iter().filter(|name| is_listed(name)) {
                let Some(entry) = self.listed(directory, name, rest.asked_at).await? else { continue };
                if !told.add_plus(&entry, name.cookie, &name.name) {
                    // It did not fit, so the kernel does not know of it.
                    self.inodes.forget(entry.ino, 1);
                    return Ok(());
                }
                directory.listing().tells(name.cookie, &name.name);
                any = true;
            }
            if any {
                return Ok(());
            }
        }
        Err(endless())
    }

    /// What the kernel is told of a name in a page that was asked for then; nothing where it was
    /// removed meanwhile. A server need not send attributes and handles along: then each name is
    /// looked up.
    async fn listed(
        &self,
        directory: &OpenDirectory,
        name: &DirectoryEntry,
        asked_at: Instant,
    ) -> Result<Option<Entry>, Errno> {
        let parent = &directory.inode;
        if let (Some(handle), Some(attributes)) = (name.handle, name.attributes) {
            if self.is_old(parent, handle, &attributes, asked_at) {
                return Ok(Some(self.name_alone(&attributes)));
            }
            return Ok(Some(self.entry(parent, handle, &attributes).0));
        }
        match self.call_lookup(&directory.caller, parent.handle, &name.name).await {
            Ok((handle, attributes)) => Ok(Some(self.entry(parent, handle, &attributes).0)),
            Err(error) if error == Errno::ENOENT => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether what a page says may be otherwise by now. A page is used for as long as the program
    /// takes to read it: told as new, it would give back to a name what was removed here, and to a
    /// file a size from before it was written.
    fn is_old(&self, parent: &Inode, handle: FileHandle, attributes: &Attributes, asked_at: Instant) -> bool {
        let age_max = self.policy.bounds(false).0.max(PAGE_AGE_MIN);
        // One lock at a time: others look for objects first, and then at one of them.
        let has_changed = |inode: &Inode| inode.lock().has_changed_since(asked_at);
        if asked_at.elapsed() > age_max || has_changed(parent) {
            return true;
        }
        let known = self.inodes.peek(handle, attributes);
        known.is_some_and(|inode| has_changed(&inode))
    }

    /// A name, its number and its kind, of which the kernel remembers nothing: it asks when it
    /// wants to know.
    fn name_alone(&self, attributes: &Attributes) -> Entry {
        Entry {
            ino: 0,
            attributes: self.to_fuse(attributes),
            name_ttl: Duration::ZERO,
            attributes_ttl: Duration::ZERO,
        }
    }

    fn attributes_of_dot(&self, directory: &OpenDirectory) -> FileAttr {
        let inode = &directory.inode;
        match inode.known() {
            Some(known) => self.to_fuse(&known.attributes),
            None => FileAttr { ino: INodeNo(inode.number), ..self.dummy() },
        }
    }

    /// A directory of which nothing is known.
    pub(crate) fn dummy(&self) -> FileAttr {
        FileAttr {
            ino: INodeNo(0),
            size: 0,
            blocks: 0,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: FileType::Directory,
            perm: 0o755,
            nlink: 2,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }
}

/// The cookie that a listing goes on at; an error where it is where it was.
fn behind(from: u64, last: &DirectoryEntry) -> Result<u64, Errno> {
    if last.cookie == from { Err(endless()) } else { Ok(last.cookie) }
}

fn endless() -> Errno {
    tracing::warn!("the server's listing of a directory gets nowhere");
    Errno::EIO
}

fn is_listed(name: &DirectoryEntry) -> bool {
    name.name != b"." && name.name != b".."
}
