//! Errors that prevent a command from doing its work.

use std::io;
use std::path::PathBuf;

/// Why a command could not do its work.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A program could not be started.
    #[error("cannot run {program}: {source}")]
    Run {
        /// The program.
        program: String,
        /// The system's error.
        source: io::Error,
    },
    /// A file of the project could not be read.
    #[error("cannot read {}: {source}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A directory for the output of a command could not be created.
    #[error("cannot make {}: {source}", directory.display())]
    Make {
        /// The directory.
        directory: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A program failed; it has said why.
    #[error("{0} failed")]
    Failed(String),
    /// `cargo metadata` failed, or its output is unexpected.
    #[error("cargo metadata does not describe this workspace: {0}")]
    Metadata(String),
}

/// The result of a command: whether everything is in order.
pub(crate) type Result<T> = std::result::Result<T, Error>;
