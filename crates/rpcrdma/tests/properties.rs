//! Tests arbitrary bytes and words, with the bodies that the fuzz targets share.

use proptest::prelude::*;
use rpcrdma::fuzzing::{header, to_a_client, to_a_server};

/// Words that are often valid: small numbers for lists and procedures, and sometimes any number.
fn words(most: usize) -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![6 => 0_u32..5, 2 => (0_u32..64).prop_map(|word| word * 16), 1 => any::<u32>()];
    proptest::collection::vec(word, 0..most)
        .prop_map(|words| words.into_iter().flat_map(u32::to_be_bytes).collect())
}

/// The same after the four words with which each header begins.
fn headers(most: usize) -> impl Strategy<Value = Vec<u8>> {
    (0_u32..5, words(most)).prop_map(|(procedure, rest)| {
        let mut bytes = [7, 1, 32, procedure].map(u32::to_be_bytes).concat();
        bytes.extend(rest);
        bytes
    })
}

proptest! {
    #[test]
    fn arbitrary_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        header(&bytes);
        to_a_server(&bytes);
        to_a_client(&bytes);
    }

    #[test]
    fn arbitrary_headers(bytes in headers(60)) {
        header(&bytes);
        to_a_server(&bytes);
        to_a_client(&bytes);
    }

    #[test]
    fn headers_with_an_rpc_message_behind(bytes in headers(20), kind in 0_u32..2) {
        let mut bytes = bytes;
        bytes.extend([0, 0, 0, 7_u32, kind, 2, 100_003, 3].into_iter().flat_map(u32::to_be_bytes));
        to_a_server(&bytes);
        to_a_client(&bytes);
    }
}
