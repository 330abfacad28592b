//! Which arguments and results may be moved by RDMA, RFC 8267 s5. Callbacks have none.
//!
//! A request of this version can have several such items, so the question has an answer only after
//! its operations are known. One item of each direction is what Linux sends, and what is moved
//! here: the first of a compound ([`find_write`](crate::compound::find_write),
//! [`find_read`](crate::compound::find_read)).

use crate::Operation;

/// The part of an operation that may be moved in a chunk of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Eligible {
    /// Nothing.
    Nothing,
    /// An argument: the data of WRITE, or the text of a symbolic link that CREATE makes. Both may
    /// be followed by other operations, and the text by the link's name.
    Argument,
    /// A result: the data of READ, or the text of READLINK; of READ_PLUS the data of the first
    /// segment that has data.
    Result,
}

/// The most segments of a READ_PLUS over RDMA: the client offers memory for the data of one, and
/// can tell how long the rest will be. RFC 8267 s5
pub const READ_PLUS_SEGMENTS_MAX: u32 = 2;

impl Operation {
    /// The part of the operation that may be moved. RFC 8267 s5
    #[must_use]
    pub const fn eligible(self) -> Eligible {
        match self {
            Self::Write | Self::Create => Eligible::Argument,
            Self::Read | Self::ReadLink | Self::ReadPlus => Eligible::Result,
            _ => Eligible::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 8267 s5
    #[test]
    fn five_operations_have_something_to_move() {
        let names = |eligible| {
            let of = Operation::ALL.iter().filter(move |operation| operation.eligible() == eligible);
            of.map(|operation| operation.name()).collect::<Vec<_>>()
        };
        assert_eq!(names(Eligible::Argument), ["CREATE", "WRITE"]);
        assert_eq!(names(Eligible::Result), ["READ", "READLINK", "READ_PLUS"]);
    }
}
