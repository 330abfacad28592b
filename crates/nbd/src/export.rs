//! What is exported.

/// What an export can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Features {
    /// It cannot be changed.
    pub read_only: bool,
    /// TRIM.
    pub trim: bool,
    /// WRITE_ZEROES.
    pub write_zeroes: bool,
}

/// An export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Export {
    /// Its name; the empty name of a client means the first export.
    pub name: String,
    /// A text for people.
    pub description: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// Requests are multiples of this many bytes, a power of two.
    pub block_min: u32,
    /// The best size of requests.
    pub block_preferred: u32,
    /// What it can do.
    pub features: Features,
}

const HAS_FLAGS: u16 = 1 << 0;
const READ_ONLY: u16 = 1 << 1;
const SEND_FLUSH: u16 = 1 << 2;
const SEND_FUA: u16 = 1 << 3;
const SEND_TRIM: u16 = 1 << 5;
const SEND_WRITE_ZEROES: u16 = 1 << 6;
const SEND_DF: u16 = 1 << 7;
const CAN_MULTI_CONN: u16 = 1 << 8;

impl Export {
    /// The transmission flags. A flush on one connection covers what others have written
    /// (CAN_MULTI_CONN).
    #[must_use]
    pub const fn flags(&self, structured: bool) -> u16 {
        let mut flags = HAS_FLAGS | SEND_FLUSH | SEND_FUA | CAN_MULTI_CONN;
        if self.features.read_only {
            flags |= READ_ONLY;
        }
        if self.features.trim {
            flags |= SEND_TRIM;
        }
        if self.features.write_zeroes {
            flags |= SEND_WRITE_ZEROES;
        }
        if structured {
            flags |= SEND_DF;
        }
        flags
    }
}
