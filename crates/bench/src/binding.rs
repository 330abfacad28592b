//! Finds what binds a result: the resource that was at its limit while the others had capacity
//! left. Each finding states its evidence. Where nothing that is seen was at its limit, the finding
//! is `slots`, until [`steps`] has compared the steps of the workload.

pub mod steps;

use std::time::Duration;

use record::{Binding, Stage, number};

use crate::measure::Sample;

/// The share of a limit from which on that limit binds.
const AT_LIMIT: f64 = 0.9;
/// The share of busy time from which on a processor counts as full.
const CPU_FULL: f64 = 0.88;

/// The evidence names this many clients.
const NAMES_MAX: usize = 4;
/// The evidence mentions processor time of other programs from this many cores on. Less is usual,
/// because part of the system's work for this benchmark is counted there too.
const OTHERS_SHOWN: f64 = 0.2;

/// The properties of a cell other than its samples.
#[derive(Debug, Clone, Copy)]
pub struct BindingContext {
    /// The speed relative to the total pace of the nodes that the route uses.
    pub pace_share: Option<f64>,
    /// The pace of a node in Gbit/s.
    pub pace_gbit_per_s: f64,
    /// The number of nodes that the route uses.
    pub nodes: usize,
    /// The maximum throughput of the links on the route.
    pub links_gbytes_per_s: Option<f64>,
    /// The measured throughput.
    pub gbytes_per_s: f64,
    /// The requested operations per second.
    pub rate: Option<f64>,
    /// The number of event loops of the client.
    pub loops: usize,
    /// The number of operations in flight.
    pub in_flight: u64,
    /// The mean latency in microseconds.
    pub mean_us: f64,
    /// The measured operations per second.
    pub iops: f64,
}

fn mean(samples: &[Sample], of: impl Fn(&Sample) -> f64) -> f64 {
    samples.iter().map(of).sum::<f64>() / samples.len().max(1) as f64
}

/// Finds the binding limit. `slots` holds only after [`steps::judge`].
#[must_use]
pub fn binding(samples: &[Sample], context: &BindingContext) -> Binding {
    set_by_experiment(context)
        .or_else(|| processors(samples, context))
        .unwrap_or_else(|| slots(samples, context))
}

/// A limit set by the experiment: its pace, its links or its rate.
fn set_by_experiment(context: &BindingContext) -> Option<Binding> {
    if let Some(share) = context.pace_share
        && share >= AT_LIMIT
    {
        let of = if context.nodes == 1 { "the pace of node 1" } else { "the pace of each node" };
        let evidence = format!("{of}: {:.0} % of {} Gbit/s", share * 100.0, context.pace_gbit_per_s);
        return Some(Binding::new(Stage::Pace, evidence));
    }
    if let Some(limit) = context.links_gbytes_per_s
        && context.gbytes_per_s >= AT_LIMIT * limit
    {
        let share = context.gbytes_per_s / limit * 100.0;
        let evidence = format!("{share:.0} % of the {} Gbit/s that its links carry", limit * 8.0);
        return Some(Binding::new(Stage::Link, evidence));
    }
    let rate = context.rate.filter(|rate| context.iops >= AT_LIMIT * rate)?;
    let share = context.iops / rate * 100.0;
    let evidence = format!("{share:.0} % of the {rate:.0} operations a second that were asked for");
    Some(Binding::new(Stage::Rate, evidence))
}

/// Full processors of clients on other machines, or of the machine of an embedded group.
fn processors_of_clients(samples: &[Sample]) -> Option<Binding> {
    let clients = samples.first().map(|sample| sample.clients.as_slice()).unwrap_or_default();
    let busy = |index: usize| {
        mean(samples, |sample| {
            sample.clients.get(index).map_or(0.0, |client| client.busy.busy + client.busy.stolen)
        })
    };
    let of_clients = || clients.iter().enumerate().map(|(index, client)| (client.name.as_str(), busy(index)));
    let full: Vec<(&str, f64)> = of_clients().filter(|(_, busy)| *busy >= CPU_FULL).collect();
    // The others would have to make up for one full client, and cannot for half of them.
    if !full.is_empty() && 2 * full.len() >= clients.len() {
        let names: Vec<&str> = full.iter().map(|(name, _)| *name).take(NAMES_MAX).collect();
        let more = if full.len() > NAMES_MAX { ", ..." } else { "" };
        let least = full.iter().map(|(_, busy)| *busy).fold(1.0, f64::min) * 100.0;
        let evidence = format!(
            "{} of {} clients use at least {least:.0} % of their processors ({}{more})",
            full.len(),
            clients.len(),
            names.join(", ")
        );
        return Some(Binding::new(Stage::ClientCpu, evidence));
    }
    let is_embedded = samples.iter().all(|sample| sample.server_cpu.is_some());
    let used = mean(samples, |sample| sample.busy.busy + sample.busy.stolen);
    let evidence = || format!("the machine of the nodes uses {:.0} % of its processors", used * 100.0);
    (is_embedded && used >= CPU_FULL).then(|| Binding::new(Stage::NodeCpu, evidence()))
}

/// Full processors: all of the machine's, or those that the client's loops can use.
fn processors(samples: &[Sample], context: &BindingContext) -> Option<Binding> {
    let elsewhere = |sample: &Sample| sample.clients.iter().any(|client| !client.is_here);
    if samples.iter().any(elsewhere) {
        return processors_of_clients(samples);
    }
    let cpus = crate::machine::cpus();
    let used = mean(samples, |sample| sample.busy.busy + sample.busy.stolen);
    let cores = |cpu: Duration, sample: &Sample| cpu.as_secs_f64() / sample.window.as_secs_f64().max(1e-9);
    let client = mean(samples, |sample| cores(sample.client_cpu, sample));
    if used >= CPU_FULL {
        // The processor time of an external server is unknown, because it runs elsewhere.
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
    let evidence = format!("{} client loops use {client:.2} cores", context.loops);
    (client >= CPU_FULL * context.loops as f64).then(|| Binding::new(Stage::ClientCpu, evidence))
}

/// By Little's law, this many operations in flight with this mean latency yield just this rate.
fn slots(samples: &[Sample], context: &BindingContext) -> Binding {
    let evidence = format!(
        "{} in flight at {} in the mean allow {:.0} operations a second, {:.0} were done; cores {:.0} % busy",
        context.in_flight,
        number::duration(context.mean_us),
        context.in_flight as f64 / (context.mean_us.max(1e-3) / 1e6),
        context.iops,
        mean(samples, |sample| sample.busy.busy) * 100.0
    );
    Binding::new(Stage::Slots, evidence)
}
