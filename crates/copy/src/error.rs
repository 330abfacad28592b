//! Why something was not copied, split by whose fault it is.

use std::io;

use fs::Status;

/// Why a file, a directory or the whole copy failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A server refused, or could not be asked.
    #[error(transparent)]
    Remote(client::Error),
    /// This machine refused.
    #[error("{what}: {source}")]
    Local {
        /// What was tried.
        what: &'static str,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// What is there already stands in the way, or what was asked for makes no sense.
    #[error("{0}")]
    Conflict(String),
    /// The source changed while it was read: the copy would be a mixture.
    #[error("it changed while it was copied")]
    Changed,
    /// What was read back is not what was written.
    #[error("the copy differs from its source: wrong data were written or read back")]
    Damaged,
    /// Somebody else works on the same temporary file.
    #[error("its temporary file was replaced by somebody else; is another copy running?")]
    Replaced,
    /// Nobody reads any more what is written to a pipe.
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

    /// Whether the name is not there.
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

    /// Whether this user may not do it.
    #[must_use]
    pub fn is_not_permitted(&self) -> bool {
        match self {
            Self::Remote(error) => matches!(error.status(), Some(Status::NotPermitted | Status::Access)),
            Self::Local { source, .. } => source.kind() == io::ErrorKind::PermissionDenied,
            _ => false,
        }
    }

    /// Whether there was no space.
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

    /// Whether what has been copied so far may be taken up later.
    pub(crate) fn may_go_on_later(&self) -> bool {
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
