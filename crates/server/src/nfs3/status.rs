//! The table from errors of the store to NFS statuses, and from our errors to MOUNT's. RFC 1813
//! s2.6, s5.1.5

use crate::handle::HandleError;
use nfs3::Status;
use store::Error;

/// The status of a store error. RFC 1813 s2.6 (nfsstat3)
#[must_use]
pub const fn of_store(error: Error) -> Status {
    match error {
        Error::NotPermitted => Status::PERM,
        Error::NotFound => Status::NOENT,
        Error::Io => Status::IO,
        Error::Access => Status::ACCES,
        Error::Exists => Status::EXIST,
        Error::CrossDevice => Status::XDEV,
        Error::NotDirectory => Status::NOTDIR,
        Error::IsDirectory => Status::ISDIR,
        Error::Invalid => Status::INVAL,
        Error::FileTooBig => Status::FBIG,
        Error::NoSpace => Status::NOSPC,
        Error::ReadOnly => Status::ROFS,
        Error::TooManyLinks => Status::MLINK,
        Error::NameTooLong => Status::NAMETOOLONG,
        Error::NotEmpty => Status::NOTEMPTY,
        Error::Quota => Status::DQUOT,
        Error::Stale => Status::STALE,
        Error::NotSync => Status::NOT_SYNC,
        Error::BadCookie => Status::BAD_COOKIE,
        Error::NotSupported => Status::NOTSUPP,
        Error::BadType => Status::BADTYPE,
        Error::Later => Status::JUKEBOX,
    }
}

/// The status of an invalid handle.
#[must_use]
pub const fn of_handle(error: HandleError) -> Status {
    match error {
        HandleError::Bad => Status::BADHANDLE,
        HandleError::Stale => Status::STALE,
    }
}
