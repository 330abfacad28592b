//! A record arranged for display: a block per workload, with a group per half, with a row per
//! route.
//!
//! All renderers share this arrangement and its sentences, so that they cannot contradict each
//! other.

use std::collections::{BTreeMap, BTreeSet};

use record::{
    Binding, Comparison, Direction, Half, Measure, Pace, PathCounters, PortCounters, Record, Route, Shape,
    Stage, Verdict, Workload, stats,
};

use crate::number;

/// For blocks up to this size operations per second matter; for larger ones, bytes per second.
pub(crate) const SMALL_BLOCK_BYTES_MAX: u64 = 16 << 10;

/// The results of one workload.
pub(crate) struct Block<'a> {
    /// The heading, with the connections of the routes.
    pub(crate) title: String,
    /// The same without them.
    pub(crate) shape: String,
    /// The size of each file.
    pub(crate) file_bytes: Option<u64>,
    /// Whether operations per second are shown beside the speed.
    pub(crate) shows_iops: bool,
    pub(crate) groups: Vec<Group<'a>>,
}

/// The rows that can be compared with each other: one workload under one condition.
pub(crate) struct Group<'a> {
    pub(crate) pace: Option<Pace>,
    pub(crate) simulated: Option<&'a str>,
    pub(crate) rows: Vec<Row<'a>>,
    /// Routes that were measured, but not under this condition, with the reason.
    pub(crate) skipped: Vec<(&'a Route, &'a str)>,
    pub(crate) verdicts: Vec<Finding<'a>>,
}

/// A verdict, and what sets the conditions of its two routes apart, if anything does.
pub(crate) struct Finding<'a> {
    pub(crate) comparison: &'a Comparison,
    pub(crate) note: Option<String>,
}

/// One route in a group.
#[derive(Clone, Copy)]
pub(crate) struct Row<'a> {
    pub(crate) route: &'a Route,
    pub(crate) workload: &'a Workload,
}

/// The record's workloads in the order of the experiment, then any others.
pub(crate) fn blocks(record: &Record) -> Vec<Block<'_>> {
    let mut names: Vec<&str> = record.experiment.workloads.iter().map(|shape| shape.name.as_str()).collect();
    let measured = record.routes.iter().flat_map(|route| &route.workloads);
    for workload in measured {
        if !names.contains(&workload.name.as_str()) {
            names.push(&workload.name);
        }
    }
    let block = |name: &str| {
        let shape = record.experiment.workloads.iter().find(|shape| shape.name == name);
        let groups = groups(record, name);
        let routes = || groups.iter().flat_map(|group| group.rows.iter().map(|row| row.route));
        let titled = |connections: Option<String>| {
            shape.map_or_else(|| name.to_owned(), |shape| title(shape, connections.as_deref()))
        };
        Block {
            title: titled(connections(record, routes())),
            shape: titled(None),
            file_bytes: shape.and_then(|shape| shape.file_bytes),
            shows_iops: shape.is_some_and(|shape| shape.block_bytes <= SMALL_BLOCK_BYTES_MAX),
            groups,
        }
    };
    names.into_iter().map(block).filter(|block| !block.groups.is_empty()).collect()
}

fn several(count: impl Into<u64>, what: &str) -> String {
    let count = count.into();
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// The connections of routes: `8 connections`; where they differ, what most of them have, and then
/// the others: `4 connections (kernel rdma: 1; a: a directory)`. `None` if none is known.
pub(crate) fn connections<'a>(record: &Record, routes: impl Iterator<Item = &'a Route>) -> Option<String> {
    let mut found: Vec<(Option<u32>, Vec<&str>)> = Vec::new();
    for route in routes {
        let known = record.connections(route);
        match found.iter_mut().find(|(count, _)| *count == known) {
            Some((_, names)) if names.contains(&&*route.name) => {}
            Some((_, names)) => names.push(&route.name),
            None => found.push((known, vec![&route.name])),
        }
    }
    let known = found.iter().filter_map(|(count, names)| Some(((*count)?, names.len())));
    // Of as many routes, those with the most connections.
    let (most, _) = known.max_by_key(|(count, routes)| (*routes, *count))?;
    let others = found.iter().filter(|(count, _)| *count != Some(most)).map(|(count, names)| {
        let what = count.map_or_else(|| "a directory".to_owned(), |count| count.to_string());
        format!("{}: {what}", names.join(", "))
    });
    let others = others.collect::<Vec<_>>().join("; ");
    let most = several(most, "connection");
    Some(if others.is_empty() { most } else { format!("{most} ({others})") })
}

