//! SEQUENCE: finds the session and the slot of a compound, and what becomes of it: it runs, or its
//! reply is sent again. RFC 8881 s2.10.6, s18.46

use super::{Compound, InSession, Replies};
use crate::nfs4::status::of_state;
use crate::nfs4_state::Nfs4State;
use crate::program::Answered;
use crate::replies::Payload;
use nfs4::compound::RequestReader;
use nfs4::op::{Fore, Reply, sequence};
use nfs4::{SessionId, Status};
use rpc::call::CallHeader;
use rpc::reply::SUCCESS_BYTES;
use smallvec::SmallVec;
use state::{Progress, Sequence, SequenceArgs, Ticket};
use std::iter;
use std::ops::Range;
use store::ReceiveBuffer;
use transport::SlicesMut;
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
    /// The result of SEQUENCE has been added; the other operations follow. A process that has ended
    /// may have done a part of them.
    Run(Option<Progress>),
    /// The failure of SEQUENCE has been added.
    Refused,
    /// It was executed: this is its reply.
    Replay(Vec<u8>),
    /// It was executed and its reply was not kept. The result of SEQUENCE has been added.
    ReplayUncached,
}

/// The length of a call with the data that were received in place, and its digest, after SEQUENCE
/// has been read.
pub(super) fn measure(
    compound: &mut Compound<'_>,
    header: &CallHeader<'_>,
    message: &[u8],
    requests: &RequestReader<'_, Fore>,
) -> (usize, u64) {
    let principal = compound.request.identity.principal();
    let received = compound.received.as_mut();
    let data_bytes = received.as_ref().map_or(0, |received| received.len());
    (call_bytes(header, message) + data_bytes, digest(principal, message, received, requests))
}

/// The length of a call, as `ca_maxrequestsize` counts it: with its header. RFC 8881 s18.36.3
fn call_bytes(header: &CallHeader<'_>, message: &[u8]) -> usize {
    // Six words, and flavor and length of credential and verifier, which is empty.
    let header_bytes = 24 + 16 + header.credential_body.len() + xdr::padding(header.credential_body.len());
    header_bytes + message.len()
}

/// A digest that tells a request from another on the same slot, after SEQUENCE has been read.
/// RFC 8881 s2.10.6.1.3.1
///
/// It is the same however the data of a WRITE were received.
fn digest(
    principal: u64,
    message: &[u8],
    received: Option<&mut ReceiveBuffer>,
    requests: &RequestReader<'_, Fore>,
) -> u64 {
    let after = message.len() - requests.remaining();
    let before = message.get(..after.saturating_sub(UNCOMPARED_BYTES)).unwrap_or_default();
    let rest = message.get(after..).unwrap_or_default();
    let mut data = SlicesMut::new();
    if let Some(received) = received {
        received.unfilled(0, &mut data);
    }
    let parts = || iter::once(rest).chain(data.iter().map(|piece| &**piece));
    let len = parts().map(<[u8]>::len).sum::<usize>();
    let mut bytes: SmallVec<[u8; 1024]> = SmallVec::from_slice(&principal.to_be_bytes());
    bytes.extend_from_slice(before);
    let first = len.min(DIGEST_BYTES);
    add_range(&mut bytes, parts(), 0..first);
    add_range(&mut bytes, parts(), first.max(len.saturating_sub(DIGEST_BYTES))..len);
    drc::args_hash(&bytes, after + len)
}

/// Adds these bytes of what the parts are together.
fn add_range<'a>(
    out: &mut SmallVec<[u8; 1024]>,
    parts: impl Iterator<Item = &'a [u8]>,
    Range { start, end }: Range<usize>,
) {
    let mut at = 0;
    for part in parts {
        let within = |offset: usize| offset.saturating_sub(at).min(part.len());
        out.extend_from_slice(&part[within(start)..within(end)]);
        at += part.len();
    }
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
    let begun = shared.state.sequence(shared.host(), compound.now, &asked);
    if begun.is_ok() {
        // Without state protection this is enough to use the connection. RFC 8881 s2.10.3.1
        compound.request.client.sessions.add(session);
    }
    let (ticket, progress) = match begun {
        Ok(Sequence::Run(ticket)) => (ticket, None),
        Ok(Sequence::Continue(ticket, progress)) => (ticket, Some(progress)),
        Ok(Sequence::Replay(reply)) => return Begun::Replay(reply),
        Ok(Sequence::ReplayUncached) => {
            out.push(&Reply::Sequence(Ok(success(shared, args))));
            return Begun::ReplayUncached;
        }
        Err(error) => return refuse(of_state(&error)),
    };
    out.push(&Reply::Sequence(Ok(success(shared, args))));
    compound.session = Some(InSession { id: SessionId(session.0), ticket, channels, keep: args.cache });
    Begun::Run(progress)
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
        self.ticket.take().is_none_or(|ticket| self.shared.state.finish(self.shared.host(), &ticket, reply))
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.shared.state.finish(self.shared.host(), &ticket, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nfs4::compound::RequestWriter;
    use nfs4::op::{Args, write};
    use store::{MemStore, Store};

    /// The bytes before the data of a WRITE, and the data.
    fn request(len: usize) -> (Vec<u8>, Vec<u8>) {
        let mut before = Vec::new();
        let mut writer = RequestWriter::<Fore>::new(&mut before, b"", 2, 0);
        let (session, count) = (SessionId([1; 16]), u32::try_from(len).unwrap());
        writer.push(&Args::Sequence(sequence::Args {
            session,
            sequence: 1,
            slot: 0,
            highest_slot: 0,
            cache: true,
        }));
        let (stateid, stable) = (nfs4::Stateid::ANONYMOUS, fs::Stability::Unstable);
        writer.push(&Args::Write(write::ArgsHead { stateid, offset: 5000, stable, count }));
        writer.finish();
        (before, (0..len).map(|at| (at * 7 % 253) as u8).collect())
    }

    fn digest_of(
        mut requests: RequestReader<'_, Fore>,
        message: &[u8],
        data: Option<&mut ReceiveBuffer>,
    ) -> u64 {
        assert!(requests.next_operation().unwrap().is_ok());
        digest(1, message, data, &requests)
    }

    /// A retry may find less room than the request found, and is then received whole.
    #[test]
    fn the_digest_is_the_same_however_the_data_were_received() {
        let store = MemStore::new(16 << 20, 0, 0);
        for len in [4, 900, 1000, 1024, 2000, 2048, 4096, 100_000, 1 << 20] {
            let (before, data) = request(len);
            let whole = [&before[..], &data].concat();
            let expected = digest_of(RequestReader::new(&whole).unwrap(), &whole, None);

            let mut received = store.receive_buffer(5000, u32::try_from(len).unwrap()).unwrap();
            let mut pieces = SlicesMut::new();
            received.unfilled(0, &mut pieces);
            let mut from = &data[..];
            for piece in &mut pieces {
                let (now, later) = from.split_at(piece.len());
                piece.copy_from_slice(now);
                from = later;
            }
            drop(pieces);
            let beside = RequestReader::with_payload_beside(&before, &[]).unwrap();
            assert_eq!(digest_of(beside, &before, Some(&mut received)), expected, "{len}");
        }
    }
}
