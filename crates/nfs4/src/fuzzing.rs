//! Bodies shared by the property tests, the golden tests and the fuzz targets.
//!
//! Whatever decodes must encode, decode again, and encode to the same bytes. (The first encoding
//! may be shorter than what was received: padding is ignored, and so are empty words of bitmaps.)

use crate::cb::Back;
use crate::compound::{Payload, ReplyReader, RequestReader, find_read, find_write};
use crate::op::Fore;
use crate::table::Family;
use crate::{Bitmap, RawFattr, Wire};
use xdr::{Reader, Writer};

/// A request of a client, whole and in parts.
pub fn request(bytes: &[u8]) {
    let whole = requests::<Fore>(bytes);
    if let Some(place) = find_write(bytes) {
        let head = bytes.get(..place.at).expect("the data begin within the bytes");
        assert_eq!(find_write(head), Some(place), "what follows does not matter");
        let len = place.write.count as usize;
        let after = bytes.get(place.at..).and_then(|rest| rest.get(len..)).unwrap_or_default();
        let mut reader = RequestReader::<Fore>::with_payload_beside(head, after).expect("decoded before");
        let mut beside = 0;
        while let Some(Ok(request)) = reader.next_operation() {
            assert!(request.payload != Payload::Beside || request.index == place.index);
            beside += 1;
        }
        if bytes.len() >= place.at.saturating_add(len) {
            assert_eq!(beside, whole, "the same operations, wherever the data are");
        }
    }
}

/// A request of a server: a callback.
pub fn callback(bytes: &[u8]) {
    requests::<Back>(bytes);
}

/// Decodes all operations, and returns how many there were.
fn requests<F: Family>(bytes: &[u8]) -> usize {
    let Ok(mut reader) = RequestReader::<F>::new(bytes) else { return 0 };
    let mut count = 0;
    while let Some(Ok(request)) = reader.next_operation() {
        let operation = F::operation_of_args(&request.args);
        args_again::<F>(operation, &request.args);
        count += 1;
    }
    assert!(reader.next_operation().is_none(), "nothing follows a failure");
    count
}

fn args_again<F: Family>(operation: F::Operation, args: &F::Args<'_>) {
    let (mut first, mut second) = (Vec::new(), Vec::new());
    F::encode_args(args, &mut Writer::new(&mut first));
    let mut reader = Reader::new(&first);
    let again = F::decode_args(operation, &mut reader).expect("encoded as it decodes").expect("has a type");
    assert_eq!(reader.remaining(), 0, "and nothing more");
    F::encode_args(&again, &mut Writer::new(&mut second));
    assert_eq!(first, second, "encoded to the same bytes");
}

/// A reply to a client; the first byte is the minor version.
pub fn reply(bytes: &[u8]) {
    if let Some((minor, bytes)) = bytes.split_first() {
        replies::<Fore>(bytes, u32::from(*minor % 4));
        if let Some(place) = find_read(bytes, u32::from(*minor % 4)) {
            assert!(place.at <= bytes.len());
        }
    }
}

/// A reply to a callback; the first byte is the minor version.
pub fn callback_reply(bytes: &[u8]) {
    if let Some((minor, bytes)) = bytes.split_first() {
        replies::<Back>(bytes, u32::from(*minor % 4));
    }
}

fn replies<F: Family>(bytes: &[u8], minor: u32) {
    let Ok(mut reader) = ReplyReader::<F>::new(bytes) else { return };
    while let Some(Ok((reply, _))) = reader.next_result(minor) {
        reply_again::<F>(F::operation_of_reply(&reply), &reply);
    }
}

fn reply_again<F: Family>(operation: F::Operation, reply: &F::Reply<'_>) {
    let (mut first, mut second) = (Vec::new(), Vec::new());
    F::encode_reply(reply, &mut Writer::new(&mut first));
    let mut reader = Reader::new(&first);
    let again = F::decode_reply(operation, &mut reader).expect("encoded as it decodes").expect("has a type");
    assert_eq!(reader.remaining(), 0, "and nothing more");
    F::encode_reply(&again, &mut Writer::new(&mut second));
    assert_eq!(first, second, "encoded to the same bytes");
}

/// Decodes the arguments of one operation and runs the checks above; returns whether they decoded.
pub fn one_args<F: Family>(operation: F::Operation, bytes: &[u8]) -> bool {
    match F::decode_args(operation, &mut Reader::new(bytes)) {
        Ok(Some(args)) => {
            args_again::<F>(operation, &args);
            true
        }
        _ => false,
    }
}

/// The same for a result.
pub fn one_reply<F: Family>(operation: F::Operation, bytes: &[u8]) -> bool {
    match F::decode_reply(operation, &mut Reader::new(bytes)) {
        Ok(Some(reply)) => {
            reply_again::<F>(operation, &reply);
            true
        }
        _ => false,
    }
}

/// Attributes, with the values parsed.
pub fn attributes(bytes: &[u8]) {
    let mut reader = Reader::new(bytes);
    let Ok(raw) = RawFattr::decode(&mut reader) else { return };
    let Ok(attributes) = raw.parse() else { return };
    assert_eq!(attributes.mask(), raw.mask);
    let all = Bitmap::of(&(0..96).collect::<Vec<_>>());
    let (mut first, mut second) = (Vec::new(), Vec::new());
    attributes.encode_some(all, &mut Writer::new(&mut first));
    let again = RawFattr::decode(&mut Reader::new(&first)).expect("encoded as it decodes");
    assert_eq!(again.mask, raw.mask);
    again.parse().expect("encoded as it parses").encode_some(all, &mut Writer::new(&mut second));
    assert_eq!(first, second, "encoded to the same bytes");
}
