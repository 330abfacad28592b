//! SECINFO and SECINFO_NO_NAME: which security flavors an object has. RFC 8881 s18.29, s18.45

use super::create_session::GssService;
use crate::array::Array;
use crate::wire::{wire_enum, wire_fields};
use crate::{Status, Wire};
use xdr::{Reader, Writer};

/// `SECINFO4args`. RFC 8881 s18.29
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Args<'a> {
    /// A name in the current directory.
    pub name: &'a [u8],
}

wire_fields!(Args<'a> { name });

/// `secinfo_style4`: whose flavors. RFC 8881 s18.45
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Style {
    /// SECINFO_STYLE4_CURRENT_FH: those of the current object.
    Current,
    /// SECINFO_STYLE4_PARENT: those of its parent.
    Parent,
}

wire_enum!(Style { Current = 0, Parent = 1 });

/// `SECINFO_NO_NAME4args`. RFC 8881 s18.45
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoNameArgs {
    /// Whose flavors.
    pub style: Style,
}

wire_fields!(NoNameArgs { style });

/// The number of RPCSEC_GSS. RFC 2203 s4
const RPCSEC_GSS: u32 = 6;

/// `secinfo4`: a flavor. RFC 8881 s18.29
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavor<'a> {
    /// RPCSEC_GSS (`rpcsec_gss_info`).
    Gss {
        /// The mechanism's object identifier.
        mechanism: &'a [u8],
        /// The quality of protection.
        qop: u32,
        /// What is done to messages.
        service: GssService,
    },
    /// Any other flavor, by its number: AUTH_NONE 0, AUTH_SYS 1.
    Plain(u32),
}

impl<'a> Wire<'a> for Flavor<'a> {
    fn decode(reader: &mut Reader<'a>) -> xdr::Result<Self> {
        match reader.u32()? {
            RPCSEC_GSS => Ok(Self::Gss {
                mechanism: Wire::decode(reader)?,
                qop: Wire::decode(reader)?,
                service: Wire::decode(reader)?,
            }),
            flavor => Ok(Self::Plain(flavor)),
        }
    }

    fn encode(&self, writer: &mut Writer<'_>) {
        match self {
            Self::Gss { mechanism, qop, service } => {
                writer.u32(RPCSEC_GSS);
                mechanism.encode(writer);
                qop.encode(writer);
                service.encode(writer);
            }
            Self::Plain(flavor) => writer.u32(*flavor),
        }
    }
}

/// `SECINFO4res` and `SECINFO_NO_NAME4res`: the flavors, the preferred one first. A success takes
/// the current handle away. RFC 8881 s2.6.3.1.1.8
pub type Reply<'a> = Result<Array<'a, Flavor<'a>>, Status>;
