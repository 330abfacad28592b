//! Secrets in the representation that people and programs exchange: `DHHC-1:hh:base64:`. NVMe Base,
//! "Secret Representation" and "Common Secret Transformation" (8.13.5.8, 8.13.5.7).
//!
//! `hh` says with which hash function the secret becomes the key of a host or of a subsystem; 00
//! for none, where the secret itself is the key. The bytes are 32, 48 or 64 of the secret and 4 of
//! its CRC-32, least significant first. So that one secret may serve several hosts, a transformed
//! key depends on the name of whom it authenticates.

use crate::hash::Hash;
use base64ct::{Base64, Encoding};
use nvme::Nqn;
use std::fmt;
use std::str::FromStr;
use zeroize::Zeroizing;

/// How every secret begins.
const PREFIX: &str = "DHHC-1:";

/// The text that is hashed after the name.
const PURPOSE: &[u8] = b"NVMe-over-Fabrics";

const CRC_BYTES: usize = 4;

/// A secret of a host or of a controller. `Debug` shows nothing of it.
#[derive(Clone)]
pub struct Secret {
    transformation: Option<Hash>,
    bytes: Zeroizing<Vec<u8>>,
}

/// What is wrong with a secret. Never shows a part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// It begins otherwise.
    #[error("a secret begins with \"{PREFIX}\"")]
    Prefix,
    /// The hash function is not two digits between colons.
    #[error("\"{PREFIX}\" must be followed by two digits and a colon, as in \"{PREFIX}01:\"")]
    Format,
    /// No hash function with this number.
    #[error("the transformation {0:02x} is unknown; known are 00 (none), 01, 02 and 03")]
    Transformation(u8),
    /// It does not end with a colon.
    #[error("a secret ends with a colon")]
    End,
    /// Not Base64.
    #[error("the part before the last colon is not Base64")]
    Base64,
    /// Not the length of a secret.
    #[error("the secret has {0} bytes; possible are 32, 48 and 64, in Base64 followed by a CRC of 4 bytes")]
    Length(usize),
    /// Changed since it was made.
    #[error("the CRC of the secret is wrong: a character is missing or differs")]
    Crc,
}

impl Secret {
    /// A secret of these bytes, such as random ones.
    ///
    /// # Errors
    /// [`SecretError::Length`] unless there are 32, 48 or 64.
    pub fn new(transformation: Option<Hash>, bytes: &[u8]) -> Result<Self, SecretError> {
        match bytes.len() {
            32 | 48 | 64 => Ok(Self { transformation, bytes: Zeroizing::new(bytes.to_vec()) }),
            other => Err(SecretError::Length(other)),
        }
    }

    /// The representation, which is as secret as the secret.
    #[must_use]
    pub fn reveal(&self) -> Zeroizing<String> {
        let crc = crc32(&self.bytes).to_le_bytes();
        let bytes = Zeroizing::new([self.bytes.as_slice(), &crc].concat());
        let base64 = Zeroizing::new(Base64::encode_string(&bytes));
        let transformation = self.transformation.map_or(0, Hash::id);
        // As long as it becomes, so that no copy is left behind when it grows.
        let mut text = Zeroizing::new(String::with_capacity(PREFIX.len() + 4 + base64.len()));
        text.push_str(PREFIX);
        text.push_str(&format!("{transformation:02x}:"));
        text.push_str(&base64);
        text.push(':');
        text
    }

    /// The hash function that makes it a key; `None` if the secret itself is the key.
    #[must_use]
    pub const fn transformation(&self) -> Option<Hash> {
        self.transformation
    }

    /// The key by which the holder of this name proves who it is.
    #[must_use]
    pub fn key(&self, name: &Nqn) -> Zeroizing<Vec<u8>> {
        match self.transformation {
            None => self.bytes.clone(),
            Some(hash) => hash.hmac(&self.bytes, &[name.as_str().as_bytes(), PURPOSE]),
        }
    }
}

impl FromStr for Secret {
    type Err = SecretError;

    fn from_str(text: &str) -> Result<Self, SecretError> {
        let rest = text.strip_prefix(PREFIX).ok_or(SecretError::Prefix)?;
        let (transformation, rest) = rest.split_once(':').ok_or(SecretError::Format)?;
        let is_number =
            transformation.len() == 2 && transformation.bytes().all(|one| one.is_ascii_hexdigit());
        if !is_number {
            return Err(SecretError::Format);
        }
        let transformation = match u8::from_str_radix(transformation, 16).map_err(|_| SecretError::Format)? {
            0 => None,
            id => Some(Hash::of(id).ok_or(SecretError::Transformation(id))?),
        };
        let base64 = rest.strip_suffix(':').ok_or(SecretError::End)?;
        let bytes = Zeroizing::new(Base64::decode_vec(base64).map_err(|_| SecretError::Base64)?);
        let (secret, crc) = bytes.split_last_chunk::<CRC_BYTES>().ok_or(SecretError::Length(0))?;
        let secret = Self::new(transformation, secret)?;
        if crc32(&secret.bytes) != u32::from_le_bytes(*crc) {
            return Err(SecretError::Crc);
        }
        Ok(secret)
    }
}

/// In a time that does not depend on the bytes.
impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        let is_alike = self.transformation == other.transformation && self.bytes.len() == other.bytes.len();
        let differing =
            self.bytes.iter().zip(other.bytes.iter()).fold(0, |all, (one, two)| all | (one ^ two));
        is_alike && std::hint::black_box(differing) == 0
    }
}

impl Eq for Secret {}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Secret(..)")
    }
}

