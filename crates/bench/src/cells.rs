//! Turns samples into the cells of a record.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use record::{
    Cell, ClientResult, Direction, Latency, LatencyCounts, LatencyOverTime, Pace, PortCounters, Repeat,
    RepeatThroughput, Throughput, Workload, stats,
};

use crate::binding::{BindingContext, binding};
use crate::experiment::{Experiment, Target};
use crate::measure::{ClientPart, Flow, Sample};
use crate::workload::PlannedWorkload;

/// The properties of a cell other than its samples.
#[derive(Debug)]
pub struct CellContext<'a> {
    /// The workload.
    pub workload: &'a PlannedWorkload,
    /// The pace of each node.
    pub pace: Option<Pace>,
    /// The node to which each path leads.
    pub nodes_of_paths: &'a [usize],
    /// The number of nodes that the route uses.
    pub nodes: usize,
    /// The number of nodes of the target.
    pub all_nodes: usize,
    /// The number of event loops of the client.
    pub loops: usize,
    /// The calibrated limit in GB/s, of both directions together.
    pub calibrated: Option<f64>,
    /// The maximum throughput of the links on the route.
    pub links_gbytes_per_s: Option<f64>,
    /// When the experiment began.
    pub began: Instant,
    /// Whether to state if the results are steady.
    pub thorough: bool,
}

/// The experiment in the form of the record.
#[must_use]
pub fn describe(experiment: &Experiment) -> record::Experiment {
    let mut targets: Vec<String> = Vec::new();
    for target in experiment.routes.iter().map(|route| route.target(experiment)) {
        let described = target.to_string();
        if !targets.contains(&described) {
            targets.push(described);
        }
    }
    // A directory has none that are known here.
    let mounted = experiment
        .routes
        .iter()
        .filter(|route| !matches!(route.target(experiment), Target::Directory(_) | Target::Kernel(_)))
        .map(|route| route.connections(experiment));
    let connections = mounted.max().unwrap_or(0);
    record::Experiment {
        name: experiment.name.clone(),
        procedure: experiment.procedure,
        target: targets.join(", "),
        repeats: experiment.repeats,
        connections,
        workloads: experiment.planned().into_iter().map(|workload| workload.shape).collect(),
    }
}

/// The value of the option `nconnect`.
#[must_use]
pub fn connections(options: &str) -> u32 {
    options.split(',').find_map(|option| option.strip_prefix("nconnect=")?.parse().ok()).unwrap_or(1)
}

/// The choices of the experiment, as text.
#[must_use]
pub fn options(experiment: &Experiment, congestion: Option<&str>) -> BTreeMap<String, String> {
    let mut options = BTreeMap::from([
        ("warm_ms".into(), experiment.warm.as_millis().to_string()),
        ("window_ms".into(), experiment.window.as_millis().to_string()),
        ("paced_window_ms".into(), experiment.paced_window.as_millis().to_string()),
        ("repeats".into(), experiment.repeats.to_string()),
    ]);
    let each = experiment.routes.iter().map(|route| (&route.name, route.connections(experiment)));
    let each: Vec<(&String, u32)> = each.collect();
    if each.iter().any(|(_, number)| Some(*number) != each.first().map(|(_, first)| *first)) {
        // More connections are an advantage too, and a verdict cannot tell it from that of more
        // paths.
        let each: Vec<String> = each.iter().map(|(name, number)| format!("{name}: {number}")).collect();
        options.insert("connections".into(), each.join(", "));
    }
    if let Some(congestion) = congestion {
        options.insert("congestion".into(), congestion.into());
    }
    if let Some(pace) = experiment.pace_bits_per_s {
        options.insert("pace_gbit_per_s_per_node".into(), (pace as f64 / 1e9).to_string());
    }
    let links = [
        ("link_gbit_per_s_per_node", experiment.links.node_bits_per_s),
        ("client_link_gbit_per_s", experiment.links.client_bits_per_s),
    ];
    for (name, bits) in links {
        if let Some(bits) = bits {
            options.insert(name.into(), (bits as f64 / 1e9).to_string());
        }
    }
    if let Some(mtu) = experiment.links.mtu {
        options.insert("mtu".into(), mtu.to_string());
    }
    options
}

