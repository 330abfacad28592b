//! Copies files and trees between this machine and NFS servers, or between two of them.
//!
//! Both sides implement one interface ([`Directory`], [`Source`], [`Sink`]): `local` for this
//! machine, `remote` for a server. A walker streams the tree, workers copy files, and each file has
//! many blocks in flight.
//!
//! Invariants: a partial file never has the file's name: content is written to a temporary name and
//! made stable, and only then renamed. What is not a file (a pipe, a device) is read and written as
//! it is, in order, and never replaced by a file ([`Stream`]). Memory is bounded for any tree:
//! blocks by `budget`, names by one page per level and a bounded queue. Only hard links are
//! remembered, until all names of a file were seen. A copy never leaves its tree: a local directory
//! is opened beneath its parent, and links are not followed. A tree that contains itself is walked
//! once ([`Error::Cycle`]). A failure is reported and does not
//! stop the rest. This crate must not know terminals and command lines.

mod backend;
mod budget;
mod content;
mod descent;
mod digest;
mod endpoints;
mod entry;
mod error;
mod exclude;
mod job;
mod links;
mod local;
mod progress;
mod remote;
mod run;
mod stream;
mod stream_copy;
mod temporary;
mod tree;
mod walk;

pub use backend::{Directory, Identity, LinkSource, Sink, Source, TransferOptions};
pub use endpoints::{Destination, Origin};
pub use entry::{Entry, NewAttributes};
pub use error::{Error, Result};
pub use exclude::Exclude;
pub use local::LocalPath;
pub use progress::{Failure, Progress};
pub use run::{Outcome, copy};
pub use stream::Stream;
pub use stream_copy::copy_to_stream;

/// Options of a copy.
#[derive(Debug, Clone)]
pub struct Options {
    /// Copy directories with their contents; otherwise they are refused.
    pub recursive: bool,
    /// Set permissions as in the source; otherwise they are the source's without the bits of
    /// `umask`.
    pub mode: bool,
    /// The bits that are removed from permissions that are not preserved.
    pub umask: u32,
    /// Set the times of last access and last change as in the source.
    pub times: bool,
    /// Set owner and group as in the source, if this user may.
    pub owner: bool,
    /// Preserve hard links: several names of one file become several names of one copy.
    pub links: bool,
    /// Read each copy back and compare it with its source.
    pub verify: bool,
    /// Resume partial files, and skip files that were copied completely.
    pub resume: bool,
    /// Wait until local files are on disk before they get their names.
    pub sync: bool,
    /// Change nothing; only list what would be copied.
    pub dry_run: bool,
    /// The number of files copied at once.
    pub files_at_once: usize,
    /// What is left out below the sources.
    pub exclude: Exclude,
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
            exclude: Exclude::default(),
        }
    }
}
