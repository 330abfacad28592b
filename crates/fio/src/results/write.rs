//! Writes results as fio's JSON, with the bins of json+.

use std::collections::BTreeMap;

use record::Latency;
use serde_json::{Map, Value, json};

use super::bins;
use crate::Access;

/// The percentiles that fio prints unless told otherwise.
const PERCENTILES: [f64; 17] =
    [1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95, 99.99];

/// One direction of a job, over all of its repeats.
#[derive(Debug, Clone, Default)]
pub struct Results {
    /// Payload.
    pub bytes: u64,
    /// Operations.
    pub ops: u64,
    /// The measured time in milliseconds.
    pub runtime_ms: u64,
    /// The latencies.
    pub latency: Latency,
}

/// A job, or a group of jobs that is reported as one.
#[derive(Debug, Clone, Default)]
pub struct JobResult {
    /// The name of the first job.
    pub name: String,
    /// The number of the reporting group.
    pub group: usize,
    /// The options of the section, as written.
    pub options: Vec<(String, String)>,
    /// The operations in flight of each job.
    pub depth: u32,
    /// Reads and writes.
    pub directions: [Results; 2],
}

impl JobResult {
    /// Whether the job reads, writes or both.
    #[must_use]
    pub fn access(&self) -> Access {
        match &self.directions {
            [read, write] if read.ops > 0 && write.ops > 0 => Access::Mixed,
            [_, write] if write.ops > 0 => Access::Write,
            _ => Access::Read,
        }
    }
}

/// The results as JSON text. `at_s` is the time of the end, in seconds since 1970; `version` says
/// which program measured.
#[must_use]
pub fn write(version: &str, at_s: u64, globals: &[(String, String)], jobs: &[JobResult]) -> String {
    let value = json!({
        "fio version": version,
        "timestamp": at_s,
        "timestamp_ms": at_s.saturating_mul(1000),
        "time": record::rfc3339(at_s),
        "global options": options(globals),
        "jobs": jobs.iter().map(job).collect::<Vec<_>>(),
        "disk_util": [],
    });
    format!("{value:#}\n")
}

/// Options by name. An option that stands alone is 1, as fio writes it.
fn options(written: &[(String, String)]) -> Map<String, Value> {
    written.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str()))).collect()
}

fn job(job: &JobResult) -> Value {
    let [read, write] = &job.directions;
    let runtime_ms = read.runtime_ms.max(write.runtime_ms);
    let trim = Results::default();
    let mut depths: Map<String, Value> = ["1", "2", "4", "8", "16", "32", ">=64"]
        .map(|depth| (depth.to_owned(), json!(0.0)))
        .into_iter()
        .collect();
    depths.insert(depth_class(job.depth).to_owned(), json!(100.0));
    let mut latency = read.latency.clone();
    latency.merge(&write.latency);
    let ranges = ranges(&latency);
    let [ns, us, ms] = ranges;
    json!({
        "jobname": job.name,
        "groupid": job.group,
        "error": 0,
        "eta": 0,
        "elapsed": runtime_ms.div_ceil(1000),
        "job options": options(&job.options),
        "read": direction(read),
        "write": direction(write),
        "trim": direction(&trim),
        "sync": { "total_ios": 0, "lat_ns": times(&Latency::new(), false) },
        "job_runtime": runtime_ms,
        "usr_cpu": 0.0, "sys_cpu": 0.0, "ctx": 0, "majf": 0, "minf": 0,
        "iodepth_level": depths,
        "iodepth_submit": {}, "iodepth_complete": {},
        "latency_ns": ns, "latency_us": us, "latency_ms": ms,
        "latency_depth": job.depth, "latency_target": 0, "latency_percentile": 100.0, "latency_window": 0,
    })
}

fn depth_class(depth: u32) -> &'static str {
    match depth {
        0 | 1 => "1",
        2..4 => "2",
        4..8 => "4",
        8..16 => "8",
        16..32 => "16",
        32..64 => "32",
        _ => ">=64",
    }
}

fn direction(results: &Results) -> Value {
    let seconds = results.runtime_ms as f64 / 1e3;
    let rate = |amount: u64| if seconds > 0.0 { amount as f64 / seconds } else { 0.0 };
    let bytes_per_s = rate(results.bytes) as u64;
    json!({
        "io_bytes": results.bytes,
        "io_kbytes": results.bytes >> 10,
        "bw_bytes": bytes_per_s,
        "bw": bytes_per_s >> 10,
        "iops": rate(results.ops),
        "runtime": results.runtime_ms,
        "total_ios": results.ops,
        "short_ios": 0,
        "drop_ios": 0,
        "slat_ns": times(&Latency::new(), false),
        "clat_ns": times(&results.latency, true),
        "lat_ns": times(&results.latency, false),
        "bw_min": 0, "bw_max": 0, "bw_agg": 0.0, "bw_mean": 0.0, "bw_dev": 0.0, "bw_samples": 0,
        "iops_min": 0, "iops_max": 0, "iops_mean": 0.0, "iops_stddev": 0.0, "iops_samples": 0,
    })
}

/// The latencies, with percentiles and bins if asked and there are any.
fn times(latency: &Latency, with_bins: bool) -> Value {
    let mut value = json!({
        "min": latency.min_ns(),
        "max": latency.max_ns(),
        "mean": latency.mean_ns(),
        "stddev": latency.stdev_ns(),
        "N": latency.count(),
    });
    if with_bins && !latency.is_empty() {
        let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
        for (ns, count) in latency.counts() {
            *counts.entry(bins::middle(ns)).or_default() += count;
        }
        let percentile = |percent: f64| {
            let ns = bins::middle((latency.percentile_us(percent / 100.0) * 1000.0).round() as u64);
            (format!("{percent:.6}"), Value::from(ns))
        };
        let percentiles: Map<String, Value> = PERCENTILES.map(percentile).into_iter().collect();
        let counts: Map<String, Value> =
            counts.into_iter().map(|(bin, count)| (bin.to_string(), Value::from(count))).collect();
        value["percentile"] = percentiles.into();
        value["bins"] = counts.into();
    }
    value
}

/// The shares of latencies, in percent, by fio's ranges in ns, us and ms.
fn ranges(latency: &Latency) -> [Map<String, Value>; 3] {
    const NS: [u64; 10] = [2, 4, 10, 20, 50, 100, 250, 500, 750, 1000];
    const MS: [u64; 11] = [2, 4, 10, 20, 50, 100, 250, 500, 750, 1000, 2000];
    let share = |low: u64, high: u64| {
        let within = latency.counts().filter(|(ns, _)| (low..high).contains(ns));
        within.map(|(_, count)| count).sum::<u64>() as f64 * 100.0 / latency.count().max(1) as f64
    };
    let of = |bounds: &[u64], unit: u64| {
        let mut low = if unit == 1 { 0 } else { unit };
        let mut map = Map::new();
        for bound in bounds {
            let high = (bound * unit).max(low);
            map.insert(bound.to_string(), json!(share(low, high)));
            low = high;
        }
        map
    };
    let (ns, us, mut ms) = (of(&NS, 1), of(&NS, 1000), of(&MS, 1_000_000));
    ms.insert(">=2000".to_owned(), json!(share(2_000_000_000, u64::MAX)));
    [ns, us, ms]
}