/// Builds the cells of one workload on one route.
#[must_use]
pub fn build(context: &CellContext<'_>, samples: &[Sample]) -> Workload {
    let total: f64 = samples.iter().map(bytes_per_s).sum();
    let cell = |flow: fn(&Sample) -> Option<&Flow>, direction: usize| -> Option<Cell> {
        let flows: Vec<&Flow> = samples.iter().filter_map(flow).collect();
        let share = flows.iter().map(|flow| flow.bytes_per_s).sum::<f64>() / total.max(1.0);
        (!flows.is_empty()).then(|| cell_of(context, samples, &flows, direction, share))
    };
    Workload {
        name: context.workload.name().to_owned(),
        step: context.workload.step.clone(),
        pace: context.pace,
        clients: clients(samples),
        read: cell(|sample| sample.read.as_ref(), 0),
        write: cell(|sample| sample.write.as_ref(), 1),
        longest_gap_ms: samples
            .iter()
            .filter_map(|sample| sample.longest_gap)
            .max()
            .map(|gap| gap.as_secs_f64() * 1e3),
        ports: ports(samples),
        ..Workload::default()
    }
}

/// Names the clients that are lost, each with the reason. Without a complete repeat the workload
/// was not measured.
pub fn mark_lost(workload: &mut Workload, lost: &[(String, String)]) {
    for (name, reason) in lost {
        let known = workload.clients.iter_mut().find(|client| client.name == *name);
        match known {
            Some(client) => client.lost = Some(reason.clone()),
            None => workload.clients.push(ClientResult {
                name: name.clone(),
                lost: Some(reason.clone()),
                ..ClientResult::default()
            }),
        }
    }
    if let (None, None, Some((name, reason))) = (&workload.read, &workload.write, lost.first()) {
        workload.skipped = Some(format!("client {name} is lost: {reason}"));
    }
}

/// Each client's part of all repeats.
fn clients(samples: &[Sample]) -> Vec<ClientResult> {
    let first = samples.first().map(|sample| sample.clients.as_slice()).unwrap_or_default();
    let of_client = |(index, client): (usize, &ClientPart)| {
        let parts = || samples.iter().filter_map(|sample| sample.clients.get(index));
        let longest = |of: fn(&ClientPart) -> Duration| parts().map(of).max().unwrap_or_default();
        let median = |of: fn((Duration, Duration)) -> Duration| {
            let ends: Vec<f64> = parts().filter_map(|part| Some(of(part.done?).as_secs_f64())).collect();
            stats::median(&ends)
        };
        ClientResult {
            name: client.name.clone(),
            version: client.version.clone(),
            ops: parts().map(|part| part.ops).sum(),
            bytes: parts().map(|part| part.bytes).sum(),
            start_offset_ms: longest(|part| part.start_offset).as_secs_f64() * 1e3,
            clock_error_ms: longest(|part| part.clock_error).as_secs_f64() * 1e3,
            first_done_s: median(|(first, _)| first),
            last_done_s: median(|(_, last)| last),
            ..ClientResult::default()
        }
    };
    let mut clients: Vec<ClientResult> = first.iter().enumerate().map(of_client).collect();
    record::clients::compare(&mut clients);
    clients
}

/// The sum of what each port counted in all repeats.
fn ports(samples: &[Sample]) -> Vec<PortCounters> {
    let mut sums: Vec<PortCounters> = Vec::new();
    for port in samples.iter().flat_map(|sample| &sample.ports) {
        match sums.iter_mut().find(|sum| sum.port == port.port) {
            Some(sum) => sum.add(port),
            None => sums.push(port.clone()),
        }
    }
    sums
}

/// The bytes per second of reads and writes together.
fn bytes_per_s(sample: &Sample) -> f64 {
    let speed = |flow: &Option<Flow>| flow.as_ref().map_or(0.0, |flow| flow.bytes_per_s);
    speed(&sample.read) + speed(&sample.write)
}

