//! Replies, RFC 5531 s9: the header of `reply_body` in all its forms; results follow an accepted
//! success.
//!
//! Writing allocates nothing. The verifier written is AUTH_NONE; a peer's is skipped.

use xdr::{Reader, Writer};

use crate::auth::{AuthStat, BODY_BYTES_MAX};
use crate::{REPLY, RPC_VERSION, Xid};

// reply_stat, accept_stat and reject_stat. RFC 5531 s9
const MSG_ACCEPTED: u32 = 0;
const MSG_DENIED: u32 = 1;
const SUCCESS: u32 = 0;
const PROG_UNAVAIL: u32 = 1;
const PROG_MISMATCH: u32 = 2;
const PROC_UNAVAIL: u32 = 3;
const GARBAGE_ARGS: u32 = 4;
const SYSTEM_ERR: u32 = 5;
const RPC_MISMATCH: u32 = 0;
const AUTH_ERROR: u32 = 1;

/// Bytes of the header of a success.
pub const SUCCESS_BYTES: usize = 24;

/// How an accepted call ended. RFC 5531 s9
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accept {
    /// Executed; the procedure's results follow.
    Success,
    /// The server does not have the program.
    ProgUnavail,
    /// The server has the program, but in other versions.
    ProgMismatch {
        /// The lowest supported version.
        low: u32,
        /// The highest supported version.
        high: u32,
    },
    /// The program has no such procedure.
    ProcUnavail,
    /// The arguments could not be decoded.
    GarbageArgs,
    /// The server failed for a reason of its own, such as a lack of memory.
    SystemErr,
}

/// Why a call was not accepted. RFC 5531 s9
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reject {
    /// The server does not support the call's version of RPC.
    RpcMismatch {
        /// The lowest supported version.
        low: u32,
        /// The highest supported version.
        high: u32,
    },
    /// The credential was refused.
    Auth(AuthStat),
}

impl Reject {
    /// The answer to a call of another version of RPC.
    pub const RPC_VERSION: Self = Self::RpcMismatch { low: RPC_VERSION, high: RPC_VERSION };
}

/// The header of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reply {
    /// The xid of the call.
    pub xid: Xid,
    /// The outcome of the call.
    pub body: Body,
}

/// `reply_body`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body {
    /// The call was accepted.
    Accepted(Accept),
    /// The call was denied before its arguments were read.
    Rejected(Reject),
}

/// Why a record is not a reply. Always the sender's fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReplyError {
    /// The message type is not REPLY.
    #[error("not a reply: message type {message_type}")]
    NotAReply {
        /// The number on the wire.
        message_type: u32,
    },
    /// The message ends within its header, or a number in it has no meaning.
    #[error("reply header: {0}")]
    Garbage(#[from] xdr::Error),
}

/// Writes the 24 bytes before the results of a success.
#[inline]
pub fn encode_success(writer: &mut Writer<'_>, xid: Xid) {
    let mut head = [0; SUCCESS_BYTES];
    head[..4].copy_from_slice(&xid.0.to_be_bytes());
    // REPLY; MSG_ACCEPTED, an AUTH_NONE verifier and SUCCESS are all zeros. RFC 5531 s9
    head[7] = 1;
    writer.bytes(&head);
}

/// Writes an accepted reply; after [`Accept::Success`] the results follow.
pub fn encode_accept(writer: &mut Writer<'_>, xid: Xid, accept: Accept) {
    for word in [xid.0, REPLY, MSG_ACCEPTED, crate::auth::AUTH_NONE, 0] {
        writer.u32(word);
    }
    match accept {
        Accept::Success => writer.u32(SUCCESS),
        Accept::ProgUnavail => writer.u32(PROG_UNAVAIL),
        Accept::ProgMismatch { low, high } => {
            writer.u32(PROG_MISMATCH);
            writer.u32(low);
            writer.u32(high);
        }
        Accept::ProcUnavail => writer.u32(PROC_UNAVAIL),
        Accept::GarbageArgs => writer.u32(GARBAGE_ARGS),
        Accept::SystemErr => writer.u32(SYSTEM_ERR),
    }
}

