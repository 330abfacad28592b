//! Makes one sample of what the clients of a repeat measured.

use std::time::{Duration, Instant};

use record::{PathCounters, PortCounters};

use super::message::ClientSample;
use crate::jobs::Window;
use crate::machine::CpuShares;
use crate::measure::{ClientPart, Flow, Sample};

/// A client's sample, and what the coordinator knows about the client.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) name: String,
    pub(crate) version: String,
    /// Whether the client runs on the coordinator's machine.
    pub(crate) is_here: bool,
    /// What tells the client's machine apart from others; empty if that is not known.
    pub(crate) boot: String,
    pub(crate) sample: ClientSample,
    /// When the client started, by the coordinator's clock.
    pub(crate) began: Instant,
    /// The error of that.
    pub(crate) clock_error: Duration,
}

/// The machine of the coordinator, and of the embedded group if there is one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Coordinator {
    pub(crate) busy: CpuShares,
    pub(crate) server_cpu: Option<Duration>,
    pub(crate) window: Duration,
}

/// The sample of all clients together: sums, merged latencies, the longest gap of any client.
/// `ends` says that jobs end by their sizes.
///
/// Slopes over different times must not be added: if a client's window was extended, what all have
/// moved is divided by the time from the first operation to the last.
pub(crate) fn merge(clients: &[Measured], coordinator: Coordinator, window: Window, ends: bool) -> Sample {
    let began = clients.iter().map(|client| client.began).min().unwrap_or_else(Instant::now);
    let samples = || clients.iter().map(|client| &client.sample);
    let later = |client: &Measured, span: Option<(Duration, Duration)>| {
        let offset = client.began.saturating_duration_since(began);
        span.map(|(first, last)| (first + offset, last + offset))
    };
    let flow = |of: fn(&ClientSample) -> Option<&Flow>| {
        let flows = || clients.iter().filter_map(|client| Some((client, of(&client.sample)?)));
        let is_late = |flow: &Flow| flow.span.is_some_and(|(_, last)| last > window.end);
        flows().next()?;
        let mut sum = Flow::empty();
        for (client, flow) in flows() {
            sum.add(&Flow { span: later(client, flow.span), ..flow.clone() });
        }
        if ends || flows().count() > 1 && flows().any(|(_, flow)| is_late(flow)) {
            sum.divide_by_span();
        }
        Some(sum)
    };
    let ends_of = || clients.iter().filter_map(|client| later(client, client.sample.done));
    Sample {
        began,
        read: flow(|sample| sample.read.as_ref()),
        write: flow(|sample| sample.write.as_ref()),
        results: Vec::new(),
        bytes_by_path: [0, 1].map(|direction| {
            let mut sums: Vec<u64> = Vec::new();
            for bytes in samples().filter_map(|sample| sample.bytes_by_path.get(direction)) {
                sums.resize(sums.len().max(bytes.len()), 0);
                sums.iter_mut().zip(bytes).for_each(|(sum, bytes)| *sum += bytes);
            }
            sums
        }),
        loops: samples().map(|sample| sample.loops).sum(),
        longest_gap: samples().map(|sample| sample.longest_gap).max(),
        counted: window,
        stamps: samples().map(|sample| sample.stamps).sum(),
        client_cpu: samples().map(|sample| sample.client_cpu).sum(),
        server_cpu: coordinator.server_cpu,
        window: coordinator.window,
        busy: coordinator.busy,
        ports: ports(clients),
        done: ends_of().map(|(first, _)| first).min().zip(ends_of().map(|(_, last)| last).max()),
        clients: clients.iter().map(|client| part(client, began)).collect(),
    }
}

fn part(client: &Measured, first: Instant) -> ClientPart {
    let flows = || client.sample.read.iter().chain(&client.sample.write);
    ClientPart {
        name: client.name.clone(),
        version: client.version.clone(),
        is_here: client.is_here,
        ops: flows().map(|flow| flow.ops).sum(),
        bytes: flows().map(|flow| flow.bytes).sum(),
        start_offset: client.began.saturating_duration_since(first),
        clock_error: client.clock_error,
        done: client.sample.done,
        busy: CpuShares { busy: client.sample.busy, stolen: client.sample.stolen },
    }
}

