//! Arrays of variable length (RFC 4506 s4.13), and opaque data with a bound.
//!
//! A received array is checked once, item by item, and then kept as the bytes that encode it. So an
//! array of any length is read without an allocation. An array to send borrows a slice of items.

use crate::Wire;
use std::fmt;
use std::marker::PhantomData;
use xdr::{Error, Reader, Result, UNIT_BYTES, Writer};

/// Items, received or to be sent.
pub struct Array<'a, T>(Content<'a, T>);

enum Content<'a, T> {
    /// The bytes of items that have been checked.
    Received {
        count: u32,
        bytes: &'a [u8],
        items: PhantomData<fn() -> T>,
    },
    Items(&'a [T]),
}

impl<T> Clone for Content<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Content<'_, T> {}

impl<T> Clone for Array<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Array<'_, T> {}

/// An array without items.
impl<T> Default for Array<'_, T> {
    fn default() -> Self {
        Self(Content::Items(&[]))
    }
}

impl<'a, T> From<&'a [T]> for Array<'a, T> {
    fn from(items: &'a [T]) -> Self {
        Self(Content::Items(items))
    }
}

impl<'a, T, const N: usize> From<&'a [T; N]> for Array<'a, T> {
    fn from(items: &'a [T; N]) -> Self {
        Self(Content::Items(items))
    }
}

impl<T> Array<'_, T> {
    /// The number of items.
    #[must_use]
    pub const fn len(&self) -> usize {
        match &self.0 {
            Content::Received { count, .. } => *count as usize,
            Content::Items(items) => items.len(),
        }
    }

    /// Whether there are no items.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<'a, T: Wire<'a> + Copy> Array<'a, T> {
    /// The items, in order.
    #[must_use]
    pub fn iter(&self) -> ArrayIter<'a, T> {
        ArrayIter(match self.0 {
            Content::Received { bytes, items, .. } => Source::Received { reader: Reader::new(bytes), items },
            Content::Items(items) => Source::Items(items.iter()),
        })
    }
}

impl<'a, T: Wire<'a> + Copy> Wire<'a> for Array<'a, T> {
    fn decode(reader: &mut Reader<'a>) -> Result<Self> {
        let count = reader.u32()?;
        // Every item has at least one word. So the count is bounded before the items are looked at.
        let needed = u64::from(count) * UNIT_BYTES as u64;
        if needed > reader.remaining() as u64 {
            return Err(Error::Short { needed, remaining: reader.remaining() });
        }
        let start = reader.rest();
        for _ in 0..count {
            T::decode(reader)?;
        }
        let taken = start.len().saturating_sub(reader.remaining());
        let bytes = start.get(..taken).unwrap_or_default();
        Ok(Self(Content::Received { count, bytes, items: PhantomData }))
    }

    /// # Panics
    /// If there are 2³² items or more, which no caller has.
    fn encode(&self, writer: &mut Writer<'_>) {
        writer.u32(u32::try_from(self.len()).expect("an array within 32 bits"));
        match self.0 {
            Content::Received { .. } => self.iter().for_each(|item| item.encode(writer)),
            Content::Items(items) => items.iter().for_each(|item| item.encode(writer)),
        }
    }
}

/// Compares items, not bytes, because the content of padding does not matter.
impl<'a, T: Wire<'a> + Copy + PartialEq> PartialEq for Array<'a, T> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl<'a, T: Wire<'a> + Copy + Eq> Eq for Array<'a, T> {}

impl<'a, T: Wire<'a> + Copy + fmt::Debug> fmt::Debug for Array<'a, T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.iter()).finish()
    }
}

impl<'a, T: Wire<'a> + Copy> IntoIterator for Array<'a, T> {
    type Item = T;
    type IntoIter = ArrayIter<'a, T>;

    fn into_iter(self) -> ArrayIter<'a, T> {
        self.iter()
    }
}

/// The items of an [`Array`].
pub struct ArrayIter<'a, T>(Source<'a, T>);

enum Source<'a, T> {
    Received { reader: Reader<'a>, items: PhantomData<fn() -> T> },
    Items(std::slice::Iter<'a, T>),
}

impl<'a, T: Wire<'a> + Copy> Iterator for ArrayIter<'a, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        match &mut self.0 {
            // Every item was decoded once when the array was read, so an error here can only mean
            // the end of the array.
            Source::Received { reader, .. } => T::decode(reader).ok(),
            Source::Items(items) => items.next().copied(),
        }
    }
}

/// Opaque data of at most `MAX` bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Opaque<'a, const MAX: u32>(&'a [u8]);

impl<'a, const MAX: u32> Opaque<'a, MAX> {
    /// Borrows the data; `None` if they are longer than `MAX`.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Option<Self> {
        u32::try_from(bytes.len()).is_ok_and(|len| len <= MAX).then_some(Self(bytes))
    }

    /// The data.
    #[must_use]
    pub const fn as_slice(&self) -> &'a [u8] {
        self.0
    }
}

impl<'a, const MAX: u32> Wire<'a> for Opaque<'a, MAX> {
    #[inline]
    fn decode(reader: &mut Reader<'a>) -> Result<Self> {
        reader.opaque(MAX).map(Self)
    }

    #[inline]
    fn encode(&self, writer: &mut Writer<'_>) {
        writer.opaque(self.0);
    }
}

impl<const MAX: u32> fmt::Debug for Opaque<'_, MAX> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "\"{}\"", self.0.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_beyond_the_message_is_refused_before_any_item_is_read() {
        let error = Array::<u32>::decode(&mut Reader::new(&[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1]));
        assert_eq!(error, Err(Error::Short { needed: 4 * 0xffff_ffff, remaining: 4 }));
    }

    #[test]
    fn an_array_to_send_and_the_same_array_received_are_equal() {
        let items: [&[u8]; 3] = [b"a", b"", b"bcde"];
        let array = Array::from(&items);
        let mut out = Vec::new();
        array.encode(&mut Writer::new(&mut out));
        let mut reader = Reader::new(&out);
        let received = Array::<&[u8]>::decode(&mut reader).unwrap();
        assert_eq!((received, received.len()), (array, 3));
        assert_eq!(reader.remaining(), 0);
    }

    #[test]
    fn opaque_data_keep_to_their_bound() {
        assert!(Opaque::<4>::new(b"1234").is_some());
        assert_eq!(Opaque::<4>::new(b"12345"), None);
        let error = Opaque::<4>::decode(&mut Reader::new(&[0, 0, 0, 5]));
        assert_eq!(error, Err(Error::TooLong { len: 5, max: 4 }));
    }
}
