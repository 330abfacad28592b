//! Tests that messages decode to their meaning, and encode to the same bytes. The bytes were laid
//! out by hand from RFC 1813 appendix II and XNFS s11, in the form in which the Linux client sends
//! them: a cookie of 4 bytes, an owner that reads `SVID@HOST`.

use nlm::fuzzing::{Which, call_again, reply_again};
use nlm::proc::{Reply, cancel, free_all, lock, share, test, unlock};
use nlm::{Holder, Lock, NetObj, Procedure, Status, Text, Wire, nsm};
use std::fmt::Debug;
use xdr::Reader;

/// Words in hexadecimal, separated by blanks.
fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

fn check_value<'a, T: Wire<'a> + PartialEq + Debug>(bytes: &'a [u8], expected: &T) {
    let mut reader = Reader::new(bytes);
    assert_eq!(&T::decode(&mut reader).unwrap(), expected);
    assert_eq!(reader.remaining(), 0, "nothing follows");
    let mut written = Vec::new();
    expected.encode(&mut xdr::Writer::new(&mut written));
    assert_eq!(written, bytes);
}

/// The arguments mean this, and the table of procedures finds them under this one.
fn check_call<'a, T: Wire<'a> + PartialEq + Debug>(which: Which, bytes: &'a [u8], expected: &T) {
    check_value(bytes, expected);
    let mut written = Vec::new();
    assert_eq!(call_again(which, bytes, &mut written), Ok(0), "{which:?}");
}

fn check_reply<'a, T: Wire<'a> + PartialEq + Debug>(which: Which, bytes: &'a [u8], expected: &T) {
    check_value(bytes, expected);
    let mut written = Vec::new();
    assert_eq!(reply_again(which, bytes, &mut written), Ok(0), "{which:?}");
}

const COOKIE: NetObj<'_> = NetObj(&[0x2a, 0, 0, 0]);
const FILE: &[u8] = b"file handle!";

/// 16 bytes from 4096.
const LOCK: Lock<'_> = Lock {
    caller: Text(b"alpha"),
    file: NetObj(FILE),
    owner: NetObj(b"7@alpha"),
    svid: 7,
    offset: 4096,
    length: 16,
};

const COOKIE_WORDS: &str = "00000004 2a000000";
/// The name, the handle, the owner, its process, and the range.
const LOCK_WORDS: &str = "
    00000005 616c7068 61000000
    0000000c 66696c65 2068616e 646c6521
    00000007 3740616c 70686100
    00000007
    00000000 00001000 00000000 00000010";

const fn nlm(procedure: Procedure) -> Which {
    Which::Nlm(procedure)
}

#[test]
fn lock_is_cookie_block_exclusive_lock_reclaim_state() {
    let bytes = unhex(&format!("{COOKIE_WORDS} 00000001 00000001 {LOCK_WORDS} 00000000 00000003"));
    let args =
        lock::Args { cookie: COOKIE, block: true, exclusive: true, lock: LOCK, reclaim: false, state: 3 };
    for procedure in [Procedure::Lock, Procedure::LockMsg, Procedure::NmLock] {
        check_call(nlm(procedure), &bytes, &args);
    }
}

#[test]
fn test_and_granted_are_cookie_exclusive_lock() {
    let bytes = unhex(&format!("{COOKIE_WORDS} 00000000 {LOCK_WORDS}"));
    let args = test::Args { cookie: COOKIE, exclusive: false, lock: LOCK };
    for procedure in [Procedure::Test, Procedure::TestMsg, Procedure::Granted, Procedure::GrantedMsg] {
        check_call(nlm(procedure), &bytes, &args);
    }
}

#[test]
fn cancel_says_what_the_request_said_and_unlock_says_the_range() {
    let bytes = unhex(&format!("{COOKIE_WORDS} 00000001 00000001 {LOCK_WORDS}"));
    let args = cancel::Args { cookie: COOKIE, block: true, exclusive: true, lock: LOCK };
    check_call(nlm(Procedure::Cancel), &bytes, &args);
    check_call(nlm(Procedure::CancelMsg), &bytes, &args);
    let bytes = unhex(&format!("{COOKIE_WORDS} {LOCK_WORDS}"));
    let args = unlock::Args { cookie: COOKIE, lock: LOCK };
    check_call(nlm(Procedure::Unlock), &bytes, &args);
    check_call(nlm(Procedure::UnlockMsg), &bytes, &args);
}

#[test]
fn a_test_that_is_denied_names_the_holder_and_others_do_not() {
    let holder = "00000001 00000009 00000003 39406200 00000000 00000000 00000000 00000000";
    let bytes = unhex(&format!("{COOKIE_WORDS} 00000001 {holder}"));
    let held = Holder { exclusive: true, svid: 9, owner: NetObj(b"9@b"), offset: 0, length: 0 };
    let denied = test::Reply { cookie: COOKIE, outcome: test::Outcome::Denied(held) };
    check_reply(nlm(Procedure::Test), &bytes, &denied);
    check_call(nlm(Procedure::TestRes), &bytes, &denied);
    for status in [Status::GRANTED, Status::DENIED_GRACE_PERIOD, Status(77)] {
        let bytes = unhex(&format!("{COOKIE_WORDS} {:08x}", status.0));
        let reply = test::Reply { cookie: COOKIE, outcome: test::Outcome::Other(status) };
        check_reply(nlm(Procedure::Test), &bytes, &reply);
    }
}

