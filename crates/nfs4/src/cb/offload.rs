//! CB_OFFLOAD: how a copy ended. RFC 7862 s16.1

use crate::op::copy::WriteResponse;
use crate::wire::wire_fields;
use crate::{Stateid, Status, Wire};
use fs::FileHandle;
use xdr::{Reader, Writer};

/// `offload_info4`. RFC 7862 s16.1
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The copy is done.
    Done(WriteResponse),
    /// The copy failed.
    Failed {
        /// Why.
        status: Status,
        /// The number of bytes that were copied.
        count: u64,
    },
}

impl<'a> Wire<'a> for Ended {
    fn decode(reader: &mut Reader<'a>) -> xdr::Result<Self> {
        Ok(match Status::decode(reader)? {
            Status::OK => Self::Done(Wire::decode(reader)?),
            status => Self::Failed { status, count: reader.u64()? },
        })
    }

    fn encode(&self, writer: &mut Writer<'_>) {
        match self {
            Self::Done(response) => {
                Status::OK.encode(writer);
                response.encode(writer);
            }
            Self::Failed { status, count } => {
                debug_assert!(*status != Status::OK, "a failure has a status of its own");
                status.encode(writer);
                writer.u64(*count);
            }
        }
    }
}

/// `CB_OFFLOAD4args`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Args {
    /// The file that was copied to.
    pub file: FileHandle,
    /// The copy.
    pub copy: Stateid,
    /// How it ended.
    pub ended: Ended,
}

wire_fields!(Args { file, copy, ended });

/// `CB_OFFLOAD4res`.
pub type Reply = Result<(), Status>;
