//! Tests that what decodes encodes to the same value, for arbitrary bytes. The bodies are those of
//! the fuzz targets.

use nlm::fuzzing::{self, PROCEDURES, Which};
use proptest::prelude::*;

proptest! {
    #[test]
    fn arbitrary_bytes_round_trip_or_do_not_decode(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        fuzzing::call(&bytes);
        fuzzing::reply(&bytes);
    }

    #[test]
    fn mostly_zero_bytes_round_trip_or_do_not_decode(
        selector in 0..PROCEDURES,
        // Random words are rarely valid lengths, booleans or enumerations; these words mostly are.
        words in proptest::collection::vec(prop_oneof![6 => 0_u32..3, 2 => 0_u32..9, 1 => any::<u32>()], 0..80),
    ) {
        let mut bytes = vec![selector];
        words.iter().for_each(|word| bytes.extend(word.to_be_bytes()));
        fuzzing::call(&bytes);
        fuzzing::reply(&bytes);
    }
}

#[test]
fn each_procedure_has_its_own_selector() {
    let selectors: Vec<_> = Which::all().map(Which::selector).collect();
    assert_eq!(selectors, (0..PROCEDURES).collect::<Vec<_>>());
}
