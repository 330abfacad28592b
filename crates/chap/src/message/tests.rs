//! Each message against bytes that were written by hand from the tables of the specification.

use super::*;

fn read(bytes: &[u8]) -> Message<'_> {
    Message::decode_whole(bytes).expect("a message")
}

#[test]
fn negotiate_as_linux_sends_it() {
    let mut bytes = vec![0x00, 0x00, 0, 0, 0x34, 0x12, 0x00, 0x01, 0x01, 0, 3, 6];
    bytes.extend([1, 2, 3]);
    bytes.extend([0; 27]);
    bytes.extend([0, 1, 2, 3, 4, 5]);
    bytes.extend([0; 24]);
    assert_eq!(bytes.len(), 8 + 64);
    let protocol = Protocol::DhChap { hashes: vec![1, 2, 3], groups: vec![0, 1, 2, 3, 4, 5] };
    let negotiate = Negotiate { transaction: 0x1234, concatenation: 0, protocols: vec![protocol] };
    assert_eq!(read(&bytes), Message::Negotiate(negotiate.clone()));
    assert_eq!(Message::Negotiate(negotiate).encode(), bytes);
}

#[test]
fn negotiate_with_a_strange_protocol_before_ours() {
    let mut bytes = vec![0x00, 0x00, 0, 0, 7, 0, 0x02, 0x02, 0xe0];
    bytes.extend([0x55; 63]);
    bytes.extend([0x01, 0, 0, 30]);
    bytes.extend([9; 30]);
    bytes.extend([8; 30]);
    let Message::Negotiate(negotiate) = read(&bytes) else { panic!("a negotiation") };
    assert_eq!((negotiate.transaction, negotiate.concatenation), (7, 2));
    let ours = Protocol::DhChap { hashes: Vec::new(), groups: vec![8; 30] };
    assert!(matches!(negotiate.protocols.as_slice(), [Protocol::Other(_), second] if *second == ours));
    bytes[8 + 64 + 2] = 31;
    assert_eq!(Message::decode(&bytes), Err(Malformed::List(31)));
    assert_eq!(Message::decode(&bytes[..100]), Err(Malformed::Short { needed: 136, got: 100 }));
}

#[test]
fn challenge_with_a_value_and_without() {
    let mut bytes = vec![0x01, 0x01, 0, 0, 0xcd, 0xab, 32, 0, 0x01, 0x02, 3, 0, 0x04, 0x03, 0x02, 0x01];
    bytes.extend([0xc1; 32]);
    bytes.extend([7, 8, 9]);
    let challenge = Challenge {
        transaction: 0xabcd,
        hash: 1,
        group: 2,
        sequence: 0x0102_0304,
        challenge: &[0xc1; 32],
        value: &[7, 8, 9],
    };
    assert_eq!(read(&bytes), Message::Challenge(challenge.clone()));
    assert_eq!(Message::Challenge(challenge.clone()).encode(), bytes);
    let without = Message::Challenge(Challenge { group: 0, value: &[], ..challenge }).encode();
    assert_eq!((without.len(), &without[9..12]), (48, [0, 0, 0].as_slice()));
    assert_eq!(Message::decode(&bytes[..50]), Err(Malformed::Short { needed: 51, got: 50 }));
}

#[test]
fn reply_with_a_challenge_and_without() {
    let mut bytes = vec![0x01, 0x02, 0, 0, 0xcd, 0xab, 48, 0, 0x01, 0, 2, 0, 0xfc, 0xfd, 0xfe, 0xff];
    bytes.extend([0xa1; 48]);
    bytes.extend([0xc2; 48]);
    bytes.extend([0xd0, 0xd1]);
    let reply = Reply {
        transaction: 0xabcd,
        sequence: 0xfffe_fdfc,
        response: &[0xa1; 48],
        challenge: Some(&[0xc2; 48]),
        value: &[0xd0, 0xd1],
    };
    assert_eq!(read(&bytes), Message::Reply(reply.clone()));
    assert_eq!(Message::Reply(reply.clone()).encode(), bytes);
    let without = Reply { challenge: None, ..reply };
    bytes[8] = 0;
    bytes[64..112].fill(0);
    assert_eq!(read(&bytes), Message::Reply(without.clone()));
    assert_eq!(Message::Reply(without).encode(), bytes, "the room of the challenge stays");
    bytes[8] = 2;
    assert_eq!(Message::decode(&bytes), Err(Malformed::NoFlag { field: "CVALID", value: 2 }));
}

