//! Tests that messages of the Linux kernel decode, and encode to the same bytes, except that its
//! server writes words of zeros at the end of some bitmaps. The records are described in
//! `captures/README.md`.

use nfs4::cb::Back;
use nfs4::compound::{
    Payload, ReplyReader, ReplyWriter, RequestReader, RequestWriter, find_read, find_write,
};
use nfs4::op::{self, Fore};
use nfs4::table::Family;
use nfs4::{Args, Reply, Status};
use std::collections::BTreeSet;
use std::path::PathBuf;
use xdr::Reader;

/// A call and its reply, without RPC headers.
struct Exchange {
    name: String,
    program: u32,
    call: Vec<u8>,
    reply: Vec<u8>,
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

/// Splits a file into exchanges: `call`, hexadecimal digits, `reply`, hexadecimal digits.
fn exchanges(name: &str) -> Vec<Exchange> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/captures").join(name);
    let text = std::fs::read_to_string(path).unwrap();
    let lines: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let body = lines.join("\n");
    let mut found = Vec::new();
    for (index, exchange) in body.split("call").skip(1).enumerate() {
        let (call, reply) = exchange.split_once("reply").unwrap();
        let (call, reply) = (unhex(call), unhex(reply));
        let mut reader = Reader::new(&call);
        let header = rpc::call::decode(&mut reader).unwrap();
        let (program, call) = (header.program, reader.rest().to_vec());
        let mut reader = Reader::new(&reply);
        assert_eq!(rpc::reply::decode(&mut reader).unwrap().xid, header.xid);
        found.push(Exchange {
            name: format!("{name} {index}"),
            program,
            call,
            reply: reader.rest().to_vec(),
        });
    }
    found
}

/// The message with its payload where it belongs.
fn joined(out: &[u8], payload: Option<(usize, &[u8])>) -> Vec<u8> {
    match payload {
        None => out.to_vec(),
        Some((at, data)) => [&out[..at], data, &out[at..]].concat(),
    }
}

