//! Directories, page by page.

use crate::{Attributes, FileHandle, Verifier};

/// Where in a directory a page begins; the default is its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DirectoryPosition {
    /// The cookie of the last entry seen; 0 for the start.
    pub cookie: u64,
    /// The verifier returned with that entry; zero for the start.
    pub verifier: Verifier,
}

/// One name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// The name: any bytes, not necessarily UTF-8.
    pub name: Vec<u8>,
    /// The object's number on the file system of the directory.
    pub fileid: u64,
    /// The position after this entry.
    pub cookie: u64,
    /// The object's attributes, if they were requested and returned.
    pub attributes: Option<Attributes>,
    /// The object's handle, if it was requested and returned.
    pub handle: Option<FileHandle>,
}

/// A page of a directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DirectoryPage {
    /// The names, in the server's order.
    pub entries: Vec<DirectoryEntry>,
    /// The verifier of the cookies of the entries.
    pub verifier: Verifier,
    /// Whether the directory ends with these entries.
    pub eof: bool,
}
