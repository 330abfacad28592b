//! RPC-over-RDMA version 1, RFC 8166, for both ends, with the private data of RFC 8797. Pure: the
//! machines never see a device, memory or a clock; what is to be done with those is their output.
//!
//! - [`header`]: the transport header and its chunk lists, bounded;
//! - [`connect`]: what two ends agree on while they connect;
//! - [`client`] and [`server`]: the two machines. Feed them what a completion brings, do what
//!   `poll_output` says until it says nothing more.
//!
//! They have no timers: a connection orders and keeps what it carries, or breaks, and when a call
//! is overdue is the caller's business.
//!
//! Which arguments and results of a program may travel in chunks (RFC 8267) is told by who sends
//! its calls.
//!
//! Left out: calls in the reverse direction (RFC 8167) are told apart and handed out, not answered.
#![forbid(unsafe_code)]

pub mod client;
pub mod connect;
pub mod header;
pub mod server;

mod placement;

pub use placement::holds;

#[doc(hidden)]
pub mod fuzzing;

/// The type of an RPC message, its second word. RFC 5531 s9
fn message_type(message: &[u8]) -> Option<u32> {
    let word = message.get(4..8)?;
    Some(u32::from_be_bytes(word.try_into().ok()?))
}

/// The number of an RPC message, its first word. RFC 5531 s9
fn message_xid(message: &[u8]) -> Option<u32> {
    let word = message.get(..4)?;
    Some(u32::from_be_bytes(word.try_into().ok()?))
}

/// A call; anything else is taken for a reply.
const CALL: u32 = 0;