#[test]
fn success_1_with_a_response_and_without() {
    let mut bytes = vec![0x01, 0x03, 0, 0, 5, 0, 32, 0, 0x01, 0, 0, 0, 0, 0, 0, 0];
    bytes.extend([0xa2; 32]);
    let success = Success1 { transaction: 5, hash_bytes: 32, response: Some(&[0xa2; 32]) };
    assert_eq!(read(&bytes), Message::Success1(success.clone()));
    assert_eq!(Message::Success1(success.clone()).encode(), bytes);
    bytes[8] = 0;
    bytes[16..].fill(0);
    let without = Message::Success1(Success1 { response: None, ..success });
    assert_eq!((read(&bytes), without.encode()), (without.clone(), bytes.clone()));
    assert_eq!(read(&bytes[..16]), without, "as some controllers send it");
    bytes[8] = 1;
    assert_eq!(Message::decode(&bytes[..47]), Err(Malformed::Short { needed: 48, got: 47 }));
}

#[test]
fn success_2_and_both_failures() {
    let success = Message::Success2(Success2 { transaction: 0x0201 });
    let bytes = [0x01, 0x04, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!((read(&bytes), success.encode()), (success.clone(), bytes.to_vec()));
    let failure = Failure { transaction: 0x0201, reason: 1, explanation: Explanation::HASH_NOT_USABLE };
    for (message, id) in [(Message::Failure1(failure), 0xf1), (Message::Failure2(failure), 0xf0)] {
        let bytes = [0x00, id, 0, 0, 1, 2, 1, 4];
        assert_eq!((read(&bytes), message.encode()), (message.clone(), bytes.to_vec()));
    }
}

#[test]
fn the_explanations_have_the_numbers_of_the_specification() {
    let all = [
        Explanation::FAILED,
        Explanation::PROTOCOL_NOT_USABLE,
        Explanation::CONCATENATION_MISMATCH,
        Explanation::HASH_NOT_USABLE,
        Explanation::GROUP_NOT_USABLE,
        Explanation::INCORRECT_PAYLOAD,
        Explanation::INCORRECT_MESSAGE,
    ];
    assert_eq!(all.map(|explanation| explanation.0), [1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(Explanation(0x77).to_string(), "explanation 77h");
}

#[test]
fn strange_types_and_lengths_are_named() {
    for (auth_type, auth_id) in [(0, 1), (0, 0xf2), (1, 0), (1, 5), (1, 0xf1), (2, 0), (0xff, 0xff)] {
        let error = Err(Malformed::Unknown { auth_type, auth_id });
        assert_eq!(Message::decode(&[auth_type, auth_id, 0, 0, 0, 0, 0, 0]), error);
    }
    assert_eq!(Message::decode(&[]), Err(Malformed::Short { needed: 1, got: 0 }));
    let failure = [0x00, 0xf1, 0, 0, 1, 2, 1, 4, 0xee];
    assert_eq!(Message::decode(&failure).map(|(_, rest)| rest), Ok([0xee].as_slice()));
    assert_eq!(Message::decode_whole(&failure), Err(Malformed::Long(1)));
    assert_eq!((transaction_of(&failure), transaction_of(&failure[..5])), (Some(0x0201), None));
}

#[test]
fn reserved_bytes_are_ignored() {
    let mut bytes = [0x01, 0x04, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let message = read(&bytes).encode();
    bytes[2..4].fill(0xff);
    bytes[6..].fill(0xff);
    assert_eq!(read(&bytes).encode(), message);
}
