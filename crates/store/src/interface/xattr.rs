//! Extended attributes: names, bounds, and the cookies of their listings. RFC 8276
//!
//! All are attributes of the user (`user.` on Linux), which is the one kind that RFC 8276 has;
//! names are without that prefix.

use super::{Result, Status};
use siphasher::sip::SipHasher24;
use std::ffi::CString;
use std::hash::Hasher;

/// The prefix that Linux has and clients do not see.
const PREFIX: &[u8] = b"user.";
/// The longest name with its prefix, as Linux has it (`XATTR_NAME_MAX`).
const PREFIXED_BYTES_MAX: usize = 255;
/// The longest name.
pub const XATTR_NAME_BYTES_MAX: usize = PREFIXED_BYTES_MAX - PREFIX.len();
/// The longest value, as Linux has it (`XATTR_SIZE_MAX`). A file system may have less room.
pub const XATTR_VALUE_BYTES_MAX: usize = 64 << 10;

/// What to do about an existing extended attribute with the same name, and about a missing one. RFC
/// 8276 s8.4.2 (setxattr_option4)
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetXattr {
    /// Create or replace.
    Either,
    /// An existing one is [`Status::Exists`].
    Create,
    /// A missing one is [`Status::NoXattr`].
    Replace,
}

/// A name with the prefix, for the system. Refuses what cannot be a name.
pub(crate) fn xattr_name(name: &[u8]) -> Result<CString> {
    if name.is_empty() {
        return Err(Status::Invalid);
    }
    if name.len() > XATTR_NAME_BYTES_MAX {
        return Err(Status::NameTooLong);
    }
    CString::new([PREFIX, name].concat()).map_err(|_| Status::Invalid)
}

/// The name that clients see, of one that the system has; `None` for one that is not the user's.
pub(crate) fn user_name(name: &[u8]) -> Option<&[u8]> {
    name.strip_prefix(PREFIX).filter(|name| !name.is_empty())
}

/// The place of a name in listings, which are in the order of these: it depends on nothing else, so
/// it stays while other names come and go, over restarts, and in all processes of a group. Two
/// names of one object with one place are as good as impossible: a listing that ends a page between
/// them would leave the second out.
pub(crate) fn xattr_cookie(name: &[u8]) -> u64 {
    let mut hasher = SipHasher24::new();
    hasher.write(name);
    // 63 bits, because clients may take cookies as signed; and not 0, which is the start.
    (hasher.finish() >> 1).max(1)
}
