//! Tests that what decodes encodes to the same value, for arbitrary bytes and for messages made of
//! arbitrary values. The bodies are those of the fuzz targets.

mod calls;
mod parts;
mod replies;

use nfs3::fuzzing::{self, Which};
use proptest::prelude::*;

/// Encodes a value after its selector, decodes it again, and runs the shared body on the bytes;
/// truncated and changed bytes must do no harm either.
macro_rules! round_trip {
    ($which:expr, $direction:ident, $type:ty, $value:expr) => {{
        let value = $value;
        let mut bytes = vec![$which.selector()];
        nfs3::Wire::encode(&value, &mut xdr::Writer::new(&mut bytes));
        let mut reader = xdr::Reader::new(&bytes[1..]);
        assert_eq!(<$type as nfs3::Wire>::decode(&mut reader), Ok(value), "{:?}", $which);
        assert_eq!(reader.remaining(), 0, "{:?}", $which);
        assert_eq!((bytes.len() - 1) % 4, 0, "XDR comes in units of four bytes");
        nfs3::fuzzing::$direction(&bytes);
        nfs3::fuzzing::$direction(&bytes[..bytes.len() / 2]);
        for at in (1..bytes.len()).step_by(4) {
            let mut changed = bytes.clone();
            changed[at] ^= 0x80;
            changed[(at + 3).min(bytes.len() - 1)] ^= 0x03;
            nfs3::fuzzing::$direction(&changed);
        }
    }};
}
pub(crate) use round_trip;

proptest! {
    #[test]
    fn arbitrary_bytes_round_trip_or_do_not_decode(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        fuzzing::call(&bytes);
        fuzzing::reply(&bytes);
    }

    #[test]
    fn mostly_zero_bytes_round_trip_or_do_not_decode(
        selector in 0_u8..28,
        // Random words are rarely valid lengths, booleans or enumerations; these words mostly are.
        words in proptest::collection::vec(prop_oneof![6 => 0_u32..3, 2 => 0_u32..9, 1 => any::<u32>()], 0..120),
    ) {
        let mut bytes = vec![selector];
        words.iter().for_each(|word| bytes.extend(word.to_be_bytes()));
        fuzzing::call(&bytes);
        fuzzing::reply(&bytes);
    }

    #[test]
    fn a_listing_stays_within_its_limits(bytes in proptest::collection::vec(any::<u8>(), 0..3000)) {
        fuzzing::listing(&bytes);
    }
}

#[test]
fn each_of_the_28_procedures_has_its_own_selector() {
    let selectors: Vec<_> = Which::all().map(Which::selector).collect();
    assert_eq!(selectors, (0..28).collect::<Vec<_>>());
}
