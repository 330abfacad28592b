//! Cells and their binding limits, from invented samples.

use record::{Pattern, Stage};

use super::*;
use crate::experiment::WorkloadSpec;
use crate::machine::CpuShares;

const BLOCK: u64 = 4096;
/// The number of operations in a sample of one second, over both directions.
const OPS: u64 = 10_000;

fn flow(ops: u64) -> Flow {
    let mut latency = Latency::new();
    (0..ops).for_each(|_| latency.record_ns(500_000));
    let mut latencies = LatencyCounts::new(20);
    (0..20).for_each(|interval| latencies.record(interval, 500_000));
    Flow {
        bytes_per_s: (ops * BLOCK) as f64,
        iops: ops as f64,
        ops: ops - 1,
        bytes: (ops - 1) * BLOCK,
        finished: ops,
        finished_bytes: ops * BLOCK,
        span: Some((Duration::ZERO, Duration::from_secs(1))),
        latency,
        series: vec![BLOCK; 4],
        latencies,
    }
}

/// Three quarters of the operations are reads. The client used 0.4 s of processor time, the server
/// 0.2 s.
fn sample(busy: f64) -> Sample {
    Sample {
        began: Instant::now(),
        read: Some(flow(OPS / 4 * 3)),
        write: Some(flow(OPS / 4)),
        results: Vec::new(),
        bytes_by_path: [vec![3, 1], vec![0, 0]],
        loops: 2,
        counted: crate::jobs::Window { warm: Duration::ZERO, end: Duration::from_secs(1) },
        longest_gap: Some(Duration::from_millis(7)),
        stamps: 0,
        client_cpu: Duration::from_millis(400),
        server_cpu: Some(Duration::from_millis(200)),
        window: Duration::from_secs(1),
        ports: Vec::new(),
        done: None,
        clients: Vec::new(),
        busy: CpuShares { busy, stolen: 0.0 },
    }
}

fn workload(rate: Option<f64>) -> PlannedWorkload {
    PlannedWorkload::from(&WorkloadSpec {
        name: "mix".into(),
        pattern: Pattern::Random,
        block: BLOCK,
        depth: 2,
        readers: 3,
        writers: 1,
        file: 1 << 20,
        rate,
        ..WorkloadSpec::default()
    })
}

fn context(workload: &PlannedWorkload) -> CellContext<'_> {
    CellContext {
        workload,
        pace: None,
        nodes_of_paths: &[0, 2],
        nodes: 2,
        all_nodes: 4,
        loops: 2,
        calibrated: None,
        links_gbytes_per_s: None,
        began: Instant::now(),
        thorough: false,
    }
}

fn cells(context: &CellContext<'_>, busy: f64) -> (Cell, Cell) {
    let built = build(context, &[sample(busy), sample(busy)]);
    assert_eq!(built.longest_gap_ms, Some(7.0));
    (built.read.unwrap(), built.write.unwrap())
}

#[test]
fn processor_time_of_a_mix_is_that_of_both_over_the_operations_of_both() {
    let workload = workload(None);
    let (read, write) = cells(&context(&workload), 0.5);
    assert_eq!((read.cpu_us_per_op.client, read.cpu_us_per_op.server), (40.0, Some(20.0)));
    assert_eq!(read.cpu_ns_per_byte.client, 40_000.0 / BLOCK as f64);
    assert_eq!((read.cpu_us_per_op, read.cpu_ns_per_byte), (write.cpu_us_per_op, write.cpu_ns_per_byte));
}

#[test]
fn a_cell_has_the_latencies_of_each_repeat_over_time() {
    let workload = workload(None);
    let (read, _) = cells(&context(&workload), 0.5);
    let latencies = read.latency_over_time.expect("latencies");
    assert_eq!((latencies.interval_ms, latencies.repeats.len()), (50.0, 2));
    assert_eq!(latencies.repeats[1].calls, ["75:1"; 20]);
    assert_eq!(read.repeats[0].p50_us, Some(read.latency_us.p50));
}

#[test]
fn a_repeat_without_a_call_has_no_latency() {
    let workload = workload(None);
    let mut silent = sample(0.5);
    silent.read.iter_mut().for_each(|flow| flow.latency = Latency::new());
    let read = build(&context(&workload), &[silent, sample(0.5)]).read.expect("reads");
    assert_eq!((read.repeats[0].p50_us, read.repeats[0].p99_us), (None, None));
    assert!(read.repeats[1].p99_us.is_some());
}

#[test]
fn processor_time_of_somebodys_server_is_absent_when_any_repeat_lacks_it() {
    let workload = workload(None);
    let elsewhere = Sample { server_cpu: None, ..sample(0.5) };
    let built = build(&context(&workload), &[sample(0.5), elsewhere]);
    assert_eq!(built.read.unwrap().cpu_us_per_op.server, None);
}

#[test]
fn directions_at_once_share_what_the_machine_carries_and_each_has_its_own_link() {
    let workload = workload(None);
    let (read, write) = cells(&CellContext { calibrated: Some(0.08), ..context(&workload) }, 0.5);
    assert_eq!((read.limit_gbytes_per_s, write.limit_gbytes_per_s), (Some(0.06), Some(0.02)));
    let (read, write) = cells(&CellContext { links_gbytes_per_s: Some(0.5), ..context(&workload) }, 0.5);
    assert_eq!((read.limit_gbytes_per_s, write.limit_gbytes_per_s), (Some(0.5), Some(0.5)));
    assert_eq!(read.share_by_node, [0.75, 0.0, 0.25, 0.0]);
}