/// The workload in one line: `mix-1m: 10 readers and 10 writers at once, 1 MiB blocks, depth 16,
/// ...`.
pub(crate) fn title(shape: &Shape, connections: Option<&str>) -> String {
    let mut who: Vec<String> = [(shape.readers, "reader"), (shape.writers, "writer")]
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| several(count, what))
        .collect();
    if shape.mixed > 0 {
        let reads = shape.read_percent.map_or_else(String::new, |percent| format!(" ({percent} % reads)"));
        who.push(format!("{} for both{reads}", several(shape.mixed, "job")));
    }
    let at_once = if who.len() > 1 { " at once" } else { "" };
    let who = format!("{}{at_once}", who.join(" and "));
    let order = match shape.pattern {
        record::Pattern::Sequential => "",
        record::Pattern::Random => "random ",
    };
    let mut title = format!(
        "{}: {who}, {order}{} blocks, depth {}",
        shape.name,
        number::bytes(shape.block_bytes),
        shape.depth
    );
    if let Some(connections) = connections {
        title.push_str(&format!(", {connections}"));
    }
    if let Some(rate) = shape.rate_ops_per_s {
        title
            .push_str(&format!(", {} operations a second asked for", number::thousands(rate.round() as u64)));
    }
    if let Some(note) = &shape.note {
        title.push_str(&format!(", {note}"));
    }
    title
}

/// Mount options that name addresses, which differ between machines though the route is the same.
/// How many there are is counted by the paths.
const ADDRESS_OPTIONS: [&str; 7] =
    ["addr", "clientaddr", "localports", "mountaddr", "mountport", "port", "remoteports"];

/// What must be the same of a route that is compared between records: its options, the number of
/// its paths and nodes, and how a directory was accessed, by which engine.
pub(crate) fn route_conditions(route: &Route) -> String {
    let name = |option: &&str| !ADDRESS_OPTIONS.contains(&option.split('=').next().unwrap_or_default());
    let mut options: Vec<&str> = route.options.split(',').filter(|it| !it.is_empty()).filter(name).collect();
    options.sort_unstable();
    let nodes: BTreeSet<&str> = route.paths.iter().filter_map(|path| remote_host(path)).collect();
    let mut conditions = vec![options.join(",")];
    let asked = options.iter().find_map(|option| option.strip_prefix("nconnect=")?.parse().ok()).unwrap_or(1);
    // Said only where the options do not say the same, as in records without this number.
    let used = route.connections.filter(|used| *used != asked);
    conditions.extend(used.map(|used| several(used, "connection")));
    if !route.paths.is_empty() {
        let (paths, nodes) = (several(route.paths.len() as u64, "path"), several(nodes.len() as u64, "node"));
        conditions.push(format!("{paths} to {nodes}"));
    }
    conditions.extend(route.access.as_deref().map(access_conditions));
    conditions.retain(|part| !part.is_empty());
    conditions.join(", ")
}

/// How a directory was accessed, whatever its file system is called there: `O_DIRECT, by our
/// threads` of `O_DIRECT on ext4, by our threads, on each client`.
fn access_conditions(access: &str) -> String {
    let parts = access.split_once(" on ").and_then(|(io, rest)| {
        let by = rest.split(", ").find(|part| part.starts_with("by "))?;
        Some(format!("{io}, {by}"))
    });
    // Clients that differ are listed one by one.
    parts.filter(|_| !access.contains("; ")).unwrap_or_else(|| access.to_owned())
}

/// The host at the remote end of a path: `tcp 10.0.0.9 -> 10.0.0.1:2049`.
pub(crate) fn remote_host(path: &str) -> Option<&str> {
    let remote = path.split_whitespace().next_back()?;
    Some(remote.rsplit_once(':').map_or(remote, |(host, _)| host))
}

