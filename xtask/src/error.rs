//! What can go wrong before anything could be checked.

use std::io;
use std::path::PathBuf;

/// Why a command could not do its work at all.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A program could not be started.
    #[error("cannot run {program}: {source}")]
    Run {
        /// The program.
        program: String,
        /// What the system said.
        source: io::Error,
    },
    /// A file of the project could not be read.
    #[error("cannot read {}: {source}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A directory for what a command writes could not be made.
    #[error("cannot make {}: {source}", directory.display())]
    Make {
        /// The directory.
        directory: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// `cargo metadata` failed or said something unexpected.
    #[error("cargo metadata does not describe this workspace: {0}")]
    Metadata(String),
}

/// What every command gives: whether all was well.
pub(crate) type Result<T> = std::result::Result<T, Error>;
