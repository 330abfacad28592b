//! GETATTR and SETATTR. RFC 8881 s18.7, s18.30

use crate::wire::wire_fields;
use crate::{Bitmap, Fattr, Stateid, Status, Wire};
use xdr::{Reader, Writer};

/// `GETATTR4args`. RFC 8881 s18.7
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Args {
    /// The attributes to return; those that the server does not support are left out.
    pub wanted: Bitmap,
}

wire_fields!(Args { wanted });

/// `GETATTR4resok`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Success<'a> {
    /// The attributes.
    pub attributes: Fattr<'a>,
}

wire_fields!(Success<'a> { attributes });

/// `GETATTR4res`.
pub type Reply<'a> = Result<Success<'a>, Status>;

/// `SETATTR4args`. RFC 8881 s18.30
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SetArgs<'a> {
    /// An open for writing if the size is set; otherwise [`Stateid::ANONYMOUS`].
    pub stateid: Stateid,
    /// The attributes to set.
    pub attributes: Fattr<'a>,
}

wire_fields!(SetArgs<'a> { stateid, attributes });

/// `SETATTR4res`: which attributes were set stands there after a failure too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SetReply {
    /// The outcome.
    pub status: Status,
    /// Which attributes were set (`attrsset`).
    pub set: Bitmap,
}

impl SetReply {
    /// A failure that set nothing.
    #[must_use]
    pub const fn failed(status: Status) -> Self {
        Self { status, set: Bitmap::EMPTY }
    }
}

impl<'a> Wire<'a> for SetReply {
    fn decode(reader: &mut Reader<'a>) -> xdr::Result<Self> {
        Ok(Self { status: Wire::decode(reader)?, set: Wire::decode(reader)? })
    }

    fn encode(&self, writer: &mut Writer<'_>) {
        self.status.encode(writer);
        self.set.encode(writer);
    }
}
