//! What can go wrong in a lab, split by whose fault it is.

use std::io;

/// Why a lab could not do what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The caller asked for something that makes no sense.
    #[error("{0}")]
    Misuse(String),
    /// Namespaces need root.
    #[error("a network lab needs root; try: sudo with the same command")]
    NotRoot,
    /// A program is not installed.
    #[error("{program} is not installed; try: apt-get install {package}")]
    Missing {
        /// The program.
        program: &'static str,
        /// The Debian package that has it.
        package: &'static str,
    },
    /// The kernel was built without something that was asked for.
    #[error("this kernel cannot do that: {0}")]
    Unsupported(String),
    /// A program of the system said no.
    #[error("`{command}` failed: {said}")]
    Refused {
        /// The whole command line.
        command: String,
        /// What it printed.
        said: String,
    },
    /// The system said no.
    #[error("cannot {what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// What the system said.
        source: io::Error,
    },
    /// Something did not happen in time.
    #[error("{0}")]
    Timeout(String),
}

impl Error {
    /// Names what was tried when the system said no.
    pub(super) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}
