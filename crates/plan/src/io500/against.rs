//! Runs beside each other, phase by phase, and beside the limits of the topology they ran on.

use super::{PHASES, Run, Unit};
use crate::limits::{Bound, Limits};
use serde::Serialize;

/// A comparison.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Against {
    /// The runs.
    pub runs: Vec<Run>,
    /// The topology of each run, where one was given.
    pub topologies: Vec<Option<On>>,
    /// Phase by phase.
    pub rows: Vec<Row>,
    /// How to read it.
    pub notes: Vec<String>,
}

/// What a run was made on, and what that carries.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct On {
    /// The topology's name.
    pub name: String,
    /// What can be read.
    pub read: Bound,
    /// What can be written.
    pub write: Bound,
}

/// One phase.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// Its name.
    pub phase: &'static str,
    /// In what.
    pub unit: Unit,
    /// What each run reached.
    pub values: Vec<Option<f64>>,
    /// Each run's share of the first one's.
    pub of_first: Vec<Option<f64>>,
    /// What the topology of each run carries; none for metadata.
    pub limits: Vec<Option<f64>>,
    /// Each run's share of that.
    pub of_limit: Vec<Option<f64>>,
}

/// Sets runs beside each other and beside limits: one for all of them, or one for each.
#[must_use]
pub fn against(runs: Vec<Run>, limits: &[Limits]) -> Against {
    let limit_of = |index: usize| if limits.len() == 1 { limits.first() } else { limits.get(index) };
    let rows = PHASES.iter().map(|(phase, unit)| row(phase, *unit, &runs, &limit_of)).collect();
    let mut notes = Vec::new();
    if !limits.is_empty() {
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
    let on = |limits: &Limits| On {
        name: limits.name.clone(),
        read: limits.read.clone(),
        write: limits.write.clone(),
    };
    let topologies = (0..runs.len()).map(|index| limit_of(index).map(on)).collect();
    Against { runs, topologies, rows, notes }
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

/// What holds a phase.
fn bound<'a>(phase: &str, unit: Unit, limits: &'a Limits) -> Option<&'a Bound> {
    (unit == Unit::GibPerS).then_some(if phase.ends_with("-read") { &limits.read } else { &limits.write })
}
