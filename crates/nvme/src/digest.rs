//! The digests of NVMe/TCP: CRC32C (Castagnoli) over a PDU's header and over its data, as RFC 3720
//! (iSCSI) has it. NVMe/TCP Transport, "Header Digest (HDGST)" and "Data Digest (DDGST)".
//!
//! The digest of data is computed by whoever holds the data, piece by piece, before they are
//! queued.

use crate::layout::Field;

/// The length of a digest in bytes.
pub const DIGEST_BYTES: usize = 4;

/// A digest that is being computed over pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Digest(u32);

impl Digest {
    /// The digest of no bytes.
    #[must_use]
    pub const fn new() -> Self {
        Self(0)
    }

    /// Takes the next piece.
    pub fn update(&mut self, piece: &[u8]) {
        self.0 = crc32c::crc32c_append(self.0, piece);
    }

    /// The bytes on the wire.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; DIGEST_BYTES] {
        self.0.to_le_bytes()
    }

    /// Whether the received digest is that of the pieces.
    #[must_use]
    pub fn matches(self, received: &[u8]) -> bool {
        received.len() == DIGEST_BYTES && u32::load(received) == self.0
    }
}

/// The digest of these bytes.
#[must_use]
pub fn of(bytes: &[u8]) -> Digest {
    let mut digest = Digest::new();
    digest.update(bytes);
    digest
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 3720 sB.4
    #[test]
    fn the_examples_of_iscsi() {
        let ascending: Vec<u8> = (0..32).collect();
        let examples: [(&[u8], [u8; 4]); 4] = [
            (&[0; 32], [0xaa, 0x36, 0x91, 0x8a]),
            (&[0xff; 32], [0x43, 0xab, 0xa8, 0x62]),
            (&ascending, [0x4e, 0x79, 0xdd, 0x46]),
            (b"123456789", [0x83, 0x92, 0x06, 0xe3]),
        ];
        for (bytes, expected) in examples {
            assert_eq!(of(bytes).to_bytes(), expected);
            assert!(of(bytes).matches(&expected));
        }
        assert!(!of(b"1").matches(&[]), "a missing digest matches nothing");
    }

    #[test]
    fn pieces_give_the_digest_of_the_whole() {
        let mut digest = Digest::new();
        digest.update(b"1234");
        digest.update(b"");
        digest.update(b"56789");
        assert_eq!(digest, of(b"123456789"));
    }
}