/// The cell of one direction. `share` is this direction's part of all bytes moved. Both directions
/// use the same processors, so they share the limit in the same proportion.
fn cell_of(
    context: &CellContext<'_>,
    samples: &[Sample],
    flows: &[&Flow],
    direction: usize,
    share: f64,
) -> Cell {
    let mut latency = Latency::new();
    flows.iter().for_each(|flow| latency.merge(&flow.latency));
    let repeats = samples.iter().zip(flows).map(|(sample, flow)| Repeat {
        gbytes_per_s: flow.bytes_per_s / 1e9,
        iops: flow.iops,
        seconds: flow.span.map_or(0.0, |(first, last)| (last - first).as_secs_f64()),
        bytes: flow.bytes,
        ops: flow.ops,
        began_s: Some(sample.began.saturating_duration_since(context.began).as_secs_f64()),
        p50_us: percentile_us(flow, 0.5),
        p99_us: percentile_us(flow, 0.99),
    });
    let mut cell = Cell::of(repeats.collect(), &latency, 1);
    set_shares(&mut cell, context, samples, direction);
    cell.throughput = throughput(context, samples, flows);
    cell.latency_over_time = latency_over_time(context, samples, flows);
    if context.workload.ends() {
        let ends = |of: fn((Duration, Duration)) -> Duration| {
            let all: Vec<f64> = samples.iter().filter_map(|it| Some(of(it.done?).as_secs_f64())).collect();
            stats::median(&all)
        };
        (cell.first_done_s, cell.last_done_s) = (ends(|(first, _)| first), ends(|(_, last)| last));
    }
    let pace_limit = context.pace.map(|pace| pace.gbytes_per_s(context.nodes));
    let machine = context.calibrated.map(|limit| limit * share);
    if let Some(limit) = pace_limit.or(context.links_gbytes_per_s).or(machine) {
        cell.set_limit(limit);
    }
    if let (Some(machine), None) = (machine, context.pace) {
        cell.set_machine_limit(machine);
    }
    set_cpu(&mut cell, samples);
    if context.thorough {
        cell.steady = stats::steadiness(&cell.speeds()).map(|found| found.is_steady());
    }
    let of = if direction == 0 { Direction::Read } else { Direction::Write };
    let binding_context = BindingContext {
        pace_share: pace_limit.map(|limit| cell.gbytes_per_s / limit),
        pace_gbit_per_s: context.pace.map_or(0.0, |pace| pace.gbit_per_s_per_node),
        nodes: context.nodes,
        links_gbytes_per_s: context.links_gbytes_per_s,
        gbytes_per_s: cell.gbytes_per_s,
        rate: context.workload.rate(of),
        loops: context.loops,
        in_flight: context.workload.in_flight(of),
        mean_us: cell.latency_us.mean.unwrap_or_default(),
        iops: cell.iops,
    };
    cell.binding = binding(samples, &binding_context);
    cell
}

/// A latency percentile of one repeat; absent if no call was made, which is no latency of 0.
fn percentile_us(flow: &Flow, fraction: f64) -> Option<f64> {
    (flow.latency.count() > 0).then(|| flow.latency.percentile_us(fraction))
}

/// Sets the processor time per operation and byte. The time of reads cannot be told from that of
/// writes, so their total is divided by the operations of both.
fn set_cpu(cell: &mut Cell, samples: &[Sample]) {
    let flows = || samples.iter().flat_map(|sample| sample.read.iter().chain(&sample.write));
    let ops = flows().map(|flow| flow.finished).sum();
    let bytes = flows().map(|flow| flow.finished_bytes).sum();
    let client = samples.iter().map(|sample| sample.client_cpu).sum();
    let server = samples.iter().map(|sample| sample.server_cpu).sum::<Option<Duration>>();
    cell.set_cpu(client, server, ops, bytes);
}

/// The bytes of each repeat over time.
fn throughput(context: &CellContext<'_>, samples: &[Sample], flows: &[&Flow]) -> Option<Throughput> {
    if flows.iter().all(|flow| flow.series.is_empty()) {
        return None;
    }
    let repeats = samples.iter().zip(flows).map(|(sample, flow)| RepeatThroughput {
        began_s: counted_from_s(context, sample),
        bytes: flow.series.clone(),
    });
    Some(Throughput { interval_ms: interval_ms(samples.first()?), repeats: repeats.collect() })
}

/// The latencies of each repeat over time.
fn latency_over_time(
    context: &CellContext<'_>,
    samples: &[Sample],
    flows: &[&Flow],
) -> Option<LatencyOverTime> {
    let repeats = samples.iter().zip(flows);
    let repeats: Vec<(f64, &LatencyCounts)> =
        repeats.map(|(sample, flow)| (counted_from_s(context, sample), &flow.latencies)).collect();
    LatencyOverTime::of(interval_ms(samples.first()?), &repeats)
}

/// When counting began, in seconds since the experiment's start.
fn counted_from_s(context: &CellContext<'_>, sample: &Sample) -> f64 {
    let began = sample.began.saturating_duration_since(context.began) + sample.counted.warm;
    began.as_secs_f64()
}

fn interval_ms(sample: &Sample) -> f64 {
    sample.counted.interval().as_secs_f64() * 1e3
}

fn set_shares(cell: &mut Cell, context: &CellContext<'_>, samples: &[Sample], direction: usize) {
    let mut by_path = vec![0_u64; context.nodes_of_paths.len()];
    for sample in samples {
        let of_sample = sample.bytes_by_path.get(direction).map(Vec::as_slice).unwrap_or_default();
        for (sum, bytes) in by_path.iter_mut().zip(of_sample) {
            *sum += bytes;
        }
    }
    let mut by_node = vec![0_u64; context.all_nodes];
    for (bytes, node) in by_path.iter().zip(context.nodes_of_paths) {
        if let Some(sum) = by_node.get_mut(*node) {
            *sum += bytes;
        }
    }
    cell.set_shares(&by_node, &by_path);
}

#[cfg(test)]
mod tests;
