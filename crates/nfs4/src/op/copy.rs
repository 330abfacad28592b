//! COPY and CLONE: copy a range of the saved file to the current file, or share its storage.
//! RFC 7862 s15.2, s15.13

use crate::array::Array;
use crate::wire::wire_fields;
use crate::{NetAddr, Stateid, Status, Wire};
use fs::{Stability, Verifier};
use xdr::{Error, Reader, Writer};

/// `CLONE4args`. RFC 7862 s15.13
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CloneArgs {
    /// An open of the saved file.
    pub source: Stateid,
    /// An open of the current file.
    pub target: Stateid,
    /// The first byte in the saved file.
    pub source_offset: u64,
    /// The first byte in the current file.
    pub target_offset: u64,
    /// The number of bytes; 0 reaches to the end of the saved file.
    pub count: u64,
}

wire_fields!(CloneArgs { source, target, source_offset, target_offset, count });

/// `CLONE4res`.
pub type CloneReply = Result<(), Status>;

/// `netloc4`: a server to copy from. RFC 7862 s4
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NetLocation<'a> {
    /// NL4_NAME: the server's name.
    Name(&'a [u8]),
    /// NL4_URL: a URL.
    Url(&'a [u8]),
    /// NL4_NETADDR: an address.
    Address(NetAddr<'a>),
}

impl<'a> Wire<'a> for NetLocation<'a> {
    fn decode(reader: &mut Reader<'a>) -> xdr::Result<Self> {
        match reader.u32()? {
            1 => Wire::decode(reader).map(Self::Name),
            2 => Wire::decode(reader).map(Self::Url),
            3 => Wire::decode(reader).map(Self::Address),
            value => Err(Error::BadDiscriminant { name: "netloc_type4", value }),
        }
    }

    fn encode(&self, writer: &mut Writer<'_>) {
        let (number, text) = match self {
            Self::Name(name) => (1, name),
            Self::Url(url) => (2, url),
            Self::Address(address) => {
                writer.u32(3);
                return address.encode(writer);
            }
        };
        writer.u32(number);
        text.encode(writer);
    }
}

/// `COPY4args`. RFC 7862 s15.2
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Args<'a> {
    /// An open of the saved file, or what COPY_NOTIFY of the source server returned.
    pub source: Stateid,
    /// An open of the current file.
    pub target: Stateid,
    /// The first byte in the saved file.
    pub source_offset: u64,
    /// The first byte in the current file.
    pub target_offset: u64,
    /// The number of bytes; 0 reaches to the end of the saved file.
    pub count: u64,
    /// Whether the bytes must be copied in order (`ca_consecutive`).
    pub consecutive: bool,
    /// Whether the copy must be done before the answer (`ca_synchronous`).
    pub synchronous: bool,
    /// The servers that have the saved file; none if it is this one.
    pub source_servers: Array<'a, NetLocation<'a>>,
}

wire_fields!(Args<'a> {
    source, target, source_offset, target_offset, count, consecutive, synchronous, source_servers,
});

/// `write_response4`: what was written so far. RFC 7862 s15.2
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteResponse {
    /// Names a copy that is still under way (`wr_callback_id`).
    pub callback_id: Option<Stateid>,
    /// The number of bytes written.
    pub count: u64,
    /// How safe the data are.
    pub committed: Stability,
    /// The verifier (`wr_writeverf`).
    pub verifier: Verifier,
}

wire_fields!(WriteResponse { callback_id, count, committed, verifier });

/// `copy_requirements4`: how the bytes were, or could be, copied. RFC 7862 s15.2.2
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Requirements {
    /// In order.
    pub consecutive: bool,
    /// Before the answer.
    pub synchronous: bool,
}

wire_fields!(Requirements { consecutive, synchronous });

/// `COPY4res`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// `COPY4resok`.
    Done(WriteResponse, Requirements),
    /// NFS4ERR_OFFLOAD_NO_REQS: what the server can do.
    CannotMeet(Requirements),
    /// Any other failure.
    Failed(Status),
}

impl Reply {
    /// The status on the wire.
    #[must_use]
    pub const fn status(&self) -> Status {
        match self {
            Self::Done(..) => Status::OK,
            Self::CannotMeet(_) => Status::OFFLOAD_NO_REQS,
            Self::Failed(status) => *status,
        }
    }
}

impl<'a> Wire<'a> for Reply {
    fn decode(reader: &mut Reader<'a>) -> xdr::Result<Self> {
        Ok(match Status::decode(reader)? {
            Status::OK => Self::Done(Wire::decode(reader)?, Wire::decode(reader)?),
            Status::OFFLOAD_NO_REQS => Self::CannotMeet(Wire::decode(reader)?),
            status => Self::Failed(status),
        })
    }

    fn encode(&self, writer: &mut Writer<'_>) {
        self.status().encode(writer);
        match self {
            Self::Done(response, requirements) => {
                response.encode(writer);
                requirements.encode(writer);
            }
            Self::CannotMeet(requirements) => requirements.encode(writer),
            Self::Failed(_) => {}
        }
    }
}
