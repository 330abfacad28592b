//! Bodies shared by property tests and fuzz targets. Each takes arbitrary bytes and asserts
//! invariants; no input may cause any other panic.

use xdr::{Reader, Writer};

use crate::auth::{AUTH_NONE, AUTH_SYS, Credential};
use crate::call::{self, CallError};
use crate::record_marking::{Assembler, FRAGMENTS_MAX, LAST, MARK_BYTES, RecordError};
use crate::reply::{self, Body};

/// Decodes a call: a valid one encodes and decodes to the same, an invalid one yields enough to
/// answer it.
pub fn call(bytes: &[u8]) {
    let mut reader = Reader::new(bytes);
    let header = match call::decode(&mut reader) {
        Ok(header) => header,
        Err(CallError::RpcMismatch { xid } | CallError::AuthError { xid, .. }) => {
            assert_eq!(bytes.get(..4), Some(&xid.0.to_be_bytes()[..]), "the answer bears the call's xid");
            return;
        }
        Err(CallError::NotACall | CallError::Garbage(_)) => return,
    };
    let arguments = reader.rest();
    assert!(bytes.ends_with(arguments));

    let mut credential = Vec::new();
    let mut writer = Writer::new(&mut credential);
    writer.u32(header.credential_flavor);
    writer.opaque(header.credential_body);
    let mut written = Vec::new();
    let (program, version, procedure) = (header.program, header.version, header.procedure);
    call::encode(&mut Writer::new(&mut written), header.xid, program, version, procedure, &credential);
    written.extend_from_slice(arguments);
    let mut reader = Reader::new(&written);
    assert_eq!(call::decode(&mut reader), Ok(header));
    assert_eq!(reader.rest(), arguments);
    parse_credential(header.credential_flavor, header.credential_body);
}

fn parse_credential(flavor: u32, body: &[u8]) {
    match Credential::parse(flavor, body) {
        Ok(Credential::Sys(sys)) => {
            let mut written = Vec::new();
            sys.encode_opaque(&mut Writer::new(&mut written));
            let body = written.get(8..).expect("flavor and length");
            assert_eq!(Credential::parse(AUTH_SYS, body), Ok(Credential::Sys(sys)));
        }
        Ok(Credential::None) => assert_eq!(flavor, AUTH_NONE),
        Ok(Credential::Other { .. }) => assert!(flavor != AUTH_NONE && flavor != AUTH_SYS),
        Err(_) => assert_eq!(flavor, AUTH_SYS),
    }
}

/// Decodes a reply: a valid one encodes and decodes to the same.
pub fn reply(bytes: &[u8]) {
    let mut reader = Reader::new(bytes);
    let Ok(reply) = reply::decode(&mut reader) else { return };
    let results = reader.rest();
    assert!(bytes.ends_with(results));
    let mut written = Vec::new();
    let mut writer = Writer::new(&mut written);
    match reply.body {
        Body::Accepted(accept) => reply::encode_accept(&mut writer, reply.xid, accept),
        Body::Rejected(reject) => reply::encode_reject(&mut writer, reply.xid, reject),
    }
    written.extend_from_slice(results);
    let mut reader = Reader::new(&written);
    assert_eq!(reply::decode(&mut reader), Ok(reply));
    assert_eq!(reader.rest(), results);
}

/// The first byte is the bound in units of 16, the second the number of bytes per read, the rest a
/// stream. The assembler must find the same records as a plain parse of the whole stream, within
/// its memory bound.
pub fn fragments(bytes: &[u8]) {
    let [bound, read, stream @ ..] = bytes else { return };
    let record_bytes_max = usize::from(*bound) * 16;
    let (records, end) = split(stream, record_bytes_max);
    let mut assembler = Assembler::new(record_bytes_max);
    let mut found = Vec::new();
    for mut piece in stream.chunks(usize::from(*read).max(1)) {
        while !piece.is_empty() {
            let before = piece.len();
            match assembler.feed(&mut piece) {
                Ok(Some(record)) => found.push(record.to_vec()),
                Ok(None) => {}
                Err(error) => {
                    assert_eq!((found, Some(error)), (records, end));
                    return;
                }
            }
            assert!(piece.len() < before, "every call takes something");
            assert!(assembler.held_bytes() <= record_bytes_max);
        }
    }
    assert_eq!((found, None), (records, end));
}

