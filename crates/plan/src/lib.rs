//! How large, and how fast: the capacity of an array, where its drives and volumes go, and the
//! speed that each stage between a drive and a client can carry.
//!
//! It computes and shows, and reads no file and no clock: texts come in, answers and texts go out.
//! Each constant stands in a data file or beside the code with the public document it comes from,
//! and docs/MODEL.md says where the model is known to be wrong. What is asked for and cannot be is
//! refused with the rule, its source and the nearest choice that can.

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
