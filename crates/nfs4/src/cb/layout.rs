//! CB_LAYOUTRECALL: recalls layouts. RFC 8881 s20.3

use crate::op::layout::IoMode;
use crate::wire::wire_fields;
use crate::{Fsid, Range, Stateid, Status, Wire};
use fs::FileHandle;
use xdr::{Error, Reader, Writer};

/// `layoutrecall4`: which layouts. RFC 8881 s20.3
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recalled {
    /// LAYOUTRECALL4_FILE: a range of a file (`layoutrecall_file4`).
    File {
        /// The file.
        file: FileHandle,
        /// The range.
        range: Range,
        /// The layout.
        stateid: Stateid,
    },
    /// LAYOUTRECALL4_FSID: all of a file system.
    FileSystem(Fsid),
    /// LAYOUTRECALL4_ALL: all of the client.
    All,
}

impl<'a> Wire<'a> for Recalled {
    fn decode(reader: &mut Reader<'a>) -> xdr::Result<Self> {
        Ok(match reader.u32()? {
            1 => Self::File {
                file: Wire::decode(reader)?,
                range: Wire::decode(reader)?,
                stateid: Wire::decode(reader)?,
            },
            2 => Self::FileSystem(Wire::decode(reader)?),
            3 => Self::All,
            value => return Err(Error::BadDiscriminant { name: "layoutrecall_type4", value }),
        })
    }

    fn encode(&self, writer: &mut Writer<'_>) {
        match self {
            Self::File { file, range, stateid } => {
                writer.u32(1);
                file.encode(writer);
                range.encode(writer);
                stateid.encode(writer);
            }
            Self::FileSystem(fsid) => {
                writer.u32(2);
                fsid.encode(writer);
            }
            Self::All => writer.u32(3),
        }
    }
}

/// `CB_LAYOUTRECALL4args`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecallArgs {
    /// The layout type.
    pub layout_type: u32,
    /// For reading, writing or both.
    pub mode: IoMode,
    /// Whether the layouts will be different ones afterwards, so that data should be written by
    /// them no more.
    pub changed: bool,
    /// Which layouts.
    pub recalled: Recalled,
}

wire_fields!(RecallArgs { layout_type, mode, changed, recalled });

/// `CB_LAYOUTRECALL4res`.
pub type Reply = Result<(), Status>;
