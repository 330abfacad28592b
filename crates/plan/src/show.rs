//! What a person sees of a plan: text for a terminal, JSON for programs, SVG for a document.
//!
//! Text that came from a file is printed with its control characters escaped.

mod chart;
mod io500;
mod layout;
mod limits;
mod size;
mod table;

pub use chart::svg;
pub use io500::runs;
pub use layout::layout;
pub use limits::{curve, enough, limits};
pub use size::{candidates, sizing};

use crate::limits::{Curve, Enough, Limits};
use serde::Serialize;

/// Everything that `plan limits` can say at once, for JSON.
#[derive(Debug, Serialize)]
pub struct Planned<'a> {
    /// The limits; their fields stand at the top.
    #[serde(flatten)]
    pub limits: &'a Limits,
    /// The curve, where it was wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub curve: Option<&'a Curve>,
    /// How many of each carry a need, where there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enough: Option<&'a [Enough]>,
}

/// A plan as JSON, with a line feed behind it.
#[must_use]
pub fn json<T: Serialize>(plan: &T) -> String {
    let mut text = serde_json::to_string_pretty(plan).expect("plans have names for keys and finite numbers");
    text.push('\n');
    text
}
