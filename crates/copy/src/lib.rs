//! Copies files and trees between this machine and NFS servers, or between two of them.
//!
//! The two sides stand behind one interface ([`Folder`], [`Source`], [`Sink`]); `local` and
//! `remote` are its two kinds. A walker streams the tree, workers copy files, and each file has
//! many blocks in flight.
//!
//! Invariants: no partial file is ever taken for whole: content goes into a temporary name, is made
//! stable, and only then gets its own name by a rename. What is no file (a pipe, a device) is read
//! and written as it is, in order, and never replaced by one ([`Stream`]). Memory is bounded
//! whatever the tree: blocks by `budget`, names by a page and a bounded queue (hard links alone are
//! remembered, until all names of a file were seen). No tree is left: a directory of this machine
//! is opened beneath the one above it, and never by way of a link. What fails is reported and does
//! not stop the rest. What this crate must not know: terminals and command lines.

mod backend;
mod budget;
mod content;
mod digest;
mod entry;
mod error;
mod job;
mod links;
mod local;
mod pour;
mod progress;
mod remote;
mod run;
mod spot;
mod stream;
mod temporary;
mod tree;
mod walk;

pub use backend::{Anchor, Folder, Identity, Shape, Sink, Source};
pub use entry::{Entry, NewAttributes};
pub use error::{Error, Result};
pub use local::LocalPath;
pub use pour::pour;
pub use progress::{Failure, Progress};
pub use run::{Outcome, copy};
pub use spot::{Destination, Origin};
pub use stream::Stream;

/// What to do beside copying contents.
#[derive(Debug, Clone)]
pub struct Options {
    /// Directories with all that is in them; without it they are refused.
    pub recursive: bool,
    /// Set permissions as the source has them; else they are the source's without what `umask`
    /// forbids.
    pub mode: bool,
    /// The bits that new files don't get where permissions are not preserved.
    pub umask: u32,
    /// Set times of access and change as the source has them.
    pub times: bool,
    /// Set owner and group as the source has them, where that is allowed.
    pub owner: bool,
    /// Names of one file become names of one file.
    pub links: bool,
    /// Read back what was written and compare it with what was read.
    pub verify: bool,
    /// Take up what an interrupted copy has left, and leave out what is there already.
    pub resume: bool,
    /// Wait until files on this machine's disks are safe there before they get their names.
    pub sync: bool,
    /// Change nothing; say what would be done.
    pub dry_run: bool,
    /// Files that are copied at once.
    pub files_at_once: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            recursive: false,
            mode: true,
            umask: 0o022,
            times: true,
            owner: false,
            links: true,
            verify: false,
            resume: false,
            sync: true,
            dry_run: false,
            files_at_once: 16,
        }
    }
}
