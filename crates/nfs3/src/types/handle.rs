//! File handles on the wire, RFC 1813 s2.6 (`nfs_fh3`).

use crate::{HANDLE_BYTES_MAX, Wire};
use xdr::{Reader, Result, Writer};

/// A handle of at most 64 bytes.
pub type FileHandle = fs::Handle<{ HANDLE_BYTES_MAX as usize }>;

impl<'a> Wire<'a> for FileHandle {
    #[inline]
    fn decode(reader: &mut Reader<'a>) -> Result<Self> {
        let bytes = reader.opaque(HANDLE_BYTES_MAX)?;
        // Never taken, as `opaque` has checked the same bound.
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
}
