//! Why an operation failed, as reported by the server.

use std::fmt;

macro_rules! statuses {
    ($($(#[$doc:meta])* $variant:ident = $name:literal;)+) => {
        /// Why a server refused an operation. A number that is in no standard is kept, because a
        /// client can only pass the number on.
        #[derive(Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Status {
            $($(#[$doc])* $variant,)+
            /// A number that is not in the protocol's standard.
            Other(u32),
        }

        impl Status {
            /// Every status but [`Status::Other`].
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The name in NFS without its prefix; `UNKNOWN` for a number that is not in NFS.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                    Self::Other(_) => "UNKNOWN",
                }
            }
        }
    };
}

statuses! {
    /// Only the owner (or root) may do this.
    NotPermitted = "PERM";
    /// No such file or directory.
    NotFound = "NOENT";
    /// A hard error, such as of a disk.
    Io = "IO";
    /// No such device or address.
    NoAddress = "NXIO";
    /// Permission denied.
    Access = "ACCES";
    /// The name already exists.
    Exists = "EXIST";
    /// A link or rename would cross file systems.
    CrossDevice = "XDEV";
    /// No such device.
    NoDevice = "NODEV";
    /// Not a directory.
    NotDirectory = "NOTDIR";
    /// A directory where none is allowed.
    IsDirectory = "ISDIR";
    /// Invalid argument, or an unsupported one.
    Invalid = "INVAL";
    /// Above the maximum file size.
    FileTooBig = "FBIG";
    /// No space left.
    NoSpace = "NOSPC";
    /// A read-only file system.
    ReadOnly = "ROFS";
    /// Too many hard links.
    TooManyLinks = "MLINK";
    /// The name is too long.
    NameTooLong = "NAMETOOLONG";
    /// The directory is not empty.
    NotEmpty = "NOTEMPTY";
    /// The quota is used up.
    Quota = "DQUOT";
    /// The handle's object is gone.
    Stale = "STALE";
    /// Too many levels of remote in a path.
    Remote = "REMOTE";
    /// The handle does not belong to this server.
    BadHandle = "BADHANDLE";
    /// The object has changed since the guard was read.
    NotSync = "NOT_SYNC";
    /// The cookie of a listing is stale.
    BadCookie = "BAD_COOKIE";
    /// Not supported.
    NotSupported = "NOTSUPP";
    /// The buffer or request is too small.
    TooSmall = "TOOSMALL";
    /// A fault of the server that no other status describes.
    ServerFault = "SERVERFAULT";
    /// A kind of object that the server does not create.
    BadType = "BADTYPE";
    /// No such extended attribute. RFC 8276 s8.5.2
    NoXattr = "NOXATTR";
    /// The value of an extended attribute is too long. RFC 8276 s8.5.2
    XattrTooBig = "XATTR2BIG";
    /// The server has started the operation, which takes long: try again later.
    Later = "JUKEBOX";
}

impl fmt::Debug for Status {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

/// Formats the name, or the number if there is none.
impl fmt::Display for Status {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Other(number) => write!(formatter, "status {number}"),
            known => formatter.write_str(known.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_shows_its_name_and_an_unknown_one_its_number() {
        assert_eq!(Status::NotFound.to_string(), "NOENT");
        assert_eq!(Status::Other(4711).to_string(), "status 4711");
        assert_eq!(Status::ALL.len(), 30);
    }
}
