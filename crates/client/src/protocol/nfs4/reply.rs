//! What a reply says before the results of its operation: whether the session took the call, and
//! whether the server executed it. RFC 8881 s2.10.6, s18.46
//!
//! Everything is checked before a slot is used again: a reply for another session, slot or sequence
//! is no reply to this call.

use ::nfs4::compound::TAG_BYTES_MAX;
use ::nfs4::op::{Fore, kind, sequence};
use ::nfs4::table::{Family, Kind};
use ::nfs4::{ILLEGAL, Operation, Status, Wire};
use xdr::Reader;

use super::operations::told_after;
use super::{SlotUse, convert};
use crate::protocol::Results;

/// What became of a call.
#[derive(Debug)]
pub(crate) enum Opened<'a> {
    /// The server has executed it, now or before: its results follow.
    Done(Results<'a>, sequence::Success),
    /// The server has executed it before, and does not know the results any more. Most servers say
    /// so in place of the next result, some in place of that of SEQUENCE. RFC 8881 s2.10.6.1.3
    NotKept(Option<sequence::Success>),
    /// The server has not executed this transmission of it.
    Refused(SlotRefusal),
}

/// Why a session does not take a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SlotRefusal {
    /// The server asks to send it again later. An earlier transmission may be under way.
    Later,
    /// The connection must be bound to the session first.
    Unbound,
    /// The session, or the slot, is not what it is taken to be.
    Session(Status),
    /// The slot has been used for another call with the same number.
    OtherCall,
    /// The call is at fault: too long, for example.
    Call(Status),
}

impl std::fmt::Display for SlotRefusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Later => Status::DELAY.fmt(f),
            Self::Unbound => Status::CONN_NOT_BOUND_TO_SESSION.fmt(f),
            Self::OtherCall => Status::SEQ_FALSE_RETRY.fmt(f),
            Self::Session(status) | Self::Call(status) => status.fmt(f),
        }
    }
}

impl SlotRefusal {
    /// RFC 8881 s15.1.11, s18.46.3
    pub(crate) const fn of(status: Status) -> Self {
        match status {
            Status::DELAY => Self::Later,
            Status::CONN_NOT_BOUND_TO_SESSION => Self::Unbound,
            Status::SEQ_FALSE_RETRY => Self::OtherCall,
            Status::BADSESSION
            | Status::DEADSESSION
            | Status::BADSLOT
            | Status::BAD_HIGH_SLOT
            | Status::SEQ_MISORDERED
            | Status::STALE_CLIENTID
            | Status::EXPIRED => Self::Session(status),
            other => Self::Call(other),
        }
    }
}

/// What a failure of SEQUENCE means for the call.
const fn not_taken(status: Status) -> Opened<'static> {
    match status {
        Status::RETRY_UNCACHED_REP => Opened::NotKept(None),
        status => Opened::Refused(SlotRefusal::of(status)),
    }
}

/// Reads the beginning of the reply to a compound that had this slot, and so many operations after
/// SEQUENCE, for which it is named. The reply need not have been received as a whole.
pub(crate) fn open<'a>(
    mut reader: Reader<'a>,
    slot: &SlotUse,
    (operation, operations): (Operation, u32),
) -> Result<Opened<'a>, String> {
    let short = |error: xdr::Error| error.to_string();
    let status = reader.u32().map(Status).map_err(short)?;
    reader.opaque(TAG_BYTES_MAX).map_err(short)?;
    let results = reader.u32().map_err(short)?;
    if results == 0 {
        return match status {
            Status::OK => Err("a compound without results".to_owned()),
            status => Ok(not_taken(status)),
        };
    }
    let sequence = match expect::<kind::Sequence>(&mut reader).map_err(short)? {
        Ok(sequence) => sequence,
        Err(refused) if refused == status && results == 1 => return Ok(not_taken(refused)),
        Err(refused) => return Err(format!("SEQUENCE failed ({refused}), and {results} results follow")),
    };
    for (what, told, asked) in
        [("sequence", sequence.sequence, slot.sequence), ("slot", sequence.slot, slot.slot)]
    {
        if told != asked {
            return Err(format!("it is for {what} {told}, not {asked}"));
        }
    }
    if sequence.session != slot.session {
        return Err(format!("it is for session {:?}, not {:?}", sequence.session, slot.session));
    }
    if operation == Operation::Sequence {
        // Asked alone, it finds out what a slot was last used for. What follows is the kept reply
        // of that call, from a server that goes by the number alone.
        let nothing = Reader::new(&[]);
        return Ok(Opened::Done(Results::of_compound(operation, Status::OK, nothing), sequence));
    }
    let all = operations + 1;
    match status {
        Status::RETRY_UNCACHED_REP if results == 2 => return Ok(Opened::NotKept(Some(sequence))),
        Status::OK if results == all => {}
        Status::OK => return Err(format!("{results} results for {all} operations")),
        failed if results < 2 || results > all => {
            return Err(format!("{results} results for {all} operations, which failed ({failed})"));
        }
        _ => {}
    }
    // What has changed has changed, whatever fails after it; its reader sees what is missing.
    let is_changed = results > all.saturating_sub(told_after(operation, operations));
    // A lock that is in the way is what LOCK and LOCKT tell.
    let is_told = status == Status::DENIED && matches!(operation, Operation::Lock | Operation::LockT);
    let status = if is_changed || is_told { Status::OK } else { status };
    Ok(Opened::Done(Results::of_compound(operation, status, reader), sequence))
}

