//! The throughput of each stage between a drive and a client's task, and the stage that binds.
//!
//! A stage is a number of equal parts, each with a throughput; the stage with the lowest total
//! binds. Reading and writing are computed separately, as if each were alone. Ports have a line
//! rate (the rate in a port's name) and a payload rate (what headers leave); the payload rate
//! counts. docs/MODEL.md says where this is wrong.

mod check;
mod curve;
mod presets;
mod stages;
mod topology;

pub use curve::{Axis, Curve, Point, curve};
pub use presets::{PRESETS, preset};
pub use stages::{Stage, StageName};
pub use topology::{Clients, Controller, Drives, Raid, Server, Switch, Topology};

use crate::Scheme;
use crate::error::{Result, refuse};
use crate::units::{check_speed, trim};
use serde::Serialize;

/// Rates whose relative difference is smaller count as equal.
const ALIKE: f64 = 1e-9;
/// A larger count is not a plan.
const COUNT_MAX: f64 = 1e6;

/// The limits of a topology.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Limits {
    /// The name of the topology.
    pub name: String,
    /// The source of the topology's values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// All stages, from the drives to the tasks.
    pub stages: Vec<Stage>,
    /// The limit of reading.
    pub read: Bound,
    /// The limit of writing.
    pub write: Bound,
    /// Assumptions, and what is not modelled.
    pub notes: Vec<String>,
}

/// The limit of one direction, and what binds it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Bound {
    /// Decimal GB/s of payload.
    pub gbytes_per_s: f64,
    /// The limit in GiB/s.
    pub gib_per_s: f64,
    /// The lowest stage; several if they are equal.
    pub binds: Vec<StageName>,
    /// The names of the binding stages, with the mode of each.
    pub why: String,
}

impl Bound {
    /// The binding stage; if several are equal, the one nearest to the drives.
    #[must_use]
    pub fn first(&self) -> Option<StageName> {
        self.binds.first().copied()
    }
}

/// The limits of a topology.
///
/// # Errors
/// A stage that is missing or breaks a rule, with the nearest valid choice.
pub fn limits(topology: &Topology) -> Result<Limits> {
    check::check(topology)?;
    let stages = stages::stages(topology)?;
    let read = bound(&stages, Direction::Read)?;
    let write = bound(&stages, Direction::Write)?;
    Ok(Limits {
        name: topology.name.clone(),
        source: topology.source.clone(),
        read,
        write,
        notes: stages::notes(topology),
        stages,
    })
}

/// Reading or writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the drives to the clients.
    Read,
    /// From the clients to the drives.
    Write,
}

impl Direction {
    /// The name of the direction.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

/// The limit, which is that of the lowest stage.
fn bound(stages: &[Stage], direction: Direction) -> Result<Bound> {
    let rates: Vec<_> = stages.iter().filter_map(|stage| Some((stage, stage.rate(direction)?))).collect();
    let lowest = rates.iter().map(|(_, rate)| *rate).fold(f64::INFINITY, f64::min);
    if !lowest.is_finite() {
        return refuse("cannot find the limit", "no stage has a speed", "the model", "--preset ef600-ddp24");
    }
    let binding: Vec<_> = rates.iter().filter(|(_, rate)| *rate <= lowest * (1.0 + ALIKE)).collect();
    let words: Vec<_> = binding.iter().map(|(stage, _)| stage.title(direction)).collect();
    Ok(Bound {
        gbytes_per_s: lowest,
        gib_per_s: crate::units::gib_per_s(lowest),
        binds: binding.iter().map(|(stage, _)| stage.name).collect(),
        why: words.join(" and "),
    })
}

/// The throughput of one array, limited by its drives, its protection scheme and its controllers.
#[derive(Debug, Clone, PartialEq)]
pub struct ArraySpeed {
    /// Reading, in GB/s.
    pub read: f64,
    /// Writing, in GB/s.
    pub write: f64,
    /// The stage that binds reading.
    pub read_binds: String,
    /// The stage that binds writing.
    pub write_binds: String,
}

/// The throughput of an EF600 with this many drives. Without a given speed, the drives are the
/// guide's.
///
/// # Errors
/// An impossible speed.
pub fn array_speed(scheme: Scheme, drives: u32, read: Option<f64>, write: Option<f64>) -> Result<ArraySpeed> {
    let checked = |what: &str, speed: Option<f64>| speed.map(|speed| check_speed(what, speed)).transpose();
    let drives = Drives {
        count: drives,
        read_gbytes_per_s: checked("--drive-read-gbytes", read)?,
        write_gbytes_per_s: checked("--drive-write-gbytes", write)?,
    };
    let topology = Topology {
        drives: Some(drives),
        raid: Some(Raid::new(scheme)),
        controller: Some(Controller::ef600()),
        ..Topology::default()
    };
    let stages = stages::storage(&topology)?;
    let (read, write) = (bound(&stages, Direction::Read)?, bound(&stages, Direction::Write)?);
    Ok(ArraySpeed {
        read: read.gbytes_per_s,
        write: write.gbytes_per_s,
        read_binds: read.why,
        write_binds: write.why,
    })
}

/// The number of a stage's parts that carries a required throughput.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StageNeed {
    /// The stage.
    pub stage: StageName,
    /// The present number.
    pub have: u32,
    /// The required number.
    pub need: u32,
    /// The name of the parts.
    pub of: &'static str,
    /// The computation.
    pub arithmetic: String,
}

/// The number of parts of each stage that a required throughput takes.
///
/// # Errors
/// A need that is not a speed, or is beyond any plan.
pub fn stage_needs(limits: &Limits, read: Option<f64>, write: Option<f64>) -> Result<Vec<StageNeed>> {
    let needs = [
        (Direction::Read, read.map(|speed| check_speed("--need-read-gbytes", speed)).transpose()?),
        (Direction::Write, write.map(|speed| check_speed("--need-write-gbytes", speed)).transpose()?),
    ];
    let mut found = Vec::new();
    for stage in &limits.stages {
        let mut most: Option<(f64, String)> = None;
        for (direction, need) in needs {
            let (Some(need), Some(rate)) = (need, stage.rate(direction)) else { continue };
            let each = rate / f64::from(stage.count.max(1));
            let count = (need / each - ALIKE).ceil().max(1.0);
            let words = format!(
                "{} {} / {} GB/s",
                direction.name(),
                trim(need),
                trim((each * 1000.0).round() / 1000.0)
            );
            if most.as_ref().is_none_or(|(most, _)| count > *most) {
                most = Some((count, words));
            }
        }
        let Some((count, arithmetic)) = most else { continue };
        if count > COUNT_MAX {
            return refuse(
                "cannot plan for that need",
                format!("it takes {} {}, and at most 1,000,000 are planned", trim(count), stage.of),
                "the range of the model",
                "a lower --need-read-gbytes or --need-write-gbytes",
            );
        }
        // The count was checked: it is a whole number of at most COUNT_MAX.
        found.push(StageNeed {
            stage: stage.name,
            have: stage.count,
            need: count as u32,
            of: stage.of,
            arithmetic,
        });
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
