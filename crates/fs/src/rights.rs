//! The rights of a caller to an object.

use std::ops::{BitAnd, BitOr};

/// Rights to an object, as a set. The bits are those of ACCESS. RFC 1813 s3.3.4, RFC 8881 s18.1
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Rights(pub u32);

impl Rights {
    /// Read a file, list a directory.
    pub const READ: Self = Self(0x01);
    /// Look a name up in a directory.
    pub const LOOKUP: Self = Self(0x02);
    /// Change data of a file, or entries of a directory.
    pub const MODIFY: Self = Self(0x04);
    /// Make a file longer, or add entries to a directory.
    pub const EXTEND: Self = Self(0x08);
    /// Delete an entry of a directory.
    pub const DELETE: Self = Self(0x10);
    /// Execute a file.
    pub const EXECUTE: Self = Self(0x20);
    /// Read the extended attributes of an object. RFC 8276 s8.2
    pub const READ_XATTRS: Self = Self(0x40);
    /// Change the extended attributes of an object. RFC 8276 s8.2
    pub const WRITE_XATTRS: Self = Self(0x80);
    /// List the extended attributes of an object. RFC 8276 s8.2
    pub const LIST_XATTRS: Self = Self(0x100);
    /// No right.
    pub const NONE: Self = Self(0);

    /// The rights of this set that `other` lacks.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether the set is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl BitAnd for Rights {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl BitOr for Rights {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}
