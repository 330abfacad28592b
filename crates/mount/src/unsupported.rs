//! What file systems of the server do not support: the server is asked once.

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

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Unsupported(Mutex<HashSet<(Feature, u64)>>);

impl Unsupported {
    /// Fails if a file system is known not to support something.
    pub(crate) fn check(&self, feature: Feature, fsid: u64) -> Result<(), Errno> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.contains(&(feature, fsid)) { Err(Errno::from_i32(NOT_SUPPORTED)) } else { Ok(()) }
    }

    /// Remembers what an outcome says, and returns the outcome.
    pub(crate) fn learn<T>(
        &self,
        feature: Feature,
        fsid: u64,
        outcome: Result<T, Errno>,
    ) -> Result<T, Errno> {
        if matches!(&outcome, Err(error) if error.code() == NOT_SUPPORTED) {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if all.len() < REMEMBERED_MAX && all.insert((feature, fsid)) {
                tracing::info!(?feature, fsid, "the server does not support this for a file system");
            }
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_not_supported_is_remembered_and_for_its_file_system_alone() {
        let known = Unsupported::default();
        let with = |code| Err::<(), _>(Errno::from_i32(code));
        assert!(known.learn(Feature::Copy, 1, with(libc::EIO)).is_err());
        assert!(known.learn(Feature::Copy, 1, Ok(())).is_ok());
        assert!(known.check(Feature::Copy, 1).is_ok());
        assert!(known.learn(Feature::Copy, 1, with(NOT_SUPPORTED)).is_err());
        assert_eq!(known.check(Feature::Copy, 1).map_err(Errno::code), Err(NOT_SUPPORTED));
        assert!(known.check(Feature::Copy, 2).is_ok() && known.check(Feature::Seek, 1).is_ok());
        for fsid in 0..2 * REMEMBERED_MAX as u64 {
            let _ = known.learn(Feature::Seek, fsid, with(NOT_SUPPORTED));
        }
        assert_eq!(known.0.lock().unwrap().len(), REMEMBERED_MAX);
    }
}
