//! What must be random, or must not repeat, in a transaction.

use crate::group::EXPONENT_BYTES_MAX;
use crate::hash::HASH_BYTES_MAX;
use std::fmt;
use std::num::NonZeroU32;
use zeroize::Zeroizing;

/// The random values of one step, which are used once. `Debug` shows nothing of them.
pub struct Entropy {
    pub(crate) challenge: [u8; HASH_BYTES_MAX],
    pub(crate) exponent: Zeroizing<[u8; EXPONENT_BYTES_MAX]>,
    pub(crate) sequence: NonZeroU32,
}

impl Entropy {
    /// The random bytes that are needed.
    pub const BYTES: usize = HASH_BYTES_MAX + EXPONENT_BYTES_MAX;

    /// Takes random bytes of a cryptographic generator, and the next of this process's
    /// [`Sequence`].
    #[must_use]
    pub fn new(random: &[u8; Self::BYTES], sequence: NonZeroU32) -> Self {
        let mut entropy = Self {
            challenge: [0; HASH_BYTES_MAX],
            exponent: Zeroizing::new([0; EXPONENT_BYTES_MAX]),
            sequence,
        };
        let (challenge, exponent) = random.split_at(HASH_BYTES_MAX);
        entropy.challenge.copy_from_slice(challenge);
        entropy.exponent.copy_from_slice(exponent);
        entropy
    }

    /// Takes what is needed from a cryptographic generator. The sequence begins with the first.
    ///
    /// # Errors
    /// That of the generator.
    pub fn generate<E>(
        sequence: &mut Option<Sequence>,
        fill: impl Fn(&mut [u8]) -> Result<(), E>,
    ) -> Result<Self, E> {
        let mut random = Zeroizing::new([0; Self::BYTES]);
        fill(random.as_mut_slice())?;
        let mut first = [0; 4];
        if sequence.is_none() {
            fill(&mut first)?;
        }
        let sequence = sequence.get_or_insert_with(|| Sequence::new(u32::from_le_bytes(first)));
        Ok(Self::new(&random, sequence.take()))
    }
}

impl fmt::Debug for Entropy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Entropy(..)")
    }
}

/// The sequence numbers of challenges: a random start, and never 0, which would say that a
/// challenge only serves concatenation. NVMe Base, "DH-HMAC-CHAP_Challenge", SEQNUM.
#[derive(Debug, Clone)]
pub struct Sequence(u32);

impl Sequence {
    /// Numbers after this random one.
    #[must_use]
    pub const fn new(random: u32) -> Self {
        Self(random)
    }

    /// The next number.
    #[must_use]
    pub fn take(&mut self) -> NonZeroU32 {
        self.0 = self.0.wrapping_add(1);
        NonZeroU32::new(self.0).unwrap_or_else(|| {
            self.0 = 1;
            NonZeroU32::MIN
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_skips_zero_and_does_not_repeat() {
        let mut sequence = Sequence::new(u32::MAX - 1);
        let taken = [(); 4].map(|()| sequence.take().get());
        assert_eq!(taken, [u32::MAX, 1, 2, 3]);
    }

    #[test]
    fn the_generator_begins_the_sequence_once_and_its_error_is_told() {
        let mut sequence = None;
        let fill = |bytes: &mut [u8]| {
            bytes.fill(7);
            Ok::<(), &str>(())
        };
        let first = Entropy::generate(&mut sequence, fill).expect("filled");
        assert_eq!((first.challenge, first.sequence.get()), ([7; 64], 0x0707_0708));
        let second = Entropy::generate(&mut sequence, fill).expect("filled");
        assert_eq!(second.sequence.get(), 0x0707_0709);
        assert_eq!(Entropy::generate(&mut sequence, |_| Err("none")).map(|_| ()), Err("none"));
    }

    #[test]
    fn debug_shows_no_random_byte() {
        let entropy = Entropy::new(&[0xab; Entropy::BYTES], NonZeroU32::MIN);
        assert_eq!(format!("{entropy:?}"), "Entropy(..)");
        assert_eq!((entropy.challenge, *entropy.exponent), ([0xab; 64], [0xab; 56]));
    }
}
