//! Status numbers. RFC 1813 s6.1.3 (`nlm4_stats`)

use crate::Wire;
use std::fmt;
use xdr::{Reader, Result, Writer};

/// The outcome of a request. A number that is not in the standard is kept.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status(pub u32);

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $number:literal;)+) => {
        impl Status {
            $($(#[$doc])* pub const $name: Self = Self($number);)+

            /// Every status of the standard.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// The name without its prefix; `None` for a number that is not in the standard.
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
    /// Done.
    GRANTED = 0;
    /// Another lock is in the way.
    DENIED = 1;
    /// The server has no room for it.
    DENIED_NOLOCKS = 2;
    /// Another lock is in the way; the server calls back when the lock is granted.
    BLOCKED = 3;
    /// The server has restarted, and grants reclaims only.
    DENIED_GRACE_PERIOD = 4;
    /// To wait would never end.
    DEADLCK = 5;
    /// The file system is read-only.
    ROFS = 6;
    /// The handle's file is gone.
    STALE_FH = 7;
    /// A range above what the server can lock.
    FBIG = 8;
    /// Any other failure.
    FAILED = 9;
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
    fn decode(reader: &mut Reader<'a>) -> Result<Self> {
        reader.u32().map(Self)
    }

    fn encode(&self, writer: &mut Writer<'_>) {
        writer.u32(self.0);
    }
}
