//! SGL descriptors: where the data of a command are. NVMe Base, "Scatter Gather List (SGL)"; NVMe
//! over Fabrics, "Keyed SGL Data Block Descriptor", "Transport SGL Data Block Descriptor".
//!
//! Over fabrics a command has one descriptor: data in the capsule, data that the transport moves
//! with requests of its own (TCP), or memory with a key (RDMA).

use crate::layout::{Field, load, store};

/// Where the data of a command are. 16 bytes on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sgl {
    /// In the capsule, this many bytes after ICDOFF (type 0h, subtype 1h).
    InCapsule {
        /// The first byte.
        offset: u64,
        /// The length in bytes.
        length: u32,
    },
    /// Moved by the transport (type 5h, subtype Ah).
    Transport {
        /// The length in bytes.
        length: u32,
    },
    /// Memory of the host that is registered under a key (type 4h).
    Keyed {
        /// The address as the host's device counts.
        address: u64,
        /// The length in bytes, below 2^24.
        length: u32,
        /// The key.
        key: u32,
        /// The response is to invalidate the key (subtype Fh).
        invalidate: bool,
    },
    /// Any other descriptor, as its bytes.
    Other([u8; 16]),
}

const DATA_BLOCK: u8 = 0x0;
const KEYED: u8 = 0x4;
const TRANSPORT: u8 = 0x5;

const ADDRESS: u8 = 0x0;
const OFFSET: u8 = 0x1;
const TRANSPORT_A: u8 = 0xa;
const INVALIDATE: u8 = 0xf;

/// The largest length of a keyed descriptor plus one.
pub const KEYED_LENGTH_END: u32 = 1 << 24;

impl Sgl {
    /// No data.
    pub const NONE: Self = Self::Other([0; 16]);

    /// How many bytes the descriptor describes; `None` if it is of a type not supported here. No
    /// data is a descriptor of zeroes.
    #[must_use]
    pub const fn length(&self) -> Option<u32> {
        match self {
            Self::InCapsule { length, .. } | Self::Transport { length } | Self::Keyed { length, .. } => {
                Some(*length)
            }
            // A data block of no bytes, wherever it is.
            Self::Other([_, _, _, _, _, _, _, _, 0, 0, 0, 0, _, _, _, 0]) => Some(0),
            Self::Other(_) => None,
        }
    }
}

impl Field for Sgl {
    const BYTES: usize = 16;
    const ZERO: Self = Self::NONE;

    fn load(bytes: &[u8]) -> Self {
        let kind: u8 = load(bytes, 15);
        match (kind >> 4, kind & 0xf) {
            (DATA_BLOCK, OFFSET) => Self::InCapsule { offset: load(bytes, 0), length: load(bytes, 8) },
            (TRANSPORT, TRANSPORT_A) => Self::Transport { length: load(bytes, 8) },
            (KEYED, subtype @ (ADDRESS | INVALIDATE)) => Self::Keyed {
                address: load(bytes, 0),
                length: load::<u32>(bytes, 8) % KEYED_LENGTH_END,
                key: load(bytes, 11),
                invalidate: subtype == INVALIDATE,
            },
            _ => Self::Other(load(bytes, 0)),
        }
    }

    fn store(&self, bytes: &mut [u8]) {
        bytes.fill(0);
        match self {
            Self::InCapsule { offset, length } => {
                store(offset, bytes, 0);
                store(length, bytes, 8);
                store(&(DATA_BLOCK << 4 | OFFSET), bytes, 15);
            }
            Self::Transport { length } => {
                store(length, bytes, 8);
                store(&(TRANSPORT << 4 | TRANSPORT_A), bytes, 15);
            }
            Self::Keyed { address, length, key, invalidate } => {
                store(address, bytes, 0);
                store(&(length % KEYED_LENGTH_END), bytes, 8);
                store(key, bytes, 11);
                let subtype = if *invalidate { INVALIDATE } else { ADDRESS };
                store(&(KEYED << 4 | subtype), bytes, 15);
            }
            Self::Other(other) => store(other, bytes, 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(sgl: Sgl, expected: [u8; 16]) {
        let mut bytes = [0xff; 16];
        sgl.store(&mut bytes);
        assert_eq!(bytes, expected);
        assert_eq!(Sgl::load(&bytes), sgl);
    }

    #[test]
    fn the_descriptors_of_fabrics() {
        check(
            Sgl::InCapsule { offset: 0, length: 0x1000 },
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0x01],
        );
        check(Sgl::Transport { length: 0x2_0000 }, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0x5a]);
        check(
            Sgl::Keyed { address: 0x1122, length: 0x00ab_cdef, key: 0x0403_0201, invalidate: true },
            [0x22, 0x11, 0, 0, 0, 0, 0, 0, 0xef, 0xcd, 0xab, 1, 2, 3, 4, 0x4f],
        );
        check(Sgl::NONE, [0; 16]);
    }

    #[test]
    fn other_descriptors_survive_and_have_no_length() {
        let segment = [1, 2, 3, 4, 5, 6, 7, 8, 16, 0, 0, 0, 0, 0, 0, 0x20];
        check(Sgl::Other(segment), segment);
        assert_eq!(Sgl::Other(segment).length(), None);
        assert_eq!(Sgl::NONE.length(), Some(0));
    }
}
