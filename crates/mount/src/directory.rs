//! Reading directories with READDIRPLUS, whose replies fill the kernel's caches of names and
//! attributes, or with READDIR.
//!
//! The kernel continues at the cookie of the last name that it took. A page from the server stays
//! with the handle until it is used up, so each page is requested once, however small the kernel's
//! portions. When the server refuses the cookie of a listing, the listing starts again and leaves
//! out the names that the kernel has ([`Listing`]).

use crate::attributes::kind;
use crate::caller::Credential;
use crate::core::{Core, HandleUse};
use crate::inode::Inode;
use crate::kernel::{DirentBuffer, Entry};
use crate::listing::Listing;
use client::options::DirectoryReads;
use fs::{Attributes, DirectoryEntry, DirectoryPage, DirectoryPosition, FileHandle, Verifier};
use fuser::{Errno, FileAttr, FileType, INodeNo};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, UNIX_EPOCH};

/// The cookies after `.` and `..`: numbers that a server's cookies are unlikely to be. Cookie 0 is
/// the beginning of the directory, which is `.`, so the beginning of the server's listing needs a
/// cookie of its own.
const AFTER_DOT: u64 = 0x7fff_ffff_ffff_fff1;
const AFTER_DOT_DOT: u64 = 0x7fff_ffff_ffff_fff2;

/// The most consecutive pages without a name to report. Pages of names that were removed meanwhile
/// have none, but a server that sends this many never ends its listing.
const EMPTY_PAGES_MAX: usize = 1000;

/// The information in a page is valid for at least this long, however short the attribute timeout:
/// the page itself may have taken so long to arrive.
const PAGE_AGE_MIN: Duration = Duration::from_millis(100);

/// A directory that is being read.
#[derive(Debug)]
pub(crate) struct OpenDirectory {
    pub inode: Arc<Inode>,
    pub caller: Credential,
    /// The page that was read last.
    page: Mutex<Option<CachedPage>>,
    listing: Mutex<Listing>,
}

impl HandleUse for OpenDirectory {
    fn on_use(&self) {}
}

/// A page from the server.
#[derive(Debug, Clone)]
struct CachedPage {
    /// The cookie after which the page begins.
    after_cookie: u64,
    page: Arc<DirectoryPage>,
    requested_at: Instant,
}

/// The names of a page from an index on.
#[derive(Debug)]
struct RemainingNames {
    page: Arc<DirectoryPage>,
    from: usize,
    requested_at: Instant,
}

impl RemainingNames {
    fn names(&self) -> &[DirectoryEntry] {
        self.page.entries.get(self.from..).unwrap_or_default()
    }
}

impl OpenDirectory {
    pub(crate) fn new(inode: Arc<Inode>, caller: Credential) -> Self {
        Self { inode, caller, page: Mutex::default(), listing: Mutex::default() }
    }

    fn listing(&self) -> MutexGuard<'_, Listing> {
        self.listing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the rest of the cached page after a cookie.
    fn remaining_in_page(&self, cookie: u64) -> Option<RemainingNames> {
        let cached_page = self.cached_page();
        let CachedPage { after_cookie, page, requested_at } = cached_page.as_ref()?;
        let from = if *after_cookie == cookie {
            0
        } else {
            page.entries.iter().position(|name| name.cookie == cookie)? + 1
        };
        (from < page.entries.len() || page.eof).then(|| RemainingNames {
            page: Arc::clone(page),
            from,
            requested_at: *requested_at,
        })
    }

    fn cached_page(&self) -> MutexGuard<'_, Option<CachedPage>> {
        self.page.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The program starts again at the beginning, and wants the current content.
    fn rewind(&self) {
        *self.cached_page() = None;
    }

    fn verifier(&self) -> Verifier {
        self.cached_page().as_ref().map_or([0; 8], |cached_page| cached_page.page.verifier)
    }
}

