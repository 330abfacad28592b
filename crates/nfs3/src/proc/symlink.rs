//! SYMLINK: creates a symbolic link. RFC 1813 s3.3.10

use crate::{CALL_TEXT_BYTES_MAX, Created, DirOpArgs, Outcome, Sattr3, WccData, Wire};
use xdr::{Reader, Result, Writer};

/// `SYMLINK3args`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Args<'a> {
    /// The directory and the new name (`where`).
    pub location: DirOpArgs<'a>,
    /// The new link's attributes (`symlink_attributes`).
    pub attributes: Sattr3,
    /// The target (`symlink_data`): any bytes, of any length.
    pub target: &'a [u8],
}

impl<'a> Wire<'a> for Args<'a> {
    fn decode(reader: &mut Reader<'a>) -> Result<Self> {
        Ok(Self {
            location: Wire::decode(reader)?,
            attributes: Wire::decode(reader)?,
            target: reader.opaque(CALL_TEXT_BYTES_MAX)?,
        })
    }

    fn encode(&self, writer: &mut Writer<'_>) {
        self.location.encode(writer);
        self.attributes.encode(writer);
        writer.opaque(self.target);
    }
}

/// `SYMLINK3resok`.
pub type Success = Created;

/// `SYMLINK3resfail`: the directory before and after (`dir_wcc`).
pub type Failure = WccData;

/// `SYMLINK3res`.
pub type Reply = Outcome<Success, Failure>;