fn groups<'a>(record: &'a Record, name: &str) -> Vec<Group<'a>> {
    let mut groups: Vec<Group<'a>> = Vec::new();
    for route in &record.routes {
        let measured = |workload: &&Workload| workload.name == name && workload.skipped.is_none();
        for workload in route.workloads.iter().filter(measured) {
            let (pace, simulated) = (workload.pace, workload.simulated.as_deref());
            let row = Row { route, workload };
            match groups.iter_mut().find(|group| group.pace == pace && group.simulated == simulated) {
                Some(group) => group.rows.push(row),
                None => groups.push(Group {
                    pace,
                    simulated,
                    rows: vec![row],
                    skipped: Vec::new(),
                    verdicts: Vec::new(),
                }),
            }
        }
    }
    for route in &record.routes {
        for workload in route.workloads.iter().filter(|workload| workload.name == name) {
            let Some(why) = &workload.skipped else { continue };
            let (skipped, pace) = (vec![(route, why.as_str())], workload.pace);
            match groups.iter_mut().find(|group| group.pace == pace) {
                Some(group) => group.skipped.extend(skipped),
                None => {
                    groups.push(Group {
                        pace,
                        simulated: None,
                        rows: Vec::new(),
                        skipped,
                        verdicts: Vec::new(),
                    });
                }
            }
        }
    }
    groups.sort_by_key(|group| group.pace.is_some());
    for comparison in record.verdicts.iter().filter(|verdict| verdict.workload == name) {
        let of =
            |route: &str| groups.iter().position(|group| group.half() == comparison.half && group.has(route));
        let (Some(a), Some(b)) = (of(&comparison.a), of(&comparison.b)) else { continue };
        let simulated = |at: usize| groups.get(at).and_then(|group| group.simulated);
        let note = (a != b).then(|| apart((&comparison.a, simulated(a)), (&comparison.b, simulated(b))));
        // A verdict stands below both of its routes.
        if let Some(group) = groups.get_mut(a.max(b)) {
            group.verdicts.push(Finding { comparison, note });
        }
    }
    groups
}

/// What is simulated on one of two routes and not on the other: `rdma with RDMA in software (rxe1),
/// tcp without`.
fn apart((a, of_a): (&str, Option<&str>), (b, of_b): (&str, Option<&str>)) -> String {
    let (of_a, of_b) = (of_a.unwrap_or_default(), of_b.unwrap_or_default());
    // The words of what both have are at the end: the processor of the machine.
    let beyond = |more: &str, less: &str| -> Option<String> {
        let rest = more.strip_suffix(less)?.trim_end_matches(", ");
        (!rest.is_empty()).then(|| rest.to_owned())
    };
    let only = |with: &str, what: String, without: &str| format!("{with} with {what}, {without} without");
    match (beyond(of_a, of_b), beyond(of_b, of_a)) {
        (Some(what), _) => only(a, what, b),
        (_, Some(what)) => only(b, what, a),
        _ => format!("{a}: {of_a}; {b}: {of_b}"),
    }
}

