//! Formats plans: text for a terminal, JSON for programs, SVG for documents.
//!
//! Control characters in text from a file are escaped.

mod chart;
mod io500;
mod layout;
mod limits;
mod size;
mod table;

pub use chart::svg;
pub use io500::runs;
pub use layout::layout;
pub use limits::{curve, limits, stage_needs};
pub use size::{candidates, sizing};

use crate::limits::{Curve, Limits, StageNeed};
use serde::Serialize;

/// Everything that `plan limits` can output, for JSON.
#[derive(Debug, Serialize)]
pub struct Planned<'a> {
    /// The limits, with their fields at the top level.
    #[serde(flatten)]
    pub limits: &'a Limits,
    /// The curve, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub curve: Option<&'a Curve>,
    /// The required numbers of each stage's parts, if there was a need.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enough: Option<&'a [StageNeed]>,
}

/// A plan as JSON, with a newline at the end.
#[must_use]
pub fn json<T: Serialize>(plan: &T) -> String {
    let mut text = serde_json::to_string_pretty(plan).expect("plans have names for keys and finite numbers");
    text.push('\n');
    text
}
