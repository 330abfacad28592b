//! Records for the tests, built as `bench` builds them, with invented results.

use std::time::Duration;

use record::{
    Binding, Calibration, Cell, ClientResult, Comparison, Environment, Experiment, Latency, LatencyCounts,
    LatencyOverTime, Pace, PathCounters, Pattern, Procedure, Record, Repeat, RepeatThroughput, Route, Shape,
    Stage, Step, Throughput, Try, Verified, Workload,
};

const REPEATS: usize = 8;
/// The factors of the repeats, as on a machine that drifts.
const DRIFT: [f64; REPEATS] = [1.00, 1.02, 0.97, 0.99, 1.03, 0.98, 1.01, 0.96];

/// Four routes, two of them skipped; a mix of 1 MiB raw and paced, and 4 KiB random reads raw.
pub(crate) fn record() -> Record {
    let mut record = Record {
        made_at: "2026-11-21T04:05:50Z".into(),
        trunkline_version: "0.1.0".into(),
        commit: Some("34adb40".into()),
        experiment: experiment(),
        environment: environment(),
        options: [("congestion", "cubic"), ("seconds", "1")].map(|(k, v)| (k.into(), v.into())).into(),
        limits: limits(),
        routes: vec![route("tcp", 1), route("tcp-mp", 4), skipped("rdma"), skipped("rdma-mp")],
        ..Record::default()
    };
    record.compare("tcp-mp", "tcp", 1);
    record.check_limits();
    record
}

fn skipped(name: &str) -> Route {
    Route::skipped(name, "no RDMA device here; `trunkline lab vm -- trunkline bench` uses Soft-RoCE")
}

fn experiment() -> Experiment {
    let mix = Shape {
        name: "mix-1m".into(),
        block_bytes: 1 << 20,
        depth: 16,
        readers: 10,
        writers: 10,
        ..Shape::default()
    };
    let random = Shape {
        name: "random-4k".into(),
        pattern: Pattern::Random,
        block_bytes: 4 << 10,
        depth: 32,
        readers: 4,
        ..Shape::default()
    };
    Experiment {
        name: "four-routes".into(),
        procedure: Procedure::Quick,
        target: "embedded group of 4 nodes, memory store, loopback".into(),
        repeats: 8,
        connections: 8,
        workloads: vec![mix, random],
    }
}

fn environment() -> Environment {
    Environment {
        kernel: "Linux 6.18.44".into(),
        arch: "x86_64".into(),
        cpu_model: "AMD EPYC".into(),
        cpus: 2,
        memory_bytes: 16_750_000_000,
        congestion: "bbr".into(),
        congestion_offered: vec!["reno".into(), "bbr".into(), "cubic".into()],
        cmdline: "trunkline bench --quick".into(),
        emulated: None,
    }
}

fn limits() -> Vec<Calibration> {
    let tried = |mode: &str, congestion: &str, gbytes_per_s: f64, block: f64| Try {
        mode: mode.into(),
        congestion: Some(congestion.into()),
        gbytes_per_s,
        iops: gbytes_per_s * 1e9 / block,
    };
    let mix = vec![
        tried("one thread, gathered sendmsg", "bbr", 4.71, 1048576.0),
        tried("one thread, gathered sendmsg", "cubic", 5.68, 1048576.0),
        tried("two threads, gathered sendmsg", "cubic", 5.31, 1048576.0),
    ];
    let random = vec![tried("batched", "bbr", 3.66, 4096.0), tried("batched", "cubic", 4.23, 4096.0)];
    vec![
        Calibration::of("mix of reads and writes, 1 MiB blocks, 8 connections", None, mix),
        Calibration::of("reads, 4 KiB blocks, depth 32, 8 connections", None, random),
    ]
}

