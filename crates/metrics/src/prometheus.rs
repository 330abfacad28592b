//! A snapshot as text for Prometheus (exposition format 0.0.4).
//!
//! Names have the prefix `trunkline_` and base units. Labels are few: node, export and operation,
//! or path. Clients of a server are no label, because there may be thousands; the snapshot's JSON
//! has them. Those of a bench, which its user has named, are one.

use crate::key::{Dimension, Key};
use crate::operations::Tally;
use crate::snapshot::{Gauge, Kind, PathState, Snapshot};
use prometheus::proto::{
    Bucket, Counter, Gauge as Value, Histogram, LabelPair, Metric, MetricFamily, MetricType,
};
use prometheus::{Encoder, TextEncoder};

/// The media type of the text.
pub const CONTENT_TYPE: &str = prometheus::TEXT_FORMAT;

/// The ends of the buckets of operation durations, in nanoseconds: three for each power of ten,
/// from 10 us to 10 s.
const BUCKETS_NS: [u64; 19] = [
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    20_000_000,
    50_000_000,
    100_000_000,
    200_000_000,
    500_000_000,
    1_000_000_000,
    2_000_000_000,
    5_000_000_000,
    10_000_000_000,
];

/// The dimensions that become labels; the last one only at a bench.
const LABELS: [Dimension; 5] =
    [Dimension::Node, Dimension::Export, Dimension::Path, Dimension::Operation, Dimension::Client];

/// The snapshot as text.
#[must_use]
pub fn text(snapshot: &Snapshot) -> String {
    let mut families = of_process(snapshot);
    families.extend(of_operations(snapshot));
    families.extend(of_paths(&snapshot.paths));
    families.extend(of_gauges(&snapshot.gauges));
    families.retain(|family| !family.get_metric().is_empty());
    let mut text = Vec::new();
    // Fails for a family without metrics or without a name; there is none.
    let _ = TextEncoder::new().encode(&families, &mut text);
    String::from_utf8(text).unwrap_or_default()
}

fn of_process(snapshot: &Snapshot) -> Vec<MetricFamily> {
    let process = &snapshot.process;
    let info = labels([
        ("kind", process.kind.name()),
        ("version", process.version.as_str()),
        ("name", process.name.as_str()),
    ]);
    let loops = snapshot
        .loops
        .iter()
        .map(|one| counter(labels([("loop", one.index.to_string().as_str())]), one.cpu_ns as f64 / 1e9));
    vec![
        family("build_info", "What runs, and its version.", MetricType::GAUGE, vec![gauge(info, 1.0)]),
        family(
            "start_time_seconds",
            "When the process started, in seconds since 1970.",
            MetricType::GAUGE,
            vec![gauge(Vec::new(), process.started_unix_ms as f64 / 1e3)],
        ),
        family(
            "loop_cpu_seconds_total",
            "Processor time of an event loop.",
            MetricType::COUNTER,
            loops.collect(),
        ),
    ]
}

fn of_operations(snapshot: &Snapshot) -> Vec<MetricFamily> {
    let has_clients = snapshot.process.kind == Kind::Bench;
    let by = LABELS.into_iter().filter(|one| has_clients || *one != Dimension::Client);
    let operations = snapshot.operations.by(&by.collect::<Vec<_>>(), &[]);
    let counters = |name, help, value: fn(&Tally) -> u64| {
        let metrics = operations.iter().map(|(key, tally)| counter(labels_of(key), value(tally) as f64));
        family(name, help, MetricType::COUNTER, metrics.collect())
    };
    let durations = operations.iter().filter(|(_, tally)| !tally.latency.is_empty());
    let durations = durations.map(|(key, tally)| duration(labels_of(key), tally));
    vec![
        counters("operations_total", "Operations answered.", |tally| tally.count),
        counters("operation_errors_total", "Operations answered with another status than OK.", |tally| {
            tally.errors
        }),
        counters("operations_replayed_total", "Operations answered from the reply cache.", |tally| {
            tally.replayed
        }),
        counters("received_bytes_total", "Bytes received with operations.", |tally| tally.received_bytes),
        counters("sent_bytes_total", "Bytes sent with operations.", |tally| tally.sent_bytes),
        family(
            "operation_duration_seconds",
            "Time from the receipt of an operation to its reply; at a client, from its call to the reply.",
            MetricType::HISTOGRAM,
            durations.collect(),
        ),
    ]
}

fn of_paths(paths: &[PathState]) -> Vec<MetricFamily> {
    let each = |name, help, kind, value: fn(&PathState) -> f64| {
        let metrics = paths.iter().map(|path| {
            let labels = labels([("path", path.name.as_str()), ("node", path.node.as_str())]);
            if kind == MetricType::COUNTER {
                counter(labels, value(path))
            } else {
                gauge(labels, value(path))
            }
        });
        family(name, help, kind, metrics.collect())
    };
    let (counts, value) = (MetricType::COUNTER, MetricType::GAUGE);
    vec![
        each("path_up", "1 if the path answers, 0 if not, -1 if it is not used.", value, |path| {
            match path.state.as_str() {
                "up" => 1.0,
                "unused" => -1.0,
                _ => 0.0,
            }
        }),
        each("path_state_age_seconds", "How long the path has been in its state.", value, |path| {
            path.since_ms as f64 / 1e3
        }),
        each("path_failovers_total", "How often calls were moved off the path.", counts, |path| {
            path.failovers as f64
        }),
        each("path_moved_calls_total", "Calls that were moved off the path.", counts, |path| {
            path.moved_calls as f64
        }),
        each("path_retransmissions_total", "Calls that were sent again on the path.", counts, |path| {
            path.retransmissions as f64
        }),
        each("path_gap_worst_seconds", "The longest time without an answer before a move.", value, |path| {
            path.gap_worst_ms as f64 / 1e3
        }),
    ]
}

