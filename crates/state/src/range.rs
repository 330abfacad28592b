//! Ranges of bytes, as numbers: from an offset and a length, and what a change leaves of others.

use crate::error::Error;

/// Bytes from the first to the last one, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bytes {
    pub first: u64,
    pub last: u64,
}

impl Bytes {
    /// A length of all ones reaches to the end of the file; other lengths must not reach beyond
    /// 2^64, and 0 is not a length. RFC 8881 s18.10.3
    pub fn new(offset: u64, length: u64) -> Result<Self, Error> {
        let last = match length {
            0 => None,
            u64::MAX => Some(u64::MAX),
            length => offset.checked_add(length - 1),
        };
        let last = last.ok_or(Error::Invalid("a length of 0, or beyond the largest offset"))?;
        Ok(Self { first: offset, last })
    }

    /// The length that [`new`](Self::new) makes these bytes of.
    pub fn length(self) -> u64 {
        if self.last == u64::MAX { u64::MAX } else { self.last.saturating_sub(self.first) + 1 }
    }

    pub const fn overlaps(self, other: Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    /// Whether the union is one range.
    pub const fn touches(self, other: Self) -> bool {
        self.overlaps(other)
            || other.last < self.first && self.first - other.last == 1
            || self.last < other.first && other.first - self.last == 1
    }

    pub fn union(self, other: Self) -> Self {
        Self { first: self.first.min(other.first), last: self.last.max(other.last) }
    }

    /// What is left before and after `cut`.
    pub fn without(self, cut: Self) -> [Option<Self>; 2] {
        let before = cut.first.checked_sub(1).filter(|last| *last >= self.first);
        let after = cut.last.checked_add(1).filter(|first| *first <= self.last);
        [
            before.map(|last| Self { first: self.first, last: last.min(self.last) }),
            after.map(|first| Self { first: first.max(self.first), last: self.last }),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(first: u64, last: u64) -> Bytes {
        Bytes { first, last }
    }

    #[test]
    fn lengths_reach_to_the_end_and_not_beyond() {
        assert_eq!(Bytes::new(5, 3), Ok(bytes(5, 7)));
        assert_eq!(Bytes::new(5, u64::MAX), Ok(bytes(5, u64::MAX)));
        assert_eq!(Bytes::new(u64::MAX, 1), Ok(bytes(u64::MAX, u64::MAX)));
        assert_eq!(Bytes::new(2, u64::MAX - 1), Ok(bytes(2, u64::MAX)));
        assert!(Bytes::new(3, u64::MAX - 1).is_err());
        assert!(Bytes::new(0, 0).is_err());
        assert_eq!(bytes(0, u64::MAX).length(), u64::MAX);
        assert_eq!(bytes(5, 7).length(), 3);
    }

    #[test]
    fn neighbours_touch_and_do_not_overlap() {
        assert!(bytes(0, 4).touches(bytes(5, 9)) && bytes(5, 9).touches(bytes(0, 4)));
        assert!(!bytes(0, 4).overlaps(bytes(5, 9)) && !bytes(0, 4).touches(bytes(6, 9)));
        assert!(!bytes(0, 0).touches(bytes(u64::MAX, u64::MAX)));
    }

    #[test]
    fn a_cut_leaves_what_is_outside() {
        assert_eq!(bytes(0, 9).without(bytes(3, 5)), [Some(bytes(0, 2)), Some(bytes(6, 9))]);
        assert_eq!(bytes(0, 9).without(bytes(0, 9)), [None, None]);
        assert_eq!(bytes(4, 9).without(bytes(0, 6)), [None, Some(bytes(7, 9))]);
        let all = bytes(0, u64::MAX);
        assert_eq!(all.without(bytes(1, u64::MAX)), [Some(bytes(0, 0)), None]);
        assert_eq!(bytes(4, 9).without(bytes(20, 30)), [Some(bytes(4, 9)), None]);
    }
}
