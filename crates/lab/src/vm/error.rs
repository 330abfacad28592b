//! Errors of virtual machines, by whose fault they are.

use std::io;

/// Why a lab of virtual machines failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The caller's request makes no sense.
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
    /// This machine cannot run the lab.
    #[error("{0}")]
    Unsupported(String),
    /// The guest's system did not start.
    #[error("the guest `{guest}` does not start: {message}")]
    Boot {
        /// The name of the guest.
        guest: &'static str,
        /// The reason, with the end of the guest's console.
        message: String,
    },
    /// The guest refused to start a command.
    #[error("the guest cannot run {command}: {message}")]
    Refused {
        /// The program.
        command: String,
        /// The reason.
        message: String,
    },
    /// The guest ended while it was needed.
    #[error("the guest `{guest}` is gone: {message}")]
    Gone {
        /// The name of the guest.
        guest: &'static str,
        /// The reason, with the end of the guest's console.
        message: String,
    },
    /// A system call failed.
    #[error("cannot {what}: {source}")]
    Io {
        /// The operation.
        what: String,
        /// The system's error.
        source: io::Error,
    },
    /// Something did not happen in time.
    #[error("{0}")]
    Timeout(String),
    /// A signal ended the lab.
    #[error("interrupted before the command was started")]
    Interrupted,
}

impl Error {
    /// Converts the system's error; `what` names the operation.
    pub(super) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}
