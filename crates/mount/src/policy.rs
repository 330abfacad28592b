//! What the mount options mean for caches, locks and directories.

use client::options::{AttributeCache, DirectoryReads, LookupCache, MountOptions};
use std::time::Duration;

/// Data that were read ahead are used for at most this long. Attributes are by default valid
/// for at least as long.
const READ_AHEAD_AGE_MAX: Duration = Duration::from_secs(3);

/// Which locks stay on this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalLocks {
    /// fcntl(2).
    pub posix: bool,
    /// flock(2).
    pub flock: bool,
}

/// How a mount behaves.
#[derive(Debug, Clone)]
pub struct Policy {
    /// How long attributes are cached.
    pub attribute_cache: AttributeCache,
    /// Which results of LOOKUP are cached.
    pub lookup_cache: LookupCache,
    /// How directories are read.
    pub directory_reads: DirectoryReads,
    /// Whether an open asks the server for the file's attributes (close-to-open consistency).
    pub close_to_open: bool,
    /// Locks that stay on this host.
    pub local_locks: LocalLocks,
    /// Nothing is changed through this mount.
    pub read_only: bool,
    /// Data are stable when write(2) returns.
    pub synchronous: bool,
}

impl Policy {
    /// Derives the policy from the options.
    #[must_use]
    pub fn new(options: &MountOptions) -> Self {
        let noted = |name: &str| options.noted.contains_key(name);
        let local = options.noted.get("local_lock").and_then(Option::as_deref).unwrap_or_default();
        let all = noted("nolock") || local == "all";
        let cached = options.attribute_cache.enabled;
        Self {
            attribute_cache: options.attribute_cache,
            lookup_cache: options.lookup_cache,
            directory_reads: options.directory_reads,
            close_to_open: !noted("nocto"),
            local_locks: LocalLocks { posix: all || local == "posix", flock: all || local == "flock" },
            read_only: options.read_only,
            // noac also makes writes synchronous, so that other clients see them. nfs(5)
            synchronous: !cached || (noted("sync") && !noted("async")),
        }
    }

    /// The shortest and the longest time for which attributes are cached.
    pub(crate) fn bounds(&self, directory: bool) -> (Duration, Duration) {
        let cache = &self.attribute_cache;
        let (min, max) = match (cache.enabled, directory) {
            (false, _) => (0, 0),
            (true, true) => (cache.directory_min_s, cache.directory_max_s),
            (true, false) => (cache.regular_min_s, cache.regular_max_s),
        };
        (Duration::from_secs(min.into()), Duration::from_secs(max.into()))
    }

    /// How long data that were read ahead may be used.
    pub(crate) fn read_ahead_age_max(&self) -> Duration {
        self.bounds(false).1.min(READ_AHEAD_AGE_MAX)
    }

    /// Whether files may be delegated: where opens ask the server, and attributes are cached.
    pub(crate) fn delegates(&self) -> bool {
        self.close_to_open && !self.bounds(false).1.is_zero()
    }

    /// Whether data may be read ahead.
    pub(crate) fn reads_ahead(&self) -> bool {
        !self.read_ahead_age_max().is_zero()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(options: &str) -> Policy {
        Policy::new(&options.parse().unwrap())
    }

    #[test]
    fn locks_stay_here_only_where_the_options_say_so() {
        let locks = |options| {
            let local = policy(options).local_locks;
            (local.posix, local.flock)
        };
        assert_eq!(locks(""), (false, false));
        assert_eq!(locks("nolock"), (true, true));
        assert_eq!(locks("local_lock=all"), (true, true));
        assert_eq!(locks("local_lock=posix"), (true, false));
        assert_eq!(locks("local_lock=flock"), (false, true));
        assert_eq!(locks("local_lock=none"), (false, false));
    }

    #[test]
    fn bounds_are_those_of_the_options_and_noac_keeps_nothing() {
        let seconds = |options, directory| {
            let (min, max) = policy(options).bounds(directory);
            (min.as_secs(), max.as_secs())
        };
        assert_eq!((seconds("", false), seconds("", true)), ((3, 60), (30, 60)));
        assert_eq!((seconds("actimeo=7", false), seconds("actimeo=7", true)), ((7, 7), (7, 7)));
        assert_eq!((seconds("noac", false), seconds("noac", true)), ((0, 0), (0, 0)));
        assert!(policy("noac").synchronous && !policy("").synchronous && policy("sync").synchronous);
        assert!(!policy("nocto").close_to_open && !policy("noac").reads_ahead());
    }

    #[test]
    fn files_are_delegated_where_opens_ask_and_attributes_are_cached() {
        let delegates = |options| policy(options).delegates();
        assert_eq!(["", "ro", "actimeo=1"].map(delegates), [true; 3]);
        assert_eq!(["nocto", "noac", "actimeo=0"].map(delegates), [false; 3]);
    }

    #[test]
    fn what_was_read_ahead_is_valid_no_longer_than_attributes() {
        let seconds = |options| policy(options).read_ahead_age_max().as_secs();
        assert_eq!(
            ["", "acregmin=1,acregmax=2", "actimeo=1", "actimeo=0", "noac"].map(seconds),
            [3, 2, 1, 0, 0]
        );
        assert!(policy("actimeo=1").reads_ahead() && !policy("actimeo=0").reads_ahead());
    }
}