impl Core {
    /// Returns the names after a server's cookie; empty at the end.
    async fn names(&self, directory: &OpenDirectory, cookie: u64) -> Result<RemainingNames, Errno> {
        if let Some(remaining) = directory.remaining_in_page(cookie) {
            return Ok(remaining);
        }
        if directory.listing().is_endless() {
            return Err(endless_listing());
        }
        let start = DirectoryPosition::default();
        let mut from =
            if cookie == 0 { start } else { DirectoryPosition { cookie, verifier: directory.verifier() } };
        // The most known names that may still be repeated.
        let mut repeats_left = usize::MAX;
        let (page, requested_at) = loop {
            let requested_at = Instant::now();
            let Some(mut page) = self.page(directory, from).await? else {
                let may_restart = directory.listing().restart().filter(|_| from.cookie != 0);
                let Some(skipped) = may_restart else {
                    tracing::warn!("the server refuses the cookies of its own listing");
                    return Err(Errno::EIO);
                };
                // Some names may appear twice: removed and created again during the listing.
                (from, repeats_left) = (start, skipped.saturating_mul(2));
                continue;
            };
            let Some(last) = page.entries.last().map(|name| name.cookie) else {
                if page.eof {
                    break (page, requested_at);
                }
                tracing::warn!("the server has sent an empty page of a directory before the last page");
                return Err(Errno::EIO);
            };
            let all = page.entries.len();
            directory.listing().retain_new(&mut page.entries);
            if !page.entries.is_empty() || page.eof {
                break (page, requested_at);
            }
            repeats_left = repeats_left.checked_sub(all).ok_or(Errno::EIO)?;
            from = DirectoryPosition { cookie: last, verifier: page.verifier };
        };
        let page = Arc::new(page);
        *directory.cached_page() =
            Some(CachedPage { after_cookie: cookie, page: Arc::clone(&page), requested_at });
        Ok(RemainingNames { page, from: 0, requested_at })
    }

