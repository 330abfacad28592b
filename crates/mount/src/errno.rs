//! What a program sees of an error: the one table from statuses and the client's errors to errno.

use client::Error;
use fs::Status;
use fuser::Errno;

/// What a failed call means for the program that waits for it.
pub(crate) fn of_error(error: &Error) -> Errno {
    match error {
        Error::Status { status, .. } => of_status(*status),
        // AUTH_ERROR and its like: the server does not let this caller in.
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

/// NFS names most of them after the errno that they stand for. RFC 1813 s2.6
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
        // The kernel looks the path up again when it sees this one.
        Status::Stale | Status::BadHandle => Errno::from_i32(libc::ESTALE),
        Status::Remote => Errno::from_i32(libc::EREMOTE),
        Status::NotSupported | Status::BadType => Errno::from_i32(libc::EOPNOTSUPP),
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
