//! IO500 runs: reads the benchmark's results, computes the score again, and compares the results
//! with the limits of their topology.
//!
//! The score, by the rules of io500.org: the bandwidth score is the geometric mean of the four
//! `ior` phases in GiB/s, the metadata score is that of `find` and the seven `mdtest` phases in
//! kIOPS, and the total is the geometric mean of these two. A phase of 0 is left out. Other known
//! parts of a run (extended phases, `timestamp`) are not scored.

mod comparison;
mod read;

pub use comparison::{Comparison, Row, TopologyLimits, compare, compare_each};
pub use read::read;

use crate::error::Result;
use serde::Serialize;

/// The unit of a phase.
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
    /// The unit as written.
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

/// Prefixes of the names of phases that are not scored.
const UNSCORED: [&str; 5] = ["timestamp", "ior-rnd", "find-easy", "find-hard", "mdworkbench"];

/// Which form of the benchmark wrote a result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub enum Format {
    /// The program: phases and scores with six decimals.
    #[default]
    #[serde(rename = "since-sc20")]
    SinceSc20,
    /// The shell script before it: phases with three decimals, scores with two or more.
    #[serde(rename = "before-sc20")]
    BeforeSc20,
}

impl Format {
    /// How far a printed phase can be from the measured one.
    const fn phase_error(self) -> f64 {
        match self {
            Self::SinceSc20 => 0.5e-6,
            Self::BeforeSc20 => 0.5e-3,
        }
    }

    /// How far a printed score can be from the computed one. The script printed six digits, or cut
    /// after two decimals.
    fn score_error(self, score: f64) -> f64 {
        match self {
            Self::SinceSc20 => 0.5e-6,
            Self::BeforeSc20 => 0.01_f64.max(score * 1e-5),
        }
    }
}

/// A run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Run {
    /// The name of the run: its file.
    pub name: String,
    /// The benchmark's version, if the file states it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The form of the file.
    pub format: Format,
    /// The scored phases of the run.
    pub phases: Vec<Phase>,
    /// The names of phases that are not scored.
    pub unscored: Vec<String>,
    /// The score that the file states.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stated: Option<Score>,
    /// The score computed from the phases.
    pub score: Score,
    /// What is wrong with the run.
    pub warnings: Vec<String>,
}

/// A phase.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Phase {
    /// The name of the phase.
    pub name: &'static str,
    /// The result.
    pub value: f64,
    /// The unit of the result.
    pub unit: Unit,
    /// The duration in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// Whether the run marks it as invalid.
    pub is_invalid: bool,
}

/// A score.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Score {
    /// The bandwidth score in GiB/s.
    pub bandwidth_gib_s: f64,
    /// The metadata score in thousands of operations per second.
    pub iops_kiops: f64,
    /// The total score.
    pub total: f64,
}

/// The score of phases; a half without phases has 0.
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

/// How far a stated score can differ from that of the phases, whose digits are rounded.
///
/// The logarithm of a geometric mean changes by the mean of the phases' relative rounding errors.
#[must_use]
pub fn rounding(phases: &[Phase], format: Format) -> Score {
    let relative = |unit: Unit| {
        let counted: Vec<_> = phases.iter().filter(|phase| phase.unit == unit && phase.value > 0.0).collect();
        let sum: f64 = counted.iter().map(|phase| format.phase_error() / phase.value).sum();
        if counted.is_empty() { 0.0 } else { sum / counted.len() as f64 }
    };
    let (score, bandwidth, iops) = (score(phases), relative(Unit::GibPerS), relative(Unit::Kiops));
    let with_print = |value: f64, relative: f64| value * relative + format.score_error(value);
    Score {
        bandwidth_gib_s: with_print(score.bandwidth_gib_s, bandwidth),
        iops_kiops: with_print(score.iops_kiops, iops),
        total: with_print(score.total, f64::midpoint(bandwidth, iops)),
    }
}

/// Whether a stated score is that of the phases, within the precision of their printed digits.
#[must_use]
pub fn agrees(run: &Run) -> Option<bool> {
    let (stated, again, slack) = (run.stated?, run.score, rounding(&run.phases, run.format));
    let near = |a: f64, b: f64, slack: f64| (a - b).abs() <= slack * (1.0 + 1e-9);
    Some(
        near(stated.bandwidth_gib_s, again.bandwidth_gib_s, slack.bandwidth_gib_s)
            && near(stated.iops_kiops, again.iops_kiops, slack.iops_kiops)
            && near(stated.total, again.total, slack.total),
    )
}

/// The two runs of an EF600 that its maker has published, each with the name of the topology
/// ([`crate::limits::preset`]) on which it ran.
///
/// # Errors
/// None: the texts are part of this program, and a test reads them.
pub fn published() -> Result<Vec<(Run, &'static str)>> {
    const PUBLISHED: [(&str, &str, &str); 2] = [
        ("published: EF600, DDP of 24 drives", include_str!("../data/io500-ddp24.txt"), "ef600-ddp24"),
        (
            "published: EF600, RAID 6 of 20 drives",
            include_str!("../data/io500-raid6-20.txt"),
            "ef600-raid6-20",
        ),
    ];
    PUBLISHED.iter().map(|(name, text, preset)| Ok((read(name, text)?, *preset))).collect()
}

/// Reads several runs with their names.
///
/// # Errors
/// The first text that is not a run.
pub fn read_all<'a>(texts: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Vec<Run>> {
    texts.into_iter().map(|(name, text)| read(name, text)).collect()
}

#[cfg(test)]
mod tests;