/// The sums of the ports of all machines. Clients on one machine all count the same ports there;
/// the one that saw most has measured longest.
fn ports(clients: &[Measured]) -> Vec<PortCounters> {
    let mut of_machines: Vec<(&str, &PortCounters)> = Vec::new();
    for client in clients {
        for port in &client.sample.ports {
            let is_same = |(boot, other): &(&str, &PortCounters)| {
                !boot.is_empty() && *boot == client.boot && other.port == port.port
            };
            match of_machines.iter_mut().find(|seen| is_same(seen)) {
                Some((_, seen)) if traffic(port) > traffic(seen) => *seen = port,
                Some(_) => {}
                None => of_machines.push((&client.boot, port)),
            }
        }
    }
    let mut sums: Vec<PortCounters> = Vec::new();
    for (_, port) in of_machines {
        match sums.iter_mut().find(|sum| sum.port == port.port) {
            Some(sum) => sum.add(port),
            None => sums.push(port.clone()),
        }
    }
    sums
}

/// What a port has moved, in packets or bytes.
fn traffic(port: &PortCounters) -> u64 {
    let counts = [port.sent_packets, port.received_packets, port.sent_bytes, port.received_bytes];
    counts.into_iter().flatten().fold(0, u64::saturating_add)
}

/// Adds the counters of a client's paths. The local addresses in their names differ between the
/// clients, and are left out.
pub(crate) fn add_paths(sum: &mut Vec<PathCounters>, paths: &[PathCounters]) {
    sum.resize_with(paths.len().max(sum.len()), PathCounters::default);
    for (sum, path) in sum.iter_mut().zip(paths) {
        let remote = path.path.rsplit_once(" to ").map_or(path.path.as_str(), |(_, remote)| remote);
        sum.path = remote.to_owned();
        // A path that is bad for one client is worth seeing.
        if sum.state.is_empty() || path.state != "up" {
            sum.state.clone_from(&path.state);
        }
        sum.calls += path.calls;
        sum.bytes += path.bytes;
        sum.retransmissions += path.retransmissions;
        sum.failovers += path.failovers;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::Latency;

    fn flow(ops: u64, latency_us: u64, end_ms: u64) -> Flow {
        let mut latency = Latency::new();
        latency.record_many_ns(latency_us * 1000, ops);
        Flow {
            bytes_per_s: ops as f64 * 4096.0,
            iops: ops as f64,
            ops,
            bytes: ops * 4096,
            finished: ops,
            finished_bytes: ops * 4096,
            span: Some((Duration::from_millis(10), Duration::from_millis(end_ms))),
            latency,
            series: vec![ops; 2],
            latencies: record::LatencyCounts::new(2),
        }
    }

    fn client(name: &str, ops: u64, latency_us: u64, began: Instant, end_ms: u64) -> Measured {
        let end = Duration::from_millis(end_ms);
        Measured {
            name: name.into(),
            version: "0.1.0".into(),
            is_here: false,
            sample: ClientSample {
                began_ns: 0,
                read: Some(flow(ops, latency_us, end_ms)),
                write: None,
                bytes_by_path: [vec![ops, 1], vec![0, 0]],
                loops: 2,
                longest_gap: Duration::from_millis(end_ms / 100),
                stamps: ops,
                client_cpu: Duration::from_millis(100),
                window: Duration::from_secs(1),
                busy: 0.5,
                stolen: 0.0,
                ports: vec![PortCounters {
                    port: "rxe0/1".into(),
                    sent_packets: Some(ops),
                    ..<_>::default()
                }],
                paths: Vec::new(),
                counters: std::collections::BTreeMap::new(),
                done: Some((end / 2, end)),
            },
            boot: name.into(),
            began,
            clock_error: Duration::from_micros(40),
        }
    }

    fn merged(ends: bool) -> Sample {
        merged_within(ends, 1000)
    }

    fn merged_within(ends: bool, window_ms: u64) -> Sample {
        let began = Instant::now();
        let clients = [
            client("a", 900, 100, began + Duration::from_millis(2), 1000),
            client("b", 100, 900, began, 500),
        ];
        let coordinator =
            Coordinator { busy: CpuShares::default(), server_cpu: None, window: Duration::from_secs(1) };
        let window = Window { warm: Duration::ZERO, end: Duration::from_millis(window_ms) };
        merge(&clients, coordinator, window, ends)
    }

    #[test]
    fn sums_are_of_all_clients_and_latencies_are_merged() {
        let sample = merged(false);
        let read = sample.read.as_ref().unwrap();
        assert_eq!((read.ops, read.iops, read.latency.count()), (1000, 1000.0, 1000));
        assert!((read.latency.percentile_us(0.5) - 100.0).abs() < 1.0);
        assert!((read.latency.percentile_us(0.95) - 900.0).abs() < 9.0);
        assert_eq!(read.series, [1000, 1000]);
        assert!(sample.write.is_none());
        assert_eq!((sample.loops, sample.stamps, sample.bytes_by_path[0].clone()), (4, 1000, vec![1000, 2]));
        assert_eq!(sample.longest_gap, Some(Duration::from_millis(10)));
        assert_eq!(sample.ports[0].sent_packets, Some(1000));
        assert_eq!(sample.done, Some((Duration::from_millis(250), Duration::from_millis(1002))));
    }

    #[test]
    fn ports_of_one_machine_are_counted_once_for_all_its_clients() {
        let on = |boot: &str, name: &str, packets: u64| Measured {
            boot: boot.into(),
            ..client(name, packets, 100, Instant::now(), 1000)
        };
        let sum = |clients: &[Measured]| ports(clients)[0].sent_packets;
        assert_eq!(sum(&[on("m", "a", 900), on("m", "b", 910), on("n", "c", 50)]), Some(960));
        assert_eq!(sum(&[on("", "a", 900), on("", "b", 910)]), Some(1810), "the machines are not known");
    }

    #[test]
    fn starts_are_counted_from_the_first_client() {
        let offsets: Vec<Duration> = merged(false).clients.iter().map(|part| part.start_offset).collect();
        assert_eq!(offsets, [Duration::from_millis(2), Duration::ZERO]);
    }

    #[test]
    fn a_load_that_ends_by_its_size_ends_with_its_last_client() {
        let read = merged(true).read.unwrap();
        assert!((read.iops - 1000.0 / 0.992).abs() < 0.1, "{}: 2 ms later", read.iops);
    }

    #[test]
    fn speeds_over_different_times_are_not_added() {
        let read = merged_within(false, 700).read.unwrap();
        assert!((read.iops - 1000.0 / 0.992).abs() < 0.1, "{}", read.iops);
        assert!((read.bytes_per_s - 4_096_000.0 / 0.992).abs() < 500.0, "{}", read.bytes_per_s);
    }

    #[test]
    fn paths_are_named_by_their_remote_ends() {
        let path = |path: &str, state: &str| PathCounters {
            path: path.into(),
            state: state.into(),
            calls: 2,
            ..PathCounters::default()
        };
        let mut sum = Vec::new();
        add_paths(&mut sum, &[path("10.0.0.1 to 10.0.0.9:2049", "up")]);
        add_paths(&mut sum, &[path("10.0.0.2 to 10.0.0.9:2049", "down"), path("10.0.0.8:2049", "up")]);
        add_paths(&mut sum, &[path("10.0.0.3 to 10.0.0.9:2049", "up")]);
        let shown: Vec<(&str, &str, u64)> =
            sum.iter().map(|it| (it.path.as_str(), it.state.as_str(), it.calls)).collect();
        assert_eq!(shown, [("10.0.0.9:2049", "down", 6), ("10.0.0.8:2049", "up", 2)]);
    }
}
