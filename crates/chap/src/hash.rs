//! The hash functions, alone and within HMAC (RFC 2104). NVMe Base, "DH-HMAC-CHAP Hash Function
//! Identifiers".

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256, Sha384, Sha512};
use zeroize::Zeroizing;

/// The longest digest in bytes.
pub const HASH_BYTES_MAX: usize = 64;

/// A hash function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Hash {
    /// SHA-256.
    Sha256,
    /// SHA-384.
    Sha384,
    /// SHA-512.
    Sha512,
}

impl Hash {
    /// All, the strongest first.
    pub const ALL: [Self; 3] = [Self::Sha512, Self::Sha384, Self::Sha256];

    /// The function with this identifier.
    #[must_use]
    pub const fn of(id: u8) -> Option<Self> {
        match id {
            1 => Some(Self::Sha256),
            2 => Some(Self::Sha384),
            3 => Some(Self::Sha512),
            _ => None,
        }
    }

    /// The identifier on the wire and in secrets.
    #[must_use]
    pub const fn id(self) -> u8 {
        match self {
            Self::Sha256 => 1,
            Self::Sha384 => 2,
            Self::Sha512 => 3,
        }
    }

    /// The length of a digest in bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha384 => 48,
            Self::Sha512 => 64,
        }
    }

    /// The name, as users write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "sha256",
            Self::Sha384 => "sha384",
            Self::Sha512 => "sha512",
        }
    }

    /// The function with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|hash| hash.name() == name)
    }

    /// The digest of these bytes.
    #[must_use]
    pub fn digest(self, bytes: &[u8]) -> Zeroizing<Vec<u8>> {
        Zeroizing::new(match self {
            Self::Sha256 => Sha256::digest(bytes).to_vec(),
            Self::Sha384 => Sha384::digest(bytes).to_vec(),
            Self::Sha512 => Sha512::digest(bytes).to_vec(),
        })
    }

    /// The HMAC of the concatenation of these parts.
    #[must_use]
    pub fn hmac(self, key: &[u8], parts: &[&[u8]]) -> Zeroizing<Vec<u8>> {
        Zeroizing::new(match self {
            Self::Sha256 => keyed::<Hmac<Sha256>>(key, parts).finalize().into_bytes().to_vec(),
            Self::Sha384 => keyed::<Hmac<Sha384>>(key, parts).finalize().into_bytes().to_vec(),
            Self::Sha512 => keyed::<Hmac<Sha512>>(key, parts).finalize().into_bytes().to_vec(),
        })
    }

    /// Whether this is the HMAC of the concatenation of these parts, in a time that does not depend
    /// on where it differs.
    #[must_use]
    pub fn hmac_is(self, key: &[u8], parts: &[&[u8]], expected: &[u8]) -> bool {
        match self {
            Self::Sha256 => keyed::<Hmac<Sha256>>(key, parts).verify_slice(expected).is_ok(),
            Self::Sha384 => keyed::<Hmac<Sha384>>(key, parts).verify_slice(expected).is_ok(),
            Self::Sha512 => keyed::<Hmac<Sha512>>(key, parts).verify_slice(expected).is_ok(),
        }
    }
}

fn keyed<M: Mac + KeyInit>(key: &[u8], parts: &[&[u8]]) -> M {
    let mut mac = M::new_from_slice(key).expect("HMAC takes keys of any length");
    parts.iter().for_each(|part| mac.update(part));
    mac
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    // RFC 4231 s4.3
    #[test]
    fn hmac_of_the_published_vector() {
        let parts: [&[u8]; 3] = [b"what do ya want ", b"", b"for nothing?"];
        let expected = [
            (Hash::Sha256, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"),
            (
                Hash::Sha384,
                "af45d2e376484031617f78d2b58a6b1b9c7ef464f5a01b47e42ec3736322445e\
                 8e2240ca5e69e2c78b3239ecfab21649",
            ),
            (
                Hash::Sha512,
                "164b7a7bfcf819e2e395fbe73b56e0a387bd64222e831fd610270cd7ea250554\
                 9758bf75c05a994a6d034f65f8f0e6fdcaeab1a34d4a6b4b636e070a38bce737",
            ),
        ];
        for (hash, mac) in expected {
            let found = hash.hmac(b"Jefe", &parts);
            assert_eq!(hex(&found), mac, "{}", hash.name());
            assert!(hash.hmac_is(b"Jefe", &parts, &found));
            assert!(!hash.hmac_is(b"Jeff", &parts, &found), "another key");
            assert!(!hash.hmac_is(b"Jefe", &parts, &found[1..]), "cut");
            assert!(!hash.hmac_is(b"Jefe", &parts, &[found.as_slice(), &[0]].concat()), "longer");
        }
    }

    #[test]
    fn identifiers_names_and_lengths() {
        assert_eq!(Hash::ALL.map(Hash::id), [3, 2, 1]);
        for hash in Hash::ALL {
            assert_eq!((Hash::of(hash.id()), Hash::named(hash.name())), (Some(hash), Some(hash)));
            assert_eq!((hash.digest(b"").len(), hash.hmac(b"", &[]).len()), (hash.bytes(), hash.bytes()));
        }
        assert_eq!((Hash::of(0), Hash::of(4), Hash::named("sha1")), (None, None, None));
    }
}
