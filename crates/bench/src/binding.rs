//! What binds a result: the stage that was at its limit while the others had room, with its evidence.

use record::{Binding, Stage};

use crate::measure::Sample;

/// A share of a limit above which that limit binds.
const AT_LIMIT: f64 = 0.9;
/// A processor this busy has nothing left to give.
const CPU_FULL: f64 = 0.88;

/// Others' use of the processors, in cores, that the evidence names. Part of it is the system's own work for us.
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
    /// Speed over the link's.
    pub link_share: Option<f64>,
    /// Loops of the client.
    pub loops: usize,
    /// Operations in flight.
    pub in_flight: u64,
    /// Median latency in microseconds.
    pub p50_us: f64,
    /// Operations per second.
    pub iops: f64,
}

fn mean(samples: &[&Sample], of: impl Fn(&Sample) -> f64) -> f64 {
    samples.iter().map(|sample| of(sample)).sum::<f64>() / samples.len().max(1) as f64
}

/// Names the binding limit.
#[must_use]
pub fn binding(samples: &[&Sample], known: &Circumstances) -> Binding {
    if let Some(share) = known.pace_share
        && share >= AT_LIMIT
    {
        let of = if known.nodes == 1 {
            "the pace of node 1".to_owned()
        } else {
            "the pace of each node".to_owned()
        };
        let evidence = format!("{of}: {:.0} % of {} Gbit/s", share * 100.0, known.pace_gbit_per_s);
        return Binding::new(Stage::Pace, evidence);
    }
    if let Some(share) = known.link_share
        && share >= AT_LIMIT
    {
        return Binding::new(Stage::Link, format!("{:.0} % of the link's speed", share * 100.0));
    }
    let cpus = crate::machine::cpus() as f64;
    let busy = mean(samples, |sample| sample.busy.busy);
    let stolen = mean(samples, |sample| sample.busy.stolen);
    let cores = |cpu: f64, sample: &Sample| cpu / sample.window.as_secs_f64().max(1e-9);
    let client = mean(samples, |sample| cores(sample.client_cpu.as_secs_f64(), sample));
    // Somebody's server does not run here: its processors are not in the figure.
    let known_server = samples.iter().all(|sample| sample.server_cpu.is_some());
    let server = mean(samples, |sample| cores(sample.server_cpu.unwrap_or_default().as_secs_f64(), sample));
    let others = ((busy + stolen) * cpus - client - server).max(0.0);
    if busy + stolen >= CPU_FULL {
        let which = if cpus as usize == 2 { "both cores".to_owned() } else { format!("all {cpus} cores") };
        let evidence = format!(
            "{which} at {:.0} % (client {client:.2}{}{} cores)",
            (busy + stolen) * 100.0,
            if known_server { format!(", server {server:.2}") } else { String::new() },
            if others >= OTHERS_SHOWN { format!(", others {others:.2}") } else { String::new() }
        );
        return Binding::new(Stage::Cpu, evidence);
    }
    if client >= CPU_FULL * known.loops as f64 {
        return Binding::new(Stage::ClientCpu, format!("{} client loops use {client:.2} cores", known.loops));
    }
    // Little's law: so many in flight, each for so long, is just this rate.
    let by_slots = known.in_flight as f64 / (known.p50_us.max(1e-3) / 1e6);
    let evidence = format!(
        "{} in flight at {:.0} us allow {:.0} operations a second, {:.0} were done; cores {:.0} % busy",
        known.in_flight,
        known.p50_us,
        by_slots,
        known.iops,
        busy * 100.0
    );
    Binding::new(Stage::Slots, evidence)
}
