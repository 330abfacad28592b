//! The Diffie-Hellman groups, and one side of an exchange. NVMe Base, "DH-HMAC-CHAP Diffie-Hellman
//! Group Identifiers"; RFC 7919.
//!
//! All are of the form p = 2q + 1 with the generator 2. Exponents are short (RFC 7919 sA): twice
//! the bits of the strength of a group suffice, and an exchange is that much cheaper. An exponent
//! is used for one transaction. Values on the wire and session secrets are as long as the prime,
//! with leading zeros.

mod primes;

use crypto_bigint::modular::{BoxedMontyForm, BoxedMontyParams};
use crypto_bigint::{BoxedUint, Odd, Resize};
use zeroize::Zeroizing;

/// The longest exponent in bytes.
pub const EXPONENT_BYTES_MAX: usize = 56;

/// The longest value in bytes.
pub const VALUE_BYTES_MAX: usize = 1024;

const GENERATOR: u8 = 2;

/// A group, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Group {
    /// No exchange: plain HMAC-CHAP.
    Null,
    /// A prime of 2048 bits.
    Ffdhe2048,
    /// A prime of 3072 bits.
    Ffdhe3072,
    /// A prime of 4096 bits.
    Ffdhe4096,
    /// A prime of 6144 bits.
    Ffdhe6144,
    /// A prime of 8192 bits.
    Ffdhe8192,
}

impl Group {
    /// All, the strongest first.
    pub const ALL: [Self; 6] =
        [Self::Ffdhe8192, Self::Ffdhe6144, Self::Ffdhe4096, Self::Ffdhe3072, Self::Ffdhe2048, Self::Null];

    /// The group with this identifier.
    #[must_use]
    pub fn of(id: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|group| group.id() == id)
    }

    /// The identifier on the wire.
    #[must_use]
    pub const fn id(self) -> u8 {
        match self {
            Self::Null => 0,
            Self::Ffdhe2048 => 1,
            Self::Ffdhe3072 => 2,
            Self::Ffdhe4096 => 3,
            Self::Ffdhe6144 => 4,
            Self::Ffdhe8192 => 5,
        }
    }

    /// The name, as users write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Ffdhe2048 => "ffdhe2048",
            Self::Ffdhe3072 => "ffdhe3072",
            Self::Ffdhe4096 => "ffdhe4096",
            Self::Ffdhe6144 => "ffdhe6144",
            Self::Ffdhe8192 => "ffdhe8192",
        }
    }

    /// The group with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|group| group.name() == name)
    }

    /// The length of a value on the wire in bytes; 0 for none.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::Null => 0,
            Self::Ffdhe2048 => 256,
            Self::Ffdhe3072 => 384,
            Self::Ffdhe4096 => 512,
            Self::Ffdhe6144 => 768,
            Self::Ffdhe8192 => VALUE_BYTES_MAX,
        }
    }

    /// The length of exponents in bytes, at least that which RFC 7919 sA asks for: 225, 275, 325,
    /// 375 and 400 bits.
    const fn exponent_bytes(self) -> usize {
        match self {
            Self::Null => 0,
            Self::Ffdhe2048 => 32,
            Self::Ffdhe3072 => 40,
            Self::Ffdhe4096 | Self::Ffdhe6144 => 48,
            Self::Ffdhe8192 => EXPONENT_BYTES_MAX,
        }
    }

    const fn bits(self) -> u32 {
        self.bytes() as u32 * 8
    }

    const fn prime_hex(self) -> Option<&'static str> {
        match self {
            Self::Null => None,
            Self::Ffdhe2048 => Some(primes::FFDHE2048),
            Self::Ffdhe3072 => Some(primes::FFDHE3072),
            Self::Ffdhe4096 => Some(primes::FFDHE4096),
            Self::Ffdhe6144 => Some(primes::FFDHE6144),
            Self::Ffdhe8192 => Some(primes::FFDHE8192),
        }
    }
}

/// A value that cannot come from a peer that follows the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the peer's Diffie-Hellman value has the wrong length or is not between 1 and p - 1")]
pub struct BadValue;

/// One side's part of an exchange. Values in the middle of an exponentiation are not cleared.
/// `Debug` does not show the exponent, which is cleared when it is dropped.
pub struct Exchange {
    group: Group,
    params: BoxedMontyParams,
    exponent: Zeroizing<BoxedUint>,
}

impl Exchange {
    /// An exchange with this random exponent, of which the group may need a part only; `None`
    /// without a group.
    #[must_use]
    pub fn new(group: Group, random: &[u8; EXPONENT_BYTES_MAX]) -> Option<Self> {
        let prime = BoxedUint::from_be_hex(group.prime_hex()?, group.bits());
        // An exchange that is left out by mistake would be as if there were no group.
        let prime = Odd::new(prime.expect("as many digits as the group has")).expect("a prime is odd");
        let mut exponent = Zeroizing::new(random.to_vec());
        exponent.truncate(group.exponent_bytes());
        // The exponent has its full length, whatever the random bytes are.
        exponent.iter_mut().take(1).for_each(|first| *first |= 0x80);
        let exponent = BoxedUint::from_be_slice(&exponent, group.exponent_bytes() as u32 * 8);
        let exponent = Zeroizing::new(exponent.expect("as long as it says"));
        Some(Self { group, params: BoxedMontyParams::new_vartime(prime), exponent })
    }

    /// What this side sends: g^x mod p.
    #[must_use]
    pub fn value(&self) -> Vec<u8> {
        let generator = BoxedUint::from(GENERATOR).resize(self.group.bits());
        self.power(generator).to_be_bytes().into_vec()
    }

    /// What both sides know: g^xy mod p, from the peer's value.
    ///
    /// # Errors
    /// [`BadValue`] for another length, and for 0, 1, p - 1 and what is no residue. RFC 7919 s3
    pub fn shared(&self, peer: &[u8]) -> Result<Zeroizing<Vec<u8>>, BadValue> {
        if peer.len() != self.group.bytes() {
            return Err(BadValue);
        }
        let value = BoxedUint::from_be_slice(peer, self.group.bits()).map_err(|_| BadValue)?;
        let one = BoxedUint::one_with_precision(self.group.bits());
        let last = self.params.modulus().as_ref().wrapping_sub(&one);
        if value <= one || value >= last {
            return Err(BadValue);
        }
        let shared = Zeroizing::new(self.power(value));
        Ok(Zeroizing::new(shared.to_be_bytes().into_vec()))
    }

    /// In a time that depends on the lengths only.
    fn power(&self, base: BoxedUint) -> BoxedUint {
        BoxedMontyForm::new(base, &self.params).pow(&self.exponent).retrieve()
    }
}

impl std::fmt::Debug for Exchange {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Exchange({})", self.group.name())
    }
}

#[cfg(test)]
mod tests;
