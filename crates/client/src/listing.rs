//! Lists directories of a mount page by page. However large a directory is, only one page is held,
//! plus what is needed to recognize the names of earlier pages. From the second page on, the next
//! page is requested while a page is read. RFC 1813 s3.3.17
//!
//! If the server refuses a cookie of its own, the listing restarts and leaves out the names that it
//! has already returned.

use fs::{DirectoryEntry, DirectoryPage, DirectoryPosition, FileHandle, Status};

use crate::call::Op;
use crate::error::{Error, Result};
use crate::mount::Mount;
use crate::protocol::Reading;
use crate::seen_entries::SeenEntries;
use crate::slot::{Pending, wait};

/// Maximum number of names in one directory: a server that never ends its listing must not hold the
/// client for ever.
pub const DIRECTORY_ENTRIES_MAX: usize = 16_000_000;

/// A page that was requested.
#[derive(Debug)]
struct RequestedPage {
    pending: Pending,
    reading: Reading<DirectoryPage>,
}

impl RequestedPage {
    fn wait(self, mount: &Mount) -> Result<DirectoryPage> {
        wait(mount.decode(&self.reading, &self.pending.wait().results()?))
    }
}

/// A directory listing in progress: an iterator over pages of names, without `.` and `..`. Pages
/// may be empty. No name is returned twice. The iterator ends after the first error.
#[derive(Debug)]
pub struct Pages {
    mount: Mount,
    directory: FileHandle,
    position: DirectoryPosition,
    /// The page at `position`, requested while the previous page is read.
    ahead: Option<RequestedPage>,
    seen: usize,
    given: SeenEntries,
    ended: bool,
}

impl Mount {
    /// Lists a directory page by page.
    #[must_use]
    pub fn pages(&self, directory: FileHandle) -> Pages {
        let (mount, position) = (self.clone(), DirectoryPosition::default());
        let given = SeenEntries::default();
        Pages { mount, directory, position, ahead: None, seen: 0, given, ended: false }
    }

    /// Lists a whole directory at once, without `.` and `..`.
    ///
    /// # Errors
    /// Errors of the server or of the mount.
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
                Err(Error::Status { status: Status::BadCookie, .. })
                    if self.position.cookie != 0 && self.given.may_restart() =>
                {
                    self.position = DirectoryPosition::default();
                }
                other => return other,
            }
        }
    }

    /// Requests the page at `position`.
    fn ask(&self) -> RequestedPage {
        let operation = self.mount.protocol().readdirplus(self.directory, self.position);
        let (request, reading) = operation.into_parts();
        RequestedPage { pending: self.mount.submit(Op::Call(request)), reading }
    }

    fn page_at_cookie(&mut self) -> Result<Vec<DirectoryEntry>> {
        let cookie = self.position.cookie;
        let page = match self.ahead.take().map(|page| page.wait(&self.mount)) {
            // A soft mount gave up the page before it was needed.
            Some(Err(Error::TimedOut { .. })) | None => self.ask().wait(&self.mount)?,
            Some(page) => page?,
        };
        self.position.verifier = page.verifier;
        self.ended = page.eof;
        if let Some(last) = page.entries.last() {
            self.position.cookie = last.cookie;
        }
        // A reader that goes beyond the first page will most likely read on.
        if !page.eof && cookie != 0 && self.position.cookie != cookie {
            self.ahead = Some(self.ask());
        }
        let mut entries = Vec::new();
        // A directory that fits one page needs no record of its names.
        let is_all = cookie == 0 && self.seen == 0 && page.eof;
        for entry in page.entries {
            self.seen += 1;
            check_name(&entry.name)?;
            if entry.name != b"." && entry.name != b".." && (is_all || self.given.insert(&entry.name)) {
                entries.push(entry);
            }
        }
        let reason = if !page.eof && self.position.cookie == cookie {
            "a page without entries that is not the last"
        } else if self.seen > DIRECTORY_ENTRIES_MAX {
            "a directory that does not end"
        } else {
            return Ok(entries);
        };
        Err(Error::PeerMisbehaved { operation: "READDIRPLUS", reason: reason.into() })
    }
}

/// Checks a name, which becomes part of a path: a name with a separator would lead wherever the
/// server likes.
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
