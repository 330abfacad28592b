//! EXCHANGE_ID and DESTROY_CLIENTID: who client and server are. RFC 8881 s18.35, s18.50

use crate::array::{Array, Opaque};
use crate::wire::wire_fields;
use crate::{Bitmap, ClientId, ClientOwner, ImplementationId, OWNER_BYTES_MAX, ServerOwner, Status, Wire};
use xdr::{Error, Reader, Writer};

/// The flags of EXCHANGE_ID. RFC 8881 s18.35.3
pub mod flag {
    /// A file system may refer to another server.
    pub const SUPP_MOVED_REFER: u32 = 0x0000_0001;
    /// A file system may move to another server.
    pub const SUPP_MOVED_MIGR: u32 = 0x0000_0002;
    /// Fence operations of a former owner. RFC 7862 s14.1
    pub const SUPP_FENCE_OPS: u32 = 0x0000_0004;
    /// Bind stateids to the principal.
    pub const BIND_PRINC_STATEID: u32 = 0x0000_0100;
    /// The server is a plain one.
    pub const USE_NON_PNFS: u32 = 0x0001_0000;
    /// The server is a metadata server.
    pub const USE_PNFS_MDS: u32 = 0x0002_0000;
    /// The server is a data server.
    pub const USE_PNFS_DS: u32 = 0x0004_0000;
    /// The three roles.
    pub const MASK_PNFS: u32 = USE_NON_PNFS | USE_PNFS_MDS | USE_PNFS_DS;
    /// Request: update a confirmed record.
    pub const UPD_CONFIRMED_REC_A: u32 = 0x4000_0000;
    /// Reply: the record is confirmed.
    pub const CONFIRMED_R: u32 = 0x8000_0000;
    /// What a request may have; anything else is NFS4ERR_INVAL. RFC 8881 s18.35.3
    pub const REQUEST_MASK: u32 = SUPP_MOVED_REFER
        | SUPP_MOVED_MIGR
        | SUPP_FENCE_OPS
        | BIND_PRINC_STATEID
        | MASK_PNFS
        | UPD_CONFIRMED_REC_A;
}

/// `state_protect_ops4`: operations by number. RFC 8881 s18.35
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProtectedOperations {
    /// Must come from the machine (`spo_must_enforce`).
    pub must_enforce: Bitmap,
    /// May come from the machine as well (`spo_must_allow`).
    pub must_allow: Bitmap,
}

wire_fields!(ProtectedOperations { must_enforce, must_allow });

/// `state_protect4_a`: how state is to be protected. RFC 8881 s18.35
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protection<'a> {
    /// SP4_NONE.
    None,
    /// SP4_MACH_CRED: by the machine's credential.
    MachineCredential(ProtectedOperations),
    /// SP4_SSV: by a shared secret (`ssv_sp_parms4`).
    Ssv {
        /// The operations.
        operations: ProtectedOperations,
        /// Hash algorithms, by object identifier.
        hash_algorithms: Array<'a, &'a [u8]>,
        /// Encryption algorithms, by object identifier.
        encryption_algorithms: Array<'a, &'a [u8]>,
        /// How many versions of the secret are kept.
        window: u32,
        /// How many contexts to return.
        handles: u32,
    },
}

impl<'a> Wire<'a> for Protection<'a> {
    fn decode(reader: &mut Reader<'a>) -> xdr::Result<Self> {
        Ok(match reader.u32()? {
            0 => Self::None,
            1 => Self::MachineCredential(Wire::decode(reader)?),
            2 => Self::Ssv {
                operations: Wire::decode(reader)?,
                hash_algorithms: Wire::decode(reader)?,
                encryption_algorithms: Wire::decode(reader)?,
                window: Wire::decode(reader)?,
                handles: Wire::decode(reader)?,
            },
            value => return Err(Error::BadDiscriminant { name: "state_protect_how4", value }),
        })
    }

    fn encode(&self, writer: &mut Writer<'_>) {
        match self {
            Self::None => writer.u32(0),
            Self::MachineCredential(operations) => {
                writer.u32(1);
                operations.encode(writer);
            }
            Self::Ssv { operations, hash_algorithms, encryption_algorithms, window, handles } => {
                writer.u32(2);
                operations.encode(writer);
                hash_algorithms.encode(writer);
                encryption_algorithms.encode(writer);
                window.encode(writer);
                handles.encode(writer);
            }
        }
    }
}

