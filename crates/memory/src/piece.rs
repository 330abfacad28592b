//! Parts of payloads, as a device or this process finds them.

use smallvec::SmallVec;

/// Part of a registered area, as a device addresses it. Only data: the caller that posts work on
/// it keeps the memory until the work has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Registered {
    /// The address of the first byte.
    pub start: u64,
    /// The length in bytes.
    pub bytes: usize,
    /// The key of the registration, for this end's own work.
    pub key: u32,
}

impl Registered {
    /// The part of `bytes` bytes after the first `from`, as far as there are so many.
    #[must_use]
    pub fn part(&self, from: usize, bytes: usize) -> Self {
        let from = from.min(self.bytes);
        Self { start: self.start + from as u64, bytes: bytes.min(self.bytes - from), key: self.key }
    }
}

/// Registered memory in order: enough for 1 MiB in extents of 64 KiB at any offset.
pub type Scatter = SmallVec<[Registered; 20]>;

/// A part of a payload that does not change while it is borrowed.
#[derive(Debug, Clone, Copy)]
pub struct Piece<'a> {
    /// Its bytes.
    pub bytes: &'a [u8],
    /// The same bytes for a device; `None` where the memory is not registered.
    pub registered: Option<Registered>,
}

impl<'a> Piece<'a> {
    /// Bytes that no device knows.
    #[must_use]
    pub const fn unregistered(bytes: &'a [u8]) -> Self {
        Self { bytes, registered: None }
    }

    /// The part of `bytes` bytes after the first `from`, as far as there are so many.
    #[must_use]
    pub fn part(&self, from: usize, bytes: usize) -> Self {
        let from = from.min(self.bytes.len());
        let bytes = bytes.min(self.bytes.len() - from);
        Self {
            bytes: self.bytes.get(from..from + bytes).unwrap_or_default(),
            registered: self.registered.map(|registered| registered.part(from, bytes)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_the_same_for_a_device_and_for_this_process() {
        let registered = Registered { start: 1000, bytes: 10, key: 7 };
        let piece = Piece { bytes: &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9], registered: Some(registered) };
        let part = piece.part(3, 4);
        assert_eq!(part.bytes, [3, 4, 5, 6]);
        assert_eq!(part.registered, Some(Registered { start: 1003, bytes: 4, key: 7 }));
        let end = piece.part(8, 100);
        assert_eq!((end.bytes, end.registered.unwrap().bytes), (&[8, 9][..], 2));
        assert_eq!(piece.part(11, 1).bytes, [0; 0]);
        assert!(Piece::unregistered(b"abc").part(1, 1).registered.is_none());
    }
}
