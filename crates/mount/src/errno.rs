//! What a program sees of an error: the one table from NFS statuses and the client's errors to errno.

use client::Error;
use fuser::Errno;
use nfs3::Status;

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

/// RFC 1813 s2.6 names most of them after the errno they stand for.
pub(crate) fn of_status(status: Status) -> Errno {
    match status {
        Status::PERM => Errno::EPERM,
        Status::NOENT => Errno::ENOENT,
        Status::NXIO => Errno::ENXIO,
        Status::ACCES => Errno::EACCES,
        Status::EXIST => Errno::EEXIST,
        Status::XDEV => Errno::EXDEV,
        Status::NODEV => Errno::ENODEV,
        Status::NOTDIR => Errno::ENOTDIR,
        Status::ISDIR => Errno::EISDIR,
        Status::INVAL => Errno::EINVAL,
        Status::FBIG => Errno::EFBIG,
        Status::NOSPC => Errno::ENOSPC,
        Status::ROFS => Errno::EROFS,
        Status::MLINK => Errno::EMLINK,
        Status::NAMETOOLONG => Errno::ENAMETOOLONG,
        Status::NOTEMPTY => Errno::ENOTEMPTY,
        Status::DQUOT => Errno::from_i32(libc::EDQUOT),
        // The kernel looks the path up again when it sees this one.
        Status::STALE | Status::BADHANDLE => Errno::from_i32(libc::ESTALE),
        Status::REMOTE => Errno::from_i32(libc::EREMOTE),
        Status::NOTSUPP | Status::BADTYPE => Errno::from_i32(libc::EOPNOTSUPP),
        Status::JUKEBOX => Errno::EAGAIN,
        // IO, SERVERFAULT, TOOSMALL, BAD_COOKIE, NOT_SYNC and whatever a server makes up.
        _ => Errno::EIO,
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
        assert_eq!(of_status(Status(4711)).code(), libc::EIO);
        assert_eq!(of_status(Status::STALE).code(), libc::ESTALE);
    }
}
