//! Why something was not copied, by whose fault it is.

use std::io;

use fs::Status;

/// Why a file, a directory or the whole copy failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A server refused an operation or did not answer.
    #[error(transparent)]
    Remote(client::Error),
    /// This machine refused an operation.
    #[error("{what}: {source}")]
    Local {
        /// The operation.
        what: &'static str,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// An existing object is in the way, or the request makes no sense.
    #[error("{0}")]
    Conflict(String),
    /// The directory is the one of this path below the source, which contains it.
    #[error("it contains itself: it is the same directory as {0} in the source, which contains it")]
    Cycle(String),
    /// The path below the source is longer than this many bytes.
    #[error("its path below the source is longer than {0} bytes")]
    TooDeep(usize),
    /// The source changed while it was read: the copy would be a mixture.
    #[error("it changed while it was copied")]
    Changed,
    /// The data read back differ from the data written.
    #[error("the copy differs from its source: wrong data were written or read back")]
    Damaged,
    /// Another program replaced the temporary file.
    #[error("its temporary file was replaced by somebody else; is another copy running?")]
    Replaced,
    /// The reader of a pipe has closed it.
    #[error("its reader ended after {0} bytes were written (EPIPE)")]
    ReaderLeft(u64),
    /// The copy was interrupted.
    #[error("interrupted")]
    Interrupted,
}

impl Error {
    pub(crate) const fn local(what: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| Self::Local { what, source }
    }

    /// Whether the name does not exist.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        match self {
            Self::Remote(error) => error.status() == Some(Status::NotFound),
            Self::Local { source, .. } => source.kind() == io::ErrorKind::NotFound,
            _ => false,
        }
    }

    pub(crate) fn exists(&self) -> bool {
        match self {
            Self::Remote(error) => error.status() == Some(Status::Exists),
            Self::Local { source, .. } => source.kind() == io::ErrorKind::AlreadyExists,
            _ => false,
        }
    }

    /// Whether this user lacks the permission.
    #[must_use]
    pub fn is_not_permitted(&self) -> bool {
        match self {
            Self::Remote(error) => matches!(error.status(), Some(Status::NotPermitted | Status::Access)),
            Self::Local { source, .. } => source.kind() == io::ErrorKind::PermissionDenied,
            _ => false,
        }
    }

    /// Whether there was no space left.
    #[must_use]
    pub fn is_full(&self) -> bool {
        match self {
            Self::Remote(error) => matches!(error.status(), Some(Status::NoSpace | Status::Quota)),
            Self::Local { source, .. } => {
                matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
            }
            _ => false,
        }
    }

    /// Whether a later copy may resume the partial file.
    pub(crate) fn may_resume_later(&self) -> bool {
        match self {
            Self::Interrupted => true,
            Self::Remote(error) => error.retry_may_help() || matches!(error, client::Error::Closed),
            _ => false,
        }
    }
}

impl From<client::Error> for Error {
    fn from(error: client::Error) -> Self {
        Self::Remote(error)
    }
}

/// The result of a part of a copy.
pub type Result<T> = std::result::Result<T, Error>;
