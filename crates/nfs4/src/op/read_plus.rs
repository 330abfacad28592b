//! READ_PLUS: reads data and holes of the current file. RFC 7862 s15.10
//!
//! A receiver has all segments as [`Success`]. A sender has its data beside the message, so it
//! writes [`DataHead`]: at most a hole and then data, which come last. RFC 8267 s5 asks for no more
//! than two segments over RDMA.

use crate::array::Array;
use crate::wire::wire_fields;
use crate::{Range, Stateid, Status, Wire};
use xdr::{Error, Reader, Writer};

/// `READ_PLUS4args`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Args {
    /// An open, a lock or a delegation; or [`Stateid::ANONYMOUS`].
    pub stateid: Stateid,
    /// The first byte.
    pub offset: u64,
    /// The number of bytes.
    pub count: u32,
}

wire_fields!(Args { stateid, offset, count });

const DATA: u32 = 0;
const HOLE: u32 = 1;

/// `read_plus_content`: a segment. RFC 7862 s15.10
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Segment<'a> {
    /// NFS4_CONTENT_DATA.
    Data {
        /// The first byte.
        offset: u64,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// NFS4_CONTENT_HOLE: zeros.
    Hole(Range),
}

impl<'a> Wire<'a> for Segment<'a> {
    fn decode(reader: &mut Reader<'a>) -> xdr::Result<Self> {
        match reader.u32()? {
            DATA => Ok(Self::Data { offset: Wire::decode(reader)?, bytes: Wire::decode(reader)? }),
            HOLE => Wire::decode(reader).map(Self::Hole),
            value => Err(Error::BadDiscriminant { name: "data_content4", value }),
        }
    }

    fn encode(&self, writer: &mut Writer<'_>) {
        match self {
            Self::Data { offset, bytes } => {
                writer.u32(DATA);
                offset.encode(writer);
                bytes.encode(writer);
            }
            Self::Hole(range) => {
                writer.u32(HOLE);
                range.encode(writer);
            }
        }
    }
}

/// `read_plus_res4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Success<'a> {
    /// Whether the file ends with these bytes.
    pub eof: bool,
    /// The segments, in ascending order.
    pub segments: Array<'a, Segment<'a>>,
}

wire_fields!(Success<'a> { eof, segments });

/// `READ_PLUS4res`.
pub type Reply<'a> = Result<Success<'a>, Status>;

/// `read_plus_res4` with data in the last segment, up to and including the length of the data. The
/// data and their padding follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataHead {
    /// Whether the file ends with these bytes.
    pub eof: bool,
    /// A hole before the data.
    pub hole: Option<Range>,
    /// The first byte of the data.
    pub offset: u64,
    /// The number of bytes that follow.
    pub count: u32,
}

impl DataHead {
    /// Appends the head.
    pub fn encode(&self, writer: &mut Writer<'_>) {
        writer.bool(self.eof);
        writer.u32(1 + u32::from(self.hole.is_some()));
        if let Some(hole) = self.hole {
            Segment::Hole(hole).encode(writer);
        }
        writer.u32(DATA);
        writer.u64(self.offset);
        writer.u32(self.count);
    }
}