/// The CRC-32 of IEEE 802.3. A table would be indexed by secret bytes.
fn crc32(bytes: &[u8]) -> u32 {
    const POLYNOMIAL_REVERSED: u32 = 0xedb8_8320;
    let crc = bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ (POLYNOMIAL_REVERSED & 0_u32.wrapping_sub(crc & 1))
        })
    });
    !crc
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of NVMe Base, "Secret Representation".
    const PUBLISHED: &str = "DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:";

    const OF_64: &str = "DHHC-1:03:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4v\
                         MDEyMzQ1Njc4OTo7PD0+P4zODhA=:";

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn counting(bytes: u8, transformation: Option<Hash>) -> Secret {
        Secret::new(transformation, &(0..bytes).collect::<Vec<_>>()).expect("a valid length")
    }

    #[test]
    fn the_published_secret_is_read_with_every_transformation() {
        for (digits, hash) in
            [("00", None), ("01", Some(Hash::Sha256)), ("02", Some(Hash::Sha384)), ("03", Some(Hash::Sha512))]
        {
            let text = PUBLISHED.replace(":00:", &format!(":{digits}:"));
            let secret = text.parse::<Secret>().expect(&text);
            assert_eq!((secret.transformation(), secret.reveal().as_str()), (hash, text.as_str()));
        }
    }

    #[test]
    fn secrets_are_written_with_their_crc() {
        let expected = [
            (32, None, "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:"),
            (
                48,
                Some(Hash::Sha384),
                "DHHC-1:02:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vcSEgBQ==:",
            ),
            (64, Some(Hash::Sha512), OF_64),
        ];
        for (bytes, transformation, text) in expected {
            assert_eq!(counting(bytes, transformation).reveal().as_str(), text);
            assert!(text.parse::<Secret>().is_ok(), "{text}");
        }
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn secrets_are_the_same_if_their_bytes_and_transformations_are() {
        let secret = counting(32, None);
        assert_eq!(secret, counting(32, None));
        assert_ne!(secret, counting(32, Some(Hash::Sha256)));
        assert_ne!(secret, counting(48, None));
        let other = Secret::new(None, &[0; 32]).expect("a valid length");
        assert_ne!(secret, other);
    }

    #[test]
    fn a_key_depends_on_the_name() {
        let name = Nqn::new("nqn.2026-11.test:host").expect("valid");
        let expected = [
            (32, Hash::Sha256, "f90505ffec2b69558a1c772fd76334b1baae4c26d84f7231c63da8f4c027bdb7"),
            (
                48,
                Hash::Sha384,
                "5de592df5ed2bddf2b97d64fe4c954ceb9ac59f10343fdbb263658f07d08fd6f\
                 8b90782dc9321afe677fa1954240632c",
            ),
            (
                64,
                Hash::Sha512,
                "cbb3882d578ce0e0dbc12d57f779248e04d76fa9cfaa0bfdd99da0bfabdd148f\
                 6cb1637194b697ddd2fc3b1fe6cef4ba213bd40a823eebe75b4fd4074724e469",
            ),
        ];
        for (bytes, hash, key) in expected {
            assert_eq!(hex(&counting(bytes, Some(hash)).key(&name)), key);
            assert_eq!(*counting(bytes, None).key(&name), (0..bytes).collect::<Vec<_>>());
            let other = Nqn::new("nqn.2026-11.test:other").expect("valid");
            assert_ne!(hex(&counting(bytes, Some(hash)).key(&other)), key);
        }
    }

    #[test]
    fn what_is_wrong_with_a_secret_is_named() {
        for (text, error) in [
            ("", SecretError::Prefix),
            ("dhhc-1:00:", SecretError::Prefix),
            ("NVMeTLSkey-1:01:", SecretError::Prefix),
            ("DHHC-1:00", SecretError::Format),
            ("DHHC-1:0:AAAA:", SecretError::Format),
            ("DHHC-1:+1:AAAA:", SecretError::Format),
            ("DHHC-1:001:AAAA:", SecretError::Format),
            ("DHHC-1:04:AAAA:", SecretError::Transformation(4)),
            ("DHHC-1:ff:AAAA:", SecretError::Transformation(255)),
            (&PUBLISHED[..PUBLISHED.len() - 1], SecretError::End),
            ("DHHC-1:00:AAA:", SecretError::Base64),
            ("DHHC-1:00:AA AA:", SecretError::Base64),
            ("DHHC-1:00:AAAA::", SecretError::Base64),
            ("DHHC-1:00::", SecretError::Length(0)),
            ("DHHC-1:00:AAAAAAAA:", SecretError::Length(2)),
            (&PUBLISHED.replace("ia6z", "ia6y"), SecretError::Crc),
            (&PUBLISHED.replace("aQ2n", "aQ2o"), SecretError::Crc),
        ] {
            assert_eq!(text.parse::<Secret>().map(|_| ()), Err(error), "{text:?}");
        }
        assert_eq!(Secret::new(None, &[0; 33]).map(|_| ()), Err(SecretError::Length(33)));
    }

    #[test]
    fn neither_debug_nor_an_error_shows_a_part_of_a_secret() {
        let secret = PUBLISHED.parse::<Secret>().expect("valid");
        assert_eq!(format!("{secret:?}"), "Secret(..)");
        let error = PUBLISHED.replace("ia6z", "ia6y").parse::<Secret>().expect_err("changed");
        let shown = format!("{error} {error:?}");
        assert!(!shown.contains("6y") && !shown.contains("6a2d"), "{shown}");
    }
}
