//! Tests of compounds: payload in the message and beside it, refused operations, and what a client
//! finds wrong with a reply.

use super::*;
use crate::op::{self, Fore, kind};
use crate::{Args, Bitmap, Operation, Reply, SessionId, Stateid, Status};
use fs::{FileHandle, Stability};

const SEQUENCE: op::sequence::Args =
    op::sequence::Args { session: SessionId([7; 16]), sequence: 1, slot: 2, highest_slot: 3, cache: false };
const DONE: op::sequence::Success = op::sequence::Success {
    session: SessionId([7; 16]),
    sequence: 1,
    slot: 2,
    highest_slot: 63,
    target_highest_slot: 63,
    flags: 0,
};
const WRITE: op::write::ArgsHead =
    op::write::ArgsHead { stateid: Stateid::ANONYMOUS, offset: 4096, stable: Stability::Unstable, count: 5 };

fn handle() -> FileHandle {
    FileHandle::new(b"handle").unwrap()
}

fn write_request(out: &mut Vec<u8>) -> Finished {
    let mut writer = shapes::on(out, 2, &SEQUENCE, handle());
    writer.write(WRITE, Bitmap::of(&[3, 4]));
    writer.finish()
}

fn all<'a>(mut reader: RequestReader<'a, Fore>) -> (Vec<Decoded<'a, Fore>>, usize) {
    let requests: Vec<_> = std::iter::from_fn(|| reader.next_operation()).collect();
    (requests, reader.remaining())
}

#[test]
fn the_data_of_a_write_are_beside_the_message_and_the_rest_is_read_after_them() {
    let mut out = Vec::new();
    let finished = write_request(&mut out);
    let at = finished.payload_at.unwrap();
    let (before, after) = out.split_at(at);
    // Three bytes of padding, and then GETATTR: number, two words of a bitmap.
    assert_eq!(after, [0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0, 0x18]);
    let place = find_write(before).unwrap();
    assert_eq!((place.index, place.at, place.write), (2, at, WRITE));
    assert_eq!((place.file, place.sequence), (Some(handle()), Some(SEQUENCE)));
    let (beside, rest) = all(RequestReader::with_payload_beside(before, after).unwrap());
    assert_eq!((beside.len(), rest), (4, 0));
    let write = beside[2].unwrap();
    assert_eq!((write.args, write.payload), (Args::Write(WRITE), Payload::Beside));

    // The same request received whole.
    let whole = [before, b"12345", after].concat();
    assert_eq!(find_write(&whole), Some(place));
    let (here, rest) = all(RequestReader::new(&whole).unwrap());
    assert_eq!(rest, 0);
    assert_eq!(here[2].unwrap().payload, Payload::Here(b"12345"));
    assert_eq!(here[3], beside[3]);
}

#[test]
fn a_write_is_found_only_once_its_head_is_complete() {
    let mut out = Vec::new();
    let at = write_request(&mut out).payload_at.unwrap();
    for len in 0..at {
        assert_eq!(find_write(&out[..len]), None, "{len} bytes");
    }
    assert!(find_write(&out[..at]).is_some());
}

#[test]
fn a_write_after_a_lookup_does_not_name_its_file() {
    let mut out = Vec::new();
    let mut writer = shapes::on(&mut out, 1, &SEQUENCE, handle());
    writer.push(&Args::Lookup(op::lookup::Args { name: b"a" })).push(&Args::Write(WRITE));
    writer.finish();
    assert_eq!(find_write(&out).map(|place| (place.index, place.file)), Some((3, None)));
}

#[test]
fn data_that_are_missing_are_bad_xdr_of_the_write() {
    let mut out = Vec::new();
    let at = write_request(&mut out).payload_at.unwrap();
    let refused = Refused { operation: Some(Operation::Write), status: Status::BADXDR };
    for missing in [b"".as_slice(), b"1234", b"12345", b"12345\0\0"] {
        let message = [&out[..at], missing].concat();
        let (requests, _) = all(RequestReader::new(&message).unwrap());
        assert_eq!(requests.last(), Some(&Err(refused)), "{missing:?}");
    }
    // Padding that is missing after data that were received in place.
    let (requests, _) = all(RequestReader::with_payload_beside(&out[..at], &[0, 0]).unwrap());
    assert_eq!(requests.last(), Some(&Err(refused)));
}

