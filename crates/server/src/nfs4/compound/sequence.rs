//! SEQUENCE: finds the session and the slot of a compound, and what becomes of it: it runs, or its
//! reply is sent again. RFC 8881 s2.10.6, s18.46

use super::{Compound, InSession, Replies};
use crate::nfs4::status::of_state;
use crate::nfs4_state::{HOST, Nfs4State};
use crate::program::Answered;
use crate::replies::Payload;
use nfs4::compound::RequestReader;
use nfs4::op::{Fore, Reply, sequence};
use nfs4::{SessionId, Status};
use rpc::call::CallHeader;
use rpc::reply::SUCCESS_BYTES;
use smallvec::SmallVec;
use state::{Sequence, SequenceArgs, Ticket};
use xdr::Writer;

/// Bytes of a long request that its digest covers, at the beginning and at the end: the operations
/// before and after the data of a WRITE.
const DIGEST_BYTES: usize = 1024;

/// The slot and the session of SEQUENCE's arguments come before these: `sa_highest_slotid` and
/// `sa_cachethis`, which a retry may have otherwise.
const UNCOMPARED_BYTES: usize = 8;

/// The result of SEQUENCE, with the operation's number.
const RESULT_BYTES: usize = 8 + 36;

/// What becomes of a compound.
pub(super) enum Begun {
    /// The result of SEQUENCE has been added; the other operations follow.
    Run,
    /// The failure of SEQUENCE has been added.
    Refused,
    /// It was executed: this is its reply.
    Replay(Vec<u8>),
    /// It was executed and its reply was not kept. The result of SEQUENCE has been added.
    ReplayUncached,
}

/// The length of a call, as `ca_maxrequestsize` counts it: with its header. RFC 8881 s18.36.3
pub(super) fn call_bytes(header: &CallHeader<'_>, message: &[u8]) -> usize {
    // Six words, and flavor and length of credential and verifier, which is empty.
    let header_bytes = 24 + 16 + header.credential_body.len() + xdr::padding(header.credential_body.len());
    header_bytes + message.len()
}

/// A digest that tells a request from another on the same slot, after SEQUENCE has been read.
/// RFC 8881 s2.10.6.1.3.1
pub(super) fn digest(principal: u64, message: &[u8], requests: &RequestReader<'_, Fore>) -> u64 {
    let after = message.len() - requests.remaining();
    let before = message.get(..after.saturating_sub(UNCOMPARED_BYTES)).unwrap_or_default();
    let rest = message.get(after..).unwrap_or_default();
    let mut bytes: SmallVec<[u8; 1024]> = SmallVec::from_slice(&principal.to_be_bytes());
    bytes.extend_from_slice(before);
    if rest.len() <= 2 * DIGEST_BYTES {
        bytes.extend_from_slice(rest);
    } else {
        bytes.extend_from_slice(&rest[..DIGEST_BYTES]);
        bytes.extend_from_slice(&rest[rest.len() - DIGEST_BYTES..]);
    }
    drc::args_hash(&bytes, message.len())
}

/// The result of SEQUENCE, as things are now.
fn success(shared: &Nfs4State, args: &sequence::Args) -> sequence::Success {
    let status = shared.state.status(state::SessionId(args.session.0));
    // The session may have been destroyed since it was found.
    let (highest, flags) = status.map_or((args.slot, 0), |status| (status.highest_slot, status.flags));
    sequence::Success {
        session: args.session,
        sequence: args.sequence,
        slot: args.slot,
        highest_slot: highest,
        target_highest_slot: highest,
        flags,
    }
}

