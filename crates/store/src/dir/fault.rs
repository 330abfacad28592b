//! Maps the kernel's error numbers to errors of the store.

use crate::interface::Error;
use rustix::io::Errno;

impl From<Errno> for Error {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::PERM => Self::NotPermitted,
            Errno::NOENT => Self::NotFound,
            Errno::ACCESS => Self::Access,
            Errno::EXIST => Self::Exists,
            Errno::XDEV => Self::CrossDevice,
            Errno::NOTDIR => Self::NotDirectory,
            Errno::ISDIR => Self::IsDirectory,
            Errno::INVAL | Errno::LOOP => Self::Invalid,
            Errno::FBIG | Errno::OVERFLOW => Self::FileTooBig,
            Errno::NOSPC => Self::NoSpace,
            Errno::ROFS => Self::ReadOnly,
            Errno::MLINK => Self::TooManyLinks,
            Errno::NAMETOOLONG => Self::NameTooLong,
            Errno::NOTEMPTY => Self::NotEmpty,
            Errno::DQUOT => Self::Quota,
            Errno::STALE => Self::Stale,
            Errno::OPNOTSUPP | Errno::NOSYS => Self::NotSupported,
            // A mount point, or a running program: the operation is refused, and trying again will
            // not help soon.
            Errno::BUSY | Errno::TXTBSY => Self::Access,
            // A lease that is being broken, or a resource that is temporarily exhausted.
            Errno::AGAIN | Errno::MFILE | Errno::NFILE | Errno::NOMEM => Self::Later,
            _ => Self::Io,
        }
    }
}
