//! What can go wrong with virtual machines, split by whose fault it is.

use std::io;

/// Why a lab of virtual machines could not do what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The caller asked for something that makes no sense.
    #[error("{0}")]
    Misuse(String),
    /// A program is not installed.
    #[error("{program} is not installed; try: apt-get install {package}")]
    Missing {
        /// The program.
        program: &'static str,
        /// The Debian package that has it.
        package: &'static str,
    },
    /// There is no kernel to boot, neither in the cache nor from the package manager.
    #[error("no kernel to boot: {0}")]
    NoKernel(String),
    /// This machine cannot do it at all.
    #[error("{0}")]
    Unsupported(String),
    /// The guest's own system did not come up.
    #[error("the guest `{guest}` does not start: {said}")]
    Boot {
        /// Which guest.
        guest: &'static str,
        /// What was seen, the end of its console with it.
        said: String,
    },
    /// The guest refused to start a command.
    #[error("the guest cannot run {command}: {said}")]
    Refused {
        /// The program.
        command: String,
        /// What it said.
        said: String,
    },
    /// The guest is gone while it was needed.
    #[error("the guest `{guest}` is gone: {said}")]
    Gone {
        /// Which guest.
        guest: &'static str,
        /// What was seen, the end of its console with it.
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
    /// A signal ended it.
    #[error("interrupted before the command was started")]
    Interrupted,
}

impl Error {
    /// Names what was tried when the system said no.
    pub(super) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}