/// A plain parse: the complete records of the stream, and the error that ends it, if any.
fn split(mut stream: &[u8], record_bytes_max: usize) -> (Vec<Vec<u8>>, Option<RecordError>) {
    let (mut records, mut record, mut count) = (Vec::new(), Vec::new(), 0);
    while let Some((mark, rest)) = stream.split_first_chunk::<MARK_BYTES>() {
        let word = u32::from_be_bytes(*mark);
        let len = (word & !LAST) as usize;
        count += 1;
        if record.len() + len > record_bytes_max {
            let bytes = (record.len() + len) as u64;
            return (records, Some(RecordError::TooLong { bytes, max: record_bytes_max }));
        }
        if count > FRAGMENTS_MAX {
            return (records, Some(RecordError::TooManyFragments));
        }
        let Some((fragment, rest)) = rest.split_at_checked(len) else { break };
        record.extend_from_slice(fragment);
        stream = rest;
        if word & LAST != 0 {
            records.push(std::mem::take(&mut record));
            count = 0;
        }
    }
    (records, None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Words used in headers, so that arbitrary messages get past their first words.
    fn words(len: usize) -> impl Strategy<Value = Vec<u8>> {
        let word = prop_oneof![
            4 => (0_u32..8).boxed(),
            1 => prop_oneof![Just(400_u32), Just(401), Just(u32::MAX), Just(100_003)].boxed(),
            1 => any::<u32>().boxed(),
        ];
        proptest::collection::vec(word, 0..len)
            .prop_map(|words| words.into_iter().flat_map(u32::to_be_bytes).collect())
    }

    fn stream() -> impl Strategy<Value = Vec<u8>> {
        let fragment = (any::<bool>(), proptest::collection::vec(any::<u8>(), 0..40), 0_usize..40);
        let stream = proptest::collection::vec(fragment, 0..30).prop_map(|fragments| {
            let mut stream = Vec::new();
            for (last, bytes, missing) in fragments {
                let word = bytes.len() as u32 | if last { LAST } else { 0 };
                stream.extend(word.to_be_bytes());
                // Sometimes a fragment ends early, and the next mark is taken for its bytes.
                let present = if missing == 7 { bytes.len() / 2 } else { bytes.len() };
                stream.extend(&bytes[..present]);
            }
            stream
        });
        (any::<u8>(), any::<u8>(), stream)
            .prop_map(|(bound, read, stream)| [vec![bound, read], stream].concat())
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_as_a_call(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            call(&bytes);
        }

        #[test]
        fn arbitrary_words_as_a_call(mut bytes in words(40), rpc in any::<bool>()) {
            if rpc {
                bytes.splice(..bytes.len().min(12), [0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 2]);
            }
            call(&bytes);
        }

        #[test]
        fn arbitrary_words_as_a_reply(mut bytes in words(20), reply_type in any::<bool>()) {
            if reply_type {
                bytes.splice(..bytes.len().min(8), [0, 0, 0, 9, 0, 0, 0, 1]);
            }
            reply(&bytes);
        }

        #[test]
        fn arbitrary_words_as_a_credential(flavor in 0_u32..4, body in words(30)) {
            parse_credential(flavor, &body);
        }

        #[test]
        fn arbitrary_fragments(stream in stream()) {
            fragments(&stream);
        }

        #[test]
        fn arbitrary_bytes_as_fragments(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            fragments(&bytes);
        }
    }
}
