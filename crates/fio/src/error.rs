//! Why a job file cannot be used.

/// An error of a job file, with its position and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {cause}")]
pub struct Error {
    /// The line, from 1.
    pub line: usize,
    /// The column of its first character, from 1.
    pub column: usize,
    /// The cause.
    pub cause: String,
    /// What to do.
    pub advice: String,
}

/// The result type of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// A fault of a value or an option, before its position is known.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) cause: String,
    pub(crate) advice: String,
}

impl Fault {
    pub(crate) fn new(cause: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { cause: cause.into(), advice: advice.into() }
    }

    pub(crate) fn at(self, line: usize, column: usize) -> Error {
        Error { line, column, cause: self.cause, advice: self.advice }
    }
}
