//! The errno that a program sees for an error: one table for statuses and for errors of the client.

use client::Error;
use fs::Status;
use fuser::Errno;

/// The errno for a failed call.
pub(crate) fn of_error(error: &Error) -> Errno {
    match error {
        Error::Status { status, .. } => of_status(*status),
        Error::Declined { .. } => Errno::from_i32(libc::EOPNOTSUPP),
        // The server does not admit this caller, with AUTH_ERROR for example.
        Error::Refused { .. } => Errno::EACCES,
        Error::TimedOut { .. } => Errno::ETIMEDOUT,
        Error::Step { cause, .. } => of_error(cause),
        Error::Closed => Errno::ENOTCONN,
        Error::PeerMisbehaved { .. }
        | Error::Options(_)
        | Error::Target(_)
        | Error::Mount { .. }
        | Error::Io { .. }
        | Error::Misuse(_) => Errno::EIO,
    }
}

/// Most statuses are named after an errno. RFC 1813 s2.6
pub(crate) fn of_status(status: Status) -> Errno {
    match status {
        Status::NotPermitted => Errno::EPERM,
        Status::NotFound => Errno::ENOENT,
        Status::NoAddress => Errno::ENXIO,
        Status::Access => Errno::EACCES,
        Status::Exists => Errno::EEXIST,
        Status::CrossDevice => Errno::EXDEV,
        Status::NoDevice => Errno::ENODEV,
        Status::NotDirectory => Errno::ENOTDIR,
        Status::IsDirectory => Errno::EISDIR,
        Status::Invalid => Errno::EINVAL,
        Status::FileTooBig => Errno::EFBIG,
        Status::NoSpace => Errno::ENOSPC,
        Status::ReadOnly => Errno::EROFS,
        Status::TooManyLinks => Errno::EMLINK,
        Status::NameTooLong => Errno::ENAMETOOLONG,
        Status::NotEmpty => Errno::ENOTEMPTY,
        Status::Quota => Errno::from_i32(libc::EDQUOT),
        // When the kernel receives ESTALE it looks the path up again.
        Status::Stale | Status::BadHandle => Errno::from_i32(libc::ESTALE),
        Status::Remote => Errno::from_i32(libc::EREMOTE),
        Status::NotSupported | Status::BadType => Errno::from_i32(libc::EOPNOTSUPP),
        Status::NoXattr => Errno::from_i32(libc::ENODATA),
        Status::XattrTooBig => Errno::from_i32(libc::E2BIG),
        Status::Later => Errno::EAGAIN,
        Status::Io
        | Status::ServerFault
        | Status::TooSmall
        | Status::BadCookie
        | Status::NotSync
        | Status::Other(_) => Errno::EIO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_has_an_errno_and_no_unknown_one_passes_for_success() {
        for &status in Status::ALL {
            assert!(of_status(status).code() > 0, "{status}");
        }
        assert_eq!(of_status(Status::Other(4711)).code(), libc::EIO);
        assert_eq!(of_status(Status::Stale).code(), libc::ESTALE);
    }
}
