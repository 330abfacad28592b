//! Which arguments and results of NFS version 3 may be moved by RDMA, RFC 8267 s4. MOUNT has none.

use crate::Procedure;

/// The part of a call that may be moved in a chunk of its own. In version 3 this is always the last
/// item of its message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Eligible {
    /// Nothing.
    Nothing,
    /// The last argument: the data of WRITE, or the target of SYMLINK.
    Argument,
    /// The last result: the data of READ, or the target of READLINK.
    Result,
}

impl Procedure {
    /// The part of the procedure's calls that may be moved. RFC 8267 s4
    #[must_use]
    pub const fn eligible(self) -> Eligible {
        match self {
            Self::Write | Self::SymLink => Eligible::Argument,
            Self::Read | Self::ReadLink => Eligible::Result,
            _ => Eligible::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 8267 s4
    #[test]
    fn four_procedures_have_something_to_move() {
        let of = |procedure| Procedure::try_from(procedure).map(Procedure::eligible);
        assert_eq!([of(7), of(10)], [Ok(Eligible::Argument); 2]);
        assert_eq!([of(6), of(5)], [Ok(Eligible::Result); 2]);
        let movable = Procedure::ALL.iter().filter(|procedure| procedure.eligible() != Eligible::Nothing);
        assert_eq!(movable.count(), 4);
    }
}