fn raw(minor: u32, count: u32, rest: &[u32]) -> Vec<u8> {
    [0, minor, count].iter().chain(rest).flat_map(|word| word.to_be_bytes()).collect()
}

// RFC 8881 s18.52, s15.1.3.3 and s15.1.1.5
#[test]
fn unknown_unsupported_and_undecodable_operations_are_told_apart() {
    let refused = |message: &[u8]| {
        let (requests, _) = all(RequestReader::new(message).unwrap());
        assert_eq!(requests.len(), 1, "nothing is read after a failure");
        requests[0].unwrap_err()
    };
    let illegal = Refused { operation: None, status: Status::OP_ILLEGAL };
    assert_eq!(refused(&raw(2, 2, &[2, 9])), illegal);
    assert_eq!(refused(&raw(2, 2, &[76, 9])), illegal);
    // READ_PLUS is of version 4.2.
    assert_eq!(refused(&raw(1, 2, &[68, 9])), illegal);
    assert_eq!(
        refused(&raw(2, 2, &[46])),
        Refused { operation: Some(Operation::GetDirDelegation), status: Status::NOTSUPP }
    );
    assert_eq!(
        refused(&raw(1, 2, &[30, 0, 0])),
        Refused { operation: Some(Operation::Renew), status: Status::NOTSUPP }
    );
    assert_eq!(
        refused(&raw(1, 2, &[53, 1])),
        Refused { operation: Some(Operation::Sequence), status: Status::BADXDR }
    );
    assert_eq!(refused(&raw(1, 1, &[])), Refused { operation: None, status: Status::BADXDR });
}

#[test]
fn no_more_operations_are_read_than_there_may_be() {
    let message = raw(1, u32::MAX, &[10; 200]);
    let (requests, _) = all(RequestReader::new(&message).unwrap());
    assert_eq!(requests.len(), 129);
    let refused = Refused { operation: Some(Operation::GetFh), status: Status::TOO_MANY_OPS };
    assert_eq!(requests[128], Err(refused), "the result has the operation's own number");
    assert_eq!(find_write(&message), None);
}

#[test]
fn a_tag_has_a_bound_and_other_minor_versions_are_refused() {
    let tag = |len: u32| {
        let mut message = Vec::new();
        xdr::Writer::new(&mut message).opaque(&vec![b'a'; len as usize]);
        message.extend(raw(1, 0, &[]).get(4..).unwrap());
        RequestReader::<Fore>::new(&message).map(|reader| reader.tag.len())
    };
    assert_eq!(tag(1024), Ok(1024));
    assert_eq!(tag(1025), Err(xdr::Error::TooLong { len: 1025, max: 1024 }));
    for (minor, well) in [(0, false), (1, true), (2, true), (3, false)] {
        let message = raw(minor, 0, &[]);
        let checked = RequestReader::<Fore>::new(&message).unwrap().check_minor();
        assert_eq!(checked, if well { Ok(()) } else { Err(Status::MINOR_VERS_MISMATCH) });
    }
}

fn read_reply(out: &mut Vec<u8>) -> Finished {
    let mut writer = ReplyWriter::<Fore>::new(out, b"");
    writer.push(&Reply::Sequence(Ok(DONE)));
    writer.push(&Reply::PutFh(Ok(())));
    writer.push(&Reply::Read(Ok(op::read::ReplyHead { eof: true, count: 6 })));
    assert!(writer.has_payload());
    assert_eq!(writer.len(), shapes::READ_DATA_AT + 8);
    writer.finish()
}

