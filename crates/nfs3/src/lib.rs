//! NFS version 3 and MOUNT version 3 messages, RFC 1813: both directions, so that server and client
//! share them.
//!
//! One file per procedure under [`proc`] and [`mount`]. Each has `Args` and `Reply`. Where the
//! reply is a union over its status, the file also has `Success` and `Failure`, the content of the
//! reply in either case. All types are read and written through one trait, [`Wire`].
//!
//! Invariants: every value is checked against its bound and the remaining bytes before it is used;
//! decoding allocates nothing; names and paths are bytes, borrowed from the message; the payload of
//! READ and WRITE never passes through here ([`proc::read::ReplyHead`], [`proc::write::ArgsHead`]).
//! A value outside its enumeration is an error (the server answers GARBAGE_ARGS), but an unknown
//! [`Status`] is kept as a number. The caller decides whether bytes may follow a message
//! ([`xdr::Reader::finish`]): payload does, and nfs-ganesha sends one word too many after some
//! listings.
//!
//! Left out: the meaning of the calls, which belongs to the server and the client.
#![forbid(unsafe_code)]

#[doc(hidden)]
pub mod fuzzing;
mod list;
pub mod mount;
mod outcome;
pub mod proc;
mod procedure;
mod rdma;
mod replay;
pub mod types;
mod wire;

pub use list::{List, ListIter};
pub use outcome::Outcome;
pub use procedure::{Class, Description, Effect, Procedure, UnknownProcedure};
pub use rdma::Eligible;
pub use types::{
    Created, DirOpArgs, Fattr3, FileHandle, FileType, NfsTime, PostOpAttr, Sattr3, SetTime, SpecData, Status,
    Verifier, WccAttr, WccData,
};
pub use wire::Wire;

/// The program number of NFS. RFC 1813 s2.2
pub const PROGRAM: u32 = 100_003;
/// The supported version of NFS. RFC 1813 s2.2
pub const VERSION: u32 = 3;
/// The longest file handle, in bytes. RFC 1813 s2.4 (NFS3_FHSIZE)
pub const HANDLE_BYTES_MAX: u32 = 64;
/// The longest name or symbolic link target in a call: the record bounds them. RFC 1813 s2.5 sets
/// no bound, and the answer to a longer one than the file system holds is NFS3ERR_NAMETOOLONG.
pub const CALL_TEXT_BYTES_MAX: u32 = u32::MAX;
/// The longest name that decodes in a reply. RFC 1813 s2.5 sets no bound. This one is far above the
/// limit of file systems (255), and small enough that a name cannot fill a record.
pub const NAME_WIRE_BYTES_MAX: u32 = 4096;
/// The longest symbolic link target that decodes in a reply: Linux's PATH_MAX. RFC 1813 s2.5 sets
/// no bound.
pub const PATH_WIRE_BYTES_MAX: u32 = 4096;
