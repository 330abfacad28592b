//! Maps the kernel's error numbers to statuses.

use crate::interface::{Result, Status};
use rustix::io::Errno;

/// The result of a system call as a result of the store.
pub(super) trait OrStatus<T> {
    /// The value, or the status of the error number.
    fn or_status(self) -> Result<T>;
}

impl<T> OrStatus<T> for std::result::Result<T, Errno> {
    fn or_status(self) -> Result<T> {
        self.map_err(status)
    }
}

/// The status of an error number.
pub(super) const fn status(errno: Errno) -> Status {
    match errno {
        Errno::PERM => Status::NotPermitted,
        Errno::NOENT => Status::NotFound,
        Errno::ACCESS => Status::Access,
        Errno::EXIST => Status::Exists,
        Errno::XDEV => Status::CrossDevice,
        Errno::NOTDIR => Status::NotDirectory,
        Errno::ISDIR => Status::IsDirectory,
        Errno::INVAL | Errno::LOOP => Status::Invalid,
        Errno::FBIG | Errno::OVERFLOW => Status::FileTooBig,
        Errno::NOSPC => Status::NoSpace,
        Errno::ROFS => Status::ReadOnly,
        Errno::MLINK => Status::TooManyLinks,
        Errno::NAMETOOLONG => Status::NameTooLong,
        Errno::NOTEMPTY => Status::NotEmpty,
        Errno::DQUOT => Status::Quota,
        Errno::STALE => Status::Stale,
        Errno::OPNOTSUPP | Errno::NOSYS => Status::NotSupported,
        // A mount point, or a running program: the operation is refused, and trying again will
        // not help soon.
        Errno::BUSY | Errno::TXTBSY => Status::Access,
        // A lease that is being broken, or a resource that is temporarily exhausted.
        Errno::AGAIN | Errno::MFILE | Errno::NFILE | Errno::NOMEM => Status::Later,
        _ => Status::Io,
    }
}