#[test]
fn the_data_of_a_read_are_beside_the_reply_where_the_shape_says() {
    let mut out = Vec::new();
    let finished = read_reply(&mut out);
    assert_eq!(finished, Finished { len: 82, payload_at: Some(shapes::READ_DATA_AT) });
    let (before, after) = out.split_at(shapes::READ_DATA_AT);
    let head = op::read::ReplyHead { eof: true, count: 6 };
    let place = ReadPlace { index: 2, at: shapes::READ_DATA_AT, read: head };
    assert_eq!(find_read(before, 1), Some(place));
    for len in 0..before.len() {
        assert_eq!(find_read(&before[..len], 1), None, "{len} bytes");
    }
    let whole = [before, b"123456", after].concat();
    let readers = [
        (ReplyReader::<Fore>::new(&whole), Payload::Here(b"123456".as_slice())),
        (ReplyReader::with_payload_beside(before, after), Payload::Beside),
    ];
    for (reader, payload) in readers {
        let mut reader = reader.unwrap();
        assert_eq!(reader.expect::<kind::Sequence>(), Ok(Ok(DONE)));
        assert_eq!(reader.expect::<kind::PutFh>(), Ok(Ok(())));
        assert_eq!(reader.expect::<kind::Read>(), Ok(Ok(head)));
        assert_eq!(reader.data(&head), Ok(payload));
        assert_eq!(reader.finish(), Ok(()));
    }
}

#[test]
fn a_failed_compound_ends_and_its_status_is_that_of_the_last_result() {
    let mut out = Vec::new();
    let mut writer = ReplyWriter::<Fore>::new(&mut out, b"tag");
    writer.push(&Reply::Sequence(Ok(DONE)));
    assert_eq!(writer.push(&Reply::PutFh(Err(Status::STALE))), Status::STALE);
    assert_eq!(writer.finish().payload_at, None);
    let mut reader = ReplyReader::<Fore>::new(&out).unwrap();
    assert_eq!((reader.status, reader.tag, reader.results), (Status::STALE, b"tag".as_slice(), 2));
    reader.expect::<kind::Sequence>().unwrap().unwrap();
    assert_eq!(reader.expect::<kind::PutFh>(), Ok(Err(Status::STALE)));
    assert_eq!(reader.expect::<kind::GetAttr>(), Err(ReplyError::Ended(Status::STALE, 2)));
    assert_eq!(reader.finish(), Ok(()));
}

#[test]
fn a_result_of_another_operation_is_refused() {
    let mut out = Vec::new();
    let mut writer = ReplyWriter::<Fore>::new(&mut out, b"");
    writer.push(&Reply::LookupP(Ok(())));
    writer.finish();
    let mut reader = ReplyReader::<Fore>::new(&out).unwrap();
    let wrong = ReplyError::WrongOperation { index: 0, expected: 15, got: 16 };
    assert_eq!(reader.expect::<kind::Lookup>(), Err(wrong));
}

#[test]
fn op_illegal_is_a_failure_of_the_operation_that_was_asked() {
    let mut out = Vec::new();
    let mut writer = ReplyWriter::<Fore>::new(&mut out, b"");
    writer.refuse(Refused { operation: None, status: Status::OP_ILLEGAL });
    writer.finish();
    // RFC 8881 s18.52: status, tag, one result, number 10044 and its status.
    assert_eq!(out, [10_044_u32, 0, 1, 10_044, 10_044].map(u32::to_be_bytes).concat());
    let mut reader = ReplyReader::<Fore>::new(&out).unwrap();
    assert_eq!(reader.expect::<kind::Seek>(), Ok(Err(Status::OP_ILLEGAL)));
    assert_eq!(reader.finish(), Ok(()));
}

// RFC 8881 s18.30.2: the bitmap follows a failure too.
#[test]
fn a_refused_setattr_has_its_bitmap_and_other_failures_have_nothing() {
    for (operation, more) in [(Operation::SetAttr, 4), (Operation::Renew, 0), (Operation::Open, 0)] {
        let mut out = Vec::new();
        let mut writer = ReplyWriter::<Fore>::new(&mut out, b"");
        writer.fail(operation, Status::NOTSUPP);
        writer.finish();
        assert_eq!(out.len(), 12 + 8 + more, "{operation:?}");
    }
}

#[test]
fn a_result_that_is_too_long_is_replaced_with_its_payload() {
    let mut out = Vec::new();
    let mut writer = ReplyWriter::<Fore>::new(&mut out, b"");
    writer.push(&Reply::PutFh(Ok(())));
    let before = writer.len();
    writer.push(&Reply::Read(Ok(op::read::ReplyHead { eof: false, count: 1 << 20 })));
    assert_eq!(writer.len(), before + 16 + (1 << 20));
    writer.replace_last(Operation::Read, Status::REP_TOO_BIG);
    assert_eq!((writer.len(), writer.results()), (before + 8, 2));
    assert_eq!(writer.finish(), Finished { len: before + 8, payload_at: None });
    assert_eq!(ReplyReader::<Fore>::new(&out).unwrap().status, Status::REP_TOO_BIG);
}

