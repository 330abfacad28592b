//! READ: reads data of a file. The data travel beside the message; only what precedes them is
//! encoded here. RFC 1813 s3.3.6

use crate::wire::wire_fields;
use crate::{FileHandle, Outcome, PostOpAttr, Wire};
use xdr::{Reader, Result, Writer};

/// `READ3args`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Args {
    /// The file.
    pub file: FileHandle,
    /// The first byte.
    pub offset: u64,
    /// The number of bytes.
    pub count: u32,
}

wire_fields!(Args { file, offset, count });

/// `READ3resok` up to and including the length of the data. `count` bytes of data and their padding
/// follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyHead {
    /// The file's attributes (`file_attributes`).
    pub attributes: PostOpAttr,
    /// The number of bytes that follow.
    pub count: u32,
    /// Whether the file ends with these bytes.
    pub eof: bool,
}

impl<'a> Wire<'a> for ReplyHead {
    /// Leaves `reader` at the first byte of the data; [`ReplyHead::count`] bytes follow. Does not
    /// check that the data have arrived. Refuses a length of the data other than `count`.
    #[inline]
    fn decode(reader: &mut Reader<'a>) -> Result<Self> {
        let head = Self {
            attributes: Wire::decode(reader)?,
            count: Wire::decode(reader)?,
            eof: Wire::decode(reader)?,
        };
        same_length(reader.u32()?, head.count)?;
        Ok(head)
    }

    /// Writes `count` also as the length of the data.
    #[inline]
    fn encode(&self, writer: &mut Writer<'_>) {
        self.attributes.encode(writer);
        writer.u32(self.count);
        writer.bool(self.eof);
        writer.u32(self.count);
    }
}

/// READ and WRITE have both a count and the length of their data. The two must be equal: trusting
/// either of two different numbers would lose or invent bytes.
pub(super) const fn same_length(len: u32, count: u32) -> Result<()> {
    if len > count {
        return Err(xdr::Error::TooLong { len, max: count });
    }
    if len < count {
        return Err(xdr::Error::Short { needed: count as u64, remaining: len as usize });
    }
    Ok(())
}

/// The content of a success before its data.
pub type Success = ReplyHead;

/// `READ3resfail`: the file's attributes.
pub type Failure = PostOpAttr;

/// `READ3res` up to the data.
pub type Reply = Outcome<Success, Failure>;
