//! Errors of a network lab, by whose fault they are.

use std::io;

/// Why a lab failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The caller's request makes no sense.
    #[error("{0}")]
    Misuse(String),
    /// Network namespaces need root.
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
    /// The kernel was built without a feature that was asked for.
    #[error("this kernel cannot do that: {0}")]
    Unsupported(String),
    /// A system program failed.
    #[error("`{command}` failed: {message}")]
    Refused {
        /// The whole command line.
        command: String,
        /// The output of the program.
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
}

impl Error {
    /// Converts the system's error; `what` names the operation.
    pub(super) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}