#[test]
fn the_payload_of_an_earlier_result_stays_when_the_last_one_is_replaced() {
    for count in [4096, 4095] {
        let mut out = Vec::new();
        let mut writer = ReplyWriter::<Fore>::new(&mut out, b"");
        writer.push(&Reply::Read(Ok(op::read::ReplyHead { eof: false, count })));
        let before = writer.len();
        writer.push(&Reply::PutFh(Ok(())));
        writer.replace_last(Operation::PutFh, Status::REP_TOO_BIG);
        assert!(writer.has_payload(), "{count} bytes");
        assert_eq!(writer.len(), before + 8, "{count} bytes");
        let at = writer.finish().payload_at.expect("the data of the READ");
        let (data, mut whole) = (vec![7; count as usize], out.split_off(at));
        whole.splice(..0, [out, data.clone()].concat());
        let mut reader = ReplyReader::<Fore>::new(&whole).unwrap();
        let (_, payload) = reader.next_result(1).unwrap().unwrap();
        assert_eq!(payload, Payload::Here(data.as_slice()), "{count} bytes");
        assert_eq!(reader.expect::<kind::PutFh>(), Ok(Err(Status::REP_TOO_BIG)));
    }
}

#[test]
fn a_second_read_has_its_data_in_the_message() {
    let mut out = Vec::new();
    let mut writer = ReplyWriter::<Fore>::new(&mut out, b"");
    writer.read_here(true, [b"abc".as_slice(), b"de"].into_iter());
    writer.finish();
    let mut reader = ReplyReader::<Fore>::new(&out).unwrap();
    let (reply, payload) = reader.next_result(1).unwrap().unwrap();
    let head = op::read::ReplyHead { eof: true, count: 5 };
    assert_eq!((reply, payload), (Reply::Read(Ok(head)), Payload::Here(b"abcde")));
    assert_eq!(reader.finish(), Ok(()));
}

#[test]
fn the_data_of_read_plus_come_last_and_beside_the_reply() {
    let mut out = Vec::new();
    let mut writer = ReplyWriter::<Fore>::new(&mut out, b"");
    let hole = crate::Range { offset: 0, length: 4096 };
    writer.read_plus(&op::read_plus::DataHead { eof: true, hole: Some(hole), offset: 4096, count: 3 });
    let at = writer.finish().payload_at.unwrap();
    let whole = [&out[..at], b"abc", &out[at..]].concat();
    let mut reader = ReplyReader::<Fore>::new(&whole).unwrap();
    let success = reader.expect::<kind::ReadPlus>().unwrap().unwrap();
    let data = op::read_plus::Segment::Data { offset: 4096, bytes: b"abc" };
    assert!(success.eof);
    assert_eq!(success.segments.iter().collect::<Vec<_>>(), [op::read_plus::Segment::Hole(hole), data]);
    assert_eq!(reader.finish(), Ok(()));
}

#[test]
fn a_listing_is_written_into_the_reply() {
    let mut out = Vec::new();
    let mut writer = ReplyWriter::<Fore>::new(&mut out, b"");
    let attributes = crate::Attributes { fileid: Some(9), ..crate::Attributes::default() };
    let status = writer.readdir([1; 8], 0, 4096, |mut entries| {
        assert!(entries.add(3, b"name", &attributes, Bitmap::of(&[20])));
        entries.finish(true)
    });
    assert_eq!(status, Status::OK);
    writer.finish();
    let mut reader = ReplyReader::<Fore>::new(&out).unwrap();
    let listing = reader.expect::<kind::ReadDir>().unwrap().unwrap();
    assert_eq!(
        listing.entries.iter().map(|entry| (entry.cookie, entry.name)).collect::<Vec<_>>(),
        [(3, b"name".as_slice())]
    );
    assert_eq!(reader.finish(), Ok(()));
}

