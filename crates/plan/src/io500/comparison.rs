//! Compares runs with each other, phase by phase, and with the limits of their topologies.

use super::{PHASES, Run, Unit};
use crate::limits::{Bound, Limits};
use serde::Serialize;

/// A comparison.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// The runs compared.
    pub runs: Vec<Run>,
    /// The topology of each run, if given.
    pub topologies: Vec<Option<TopologyLimits>>,
    /// The phases.
    pub rows: Vec<Row>,
    /// Notes for the reader.
    pub notes: Vec<String>,
}

/// The topology of a run, and its limits.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TopologyLimits {
    /// The name of the topology.
    pub name: String,
    /// The limit of reading.
    pub read: Bound,
    /// The limit of writing.
    pub write: Bound,
}

/// A phase of all runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// The name of the phase.
    pub phase: &'static str,
    /// The unit of the phase.
    pub unit: Unit,
    /// The result of each run.
    pub values: Vec<Option<f64>>,
    /// Each result relative to that of the first run.
    pub of_first: Vec<Option<f64>>,
    /// The limit of each run's topology; none for metadata.
    pub limits: Vec<Option<f64>>,
    /// Each result relative to its limit.
    pub of_limit: Vec<Option<f64>>,
}

/// Compares runs with each other and with limits: one for all runs, or one for each.
#[must_use]
pub fn compare(runs: Vec<Run>, limits: &[Limits]) -> Comparison {
    let of = |index: usize| if limits.len() == 1 { limits.first() } else { limits.get(index) };
    let each: Vec<Option<Limits>> = (0..runs.len()).map(|index| of(index).cloned()).collect();
    compare_each(runs, &each)
}

/// Compares runs with each other, and each with its limits, if it has any.
#[must_use]
pub fn compare_each(runs: Vec<Run>, limits: &[Option<Limits>]) -> Comparison {
    let limit_of = |index: usize| limits.get(index).and_then(Option::as_ref);
    let rows = PHASES.iter().map(|(phase, unit)| row(phase, *unit, &runs, &limit_of)).collect();
    let mut notes = Vec::new();
    if limits.iter().any(Option::is_some) {
        notes.push(
            "limits are those of large sequential requests on the block layer; ior-hard moves 47,008 bytes at a time into one \
             file, and metadata phases are not modelled"
                .to_owned(),
        );
        let above = |row: &Row| row.of_limit.iter().flatten().any(|share| *share > 1.0);
        let rows: &Vec<Row> = &rows;
        let beyond: Vec<_> = rows.iter().filter(|row| above(row)).map(|row| row.phase).collect();
        if !beyond.is_empty() {
            notes.push(format!(
                "above its limit: {}; the model is wrong there, see docs/MODEL.md, or the topology is another",
                beyond.join(", ")
            ));
        }
    }
    let on = |limits: &Limits| TopologyLimits {
        name: limits.name.clone(),
        read: limits.read.clone(),
        write: limits.write.clone(),
    };
    let topologies = (0..runs.len()).map(|index| limit_of(index).map(on)).collect();
    Comparison { runs, topologies, rows, notes }
}

fn row<'a>(
    phase: &'static str,
    unit: Unit,
    runs: &[Run],
    limit_of: &impl Fn(usize) -> Option<&'a Limits>,
) -> Row {
    let value = |run: &Run| run.phases.iter().find(|found| found.name == phase).map(|found| found.value);
    let bound_of = |index: usize| limit_of(index).and_then(|limits| bound(phase, unit, limits));
    let values: Vec<_> = runs.iter().map(value).collect();
    let limits: Vec<_> = (0..runs.len()).map(|index| bound_of(index).map(|bound| bound.gib_per_s)).collect();
    let share = |value: Option<f64>, whole: Option<f64>| Some(value? / whole.filter(|whole| *whole > 0.0)?);
    let first = values.first().copied().flatten();
    Row {
        phase,
        unit,
        of_first: values.iter().map(|value| share(*value, first)).collect(),
        of_limit: values.iter().zip(&limits).map(|(value, limit)| share(*value, *limit)).collect(),
        values,
        limits,
    }
}

/// The limit that applies to a phase.
fn bound<'a>(phase: &str, unit: Unit, limits: &'a Limits) -> Option<&'a Bound> {
    (unit == Unit::GibPerS).then_some(if phase.ends_with("-read") { &limits.read } else { &limits.write })
}
