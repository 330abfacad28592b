//! NFS version 4.1 and 4.2 messages, RFC 8881, RFC 7862 and RFC 8276 (XDR in RFC 5662 and RFC
//! 7863): both directions, so that server and client share them.
//!
//! One file per operation or small family under [`op`], and under [`cb`] for callbacks. A request
//! is a compound of operations: [`compound`] reads it operation by operation, and writes it. All
//! types are read and written through one trait, [`Wire`].
//!
//! Invariants: every value is checked against its bound and the remaining bytes before it is used;
//! decoding allocates nothing; names are bytes, borrowed from the message; the payload of READ and
//! WRITE never passes through here ([`op::read::ReplyHead`], [`op::write::ArgsHead`]). An unknown
//! [`Status`] is kept as a number. Numbers of operations that a minor version does not have, and
//! operations that nobody here supports, are told apart ([`compound::Refused`]).
//!
//! Left out: the meaning of the operations, which belongs to the server and the client; sessions
//! and state, which are a crate of their own; version 4.0; RPCSEC_GSS; layout types other than that
//! of files.
#![forbid(unsafe_code)]

mod array;
pub mod cb;
pub mod compound;
mod description;
#[doc(hidden)]
pub mod fuzzing;
pub mod op;
mod rdma;
pub mod sizes;
pub mod table;
pub mod types;
mod wire;

pub use array::{Array, ArrayIter, Opaque};
pub use description::{Class, Description, Effect, Place};
pub use op::{Args, Operation, Reply};
pub use rdma::{Eligible, READ_PLUS_SEGMENTS_MAX};
pub use types::{
    Ace, AttributeError, Attributes, Bitmap, ChangeAttrType, ChangeInfo, ClientId, ClientOwner, Fattr,
    FileType, Fsid, ImplementationId, Location, Locations, ModeMasked, ModeUmask, NetAddr, OWNER_BYTES_MAX,
    OpenArguments, Owner, OwnerId, Pathname, Range, RawFattr, SecurityLabel, ServerOwner, SessionId, SetTime,
    StateOwner, Stateid, Status, Threshold,
};
pub use wire::Wire;

/// The program number of NFS. RFC 8881 s16
pub const PROGRAM: u32 = 100_003;
/// The version of NFS. RFC 8881 s16
pub const VERSION: u32 = 4;
/// The procedure that does nothing. RFC 8881 s16.1
pub const PROCEDURE_NULL: u32 = 0;
/// The procedure that runs a compound. RFC 8881 s16.2
pub const PROCEDURE_COMPOUND: u32 = 1;
/// The version of callbacks, whose program number the client chooses. RFC 8881 s19
pub const CALLBACK_VERSION: u32 = 1;
/// The minor versions of this crate.
pub const MINOR_VERSIONS: std::ops::RangeInclusive<u32> = 1..=2;
/// The number of OP_ILLEGAL and OP_CB_ILLEGAL: the result of a number that the minor version does
/// not have. RFC 8881 s18.52
pub const ILLEGAL: u32 = 10_044;