/// `EXCHANGE_ID4args`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Args<'a> {
    /// The client.
    pub client: ClientOwner<'a>,
    /// [`flag`].
    pub flags: u32,
    /// How state is to be protected.
    pub protection: Protection<'a>,
    /// The client's program.
    pub implementation: Option<ImplementationId<'a>>,
}

wire_fields!(Args<'a> { client, flags, protection, implementation });

/// `state_protect4_r`: how state is protected. RFC 8881 s18.35
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protected<'a> {
    /// SP4_NONE.
    None,
    /// SP4_MACH_CRED.
    MachineCredential(ProtectedOperations),
    /// SP4_SSV (`ssv_prot_info4`).
    Ssv {
        /// The operations.
        operations: ProtectedOperations,
        /// The hash algorithm: its index in the request.
        hash_algorithm: u32,
        /// The encryption algorithm: its index in the request.
        encryption_algorithm: u32,
        /// The secret's length.
        secret_bytes: u32,
        /// How many versions of the secret are kept.
        window: u32,
        /// The contexts.
        handles: Array<'a, &'a [u8]>,
    },
}

impl<'a> Wire<'a> for Protected<'a> {
    fn decode(reader: &mut Reader<'a>) -> xdr::Result<Self> {
        Ok(match reader.u32()? {
            0 => Self::None,
            1 => Self::MachineCredential(Wire::decode(reader)?),
            2 => Self::Ssv {
                operations: Wire::decode(reader)?,
                hash_algorithm: Wire::decode(reader)?,
                encryption_algorithm: Wire::decode(reader)?,
                secret_bytes: Wire::decode(reader)?,
                window: Wire::decode(reader)?,
                handles: Wire::decode(reader)?,
            },
            value => return Err(Error::BadDiscriminant { name: "state_protect_how4", value }),
        })
    }

    fn encode(&self, writer: &mut Writer<'_>) {
        match self {
            Self::None => writer.u32(0),
            Self::MachineCredential(operations) => {
                writer.u32(1);
                operations.encode(writer);
            }
            Self::Ssv { operations, hash_algorithm, encryption_algorithm, secret_bytes, window, handles } => {
                writer.u32(2);
                operations.encode(writer);
                hash_algorithm.encode(writer);
                encryption_algorithm.encode(writer);
                secret_bytes.encode(writer);
                window.encode(writer);
                handles.encode(writer);
            }
        }
    }
}

/// `EXCHANGE_ID4resok`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Success<'a> {
    /// The client's number.
    pub client: ClientId,
    /// The number that the client's next CREATE_SESSION has.
    pub sequence: u32,
    /// [`flag`].
    pub flags: u32,
    /// How state is protected.
    pub protection: Protected<'a>,
    /// The server.
    pub server: ServerOwner<'a>,
    /// Where handles, owners and stateids of this server are valid (`eir_server_scope`).
    pub scope: Opaque<'a, OWNER_BYTES_MAX>,
    /// The server's program.
    pub implementation: Option<ImplementationId<'a>>,
}

wire_fields!(Success<'a> { client, sequence, flags, protection, server, scope, implementation });

/// `EXCHANGE_ID4res`.
pub type Reply<'a> = Result<Success<'a>, Status>;

/// `DESTROY_CLIENTID4args`. RFC 8881 s18.50
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DestroyArgs {
    /// The client.
    pub client: ClientId,
}

wire_fields!(DestroyArgs { client });

/// `DESTROY_CLIENTID4res`.
pub type DestroyReply = Result<(), Status>;