impl Group<'_> {
    pub(crate) fn half(&self) -> Half {
        if self.pace.is_some() { Half::Paced } else { Half::Raw }
    }

    fn has(&self, route: &str) -> bool {
        self.rows.iter().any(|row| row.route.name == route)
    }

    /// What applies to every number of the group: `paced at 2 Gbit/s a node`; `None` for a raw
    /// group on real hardware.
    pub(crate) fn condition(&self) -> Option<String> {
        let paced = self.pace.map(|pace| format!("paced at {}", number::pace(pace)));
        let simulated = self.simulated.map(|what| format!("simulated: {what}"));
        match (paced, simulated) {
            (Some(paced), Some(simulated)) => Some(format!("{paced}; {simulated}")),
            (paced, simulated) => paced.or(simulated),
        }
    }

    /// The labels of each cell of the group.
    pub(crate) fn labels(&self) -> Vec<&'static str> {
        let paced = self.pace.map(|_| "paced");
        let simulated = self.simulated.map(|_| "simulated");
        paced.into_iter().chain(simulated).collect()
    }

    /// The longest time without a completed call of each route: `tcp 812 ms, tcp-mp 3 ms`; `None`
    /// if unknown.
    pub(crate) fn longest_gaps(&self) -> Option<String> {
        let known = self.rows.iter().filter_map(|row| Some((&row.route.name, row.workload.longest_gap_ms?)));
        let parts: Vec<String> = known.map(|(name, gap)| format!("{name} {}", number::gap(gap))).collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }

    /// What each route moved off paths or sent again: `tcp-mp 14 calls moved to another path, 2
    /// sent again`; `None` if nothing was, and all paths are up.
    pub(crate) fn failovers(&self) -> Option<String> {
        let parts: Vec<String> = self.rows.iter().filter_map(failovers).collect();
        (!parts.is_empty()).then(|| parts.join("; "))
    }

    /// The clients of each route: `tcp 8 clients, 12 to 13 % each; vm7 is a straggler`; `None` if
    /// this machine was the only one.
    pub(crate) fn clients(&self) -> Option<String> {
        let parts: Vec<String> = self.rows.iter().filter_map(clients).collect();
        (!parts.is_empty()).then(|| parts.join("; "))
    }

    /// How each directory was accessed, and what a reader must know about the results: `a O_DIRECT
    /// on ext4, by our threads`; `None` without directories.
    pub(crate) fn access(&self) -> Option<String> {
        let of_row = |row: &Row<'_>| Some(format!("{} {}", row.route.name, row.route.access.as_ref()?));
        let mut parts: Vec<String> = self.rows.iter().filter_map(of_row).collect();
        let mut notes: Vec<(&str, Vec<&str>)> = Vec::new();
        for (name, note) in
            self.rows.iter().filter_map(|row| Some((&row.route.name, row.workload.note.as_ref()?)))
        {
            match notes.iter_mut().find(|(known, _)| known == note) {
                Some((_, names)) => names.push(name),
                None => notes.push((note, vec![name])),
            }
        }
        parts.extend(notes.iter().map(|(note, names)| format!("{}: {note}", names.join(", "))));
        (!parts.is_empty()).then(|| parts.join("; "))
    }

    /// The RDMA port counters of each route: `rdma rxe1/1 9,412 packets out, 9,412 in; tcp
    /// nothing`.
    pub(crate) fn ports(&self) -> Option<String> {
        let parts = |row: &Row<'_>| {
            let ports: Vec<String> = row.workload.ports.iter().filter_map(port).collect();
            let ports = if ports.is_empty() { "nothing".to_owned() } else { ports.join(", ") };
            (!row.workload.ports.is_empty()).then(|| format!("{} {ports}", row.route.name))
        };
        let parts: Vec<String> = self.rows.iter().filter_map(parts).collect();
        (!parts.is_empty()).then(|| parts.join("; "))
    }

    /// The RDMA work of each end per call: `rdma client 2.1 work requests, 1.2 completions, 0.9
    /// interrupts, server ...`.
    pub(crate) fn rdma_work(&self) -> Option<String> {
        let parts: Vec<String> = self.rows.iter().filter_map(rdma_work).collect();
        (!parts.is_empty()).then(|| parts.join("; "))
    }

    /// The greatest speed among the rows, which determines the scale of the bars.
    pub(crate) fn fastest(&self) -> f64 {
        let cells = self.rows.iter().flat_map(|row| row.workload.cells());
        cells.map(|(_, cell)| cell.gbytes_per_s).fold(0.0, f64::max)
    }
}

/// What one route moved off paths or sent again, and its paths that are not up.
fn failovers(row: &Row<'_>) -> Option<String> {
    let sum = |of: fn(&PathCounters) -> u64| {
        row.workload.paths.iter().fold(0_u64, |sum, path| sum.saturating_add(of(path)))
    };
    let mut parts = Vec::new();
    let (moved, again) = (sum(|path| path.failovers), sum(|path| path.retransmissions));
    if moved > 0 {
        parts.push(format!("{} calls moved to another path", number::thousands(moved)));
    }
    if again > 0 {
        parts.push(format!("{} sent again", number::thousands(again)));
    }
    let not_up = row.workload.paths.iter().filter(|path| !matches!(path.state.as_str(), "up" | ""));
    parts.extend(not_up.map(|path| format!("{} is {} at the end", path.path, path.state)));
    (!parts.is_empty()).then(|| format!("{} {}", row.route.name, parts.join(", ")))
}