/// The result of an operation, which must be `K`. A server that does not know the operation answers
/// with OP_ILLEGAL. RFC 8881 s18.52
pub(super) fn expect<'a, K: Kind<Family = Fore>>(reader: &mut Reader<'a>) -> xdr::Result<K::Reply<'a>> {
    let number = reader.u32()?;
    if number == Fore::number(K::OPERATION) {
        return K::Reply::decode(reader);
    }
    let value = if number == ILLEGAL { reader.u32()? } else { number };
    Err(xdr::Error::BadDiscriminant { name: "nfs_opnum4", value })
}

/// The success of an operation in a compound that succeeded.
pub(super) fn done<S>(reply: Result<S, Status>) -> xdr::Result<S> {
    reply.map_err(|Status(value)| xdr::Error::BadDiscriminant { name: "nfsstat4", value })
}

impl<'a> Results<'a> {
    /// The results that follow that of SEQUENCE.
    fn of_compound(of: Operation, status: Status, reader: Reader<'a>) -> Self {
        let failure = (status != Status::OK).then(|| convert::failure(of, status));
        Self { status: failure, number: Some(status.0), reader }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::nfs4::SessionId;
    use ::nfs4::compound::ReplyWriter;
    use ::nfs4::op::{Reply, getattr, handles};

    const SLOT: SlotUse =
        SlotUse { generation: 0, session: SessionId([7; 16]), slot: 3, sequence: 9, highest_slot: 15 };

    fn sequence() -> sequence::Success {
        sequence::Success {
            session: SLOT.session,
            sequence: 9,
            slot: 3,
            highest_slot: 63,
            target_highest_slot: 31,
            flags: 0,
        }
    }

    fn reply(results: &[Reply<'_>]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut writer = ReplyWriter::<Fore>::new(&mut out, b"");
        for result in results {
            writer.push(result);
        }
        writer.finish();
        out
    }

    fn opened(results: &[Reply<'_>], operations: u32) -> Result<Opened<'static>, String> {
        let bytes = reply(results).leak();
        open(Reader::new(bytes), &SLOT, (Operation::PutFh, operations))
    }

    // RFC 8881 s18.46
    #[test]
    fn a_reply_with_its_slot_is_opened_and_its_results_follow() {
        let results = [Reply::Sequence(Ok(sequence())), Reply::PutFh(Ok(()))];
        let Ok(Opened::Done(mut results, told)) = opened(&results, 1) else { panic!() };
        assert_eq!((told.target_highest_slot, results.status), (31, None));
        assert_eq!(expect::<kind::PutFh>(&mut results.reader), Ok(Ok(())));
        assert_eq!(results.reader.remaining(), 0);
    }

    #[test]
    fn the_failure_of_an_operation_is_that_of_the_call() {
        let results = [Reply::Sequence(Ok(sequence())), Reply::PutFh(Err(Status::STALE))];
        let Ok(Opened::Done(results, _)) = opened(&results, 2) else { panic!() };
        assert_eq!(results.status, Some(fs::Status::Stale));
    }

    #[test]
    fn a_reply_for_another_session_slot_or_sequence_is_refused() {
        let with = |change: &dyn Fn(&mut sequence::Success)| {
            let mut told = sequence();
            change(&mut told);
            opened(&[Reply::Sequence(Ok(told)), Reply::PutFh(Ok(()))], 1).unwrap_err()
        };
        assert!(with(&|told| told.session = SessionId([8; 16])).contains("session"));
        assert!(with(&|told| told.slot = 4).contains("slot 4, not 3"));
        assert!(with(&|told| told.sequence = 8).contains("sequence 8, not 9"));
    }

    #[test]
    fn a_reply_with_too_few_too_many_or_other_results_is_refused() {
        let ok = Reply::Sequence(Ok(sequence()));
        assert!(opened(&[ok], 1).is_err(), "one result is missing");
        assert!(opened(&[ok, Reply::PutFh(Ok(())), Reply::PutFh(Ok(()))], 1).is_err());
        assert!(opened(&[Reply::PutFh(Ok(()))], 1).is_err(), "SEQUENCE comes first");
        let whole = reply(&[ok, Reply::PutFh(Ok(()))]);
        for len in 0..whole.len() - 8 {
            assert!(open(Reader::new(&whole[..len]), &SLOT, (Operation::PutFh, 1)).is_err(), "{len} bytes");
        }
        assert!(
            open(Reader::new(&[0; 12]), &SLOT, (Operation::PutFh, 1)).is_err(),
            "success without results"
        );
    }

    // RFC 8881 s15.1.11, s2.10.6.1.3
    #[test]
    fn what_a_session_refuses_is_told_from_what_an_operation_fails_with() {
        for (status, refusal) in [
            (Status::DELAY, SlotRefusal::Later),
            (Status::CONN_NOT_BOUND_TO_SESSION, SlotRefusal::Unbound),
            (Status::BADSESSION, SlotRefusal::Session(Status::BADSESSION)),
            (Status::SEQ_MISORDERED, SlotRefusal::Session(Status::SEQ_MISORDERED)),
            (Status::SEQ_FALSE_RETRY, SlotRefusal::OtherCall),
            (Status::REQ_TOO_BIG, SlotRefusal::Call(Status::REQ_TOO_BIG)),
        ] {
            let Ok(Opened::Refused(told)) = opened(&[Reply::Sequence(Err(status))], 2) else { panic!() };
            assert_eq!(told, refusal);
        }
        let delayed = [Reply::Sequence(Ok(sequence())), Reply::PutFh(Err(Status::DELAY))];
        let Ok(Opened::Done(results, _)) = opened(&delayed, 2) else { panic!() };
        assert_eq!(results.status, Some(fs::Status::Later));
        let lost = [Reply::Sequence(Ok(sequence())), Reply::PutFh(Err(Status::RETRY_UNCACHED_REP))];
        assert!(matches!(opened(&lost, 2), Ok(Opened::NotKept(Some(_)))));
        let lost = [Reply::Sequence(Err(Status::RETRY_UNCACHED_REP))];
        assert!(matches!(opened(&lost, 2), Ok(Opened::NotKept(None))));
    }

    // RFC 8881 s2.10.6.1.3.1
    #[test]
    fn sequence_alone_finds_its_number_used_whatever_the_reply_of_that_call_says() {
        let bare = |results: &[Reply<'_>]| {
            let bytes = reply(results).leak();
            open(Reader::new(bytes), &SLOT, (Operation::Sequence, 0))
        };
        let ok = Reply::Sequence(Ok(sequence()));
        for kept in [
            &[ok][..],
            &[ok, Reply::PutFh(Ok(()))],
            &[ok, Reply::PutFh(Err(Status::DELAY))],
            &[ok, Reply::PutFh(Err(Status::RETRY_UNCACHED_REP))],
        ] {
            let Ok(Opened::Done(results, _)) = bare(kept) else { panic!("{kept:?}") };
            assert_eq!((results.status, results.reader.remaining()), (None, 0));
        }
        assert!(matches!(bare(&[Reply::Sequence(Err(Status::RETRY_UNCACHED_REP))]), Ok(Opened::NotKept(_))));
        let other = sequence::Success { slot: 4, ..sequence() };
        assert!(bare(&[Reply::Sequence(Ok(other)), Reply::PutFh(Ok(()))]).is_err(), "another slot");
    }

    // RFC 8881 s16.2.3
    #[test]
    fn what_fails_after_a_change_does_not_undo_it() {
        use Operation as Op;
        // The operations after SEQUENCE, and the place of the one that changes something.
        for (operation, operations, place) in [
            (Op::Open, 5, 2),
            (Op::Create, 4, 2),
            (Op::SetAttr, 3, 2),
            (Op::SetAttr, 4, 3),
            (Op::Link, 6, 4),
            (Op::Remove, 5, 5),
            (Op::Rename, 4, 4),
            (Op::GetAttr, 2, 3),
        ] {
            for failed in 1..=operations {
                let mut results = vec![Reply::Sequence(Ok(sequence()))];
                results.resize(failed as usize, Reply::PutFh(Ok(())));
                results.push(Reply::PutFh(Err(Status::DELAY)));
                let bytes = reply(&results);
                let opened = open(Reader::new(&bytes), &SLOT, (operation, operations));
                let Ok(Opened::Done(results, _)) = opened else { panic!("{opened:?}") };
                let expected = (failed <= place).then_some(fs::Status::Later);
                assert_eq!(results.status, expected, "{operation:?}: {failed} of {operations} fails");
            }
        }
    }

    #[test]
    fn a_success_that_contains_a_failure_does_not_decode() {
        let handle = fs::FileHandle::new(b"x").unwrap();
        let found = reply(&[Reply::GetFh(Ok(handles::GetSuccess { handle }))]);
        let mut reader = Reader::new(&found[12..]);
        assert!(expect::<kind::GetAttr>(&mut reader).is_err(), "another operation");
        let failed: getattr::Reply<'_> = Err(Status::IO);
        assert!(done(failed).is_err());
    }
}
