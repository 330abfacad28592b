//! Directories of a mount, page by page: however many names one has, a page is held, and of those before it what it
//! takes to know them again. From the second on the next one is on its way while a page is read. RFC 1813 s3.3.17
//!
//! Where the server refuses a cookie of its own the listing begins anew, and leaves out what it gave before.

use nfs3::proc::readdirplus;
use nfs3::{FileHandle, PostOpAttr, Procedure, Status, Verifier};

use crate::call::Op;
use crate::error::{Error, Result};
use crate::mount::Mount;
use crate::seen_entries::SeenEntries;
use crate::slot::Pending;
use crate::tree::{accept, encode};

/// What a READDIRPLUS asks for: names and cookies, and all in all.
const DIRECTORY_BYTES: (u32, u32) = (16 << 10, 64 << 10);
/// Names in one directory at most: a server that never ends its listing must not keep us for ever.
pub const DIRECTORY_ENTRIES_MAX: usize = 16_000_000;

/// One name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// The name, which need not be UTF-8.
    pub name: Vec<u8>,
    /// The object's number.
    pub fileid: u64,
    /// Its attributes, when the server gave them.
    pub attributes: PostOpAttr,
    /// Its handle, when the server gave it.
    pub handle: Option<FileHandle>,
}

/// A directory that is being listed: an iterator over pages of names, without `.` and `..`, of which some may be
/// empty. No name comes twice. It ends after the first error.
#[derive(Debug)]
pub struct Pages {
    mount: Mount,
    directory: FileHandle,
    cookie: u64,
    verifier: Verifier,
    /// The page at that cookie, asked for while the one before it is read.
    ahead: Option<Pending>,
    seen: usize,
    given: SeenEntries,
    ended: bool,
}

impl Mount {
    /// Lists a directory page by page.
    #[must_use]
    pub fn pages(&self, directory: FileHandle) -> Pages {
        let verifier = Verifier::default();
        let (mount, given) = (self.clone(), SeenEntries::default());
        Pages { mount, directory, cookie: 0, verifier, ahead: None, seen: 0, given, ended: false }
    }

    /// Lists a directory at once, without `.` and `..`.
    ///
    /// # Errors
    /// The server's, or the mount's.
    pub fn read_directory(&self, directory: FileHandle) -> Result<Vec<DirectoryEntry>> {
        let mut entries = Vec::new();
        for page in self.pages(directory) {
            entries.append(&mut page?);
        }
        Ok(entries)
    }
}

impl Pages {
    fn page(&mut self) -> Result<Vec<DirectoryEntry>> {
        loop {
            match self.page_at_cookie() {
                Err(Error::Status { status: Status::BAD_COOKIE, .. })
                    if self.cookie != 0 && self.given.may_begin_anew() =>
                {
                    (self.cookie, self.verifier) = (0, Verifier::default());
                }
                other => return other,
            }
        }
    }

    /// Asks for the page at the cookie.
    fn ask(&self) -> Pending {
        let (dircount, maxcount) = DIRECTORY_BYTES;
        let (directory, cookie, verifier) = (self.directory, self.cookie, self.verifier);
        let args = encode(&readdirplus::Args { directory, cookie, verifier, dircount, maxcount });
        self.mount.submit(Op::Call { procedure: Procedure::ReadDirPlus, args })
    }

    fn page_at_cookie(&mut self) -> Result<Vec<DirectoryEntry>> {
        let cookie = self.cookie;
        let results = match self.ahead.take().map(|ahead| ahead.wait().results()) {
            // The patience of a soft mount with it was over before anybody wanted it.
            Some(Err(Error::TimedOut { .. })) | None => self.ask().wait().results()?,
            Some(results) => results?,
        };
        let page =
            accept::<readdirplus::Success<'_>, readdirplus::Failure>(Procedure::ReadDirPlus, &results)?;
        self.verifier = page.verifier;
        self.ended = page.eof;
        if let Some(last) = page.entries.iter().last() {
            self.cookie = last.cookie;
        }
        // Whoever has come beyond the first page will most likely read on.
        if !page.eof && cookie != 0 && self.cookie != cookie {
            self.ahead = Some(self.ask());
        }
        let mut entries = Vec::new();
        // What is the whole directory needs no memory.
        let is_all = cookie == 0 && self.seen == 0 && page.eof;
        for entry in page.entries.iter() {
            self.seen += 1;
            check_name(entry.name)?;
            if entry.name != b"." && entry.name != b".." && (is_all || self.given.insert(entry.name)) {
                entries.push(DirectoryEntry {
                    name: entry.name.to_vec(),
                    fileid: entry.fileid,
                    attributes: entry.attributes,
                    handle: entry.handle,
                });
            }
        }
        let reason = if !page.eof && self.cookie == cookie {
            "a page without entries that is not the last"
        } else if self.seen > DIRECTORY_ENTRIES_MAX {
            "a directory that does not end"
        } else {
            return Ok(entries);
        };
        Err(Error::PeerMisbehaved { operation: "READDIRPLUS", reason: reason.into() })
    }
}

/// Whoever lists makes paths of names: one with a separator in it would lead wherever the server likes.
fn check_name(name: &[u8]) -> Result<()> {
    if !name.is_empty() && !name.contains(&b'/') && !name.contains(&0) {
        return Ok(());
    }
    let reason = format!("\"{}\" cannot be the name of a file", name.escape_ascii());
    Err(Error::PeerMisbehaved { operation: "READDIRPLUS", reason })
}

impl Iterator for Pages {
    type Item = Result<Vec<DirectoryEntry>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let page = self.page();
        self.ended |= page.is_err();
        Some(page)
    }
}
