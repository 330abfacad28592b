//! Record marking on byte streams, RFC 5531 s11.
//!
//! A record is one RPC message, cut into fragments that each carry a mark: their length and whether
//! they end the record. Almost every peer sends one fragment; a transport reads those in place with
//! [`Mark`] alone. [`Assembler`] is the slow path for the rest. It bounds the sum of the fragments
//! and their number before it takes a byte, and it grows with what arrived, never with what a mark
//! announces.

/// The bit of a mark that says that this fragment ends its record. RFC 5531 s11
pub const LAST: u32 = 0x8000_0000;

/// Bytes of a mark.
pub const MARK_BYTES: usize = 4;

/// The maximum number of fragments of a record. The XDR record streams of the C libraries cut at
/// 4,000 to 9,000 bytes, so a WRITE of 1 MiB may have 263 fragments and one of 4 MiB 1,049. A
/// record of more fragments is refused as a flood.
pub const FRAGMENTS_MAX: u32 = 1_200;

/// The head of a fragment. RFC 5531 s11
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// Whether the fragment ends its record.
    pub last: bool,
    /// Bytes of the fragment, at most 2^31 - 1.
    pub len: u32,
}

impl Mark {
    /// The mark of a record that is one fragment of `len` bytes; `None` above 2^31 - 1.
    #[must_use]
    pub fn whole(len: usize) -> Option<Self> {
        u32::try_from(len).ok().filter(|len| len & LAST == 0).map(|len| Self { last: true, len })
    }

    /// Decodes a mark. Any four bytes are a valid mark.
    #[inline]
    #[must_use]
    pub const fn decode(bytes: [u8; MARK_BYTES]) -> Self {
        let word = u32::from_be_bytes(bytes);
        Self { last: word & LAST != 0, len: word & !LAST }
    }

    /// Encodes the mark. The top bit of `len` is not part of a length and is ignored.
    #[inline]
    #[must_use]
    pub const fn encode(self) -> [u8; MARK_BYTES] {
        let last = if self.last { LAST } else { 0 };
        (last | self.len & !LAST).to_be_bytes()
    }
}

/// Why a stream of fragments is refused. Always the sender's fault, and the stream cannot be
/// resumed: what follows is not known to be a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The fragments of one record sum up to more than the bound.
    #[error("record of at least {bytes} bytes, the bound is {max}")]
    TooLong {
        /// The total announced so far.
        bytes: u64,
        /// The bound.
        max: usize,
    },
    /// One record has too many fragments.
    #[error("record of more than {FRAGMENTS_MAX} fragments")]
    TooManyFragments,
}

/// Puts records together from fragments.
#[derive(Debug)]
pub struct Assembler {
    record: Vec<u8>,
    record_bytes_max: usize,
    fragments: u32,
    mark: [u8; MARK_BYTES],
    mark_bytes: usize,
    fragment_left: usize,
    last: bool,
    /// The record was returned; the next byte starts a new one.
    complete: bool,
}

impl Assembler {
    /// Refuses records above `record_bytes_max`. Allocates nothing yet.
    #[must_use]
    pub const fn new(record_bytes_max: usize) -> Self {
        Self {
            record: Vec::new(),
            record_bytes_max,
            fragments: 0,
            mark: [0; MARK_BYTES],
            mark_bytes: 0,
            fragment_left: 0,
            last: false,
            complete: false,
        }
    }

    /// Starts a fragment, for a transport that reads marks itself; [`push`](Self::push) its bytes
    /// next.
    ///
    /// # Errors
    /// [`RecordError`] when the record would be too long or has too many fragments: checked before
    /// its bytes are looked at.
    pub fn admit(&mut self, mark: Mark) -> Result<(), RecordError> {
        self.restart_after_a_record();
        let bytes = self.record.len() as u64 + u64::from(mark.len);
        if bytes > self.record_bytes_max as u64 {
            return Err(RecordError::TooLong { bytes, max: self.record_bytes_max });
        }
        // Empty fragments count too; otherwise an endless series of them would be accepted.
        self.fragments += 1;
        if self.fragments > FRAGMENTS_MAX {
            return Err(RecordError::TooManyFragments);
        }
        self.fragment_left = mark.len as usize;
        self.last = mark.last;
        Ok(())
    }

    /// Appends bytes of the fragment that was admitted last. Returns how many bytes were taken:
    /// fewer than given if the fragment ends before the bytes do.
    pub fn push(&mut self, bytes: &[u8]) -> usize {
        let taken = bytes.get(..self.fragment_left).unwrap_or(bytes);
        let room = self.record.capacity() - self.record.len();
        if room < taken.len() {
            // Doubling, as `Vec` would, but never beyond the bound.
            let wanted = (self.record.len() + taken.len()).max(2 * self.record.capacity());
            let wanted = wanted.min(self.record_bytes_max).max(self.record.len() + taken.len());
            self.record.reserve_exact(wanted - self.record.len());
        }
        self.record.extend_from_slice(taken);
        self.fragment_left -= taken.len();
        taken.len()
    }

    /// The record, once its last fragment is complete. The next [`admit`](Self::admit) or
    /// [`feed`](Self::feed) starts another record.
    pub fn record(&mut self) -> Option<&[u8]> {
        if self.complete || (self.fragments > 0 && self.last && self.fragment_left == 0) {
            self.complete = true;
            return Some(&self.record);
        }
        None
    }

