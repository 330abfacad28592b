//! The Network Lock Manager version 4 (RFC 1813 appendix II) and the Network Status Monitor version
//! 1: locks of NFS version 3, and how hosts tell each other that they have restarted. The messages
//! of NSM, and what RFC 1813 leaves out, are those of X/Open's XNFS, chapters 10 and 11.
//!
//! One file per family of procedures under [`proc`] and [`nsm`], both directions. A lock request
//! has three forms: a call with a reply, a message without one (`_MSG`), and the result that
//! answers such a message as a call in the other direction (`_RES`). All three have the same
//! arguments and results, so a family has one `Args` and one `Reply`; [`Procedure`] says which form
//! a number is.
//!
//! Invariants: every value is checked against its bound and the remaining bytes before it is used;
//! decoding allocates nothing, names and handles are borrowed from the message. A value outside its
//! enumeration is an error, but an unknown [`Status`] is kept as a number.
//!
//! Left out: the meaning of the calls, which belongs to the server and the client; versions 1 to 3
//! of NLM, which go with NFS version 2.
#![forbid(unsafe_code)]

#[doc(hidden)]
pub mod fuzzing;
pub mod nsm;
pub mod proc;
mod procedure;
pub mod types;
mod wire;

pub use procedure::{Form, Procedure, UnknownProcedure};
pub use types::{Holder, Lock, NetObj, Status, Text};
pub use wire::Wire;

/// The program number of NLM. RFC 1813 s6.1 (NLM4_PROG)
pub const PROGRAM: u32 = 100_021;
/// The version that goes with NFS version 3. RFC 1813 s6.1 (NLM4_VERS)
pub const VERSION: u32 = 4;
/// The longest name of a host that decodes. XNFS s10 (LM_MAXSTRLEN)
pub const NAME_BYTES_MAX: u32 = 1024;
/// The longest cookie, file handle or owner that decodes. XNFS s10 (MAXNETOBJ_SZ)
pub const NET_OBJECT_BYTES_MAX: u32 = 1024;