/// The clients of one route in one sentence.
fn clients(row: &Row<'_>) -> Option<String> {
    let clients = &row.workload.clients;
    let shares: Vec<f64> = clients.iter().map(|client| client.share).collect();
    let least = number::percent(stats::percentile(&shares, 0.0)?);
    let greatest = number::percent(stats::percentile(&shares, 1.0)?);
    let range = if least == greatest { least } else { format!("{least} to {greatest}") };
    let count = if clients.len() == 1 { "1 client".to_owned() } else { format!("{} clients", clients.len()) };
    let mut parts = vec![format!("{} {count}, {range} % each", row.route.name)];
    for client in clients {
        if let Some(why) = &client.lost {
            parts.push(format!("{} was lost: {why}", client.name));
        } else if client.straggler {
            parts.push(format!("{} is a straggler with {} %", client.name, number::percent(client.share)));
        }
    }
    Some(parts.join(", "))
}

/// The RDMA work of one route; `None` for a route that does not use RDMA.
fn rdma_work(row: &Row<'_>) -> Option<String> {
    let calls: u64 = row.workload.paths.iter().map(|path| path.calls).sum();
    let of_end = |(end, counts): (&str, &BTreeMap<String, u64>)| {
        let each = |name: &str| Some(*counts.get(name)? as f64 / calls.max(1) as f64);
        let (work, done) = (each("rdma_work_requests")?, each("rdma_completions")?);
        let woken = each("rdma_interrupts").unwrap_or(0.0);
        Some(format!("{end} {work:.1} work requests, {done:.1} completions, {woken:.1} interrupts"))
    };
    let counters = &row.workload.counters;
    let ends = [("client", &counters.client), ("server", &counters.server)];
    let parts: Vec<String> = ends.into_iter().filter_map(of_end).collect();
    (!parts.is_empty()).then(|| format!("{} {}", row.route.name, parts.join(", ")))
}

/// What a port carried; `None` if it carried nothing.
fn port(port: &PortCounters) -> Option<String> {
    let both = |sent: Option<u64>, received: Option<u64>| {
        let (sent, received) = (sent.unwrap_or(0), received.unwrap_or(0));
        (sent > 0 || received > 0).then_some((sent, received))
    };
    let bytes = both(port.sent_bytes, port.received_bytes).map(|(sent, received)| {
        format!("{} GB out, {} in", number::plain(sent as f64 / 1e9), number::plain(received as f64 / 1e9))
    });
    let packets = both(port.sent_packets, port.received_packets).map(|(sent, received)| {
        format!("{} packets out, {} in", number::thousands(sent), number::thousands(received))
    });
    let parts: Vec<String> = bytes.into_iter().chain(packets).collect();
    (!parts.is_empty()).then(|| format!("{} {}", port.port, parts.join(", ")))
}

impl Row<'_> {
    /// The share of the limit in percent: `55 %`, or `55 / 48 %` if reads and writes differ; `-`
    /// without a limit.
    pub(crate) fn of_limit(&self) -> String {
        let shares: Vec<String> = (self.workload.cells())
            .map(|(_, cell)| cell.limit_share.map_or_else(|| "-".to_owned(), number::percent))
            .collect();
        match shares.as_slice() {
            [read, write] if read != write => format!("{read} / {write} %"),
            [share, ..] if share != "-" => format!("{share} %"),
            _ => "-".to_owned(),
        }
    }

    /// The 99th percentile of the latency: `18 ms`, or `9.0/18 ms` for reads and writes.
    pub(crate) fn p99(&self) -> String {
        let cells = self.workload.cells();
        number::short_durations(&cells.map(|(_, cell)| cell.latency_us.p99).collect::<Vec<_>>())
    }

    /// The fraction of all bytes that each node carried, reads and writes together.
    pub(crate) fn share_by_node(&self) -> Vec<f64> {
        let mut sums: Vec<f64> = Vec::new();
        for (_, cell) in self.workload.cells() {
            sums.resize(sums.len().max(cell.share_by_node.len()), 0.0);
            sums.iter_mut()
                .zip(&cell.share_by_node)
                .for_each(|(sum, share)| *sum += share * cell.gbytes_per_s);
        }
        let total: f64 = sums.iter().sum();
        sums.into_iter().map(|sum| if total > 0.0 { sum / total } else { 0.0 }).collect()
    }

    /// The stage that binds the row, in one or two words.
    pub(crate) fn binds(&self) -> String {
        let mut stages: Vec<&Stage> = self.workload.cells().map(|(_, cell)| &cell.binding.stage).collect();
        stages.dedup();
        stages.into_iter().map(Stage::label).collect::<Vec<_>>().join(" / ")
    }

    /// The evidence for the binding stage, of both directions if they differ.
    pub(crate) fn evidence(&self) -> String {
        let found: Vec<(Direction, &Binding)> =
            self.workload.cells().map(|(direction, cell)| (direction, &cell.binding)).collect();
        match found.as_slice() {
            [(_, read), (_, write)] if read != write => {
                format!("read: {}; write: {}", read.evidence, write.evidence)
            }
            [(_, binding), ..] => binding.evidence.clone(),
            [] => String::new(),
        }
    }
}

