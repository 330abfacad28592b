//! The responses of both sides. NVMe Base, "DH-HMAC-CHAP Reply and Success1 messages" (8.13.5.4,
//! 8.13.5.5).
//!
//! A response is the HMAC, with the key of the side that answers, of the challenge, its sequence
//! number, the transaction, and the names of both sides. With a group, the challenge is replaced by
//! its HMAC with the hash of the session secret as the key: the augmented challenge.

use crate::hash::Hash;
use nvme::Nqn;
use zeroize::Zeroizing;

/// Which side answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The host, to C1.
    Host,
    /// The controller, to C2.
    Controller,
}

/// What a response is computed from, besides the key.
#[derive(Debug, Clone, Copy)]
pub struct Challenged<'a> {
    /// The side that answers.
    pub side: Side,
    /// The hash function that was chosen.
    pub hash: Hash,
    /// The challenge as it was sent.
    pub challenge: &'a [u8],
    /// The sequence number that came with it.
    pub sequence: u32,
    /// The transaction.
    pub transaction: u16,
    /// The name of the host.
    pub host: &'a Nqn,
    /// The name of the subsystem.
    pub subsystem: &'a Nqn,
}

impl Challenged<'_> {
    /// The response with this key, and with this session secret if there is a group.
    #[must_use]
    pub fn response(&self, key: &[u8], session: Option<&[u8]>) -> Vec<u8> {
        self.with_parts(session, |parts| self.hash.hmac(key, parts).to_vec())
    }

    /// Whether the response is right, in a time that does not depend on where it differs.
    #[must_use]
    pub fn is_answered_by(&self, response: &[u8], key: &[u8], session: Option<&[u8]>) -> bool {
        self.with_parts(session, |parts| self.hash.hmac_is(key, parts, response))
    }

    fn with_parts<T>(&self, session: Option<&[u8]>, of: impl FnOnce(&[&[u8]]) -> T) -> T {
        let augmented = session.map(|secret| augmented(self.hash, self.challenge, secret));
        let challenge = augmented.as_ref().map_or(self.challenge, |augmented| augmented.as_slice());
        let (host, subsystem) = (self.host.as_str().as_bytes(), self.subsystem.as_str().as_bytes());
        let (role, own, other): (&[u8], _, _) = match self.side {
            Side::Host => (b"HostHost", host, subsystem),
            Side::Controller => (b"Controller", subsystem, host),
        };
        // SC_C is 0: concatenation was refused before.
        of(&[
            challenge,
            &self.sequence.to_le_bytes(),
            &self.transaction.to_le_bytes(),
            &[0],
            role,
            own,
            &[0],
            other,
        ])
    }
}

