//! Why a drive cannot be opened, in sentences for its user.

use crate::signature::Signature;
use std::io;
use std::path::{Path, PathBuf};

/// The result of opening a drive.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a drive cannot be opened or made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file is to be made where there is one.
    #[error("{path} is there already; adopt it, or choose another name")]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// Neither a regular file nor a block device.
    #[error("{path} is neither a regular file nor a block device")]
    NotADrive {
        /// What was named.
        path: PathBuf,
    },
    /// It has something on it that is not ours.
    #[error("{path} is not empty: it has {found}; use another, erase it, or force it if nobody needs that",
        found = list(.found))]
    Foreign {
        /// The file or device.
        path: PathBuf,
        /// What is on it.
        found: Vec<Signature>,
    },
    /// The program that recognizes signatures is missing or failed.
    #[error("cannot find out whether {path} is empty: {reason}; install util-linux, which has wipefs")]
    NotProbed {
        /// The file or device.
        path: PathBuf,
        /// What happened.
        reason: String,
    },
    /// The kernel holds the device.
    #[error("{path} is in use{}", uses(.by))]
    InUse {
        /// The device.
        path: PathBuf,
        /// By whom, as far as that is known.
        by: Vec<String>,
    },
    /// Another opener has the lock.
    #[error("{path} is locked: another process serves it, or has ended while its writes are not finished")]
    Locked {
        /// The file or device.
        path: PathBuf,
    },
    /// The file system has no direct I/O.
    #[error("{path} is on a file system without direct I/O (O_DIRECT); move it to one that has it")]
    NotDirect {
        /// The file.
        path: PathBuf,
    },
    /// Not a size that a drive may have.
    #[error("{path} has {bytes} bytes; a drive has at least one block of {block}, and whole blocks")]
    Size {
        /// The file or device.
        path: PathBuf,
        /// Its size.
        bytes: u64,
        /// The bytes of a block.
        block: u32,
    },
    /// The system refused something.
    #[error("cannot {what} {path}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// With which file or device.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
}

impl Error {
    /// Wraps an error of a system call.
    pub(crate) fn system<E: Into<io::Error>>(what: &'static str, path: &Path) -> impl FnOnce(E) -> Self {
        let path = path.to_owned();
        move |source| Self::System { what, path, source: source.into() }
    }
}

fn list(found: &[Signature]) -> String {
    found.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn uses(by: &[String]) -> String {
    if by.is_empty() { String::new() } else { format!(": {}", by.join(", ")) }
}