fn route(name: &str, nodes: usize) -> Route {
    let paced = Some(Pace { gbit_per_s_per_node: 2.0 });
    let speed = 0.2445 * nodes as f64;
    let skew = if nodes == 1 { 1.0 } else { 1.003 };
    Route {
        name: name.into(),
        options: format!(
            "proto=tcp,nconnect=8,{}",
            if nodes == 1 { "" } else { "remoteports=127.0.0.1-127.0.0.4" }
        ),
        nodes: (1..=4).map(|node| format!("127.0.0.{node}")).collect(),
        paths: (1..=nodes).map(|node| format!("tcp 127.0.0.1 -> 127.0.0.{node}:2049")).collect(),
        skipped: None,
        access: None,
        connections: None,
        workloads: vec![
            mix(nodes, None, [3.08 * skew, 2.61], 5.68, Binding::new(Stage::Cpu, "both cores at 99 %")),
            mix(nodes, paced, [speed, speed * 0.995], 0.25 * nodes as f64, pace_binds(nodes)),
            random(nodes, 2.05),
        ],
    }
}

fn pace_binds(nodes: usize) -> Binding {
    Binding::new(Stage::Pace, if nodes == 1 { "node 1 at its pace" } else { "each node at its pace" })
}

fn mix(nodes: usize, pace: Option<Pace>, speeds: [f64; 2], limit: f64, binding: Binding) -> Workload {
    let cell = |speed, slower| cell(nodes, speed, limit, 1 << 20, slower, &binding);
    let path = |node: usize| PathCounters {
        path: format!("tcp 127.0.0.1 -> 127.0.0.{}:2049", node + 1),
        state: "up".into(),
        calls: 44_000,
        bytes: 46_000_000_000,
        ..PathCounters::default()
    };
    Workload {
        name: "mix-1m".into(),
        pace,
        read: Some(cell(speeds[0], 1)),
        write: Some(cell(speeds[1], 2)),
        verified: Some(Verified { stamps: 11_200_000, bytes: 5_368_709_120, wrong: 0 }),
        paths: (0..nodes).map(path).collect(),
        ..Workload::default()
    }
}

fn random(nodes: usize, speed: f64) -> Workload {
    let binding = Binding::new(Stage::Cpu, "both cores at 99 %");
    Workload {
        name: "random-4k".into(),
        read: Some(cell(nodes, speed, 4.23, 4 << 10, 1, &binding)),
        verified: Some(Verified { stamps: 4_000_000, bytes: 1 << 30, wrong: 0 }),
        ..Workload::default()
    }
}

fn cell(nodes: usize, speed: f64, limit: f64, block: u64, slower: u64, binding: &Binding) -> Cell {
    let drift = |index: usize, shift: usize| DRIFT.get((index + shift) % REPEATS).copied().unwrap_or(1.0);
    // A paced repeat hardly varies; a raw one drifts.
    let steady = matches!(binding.stage, Stage::Pace);
    let repeat = |index: usize| {
        let factor = if steady { 1.0 + (drift(index, nodes) - 1.0) / 8.0 } else { drift(index, nodes) };
        let bytes = (speed * factor * 1e9) as u64;
        let began_s = Some(4.0 + 2.0 * index as f64);
        let (p50_us, p99_us) = (Some(3000.0), Some(9000.0));
        Repeat { began_s, p50_us, p99_us, ..Repeat::of(bytes, bytes / block, Duration::from_secs(1)) }
    };
    let mut latency = Latency::new();
    let tail = if block > 65_536 { 40 } else { 4000 };
    (1..=20_000u64).for_each(|call| latency.record_ns(slower * (block * 2 + call * call / tail)));
    let mut cell = Cell::of((0..REPEATS).map(repeat).collect(), &latency, 1);
    let carried: Vec<u64> = (0..4).map(|node| u64::from(node < nodes) * (1 << 30)).collect();
    cell.set_shares(&carried, &carried[..nodes]);
    cell.set_limit(limit);
    cell.set_cpu(Duration::from_secs(7), Some(Duration::from_secs(6)), cell.ops, cell.bytes);
    cell.binding = binding.clone();
    let over_time = |repeat: &Repeat| RepeatThroughput {
        began_s: repeat.began_s.unwrap_or_default(),
        bytes: (0..5).map(|at| repeat.bytes / 5 / 100 * (98 + at)).collect(),
    };
    let repeats = cell.repeats.iter().map(over_time).collect();
    cell.throughput = Some(Throughput { interval_ms: 200.0, repeats });
    let mut counts = LatencyCounts::new(10);
    for interval in 0..10 {
        let call = |call: u64| counts.record(interval, slower * (block * 2 + call * call / tail));
        (1..=20_000).step_by(97).for_each(call);
    }
    let repeats: Vec<(f64, &LatencyCounts)> =
        cell.repeats.iter().map(|repeat| (repeat.began_s.unwrap_or_default(), &counts)).collect();
    cell.latency_over_time = LatencyOverTime::of(100.0, &repeats);
    cell
}

