//! The parameters that two ends exchange while they connect: the size of messages, and whether a
//! reply may invalidate a registration. RFC 8797.

/// Maximum size of a message in each direction if the peer says nothing. RFC 8166 s3.3.2
pub const INLINE_BYTES_DEFAULT: u32 = 1024;

/// The size that both ends of the Linux kernel use, and that Trunkline uses.
pub const INLINE_BYTES_USUAL: u32 = 4096;

/// The largest size that the format can express.
pub const INLINE_BYTES_MAX: u32 = 256 * 1024;

/// The length of the format. RFC 8797 s4
pub const PRIVATE_DATA_BYTES: usize = 8;

/// The magic number at the start of the private data. RFC 8797 s4
const MAGIC: [u8; 4] = 0xf6ab_0e18_u32.to_be_bytes();

/// The version of the format. RFC 8797 s4
const FORMAT: u8 = 1;

/// The only flag: the sender allows replies to invalidate registrations. RFC 8797 s4
const INVALIDATION: u8 = 1;

/// The parameters of one end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    /// The largest message that the end will send, in bytes.
    pub send_bytes: u32,
    /// The largest message that the end can receive, in bytes.
    pub receive_bytes: u32,
    /// Whether replies to this end may invalidate one of its registrations. Trunkline never offers
    /// this, because a server may choose any key of a call, and some are of plain registrations:
    /// invalidating one would break the queue pair.
    pub invalidation: bool,
}

impl Default for Offer {
    fn default() -> Self {
        Self { send_bytes: INLINE_BYTES_USUAL, receive_bytes: INLINE_BYTES_USUAL, invalidation: false }
    }
}

/// The parameters assumed for an end that says nothing. RFC 8797 s3
pub const SILENCE: Offer =
    Offer { send_bytes: INLINE_BYTES_DEFAULT, receive_bytes: INLINE_BYTES_DEFAULT, invalidation: false };

/// The parameters supported by both ends, as seen by one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Agreed {
    /// The largest message that this end may send, in bytes.
    pub send_bytes: u32,
    /// The largest message received, in bytes; receives are posted with this size.
    pub receive_bytes: u32,
    /// Whether this end's replies may invalidate a registration of the peer.
    pub may_invalidate: bool,
}

impl Offer {
    /// Encodes the private data of the connection request or of its acceptance.
    #[must_use]
    pub fn encode(&self) -> [u8; PRIVATE_DATA_BYTES] {
        let [a, b, c, d] = MAGIC;
        [a, b, c, d, FORMAT, u8::from(self.invalidation), units(self.send_bytes), units(self.receive_bytes)]
    }

    /// Decodes a peer's private data; any other format counts as no offer. Connection managers pad
    /// private data, and later formats may be longer.
    #[must_use]
    pub fn decode(private_data: &[u8]) -> Self {
        match private_data {
            [a, b, c, d, FORMAT, flags, send, receive, ..] if [*a, *b, *c, *d] == MAGIC => Self {
                send_bytes: bytes(*send),
                receive_bytes: bytes(*receive),
                invalidation: flags & INVALIDATION != 0,
            },
            _ => SILENCE,
        }
    }

    /// Combines this offer with the peer's: in each direction the smaller of the sender's and the
    /// receiver's size.
    #[must_use]
    pub fn agree(&self, peer: &Self) -> Agreed {
        Agreed {
            send_bytes: self.send_bytes.min(peer.receive_bytes),
            receive_bytes: self.receive_bytes.min(peer.send_bytes).max(INLINE_BYTES_DEFAULT),
            may_invalidate: peer.invalidation,
        }
    }
}

/// Sizes are encoded in KiB, minus one. RFC 8797 s4
fn units(bytes: u32) -> u8 {
    let bytes = bytes.clamp(INLINE_BYTES_DEFAULT, INLINE_BYTES_MAX);
    u8::try_from(bytes / 1024 - 1).unwrap_or(u8::MAX)
}

fn bytes(units: u8) -> u32 {
    (u32::from(units) + 1) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 8797 s4
    #[test]
    fn an_offer_is_read_as_it_was_written_and_as_linux_writes_it() {
        for bytes in [1024, 4096, 65536, INLINE_BYTES_MAX] {
            for invalidation in [false, true] {
                let offer = Offer { send_bytes: bytes, receive_bytes: 4096, invalidation };
                assert_eq!(Offer::decode(&offer.encode()), offer);
            }
        }
        assert_eq!(Offer::default().encode(), [0xf6, 0xab, 0x0e, 0x18, 1, 0, 3, 3]);
    }

    // RFC 8797 s3
    #[test]
    fn what_is_no_offer_is_silence_and_padding_is_no_harm() {
        for other in [&[][..], &[0; 56], &[0xf6, 0xab, 0x0e, 0x18, 2, 0, 3, 3], &[0xf6, 0xab, 0x0e]] {
            assert_eq!(Offer::decode(other), SILENCE);
        }
        let mut padded = [0; 56];
        padded[..8].copy_from_slice(&Offer::default().encode());
        assert_eq!(Offer::decode(&padded), Offer::default());
    }

    // RFC 8166 s3.3.2
    #[test]
    fn each_direction_has_the_smaller_of_both_words() {
        let small = Offer { send_bytes: 2048, receive_bytes: 1024, invalidation: true };
        let large = Offer { send_bytes: 8192, receive_bytes: 4096, invalidation: false };
        let agreed = large.agree(&small);
        assert_eq!((agreed.send_bytes, agreed.receive_bytes), (1024, 2048));
        assert!(agreed.may_invalidate && !small.agree(&large).may_invalidate);
        assert_eq!(large.agree(&SILENCE).send_bytes, INLINE_BYTES_DEFAULT);
    }
}