/// Decodes a request and encodes it again. Calls `see` with each operation.
fn request_again<F: Family>(exchange: &Exchange, mut see: impl FnMut(&F::Args<'_>)) {
    let name = &exchange.name;
    let mut reader = RequestReader::<F>::new(&exchange.call).unwrap();
    reader.check_minor().unwrap();
    let mut out = Vec::new();
    let mut writer = RequestWriter::<F>::new(&mut out, reader.tag, reader.minor, reader.callback_ident);
    let mut data = None;
    while let Some(request) = reader.next_operation() {
        match request {
            Ok(request) => {
                see(&request.args);
                writer.push(&request.args);
                if let Payload::Here(bytes) = request.payload {
                    data = Some(bytes);
                }
            }
            Err(refused) => panic!("{name}: {refused:?}"),
        }
    }
    assert_eq!(reader.remaining(), 0, "{name}");
    let finished = writer.finish();
    let payload = finished.payload_at.zip(data);
    assert_eq!(joined(&out, payload), exchange.call, "{name}");
}

/// A reply without the words of zeros at the end of a bitmap, where `ours` has a shorter bitmap.
fn without_empty_words(theirs: &[u8], ours: &[u8]) -> Vec<u8> {
    let count = |bytes: &[u8], at: usize| {
        bytes.get(at..)?.first_chunk().map(|word| u32::from_be_bytes(*word) as usize)
    };
    let mut theirs = theirs.to_vec();
    while let Some(differs) = theirs.iter().zip(ours).position(|(one, two)| one != two) {
        let at = differs / 4 * 4;
        let (Some(long), Some(short)) = (count(&theirs, at), count(ours, at)) else { break };
        let words = at + 4 + 4 * short..at + 4 + 4 * long;
        let empty =
            long <= 3 && theirs.get(words.clone()).is_some_and(|rest| rest.iter().all(|byte| *byte == 0));
        if short >= long || !empty {
            break;
        }
        theirs.drain(words);
        theirs[at..at + 4].copy_from_slice(&(short as u32).to_be_bytes());
    }
    theirs
}

/// Decodes a reply and encodes it again. Calls `see` with each result.
fn reply_again<F: Family>(exchange: &Exchange, minor: u32, mut see: impl FnMut(&F::Reply<'_>)) {
    let name = &exchange.name;
    let mut reader = ReplyReader::<F>::new(&exchange.reply).unwrap();
    let (tag, status) = (reader.tag, reader.status);
    let mut out = Vec::new();
    let mut writer = ReplyWriter::<F>::new(&mut out, tag);
    let mut data = None;
    while let Some(result) = reader.next_result(minor) {
        let (reply, payload) = result.unwrap_or_else(|error| panic!("{name}: {error}"));
        see(&reply);
        writer.push(&reply);
        if let Payload::Here(bytes) = payload {
            data = Some(bytes);
        }
    }
    reader.finish().unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(writer.status(), status, "{name}");
    let finished = writer.finish();
    let ours = joined(&out, finished.payload_at.zip(data));
    assert_eq!(ours, without_empty_words(&exchange.reply, &ours), "{name}");
}

/// Parses all attributes of an operation's arguments.
fn parse_args(args: &Args<'_>) {
    let attributes = match args {
        Args::SetAttr(args) => args.attributes,
        Args::Create(args) => args.attributes,
        Args::Open(args) => match args.how {
            op::open::How::Unchecked(attributes)
            | op::open::How::Guarded(attributes)
            | op::open::How::ExclusiveWith(_, attributes) => attributes,
            _ => return,
        },
        _ => return,
    };
    attributes.raw().parse().unwrap();
}

/// Parses all attributes of a result.
fn parse_reply(reply: &Reply<'_>) {
    match reply {
        Reply::GetAttr(Ok(success)) => _ = success.attributes.raw().parse().unwrap(),
        Reply::ReadDir(Ok(success)) => {
            success.entries.iter().for_each(|entry| _ = entry.attributes.raw().parse().unwrap());
        }
        _ => {}
    }
}

/// Runs over a file of exchanges and returns the names of the operations that succeeded.
fn run(name: &str) -> BTreeSet<&'static str> {
    let mut done = BTreeSet::new();
    for exchange in exchanges(name) {
        assert_eq!(exchange.program, nfs4::PROGRAM);
        let minor = RequestReader::<Fore>::new(&exchange.call).unwrap().minor;
        request_again::<Fore>(&exchange, parse_args);
        reply_again::<Fore>(&exchange, minor, |reply| {
            parse_reply(reply);
            if reply.status() == Status::OK {
                done.insert(reply.operation().name());
            }
        });
        if let Some(place) = find_write(&exchange.call) {
            assert_eq!(find_write(&exchange.call[..place.at]), Some(place));
            assert!(place.file.is_some() && place.sequence.is_some(), "SEQUENCE PUTFH WRITE");
        }
        if let Some(place) = find_read(&exchange.reply, minor) {
            assert_eq!(place.at, nfs4::compound::shapes::READ_DATA_AT, "SEQUENCE PUTFH READ");
        }
    }
    done
}

#[test]
fn linux_speaks_version_4_1() {
    let done = run("linux_4_1.hex");
    let expected = [
        "ACCESS",
        "CLOSE",
        "CREATE_SESSION",
        "DELEGRETURN",
        "DESTROY_CLIENTID",
        "DESTROY_SESSION",
        "EXCHANGE_ID",
        "GETATTR",
        "GETFH",
        "OPEN",
        "PUTFH",
        "PUTROOTFH",
        "READDIR",
        "RECLAIM_COMPLETE",
        "SECINFO_NO_NAME",
        "SEQUENCE",
        "WRITE",
    ];
    assert_eq!(done.into_iter().collect::<Vec<_>>(), expected);
}

#[test]
fn linux_speaks_version_4_2() {
    let done = run("linux_4_2.hex");
    for name in [
        "ALLOCATE",
        "COMMIT",
        "COPY",
        "CREATE",
        "DEALLOCATE",
        "DELEGRETURN",
        "FREE_STATEID",
        "LINK",
        "LISTXATTRS",
        "LOCK",
        "LOCKU",
        "READ",
        "REMOVE",
        "REMOVEXATTR",
        "RENAME",
        "RESTOREFH",
        "SAVEFH",
        "SEEK",
        "SETATTR",
        "SETXATTR",
        "WRITE",
    ] {
        assert!(done.contains(name), "{name}: {done:?}");
    }
}

#[test]
fn linux_recalls_a_delegation() {
    let exchanges = exchanges("linux_callbacks.hex");
    assert_eq!(exchanges.len(), 1);
    let mut seen = Vec::new();
    request_again::<Back>(&exchanges[0], |args| seen.push(args.operation().name()));
    reply_again::<Back>(&exchanges[0], 2, |reply| assert_eq!(reply.status(), Status::OK));
    assert_eq!(seen, ["CB_SEQUENCE", "CB_RECALL"]);
}
