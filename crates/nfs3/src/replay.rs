//! What a reply cache keeps of a call: [`drc`]'s classes, by what a second execution does.

use crate::{Effect, Procedure};
use drc::XidClass;

impl Procedure {
    /// The class of its calls' xids, the same at both ends.
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
