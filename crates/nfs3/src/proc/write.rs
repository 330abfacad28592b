//! WRITE: writes data of a file. The data travel beside the message; only what precedes them is
//! encoded here. RFC 1813 s3.3.7

use super::read::same_length;
use crate::wire::{wire_enum, wire_fields};
use crate::{FileHandle, Outcome, Verifier, WccData, Wire};
use xdr::{Reader, Result, Writer};

/// `stable_how`: how safe the data must be before the reply. RFC 1813 s3.3.7
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stable {
    /// UNSTABLE: the data may be lost until a COMMIT.
    Unstable,
    /// DATA_SYNC: the data are safe, with the metadata needed to find them.
    DataSync,
    /// FILE_SYNC: the data are safe, with all attributes.
    FileSync,
}

wire_enum!(Stable { Unstable = 0, DataSync = 1, FileSync = 2 });

/// `WRITE3args` up to and including the length of the data; the data and their padding follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArgsHead {
    /// The file.
    pub file: FileHandle,
    /// The first byte.
    pub offset: u64,
    /// The number of bytes.
    pub count: u32,
    /// How safe the data must be.
    pub stable: Stable,
    /// The number of bytes that follow; the same as `count`.
    pub data_len: u32,
}

impl<'a> Wire<'a> for ArgsHead {
    /// Leaves `reader` at the first byte of the data; `data_len` bytes follow. Does not check that
    /// the data have arrived. Refuses a length of the data other than `count`, as the Linux server
    /// does.
    #[inline]
    fn decode(reader: &mut Reader<'a>) -> Result<Self> {
        let head = Self {
            file: Wire::decode(reader)?,
            offset: Wire::decode(reader)?,
            count: Wire::decode(reader)?,
            stable: Wire::decode(reader)?,
            data_len: Wire::decode(reader)?,
        };
        same_length(head.data_len, head.count)?;
        Ok(head)
    }

    #[inline]
    fn encode(&self, writer: &mut Writer<'_>) {
        debug_assert_eq!(self.count, self.data_len, "a WRITE has one length");
        self.file.encode(writer);
        writer.u64(self.offset);
        writer.u32(self.count);
        self.stable.encode(writer);
        writer.u32(self.data_len);
    }
}

/// The content of a call before its data.
pub type Args = ArgsHead;

/// `WRITE3resok`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Success {
    /// The file before and after (`file_wcc`).
    pub file: WccData,
    /// The number of bytes written, which may be fewer than were sent.
    pub count: u32,
    /// How safe the data are.
    pub committed: Stable,
    /// The verifier (`verf`), which changes when unstable data may have been lost.
    pub verifier: Verifier,
}

wire_fields!(Success { file, count, committed, verifier });

/// `WRITE3resfail`: the file before and after.
pub type Failure = WccData;

/// `WRITE3res`.
pub type Reply = Outcome<Success, Failure>;
