//! fio's job files and its results.
//!
//! [`JobFile::parse`] reads a job file as fio 3.33 does (its HOWTO, "Job file format" and "Job file
//! parameters"): sections, `[global]` for the sections after it, comments, units, clones of a job.
//! An option that would change the load and cannot be carried out is refused with its line. An
//! option that changes nothing here is accepted, and a note says why.
//!
//! [`results`] is fio's JSON, written from measured jobs and read into a record.
//!
//! The crate reads no file, no environment and no clock: texts come in. It must not know how a load
//! is made.
#![forbid(unsafe_code)]

mod error;
mod ini;
mod job;
mod options;
pub mod results;
mod settings;
mod units;

pub use error::{Error, Result};
pub use job::{Access, Blocks, FileUse, Instance, Job, JobFile, Note, Phase};

use std::collections::BTreeMap;

/// The environment in which a job file is read.
#[derive(Debug, Default)]
pub struct Context {
    /// The variables that `${NAME}` refers to.
    pub environment: BTreeMap<String, String>,
}