/// Shares in percent, in the space of four or five nodes: `25 25 25 25`, `16 nodes, 5 to 8`; `-`
/// without shares.
pub(crate) fn shares(shares: &[f64]) -> String {
    const SHOWN_SINGLY_MAX: usize = 5;
    if shares.is_empty() {
        return "-".to_owned();
    }
    if shares.len() <= SHOWN_SINGLY_MAX {
        return shares.iter().map(|share| number::percent(*share)).collect::<Vec<_>>().join(" ");
    }
    let least = stats::percentile(shares, 0.0).unwrap_or_default();
    let greatest = stats::percentile(shares, 1.0).unwrap_or_default();
    format!("{} nodes, {} to {}", shares.len(), number::percent(least), number::percent(greatest))
}

/// The verdict as a sentence, without workload and half.
pub(crate) fn sentence(Finding { comparison, note }: &Finding<'_>) -> String {
    match note {
        Some(note) => {
            format!("{} ({note}, so the ratio is not one of the routes alone)", verdict(comparison))
        }
        None => verdict(comparison),
    }
}

fn verdict(found: &Comparison) -> String {
    let what = match found.of {
        Measure::Both => "",
        Measure::Read => "reads: ",
        Measure::Write => "writes: ",
    };
    let [low, high] = number::interval_of_ratio(found.interval_95);
    let (a, b, ratio) = (&found.a, &found.b, number::ratio(found.ratio));
    match found.judged() {
        Verdict::TooFewPairs => format!(
            "{what}too few pairs ({} of {}) to compare {a} with {b} (so far {ratio} times, 95 %: {low} to {high})",
            found.pairs,
            stats::PAIRS_FOR_VERDICT_MIN
        ),
        Verdict::NoDifference => {
            format!("{what}no difference shown between {a} and {b} (95 %: {low} to {high})")
        }
        Verdict::Faster | Verdict::Slower => {
            format!("{what}{a} is {ratio} times {b} (95 %: {low} to {high})")
        }
    }
}