/// A step test of clients on two routes: one with a knee, one that keeps rising.
pub(crate) fn steps() -> Record {
    let mut record = record();
    record.routes.retain(|route| route.skipped.is_none());
    let steps = |speeds: [f64; 4]| -> Vec<Workload> {
        let step = |(clients, speed): (u32, f64)| Workload {
            name: format!("read-1m x{clients}"),
            step: Some(Step { series: "read-1m".into(), clients, depth: 16, added: None }),
            read: Some(with_speed(speed)),
            clients: (0..clients).map(|number| client(number, clients)).collect(),
            ..Workload::default()
        };
        [1, 2, 4, 8].into_iter().zip(speeds).map(step).collect()
    };
    record.routes[0].workloads = steps([1.0, 1.9, 3.1, 3.3]);
    record.routes[1].workloads = steps([1.0, 2.0, 4.0, 8.0]);
    record.experiment.workloads = [1, 2, 4, 8]
        .map(|clients| Shape {
            name: format!("read-1m x{clients}"),
            block_bytes: 1 << 20,
            readers: 4,
            depth: 16,
            ..Shape::default()
        })
        .into();
    record.verdicts.clear();
    record
}

/// A cell whose repeats all have one speed.
fn with_speed(gbytes_per_s: f64) -> Cell {
    let bytes = (gbytes_per_s * 1e9).round() as u64;
    let repeats = vec![Repeat::of(bytes, bytes >> 20, Duration::from_secs(1)); REPEATS];
    Cell::of(repeats, &Latency::new(), 1)
}

/// One of several clients. The last of eight is lost, the one before a straggler.
fn client(number: u32, of: u32) -> ClientResult {
    let straggler = of == 8 && number == 6;
    ClientResult {
        name: format!("vm{}", number + 1),
        bytes: 1 << 30,
        share: 1.0 / f64::from(of),
        start_offset_ms: 0.4,
        clock_error_ms: 0.05,
        first_done_s: Some(1.9),
        last_done_s: Some(if straggler { 3.4 } else { 2.0 }),
        straggler,
        lost: (of == 8 && number == 7).then(|| "the connection ended".to_owned()),
        ..ClientResult::default()
    }
}

/// A failed record in which every text tries to inject markup or commands.
pub(crate) fn hostile() -> Record {
    let evil = "<script>alert(1)</script>|\u{1b}[31m`x`\n# pwned".to_owned();
    let mut record = record();
    record.failed.push(evil.clone());
    record.experiment.name.clone_from(&evil);
    record.experiment.target.clone_from(&evil);
    record.environment.kernel.clone_from(&evil);
    record.commit = Some(evil.clone());
    record.options.insert(evil.clone(), evil.clone());
    for shape in &mut record.experiment.workloads {
        shape.note = Some(evil.clone());
    }
    for limit in &mut record.limits {
        limit.mode.clone_from(&evil);
        limit.shape.clone_from(&evil);
    }
    for route in &mut record.routes {
        route.name = format!("{}{evil}", route.name);
        route.options.clone_from(&evil);
        route.skipped = route.skipped.as_ref().map(|_| evil.clone());
        for workload in &mut route.workloads {
            workload.simulated = Some(evil.clone());
            for cell in [&mut workload.read, &mut workload.write].into_iter().flatten() {
                cell.binding = Binding::new(Stage::Other(evil.clone()), evil.clone());
            }
        }
    }
    for verdict in &mut record.verdicts {
        let Comparison { a, b, .. } = verdict;
        *a = format!("{a}{evil}");
        *b = format!("{b}{evil}");
    }
    record
}