/// Writes a refusal.
pub fn encode_reject(writer: &mut Writer<'_>, xid: Xid, reject: Reject) {
    for word in [xid.0, REPLY, MSG_DENIED] {
        writer.u32(word);
    }
    match reject {
        Reject::RpcMismatch { low, high } => {
            writer.u32(RPC_MISMATCH);
            writer.u32(low);
            writer.u32(high);
        }
        Reject::Auth(stat) => {
            writer.u32(AUTH_ERROR);
            writer.u32(stat.0);
        }
    }
}

/// Reads the header of a reply and leaves the reader at the results.
///
/// # Errors
/// [`ReplyError`].
#[inline]
pub fn decode(reader: &mut Reader<'_>) -> Result<Reply, ReplyError> {
    let xid = Xid(reader.u32()?);
    let message_type = reader.u32()?;
    if message_type != REPLY {
        return Err(ReplyError::NotAReply { message_type });
    }
    let body = match reader.u32()? {
        MSG_ACCEPTED => Body::Accepted(accepted(reader)?),
        MSG_DENIED => Body::Rejected(rejected(reader)?),
        value => return Err(xdr::Error::BadDiscriminant { name: "reply_stat", value }.into()),
    };
    Ok(Reply { xid, body })
}

fn accepted(reader: &mut Reader<'_>) -> xdr::Result<Accept> {
    let _verifier_flavor = reader.u32()?;
    let _verifier_body = reader.opaque(BODY_BYTES_MAX)?;
    Ok(match reader.u32()? {
        SUCCESS => Accept::Success,
        PROG_UNAVAIL => Accept::ProgUnavail,
        PROG_MISMATCH => Accept::ProgMismatch { low: reader.u32()?, high: reader.u32()? },
        PROC_UNAVAIL => Accept::ProcUnavail,
        GARBAGE_ARGS => Accept::GarbageArgs,
        SYSTEM_ERR => Accept::SystemErr,
        value => return Err(xdr::Error::BadDiscriminant { name: "accept_stat", value }),
    })
}

fn rejected(reader: &mut Reader<'_>) -> xdr::Result<Reject> {
    Ok(match reader.u32()? {
        RPC_MISMATCH => Reject::RpcMismatch { low: reader.u32()?, high: reader.u32()? },
        AUTH_ERROR => Reject::Auth(AuthStat(reader.u32()?)),
        value => return Err(xdr::Error::BadDiscriminant { name: "reject_stat", value }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
        let mut out = Vec::new();
        write(&mut Writer::new(&mut out));
        out
    }

    #[test]
    fn a_success_written_at_once_is_the_one_written_word_by_word() {
        let xid = Xid(0x0102_0304);
        let fast = written(|writer| encode_success(writer, xid));
        assert_eq!(fast, written(|writer| encode_accept(writer, xid, Accept::Success)));
        assert_eq!(fast, [[1, 2, 3, 4], [0, 0, 0, 1], [0; 4], [0; 4], [0; 4], [0; 4]].concat());
    }

    #[test]
    fn every_form_of_reply_reads_back_and_leaves_what_follows() {
        // RFC 5531 s9
        let accepts = [
            Accept::Success,
            Accept::ProgUnavail,
            Accept::ProgMismatch { low: 3, high: 4 },
            Accept::ProcUnavail,
            Accept::GarbageArgs,
            Accept::SystemErr,
        ];
        let rejects =
            [Reject::RPC_VERSION, Reject::Auth(AuthStat::TOOWEAK), Reject::Auth(AuthStat(0xdead_beef))];
        let xid = Xid(77);
        let accepts = accepts
            .map(|accept| (Body::Accepted(accept), written(|writer| encode_accept(writer, xid, accept))));
        let rejects = rejects
            .map(|reject| (Body::Rejected(reject), written(|writer| encode_reject(writer, xid, reject))));
        for (body, mut bytes) in accepts.into_iter().chain(rejects) {
            bytes.extend(b"rest");
            let mut reader = Reader::new(&bytes);
            assert_eq!(decode(&mut reader), Ok(Reply { xid, body }));
            assert_eq!(reader.rest(), b"rest");
        }
    }

    #[test]
    fn golden_bytes_of_a_version_mismatch() {
        let out = written(|writer| encode_reject(writer, Xid(1), Reject::RPC_VERSION));
        assert_eq!(
            out,
            [[0, 0, 0, 1], [0, 0, 0, 1], [0, 0, 0, 1], [0; 4], [0, 0, 0, 2], [0, 0, 0, 2]].concat()
        );
    }
}
