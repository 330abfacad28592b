//! IO500 runs: read as the benchmark wrote them, scored again, and held against the limits of their
//! topology.
//!
//! The score (io500.org, rules): the bandwidth score is the geometric mean of the four `ior` phases
//! in GiB/s, the metadata score that of `find` and the seven `mdtest` phases in kIOPS, the whole
//! the geometric mean of these two. A phase of 0 is left out. What else a run may contain (extended
//! phases, `timestamp`) is known and not scored.

mod against;
mod read;

pub use against::{Against, On, Row, against};
pub use read::read;

use crate::error::Result;
use serde::Serialize;

/// What a phase is counted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Unit {
    /// Bandwidth.
    #[serde(rename = "GiB/s")]
    GibPerS,
    /// Operations.
    #[serde(rename = "kIOPS")]
    Kiops,
}

impl Unit {
    /// How it is written.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::GibPerS => "GiB/s",
            Self::Kiops => "kIOPS",
        }
    }
}

/// The scored phases, in the order in which they run.
pub const PHASES: [(&str, Unit); 12] = [
    ("ior-easy-write", Unit::GibPerS),
    ("mdtest-easy-write", Unit::Kiops),
    ("ior-hard-write", Unit::GibPerS),
    ("mdtest-hard-write", Unit::Kiops),
    ("find", Unit::Kiops),
    ("ior-easy-read", Unit::GibPerS),
    ("mdtest-easy-stat", Unit::Kiops),
    ("ior-hard-read", Unit::GibPerS),
    ("mdtest-hard-stat", Unit::Kiops),
    ("mdtest-easy-delete", Unit::Kiops),
    ("mdtest-hard-read", Unit::Kiops),
    ("mdtest-hard-delete", Unit::Kiops),
];

/// Beginnings of the names of phases that are run and not scored.
const UNSCORED: [&str; 5] = ["timestamp", "ior-rnd", "find-easy", "find-hard", "mdworkbench"];

/// A run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Run {
    /// How it is called: its file.
    pub name: String,
    /// The benchmark's version, where it says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The scored phases that it has.
    pub phases: Vec<Phase>,
    /// Names of phases that are not scored.
    pub unscored: Vec<String>,
    /// The score that the file states.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stated: Option<Score>,
    /// The score of the phases.
    pub score: Score,
    /// What is wrong with it.
    pub warnings: Vec<String>,
}

/// A phase.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Phase {
    /// Its name.
    pub name: &'static str,
    /// What it reached.
    pub value: f64,
    /// In what.
    pub unit: Unit,
    /// How long it took, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// Whether the run marks it as invalid.
    pub is_invalid: bool,
}

/// A score.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Score {
    /// GiB/s.
    pub bandwidth_gib_s: f64,
    /// Thousands of operations a second.
    pub iops_kiops: f64,
    /// Both together.
    pub total: f64,
}

/// The score of phases; 0 where a half has none.
#[must_use]
pub fn score(phases: &[Phase]) -> Score {
    let mean = |unit: Unit| {
        let counted: Vec<_> = phases.iter().filter(|phase| phase.unit == unit && phase.value > 0.0).collect();
        let sum: f64 = counted.iter().map(|phase| phase.value.ln()).sum();
        if counted.is_empty() { 0.0 } else { (sum / counted.len() as f64).exp() }
    };
    let (bandwidth_gib_s, iops_kiops) = (mean(Unit::GibPerS), mean(Unit::Kiops));
    Score { bandwidth_gib_s, iops_kiops, total: (bandwidth_gib_s * iops_kiops).sqrt() }
}

/// How far a score can be from one of the unrounded phases: they are printed with six places.
///
/// The logarithm of a geometric mean moves by the mean of the phases' relative roundings.
#[must_use]
pub fn rounding(phases: &[Phase]) -> Score {
    let relative = |unit: Unit| {
        let counted: Vec<_> = phases.iter().filter(|phase| phase.unit == unit && phase.value > 0.0).collect();
        let sum: f64 = counted.iter().map(|phase| HALF_OF_LAST_PLACE / phase.value).sum();
        if counted.is_empty() { 0.0 } else { sum / counted.len() as f64 }
    };
    let (score, bandwidth, iops) = (score(phases), relative(Unit::GibPerS), relative(Unit::Kiops));
    let with_print = |value: f64, relative: f64| value * relative + HALF_OF_LAST_PLACE;
    Score {
        bandwidth_gib_s: with_print(score.bandwidth_gib_s, bandwidth),
        iops_kiops: with_print(score.iops_kiops, iops),
        total: with_print(score.total, f64::midpoint(bandwidth, iops)),
    }
}

/// IO500 prints six places behind the point.
const HALF_OF_LAST_PLACE: f64 = 0.5e-6;

/// Whether a stated score is that of the phases, as far as their printed digits can tell.
#[must_use]
pub fn agrees(run: &Run) -> Option<bool> {
    let (stated, again, slack) = (run.stated?, run.score, rounding(&run.phases));
    let near = |a: f64, b: f64, slack: f64| (a - b).abs() <= slack * (1.0 + 1e-9);
    Some(
        near(stated.bandwidth_gib_s, again.bandwidth_gib_s, slack.bandwidth_gib_s)
            && near(stated.iops_kiops, again.iops_kiops, slack.iops_kiops)
            && near(stated.total, again.total, slack.total),
    )
}

/// Reads several runs, named.
///
/// # Errors
/// The first text that is no run.
pub fn read_all<'a>(texts: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Vec<Run>> {
    texts.into_iter().map(|(name, text)| read(name, text)).collect()
}

#[cfg(test)]
mod tests;
