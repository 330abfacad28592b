//! The version of an object before and after an operation.

use crate::{Attributes, Time};

/// The version of an object's data, which changes whenever the data do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Version {
    /// Size in bytes.
    pub size: u64,
    /// Last change of the content.
    pub mtime: Time,
    /// Last change of the attributes.
    pub ctime: Time,
    /// See [`Attributes::change`].
    pub change: u64,
}

/// The version of a file before and after a write, as far as the server reported both. Between the
/// two versions only this write has changed the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Change {
    /// Right before the write.
    pub before: Option<Version>,
    /// Right after the write.
    pub after: Option<Version>,
}

impl Change {
    /// Combines this change with the next one. If the next one does not begin with the version that
    /// this one ends with, or either version is unknown, only the next one is returned: another
    /// client may have changed the file in between.
    #[must_use]
    pub fn then(self, next: Self) -> Self {
        if self.after.is_some() && self.after == next.before {
            Self { before: self.before, after: next.after }
        } else {
            next
        }
    }
}

/// What an operation did to an object: its state right before and right after, both taken under the
/// operation's own lock. RFC 1813 s2.6 (wcc_data)
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Effect {
    /// Before, absent when the object was not reached.
    pub before: Option<Version>,
    /// After, absent when the object was not reached.
    pub after: Option<Attributes>,
    /// Whether nothing else can have changed the object in between. RFC 8881 s3.3.10
    /// (change_info4)
    pub atomic: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Option<Version> {
        let time = Time::from_seconds(seconds);
        Some(Version { size: 1, mtime: time, ctime: time, change: 0 })
    }

    #[test]
    fn changes_join_where_one_ends_with_what_the_next_begins_with() {
        let first = Change { before: at(1), after: at(2) };
        let next = Change { before: at(2), after: at(3) };
        assert_eq!(first.then(next), Change { before: at(1), after: at(3) });
        let apart = Change { before: at(3), after: at(4) };
        assert_eq!(first.then(apart), apart);
        assert_eq!(Change::default().then(next), next);
        assert_eq!(Change::default().then(Change::default()), Change::default());
    }
}
