//! Compares values with bytes written as text.

use nfs4::cb::{self, Back};
use nfs4::op::Fore;
use nfs4::table::Family;
use nfs4::{Args, Reply, fuzzing};
use std::fmt::Debug;
use xdr::{Reader, Writer};

/// The bytes of a text: hexadecimal digits, 'text' in quotes, `NN*count` for equal bytes. A hash
/// begins a remark.
pub fn bytes(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default();
        for word in line.split_whitespace() {
            if let Some(quoted) = word.strip_prefix('\'') {
                bytes.extend(quoted.strip_suffix('\'').expect("text ends with a quote").bytes());
            } else if let Some((byte, count)) = word.split_once('*') {
                let byte = u8::from_str_radix(byte, 16).unwrap();
                bytes.resize(bytes.len() + count.parse::<usize>().unwrap(), byte);
            } else {
                let digits = word.as_bytes().chunks(2);
                bytes.extend(digits.map(|pair| {
                    u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).expect("hexadecimal")
                }));
            }
        }
    }
    assert_eq!(bytes.len() % 4, 0, "XDR comes in words: {text}");
    bytes
}

/// Decodes with every prefix of the bytes, and with every word replaced by a large number; the
/// former must fail, the latter must do no harm.
fn defects(expected: &[u8], decodes: impl Fn(&[u8]) -> bool) {
    for len in 0..expected.len() {
        assert!(!decodes(&expected[..len]), "{len} of {} bytes decode", expected.len());
    }
    for at in (0..expected.len()).step_by(4) {
        for large in [u32::MAX, 0x7fff_ffff, 0x0001_0000] {
            let mut changed = expected.to_vec();
            changed[at..at + 4].copy_from_slice(&large.to_be_bytes());
            decodes(&changed);
        }
    }
}

fn check_args<'a, F: Family>(args: &F::Args<'a>, expected: &'a [u8])
where
    F::Args<'a>: PartialEq + Debug,
{
    let mut out = Vec::new();
    F::encode_args(args, &mut Writer::new(&mut out));
    assert_eq!(out, expected, "{args:?}");
    let operation = F::operation_of_args(args);
    let mut reader = Reader::new(expected);
    assert_eq!(F::decode_args(operation, &mut reader).unwrap().as_ref(), Some(args));
    assert_eq!(reader.remaining(), 0);
    defects(expected, |bytes| fuzzing::one_args::<F>(operation, bytes));
}

fn check_reply<'a, F: Family>(reply: &F::Reply<'a>, expected: &'a [u8])
where
    F::Reply<'a>: PartialEq + Debug,
{
    let mut out = Vec::new();
    F::encode_reply(reply, &mut Writer::new(&mut out));
    assert_eq!(out, expected, "{reply:?}");
    let operation = F::operation_of_reply(reply);
    let mut reader = Reader::new(expected);
    assert_eq!(F::decode_reply(operation, &mut reader).unwrap().as_ref(), Some(reply));
    assert_eq!(reader.remaining(), 0);
    defects(expected, |bytes| fuzzing::one_reply::<F>(operation, bytes));
}

/// Checks the arguments of an operation.
pub fn args(args: Args<'_>, text: &str) {
    // The bytes live as long as what borrows from them, and that is until the test ends.
    check_args::<Fore>(&args, bytes(text).leak());
}

/// Checks a result of an operation.
pub fn reply(reply: Reply<'_>, text: &str) {
    check_reply::<Fore>(&reply, bytes(text).leak());
}

/// Checks the arguments of a callback.
pub fn callback(args: cb::Args<'_>, text: &str) {
    check_args::<Back>(&args, bytes(text).leak());
}

/// Checks a result of a callback.
pub fn callback_reply(reply: cb::Reply<'_>, text: &str) {
    check_reply::<Back>(&reply, bytes(text).leak());
}
