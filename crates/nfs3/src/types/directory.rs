//! A name in a directory, RFC 1813 s2.6 (`diropargs3`), and the strings of the protocol.

use super::FileHandle;
use crate::{CALL_TEXT_BYTES_MAX, Wire};
use xdr::{Reader, Result, Writer};

/// `diropargs3`: a directory and a name in it. RFC 1813 s2.6
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirOpArgs<'a> {
    /// The directory.
    pub directory: FileHandle,
    /// The name: any bytes, not necessarily UTF-8, of any length.
    pub name: &'a [u8],
}

impl<'a> Wire<'a> for DirOpArgs<'a> {
    #[inline]
    fn decode(reader: &mut Reader<'a>) -> Result<Self> {
        Ok(Self { directory: Wire::decode(reader)?, name: reader.opaque(CALL_TEXT_BYTES_MAX)? })
    }

    #[inline]
    fn encode(&self, writer: &mut Writer<'_>) {
        self.directory.encode(writer);
        writer.opaque(self.name);
    }
}

/// The encoded size of opaque data of `len` bytes: length, data and padding. RFC 4506 s4.10
pub(crate) const fn opaque_bytes(len: usize) -> usize {
    4 + len + xdr::padding(len)
}
