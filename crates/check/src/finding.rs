//! What a rule found.

use serde::Serialize;

/// How a finding is to be taken, from best to worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// It is as it should be.
    Ok,
    /// It could not be checked.
    Unknown,
    /// It works, but slower or less safely than it could.
    Warn,
    /// It does not work, or not as asked for.
    Fail,
}

impl Status {
    /// The word for the status.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Unknown => "unknown",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

/// One thing that was checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How it is to be taken.
    pub status: Status,
    /// The area and the rule, such as `rdma.port-state`; it stays the same over releases.
    pub rule: &'static str,
    /// What was seen.
    pub seen: String,
    /// The command or file that shows it.
    pub source: String,
    /// Why it matters; empty where all is well.
    pub why: String,
    /// The commands that mend it, or what to do.
    pub mend: String,
}

impl Finding {
    /// A finding that is as it should be.
    pub fn ok(rule: &'static str, source: impl Into<String>, seen: impl Into<String>) -> Self {
        Self {
            status: Status::Ok,
            rule,
            seen: seen.into(),
            source: source.into(),
            why: String::new(),
            mend: String::new(),
        }
    }

    /// The same finding as something that could be better.
    #[must_use]
    pub fn warn(self, why: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { status: Status::Warn, why: why.into(), mend: mend.into(), ..self }
    }

    /// The same finding as something that does not work.
    #[must_use]
    pub fn fail(self, why: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { status: Status::Fail, why: why.into(), mend: mend.into(), ..self }
    }

    /// Something that could not be checked, and what would allow it.
    pub fn unknown(
        rule: &'static str,
        source: impl Into<String>,
        seen: impl Into<String>,
        mend: impl Into<String>,
    ) -> Self {
        Self { status: Status::Unknown, mend: mend.into(), ..Self::ok(rule, source, seen) }
    }
}

/// The worst status of some findings; [`Status::Unknown`] if there are none: nothing was judged.
pub fn worst(findings: &[Finding]) -> Status {
    findings.iter().map(|finding| finding.status).max().unwrap_or(Status::Unknown)
}
