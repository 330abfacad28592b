//! Times of objects.

/// A time since 1970-01-01 00:00 UTC, or before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time {
    /// Seconds; negative before 1970.
    pub seconds: i64,
    /// Nanoseconds after that second. As received: a peer may have sent a billion or more.
    pub nanoseconds: u32,
}

impl Time {
    /// A whole second.
    #[must_use]
    pub const fn from_seconds(seconds: i64) -> Self {
        Self { seconds, nanoseconds: 0 }
    }
}
