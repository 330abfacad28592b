//! How bytes are distributed over the segments of a chunk.

use crate::header::{Chunk, Segment, bytes_of};
use crate::server::{Piece, Source};

/// The chunk with the lengths that this many bytes use: filled from the front, and 0 for unused
/// segments. `None` if the bytes do not all fit: a partial result is never sent. RFC 8166 s3.4.6,
/// s4.3.2
pub(crate) fn fill(chunk: &[Segment], bytes: u64) -> Option<Chunk> {
    let mut left = bytes;
    let filled = chunk.iter().map(|segment| {
        let length = u32::try_from(left).unwrap_or(u32::MAX).min(segment.length);
        left -= u64::from(length);
        Segment { length, ..*segment }
    });
    let filled = filled.collect();
    (left == 0).then_some(filled)
}

/// The pieces to copy: the sources, one after the other, into the filled segments.
pub(crate) fn pieces(filled: &[Segment], sources: &[(Source, u32)]) -> Vec<Piece> {
    let mut sources = sources.iter().copied().filter(|(_, bytes)| *bytes > 0);
    let mut pieces = Vec::new();
    let mut from = sources.next().map(|(source, bytes)| (source, 0, bytes));
    for segment in filled {
        let mut used = 0;
        while let (Some((source, start, left)), true) = (from, used < segment.length) {
            let length = left.min(segment.length - used);
            let to = Segment {
                handle: segment.handle,
                length,
                offset: segment.offset.wrapping_add(u64::from(used)),
            };
            pieces.push(Piece { source, start, to });
            used += length;
            from = if length < left {
                Some((source, start + length, left - length))
            } else {
                sources.next().map(|(source, bytes)| (source, 0, bytes))
            };
        }
    }
    pieces
}

/// Checks a peer's statement about a chunk: the same segments, none longer than offered, and
/// nothing after one that is not full. Returns the number of bytes in the chunk, or `None` if the
/// statement is impossible.
pub(crate) fn used(offered: &[Segment], answered: &[Segment]) -> Option<u64> {
    let (mut whole, mut same) = (true, offered.len() == answered.len());
    for (ours, theirs) in offered.iter().zip(answered) {
        same &= (ours.handle, ours.offset) == (theirs.handle, theirs.offset) && theirs.length <= ours.length;
        same &= whole || theirs.length == 0;
        whole &= theirs.length == ours.length;
    }
    same.then(|| bytes_of(answered))
}

/// Whether a chunk of this many bytes holds an argument whose length is in the message: all of it,
/// with or without padding to a multiple of four. RFC 8166 s3.4.5.2
#[must_use]
pub const fn holds(chunk_bytes: u32, argument_bytes: u32) -> bool {
    let padding = argument_bytes.wrapping_neg() % 4;
    chunk_bytes == argument_bytes || chunk_bytes == argument_bytes.saturating_add(padding)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(lengths: &[u32]) -> Chunk {
        let segment = |(at, length): (u32, &u32)| Segment { handle: at, length: *length, offset: 1000 };
        (1..).zip(lengths).map(segment).collect()
    }

    fn lengths(chunk: &[Segment]) -> Vec<u32> {
        chunk.iter().map(|segment| segment.length).collect()
    }

    // RFC 8166 s3.4.6
    #[test]
    fn segments_are_filled_from_the_front_and_the_rest_is_0() {
        let offered = chunk(&[10, 10, 10]);
        assert_eq!(lengths(&fill(&offered, 13).expect("room")), [10, 3, 0]);
        assert_eq!(lengths(&fill(&offered, 0).expect("room")), [0, 0, 0]);
        assert_eq!(lengths(&fill(&offered, 30).expect("room")), [10, 10, 10]);
        assert_eq!(fill(&offered, 31), None, "never a part");
    }

    #[test]
    fn several_sources_follow_each_other_across_segments() {
        let filled = chunk(&[4, 6]);
        let laid = pieces(&filled, &[(Source::Message, 7), (Source::Payload, 0), (Source::Padding, 3)]);
        let seen: Vec<_> = laid
            .iter()
            .map(|piece| (piece.source, piece.start, piece.to.handle, piece.to.offset, piece.to.length))
            .collect();
        assert_eq!(
            seen,
            [
                (Source::Message, 0, 1, 1000, 4),
                (Source::Message, 4, 2, 1000, 3),
                (Source::Padding, 0, 2, 1003, 3)
            ]
        );
    }

    #[test]
    fn an_answer_that_cannot_be_true_is_refused() {
        let offered = chunk(&[10, 10]);
        assert_eq!(used(&offered, &chunk(&[10, 3])), Some(13));
        assert_eq!(used(&offered, &chunk(&[0, 0])), Some(0));
        assert_eq!(used(&offered, &chunk(&[10, 11])), None, "more than was offered");
        assert_eq!(used(&offered, &chunk(&[9, 1])), None, "a hole");
        assert_eq!(used(&offered, &chunk(&[10])), None, "a segment is missing");
        let mut other = chunk(&[10, 0]);
        other.iter_mut().for_each(|segment| segment.handle += 7);
        assert_eq!(used(&offered, &other), None, "another's memory");
    }

    // RFC 8166 s3.4.5.2
    #[test]
    fn the_padding_of_a_chunk_is_there_or_not() {
        assert!(holds(5, 5) && holds(8, 5) && holds(8, 8) && holds(0, 0));
        assert!(!holds(6, 5) && !holds(4, 5) && !holds(12, 8));
        assert!(!holds(0, u32::MAX));
    }
}
