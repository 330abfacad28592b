//! What is behind an export.

use nbd::{Errno, Export};
use std::sync::mpsc::Sender;

/// What to do. Offsets and lengths were checked against the export.
#[derive(Debug)]
pub enum Operation {
    /// Reads this many bytes.
    Read {
        /// The first byte.
        offset: u64,
        /// The length.
        bytes: usize,
    },
    /// Writes.
    Write {
        /// The first byte.
        offset: u64,
        /// The data.
        data: Vec<u8>,
        /// Whether they are durable before the completion.
        durable: bool,
    },
    /// Makes completed changes durable.
    Flush,
    /// Writes zeroes.
    WriteZeroes {
        /// The first byte.
        offset: u64,
        /// The length.
        bytes: u64,
        /// Whether they are durable before the completion.
        durable: bool,
        /// Whether space may be given up.
        may_deallocate: bool,
    },
    /// The range is not needed any more.
    Trim {
        /// The first byte.
        offset: u64,
        /// The length.
        bytes: u64,
    },
}

/// How an operation ended.
#[derive(Debug)]
pub struct Outcome {
    /// What it was submitted as.
    pub cookie: u64,
    /// The data of a read, else nothing; or why it failed, as a number and in words.
    pub result: Result<Vec<u8>, (Errno, String)>,
}

/// A disk.
pub trait Disk: Send + Sync + 'static {
    /// How completions come.
    type Completion: Send + 'static;

    /// What it is.
    fn export(&self) -> Export;

    /// Whether completed changes may be lost without a flush.
    fn has_volatile_cache(&self) -> bool;

    /// Whether operations that a killed process has begun may be begun again by the next one: none
    /// of the first ones is executed then after the next process has begun.
    fn may_repeat(&self) -> bool;

    /// Begins an operation.
    fn submit(&self, operation: Operation, cookie: u64, reply: &Sender<Self::Completion>);

    /// How an operation ended.
    fn outcome(completion: Self::Completion) -> Outcome;
}
