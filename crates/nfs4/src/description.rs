//! What the table says about an operation; and the rules about where an operation may stand in a
//! compound. RFC 8881 s2.10.3, s18.33 to s18.50

use crate::{Operation, Status};

/// The load to which an operation belongs: how it is counted, and which connections carry it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Small requests and replies.
    Metadata,
    /// READ and READ_PLUS: payload from the server.
    Read,
    /// WRITE, and what makes written data stable.
    Write,
}

/// What the second execution of an operation does. What is to be kept of a request depends on the
/// greatest effect among its operations ([`Effect`] is ordered).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Effect {
    /// The operation changes nothing except times of last access.
    Nothing,
    /// The operation changes something. Repeated at once, it leaves the same state; repeated late,
    /// it undoes newer changes. That it was done is all that must be kept.
    Repeatable,
    /// The operation changes something. Repeated, it fails or changes something else, so it must
    /// run only once, and its whole reply must be kept.
    Changes,
}

/// One row of a table of operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Description {
    /// The name in the standards.
    pub name: &'static str,
    /// The first minor version that has the operation.
    pub minor: u32,
    /// The class of its load.
    pub class: Class,
    /// The effect of repeating it.
    pub effect: Effect,
    /// Whether this crate has types for its arguments and result; otherwise the answer is
    /// NFS4ERR_NOTSUPP.
    pub is_decoded: bool,
}

/// Where an operation may stand. RFC 8881 s2.10.3
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Place {
    /// First, and nowhere else: SEQUENCE.
    First,
    /// After SEQUENCE.
    InSession,
    /// Alone in its compound, or after SEQUENCE.
    AloneOrInSession,
    /// Alone in its compound: BIND_CONN_TO_SESSION.
    Alone,
}

impl Operation {
    /// Whether a request with this operation changes something, so that executing it late or twice
    /// can do harm.
    #[must_use]
    pub const fn changes(self) -> bool {
        !matches!(self.description().effect, Effect::Nothing)
    }

    /// Whether the operation must not run twice.
    #[must_use]
    pub const fn runs_once(self) -> bool {
        matches!(self.description().effect, Effect::Changes)
    }

    /// Where the operation may stand. RFC 8881 s18.34.3, s18.35.3, s18.36.3, s18.37.3, s18.46.3,
    /// s18.50.3
    #[must_use]
    pub const fn place(self) -> Place {
        match self {
            Self::Sequence => Place::First,
            Self::BindConnToSession => Place::Alone,
            Self::ExchangeId | Self::CreateSession | Self::DestroySession | Self::DestroyClientId => {
                Place::AloneOrInSession
            }
            _ => Place::InSession,
        }
    }

    /// Checks the place of an operation: its `index`, the number of `operations` of the compound,
    /// and whether the compound is `in_session`, which it is when SEQUENCE was its first operation
    /// and succeeded.
    ///
    /// # Errors
    /// NFS4ERR_SEQUENCE_POS, NFS4ERR_OP_NOT_IN_SESSION or NFS4ERR_NOT_ONLY_OP. RFC 8881 s2.10.3
    pub const fn check_place(self, index: u32, operations: u32, in_session: bool) -> Result<(), Status> {
        let alone = operations == 1;
        match self.place() {
            Place::First if index == 0 => Ok(()),
            Place::First => Err(Status::SEQUENCE_POS),
            Place::InSession if in_session => Ok(()),
            Place::InSession => Err(Status::OP_NOT_IN_SESSION),
            Place::AloneOrInSession if in_session || alone => Ok(()),
            Place::Alone if alone => Ok(()),
            // After an operation that was alone in its compound nothing can follow, so this is the
            // first one.
            Place::AloneOrInSession | Place::Alone => Err(Status::NOT_ONLY_OP),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 8881 s2.10.3
    #[test]
    fn operations_stand_where_the_standard_has_them() {
        let check = Operation::check_place;
        assert_eq!(check(Operation::Sequence, 0, 3, false), Ok(()));
        assert_eq!(check(Operation::Sequence, 1, 3, true), Err(Status::SEQUENCE_POS));
        assert_eq!(check(Operation::PutFh, 1, 3, true), Ok(()));
        assert_eq!(check(Operation::PutFh, 0, 3, false), Err(Status::OP_NOT_IN_SESSION));
        assert_eq!(check(Operation::ExchangeId, 0, 1, false), Ok(()));
        assert_eq!(check(Operation::ExchangeId, 1, 2, true), Ok(()));
        assert_eq!(check(Operation::CreateSession, 0, 2, false), Err(Status::NOT_ONLY_OP));
        assert_eq!(check(Operation::BindConnToSession, 1, 2, true), Err(Status::NOT_ONLY_OP));
        assert_eq!(check(Operation::BindConnToSession, 0, 1, false), Ok(()));
    }
}
