//! What each stage between a drive and a client's task can carry, and which one binds.
//!
//! A stage is a number of like things and what one of them carries; the lowest stage binds. Reading
//! and writing are reckoned apart, each alone on the way. The line rate (what a port is named for)
//! and the payload rate (what headers leave) stand side by side; the payload rate is what binds.
//! docs/MODEL.md says where this is wrong.

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

/// Rates that differ by less are alike.
const ALIKE: f64 = 1e-9;
/// More of anything is no plan.
const COUNT_MAX: f64 = 1e6;

/// The limits of a topology.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Limits {
    /// Its name.
    pub name: String,
    /// Where its figures come from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Every stage, from the drives to the tasks.
    pub stages: Vec<Stage>,
    /// What can be read.
    pub read: Bound,
    /// What can be written.
    pub write: Bound,
    /// What was assumed, and what is not modelled.
    pub notes: Vec<String>,
}

/// What can be carried in one direction, and what binds it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Bound {
    /// Decimal GB/s of payload.
    pub gbytes_per_s: f64,
    /// The same in GiB/s.
    pub gib_per_s: f64,
    /// The lowest stage; several that are alike.
    pub binds: Vec<StageName>,
    /// The same for a person, with the mode it runs in.
    pub why: String,
}

impl Bound {
    /// The stage that binds, the one nearest to the drives where several are alike.
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
    /// How it is called.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

/// The lowest of the stages.
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

/// What one array carries by its drives, its code and its controllers.
#[derive(Debug, Clone, PartialEq)]
pub struct ArraySpeed {
    /// Reading, in GB/s.
    pub read: f64,
    /// Writing, in GB/s.
    pub write: f64,
    /// What binds reading.
    pub read_binds: String,
    /// What binds writing.
    pub write_binds: String,
}

/// What an EF600 of so many drives carries; drives as the guide's where no speed is given.
///
/// # Errors
/// A speed that no drive has.
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

/// How many of each stage's things carry what is needed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Enough {
    /// The stage.
    pub stage: StageName,
    /// How many there are.
    pub have: u32,
    /// How many it takes.
    pub need: u32,
    /// What they are.
    pub of: &'static str,
    /// How that is reckoned.
    pub arithmetic: String,
}

/// How many of each it takes to carry a need.
///
/// # Errors
/// A need that is no speed, or beyond every plan.
pub fn enough(limits: &Limits, read: Option<f64>, write: Option<f64>) -> Result<Vec<Enough>> {
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
        // Whole and at most COUNT_MAX by now.
        found.push(Enough {
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
