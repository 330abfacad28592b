//! Why no runbook can be made: the site file is not TOML of the expected form, or breaks a rule.

use std::ops::Range;
use thiserror::Error;

/// The result type of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why there is no runbook.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Error {
    /// The file is not TOML, lacks a key, or has one that nothing reads.
    #[error(
        "the file has not the form of a site file\n  cause: {cause} ({origin})\n  try:   trunkline plan runbook --init SYSTEM        \
         for a site file to start from; docs/RUNBOOKS.md has every key"
    )]
    Form {
        /// The error and its line.
        cause: String,
        /// The table of docs/RUNBOOKS.md that has the keys there.
        origin: String,
    },
    /// A value breaks a rule.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

/// A broken rule, with the line of the site file that breaks it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("line {line}: {sentence}\n  cause: {rule} ({origin})\n  try:   {advice}")]
pub struct Refusal {
    /// The line of the site file, from 1.
    pub line: usize,
    /// What is wrong there.
    pub sentence: String,
    /// The rule.
    pub rule: String,
    /// The source of the rule.
    pub origin: String,
    /// What to write instead.
    pub advice: String,
}

/// A broken rule at a place of the site file.
#[derive(Debug, Clone)]
pub(crate) struct Finding {
    /// The bytes of the site file.
    pub(crate) span: Range<usize>,
    pub(crate) sentence: String,
    pub(crate) rule: String,
    pub(crate) origin: String,
    pub(crate) advice: String,
}

/// The findings of all checks, in the order in which they were made.
#[derive(Debug, Default)]
pub(crate) struct Findings(Vec<Finding>);

impl Findings {
    /// Adds a finding: where, what, the rule, its source, and what to write instead.
    pub(crate) fn add(
        &mut self,
        span: Range<usize>,
        sentence: impl Into<String>,
        rule: impl Into<String>,
        origin: impl Into<String>,
        advice: impl Into<String>,
    ) {
        self.0.push(Finding {
            span,
            sentence: sentence.into(),
            rule: rule.into(),
            origin: origin.into(),
            advice: advice.into(),
        });
    }

    /// The finding that comes first in the file, as an error with its line.
    pub(crate) fn into_result(self, text: &str) -> Result<()> {
        let Some(first) = self.0.into_iter().min_by_key(|finding| finding.span.start) else { return Ok(()) };
        let before = text.as_bytes().get(..first.span.start).unwrap_or_default();
        Err(Error::Refused(Refusal {
            line: before.iter().filter(|byte| **byte == b'\n').count() + 1,
            sentence: first.sentence,
            rule: first.rule,
            origin: first.origin,
            advice: first.advice,
        }))
    }
}
