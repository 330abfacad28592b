//! What decodes encodes to the same value: for arbitrary bytes, and for messages made from
//! arbitrary values. The bodies are those of the fuzz targets.

mod calls;
mod parts;
mod replies;

use nfs3::fuzzing::{self, Which};
use proptest::prelude::*;

/// Encodes a value behind its selector, decodes it again and runs the shared body on it; a cut and
/// a changed byte must not do any harm either.
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
    fn arbitrary_bytes_decode_to_the_same_or_not_at_all(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        fuzzing::call(&bytes);
        fuzzing::reply(&bytes);
    }

    #[test]
    fn mostly_zero_bytes_decode_to_the_same_or_not_at_all(
        selector in 0_u8..28,
        // Random words hardly ever are valid lengths, booleans or enumerations; these mostly are.
        words in proptest::collection::vec(prop_oneof![6 => 0_u32..3, 2 => 0_u32..9, 1 => any::<u32>()], 0..120),
    ) {
        let mut bytes = vec![selector];
        words.iter().for_each(|word| bytes.extend(word.to_be_bytes()));
        fuzzing::call(&bytes);
        fuzzing::reply(&bytes);
    }

    #[test]
    fn a_listing_keeps_to_its_bounds(bytes in proptest::collection::vec(any::<u8>(), 0..3000)) {
        fuzzing::listing(&bytes);
    }
}

#[test]
fn each_of_the_28_procedures_has_a_selector_of_its_own() {
    let selectors: Vec<_> = Which::all().map(Which::selector).collect();
    assert_eq!(selectors, (0..28).collect::<Vec<_>>());
}
