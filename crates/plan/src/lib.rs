//! Plans storage: the capacity of an array, the placement of its drives and volumes, and the
//! throughput of each stage between a drive and a client.
//!
//! The crate computes and formats; it reads no file and no clock: texts come in, results and texts
//! go out. Each constant is in a data file or beside the code, with the public document that it
//! comes from. docs/MODEL.md says where the model is known to be wrong. An impossible request is
//! refused with the rule, its source and the nearest valid choice.

#![forbid(unsafe_code)]

pub mod ef600;
mod error;
pub mod io500;
pub mod layout;
pub mod limits;
pub mod link;
pub mod scheme;
pub mod show;
pub mod size;
pub mod units;

pub use error::{Error, Refusal, Result};
pub use scheme::Scheme;