#[test]
fn a_reply_that_contradicts_itself_is_refused() {
    let mut out = Vec::new();
    let mut writer = ReplyWriter::<Fore>::new(&mut out, b"");
    writer.push(&Reply::PutFh(Ok(())));
    writer.finish_with(Status::STALE);
    let mut reader = ReplyReader::<Fore>::new(&out).unwrap();
    reader.expect::<kind::PutFh>().unwrap().unwrap();
    assert_eq!(reader.finish(), Err(ReplyError::Contradiction));
}

/// The names of the operations of a request, and how many bytes its data would have.
fn names(build: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut out = Vec::new();
    build(&mut out);
    let mut reader = RequestReader::<Fore>::with_payload_beside(&out, &[]).unwrap();
    if let Some(place) = find_write(&out) {
        let (before, after) = out.split_at(place.at);
        reader = RequestReader::with_payload_beside(before, after).unwrap();
    }
    let (requests, rest) = all(reader);
    assert_eq!(rest, 0);
    let names: Vec<_> = requests.iter().map(|request| request.unwrap().args.operation().name()).collect();
    names.join(" ")
}

#[test]
fn shapes_have_the_operations_that_their_documentation_says() {
    let (wanted, none) = (Bitmap::of(&[1, 3]), Bitmap::EMPTY);
    let on = |build: &dyn Fn(&mut shapes::Writer<'_>)| {
        names(|out| {
            let mut writer = shapes::on(out, 2, &SEQUENCE, handle());
            build(&mut writer);
            writer.finish();
        })
    };
    let on_two = |build: &dyn Fn(&mut shapes::Writer<'_>)| {
        names(|out| {
            let mut writer = shapes::on_two(out, 2, &SEQUENCE, handle(), handle());
            build(&mut writer);
            writer.finish();
        })
    };
    let read = op::read::Args { stateid: Stateid::ANONYMOUS, offset: 0, count: 1 };
    let open = op::open::Args {
        seqid: 0,
        access: 1,
        deny: 0,
        owner: crate::StateOwner { client: crate::ClientId(0), owner: crate::OwnerId::default() },
        how: op::open::How::NoCreate,
        claim: op::open::Claim::Current,
    };
    let copy = op::copy::Args {
        source: Stateid::ANONYMOUS,
        target: Stateid::ANONYMOUS,
        source_offset: 0,
        target_offset: 0,
        count: 1,
        consecutive: true,
        synchronous: true,
        source_servers: crate::Array::default(),
    };
    let clone = op::copy::CloneArgs {
        source: Stateid::ANONYMOUS,
        target: Stateid::ANONYMOUS,
        source_offset: 0,
        target_offset: 0,
        count: 0,
    };
    let rights = fs::Rights::READ;
    assert_eq!(on(&|to| _ = to.read(read)), "SEQUENCE PUTFH READ");
    assert_eq!(on(&|to| _ = to.write(WRITE, none)), "SEQUENCE PUTFH WRITE");
    assert_eq!(on(&|to| _ = to.write(WRITE, wanted)), "SEQUENCE PUTFH WRITE GETATTR");
    assert_eq!(on(&|to| _ = to.attributes(wanted)), "SEQUENCE PUTFH GETATTR");
    assert_eq!(on(&|to| _ = to.lookup(b"a", wanted)), "SEQUENCE PUTFH LOOKUP GETFH GETATTR");
    let opened = on(&|to| _ = to.open(open, rights, wanted, None));
    assert_eq!(opened, "SEQUENCE PUTFH OPEN GETFH ACCESS GETATTR");
    let twice = "SEQUENCE PUTFH SAVEFH PUTFH";
    assert_eq!(on_two(&|to| _ = to.rename(b"a", b"b")), format!("{twice} RENAME"));
    assert_eq!(on_two(&|to| _ = to.link(b"a", wanted)), format!("{twice} LINK RESTOREFH GETATTR"));
    assert_eq!(on_two(&|to| _ = to.link(b"a", none)), format!("{twice} LINK"));
    assert_eq!(on_two(&|to| _ = to.copy(copy)), format!("{twice} COPY COMMIT"));
    assert_eq!(on_two(&|to| _ = to.clone_range(clone, wanted)), format!("{twice} CLONE GETATTR"));
    let root = names(|out| {
        shapes::on_root(out, 1, &SEQUENCE, wanted).finish();
    });
    assert_eq!(root, "SEQUENCE PUTROOTFH GETFH GETATTR");
}
