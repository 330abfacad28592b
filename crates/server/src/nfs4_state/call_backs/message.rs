//! CB_COMPOUND on the wire: CB_SEQUENCE and one more operation, and what a client's reply means.
//! RFC 8881 s2.10.6, s20.2, s20.9, s20.11

use nfs4::cb::{Args, Back, kind, sequence};
use nfs4::compound::{ReplyError, ReplyReader, RequestWriter};
use nfs4::{Array, CALLBACK_VERSION, PROCEDURE_COMPOUND, SessionId, Status, sizes};
use rpc::Xid;
use rpc::reply::{Accept, Body};
use state::CallBackSlot;
use xdr::Writer;

/// What precedes a message over RDMA: the transport header without chunks. RFC 8166 s3.3
const RDMA_HEADER_BYTES: usize = 28;
/// The longest call-back: it fits the smallest message over RDMA, and what every client with a back
/// channel takes. RFC 8167 s4
pub(super) const CALL_BYTES_MAX: usize = sizes::CALLBACK_BYTES as usize - RDMA_HEADER_BYTES;

/// Whom a call goes to, and its slot.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head<'a> {
    pub xid: u32,
    pub program: u32,
    pub minor: u32,
    pub credential: &'a [u8],
    pub session: SessionId,
    pub slot: CallBackSlot,
    /// The highest slot that may be in use.
    pub highest_slot: u32,
}

/// A call. `None` if it is too long.
pub(super) fn encode(head: &Head<'_>, operation: &Args<'_>) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let writer = &mut Writer::new(&mut out);
    rpc::call::encode(
        writer,
        Xid(head.xid),
        head.program,
        CALLBACK_VERSION,
        PROCEDURE_COMPOUND,
        head.credential,
    );
    let mut writer = RequestWriter::<Back>::new(&mut out, b"", head.minor, 0);
    writer.push(&Args::Sequence(sequence::Args {
        session: head.session,
        sequence: head.slot.sequence,
        slot: head.slot.slot,
        highest_slot: head.highest_slot,
        // What is asked here may be asked twice.
        cache: false,
        referring: Array::default(),
    }));
    writer.push(operation);
    writer.finish();
    (out.len() <= CALL_BYTES_MAX).then_some(out)
}

/// What a reply means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// The client has executed the call. Whether it could do what was asked is its own affair.
    Done,
    /// The client has executed the call and wants to be asked again, or does not know yet of what
    /// it was asked: a reply that tells it may be on its way.
    DoneAskAgain,
    /// The client had executed another call with this slot and sequence id.
    UsedBefore,
    /// The client has not executed the call, and wants to be asked again.
    AskAgain,
    /// The client has not executed the call, for a reason that will not go away.
    Refused,
    /// As `Refused`, and the client counts the sequence ids of the slot otherwise.
    SlotLost,
}

/// Reads a reply to a call on a slot. `results` follow the head of the reply.
pub(super) fn decode(
    body: Body,
    results: &[u8],
    session: SessionId,
    slot: CallBackSlot,
    is_recall: bool,
) -> Answer {
    if body != Body::Accepted(Accept::Success) || results.len() > sizes::CALLBACK_BYTES as usize {
        return Answer::Refused;
    }
    read(results, session, slot, is_recall).unwrap_or(Answer::Refused)
}

fn read(
    results: &[u8],
    session: SessionId,
    slot: CallBackSlot,
    is_recall: bool,
) -> Result<Answer, ReplyError> {
    let mut reader = ReplyReader::<Back>::new(results)?;
    if reader.results == 0 {
        // Refused as a whole.
        let status = reader.status;
        reader.finish()?;
        return Ok(if status == Status::DELAY { Answer::AskAgain } else { Answer::Refused });
    }
    match reader.expect::<kind::Sequence>()? {
        Ok(its) if (its.session, its.slot, its.sequence) != (session, slot.slot, slot.sequence) => {
            return Ok(Answer::Refused);
        }
        Ok(_) => {}
        Err(status) => {
            reader.finish()?;
            return Ok(of_sequence(status));
        }
    }
    let done =
        if is_recall { reader.expect::<kind::Recall>()? } else { reader.expect::<kind::NotifyLock>()? };
    reader.finish()?;
    Ok(match done {
        Err(Status::RETRY_UNCACHED_REP) => Answer::UsedBefore,
        Err(Status::DELAY | Status::BAD_STATEID | Status::BADHANDLE) => Answer::DoneAskAgain,
        Ok(()) | Err(_) => Answer::Done,
    })
}

