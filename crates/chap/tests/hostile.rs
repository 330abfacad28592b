//! Arbitrary bytes, and messages that were changed on their way: nothing panics, and nobody is
//! authenticated.

use chap::fuzzing;
use proptest::prelude::*;

/// Bytes that begin as messages do, so that their fields are reached.
fn message() -> impl Strategy<Value = Vec<u8>> {
    let header = prop::sample::select(vec![
        [0x00, 0x00],
        [0x00, 0xf0],
        [0x00, 0xf1],
        [0x01, 0x01],
        [0x01, 0x02],
        [0x01, 0x03],
        [0x01, 0x04],
    ]);
    let length = prop::sample::select(vec![0_u8, 32, 48, 64, 255]);
    (header, length, prop::collection::vec(any::<u8>(), 0..300)).prop_map(|(header, length, rest)| {
        let fixed = [header[0], header[1], 0, 0, 1, 0, length, 0];
        [fixed.as_slice(), &rest].concat()
    })
}

proptest! {
    #[test]
    fn no_bytes_upset_the_messages(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        fuzzing::message(&bytes);
    }

    #[test]
    fn what_begins_as_a_message_is_read_or_refused(bytes in message()) {
        fuzzing::message(&bytes);
    }

    #[test]
    fn no_text_upsets_secrets(text in "(DHHC-1:0[0-4]:)?[A-Za-z0-9+/=:]{0,100}") {
        fuzzing::secret(&text);
    }

    #[test]
    fn strangers_are_not_authenticated(messages in prop::collection::vec(message(), 0..8)) {
        let bytes = messages.iter().flat_map(|one| {
            let one = &one[..one.len().min(255)];
            [&[one.len() as u8], one].concat()
        });
        fuzzing::machines(&bytes.collect::<Vec<_>>());
    }

    #[test]
    fn arbitrary_bytes_are_not_authenticated(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        fuzzing::machines(&bytes);
    }
}