    /// Reads a page from the server. Returns `None` if the server refuses the cookie.
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
        reply: &mut DirentBuffer,
    ) -> Result<(), Errno> {
        let own = directory.inode.number;
        if from == 0 {
            directory.rewind();
        }
        let mut from = from;
        if from == 0 && !reply.add(own, AFTER_DOT, Some(FileType::Directory), b".") {
            return Ok(());
        }
        if (from == 0 || from == AFTER_DOT)
            && !reply.add(own, AFTER_DOT_DOT, Some(FileType::Directory), b"..")
        {
            return Ok(());
        }
        if matches!(from, 0 | AFTER_DOT | AFTER_DOT_DOT) {
            from = 0;
        }
        directory.listing().seek(from);
        // One portion may take several pages; a reply without names is the end.
        for _ in 0..EMPTY_PAGES_MAX {
            let remaining = self.names(directory, from).await?;
            let Some(last) = remaining.names().last() else { return Ok(()) };
            from = next_cookie(from, last)?;
            let mut any = false;
            for name in remaining.names().iter().filter(|name| is_listed(name)) {
                let (number, kind) = match &name.attributes {
                    Some(known) => (self.inodes.number(known.fsid, known.fileid), Some(kind(known.kind))),
                    None => (self.inodes.number(directory.inode.fsid, name.fileid), None),
                };
                if !reply.add(number, name.cookie, kind, &name.name) {
                    return Ok(());
                }
                directory.listing().record(name.cookie, &name.name);
                any = true;
            }
            if any {
                return Ok(());
            }
        }
        Err(endless_listing())
    }

    /// readdir(3) with attributes: each name in the reply counts as looked up.
    pub(crate) async fn list_plus(
        &self,
        directory: &OpenDirectory,
        from: u64,
        reply: &mut DirentBuffer,
    ) -> Result<(), Errno> {
        // The kernel counts neither `.` nor `..` as a lookup.
        let dot = Entry {
            ino: directory.inode.ino,
            attributes: self.attributes_of_dot(directory),
            name_ttl: Duration::ZERO,
            attributes_ttl: Duration::ZERO,
        };
        if from == 0 {
            directory.rewind();
        }
        let mut from = from;
        if from == 0 && !reply.add_plus(&dot, AFTER_DOT, b".") {
            return Ok(());
        }
        if (from == 0 || from == AFTER_DOT) && !reply.add_plus(&dot, AFTER_DOT_DOT, b"..") {
            return Ok(());
        }
        if matches!(from, 0 | AFTER_DOT | AFTER_DOT_DOT) {
            from = 0;
        }
        directory.listing().seek(from);
        for _ in 0..EMPTY_PAGES_MAX {
            let remaining = self.names(directory, from).await?;
            let Some(last) = remaining.names().last() else { return Ok(()) };
            from = next_cookie(from, last)?;
            let mut any = false;
            for name in remaining.names().iter().filter(|name| is_listed(name)) {
                let Some(entry) = self.entry_for(directory, name, remaining.requested_at).await? else {
                    continue;
                };
                if !reply.add_plus(&entry, name.cookie, &name.name) {
                    // The entry did not fit, so the kernel does not know the object.
                    self.inodes.forget(entry.ino, 1);
                    return Ok(());
                }
                directory.listing().record(name.cookie, &name.name);
                any = true;
            }
            if any {
                return Ok(());
            }
        }
        Err(endless_listing())
    }

    /// The kernel's entry for a name in a page that was requested at that time; `None` if the name
    /// was removed meanwhile. A server need not send attributes and handles with the names; each
    /// name without them is looked up.
    async fn entry_for(
        &self,
        directory: &OpenDirectory,
        name: &DirectoryEntry,
        requested_at: Instant,
    ) -> Result<Option<Entry>, Errno> {
        let parent = &directory.inode;
        if let (Some(handle), Some(attributes)) = (name.handle, name.attributes) {
            if self.is_old(parent, handle, &attributes, requested_at) {
                return Ok(Some(self.uncached_entry(&attributes)));
            }
            return Ok(Some(self.entry(parent, handle, &attributes).0));
        }
        match self.call_lookup(&directory.caller, parent.handle, &name.name).await {
            Ok((handle, attributes)) => Ok(Some(self.entry(parent, handle, &attributes).0)),
            Err(error) if error == Errno::ENOENT => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether the information in a page may be outdated. A page is used for as long as the program
    /// takes to read it. Reported as new, it would bring back a name that was removed here, or give
    /// a file the size from before it was written.
    fn is_old(
        &self,
        parent: &Inode,
        handle: FileHandle,
        attributes: &Attributes,
        requested_at: Instant,
    ) -> bool {
        let age_max = self.policy.bounds(false).0.max(PAGE_AGE_MIN);
        // Take one lock at a time: other code finds objects first, and then locks one of them.
        let has_changed = |inode: &Inode| inode.lock().has_changed_since(requested_at);
        if requested_at.elapsed() > age_max || has_changed(parent) {
            return true;
        }
        let known = self.inodes.peek(handle, attributes);
        known.is_some_and(|inode| has_changed(&inode))
    }

    /// An entry with name, number and kind, which the kernel does not cache: it asks when it needs
    /// the attributes.
    fn uncached_entry(&self, attributes: &Attributes) -> Entry {
        Entry {
            ino: 0,
            attributes: self.to_fuse(attributes),
            name_ttl: Duration::ZERO,
            attributes_ttl: Duration::ZERO,
        }
    }

    fn attributes_of_dot(&self, directory: &OpenDirectory) -> FileAttr {
        let inode = &directory.inode;
        match inode.valid_attributes() {
            Some(known) => self.to_fuse(&known.attributes),
            None => FileAttr { ino: INodeNo(inode.number), ..self.placeholder_attributes() },
        }
    }

    /// Attributes of a directory of which nothing is known.
    pub(crate) fn placeholder_attributes(&self) -> FileAttr {
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

/// The cookie at which a listing continues. Fails if the listing has made no progress.
fn next_cookie(from: u64, last: &DirectoryEntry) -> Result<u64, Errno> {
    if last.cookie == from { Err(endless_listing()) } else { Ok(last.cookie) }
}

fn endless_listing() -> Errno {
    tracing::warn!("the server's listing of a directory does not end");
    Errno::EIO
}

fn is_listed(name: &DirectoryEntry) -> bool {
    name.name != b"." && name.name != b".."
}