/// Takes the slot. Nothing is noted in it before the compound is known to be within the bounds of
/// its session.
pub(super) fn begin(
    compound: &mut Compound<'_>,
    args: &sequence::Args,
    call_bytes: usize,
    digest: u64,
    requests: &RequestReader<'_, Fore>,
    out: &mut Replies<'_>,
) -> Begun {
    let shared = compound.shared;
    let reply_bytes = SUCCESS_BYTES + out.len() + RESULT_BYTES;
    let mut refuse = |status| {
        out.push(&Reply::Sequence(Err(status)));
        Begun::Refused
    };
    let session = state::SessionId(args.session.0);
    let channels = match shared.state.channels(session) {
        Ok(channels) => channels,
        Err(error) => return refuse(of_state(&error)),
    };
    if call_bytes > channels.fore.request_bytes as usize {
        return refuse(Status::REQ_TOO_BIG);
    }
    if requests.operations > channels.fore.operations {
        return refuse(Status::TOO_MANY_OPS);
    }
    // RFC 8881 s18.46.3: a reply that a slot is to keep has at least this result.
    if args.cache && reply_bytes > channels.fore.cached_bytes as usize {
        return refuse(Status::REP_TOO_BIG_TO_CACHE);
    }
    let asked = SequenceArgs { session, slot: args.slot, sequence: args.sequence, digest };
    let ticket = match shared.state.sequence(&HOST, compound.now, &asked) {
        Ok(Sequence::Run(ticket)) => ticket,
        Ok(Sequence::Replay(reply)) => return Begun::Replay(reply),
        Ok(Sequence::ReplayUncached) => {
            out.push(&Reply::Sequence(Ok(success(shared, args))));
            return Begun::ReplayUncached;
        }
        // Only the request of a process that has ended goes on in another.
        Ok(Sequence::Continue(ticket, _)) => {
            shared.state.finish(&HOST, &ticket, None);
            return refuse(Status::SERVERFAULT);
        }
        Err(error) => return refuse(of_state(&error)),
    };
    out.push(&Reply::Sequence(Ok(success(shared, args))));
    compound.session = Some(InSession { id: SessionId(session.0), ticket, channels, keep: args.cache });
    Begun::Run
}

/// Sends a kept reply again, with the slots and flags of now.
pub(super) fn replay(
    compound: &Compound<'_>,
    args: &sequence::Args,
    reply: &[u8],
    out: &mut Vec<u8>,
) -> Answered {
    let start = out.len();
    out.extend_from_slice(reply);
    let number =
        |at: usize| reply.get(at..at + 4).map_or(0, |b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]));
    let (status, tag_len) = (number(0), number(4) as usize);
    // Status, tag, number of results; the operation, its status, session, sequence and slot.
    let at = 8 + tag_len + xdr::padding(tag_len) + 4 + 8 + 16 + 8;
    let now = success(compound.shared, args);
    if at + 12 <= reply.len() {
        let mut writer = Writer::new(out);
        writer.set_u32(start + at, now.highest_slot);
        writer.set_u32(start + at + 4, now.target_highest_slot);
        writer.set_u32(start + at + 8, now.flags);
    }
    Answered::Reply { error: status != 0, replayed: true, payload: Payload::new(), payload_len: 0 }
}

/// Answers a retry whose reply was not kept: with the result of SEQUENCE, and a failure of the next
/// operation. RFC 8881 s2.10.6.1.3
pub(super) fn replay_uncached(requests: &mut RequestReader<'_, Fore>, mut out: Replies<'_>) -> Answered {
    match requests.next_operation() {
        Some(Ok(next)) => _ = out.fail(next.args.operation(), Status::RETRY_UNCACHED_REP),
        Some(Err(refused)) => _ = out.refuse(refused),
        None => {}
    }
    out.finish();
    Answered::Reply { error: true, replayed: true, payload: Payload::new(), payload_len: 0 }
}

/// A request that has its slot. If it ends by a panic, the slot is free again, and keeps nothing.
pub(super) struct Running<'a> {
    shared: &'a Nfs4State,
    ticket: Option<Ticket>,
}

impl<'a> Running<'a> {
    pub fn new(shared: &'a Nfs4State, session: Option<&InSession>) -> Self {
        Self { shared, ticket: session.map(|session| session.ticket) }
    }

    /// Ends the request. Returns whether its reply is to be sent.
    pub fn finish(mut self, reply: Option<&[u8]>) -> bool {
        self.ticket.take().is_none_or(|ticket| self.shared.state.finish(&HOST, &ticket, reply))
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.shared.state.finish(&HOST, &ticket, None);
        }
    }
}
