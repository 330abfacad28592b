//! CREATE_SESSION and DESTROY_SESSION. RFC 8881 s18.36, s18.37

use crate::array::{Array, Opaque};
use crate::wire::{wire_enum, wire_fields};
use crate::{ClientId, SessionId, Status, Wire};
use xdr::{Error, Reader, Writer};

/// Keep the session over a restart of the server. RFC 8881 s18.36.3
pub const PERSIST: u32 = 0x1;
/// The connection is to carry callbacks too. RFC 8881 s18.36.3
pub const CONN_BACK_CHAN: u32 = 0x2;
/// The connection is to change to RDMA mode. RFC 8881 s18.36.3
pub const CONN_RDMA: u32 = 0x4;

/// `channel_attrs4`: the limits of one direction. RFC 8881 s18.36
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ChannelAttributes {
    /// Padding between header and payload; 0 for none.
    pub header_pad: u32,
    /// The longest request, with its RPC header.
    pub request_max: u32,
    /// The longest reply, with its RPC header.
    pub reply_max: u32,
    /// The longest reply that is kept.
    pub cached_reply_max: u32,
    /// The most operations of a request.
    pub operations_max: u32,
    /// The most requests at a time: the number of slots.
    pub requests_max: u32,
    /// The number of RDMA Reads in flight.
    pub rdma_ird: Option<u32>,
}

wire_fields!(ChannelAttributes {
    header_pad,
    request_max,
    reply_max,
    cached_reply_max,
    operations_max,
    requests_max,
    rdma_ird,
});

/// `rpc_gss_svc_t`: what RPCSEC_GSS does to messages. RFC 2203 s5.3.1
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GssService {
    /// Nothing.
    None,
    /// Protects their integrity.
    Integrity,
    /// Encrypts them.
    Privacy,
}

wire_enum!(GssService { None = 1, Integrity = 2, Privacy = 3 });

/// `callback_sec_parms4`: a credential that callbacks may have. RFC 8881 s18.33
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallbackSecurity<'a> {
    /// AUTH_NONE.
    None,
    /// AUTH_SYS.
    Sys {
        /// Any number.
        stamp: u32,
        /// The server's name for itself.
        machine: Opaque<'a, 255>,
        /// The user.
        uid: u32,
        /// The group.
        gid: u32,
        /// Further groups, at most 16.
        gids: Array<'a, u32>,
    },
    /// RPCSEC_GSS.
    Gss {
        /// What is done to messages.
        service: GssService,
        /// The context at the server.
        from_server: &'a [u8],
        /// The context at the client.
        from_client: &'a [u8],
    },
}

/// The most groups of AUTH_SYS. RFC 5531 appendix A
const GIDS_MAX: u32 = 16;

impl<'a> Wire<'a> for CallbackSecurity<'a> {
    fn decode(reader: &mut Reader<'a>) -> xdr::Result<Self> {
        Ok(match reader.u32()? {
            0 => Self::None,
            1 => {
                let (stamp, machine) = (Wire::decode(reader)?, Wire::decode(reader)?);
                let (uid, gid) = (Wire::decode(reader)?, Wire::decode(reader)?);
                reader.clone().length(GIDS_MAX)?;
                Self::Sys { stamp, machine, uid, gid, gids: Wire::decode(reader)? }
            }
            6 => Self::Gss {
                service: Wire::decode(reader)?,
                from_server: Wire::decode(reader)?,
                from_client: Wire::decode(reader)?,
            },
            value => return Err(Error::BadDiscriminant { name: "cb_secflavor", value }),
        })
    }

    fn encode(&self, writer: &mut Writer<'_>) {
        match self {
            Self::None => writer.u32(0),
            Self::Sys { stamp, machine, uid, gid, gids } => {
                writer.u32(1);
                stamp.encode(writer);
                machine.encode(writer);
                uid.encode(writer);
                gid.encode(writer);
                gids.encode(writer);
            }
            Self::Gss { service, from_server, from_client } => {
                writer.u32(6);
                service.encode(writer);
                from_server.encode(writer);
                from_client.encode(writer);
            }
        }
    }
}

/// `CREATE_SESSION4args`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Args<'a> {
    /// The client, from EXCHANGE_ID.
    pub client: ClientId,
    /// The number of this CREATE_SESSION among the client's, starting with that of EXCHANGE_ID.
    pub sequence: u32,
    /// [`PERSIST`], [`CONN_BACK_CHAN`], [`CONN_RDMA`].
    pub flags: u32,
    /// Limits of requests.
    pub fore: ChannelAttributes,
    /// Limits of callbacks.
    pub back: ChannelAttributes,
    /// The program number of callbacks.
    pub callback_program: u32,
    /// The credentials that callbacks may have.
    pub callback_security: Array<'a, CallbackSecurity<'a>>,
}

wire_fields!(Args<'a> { client, sequence, flags, fore, back, callback_program, callback_security });

/// `CREATE_SESSION4resok`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Success {
    /// The session.
    pub session: SessionId,
    /// The number of the request.
    pub sequence: u32,
    /// Which of the flags the server agrees to.
    pub flags: u32,
    /// Limits of requests.
    pub fore: ChannelAttributes,
    /// Limits of callbacks.
    pub back: ChannelAttributes,
}

wire_fields!(Success { session, sequence, flags, fore, back });

/// `CREATE_SESSION4res`.
pub type Reply = Result<Success, Status>;

/// `DESTROY_SESSION4args`. RFC 8881 s18.37
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DestroyArgs {
    /// The session.
    pub session: SessionId,
}

wire_fields!(DestroyArgs { session });

/// `DESTROY_SESSION4res`.
pub type DestroyReply = Result<(), Status>;
