//! Tests that whatever decodes encodes to the same bytes again, for arbitrary bytes, and for words
//! of the small numbers of which messages consist. The bodies are those of the fuzz targets.

use nfs4::cb::{self, Back};
use nfs4::op::Fore;
use nfs4::table::Family;
use nfs4::{Operation, fuzzing};
use proptest::prelude::*;

/// How often random words are tried for each operation: a list of attributes, or a layout, needs
/// many numbers that fit each other.
const TRIES: usize = 20_000;

/// A generator of random numbers with a fixed seed (xorshift).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Words as they stand in messages: mostly small.
    fn message(&mut self) -> Vec<u8> {
        let words = 1 + self.next() % 40;
        let mut bytes = Vec::new();
        for _ in 0..words {
            let word = match self.next() % 16 {
                0..=8 => self.next() % 2,
                9..=13 => self.next() % 8,
                14 => self.next() % 256,
                _ => self.next(),
            };
            bytes.extend((word as u32).to_be_bytes());
        }
        bytes
    }
}

/// Every operation of `all` decodes some of the random messages, and those encode again.
fn every_operation<F: Family>(all: &[F::Operation], has_types: impl Fn(F::Operation) -> bool) {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for &operation in all {
        let (mut requests, mut replies) = (0, 0);
        for _ in 0..TRIES {
            let message = random.message();
            requests += usize::from(fuzzing::one_args::<F>(operation, &message));
            replies += usize::from(fuzzing::one_reply::<F>(operation, &message));
            if requests > 100 && replies > 100 {
                break;
            }
        }
        let decoded = requests > 0 && replies > 0;
        assert_eq!(decoded, has_types(operation), "{operation:?}: {requests} requests, {replies} replies");
    }
}

#[test]
fn random_words_of_every_operation_encode_again() {
    every_operation::<Fore>(Operation::ALL, |operation| operation.description().is_decoded);
}

#[test]
fn random_words_of_every_callback_encode_again() {
    every_operation::<Back>(cb::Operation::ALL, |operation| operation.description().is_decoded);
}

/// A compound of random operations: an empty tag, the minor version, the number of operations, and
/// then numbers of operations among other words.
fn compound() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![4 => 0_u32..2, 2 => 0_u32..16, 2 => 3_u32..76, 1 => any::<u32>()];
    (1_u32..3, 1_u32..12, proptest::collection::vec(word, 0..80)).prop_map(|(minor, count, rest)| {
        let head = [0, minor, count];
        head.into_iter().chain(rest).flat_map(u32::to_be_bytes).collect()
    })
}

/// A compound of operations without arguments, and one WRITE among others that refers to the bytes
/// after it.
fn compound_with_write() -> impl Strategy<Value = Vec<u8>> {
    let filler = proptest::collection::vec(prop_oneof![Just(10_u32), Just(24), Just(31), Just(32)], 0..6);
    (filler.clone(), filler, 0_usize..40, 0_usize..4).prop_map(|(before, after, len, cut)| {
        let count = (before.len() + 1 + after.len()) as u32;
        let mut words = vec![0, 1, count];
        words.extend(before);
        words.extend([38, 1, 2, 3, 4, 0, 512, 0, len as u32]);
        let mut bytes: Vec<u8> = words.into_iter().flat_map(u32::to_be_bytes).collect();
        let data_at = bytes.len();
        bytes.resize(data_at + len.next_multiple_of(4), 0xaa);
        bytes.extend(after.into_iter().flat_map(u32::to_be_bytes));
        bytes.truncate(data_at.max(bytes.len().saturating_sub(cut)));
        bytes
    })
}

proptest! {
    #[test]
    fn arbitrary_bytes_do_no_harm(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        fuzzing::request(&bytes);
        fuzzing::callback(&bytes);
        fuzzing::reply(&bytes);
        fuzzing::callback_reply(&bytes);
        fuzzing::attributes(&bytes);
    }

    #[test]
    fn compounds_of_random_operations_do_no_harm(bytes in compound()) {
        fuzzing::request(&bytes);
        fuzzing::callback(&bytes);
    }

    #[test]
    fn a_write_is_the_same_with_its_data_in_the_message_and_beside_it(bytes in compound_with_write()) {
        fuzzing::request(&bytes);
        let place = nfs4::compound::find_write(&bytes);
        prop_assert!(place.is_some_and(|place| place.write.offset == 512));
    }
}
