//! File handles, kept inline so that they are copied without an allocation.

use std::fmt;
use std::hash::{Hash, Hasher};

/// The longest file handle of any protocol: that of NFS version 4. RFC 8881 s2.2 (NFS4_FHSIZE)
pub const HANDLE_BYTES_MAX: usize = 128;

/// A handle of any protocol.
pub type FileHandle = Handle<HANDLE_BYTES_MAX>;

/// Identifies an object to the server that created the handle; opaque to everyone else. A protocol
/// with shorter handles has a smaller `MAX`, at most 255.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Handle<const MAX: usize> {
    /// Zero after `len`, so that the derived comparison compares the handles.
    bytes: [u8; MAX],
    len: u8,
}

impl<const MAX: usize> Handle<MAX> {
    /// The empty handle, which no server returns.
    pub const EMPTY: Self = Self { bytes: [0; MAX], len: 0 };

    /// Creates a handle; `None` if it is longer than `MAX`.
    #[must_use]
    #[inline]
    pub fn new(handle: &[u8]) -> Option<Self> {
        let len = u8::try_from(handle.len()).ok()?;
        let mut bytes = [0; MAX];
        bytes.get_mut(..handle.len())?.copy_from_slice(handle);
        Some(Self { bytes, len })
    }

    /// The bytes of the handle.
    #[must_use]
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }
}

impl<const MAX: usize> Hash for Handle<MAX> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_slice().hash(state);
    }
}

impl<const MAX: usize> fmt::Debug for Handle<MAX> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

/// Formats the handle in hexadecimal.
impl<const MAX: usize> fmt::Display for Handle<MAX> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_slice().iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_has_room_for_128_bytes_and_no_more() {
        assert_eq!(FileHandle::new(&[7; 128]).unwrap().as_slice(), [7; 128]);
        assert_eq!(FileHandle::new(&[7; 129]), None);
        assert_eq!(FileHandle::new(&[7; 256]), None);
    }

    #[test]
    fn handles_that_differ_in_length_only_differ() {
        assert_ne!(FileHandle::new(&[0; 3]), FileHandle::new(&[0; 4]));
    }

    #[test]
    fn a_handle_shows_as_hexadecimal() {
        assert_eq!(FileHandle::new(&[0, 0xab]).unwrap().to_string(), "00ab");
    }
}
