//! The table from statuses of the store to those of NFS and MOUNT. RFC 1813 s2.6, s5.1.5

use nfs3::Status;

/// The status of a failed operation of a store. RFC 1813 s2.6 (nfsstat3)
#[must_use]
pub const fn of_store(status: fs::Status) -> Status {
    use fs::Status as Fs;
    match status {
        Fs::NotPermitted => Status::PERM,
        Fs::NotFound => Status::NOENT,
        Fs::Io => Status::IO,
        Fs::NoAddress => Status::NXIO,
        Fs::Access => Status::ACCES,
        Fs::Exists => Status::EXIST,
        Fs::CrossDevice => Status::XDEV,
        Fs::NoDevice => Status::NODEV,
        Fs::NotDirectory => Status::NOTDIR,
        Fs::IsDirectory => Status::ISDIR,
        Fs::Invalid => Status::INVAL,
        Fs::FileTooBig => Status::FBIG,
        Fs::NoSpace => Status::NOSPC,
        Fs::ReadOnly => Status::ROFS,
        Fs::TooManyLinks => Status::MLINK,
        Fs::NameTooLong => Status::NAMETOOLONG,
        Fs::NotEmpty => Status::NOTEMPTY,
        Fs::Quota => Status::DQUOT,
        Fs::Stale => Status::STALE,
        Fs::Remote => Status::REMOTE,
        Fs::BadHandle => Status::BADHANDLE,
        Fs::NotSync => Status::NOT_SYNC,
        Fs::BadCookie => Status::BAD_COOKIE,
        Fs::NotSupported => Status::NOTSUPP,
        Fs::TooSmall => Status::TOOSMALL,
        Fs::ServerFault => Status::SERVERFAULT,
        Fs::BadType => Status::BADTYPE,
        Fs::Later => Status::JUKEBOX,
        // No operation of this version causes these.
        Fs::NoXattr | Fs::XattrTooBig => Status::SERVERFAULT,
        Fs::Other(number) => Status(number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_status_keeps_its_name() {
        let xattrs = [fs::Status::NoXattr, fs::Status::XattrTooBig];
        for status in fs::Status::ALL.iter().copied().filter(|status| !xattrs.contains(status)) {
            assert_eq!(of_store(status).to_string(), status.to_string());
        }
        assert_eq!(of_store(fs::Status::Other(4711)), Status(4711));
    }
}
