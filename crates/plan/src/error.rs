//! Why a plan cannot be made: what breaks a rule of the hardware, and what is no file of the kind
//! that it should be.

use thiserror::Error;

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why there is no plan. Each text is a sentence, its cause with the source of the rule, and the
/// nearest valid choice.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Error {
    /// What was asked for breaks a rule of the hardware or leaves the range of the model.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A topology is no TOML or has keys that mean nothing.
    #[error(
        "cannot read the topology\n  cause: {cause}\n  try:   trunkline plan limits --preset ef600-ddp24 --toml        \
         for one to start from"
    )]
    Topology {
        /// What is wrong, and where.
        cause: String,
    },
    /// A text is no result of an IO500 run.
    #[error(
        "cannot read the IO500 results\n  cause: {cause}\n  try:   the run's result_summary.txt or result.txt, as IO500 \
         wrote it"
    )]
    Results {
        /// What is wrong, and where.
        cause: String,
    },
}

/// A rule that was broken.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{sentence}\n  cause: {rule} ({origin})\n  try:   {nearest}")]
pub struct Refusal {
    /// What cannot be done.
    pub sentence: String,
    /// The rule.
    pub rule: String,
    /// Where the rule stands.
    pub origin: String,
    /// The nearest choice that can be.
    pub nearest: String,
}

/// Refuses something.
pub(crate) fn refuse<T>(
    sentence: impl Into<String>,
    rule: impl Into<String>,
    origin: impl Into<String>,
    nearest: impl Into<String>,
) -> Result<T> {
    Err(Error::Refused(Refusal {
        sentence: sentence.into(),
        rule: rule.into(),
        origin: origin.into(),
        nearest: nearest.into(),
    }))
}
