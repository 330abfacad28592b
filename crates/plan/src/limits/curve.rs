//! How the limit grows as clients, drives, paths or tasks are added, and where another stage
//! becomes binding.

use super::topology::Topology;
use super::{Bound, check, limits};
use crate::Scheme;
use crate::error::{Error, Result, refuse};
use serde::Serialize;
use std::fmt;
use std::str::FromStr;

/// The maximum number of points of a curve.
const POINTS_MAX: u32 = 10_000;

/// What is added along the curve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Axis {
    /// The number of clients.
    Clients,
    /// The number of drives of each array.
    Drives,
    /// The number of server ports in use, one node after another.
    Paths,
    /// The number of tasks of each client.
    Tasks,
    /// The number of arrays or nodes.
    Nodes,
}

impl Axis {
    const ALL: [Self; 5] = [Self::Clients, Self::Drives, Self::Paths, Self::Tasks, Self::Nodes];

    /// The name in options.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Clients => "clients",
            Self::Drives => "drives",
            Self::Paths => "paths",
            Self::Tasks => "tasks",
            Self::Nodes => "nodes",
        }
    }
}

impl fmt::Display for Axis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Axis {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if let Some(axis) = Self::ALL.into_iter().find(|axis| axis.name() == text) {
            return Ok(axis);
        }
        let singular = Self::ALL
            .into_iter()
            .find(|axis| axis.name().trim_end_matches('s') == text.trim_end_matches('s'));
        refuse(
            format!("cannot draw a curve over {text}"),
            "a curve goes over clients, drives, paths, tasks or nodes",
            "docs/MODEL.md, curves",
            format!("--curve {}", singular.unwrap_or(Self::Clients)),
        )
    }
}

/// A curve.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Curve {
    /// What is added.
    pub over: Axis,
    /// The limit for each number.
    pub points: Vec<Point>,
}

/// The limit for one number.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Point {
    /// The number.
    pub count: u32,
    /// The limit of reading.
    pub read: Bound,
    /// The limit of writing.
    pub write: Bound,
}

/// The limit for numbers from 1 to `to`. If `to` is absent, the curve ends at the topology's
/// number, or a little beyond the last change of the limit.
///
/// # Errors
/// An invalid topology, or one that lacks what is to be added.
pub fn curve(topology: &Topology, over: Axis, to: Option<u32>) -> Result<Curve> {
    limits(topology)?;
    let numbers = numbers(topology, over, to)?;
    let mut points = Vec::with_capacity(numbers.len());
    for count in numbers {
        let found = limits(&with(topology, over, count))?;
        points.push(Point { count, read: found.read, write: found.write });
    }
    Ok(Curve { over, points })
}

fn numbers(topology: &Topology, over: Axis, to: Option<u32>) -> Result<Vec<u32>> {
    let (usual, most) = extent(topology, over)?;
    let to = to.unwrap_or(usual);
    if !(1..=most).contains(&to) {
        return refuse(
            format!("cannot draw a curve to {to} {over}"),
            format!("this topology can have 1 to {most} {over}"),
            "docs/MODEL.md, curves",
            format!("--to {}", to.clamp(1, most)),
        );
    }
    let all = 1..=to;
    let Some(raid) = topology.raid.as_ref().filter(|_| over == Axis::Drives) else {
        return Ok(all.collect());
    };
    let is_ef600 = topology.controller.as_ref().is_some_and(|controller| controller.model.is_some());
    let takes = |count: &u32| {
        if is_ef600 || matches!(raid.scheme, Scheme::Coded { .. }) {
            // A pool of 11 drives can be sized, but not laid out evenly.
            crate::size::check_drives(raid.scheme, i64::from(*count)).is_ok() && !(is_ef600 && count % 2 == 1)
        } else {
            true
        }
    };
    let numbers: Vec<_> = all.filter(takes).collect();
    if numbers.is_empty() {
        crate::size::check_drives(raid.scheme, i64::from(to))?;
    }
    Ok(numbers)
}

/// The default and the maximum end of a curve.
fn extent(topology: &Topology, over: Axis) -> Result<(u32, u32)> {
    let missing = |what: &str, nearest: &str| {
        refuse(
            format!("cannot draw a curve over {over}"),
            format!("the topology has no {what}"),
            "docs/MODEL.md, curves",
            nearest.to_owned(),
        )
    };
    let (server, clients) = (topology.server.as_ref(), topology.clients.as_ref());
    match over {
        Axis::Clients => Ok((clients.map_or(1, |clients| clients.count.clamp(10, 64)), POINTS_MAX)),
        Axis::Tasks => Ok((clients.and_then(|clients| clients.tasks).unwrap_or(8).clamp(8, 64), POINTS_MAX)),
        Axis::Nodes => Ok((server.map_or(1, |server| server.nodes.max(8)), POINTS_MAX)),
        Axis::Paths => {
            let ports = server.map_or(1, |server| server.nodes.saturating_mul(server.ports)).min(POINTS_MAX);
            Ok((ports, ports))
        }
        Axis::Drives => match &topology.drives {
            None => missing("[drives]", "--drives 24 --scheme ddp        or --curve clients"),
            Some(drives) => {
                let is_ef600 =
                    topology.controller.as_ref().is_some_and(|controller| controller.model.is_some());
                let slots = check::slots();
                Ok(if is_ef600 { (slots, slots) } else { (drives.count.clamp(8, POINTS_MAX), POINTS_MAX) })
            }
        },
    }
}

fn with(topology: &Topology, over: Axis, count: u32) -> Topology {
    let mut changed = topology.clone();
    match (over, changed.clients.as_mut(), changed.server.as_mut(), changed.drives.as_mut()) {
        (Axis::Clients, Some(clients), _, _) => clients.count = count,
        (Axis::Tasks, Some(clients), _, _) => clients.tasks = Some(count),
        (Axis::Paths, Some(clients), _, _) => clients.paths = Some(count),
        (Axis::Nodes, clients, Some(server), _) => {
            server.nodes = count;
            // A given number of paths may not exist with fewer nodes.
            if let Some(clients) = clients {
                clients.paths = clients.paths.map(|paths| paths.min(count.saturating_mul(server.ports)));
            }
        }
        (Axis::Drives, _, _, Some(drives)) => drives.count = count,
        _ => {}
    }
    changed
}
