//! RPC-over-RDMA version 1, RFC 8166, for both ends, with the private data of RFC 8797. Pure: the
//! state machines never see a device, memory or a clock; they output requests to a driver.
//!
//! - [`header`]: the transport header and its chunk lists, bounded;
//! - [`connect`]: what two ends agree on while they connect;
//! - [`client`] and [`server`]: the two state machines. Feed them the results of completions, and
//!   carry out the outputs of `poll_output` until there are no more.
//!
//! The state machines have no timers: a connection delivers in order and without loss, or breaks,
//! and the caller decides when a call is overdue.
//!
//! Which arguments and results of a program may be carried in chunks (RFC 8267) is decided by the
//! sender of its calls.
//!
//! Calls in the other direction (RFC 8167) are inline: [`client::Client::grant_calls`] and
//! [`server::Server::allow_calls`] say how many. Left out: chunks in that direction.
#![forbid(unsafe_code)]

pub mod client;
pub mod connect;
pub mod header;
pub mod reverse;
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

/// The xid of an RPC message, its first word. RFC 5531 s9
fn message_xid(message: &[u8]) -> Option<u32> {
    let word = message.get(..4)?;
    Some(u32::from_be_bytes(word.try_into().ok()?))
}

/// The type of a call; anything else is treated as a reply.
const CALL: u32 = 0;
