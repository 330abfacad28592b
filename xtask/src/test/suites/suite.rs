//! What a suite is.

use super::super::machine::Need;

/// Who runs a suite, and when. The tiers run in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tier {
    /// For everyone; needs only a toolchain.
    Quick,
    /// For everyone and CI; needs packages and often root.
    Ci,
    /// Only with `--full`.
    Full,
}

/// One suite.
#[derive(Debug)]
pub(crate) struct Suite {
    /// The name of the suite.
    pub(crate) name: &'static str,
    /// What the suite shows.
    pub(crate) about: &'static str,
    /// The tier in which the suite runs.
    pub(crate) tier: Tier,
    /// The maximum duration in minutes on two idle processors, including the build.
    pub(crate) minutes: u32,
    /// The arguments of cargo.
    pub(crate) command: &'static [&'static str],
    /// The Debian packages that the suite needs.
    pub(crate) packages: &'static [&'static str],
    /// Other requirements.
    pub(crate) needs: &'static [Need],
}
