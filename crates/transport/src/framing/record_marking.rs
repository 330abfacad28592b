//! Record marking, RFC 5531 s11, with payload padded as XDR has it (RFC 4506 s4.10).

use rpc::record_marking::{Assembler, MARK_BYTES, Mark, RecordError};

use super::{Assemble, Frame, Framing, FramingError, Trailer};

/// The number of a call or reply, at the beginning of its record. RFC 5531 s9
const NUMBER_BYTES: usize = 4;

/// RPC records over a stream: a mark of four bytes before each fragment.
#[derive(Debug)]
pub enum RecordMarking {}

impl From<RecordError> for FramingError {
    fn from(error: RecordError) -> Self {
        match error {
            RecordError::TooLong { bytes, max } => Self::TooLong { bytes, max },
            RecordError::TooManyFragments => Self::Malformed(error.to_string()),
        }
    }
}

impl Assemble for Assembler {
    fn feed(&mut self, bytes: &mut &[u8]) -> Result<Option<&[u8]>, FramingError> {
        Ok(Self::feed(self, bytes)?)
    }

    fn held_bytes(&self) -> usize {
        Self::held_bytes(self)
    }

    fn beginning(&self) -> &[u8] {
        Self::beginning(self)
    }
}

impl Framing for RecordMarking {
    /// XDR padding.
    const TAIL_BYTES_MAX: usize = 3;

    /// RPC does not depend on the order of records. RFC 5531 s4
    const MAY_OVERTAKE: bool = true;

    type Assembler = Assembler;

    #[inline]
    fn parse(bytes: &[u8], record_bytes_max: usize) -> Result<Option<Frame<Assembler>>, FramingError> {
        let Some(mark) = bytes.first_chunk::<MARK_BYTES>() else { return Ok(None) };
        let mark = Mark::decode(*mark);
        if !mark.last {
            return Ok(Some(Frame::Parts(Assembler::new(record_bytes_max))));
        }
        let len = mark.len as usize;
        if len > record_bytes_max {
            // The refusal names the call, by the number after the mark.
            if bytes.len() < MARK_BYTES + NUMBER_BYTES {
                return Ok(None);
            }
            return Err(FramingError::TooLong { bytes: len as u64, max: record_bytes_max });
        }
        Ok(Some(Frame::Whole { skip: MARK_BYTES, len }))
    }

    fn beginning(bytes: &[u8]) -> &[u8] {
        bytes.get(MARK_BYTES..).unwrap_or_default()
    }

    #[inline]
    fn begin(heads: &mut Vec<u8>) {
        heads.extend_from_slice(&[0; MARK_BYTES]);
    }

    #[inline]
    fn seal(heads: &mut Vec<u8>, start: usize, payload_len: usize) -> Trailer {
        let padding = payload_len.wrapping_neg() % 4;
        let len = heads.len() - start - MARK_BYTES + payload_len + padding;
        let mark = Mark { last: true, len: u32::try_from(len).unwrap_or(u32::MAX) };
        if let Some(place) = heads.get_mut(start..start + MARK_BYTES) {
            place.copy_from_slice(&mark.encode());
        }
        Trailer::zeroes(padding)
    }
}