/// Ca = HMAC(H(g^xy mod p), C).
fn augmented(hash: Hash, challenge: &[u8], session: &[u8]) -> Zeroizing<Vec<u8>> {
    hash.hmac(&hash.digest(session), &[challenge])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::Secret;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Computed by another implementation of HMAC from the formulas of the specification: the key
    /// of the host is transformed, that of the controller is not; without a group, and with a
    /// session secret of 255 zeros and a five.
    #[test]
    fn responses_are_those_of_another_implementation() {
        let expected = [
            (
                Hash::Sha256,
                false,
                "37a7ad7620fbf2cfafc78ad50067fa2a74b4f2ef6580a919cd99b2b31e4813c0",
                "e132a7edfcab1cb1a519441e0a9600ceb3a3b1580604e7b82dd0690c50149536",
            ),
            (
                Hash::Sha256,
                true,
                "a77f90c03d978d1547c92a9e758b4b75a2b293b2c9dd1695a9440b2db1893694",
                "3c1d0358fbc8049f752ad5fdc515e922cb9a8c2d50c9ddcd6c55021be1742968",
            ),
            (
                Hash::Sha384,
                false,
                "eba6cae45eea09756d0ab6cb259c324f9a557c684fefc151435ad3f6533323e6\
                 a3e7dfc9279ef9ffa6f3f9e020491fc2",
                "ff8e9eaf156e53c31bc094fdcf0a51a0c93efae8886bfb20ec7b84ab36a22bae\
                 06a077e4a9ab8d5bdc820f5eb6448bd0",
            ),
            (
                Hash::Sha384,
                true,
                "7c01e5f50f591a4025c26f592980a994040988eac39ddb2512205befebf5ebcc\
                 ff5a143134169c65e527bf4e9f7c755c",
                "e2e1f650ef082378c52478d420b03eb14b30fa017d475904d297bc2700bad673\
                 3990e5c223d908b7692424af48e06663",
            ),
            (
                Hash::Sha512,
                false,
                "ac5b1c12092476cf4c75e4571bcead43779e4479c3c695ae8021de5c2dc6660e\
                 3f014d93bb961fbd37ca62a3e98e65b448da462fa1828d7e175b2f53077275a6",
                "9eda874d51933888e3bfd0d2842e70f96b24d8da66146c00d559bcf577e24200\
                 bf46c83bbee47ebb4ea0d48165ffa49831e19301b1442c577ca7d14854c6370a",
            ),
            (
                Hash::Sha512,
                true,
                "5c27ab75b27109e770f4324a3fdb97d7db66f555187c4045facc9d6c0fa26b44\
                 4ce999e9e49fe29f0778c305ead804917d5062568e3135d840a0635e6db7f3e3",
                "4699e9d1c6e71394c9a8d95714062deb7fd30ca965a6a5fed3b9d9ea72bd1018\
                 2ff37ef83e56d1d7f87cb8a8269b022bce8d7ca510b56ab1d442dc41f96fd357",
            ),
        ];
        let (host, subsystem) = (Nqn::new("nqn.2026-11.test:host"), Nqn::new("nqn.2026-11.test:sub"));
        let (host, subsystem) = (host.expect("valid"), subsystem.expect("valid"));
        let counting = |first: u8, bytes: usize| (0..bytes).map(|at| first + at as u8).collect::<Vec<_>>();
        let host_secret = Secret::new(Some(Hash::Sha256), &counting(0, 32)).expect("32 bytes");
        let controller_secret = Secret::new(None, &counting(0, 64)).expect("64 bytes");
        let (host_key, controller_key) = (host_secret.key(&host), controller_secret.key(&subsystem));
        let session = [[0; 255].as_slice(), &[5]].concat();
        for (hash, has_group, of_host, of_controller) in expected {
            let session = has_group.then_some(session.as_slice());
            let (first, second) = (counting(0x10, hash.bytes()), counting(0x80, hash.bytes()));
            let challenged = Challenged {
                side: Side::Host,
                hash,
                challenge: &first,
                sequence: 0x0102_0304,
                transaction: 0xabcd,
                host: &host,
                subsystem: &subsystem,
            };
            assert_eq!(hex(&challenged.response(&host_key, session)), of_host, "{challenged:?}");
            let (side, sequence) = (Side::Controller, 0xfffe_fdfc);
            let challenged = Challenged { side, challenge: &second, sequence, ..challenged };
            let response = challenged.response(&controller_key, session);
            assert_eq!(hex(&response), of_controller, "{challenged:?}");
            assert!(challenged.is_answered_by(&response, &controller_key, session));
            assert!(!challenged.is_answered_by(&response, &host_key, session));
            let other = Challenged { transaction: 0xabce, ..challenged };
            assert!(!other.is_answered_by(&response, &controller_key, session));
        }
    }

    /// Otherwise a controller could be asked for the answer to its own challenge.
    #[test]
    fn the_sides_answer_differently_even_with_one_name_and_one_secret() {
        let name = Nqn::new("nqn.2026-11.test:same").expect("valid");
        let of = |side| Challenged {
            side,
            hash: Hash::Sha256,
            challenge: &[1; 32],
            sequence: 1,
            transaction: 1,
            host: &name,
            subsystem: &name,
        };
        let response = of(Side::Controller).response(&[5; 32], None);
        assert!(of(Side::Controller).is_answered_by(&response, &[5; 32], None));
        assert!(!of(Side::Host).is_answered_by(&response, &[5; 32], None));
    }
}
