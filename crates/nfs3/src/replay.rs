//! Maps the effect of repeating a call to the class that the reply cache ([`drc`]) gives the call.

use crate::{Effect, Procedure};
use drc::XidClass;

impl Procedure {
    /// The class of the calls' xids, which client and server agree on.
    #[must_use]
    pub const fn xid_class(self) -> XidClass {
        match self.description().effect {
            Effect::Nothing => XidClass::Repeatable,
            Effect::Repeatable => XidClass::DoneBit,
            Effect::Changes => XidClass::WholeReply,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_something_has_a_class_of_its_own() {
        // RFC 1813 s3.3: 22 procedures.
        let classes = Procedure::ALL.map(|procedure| procedure.xid_class() as u32);
        let expected = [0, 0, 1, 0, 0, 0, 0, 1, 2, 2, 2, 2, 2, 2, 2, 2, 0, 0, 0, 0, 0, 0];
        assert_eq!(classes, expected);
    }
}
