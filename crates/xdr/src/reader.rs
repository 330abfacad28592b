//! The reading cursor.

use crate::padding;

/// Why bytes cannot be decoded. Always the sender's fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The message ends before the item does.
    #[error("message ends early: {needed} bytes needed, {remaining} left")]
    Short {
        /// The length of the item.
        needed: u64,
        /// Bytes that are left.
        remaining: usize,
    },
    /// A length is above the bound that the protocol sets.
    #[error("length {len} is above the bound of {max}")]
    TooLong {
        /// The length on the wire.
        len: u32,
        /// The bound.
        max: u32,
    },
    /// A boolean that is neither 0 nor 1. RFC 4506 s4.4
    #[error("{0} is not a boolean")]
    BadBool(u32),
    /// A discriminant that its enumeration or union does not have. RFC 4506 s4.3
    #[error("{value} is not a {name}")]
    BadDiscriminant {
        /// Which enumeration.
        name: &'static str,
        /// The value on the wire.
        value: u32,
    },
    /// Bytes follow the end of the message.
    #[error("{0} bytes follow the end of the message")]
    Trailing(usize),
}

/// The result of reading.
pub type Result<T> = std::result::Result<T, Error>;

/// A cursor over the bytes of one message. A copy of the cursor keeps its position.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Starts at the first byte of a message.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Bytes not read yet.
    #[must_use]
    pub const fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// The bytes not read yet; does not advance the cursor.
    #[must_use]
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Takes `len` bytes as they are, without padding.
    ///
    /// # Errors
    /// [`Error::Short`] when fewer remain.
    #[inline]
    pub fn bytes(&mut self, len: usize) -> Result<&'a [u8]> {
        match self.rest.split_at_checked(len) {
            Some((taken, rest)) => {
                self.rest = rest;
                Ok(taken)
            }
            None => Err(Error::Short { needed: len as u64, remaining: self.rest.len() }),
        }
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        match self.rest.split_first_chunk::<N>() {
            Some((taken, rest)) => {
                self.rest = rest;
                Ok(*taken)
            }
            None => Err(Error::Short { needed: N as u64, remaining: self.rest.len() }),
        }
    }

    /// An unsigned integer. RFC 4506 s4.2
    ///
    /// # Errors
    /// [`Error::Short`].
    #[inline]
    pub fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_be_bytes)
    }

    /// An unsigned hyper integer. RFC 4506 s4.5
    ///
    /// # Errors
    /// [`Error::Short`].
    #[inline]
    pub fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// A boolean; anything but 0 and 1 is refused. RFC 4506 s4.4
    ///
    /// # Errors
    /// [`Error::Short`], [`Error::BadBool`].
    #[inline]
    pub fn bool(&mut self) -> Result<bool> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(Error::BadBool(other)),
        }
    }

    /// Fixed-length opaque data with its padding. RFC 4506 s4.9
    ///
    /// # Errors
    /// [`Error::Short`].
    #[inline]
    pub fn opaque_fixed<const N: usize>(&mut self) -> Result<[u8; N]> {
        let taken = self.array::<N>()?;
        self.bytes(padding(N))?;
        Ok(taken)
    }

    /// The length of an array or of opaque data, checked against `max`. RFC 4506 s4.10, s4.13
    ///
    /// # Errors
    /// [`Error::Short`], [`Error::TooLong`].
    #[inline]
    pub fn length(&mut self, max: u32) -> Result<usize> {
        let len = self.u32()?;
        if len > max {
            return Err(Error::TooLong { len, max });
        }
        Ok(len as usize)
    }

    /// Variable-length opaque data or a string of at most `max` bytes, with its padding, whose
    /// value is ignored. RFC 4506 s4.10, s4.11
    ///
    /// # Errors
    /// [`Error::Short`], [`Error::TooLong`].
    #[inline]
    pub fn opaque(&mut self, max: u32) -> Result<&'a [u8]> {
        let len = self.length(max)?;
        // Length and padding are summed in u64: near 4 GiB the sum does not fit 32 bits.
        let padded = len as u64 + padding(len) as u64;
        if padded > self.rest.len() as u64 {
            return Err(Error::Short { needed: padded, remaining: self.rest.len() });
        }
        let taken = self.bytes(len)?;
        self.bytes(padding(len))?;
        Ok(taken)
    }

    /// Optional data: a boolean, then the item when it is true. RFC 4506 s4.19
    ///
    /// # Errors
    /// Those of the boolean and of `item`.
    #[inline]
    pub fn optional<T>(&mut self, item: impl FnOnce(&mut Self) -> Result<T>) -> Result<Option<T>> {
        if self.bool()? { item(self).map(Some) } else { Ok(None) }
    }

    /// Ends the message: checks that no bytes are left.
    ///
    /// # Errors
    /// [`Error::Trailing`] when bytes remain.
    pub const fn finish(self) -> Result<()> {
        if self.rest.is_empty() { Ok(()) } else { Err(Error::Trailing(self.rest.len())) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_length_near_the_end_of_32_bits_is_refused_without_overflow() {
        let bytes = [0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4];
        let error = Reader::new(&bytes).opaque(u32::MAX).unwrap_err();
        assert_eq!(error, Error::Short { needed: 1 << 32, remaining: 4 });
    }

    #[test]
    fn opaque_above_its_bound_is_refused_before_its_bytes_are_looked_at() {
        let error = Reader::new(&[0, 0, 0, 65]).opaque(64).unwrap_err();
        assert_eq!(error, Error::TooLong { len: 65, max: 64 });
    }

    #[test]
    fn missing_padding_is_a_short_message() {
        let error = Reader::new(&[0, 0, 0, 1, 7]).opaque(8).unwrap_err();
        assert_eq!(error, Error::Short { needed: 4, remaining: 1 });
    }

    #[test]
    fn only_zero_and_one_are_booleans() {
        assert_eq!(Reader::new(&[0, 0, 0, 1]).bool(), Ok(true));
        assert_eq!(Reader::new(&[0, 0, 0, 2]).bool(), Err(Error::BadBool(2)));
    }

    #[test]
    fn trailing_bytes_are_counted() {
        let mut reader = Reader::new(&[0, 0, 0, 1, 9]);
        reader.u32().unwrap();
        assert_eq!(reader.finish(), Err(Error::Trailing(1)));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..256)) {
            crate::fuzzing::read_everything(&bytes);
        }
    }
}
