//! Tests wire defects and the required outcome of each.
//!
//! There is a table for calls, for replies, and for streams of fragments. The required outcome is
//! what a peer sees, or what happens to the connection. A defect that is not refused says how it is
//! interpreted.

use rpc::Xid;
use rpc::auth::{AUTH_SYS, AuthStat, AuthSys, Credential};
use rpc::call::{self, CallError};
use rpc::record_marking::{Assembler, FRAGMENTS_MAX, Mark, RecordError};
use rpc::reply::{self, Accept, Body, Reject, Reply, ReplyError};
use xdr::{Reader, Writer};

const XID: Xid = Xid(0x0102_0304);
const RECORD_BYTES_MAX: usize = 4096;

/// What a server does with a call.
#[derive(Debug, PartialEq, Eq)]
enum Required {
    /// Serves it.
    Served,
    /// Answers with this refusal.
    Answered(Reject),
    /// Cannot answer; closes the connection.
    Closed,
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// Decodes a call as a server does: the header, then the credential.
fn serve(bytes: &[u8]) -> Required {
    match call::decode(&mut Reader::new(bytes)) {
        Ok(header) => match header.credential() {
            Ok(_) => Required::Served,
            Err(stat) => Required::Answered(Reject::Auth(stat)),
        },
        Err(CallError::RpcMismatch { xid }) => {
            assert_eq!(xid, XID);
            Required::Answered(Reject::RPC_VERSION)
        }
        Err(CallError::AuthError { xid, stat }) => {
            assert_eq!(xid, XID);
            Required::Answered(Reject::Auth(stat))
        }
        Err(CallError::NotACall | CallError::Garbage(_)) => Required::Closed,
    }
}

/// A call with this message type and RPC version, credential and verifier.
fn call(kind: u32, rpc_version: u32, credential: &[u8], verifier: &[u8]) -> Vec<u8> {
    let head = words(&[XID.0, kind, rpc_version, 100_003, 3, 1]);
    [&head, credential, verifier].concat()
}

fn auth_sys(groups: u32) -> Vec<u8> {
    let sys = AuthSys { stamp: 1, machine: b"host", uid: 0, gid: 0, gids: (0..groups).collect() };
    let mut out = Vec::new();
    sys.encode_opaque(&mut Writer::new(&mut out));
    out
}

/// An AUTH_SYS credential with this body.
fn raw_sys(body: &[u32]) -> Vec<u8> {
    [words(&[AUTH_SYS, body.len() as u32 * 4]), words(body)].concat()
}

fn opaque_auth(flavor: u32, len: u32) -> Vec<u8> {
    [words(&[flavor, len]), vec![0; len as usize]].concat()
}

#[test]
fn each_defect_of_a_call_has_its_required_outcome() {
    use Required::{Answered, Closed, Served};
    let none = words(&[0, 0]);
    let badcred = || Answered(Reject::Auth(AuthStat::BADCRED));
    let machine_256 = [words(&[1, 5 * 4 + 256, 0, 256]), vec![0; 256], words(&[0, 0, 0])].concat();
    // RFC 5531 s8.2, s9, appendix A
    let table = [
        ("nothing wrong, AUTH_NONE", call(0, 2, &none, &none), Served),
        ("nothing wrong, AUTH_SYS of 16 groups", call(0, 2, &auth_sys(16), &none), Served),
        ("a reply where a call belongs", call(1, 2, &none, &none), Closed),
        ("a message type that does not exist", call(2, 2, &none, &none), Closed),
        ("RPC version 1", call(0, 1, &none, &none), Answered(Reject::RPC_VERSION)),
        ("RPC version 3", call(0, 3, &none, &none), Answered(Reject::RPC_VERSION)),
        ("RPC version 3 and nothing after it", words(&[XID.0, 0, 3]), Answered(Reject::RPC_VERSION)),
        ("an unknown flavor", call(0, 2, &opaque_auth(77, 12), &none), Served),
        ("a credential at its bound", call(0, 2, &opaque_auth(77, 400), &none), Served),
        ("a credential above its bound", call(0, 2, &opaque_auth(77, 404), &none), badcred()),
        ("a credential of 4 GiB", call(0, 2, &words(&[1, u32::MAX]), &none), badcred()),
        (
            "a verifier above its bound",
            call(0, 2, &none, &opaque_auth(0, 404)),
            Answered(Reject::Auth(AuthStat::BADVERF)),
        ),
        ("a verifier of another flavor", call(0, 2, &none, &opaque_auth(6, 20)), Served),
        ("AUTH_NONE with a body", call(0, 2, &opaque_auth(0, 8), &none), Served),
        ("17 groups", call(0, 2, &raw_sys(&[&[0, 0, 0, 0, 17][..], &[0; 17]].concat()), &none), badcred()),
        ("more groups announced than sent", call(0, 2, &raw_sys(&[0, 0, 0, 0, 2, 5]), &none), badcred()),
        ("4 Gi groups", call(0, 2, &raw_sys(&[0, 0, 0, 0, u32::MAX]), &none), badcred()),
        ("bytes after the groups", call(0, 2, &raw_sys(&[0, 0, 0, 0, 0, 5]), &none), badcred()),
        ("a machine name of 256 bytes", call(0, 2, &machine_256, &none), badcred()),
        ("a machine name beyond the body", call(0, 2, &raw_sys(&[0, 200, 0, 0, 0]), &none), badcred()),
        ("an AUTH_SYS body of nothing", call(0, 2, &raw_sys(&[]), &none), badcred()),
        ("an empty record", Vec::new(), Closed),
    ];
    for (defect, bytes, required) in table {
        assert_eq!(serve(&bytes), required, "{defect}");
    }
}

#[test]
fn a_call_header_cut_anywhere_closes_the_connection() {
    let whole = call(0, 2, &auth_sys(3), &words(&[0, 0]));
    for len in 0..whole.len() {
        assert_eq!(serve(&whole[..len]), Required::Closed, "cut to {len} bytes");
    }
    assert_eq!(serve(&whole), Required::Served);
}

#[test]
fn a_credential_cut_anywhere_is_refused() {
    let sys = auth_sys(3);
    let body = &sys[8..];
    for len in 0..body.len() {
        assert!(Credential::parse(AUTH_SYS, &body[..len]).is_err(), "cut to {len} bytes");
    }
    assert!(Credential::parse(AUTH_SYS, body).is_ok());
}

#[test]
fn each_defect_of_a_reply_has_its_required_outcome() {
    let bad = |name, value| Err(ReplyError::Garbage(xdr::Error::BadDiscriminant { name, value }));
    let short = || Err(ReplyError::Garbage(xdr::Error::Short { needed: 4, remaining: 0 }));
    let rejected = |reject| Ok(Reply { xid: XID, body: Body::Rejected(reject) });
    let too_long = Err(ReplyError::Garbage(xdr::Error::TooLong { len: 404, max: 400 }));
    // RFC 5531 s9
    let table = [
        (
            "nothing wrong",
            words(&[XID.0, 1, 0, 0, 0, 0]),
            Ok(Reply { xid: XID, body: Body::Accepted(Accept::Success) }),
        ),
        (
            "an unexpected verifier",
            words(&[XID.0, 1, 0, 6, 4, 0xabcd, 0]),
            Ok(Reply { xid: XID, body: Body::Accepted(Accept::Success) }),
        ),
        (
            "a call where a reply belongs",
            words(&[XID.0, 0, 0, 0, 0, 0]),
            Err(ReplyError::NotAReply { message_type: 0 }),
        ),
        ("a reply_stat that does not exist", words(&[XID.0, 1, 2]), bad("reply_stat", 2)),
        ("an accept_stat that does not exist", words(&[XID.0, 1, 0, 0, 0, 6]), bad("accept_stat", 6)),
        ("a reject_stat that does not exist", words(&[XID.0, 1, 1, 2]), bad("reject_stat", 2)),
        (
            "an auth_stat that does not exist survives as its number",
            words(&[XID.0, 1, 1, 1, 99]),
            rejected(Reject::Auth(AuthStat(99))),
        ),
        (
            "a mismatch whose range is upside down survives as it is",
            words(&[XID.0, 1, 1, 0, 3, 2]),
            rejected(Reject::RpcMismatch { low: 3, high: 2 }),
        ),
        ("a mismatch without its range", words(&[XID.0, 1, 0, 0, 0, 2, 3]), short()),
        ("a verifier above its bound", [words(&[XID.0, 1, 0, 0, 404]), vec![0; 408]].concat(), too_long),
        ("an empty record", Vec::new(), short()),
    ];
    for (defect, bytes, required) in table {
        assert_eq!(reply::decode(&mut Reader::new(&bytes)), required, "{defect}");
    }
}

#[test]
fn a_reply_header_cut_anywhere_is_garbage() {
    let whole = words(&[XID.0, 1, 0, 6, 4, 0xabcd, 2, 3, 3]);
    for len in 0..whole.len() {
        let error = reply::decode(&mut Reader::new(&whole[..len])).unwrap_err();
        assert!(matches!(error, ReplyError::Garbage(xdr::Error::Short { .. })), "cut to {len} bytes");
    }
}

#[test]
fn an_optional_item_whose_boolean_is_neither_is_refused() {
    // RFC 4506 s4.4; the headers of RPC have no booleans, but the arguments of programs do.
    let read = |word| Reader::new(&words(&[word, 7])).optional(Reader::u32);
    assert_eq!([read(0), read(1), read(2)], [Ok(None), Ok(Some(7)), Err(xdr::Error::BadBool(2))]);
}

fn mark(last: bool, len: u32) -> Vec<u8> {
    Mark { last, len }.encode().to_vec()
}

fn repeat(fragment: &[u8], times: u32) -> Vec<u8> {
    fragment.repeat(times as usize)
}

#[test]
fn each_defect_of_a_stream_has_its_required_outcome() {
    let max = RECORD_BYTES_MAX;
    let too_long = |bytes| Err(RecordError::TooLong { bytes, max });
    let one_byte = [mark(false, 1), vec![7]].concat();
    let kib = [mark(false, 1024), vec![7; 1024]].concat();
    // RFC 5531 s11
    let table = [
        ("a record at its bound", [mark(true, 4096), vec![7; 4096]].concat(), Ok(Some(4096))),
        ("a mark of 2 GiB", mark(true, 0x7fff_ffff), too_long(0x7fff_ffff)),
        ("a mark above the bound by one", mark(true, 4097), too_long(4097)),
        ("four fragments at the bound", [repeat(&kib, 4), mark(true, 0)].concat(), Ok(Some(4096))),
        ("a sum above the bound by one", [repeat(&kib, 4), mark(true, 1)].concat(), too_long(4097)),
        ("endless fragments of a KiB", repeat(&kib, 100), too_long(5120)),
        ("endless fragments of a byte", repeat(&one_byte, 9000), Err(RecordError::TooManyFragments)),
        ("endless fragments of nothing", repeat(&mark(false, 0), 9000), Err(RecordError::TooManyFragments)),
        (
            "as many fragments as a record may have",
            [repeat(&one_byte, FRAGMENTS_MAX - 1), mark(true, 0)].concat(),
            Ok(Some(FRAGMENTS_MAX as usize - 1)),
        ),
        ("an empty record", mark(true, 0), Ok(Some(0))),
        ("a mark cut short", vec![0x80, 0, 0], Ok(None)),
        ("a fragment cut short", [mark(true, 9), vec![7; 8]].concat(), Ok(None)),
        ("a record that never ends", repeat(&kib, 4), Ok(None)),
    ];
    for (defect, stream, required) in table {
        for read_bytes in [1, 3, 1000, usize::MAX] {
            let mut assembler = Assembler::new(max);
            let outcome = feed(&mut assembler, &stream, read_bytes);
            assert_eq!(outcome, required, "{defect}, {read_bytes} bytes a read");
            assert!(assembler.held_bytes() <= max, "{defect} holds {} bytes", assembler.held_bytes());
        }
    }
}

/// The length of the first record, in reads of this many bytes.
fn feed(assembler: &mut Assembler, stream: &[u8], read_bytes: usize) -> Result<Option<usize>, RecordError> {
    for mut piece in stream.chunks(read_bytes) {
        while !piece.is_empty() {
            if let Some(record) = assembler.feed(&mut piece)? {
                return Ok(Some(record.len()));
            }
        }
    }
    Ok(None)
}