/// The machine in one line: `2 CPUs, Linux 6.18`.
pub(crate) fn machine(record: &Record) -> String {
    let environment = &record.environment;
    let cpus = if environment.cpus == 1 { "1 CPU".to_owned() } else { format!("{} CPUs", environment.cpus) };
    let emulated = environment.emulated.as_ref().map(|by| format!(", emulated by {by}")).unwrap_or_default();
    format!("{cpus}, {}{emulated}", environment.kernel)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn blocks_follow_the_experiment_and_halves_come_raw_first() {
        let record = sample::record();
        let blocks = blocks(&record);
        let titles: Vec<&str> = blocks.iter().map(|block| block.title.as_str()).collect();
        assert_eq!(
            titles,
            [
                "mix-1m: 10 readers and 10 writers at once, 1 MiB blocks, depth 16, 8 connections",
                "random-4k: 4 readers, random 4 KiB blocks, depth 32, 8 connections",
            ]
        );
        assert_eq!(blocks[0].groups.iter().map(Group::half).collect::<Vec<_>>(), [Half::Raw, Half::Paced]);
        assert_eq!(blocks[0].groups[1].condition().as_deref(), Some("paced at 2 Gbit/s a node"));
        assert!(blocks[1].shows_iops && !blocks[0].shows_iops);
    }

    #[test]
    fn a_heading_is_true_for_the_connections_of_each_route() {
        let heading = |change: &dyn Fn(&mut Record)| {
            let mut record = sample::record();
            change(&mut record);
            blocks(&record)[0].title.split_once("depth 16").unwrap().1.to_owned()
        };
        assert_eq!(heading(&|_| {}), ", 8 connections");
        assert_eq!(heading(&|record| record.routes[1].connections = Some(1)), ", 8 connections (tcp-mp: 1)");
        let third = |record: &mut Record| {
            record.routes[2] = Route { name: "kernel".into(), ..record.routes[1].clone() };
            record.routes[0].connections = Some(1);
        };
        assert_eq!(heading(&third), ", 8 connections (tcp: 1)");
        let both = |record: &mut Record| {
            third(record);
            record.routes[1].access = Some("O_DIRECT on ext4, by our threads".into());
            (record.routes[0].connections, record.routes[2].connections) = (Some(4), Some(2));
        };
        assert_eq!(heading(&both), ", 4 connections (tcp-mp: a directory; kernel: 2)");
        let none =
            |record: &mut Record| record.routes.iter_mut().for_each(|it| it.access = Some(String::new()));
        assert_eq!(heading(&none), "");
        let of_fio = |record: &mut Record| record.experiment.connections = 0;
        assert_eq!(heading(&of_fio), "");
    }

    #[test]
    fn verdicts_are_sentences_that_claim_no_more_than_was_shown() {
        let record = sample::record();
        let finding = |comparison| Finding { comparison, note: None };
        let said: Vec<String> = record.verdicts.iter().map(|it| sentence(&finding(it))).collect();
        assert!(said[0].starts_with("no difference shown between tcp-mp and tcp (95 %: "), "{}", said[0]);
        assert!(said[1].starts_with("tcp-mp is 4.0"), "{}", said[1]);
        let few = Comparison { pairs: 3, ..record.verdicts[0].clone() };
        let said = sentence(&finding(&few));
        assert!(said.starts_with("too few pairs (3 of 5) to compare tcp-mp with tcp (so far 1.0"), "{said}");
    }

    #[test]
    fn routes_under_unlike_conditions_are_compared_with_a_note() {
        const CPU: &str = "a processor emulated by QEMU";
        let said = |of_tcp: Option<&str>, of_mp: Option<&str>| {
            let mut record = sample::record();
            for (route, simulated) in record.routes.iter_mut().zip([of_tcp, of_mp]) {
                let workloads = route.workloads.iter_mut();
                workloads.for_each(|workload| workload.simulated = simulated.map(str::to_owned));
            }
            let blocks = blocks(&record);
            let groups = &blocks[0].groups;
            let found: Vec<String> = groups.iter().flat_map(|it| &it.verdicts).map(sentence).collect();
            assert_eq!(found.len(), 2, "one for each half: {found:?}");
            (groups.len(), found[0].clone())
        };
        let in_software = format!("RDMA in software (rxe1, rxe2), {CPU}");
        let (groups, alike) = said(Some(CPU), Some(CPU));
        assert!(groups == 2 && !alike.contains("without"), "{alike}");
        let (groups, apart) = said(Some(CPU), Some(&in_software));
        let note = "(tcp-mp with RDMA in software (rxe1, rxe2), tcp without, so the ratio is not one of the";
        assert!(groups == 4 && apart.contains(note), "{apart}");
        let (_, apart) = said(Some("RDMA in software (rxe1)"), None);
        assert!(apart.contains("(tcp with RDMA in software (rxe1), tcp-mp without,"), "{apart}");
        let (_, apart) = said(Some("shaped links"), Some(CPU));
        assert!(apart.contains("(tcp-mp: a processor emulated by QEMU; tcp: shaped links,"), "{apart}");
    }

    #[test]
    fn many_nodes_are_summed_up() {
        assert_eq!(shares(&[0.25; 4]), "25 25 25 25");
        assert_eq!(shares(&[0.1; 10]), "10 nodes, 10 to 10");
        assert_eq!(shares(&[]), "-");
    }
}
