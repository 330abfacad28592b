//! What the kernel's error numbers mean to a caller.

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
            // A mount point, or a running program: the caller may not, and asking again will not
            // help soon.
            Errno::BUSY | Errno::TXTBSY => Self::Access,
            // Somebody's lease that is being broken, and what is used up for the moment.
            Errno::AGAIN | Errno::MFILE | Errno::NFILE | Errno::NOMEM => Self::Later,
            _ => Self::Io,
        }
    }
}
