//! Payload that a device reads and writes where its owner keeps it, on a server.

use memory::{Piece, Registered};
use rpcrdma::header::Segment;
use rpcrdma::server::{Piece as Placed, Source as From};
use smallvec::SmallVec;

/// The pieces of a payload, in order.
pub type Pieces<'a> = SmallVec<[Piece<'a>; 4]>;

/// The memory of a piece of a reply.
pub(super) fn memory_of<'a>(placed: &Placed, message: &'a [u8], payload: &[Piece<'a>]) -> Pieces<'a> {
    let (mut skip, mut left) = (to_usize(placed.start), to_usize(placed.to.length));
    let mut out = Pieces::new();
    let mut take = |piece: &Piece<'a>| {
        let part = piece.part(skip, left);
        skip -= skip.min(piece.bytes.len());
        left -= part.bytes.len();
        if !part.bytes.is_empty() {
            out.push(part);
        }
    };
    match placed.source {
        From::Message => take(&Piece::unregistered(message)),
        From::Payload => payload.iter().for_each(take),
        From::Padding => take(&Piece::unregistered(&[0; 4])),
    }
    out
}

/// How many bytes of these pieces a device cannot read by itself.
pub(super) fn unregistered_bytes(pieces: &[Piece<'_>]) -> usize {
    pieces.iter().filter(|piece| piece.registered.is_none()).map(|piece| piece.bytes.len()).sum()
}

/// What to read from where: each part of the memory lies in one segment of the chunk. The padding
/// that a chunk may end with is not read.
pub(super) fn overlaps(chunk: &[Segment], memory: &[Registered]) -> SmallVec<[(Segment, Registered); 4]> {
    let mut out = SmallVec::new();
    let mut segments = chunk.iter().copied().filter(|segment| segment.length > 0);
    let mut from = segments.next();
    for part in memory {
        let mut to = *part;
        while let (Some(segment), true) = (&mut from, to.bytes > 0) {
            let count = to.bytes.min(to_usize(segment.length));
            let length = u32::try_from(count).unwrap_or(u32::MAX);
            out.push((Segment { length, ..*segment }, to.part(0, count)));
            to = to.part(count, to.bytes - count);
            segment.offset = segment.offset.wrapping_add(count as u64);
            segment.length -= length;
            if segment.length == 0 {
                from = segments.next();
            }
        }
    }
    out
}

fn to_usize(bytes: u32) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(source: From, start: u32, length: u32) -> Placed {
        Placed { source, start, to: Segment { handle: 1, length, offset: 0 } }
    }

    #[test]
    fn a_piece_of_a_reply_is_found_in_the_pieces_of_its_payload() {
        let registered = Some(Registered { start: 5000, bytes: 4, key: 9 });
        let payload =
            [Piece::unregistered(b"abc"), Piece { bytes: b"defg", registered }, Piece::unregistered(b"h")];
        let found = memory_of(&placed(From::Payload, 2, 4), b"", &payload);
        let bytes: Vec<&[u8]> = found.iter().map(|piece| piece.bytes).collect();
        assert_eq!(bytes, [&b"c"[..], b"def"]);
        assert_eq!(found[1].registered, Some(Registered { start: 5000, bytes: 3, key: 9 }));
        assert_eq!(unregistered_bytes(&found), 1);
        let found = memory_of(&placed(From::Payload, 4, 4), b"", &payload);
        let bytes: Vec<&[u8]> = found.iter().map(|piece| piece.bytes).collect();
        assert_eq!(bytes, [&b"efg"[..], b"h"]);
        assert_eq!(found[0].registered.unwrap().start, 5001);
        assert_eq!(memory_of(&placed(From::Message, 1, 2), b"head", &payload)[0].bytes, b"ea");
        assert_eq!(memory_of(&placed(From::Padding, 0, 3), b"head", &payload)[0].bytes, [0; 3]);
    }

    #[test]
    fn memory_is_read_from_the_segments_of_a_chunk_in_order_and_without_its_padding() {
        let segment = |handle, length| Segment { handle, length, offset: 1000 };
        let chunk = [segment(1, 10), segment(2, 0), segment(3, 7)];
        let part = |start, bytes| Registered { start, bytes, key: 5 };
        let reads = overlaps(&chunk, &[part(0, 4), part(100, 8), part(200, 3)]);
        let seen: Vec<_> = reads
            .iter()
            .map(|(from, to)| (from.handle, from.offset, from.length, to.start, to.bytes))
            .collect();
        assert_eq!(
            seen,
            [(1, 1000, 4, 0, 4), (1, 1004, 6, 100, 6), (3, 1000, 2, 106, 2), (3, 1002, 3, 200, 3),]
        );
    }
}
