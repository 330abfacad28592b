//! How a store names an object, and how the name fits into a file handle.
//!
//! A name is a file number and up to [`NAME_BYTES_MAX`] bytes that only the store interprets: a
//! memory store keeps a generation there, a directory store the kernel's own handle of the file.
//! Both are part of the handle that a client sees, so a store needs no table to find the object
//! again.

use std::fmt;

/// The most bytes after the file number: together with the number and with the bytes that the
/// server adds (16 bytes), they fit into the 64 bytes of a file handle. RFC 1813 s2.4 (NFS3_FHSIZE)
pub const NAME_BYTES_MAX: usize = 39;

/// Names an object for as long as it lives; a new object in a reused place has a different name.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ObjectId {
    /// The inode number that `stat` shows.
    pub fileid: u64,
    /// Zero after `len`, so that the derived comparison compares the names.
    bytes: [u8; NAME_BYTES_MAX],
    len: u8,
}

impl ObjectId {
    /// The name of an object of a store that numbers its objects: `generation` distinguishes
    /// objects that had the same number one after the other.
    #[must_use]
    #[inline]
    pub const fn new(fileid: u64, generation: u64) -> Self {
        let mut bytes = [0; NAME_BYTES_MAX];
        let [a, b, c, d, e, f, g, h] = generation.to_be_bytes();
        [bytes[0], bytes[1], bytes[2], bytes[3]] = [a, b, c, d];
        [bytes[4], bytes[5], bytes[6], bytes[7]] = [e, f, g, h];
        Self { fileid, bytes, len: 8 }
    }

    /// An object with a name defined by the store; `None` if the name is longer than
    /// [`NAME_BYTES_MAX`].
    #[must_use]
    #[inline]
    pub fn named(fileid: u64, name: &[u8]) -> Option<Self> {
        let len = u8::try_from(name.len()).ok()?;
        let mut bytes = [0; NAME_BYTES_MAX];
        bytes.get_mut(..name.len())?.copy_from_slice(name);
        Some(Self { fileid, bytes, len })
    }

    /// The bytes after the file number.
    #[must_use]
    #[inline]
    pub fn name(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.fileid)?;
        self.name().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generation_is_a_name_of_eight_bytes() {
        let numbered = ObjectId::new(7, 0x0102);
        assert_eq!(numbered.name(), [0, 0, 0, 0, 0, 0, 1, 2]);
        assert_eq!(ObjectId::named(7, numbered.name()), Some(numbered));
        assert_ne!(ObjectId::named(7, &[0, 0, 0, 0, 0, 0, 1, 2, 0]), Some(numbered), "the length counts");
        assert_eq!(ObjectId::named(7, &[1; NAME_BYTES_MAX + 1]), None);
    }
}