/// What a failure of CB_SEQUENCE means, which never advances the slot. RFC 8881 s20.9.3
const fn of_sequence(status: Status) -> Answer {
    match status {
        Status::SEQ_FALSE_RETRY | Status::RETRY_UNCACHED_REP => Answer::UsedBefore,
        Status::DELAY => Answer::AskAgain,
        Status::SEQ_MISORDERED | Status::BADSLOT => Answer::SlotLost,
        _ => Answer::Refused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fs::FileHandle;
    use nfs4::cb::{Reply, notify, recall};
    use nfs4::compound::{ReplyWriter, RequestReader};
    use nfs4::{ClientId, OwnerId, StateOwner, Stateid};

    const SESSION: SessionId = SessionId([3; 16]);
    const SLOT: CallBackSlot = CallBackSlot { slot: 2, sequence: 9, in_doubt: false };

    fn head(credential: &[u8]) -> Head<'_> {
        Head {
            xid: 77,
            program: 0x4000_0000,
            minor: 1,
            credential,
            session: SESSION,
            slot: SLOT,
            highest_slot: 15,
        }
    }

    fn recall() -> Args<'static> {
        let file = FileHandle::new(&[9; 128]).expect("a handle");
        Args::Recall(recall::Args { delegation: Stateid::default(), truncate: false, file })
    }

    fn credential() -> Vec<u8> {
        let mut bytes = Vec::new();
        let machine = &[b'm'; 255];
        let gids = smallvec::SmallVec::new();
        rpc::auth::AuthSys { stamp: 1, machine, uid: 2, gid: 3, gids }
            .encode_opaque(&mut Writer::new(&mut bytes));
        bytes
    }

    #[test]
    fn a_call_reads_back_and_fits_a_message_over_rdma() {
        let credential = credential();
        let call = encode(&head(&credential), &recall()).expect("not too long");
        assert!(call.len() + RDMA_HEADER_BYTES <= 1024, "{}", call.len());
        let mut reader = xdr::Reader::new(&call);
        let header = rpc::call::decode(&mut reader).expect("a call");
        assert_eq!((header.xid, header.program, header.version), (Xid(77), 0x4000_0000, 1));
        let mut requests = RequestReader::<Back>::new(reader.rest()).expect("a compound");
        assert_eq!((requests.minor, requests.operations), (1, 2));
        let first = requests.next_operation().expect("an operation").expect("sound").args;
        let Args::Sequence(first) = first else { panic!("{first:?}") };
        assert_eq!((first.session, first.slot, first.sequence, first.highest_slot), (SESSION, 2, 9, 15));
        assert!(!first.cache && first.referring.is_empty());
        assert_eq!(requests.next_operation().expect("an operation").expect("sound").args, recall());
    }

    #[test]
    fn a_call_that_does_not_fit_is_not_made() {
        let lock = |owner: &'static [u8]| {
            let owner = StateOwner { client: ClientId(1), owner: OwnerId::new(owner).expect("an owner") };
            let file = FileHandle::new(&[9; 128]).expect("a handle");
            encode(&head(&credential()), &Args::NotifyLock(notify::LockArgs { file, owner }))
        };
        assert!(lock(&[7; 100]).is_some());
        assert_eq!(lock(&[7; 1024]), None);
    }

    fn sequence(slot: u32) -> sequence::Success {
        let session = SESSION;
        sequence::Success { session, sequence: 9, slot, highest_slot: 3, target_highest_slot: 3 }
    }

    fn reply(build: impl FnOnce(&mut ReplyWriter<'_, Back>)) -> Vec<u8> {
        let mut out = Vec::new();
        let mut writer = ReplyWriter::new(&mut out, b"");
        build(&mut writer);
        writer.finish();
        out
    }

    fn answer(results: &[u8]) -> Answer {
        decode(Body::Accepted(Accept::Success), results, SESSION, SLOT, true)
    }

    #[test]
    fn replies_say_what_became_of_the_slot() {
        let second = |result| {
            answer(&reply(|to| {
                to.push(&Reply::Sequence(Ok(sequence(2))));
                to.push(&Reply::Recall(result));
            }))
        };
        for (result, means) in [
            (Ok(()), Answer::Done),
            (Err(Status::SERVERFAULT), Answer::Done),
            (Err(Status::DELAY), Answer::DoneAskAgain),
            (Err(Status::BAD_STATEID), Answer::DoneAskAgain),
            (Err(Status::RETRY_UNCACHED_REP), Answer::UsedBefore),
        ] {
            assert_eq!(second(result), means, "{result:?}");
        }
        let first = |status| answer(&reply(|to| _ = to.push(&Reply::Sequence(Err(status)))));
        for (status, means) in [
            (Status::SEQ_FALSE_RETRY, Answer::UsedBefore),
            (Status::DELAY, Answer::AskAgain),
            (Status::SEQ_MISORDERED, Answer::SlotLost),
            (Status::BADSESSION, Answer::Refused),
        ] {
            assert_eq!(first(status), means, "{status}");
        }
    }

    #[test]
    fn replies_that_are_not_what_they_should_be_are_refused() {
        let sound = reply(|to| {
            to.push(&Reply::Sequence(Ok(sequence(2))));
            to.push(&Reply::Recall(Ok(())));
        });
        assert_eq!(answer(&sound), Answer::Done);
        for cut in 0..sound.len() {
            assert_eq!(answer(&sound[..cut]), Answer::Refused, "{cut} bytes");
        }
        assert_eq!(answer(&[&sound[..], &[0; 4]].concat()), Answer::Refused, "more bytes");
        assert_eq!(answer(&[&sound[..], &[0; 2048]].concat()), Answer::Refused, "too long");
        let another = reply(|to| {
            to.push(&Reply::Sequence(Ok(sequence(1))));
            to.push(&Reply::Recall(Ok(())));
        });
        assert_eq!(answer(&another), Answer::Refused, "another slot");
        let other = reply(|to| {
            to.push(&Reply::Sequence(Ok(sequence(2))));
            to.push(&Reply::NotifyLock(Ok(())));
        });
        assert_eq!(answer(&other), Answer::Refused, "another operation");
        assert_eq!(answer(&reply(|to| _ = to.push(&Reply::Recall(Ok(()))))), Answer::Refused);
        let only = reply(|to| _ = to.push(&Reply::Sequence(Ok(sequence(2)))));
        assert_eq!(answer(&only), Answer::Refused, "it ends early");
        let unavailable = Body::Accepted(Accept::ProgUnavail);
        assert_eq!(decode(unavailable, &sound, SESSION, SLOT, true), Answer::Refused);
    }
}
