//! Conditions over records, under which a report fails: `tcp-mp.read < 0.9 * baseline`.
//!
//! ```text
//! condition = side OPERATOR side              OPERATOR: <  <=  >  >=
//! side      = NUMBER [UNIT] | [NUMBER *] value | value [* NUMBER]
//! value     = baseline | ROUTE [.WORKLOAD] [.raw | .paced] .read | .write [.QUANTITY]
//! QUANTITY  = gbytes_per_s (if none is given) | iops | p50 | p99
//! ```
//!
//! A name of a route or workload that has other characters than letters, digits, `_` and `-`, or
//! that begins with a digit, is put in double quotes. `baseline` is the value of the other side in
//! the baseline record. A value that names no workload or no half means all that its route has.
//!
//! A condition holds only if it is shown: by the whole 95 % interval of the value or of the ratio,
//! from at least [`record::stats::PAIRS_FOR_VERDICT_MIN`] repeats. A name that a record lacks, what
//! was skipped, fewer repeats, and a baseline with another shape of traffic, pace or simulation are
//! errors, never a pass.

mod check;
mod judge;
mod parse;

use record::{Direction, Half};

pub use self::{
    check::{RecordChecks, check},
    judge::{Basis, Checked, JudgeError, Judgement, Outcome, judge},
    parse::ParseError,
};
use crate::number;

/// A condition, as [`str::parse`] reads it.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    text: String,
    left: Side,
    operator: Operator,
    right: Side,
}

impl Condition {
    /// The condition as it was given.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether the condition needs a baseline record.
    pub fn needs_baseline(&self) -> bool {
        [&self.left, &self.right].into_iter().any(|side| matches!(side, Side::Baseline { .. }))
    }
}

/// One side of the comparison.
#[derive(Clone, Debug, PartialEq)]
enum Side {
    /// A number in the base unit of its dimension.
    Number { value: f64, dimension: Option<Dimension> },
    /// The value of the other side in the baseline record.
    Baseline { factor: f64 },
    /// A measured value.
    Measured { factor: f64, selector: Selector },
}

/// Which values of a record are meant.
#[derive(Clone, Debug, PartialEq)]
struct Selector {
    route: String,
    workload: Option<String>,
    half: Option<Half>,
    direction: Direction,
    quantity: Quantity,
    /// The column of the condition at which the selector begins.
    column: usize,
}

/// What is compared. Each repeat has a value of each quantity, so there are intervals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quantity {
    GbytesPerS,
    Iops,
    P50,
    P99,
}

impl Quantity {
    const ALL: [(&'static str, Self); 4] =
        [("gbytes_per_s", Self::GbytesPerS), ("iops", Self::Iops), ("p50", Self::P50), ("p99", Self::P99)];

    fn dimension(self) -> Dimension {
        match self {
            Self::GbytesPerS => Dimension::Speed,
            Self::Iops => Dimension::Rate,
            Self::P50 | Self::P99 => Dimension::Time,
        }
    }

    fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, quantity)| *quantity == self).map_or("", |(name, _)| name)
    }

    /// A value with its unit.
    fn show(self, value: f64) -> String {
        match self.dimension() {
            Dimension::Speed => format!("{} GB/s", number::fine(value)),
            Dimension::Rate => format!("{} IOPS", number::thousands(value.round() as u64)),
            Dimension::Time => number::duration(value),
        }
    }
}

/// What a number means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dimension {
    /// In GB/s.
    Speed,
    /// In operations per second.
    Rate,
    /// In microseconds.
    Time,
}

impl Dimension {
    /// The units, with their size in the base unit.
    const fn units(self) -> &'static [(&'static str, f64)] {
        match self {
            Self::Speed => &[
                ("GB/s", 1.0),
                ("MB/s", 1e-3),
                ("GiB/s", 1.073_741_824),
                ("MiB/s", 1.048_576e-3),
                ("Gbit/s", 0.125),
            ],
            Self::Rate => &[("IOPS", 1.0), ("kIOPS", 1e3)],
            Self::Time => &[("us", 1.0), ("ms", 1e3), ("s", 1e6), ("ns", 1e-3)],
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Speed => "a speed",
            Self::Rate => "operations per second",
            Self::Time => "a latency",
        }
    }
}

/// How the sides are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Operator {
    fn holds(self, left: f64, right: f64) -> bool {
        match self {
            Self::Less => left < right,
            Self::LessOrEqual => left <= right,
            Self::Greater => left > right,
            Self::GreaterOrEqual => left >= right,
        }
    }

    /// The operator that says the same of exchanged sides.
    fn mirrored(self) -> Self {
        match self {
            Self::Less => Self::Greater,
            Self::LessOrEqual => Self::GreaterOrEqual,
            Self::Greater => Self::Less,
            Self::GreaterOrEqual => Self::LessOrEqual,
        }
    }
}
