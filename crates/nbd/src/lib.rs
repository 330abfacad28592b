//! The server's side of the Network Block Device protocol, as its document `doc/proto.md` defines
//! it: the fixed newstyle handshake ([`Handshake`]), requests ([`Header`], [`Export::check`]) and
//! replies ([`reply`]). Pure: no socket, no payload.
//!
//! All numbers are big-endian. Invariants: lengths are bounded before anything is taken; nothing
//! panics on bytes of a client; what is not known is refused with the error of the document and
//! the connection goes on; only what leaves the place of the next message unknown ends it.
//!
//! Left out: TLS, metadata contexts and block status, extended headers, resizing, CACHE.
#![forbid(unsafe_code)]

mod export;
mod handshake;
pub mod reply;
mod request;

#[doc(hidden)]
pub mod fuzzing;

pub use export::{Export, Features};
pub use handshake::{Handshake, NAME_BYTES_MAX, OPTION_BYTES_MAX, Progress};
pub use request::{Command, HEADER_BYTES, Header, Kind, PAYLOAD_BYTES_MAX, REQUEST_BYTES_MAX};

/// Why a connection ends at once: what follows cannot be told apart any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// Another magic number than the protocol's.
    #[error("the magic number {0:#x} is not the protocol's")]
    Magic(u64),
    /// Flags that the server did not offer.
    #[error("the client has set flags that were not offered: {0:#x}")]
    Flags(u32),
    /// An option longer than any.
    #[error("an option of {0} bytes")]
    OptionTooLong(u32),
    /// EXPORT_NAME has no way to say that there is no such export.
    #[error("there is no export of that name")]
    NoExport,
    /// More data than a request may carry.
    #[error("a write of {0} bytes")]
    PayloadTooLong(u32),
}

/// Why a request failed, as numbers of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Errno {
    /// EPERM: the export is read-only.
    Permission = 1,
    /// EIO.
    Io = 5,
    /// ENOMEM.
    Memory = 12,
    /// EINVAL.
    Invalid = 22,
    /// ENOSPC: beyond the end, or no room.
    NoSpace = 28,
    /// EOVERFLOW: a reply that may not be fragmented is too long.
    Overflow = 75,
    /// ENOTSUP.
    Unsupported = 95,
    /// ESHUTDOWN: the server ends.
    Shutdown = 108,
}

/// A big-endian cursor that never reads beyond its end.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (now, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(now)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes(self.bytes(2)?.try_into().ok()?))
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        Some(u32::from_be_bytes(self.bytes(4)?.try_into().ok()?))
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        Some(u64::from_be_bytes(self.bytes(8)?.try_into().ok()?))
    }
}
