//! Bounded reading and writing of XDR, RFC 4506.
//!
//! [`Reader`] is a cursor over received bytes. Every length is checked against its bound and
//! against the remaining bytes before anything is taken, so remote bytes can cause neither a panic
//! nor an allocation. [`Writer`] appends to a caller's buffer and never fails. Bulk payload is
//! never encoded here: it travels beside the message.
//!
//! Left out: floating point and discriminated unions as types; ONC RPC programs spell those out.
#![forbid(unsafe_code)]

mod reader;
mod wire;
mod writer;

pub use reader::{Error, Reader, Result};
pub use writer::Writer;

/// XDR items are padded to a multiple of this many bytes. RFC 4506 s3
pub const UNIT_BYTES: usize = 4;

/// Zero bytes that follow `len` bytes of opaque data. RFC 4506 s4.9
#[must_use]
pub const fn padding(len: usize) -> usize {
    len.wrapping_neg() % UNIT_BYTES
}

#[doc(hidden)]
pub mod fuzzing {
    //! The body that the property test and the fuzz target share.
    use crate::{Reader, Writer};

    /// Reads arbitrary bytes with every method of the reader; what was read must encode to the same
    /// bytes.
    pub fn read_everything(bytes: &[u8]) {
        let mut reader = Reader::new(bytes);
        let mut written = Vec::new();
        while let Ok(choice) = reader.u32() {
            Writer::new(&mut written).u32(choice);
            let before = reader;
            let mut writer = Writer::new(&mut written);
            let outcome = match choice % 5 {
                0 => reader.u64().map(|value| writer.u64(value)),
                1 => reader.bool().map(|value| writer.bool(value)),
                2 => reader.opaque(64).map(|value| writer.opaque(value)),
                3 => reader.opaque_fixed::<8>().map(|value| writer.opaque_fixed(&value)),
                _ => reader.optional(Reader::u32).map(|value| {
                    writer.bool(value.is_some());
                    if let Some(value) = value {
                        writer.u32(value);
                    }
                }),
            };
            if outcome.is_err() {
                reader = before;
            }
            let consumed = bytes.len() - reader.remaining();
            assert!(written.len() == consumed, "what was read writes back at the same length");
        }
    }
}
