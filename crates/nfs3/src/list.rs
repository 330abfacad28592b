//! XDR's linked lists (RFC 4506 s4.19): a boolean before each item, and false at the end.
//!
//! A received list is checked once, item by item, and then kept as the bytes that encode it. So a
//! list of any length is read without an allocation.

use crate::Wire;
use std::fmt;
use std::marker::PhantomData;
use xdr::{Reader, Result, Writer};

/// A received list whose items have been checked. Its size is bounded by the message that it
/// borrows from.
pub struct List<'a, T> {
    bytes: &'a [u8],
    items: PhantomData<fn() -> T>,
}

impl<'a, T: Wire<'a>> List<'a, T> {
    /// The items, in order.
    #[must_use]
    pub const fn iter(&self) -> ListIter<'a, T> {
        ListIter { reader: Reader::new(self.bytes), items: PhantomData }
    }

    /// Whether the list has no items.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// Writes a list of `items`.
    pub fn encode_items(items: impl IntoIterator<Item = T>, writer: &mut Writer<'_>) {
        for item in items {
            writer.bool(true);
            item.encode(writer);
        }
        writer.bool(false);
    }
}

impl<'a, T: Wire<'a>> Wire<'a> for List<'a, T> {
    fn decode(reader: &mut Reader<'a>) -> Result<Self> {
        let start = reader.rest();
        while reader.bool()? {
            T::decode(reader)?;
        }
        let taken = start.len().saturating_sub(reader.remaining());
        Ok(Self { bytes: start.get(..taken).unwrap_or_default(), items: PhantomData })
    }

    fn encode(&self, writer: &mut Writer<'_>) {
        Self::encode_items(self.iter(), writer);
    }
}

impl<T> Clone for List<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for List<'_, T> {}

/// A list without items.
impl<T> Default for List<'_, T> {
    fn default() -> Self {
        Self { bytes: &[], items: PhantomData }
    }
}

/// Compares items, not bytes, because the content of padding does not matter.
impl<'a, T: Wire<'a> + PartialEq> PartialEq for List<'a, T> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl<'a, T: Wire<'a> + Eq> Eq for List<'a, T> {}

impl<'a, T: Wire<'a> + fmt::Debug> fmt::Debug for List<'a, T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.iter()).finish()
    }
}

impl<'a, T: Wire<'a>> IntoIterator for List<'a, T> {
    type Item = T;
    type IntoIter = ListIter<'a, T>;

    fn into_iter(self) -> ListIter<'a, T> {
        self.iter()
    }
}

/// The items of a [`List`].
pub struct ListIter<'a, T> {
    reader: Reader<'a>,
    items: PhantomData<fn() -> T>,
}

impl<'a, T: Wire<'a>> Iterator for ListIter<'a, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        // Every item was decoded once when the list was read, so an error here can only mean the
        // end of the list.
        match self.reader.bool() {
            Ok(true) => T::decode(&mut self.reader).ok(),
            _ => None,
        }
    }
}
