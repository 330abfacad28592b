//! What file systems of the server do not support: the server is asked once.
//!
//! Only what the server says of an operation as a whole counts (NFS4ERR_NOTSUPP, or an operation
//! that it does not know). What it refuses for one file, or at one moment, says nothing about the
//! next.

use crate::calls::errno_of;
use client::Error;
use fs::Status;
use fuser::Errno;
use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

/// What a server of version 4.2 may leave out. RFC 7862 s13, RFC 8276 s7
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Feature {
    Seek,
    Allocate,
    Deallocate,
    Copy,
    Xattrs,
}

/// The most that is remembered. A server with more file systems than that is asked each time.
const REMEMBERED_MAX: usize = 4096;

/// The answer to a request for what is not supported.
pub(crate) const NOT_SUPPORTED: i32 = libc::EOPNOTSUPP;

/// Whether the server does not support an operation at all.
pub(crate) fn is_not_supported<T>(outcome: &client::Result<T>) -> bool {
    matches!(outcome, Err(error) if error.status() == Some(Status::NotSupported))
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Unsupported {
    known: Mutex<HashSet<(Feature, u64)>>,
    /// What was logged, once for each file system.
    logged: Mutex<HashSet<(Feature, u64)>>,
}

impl Unsupported {
    /// Fails if a file system is known not to support something.
    pub(crate) fn check(&self, feature: Feature, fsid: u64) -> Result<(), Errno> {
        let all = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if all.contains(&(feature, fsid)) { Err(Errno::from_i32(NOT_SUPPORTED)) } else { Ok(()) }
    }

    /// Remembers what an outcome says about a file system, and returns the outcome.
    pub(crate) fn learn<T>(
        &self,
        feature: Feature,
        fsid: u64,
        outcome: client::Result<T>,
    ) -> Result<T, Errno> {
        if is_not_supported(&outcome) && note(&self.known, (feature, fsid)) {
            tracing::info!(?feature, fsid, "the server does not support this for a file system");
        }
        self.ask_again(feature, fsid, outcome)
    }

    /// Returns an outcome that says nothing about other files.
    pub(crate) fn ask_again<T>(
        &self,
        feature: Feature,
        fsid: u64,
        outcome: client::Result<T>,
    ) -> Result<T, Errno> {
        if let Err(Error::Declined { operation, reason }) = &outcome
            && note(&self.logged, (feature, fsid))
        {
            tracing::info!(operation, reason, fsid, "the server does not do this for a file");
        }
        outcome.map_err(errno_of)
    }
}

/// Returns whether this is new, and there is room to remember it.
fn note(all: &Mutex<HashSet<(Feature, u64)>>, what: (Feature, u64)) -> bool {
    let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
    all.len() < REMEMBERED_MAX && all.insert(what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(status: Status) -> client::Result<()> {
        Err(Error::Status { operation: "COPY", status })
    }

    fn code(outcome: Result<(), Errno>) -> Option<i32> {
        outcome.err().map(Errno::code)
    }

    #[test]
    fn only_what_a_file_system_does_not_support_is_remembered_and_for_it_alone() {
        let known = Unsupported::default();
        let declined = || Err(Error::Declined { operation: "COPY", reason: "not now".to_owned() });
        // The last one is EOPNOTSUPP too, but about one file.
        for (outcome, expected) in [
            (Ok(()), None),
            (failed(Status::Io), Some(libc::EIO)),
            (failed(Status::Invalid), Some(libc::EINVAL)),
            (failed(Status::BadType), Some(NOT_SUPPORTED)),
            (declined(), Some(NOT_SUPPORTED)),
        ] {
            assert_eq!(code(known.learn(Feature::Copy, 1, outcome)), expected);
            assert_eq!(known.check(Feature::Copy, 1), Ok(()));
        }
        assert_eq!(
            code(known.ask_again(Feature::Copy, 1, failed(Status::NotSupported))),
            Some(NOT_SUPPORTED)
        );
        assert_eq!(known.check(Feature::Copy, 1), Ok(()));
        assert_eq!(code(known.learn(Feature::Copy, 1, failed(Status::NotSupported))), Some(NOT_SUPPORTED));
        assert_eq!(code(known.check(Feature::Copy, 1)), Some(NOT_SUPPORTED));
        assert!(known.check(Feature::Copy, 2).is_ok() && known.check(Feature::Seek, 1).is_ok());
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let known = Unsupported::default();
        for fsid in 0..2 * REMEMBERED_MAX as u64 {
            let _ = known.learn(Feature::Seek, fsid, failed(Status::NotSupported));
            let declined = Error::Declined { operation: "SEEK", reason: String::new() };
            let _ = known.learn(Feature::Seek, fsid, Err::<(), _>(declined));
        }
        assert_eq!(known.known.lock().unwrap().len(), REMEMBERED_MAX);
        assert_eq!(known.logged.lock().unwrap().len(), REMEMBERED_MAX);
    }
}
