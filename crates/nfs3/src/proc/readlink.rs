//! READLINK: reads the target of a symbolic link. RFC 1813 s3.3.5

use crate::wire::wire_fields;
use crate::{FileHandle, Outcome, PATH_WIRE_BYTES_MAX, PostOpAttr, Wire};
use xdr::{Reader, Result, Writer};

/// `READLINK3args`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Args {
    /// The link.
    pub symlink: FileHandle,
}

wire_fields!(Args { symlink });

/// `READLINK3resok`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Success<'a> {
    /// The link's attributes (`symlink_attributes`).
    pub attributes: PostOpAttr,
    /// The target (`data`): any bytes, at most [`PATH_WIRE_BYTES_MAX`].
    pub target: &'a [u8],
}

impl<'a> Wire<'a> for Success<'a> {
    fn decode(reader: &mut Reader<'a>) -> Result<Self> {
        Ok(Self { attributes: Wire::decode(reader)?, target: reader.opaque(PATH_WIRE_BYTES_MAX)? })
    }

    fn encode(&self, writer: &mut Writer<'_>) {
        self.attributes.encode(writer);
        writer.opaque(self.target);
    }
}

/// `READLINK3resfail`: the link's attributes.
pub type Failure = PostOpAttr;

/// `READLINK3res`.
pub type Reply<'a> = Outcome<Success<'a>, Failure>;
