//! Why a plan cannot be made: a rule of the hardware is broken, or a file is not of the expected
//! kind.

use thiserror::Error;

/// The result type of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why there is no plan. Each text is a sentence, its cause with the source of the rule, and the
/// nearest valid choice.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Error {
    /// The request breaks a rule of the hardware or is outside the range of the model.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A topology is not TOML or has unknown keys.
    #[error(
        "cannot read the topology\n  cause: {cause}\n  try:   trunkline plan limits --preset ef600-ddp24 --toml        \
         for one to start from"
    )]
    Topology {
        /// The error and its position.
        cause: String,
    },
    /// A text is not the result of an IO500 run.
    #[error(
        "cannot read the IO500 results\n  cause: {cause}\n  try:   the run's result_summary.txt or result.txt, as IO500 \
         wrote it"
    )]
    Results {
        /// The error and its position.
        cause: String,
    },
}

/// A broken rule.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{sentence}\n  cause: {rule} ({origin})\n  try:   {nearest}")]
pub struct Refusal {
    /// What cannot be done.
    pub sentence: String,
    /// The rule.
    pub rule: String,
    /// The source of the rule.
    pub origin: String,
    /// The nearest valid choice.
    pub nearest: String,
}

/// Returns a refusal.
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
