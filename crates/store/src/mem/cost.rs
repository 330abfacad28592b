//! What things take of the heap, so that the bound of a store counts what the process holds.

/// The allocator's word before each piece of memory.
const HEADER_BYTES: usize = 8;
/// The unit in which pieces are cut.
const UNIT_BYTES: usize = 16;
/// The smallest piece.
const PIECE_BYTES_MIN: usize = 32;

/// What a piece of `bytes` takes of the heap, as the C library of Linux cuts it. Other allocators
/// differ by a few bytes.
pub(super) const fn heap_bytes(bytes: usize) -> u64 {
    let piece = bytes.saturating_add(HEADER_BYTES).next_multiple_of(UNIT_BYTES);
    match bytes {
        0 => 0,
        _ if piece < PIECE_BYTES_MIN => PIECE_BYTES_MIN as u64,
        _ => piece as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_have_a_header_and_whole_units() {
        assert_eq!([0, 1, 24, 25, 40, 41, 120].map(heap_bytes), [0, 32, 32, 48, 48, 64, 128]);
    }
}
