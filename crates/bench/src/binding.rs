//! What binds a result: the stage that was at its limit while the others had room, with its
//! evidence.

use std::time::Duration;

use record::{Binding, Stage};

use crate::measure::Sample;

/// A share of a limit above which that limit binds.
const AT_LIMIT: f64 = 0.9;
/// A processor this busy has nothing left to give.
const CPU_FULL: f64 = 0.88;

/// Others' use of the processors, in cores, that the evidence names. Part of it is the system's own
/// work for us.
const OTHERS_SHOWN: f64 = 0.2;

/// What is known about a cell besides its samples.
#[derive(Debug, Clone, Copy)]
pub struct Circumstances {
    /// Speed over the pace of all nodes that the route uses.
    pub pace_share: Option<f64>,
    /// Pace of a node in Gbit/s.
    pub pace_gbit_per_s: f64,
    /// Nodes that the route uses.
    pub nodes: usize,
    /// The most that the links on the route carry.
    pub links_gbytes_per_s: Option<f64>,
    /// The speed, in the same unit.
    pub gbytes_per_s: f64,
    /// Operations per second that were asked for.
    pub rate: Option<f64>,
    /// Loops of the client.
    pub loops: usize,
    /// Operations in flight.
    pub in_flight: u64,
    /// Mean latency in microseconds.
    pub mean_us: f64,
    /// Operations per second.
    pub iops: f64,
}

fn mean(samples: &[Sample], of: impl Fn(&Sample) -> f64) -> f64 {
    samples.iter().map(of).sum::<f64>() / samples.len().max(1) as f64
}

/// Names the binding limit.
#[must_use]
pub fn binding(samples: &[Sample], known: &Circumstances) -> Binding {
    given(known).or_else(|| processors(samples, known)).unwrap_or_else(|| slots(samples, known))
}

/// A limit that the experiment gives: its pace, its links, its rate.
fn given(known: &Circumstances) -> Option<Binding> {
    if let Some(share) = known.pace_share
        && share >= AT_LIMIT
    {
        let of = if known.nodes == 1 { "the pace of node 1" } else { "the pace of each node" };
        let evidence = format!("{of}: {:.0} % of {} Gbit/s", share * 100.0, known.pace_gbit_per_s);
        return Some(Binding::new(Stage::Pace, evidence));
    }
    if let Some(limit) = known.links_gbytes_per_s
        && known.gbytes_per_s >= AT_LIMIT * limit
    {
        let share = known.gbytes_per_s / limit * 100.0;
        let evidence = format!("{share:.0} % of the {} Gbit/s that its links carry", limit * 8.0);
        return Some(Binding::new(Stage::Link, evidence));
    }
    let rate = known.rate.filter(|rate| known.iops >= AT_LIMIT * rate)?;
    let share = known.iops / rate * 100.0;
    let evidence = format!("{share:.0} % of the {rate:.0} operations a second that were asked for");
    Some(Binding::new(Stage::Rate, evidence))
}

/// Processors with nothing left to give: the machine's, or those that the client's loops can use.
fn processors(samples: &[Sample], known: &Circumstances) -> Option<Binding> {
    let cpus = crate::machine::cpus();
    let used = mean(samples, |sample| sample.busy.busy + sample.busy.stolen);
    let cores = |cpu: Duration, sample: &Sample| cpu.as_secs_f64() / sample.window.as_secs_f64().max(1e-9);
    let client = mean(samples, |sample| cores(sample.client_cpu, sample));
    if used >= CPU_FULL {
        // Somebody's server does not run here: its processors are not in the figure.
        let known_server = samples.iter().all(|sample| sample.server_cpu.is_some());
        let server = mean(samples, |sample| cores(sample.server_cpu.unwrap_or_default(), sample));
        let others = (used * cpus as f64 - client - server).max(0.0);
        let evidence = format!(
            "{} at {:.0} % (client {client:.2}{}{} cores)",
            if cpus == 2 { "both cores".to_owned() } else { format!("all {cpus} cores") },
            used * 100.0,
            if known_server { format!(", server {server:.2}") } else { String::new() },
            if others >= OTHERS_SHOWN { format!(", others {others:.2}") } else { String::new() }
        );
        return Some(Binding::new(Stage::Cpu, evidence));
    }
    let evidence = format!("{} client loops use {client:.2} cores", known.loops);
    (client >= CPU_FULL * known.loops as f64).then(|| Binding::new(Stage::ClientCpu, evidence))
}

/// Little's law: so many in flight, each for so long in the mean, is just this rate.
fn slots(samples: &[Sample], known: &Circumstances) -> Binding {
    let evidence = format!(
        "{} in flight at {:.0} us in the mean allow {:.0} operations a second, {:.0} were done; cores {:.0} % busy",
        known.in_flight,
        known.mean_us,
        known.in_flight as f64 / (known.mean_us.max(1e-3) / 1e6),
        known.iops,
        mean(samples, |sample| sample.busy.busy) * 100.0
    );
    Binding::new(Stage::Slots, evidence)
}
