//! Status numbers, RFC 1813 s2.6 (`nfsstat3`) and s5.1.5 (`mountstat3`, a subset of the same
//! numbers).

use crate::Wire;
use std::fmt;
use xdr::{Reader, Result, Writer};

/// The outcome of a call. A number that is not in the standard is kept, because a client can only
/// pass the number on.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status(pub u32);

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $number:literal;)+) => {
        impl Status {
            $($(#[$doc])* pub const $name: Self = Self($number);)+

            /// Every status of the standard.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// The name in RFC 1813 without its prefix; `None` for a number that is not in the
            /// standard.
            #[must_use]
            pub const fn known_name(self) -> Option<&'static str> {
                match self {
                    $(Self::$name => Some(stringify!($name)),)+
                    _ => None,
                }
            }
        }
    };
}

statuses! {
    /// Success.
    OK = 0;
    /// Only the owner (or root) may do this.
    PERM = 1;
    /// No such file or directory.
    NOENT = 2;
    /// A hard error, such as of a disk.
    IO = 5;
    /// No such device or address.
    NXIO = 6;
    /// Permission denied.
    ACCES = 13;
    /// The name already exists.
    EXIST = 17;
    /// A hard link or a rename would cross file systems.
    XDEV = 18;
    /// No such device.
    NODEV = 19;
    /// Not a directory.
    NOTDIR = 20;
    /// A directory where none is allowed.
    ISDIR = 21;
    /// Invalid argument, or an unsupported one.
    INVAL = 22;
    /// Above the maximum file size.
    FBIG = 27;
    /// No space left.
    NOSPC = 28;
    /// A read-only file system.
    ROFS = 30;
    /// Too many hard links.
    MLINK = 31;
    /// The name is too long.
    NAMETOOLONG = 63;
    /// The directory is not empty.
    NOTEMPTY = 66;
    /// The quota is used up.
    DQUOT = 69;
    /// The handle's object is gone.
    STALE = 70;
    /// Too many levels of remote in a path.
    REMOTE = 71;
    /// The handle does not belong to this server.
    BADHANDLE = 10001;
    /// The guard of a SETATTR did not match.
    NOT_SYNC = 10002;
    /// The cookie of a listing is stale.
    BAD_COOKIE = 10003;
    /// Not supported.
    NOTSUPP = 10004;
    /// The buffer or request is too small.
    TOOSMALL = 10005;
    /// A fault of the server that no other status describes.
    SERVERFAULT = 10006;
    /// A type that the server does not create.
    BADTYPE = 10007;
    /// The server has started the operation, which takes long: try again later.
    JUKEBOX = 10008;
}

impl Status {
    /// The name in RFC 1813 without its prefix; `UNKNOWN` for a number that is not in the standard.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self.known_name() {
            Some(name) => name,
            None => "UNKNOWN",
        }
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

/// Formats the name, or the number if there is no name.
impl fmt::Display for Status {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.known_name() {
            Some(name) => formatter.write_str(name),
            None => write!(formatter, "status {}", self.0),
        }
    }
}

impl<'a> Wire<'a> for Status {
    #[inline]
    fn decode(reader: &mut Reader<'a>) -> Result<Self> {
        reader.u32().map(Self)
    }

    #[inline]
    fn encode(&self, writer: &mut Writer<'_>) {
        writer.u32(self.0);
    }
}
