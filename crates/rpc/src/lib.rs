//! ONC RPC version 2, RFC 5531: calls, replies, record marking, credentials.
//!
//! Headers only: arguments and results belong to the programs (`nfs3`), payload is carried
//! separately. Every length is checked before bytes are taken or memory is allocated, and remote
//! bytes never cause a panic.
//!
//! - [`record_marking`]: record marking on byte streams, s11;
//! - [`auth`]: AUTH_NONE and AUTH_SYS, s8.2 and appendix A;
//! - [`call`] and [`reply`]: message headers, s9, in all their forms.
//!
//! Left out: verifiers other than AUTH_NONE (a peer's is skipped), RPCSEC_GSS, datagrams, rpcbind.
#![forbid(unsafe_code)]

pub mod auth;
pub mod call;
pub mod portmap;
pub mod record_marking;
pub mod reply;

#[doc(hidden)]
pub mod fuzzing;

/// The supported version of the RPC protocol. RFC 5531 s9
pub const RPC_VERSION: u32 = 2;

/// The number that a reply shares with its call, and a retransmission with its original. RFC 5531
/// s9
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Xid(pub u32);

impl std::fmt::Display for Xid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#010x}", self.0)
    }
}

// Message types. RFC 5531 s9
const CALL: u32 = 0;
const REPLY: u32 = 1;