    /// Reads marks and fragments from `stream` until a record is complete or `stream` is empty, and
    /// advances `stream` past the bytes taken.
    ///
    /// # Errors
    /// [`RecordError`]; the stream cannot be read any further.
    pub fn feed(&mut self, stream: &mut &[u8]) -> Result<Option<&[u8]>, RecordError> {
        self.restart_after_a_record();
        while let Some((&first, rest)) = stream.split_first() {
            if self.fragment_left == 0 {
                if let Some(place) = self.mark.get_mut(self.mark_bytes) {
                    *place = first;
                }
                self.mark_bytes += 1;
                *stream = rest;
                if self.mark_bytes < MARK_BYTES {
                    continue;
                }
                self.mark_bytes = 0;
                self.admit(Mark::decode(self.mark))?;
            } else {
                let taken = self.push(stream);
                *stream = stream.get(taken..).unwrap_or_default();
            }
            if self.last && self.fragment_left == 0 {
                break;
            }
        }
        // A mark that was read in part begins another fragment of the record, so the record is not
        // complete.
        if self.mark_bytes > 0 { Ok(None) } else { Ok(self.record()) }
    }

    /// Bytes of memory held for the record.
    #[must_use]
    pub const fn held_bytes(&self) -> usize {
        self.record.capacity()
    }

    /// What was received of the record.
    #[must_use]
    pub fn beginning(&self) -> &[u8] {
        &self.record
    }

    /// Frees the memory of a finished record, so that an idle connection holds none.
    pub fn release(&mut self) {
        if self.complete || self.record.is_empty() {
            self.record = Vec::new();
            if self.complete {
                self.complete = false;
                self.fragments = 0;
                self.last = false;
            }
        }
    }

    fn restart_after_a_record(&mut self) {
        if self.complete {
            self.record.clear();
            self.fragments = 0;
            self.last = false;
            self.complete = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fragment(last: bool, bytes: &[u8]) -> Vec<u8> {
        let mark = Mark { last, len: u32::try_from(bytes.len()).unwrap() };
        [&mark.encode()[..], bytes].concat()
    }

    #[test]
    fn a_mark_is_the_last_bit_and_31_bits_of_length() {
        // RFC 5531 s11
        assert_eq!(Mark::decode([0x80, 0, 0, 5]), Mark { last: true, len: 5 });
        assert_eq!(Mark::decode([0x7f, 0xff, 0xff, 0xff]), Mark { last: false, len: 0x7fff_ffff });
        assert_eq!(Mark { last: true, len: 5 }.encode(), [0x80, 0, 0, 5]);
        assert_eq!(Mark::whole(0x8000_0000), None);
    }

    #[test]
    fn the_bound_holds_over_the_sum_of_fragments_and_before_memory_is_taken() {
        let mut assembler = Assembler::new(100);
        assembler.admit(Mark { last: false, len: 60 }).unwrap();
        assert_eq!(assembler.push(&[0; 60]), 60);
        let error = assembler.admit(Mark { last: true, len: 41 }).unwrap_err();
        assert_eq!(error, RecordError::TooLong { bytes: 101, max: 100 });
        assert!(assembler.held_bytes() <= 100);
    }

    #[test]
    fn an_announced_length_takes_no_memory() {
        let mut assembler = Assembler::new(1 << 30);
        assembler.admit(Mark { last: true, len: 1 << 30 }).unwrap();
        assembler.push(&[1, 2, 3]);
        assert!(assembler.held_bytes() < 64);
    }

    #[test]
    fn an_empty_last_fragment_ends_the_record() {
        let mut assembler = Assembler::new(100);
        let stream = [fragment(false, b"abc"), fragment(true, b"")].concat();
        assert_eq!(assembler.feed(&mut &stream[..]).unwrap(), Some(&b"abc"[..]));
    }

    #[test]
    fn released_memory_is_gone_and_the_next_record_starts_clean() {
        let mut assembler = Assembler::new(100);
        assert!(assembler.feed(&mut &fragment(true, b"abc")[..]).unwrap().is_some());
        assembler.release();
        assert_eq!(assembler.held_bytes(), 0);
        assert_eq!(assembler.feed(&mut &fragment(true, b"x")[..]).unwrap(), Some(&b"x"[..]));
    }

    proptest! {
        #[test]
        fn records_survive_any_cut_into_fragments_and_reads(
            records in proptest::collection::vec(
                proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..20), 1..6), 1..5),
            read_bytes in 1_usize..30,
        ) {
            let mut stream = Vec::new();
            for fragments in &records {
                for (i, bytes) in fragments.iter().enumerate() {
                    stream.extend(fragment(i + 1 == fragments.len(), bytes));
                }
            }
            let mut assembler = Assembler::new(200);
            let mut found = Vec::new();
            for mut piece in stream.chunks(read_bytes) {
                while !piece.is_empty() {
                    if let Some(record) = assembler.feed(&mut piece).unwrap() {
                        found.push(record.to_vec());
                    }
                }
            }
            let sent: Vec<Vec<u8>> = records.iter().map(|fragments| fragments.concat()).collect();
            prop_assert_eq!(found, sent);
        }
    }
}