/// A family for each name, in the order of the first of each.
fn of_gauges(gauges: &[Gauge]) -> Vec<MetricFamily> {
    let mut families: Vec<MetricFamily> = Vec::new();
    for one in gauges {
        let labels = one.labels.iter().map(|(label, value)| pair(label, value)).collect();
        let (kind, metric) = if one.is_counter() {
            (MetricType::COUNTER, counter(labels, one.value))
        } else {
            (MetricType::GAUGE, gauge(labels, one.value))
        };
        let name = full_name(&one.name);
        match families.iter_mut().find(|family| family.name() == name) {
            Some(family) => family.mut_metric().push(metric),
            None => families.push(family(&one.name, &one.help, kind, vec![metric])),
        }
    }
    families
}

fn full_name(name: &str) -> String {
    format!("trunkline_{name}")
}

fn family(name: &str, help: &str, kind: MetricType, metrics: Vec<Metric>) -> MetricFamily {
    let mut family = MetricFamily::default();
    family.set_name(full_name(name));
    family.set_help(help.to_owned());
    family.set_field_type(kind);
    family.set_metric(metrics);
    family
}

fn pair(name: &str, value: &str) -> LabelPair {
    let mut pair = LabelPair::default();
    pair.set_name(name.to_owned());
    pair.set_value(value.to_owned());
    pair
}

fn labels<const N: usize>(labels: [(&str, &str); N]) -> Vec<LabelPair> {
    labels.into_iter().map(|(name, value)| pair(name, value)).collect()
}

fn labels_of(key: &Key) -> Vec<LabelPair> {
    let found = LABELS.into_iter().filter_map(|dimension| Some(pair(dimension.name(), key.of(dimension)?)));
    found.collect()
}

fn counter(labels: Vec<LabelPair>, value: f64) -> Metric {
    let mut counter = Counter::default();
    counter.set_value(value);
    let mut metric = Metric::from_label(labels);
    metric.set_counter(counter);
    metric
}

fn gauge(labels: Vec<LabelPair>, value: f64) -> Metric {
    let mut gauge = Value::default();
    gauge.set_value(value);
    let mut metric = Metric::from_label(labels);
    metric.set_gauge(gauge);
    metric
}

fn duration(labels: Vec<LabelPair>, tally: &Tally) -> Metric {
    let latency = &tally.latency;
    let buckets = BUCKETS_NS.into_iter().map(|end| {
        let mut bucket = Bucket::default();
        bucket.set_upper_bound(end as f64 / 1e9);
        bucket.set_cumulative_count(latency.count_to_ns(end));
        bucket
    });
    let mut histogram = Histogram::default();
    histogram.set_bucket(buckets.collect());
    histogram.set_sample_count(latency.count());
    histogram.set_sample_sum(latency.sum_ns() as f64 / 1e9);
    let mut metric = Metric::from_label(labels);
    metric.set_histogram(histogram);
    metric
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::example;

    #[test]
    fn operations_paths_and_gauges_have_their_names_and_labels() {
        let text = text(&example());
        for line in [
            "trunkline_operations_total{node=\"node1\",operation=\"READ\"} 100",
            "trunkline_operation_errors_total{node=\"node2\",operation=\"READ\"} 1",
            "trunkline_operation_duration_seconds_bucket{node=\"node2\",operation=\"READ\",le=\"0.0001\"} 0",
            "trunkline_operation_duration_seconds_bucket{node=\"node2\",operation=\"READ\",le=\"0.0002\"} 50",
            "trunkline_operation_duration_seconds_count{node=\"node2\",operation=\"READ\"} 50",
            "trunkline_path_up{path=\"10.0.0.9 -> 10.0.0.1:2049\",node=\"node1\"} 1",
            "trunkline_path_moved_calls_total{path=\"10.0.0.9 -> 10.0.0.1:2049\",node=\"node1\"} 12",
            "trunkline_connections{node=\"node1\"} 8",
            "trunkline_held_bytes 4096",
            "trunkline_loop_cpu_seconds_total{loop=\"0\"} 30",
            "# TYPE trunkline_operation_duration_seconds histogram",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        assert!(!text.contains("client="), "{text}");
    }

    #[test]
    fn clients_are_a_label_at_a_bench_only() {
        let mut snapshot = example();
        assert!(!text(&snapshot).contains("client="));
        snapshot.process.kind = Kind::Bench;
        let text = text(&snapshot);
        let line = "trunkline_operations_total{node=\"node1\",operation=\"READ\",client=\"10.0.0.7\"} 100";
        assert!(text.lines().any(|found| found == line), "{text}");
    }

    #[test]
    fn names_of_exports_are_escaped() {
        let mut snapshot = example();
        snapshot.process.name = "/a\"b\nc\\".into();
        let text = text(&snapshot);
        assert!(text.contains(r#"name="/a\"b\nc\\""#), "{text}");
    }

    #[test]
    fn a_process_without_operations_still_has_metrics() {
        let mut snapshot = example();
        snapshot.operations = crate::Operations::default();
        (snapshot.paths, snapshot.gauges) = (Vec::new(), Vec::new());
        let text = text(&snapshot);
        assert!(text.contains("trunkline_build_info{kind=\"serve\""), "{text}");
        assert!(!text.contains("operations_total"), "{text}");
    }
}
