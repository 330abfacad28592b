//! CREATE: creates a regular file. RFC 1813 s3.3.8

use crate::wire::wire_fields;
use crate::{Created, DirOpArgs, Outcome, Sattr3, Verifier, WccData, Wire};
use xdr::{Reader, Result, Writer};

/// `createhow3`: what to do if the name exists. RFC 1813 s3.3.8
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// UNCHECKED: use an existing file, and set these attributes.
    Unchecked(Sattr3),
    /// GUARDED: an existing name is an error.
    Guarded(Sattr3),
    /// EXCLUSIVE: an existing file that was created with the same verifier is a success.
    Exclusive(Verifier),
}

impl<'a> Wire<'a> for How {
    fn decode(reader: &mut Reader<'a>) -> Result<Self> {
        match reader.u32()? {
            0 => Wire::decode(reader).map(Self::Unchecked),
            1 => Wire::decode(reader).map(Self::Guarded),
            2 => Wire::decode(reader).map(Self::Exclusive),
            value => Err(xdr::Error::BadDiscriminant { name: "createmode3", value }),
        }
    }

    fn encode(&self, writer: &mut Writer<'_>) {
        match self {
            Self::Unchecked(attributes) => {
                writer.u32(0);
                attributes.encode(writer);
            }
            Self::Guarded(attributes) => {
                writer.u32(1);
                attributes.encode(writer);
            }
            Self::Exclusive(verifier) => {
                writer.u32(2);
                verifier.encode(writer);
            }
        }
    }
}

/// `CREATE3args`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Args<'a> {
    /// The directory and the new name (`where`).
    pub location: DirOpArgs<'a>,
    /// What to do if the name exists.
    pub how: How,
}

wire_fields!(Args<'a> { location, how });

/// `CREATE3resok`.
pub type Success = Created;

/// `CREATE3resfail`: the directory before and after (`dir_wcc`).
pub type Failure = WccData;

/// `CREATE3res`.
pub type Reply = Outcome<Success, Failure>;
