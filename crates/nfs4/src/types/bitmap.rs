//! Sets of small numbers, RFC 8881 s3.2 (`bitmap4`): attributes, operations, kinds of
//! notifications.

use crate::Wire;
use std::fmt;
use std::ops::{BitAnd, BitOr};
use xdr::{Reader, Result, Writer};

/// The words that are kept: all numbers of the standards are below 96.
const WORDS: usize = 3;
/// The longest bitmap that decodes, in words. Test suites ask for attribute 1000 and beyond; no
/// bitmap is longer than one with all 32-bit words of a page.
const WIRE_WORDS_MAX: u32 = 1024;

/// A set of numbers below 96. Of higher numbers, which no standard has, a decoded set only keeps
/// that there were some.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Bitmap {
    words: [u32; WORDS],
    beyond: bool,
}

impl Bitmap {
    /// The empty set.
    pub const EMPTY: Self = Self { words: [0; WORDS], beyond: false };

    /// The set of these numbers.
    ///
    /// # Panics
    /// If a number is 96 or above; in a constant, that is an error of the compiler.
    #[must_use]
    pub const fn of(numbers: &[u32]) -> Self {
        let mut words = [0; WORDS];
        let mut index = 0;
        while index < numbers.len() {
            let number = numbers[index];
            words[(number / 32) as usize] |= 1 << (number % 32);
            index += 1;
        }
        Self { words, beyond: false }
    }

    /// Whether the number is in the set.
    #[must_use]
    #[inline]
    pub fn contains(self, number: u32) -> bool {
        self.words.get(number as usize / 32).is_some_and(|word| word >> (number % 32) & 1 == 1)
    }

    /// Adds a number; one of 96 or above is kept as "some number beyond".
    #[inline]
    pub fn insert(&mut self, number: u32) {
        match self.words.get_mut(number as usize / 32) {
            Some(word) => *word |= 1 << (number % 32),
            None => self.beyond = true,
        }
    }

    /// The numbers of this set that `other` lacks.
    #[must_use]
    #[inline]
    pub fn without(self, other: Self) -> Self {
        let [a, b, c] = self.words;
        let [d, e, f] = other.words;
        Self { words: [a & !d, b & !e, c & !f], beyond: self.beyond }
    }

    /// Whether the set is empty.
    #[must_use]
    #[inline]
    pub fn is_empty(self) -> bool {
        self == Self::EMPTY
    }

    /// Whether the peer sent a number of 96 or above, which no standard has.
    #[must_use]
    pub const fn has_beyond(self) -> bool {
        self.beyond
    }

    /// Whether `other` has every number of this set.
    #[must_use]
    pub fn is_within(self, other: Self) -> bool {
        self.without(other).is_empty()
    }

    /// The numbers below 96, ascending.
    pub fn iter(self) -> impl Iterator<Item = u32> {
        (0..96).filter(move |number| self.contains(*number))
    }

    /// The encoded size in bytes.
    #[must_use]
    pub fn wire_bytes(self) -> usize {
        4 + 4 * self.words_used()
    }

    fn words_used(self) -> usize {
        self.words.iter().rposition(|word| *word != 0).map_or(0, |last| last + 1)
    }
}

impl BitAnd for Bitmap {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        let [a, b, c] = self.words;
        let [d, e, f] = other.words;
        Self { words: [a & d, b & e, c & f], beyond: self.beyond && other.beyond }
    }
}

impl BitOr for Bitmap {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        let [a, b, c] = self.words;
        let [d, e, f] = other.words;
        Self { words: [a | d, b | e, c | f], beyond: self.beyond || other.beyond }
    }
}

impl fmt::Debug for Bitmap {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut set = formatter.debug_set();
        set.entries(self.iter());
        if self.beyond {
            set.entry(&"96 or above");
        }
        set.finish()
    }
}

impl<'a> Wire<'a> for Bitmap {
    #[inline]
    fn decode(reader: &mut Reader<'a>) -> Result<Self> {
        let count = reader.length(WIRE_WORDS_MAX)?;
        let mut map = Self::EMPTY;
        for index in 0..count {
            let bits = reader.u32()?;
            match map.words.get_mut(index) {
                Some(word) => *word = bits,
                None => map.beyond |= bits != 0,
            }
        }
        Ok(map)
    }

    /// Writes no words beyond the last that has a bit, as every peer does.
    #[inline]
    fn encode(&self, writer: &mut Writer<'_>) {
        let used = self.words_used();
        writer.u32(used as u32);
        self.words.iter().take(used).for_each(|word| writer.u32(*word));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(words: &[u32]) -> Bitmap {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        let mut reader = Reader::new(&bytes);
        let map = Bitmap::decode(&mut reader).unwrap();
        assert_eq!(reader.remaining(), 0);
        map
    }

    // RFC 8881 s3.2: bit n is 1 << (n mod 32) of word n / 32.
    #[test]
    fn a_number_is_a_bit_of_its_word() {
        let map = Bitmap::of(&[0, 33, 82]);
        assert_eq!(decoded(&[3, 1, 2, 1 << 18]), map);
        assert_eq!(map.iter().collect::<Vec<_>>(), [0, 33, 82]);
        assert!(map.contains(33) && !map.contains(34) && !map.contains(4000));
    }

    #[test]
    fn empty_words_at_the_end_are_read_but_not_written() {
        assert_eq!(decoded(&[2, 4, 0]), Bitmap::of(&[2]));
        let mut out = Vec::new();
        Bitmap::of(&[2]).encode(&mut Writer::new(&mut out));
        assert_eq!(out, [0, 0, 0, 1, 0, 0, 0, 4]);
        assert_eq!(Bitmap::of(&[2]).wire_bytes(), 8);
    }

    #[test]
    fn numbers_beyond_the_standards_are_noted_and_not_kept() {
        let map = decoded(&[4, 1, 0, 0, 1]);
        assert!(map.has_beyond() && map.contains(0) && !map.contains(96));
        assert!(!map.is_within(Bitmap::of(&[0])));
        assert!((map & Bitmap::of(&[0, 1])).is_within(Bitmap::of(&[0])));
        assert!(!decoded(&[4, 1, 0, 0, 0]).has_beyond());
    }

    #[test]
    fn a_bitmap_has_a_bound() {
        let error = Bitmap::decode(&mut Reader::new(&[0, 0, 4, 1]));
        assert_eq!(error, Err(xdr::Error::TooLong { len: 1025, max: 1024 }));
    }
}