#[test]
fn what_binds_is_the_limit_that_was_reached() {
    let plain = workload(None);
    let asked = workload(Some(OPS as f64));
    let pace = |speed: f64| Some(Pace { gbit_per_s_per_node: speed * 8.0 / 2.0 });
    let reads = (OPS / 4 * 3 * BLOCK) as f64 / 1e9;
    for (context, busy, stage, evidence) in [
        (
            CellContext { pace: pace(reads), ..context(&plain) },
            0.5,
            Stage::Pace,
            "the pace of each node: 100 %",
        ),
        (
            CellContext { pace: pace(1.0), ..context(&plain) },
            0.5,
            Stage::Slots,
            "6 in flight at 500 us in the mean allow 1",
        ),
        (
            CellContext { links_gbytes_per_s: Some(reads), ..context(&plain) },
            0.5,
            Stage::Link,
            "100 % of the 0.2",
        ),
        (context(&asked), 0.99, Stage::Rate, "100 % of the 7500 operations a second"),
        (context(&plain), 0.99, Stage::Cpu, "cores at 99 % (client 0.40, server 0.20"),
        (CellContext { loops: 0, ..context(&plain) }, 0.5, Stage::ClientCpu, "use 0.40 cores"),
        (context(&plain), 0.5, Stage::Slots, "7500 were done"),
    ] {
        let (read, _) = cells(&context, busy);
        assert_eq!(read.binding.stage, stage, "{:?}", read.binding);
        assert!(read.binding.evidence.contains(evidence), "{:?}", read.binding);
    }
}

#[test]
fn routes_with_unlike_numbers_of_connections_are_told_in_the_options() {
    let routes = |options: [&str; 2]| {
        let route = |options: &str| format!("[[route]]\nname = 'r{0}'\noptions = '{0}'\n", options);
        format!("{}{}", route(options[0]), route(options[1]))
    };
    let experiment = |text: String| Experiment::from_toml(&text, record::Procedure::Standard).unwrap();
    let alike = options(&experiment(routes(["nconnect=4", "nconnect=4,hard"])), None);
    assert!(!alike.contains_key("connections"));
    let unlike = options(&experiment(routes(["", "nconnect=8"])), None);
    assert_eq!(unlike["connections"], "r: 1, rnconnect=8: 8");
}

/// A sample of clients that moved so many operations each.
fn sample_of_clients(ops: &[u64], busy: &[f64]) -> Sample {
    let client = |(index, (ops, busy)): (usize, (&u64, &f64))| ClientPart {
        name: format!("vm{index}"),
        ops: *ops,
        bytes: ops * BLOCK,
        start_offset: Duration::from_micros(100 * index as u64),
        done: Some((Duration::from_millis(900), Duration::from_secs(1))),
        busy: CpuShares { busy: *busy, stolen: 0.0 },
        ..ClientPart::default()
    };
    let clients = ops.iter().zip(busy).enumerate().map(client).collect();
    Sample { clients, server_cpu: None, ..sample(0.5) }
}

#[test]
fn each_clients_part_is_of_all_repeats_and_stragglers_are_marked() {
    let workload = workload(None);
    let samples =
        [sample_of_clients(&[100, 90, 30], &[0.5; 3]), sample_of_clients(&[100, 110, 30], &[0.5; 3])];
    let mut built = build(&context(&workload), &samples);
    let shown: Vec<(&str, u64, bool)> =
        built.clients.iter().map(|client| (client.name.as_str(), client.ops, client.straggler)).collect();
    assert_eq!(shown, [("vm0", 200, false), ("vm1", 200, false), ("vm2", 60, true)]);
    assert!((built.clients[2].start_offset_ms - 0.2).abs() < 1e-9);
    assert_eq!(built.clients[0].last_done_s, Some(1.0));
    mark_lost(&mut built, &[("vm1".into(), "gone".into())]);
    assert_eq!((built.clients[1].lost.as_deref(), built.skipped.as_deref()), (Some("gone"), None));
    let mut nothing = build(&context(&workload), &[]);
    mark_lost(&mut nothing, &[("vm1".into(), "gone".into())]);
    assert_eq!(nothing.skipped.as_deref(), Some("client vm1 is lost: gone"));
    assert_eq!(nothing.clients[0].name, "vm1");
}

#[test]
fn full_clients_bind_if_they_are_half_of_all() {
    let workload = workload(None);
    let bound = |busy: [f64; 4]| {
        let built = build(&context(&workload), &[sample_of_clients(&[100; 4], &busy)]);
        built.read.unwrap().binding
    };
    let found = bound([0.97, 0.95, 0.2, 0.2]);
    assert_eq!(found.stage, Stage::ClientCpu);
    assert_eq!(found.evidence, "2 of 4 clients use at least 95 % of their processors (vm0, vm1)");
    assert_eq!(bound([0.97, 0.2, 0.2, 0.2]).stage, Stage::Slots);
}