#[test]
fn all_other_requests_for_locks_have_a_cookie_and_a_status() {
    let bytes = unhex(&format!("{COOKIE_WORDS} 00000003"));
    let reply = Reply { cookie: COOKIE, status: Status::BLOCKED };
    for procedure in
        [Procedure::Lock, Procedure::NmLock, Procedure::Cancel, Procedure::Unlock, Procedure::Granted]
    {
        check_reply(nlm(procedure), &bytes, &reply);
    }
    for procedure in [Procedure::LockRes, Procedure::CancelRes, Procedure::UnlockRes, Procedure::GrantedRes] {
        check_call(nlm(procedure), &bytes, &reply);
    }
}

#[test]
fn statuses_have_the_numbers_of_the_standard() {
    let names: Vec<_> = Status::ALL.iter().map(|status| (status.0, status.to_string())).collect();
    let expected = [
        "GRANTED",
        "DENIED",
        "DENIED_NOLOCKS",
        "BLOCKED",
        "DENIED_GRACE_PERIOD",
        "DEADLCK",
        "ROFS",
        "STALE_FH",
        "FBIG",
        "FAILED",
    ];
    assert!(names.iter().zip(0..).all(|((number, _), at)| *number == at), "{names:?}");
    assert!(names.iter().map(|(_, name)| name).eq(expected.iter()), "{names:?}");
    assert_eq!(Status(10).to_string(), "status 10");
}

#[test]
fn share_is_a_file_with_mode_and_access() {
    let bytes = unhex(&format!(
        "{COOKIE_WORDS}
         00000005 616c7068 61000000  0000000c 66696c65 2068616e 646c6521
         00000001 70000000  00000002 00000003 00000000"
    ));
    let wanted = share::Share {
        caller: Text(b"alpha"),
        file: NetObj(FILE),
        owner: NetObj(b"p"),
        mode: share::Mode::Write,
        access: share::Access::Both,
    };
    let args = share::Args { cookie: COOKIE, share: wanted, reclaim: false };
    check_call(nlm(Procedure::Share), &bytes, &args);
    check_call(nlm(Procedure::Unshare), &bytes, &args);
    let bytes = unhex(&format!("{COOKIE_WORDS} 00000009 00000000"));
    let reply = share::Reply { cookie: COOKIE, status: Status::FAILED, sequence: 0 };
    check_reply(nlm(Procedure::Share), &bytes, &reply);
}

#[test]
fn free_all_and_notify_are_a_name_and_a_state_number() {
    let bytes = unhex("00000005 616c7068 61000000 0000000b");
    let (name, state) = (Text(b"alpha"), 11);
    check_call(nlm(Procedure::FreeAll), &bytes, &free_all::Args { name, state });
    check_call(Which::Nsm(nsm::Procedure::Notify), &bytes, &nsm::notify::Args { name, state });
}

#[test]
fn mon_is_a_host_a_procedure_and_16_bytes() {
    let id = "00000005 616c7068 61000000  00000009 6c6f6361 6c686f73 74000000 000186b5 00000004 00000010";
    let private = "00010203 04050607 08090a0b 0c0d0e0f";
    let caller =
        nsm::monitor::Caller { name: Text(b"localhost"), program: nlm::PROGRAM, version: 4, procedure: 16 };
    let expected = nsm::monitor::Id { host: Text(b"alpha"), caller };
    let bytes = unhex(id);
    check_call(Which::Nsm(nsm::Procedure::Unmon), &bytes, &expected);
    let bytes = unhex(&format!("{id} {private}"));
    let private = std::array::from_fn(|at| u8::try_from(at).unwrap());
    check_call(Which::Nsm(nsm::Procedure::Mon), &bytes, &nsm::monitor::Args { id: expected, private });
    let bytes = unhex("00000009 6c6f6361 6c686f73 74000000 000186b5 00000004 00000010");
    check_call(Which::Nsm(nsm::Procedure::UnmonAll), &bytes, &caller);
}

#[test]
fn the_answers_of_nsm_have_a_state_number() {
    let bytes = unhex("00000001 00000005");
    let reply = nsm::stat::Reply { answer: nsm::stat::Answer::Failure, state: 5 };
    check_reply(Which::Nsm(nsm::Procedure::Mon), &bytes, &reply);
    check_reply(Which::Nsm(nsm::Procedure::Stat), &bytes, &reply);
    let bytes = unhex("00000005");
    check_reply(Which::Nsm(nsm::Procedure::Unmon), &bytes, &nsm::State { state: 5 });
    let bytes = unhex("00000005 616c7068 61000000");
    check_call(Which::Nsm(nsm::Procedure::Stat), &bytes, &nsm::stat::Args { name: Text(b"alpha") });
}

#[test]
fn values_that_the_standard_does_not_have_are_refused() {
    // A block of 2.
    let bytes = unhex(&format!("{COOKIE_WORDS} 00000002 00000001 {LOCK_WORDS} 00000000 00000003"));
    let refused = xdr::Error::BadBool(2);
    assert_eq!(call_again(nlm(Procedure::Lock), &bytes, &mut Vec::new()), Err(refused));
    // A mode of 4.
    let bytes = unhex(&format!("{COOKIE_WORDS} 00000000 00000000 00000000 00000004 00000000 00000000"));
    let refused = xdr::Error::BadDiscriminant { name: "Mode", value: 4 };
    assert_eq!(call_again(nlm(Procedure::Share), &bytes, &mut Vec::new()), Err(refused));
}

#[test]
fn every_cut_of_a_message_is_refused() {
    let bytes = unhex(&format!("{COOKIE_WORDS} 00000001 00000001 {LOCK_WORDS} 00000000 00000003"));
    for len in 0..bytes.len() {
        let cut = call_again(nlm(Procedure::Lock), &bytes[..len], &mut Vec::new());
        assert!(matches!(cut, Err(xdr::Error::Short { .. })), "{len} bytes: {cut:?}");
    }
}
