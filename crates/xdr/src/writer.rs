//! Appends XDR to a buffer.

use crate::padding;

/// Appends XDR to a buffer that the caller owns and reuses, so that a warm writer allocates
/// nothing.
#[derive(Debug)]
pub struct Writer<'a> {
    out: &'a mut Vec<u8>,
}

impl<'a> Writer<'a> {
    /// Appends after the present content of `out`.
    pub const fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out }
    }

    /// The length of the buffer, including its earlier content.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.out.len()
    }

    /// Whether the buffer is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    /// An unsigned integer. RFC 4506 s4.2
    #[inline]
    pub fn u32(&mut self, value: u32) {
        self.out.extend_from_slice(&value.to_be_bytes());
    }

    /// An unsigned hyper integer. RFC 4506 s4.5
    #[inline]
    pub fn u64(&mut self, value: u64) {
        self.out.extend_from_slice(&value.to_be_bytes());
    }

    /// Overwrites the unsigned integer at `at` in the buffer, such as a length or a count that is
    /// known only now. Does nothing if the buffer ends before it.
    #[inline]
    pub fn set_u32(&mut self, at: usize, value: u32) {
        if let Some(word) = self.out.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
            *word = value.to_be_bytes();
        }
    }

    /// Removes everything after the first `len` bytes of the buffer.
    #[inline]
    pub fn truncate(&mut self, len: usize) {
        self.out.truncate(len);
    }

    /// A boolean. RFC 4506 s4.4
    #[inline]
    pub fn bool(&mut self, value: bool) {
        self.u32(u32::from(value));
    }

    /// Bytes as they are, without length or padding.
    #[inline]
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// The zero bytes that follow `len` bytes of opaque data. RFC 4506 s4.9
    #[inline]
    pub fn pad(&mut self, len: usize) {
        const ZEROS: [u8; 3] = [0; 3];
        self.out.extend_from_slice(ZEROS.get(..padding(len)).unwrap_or_default());
    }

    /// Fixed-length opaque data. RFC 4506 s4.9
    #[inline]
    pub fn opaque_fixed(&mut self, bytes: &[u8]) {
        self.bytes(bytes);
        self.pad(bytes.len());
    }

    /// Variable-length opaque data or a string. RFC 4506 s4.10
    ///
    /// # Panics
    /// If `bytes` is longer than 4 GiB, which no caller passes.
    #[inline]
    pub fn opaque(&mut self, bytes: &[u8]) {
        self.u32(u32::try_from(bytes.len()).expect("opaque data within 4 GiB"));
        self.opaque_fixed(bytes);
    }

    /// Optional data. RFC 4506 s4.19
    #[inline]
    pub fn optional<T>(&mut self, value: Option<T>, item: impl FnOnce(&mut Self, T)) {
        self.bool(value.is_some());
        if let Some(value) = value {
            item(self, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Reader;
    use proptest::prelude::*;

    #[test]
    fn opaque_is_length_bytes_and_zero_padding() {
        let mut out = Vec::new();
        Writer::new(&mut out).opaque(b"abcde");
        assert_eq!(out, [0, 0, 0, 5, b'a', b'b', b'c', b'd', b'e', 0, 0, 0]);
    }

    #[test]
    fn a_word_is_overwritten_where_it_is() {
        let mut out = vec![9];
        let mut writer = Writer::new(&mut out);
        writer.u64(u64::MAX);
        writer.set_u32(1, 7);
        writer.set_u32(6, 8);
        writer.truncate(8);
        assert_eq!(out, [9, 0, 0, 0, 7, 255, 255, 255]);
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(
            number in any::<u64>(), flag in any::<bool>(), data in proptest::collection::vec(any::<u8>(), 0..70),
            maybe in any::<Option<u32>>(),
        ) {
            let mut out = Vec::new();
            let mut writer = Writer::new(&mut out);
            writer.u64(number);
            writer.bool(flag);
            writer.opaque(&data);
            writer.optional(maybe, |writer, value| writer.u32(value));
            prop_assert_eq!(out.len() % crate::UNIT_BYTES, 0);
            let mut reader = Reader::new(&out);
            prop_assert_eq!(reader.u64(), Ok(number));
            prop_assert_eq!(reader.bool(), Ok(flag));
            prop_assert_eq!(reader.opaque(70), Ok(&data[..]));
            prop_assert_eq!(reader.optional(Reader::u32), Ok(maybe));
            prop_assert_eq!(reader.finish(), Ok(()));
        }
    }
}
