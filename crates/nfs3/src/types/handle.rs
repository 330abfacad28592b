//! File handles, RFC 1813 s2.6 (`nfs_fh3`), kept inline so that they are copied without an
//! allocation.

use crate::{HANDLE_BYTES_MAX, Wire};
use std::fmt;
use std::hash::{Hash, Hasher};
use xdr::{Reader, Result, Writer};

const CAPACITY: usize = HANDLE_BYTES_MAX as usize;

/// Identifies an object to the server that created the handle; opaque to everyone else. At most 64
/// bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FileHandle {
    /// Zero after `len`, so that the derived comparison compares the handles.
    bytes: [u8; CAPACITY],
    len: u8,
}

impl FileHandle {
    /// The empty handle, which no server returns.
    pub const EMPTY: Self = Self { bytes: [0; CAPACITY], len: 0 };

    /// Creates a handle; `None` above 64 bytes.
    #[must_use]
    #[inline]
    pub fn new(handle: &[u8]) -> Option<Self> {
        let len = u8::try_from(handle.len()).ok()?;
        let mut bytes = [0; CAPACITY];
        bytes.get_mut(..handle.len())?.copy_from_slice(handle);
        Some(Self { bytes, len })
    }

    /// The bytes on the wire.
    #[must_use]
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }
}

impl Hash for FileHandle {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_slice().hash(state);
    }
}

impl fmt::Debug for FileHandle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

/// Formats the handle in hexadecimal.
impl fmt::Display for FileHandle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_slice().iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl<'a> Wire<'a> for FileHandle {
    #[inline]
    fn decode(reader: &mut Reader<'a>) -> Result<Self> {
        let bytes = reader.opaque(HANDLE_BYTES_MAX)?;
        // This error does not occur: `opaque` has checked the same bound.
        Self::new(bytes).ok_or(xdr::Error::TooLong { len: u32::MAX, max: HANDLE_BYTES_MAX })
    }

    #[inline]
    fn encode(&self, writer: &mut Writer<'_>) {
        writer.opaque(self.as_slice());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_above_64_bytes_is_none() {
        assert_eq!(FileHandle::new(&[7; 64]).unwrap().as_slice(), [7; 64]);
        assert_eq!(FileHandle::new(&[7; 65]), None);
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
