//! Reads fio's JSON into a record: each host is a route, each reporting group a workload.

use std::collections::{BTreeMap, BTreeSet};

use record::{
    Binding, Cell, ClientResult, Latency, LatencyUs, Pattern, Record, Repeat, Route, Shape, Stage, Workload,
};
use serde::Deserialize;

use crate::units::{self, Base};

/// The job under whose name fio has the sums of all hosts.
const SUM: &str = "All clients";
/// The names of jobs that the name of a workload has at most.
const NAMES_SHOWN: usize = 3;
/// The names of jobs that its note has at most.
const NAMES_LISTED: usize = 32;
/// Where a program that sorts the keys of an object writes the first of fio's.
const HEAD_CHARACTERS: usize = 200;

/// Why a text is not a result of fio.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// There is no JSON in the text.
    #[error("there is no JSON object in it")]
    NoJson,
    /// The JSON is broken or ends early.
    #[error("its JSON cannot be read: {0}")]
    Json(#[from] serde_json::Error),
    /// The JSON has no results of jobs.
    #[error("it has results of no job: neither `jobs` nor `client_stats` lists one")]
    NoJobs,
}

/// A host on which fio ran a job file, for whoever had it run there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// What it is called.
    pub name: String,
    /// Its name or address, as fio was given it.
    pub host: String,
    /// The port of the `fio --server` there.
    pub port: u64,
}

/// A record of fio's results.
#[derive(Debug)]
pub struct Imported {
    /// The record.
    pub record: Record,
    /// What a reader should know about the text.
    pub notes: Vec<String>,
}

#[derive(Deserialize)]
pub(super) struct File {
    #[serde(rename = "fio version")]
    version: String,
    #[serde(default)]
    timestamp: u64,
    #[serde(default, rename = "global options")]
    globals: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) jobs: Vec<Job>,
    #[serde(default)]
    client_stats: Vec<Job>,
}

#[derive(Deserialize)]
pub(super) struct Job {
    pub(super) jobname: String,
    #[serde(default)]
    groupid: u64,
    #[serde(default)]
    pub(super) error: i64,
    #[serde(default)]
    hostname: Option<String>,
    #[serde(default)]
    port: u64,
    #[serde(default, rename = "job options")]
    options: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) read: Option<Direction>,
    #[serde(default)]
    pub(super) write: Option<Direction>,
    #[serde(default)]
    pub(super) usr_cpu: f64,
    #[serde(default)]
    pub(super) sys_cpu: f64,
    #[serde(default)]
    pub(super) job_runtime: u64,
}

impl Job {
    fn directions(&self) -> impl Iterator<Item = &Direction> {
        self.read.iter().chain(&self.write)
    }
}

#[derive(Deserialize)]
pub(super) struct Direction {
    pub(super) io_bytes: u64,
    /// KiB per second; older versions have nothing finer.
    #[serde(default)]
    bw: f64,
    #[serde(default)]
    bw_bytes: Option<f64>,
    pub(super) iops: f64,
    pub(super) runtime: u64,
    pub(super) total_ios: u64,
    #[serde(default)]
    pub(super) clat_ns: Times,
    /// With bins only if fio was asked for percentiles of it.
    #[serde(default)]
    pub(super) lat_ns: Times,
}

impl Direction {
    pub(super) fn bytes_per_s(&self) -> f64 {
        self.bw_bytes.filter(|bytes| *bytes > 0.0).unwrap_or(self.bw * 1024.0)
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Times {
    max: f64,
    mean: f64,
    percentile: BTreeMap<String, f64>,
    pub(super) bins: BTreeMap<String, u64>,
}

impl Times {
    /// The histogram that the bins are.
    pub(super) fn latency(&self) -> Latency {
        let mut latency = Latency::new();
        self.counts().for_each(|(ns, count)| latency.record_many_ns(ns, count));
        latency
    }

    /// The bins in nanoseconds, each with its count.
    pub(super) fn counts(&self) -> impl Iterator<Item = (u64, u64)> {
        self.bins.iter().filter_map(|(ns, count)| Some((ns.parse().ok()?, *count)))
    }
}

/// Whether a text has results of fio, perhaps broken ones: its first object begins with fio's
/// version.
#[must_use]
pub fn is_of_fio(text: &str) -> bool {
    let object = first_object(text).and_then(|at| text.get(at..)).unwrap_or_default();
    let inside = object.trim_start().strip_prefix('{').unwrap_or_default();
    let is_sorted_differently = || {
        let head: String = inside.chars().take(HEAD_CHARACTERS).collect();
        head.contains("\"disk_util\"") || head.contains("\"fio version\"")
    };
    inside.trim_start().starts_with("\"fio version\"") || is_sorted_differently()
}

/// Reads the results of fio. Text before the JSON is skipped.
///
/// # Errors
/// What is wrong with the text.
pub fn read(text: &str) -> Result<Imported, ReadError> {
    read_of(text, &[])
}

/// The same of a job file that was run on these hosts.
///
/// # Errors
/// As [`read`].
pub fn read_of(text: &str, hosts: &[Host]) -> Result<Imported, ReadError> {
    let mut notes = Vec::new();
    let before = text.split_at(first_object(text).ok_or(ReadError::NoJson)?).0;
    if !before.trim().is_empty() {
        let lines = before.lines().filter(|line| !line.trim().is_empty()).count();
        notes.push(format!("{lines} lines before the JSON are skipped"));
    }
    let (file, more) = last_object(text)?;
    if more > 0 {
        notes.push(format!("{} results in one file: the last one is shown", more + 1));
    }
    if file.jobs.is_empty() && file.client_stats.is_empty() {
        return Err(ReadError::NoJobs);
    }
    Ok(Imported { record: record(&file, hosts, &mut notes), notes })
}

/// The last results in a text, and the number of those before: with --status-interval, only the
/// last are final.
pub(super) fn last_object(text: &str) -> Result<(File, usize), ReadError> {
    let start = first_object(text).ok_or(ReadError::NoJson)?;
    let json = text.get(start..).unwrap_or_default();
    let mut objects = serde_json::Deserializer::from_str(json).into_iter::<File>();
    let mut file = objects.next().ok_or(ReadError::NoJson)??;
    let mut more = 0;
    while let Some(Ok(later)) = objects.next() {
        (file, more) = (later, more + 1);
    }
    Ok((file, more))
}

/// Where the first line begins that is the start of an object.
fn first_object(text: &str) -> Option<usize> {
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        if line.trim_start().starts_with('{') {
            return Some(at);
        }
        at += line.len();
    }
    None
}

/// The text of the results alone: from the first object to the end of the last, without what fio
/// prints around them.
///
/// # Errors
/// As [`read`].
pub fn json(text: &str) -> Result<&str, ReadError> {
    let json = first_object(text).and_then(|start| text.get(start..)).ok_or(ReadError::NoJson)?;
    let mut objects = serde_json::Deserializer::from_str(json).into_iter::<serde::de::IgnoredAny>();
    objects.next().ok_or(ReadError::NoJson)??;
    let mut end = objects.byte_offset();
    while let Some(Ok(_)) = objects.next() {
        end = objects.byte_offset();
    }
    Ok(json.get(..end).unwrap_or(json))
}

fn record(file: &File, named: &[Host], notes: &mut Vec<String>) -> Record {
    let mut record = Record {
        made_at: record::rfc3339(file.timestamp),
        trunkline_version: file.version.clone(),
        ..Record::default()
    };
    record.experiment.name = file.version.clone();
    record.experiment.target = "results of fio".into();
    record.experiment.repeats = 1;
    record.options = file.globals.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
    let (sum, of_hosts): (Vec<&Job>, Vec<&Job>) =
        file.client_stats.iter().partition(|job| job.jobname == SUM);
    let jobs: Vec<&Job> = file.jobs.iter().chain(of_hosts).collect();
    for job in jobs.iter().filter(|job| job.error != 0) {
        record.fail(format!("{}: fio reports error {}", job.jobname, job.error));
    }
    let mut hosts: Vec<(String, Vec<&Job>)> = Vec::new();
    for job in &jobs {
        let host = host(job, &jobs, named);
        match hosts.iter_mut().find(|(known, _)| *known == host) {
            Some((_, jobs)) => jobs.push(job),
            None => hosts.push((host, vec![job])),
        }
    }
    // fio prints them as they end.
    let place = |name: &str| named.iter().position(|host| host.name == name);
    hosts.sort_by_key(|(name, _)| place(name).unwrap_or(usize::MAX));
    let mut without_bins = false;
    for (host, jobs) in &hosts {
        let mut route = Route { name: host.clone(), ..Route::default() };
        for (name, group) in groups(jobs) {
            let workload = workload(&name, &group, &mut without_bins);
            if !record.experiment.workloads.iter().any(|shape| shape.name == name) {
                record.experiment.workloads.push(shape(&name, &group, &file.globals));
            }
            route.workloads.push(workload);
        }
        record.routes.push(route);
    }
    if hosts.len().max(named.len()) > 1 || hosts.is_empty() {
        let mut route = Route { name: "all clients".to_owned(), ..Route::default() };
        let groups = if hosts.is_empty() { vec![(SUM.to_owned(), Vec::new())] } else { groups(&jobs) };
        // Where there is one group, fio has its sum, with percentiles even without bins.
        let is_summed = groups.len() == 1 && !sum.is_empty();
        for (name, group) in groups {
            let added = workload(&name, if is_summed { &sum } else { &group }, &mut without_bins);
            route.workloads.push(Workload { clients: clients(file, &hosts, &group), ..added });
        }
        record.routes.push(route);
    }
    if without_bins {
        notes.push("there are no bins: percentiles are those that fio printed (json+ has bins)".into());
    }
    record
}

/// What the host of a job is called. Several servers on one host are told apart by their ports, as
/// fio writes them.
fn host(job: &Job, jobs: &[&Job], named: &[Host]) -> String {
    let Some(host) = &job.hostname else { return "fio".to_owned() };
    if let Some(known) = named.iter().find(|known| known.host == *host && known.port == job.port) {
        return known.name.clone();
    }
    let is_other = |other: &&&Job| other.hostname.as_ref() == Some(host) && other.port != job.port;
    match jobs.iter().find(is_other) {
        Some(_) => format!("{host},{}", job.port),
        None => host.clone(),
    }
}

/// Each host's part of a group of jobs. fio says how long each job ran, and not when it began.
fn clients(file: &File, hosts: &[(String, Vec<&Job>)], group: &[&Job]) -> Vec<ClientResult> {
    let is_of_group = |job: &&&Job| group.iter().any(|other| std::ptr::eq(*other, **job));
    let parts = hosts.iter().filter_map(|(name, jobs)| {
        let jobs: Vec<&Job> = jobs.iter().filter(is_of_group).copied().collect();
        let done = || jobs.iter().map(|job| job.directions().map(|it| it.runtime).max().unwrap_or_default());
        let seconds = |ms: Option<u64>| ms.map(|ms| ms as f64 / 1e3);
        let directions = || jobs.iter().flat_map(|job| job.directions());
        (!jobs.is_empty()).then(|| ClientResult {
            name: name.clone(),
            version: file.version.clone(),
            ops: directions().map(|it| it.total_ios).fold(0, u64::saturating_add),
            bytes: directions().map(|it| it.io_bytes).fold(0, u64::saturating_add),
            first_done_s: seconds(done().min()),
            last_done_s: seconds(done().max()),
            ..ClientResult::default()
        })
    });
    let mut parts: Vec<ClientResult> = parts.collect();
    record::clients::compare(&mut parts);
    parts
}

/// The jobs of each reporting group, with a name that no other has.
fn groups<'a>(jobs: &[&'a Job]) -> Vec<(String, Vec<&'a Job>)> {
    let mut groups: Vec<(u64, Vec<&Job>)> = Vec::new();
    for job in jobs {
        match groups.iter_mut().find(|(known, _)| *known == job.groupid) {
            Some((_, jobs)) => jobs.push(job),
            None => groups.push((job.groupid, vec![job])),
        }
    }
    let mut named: Vec<(String, Vec<&Job>)> = Vec::new();
    for (number, jobs) in groups {
        let mut name = name(&names(&jobs));
        if named.iter().any(|(known, _)| *known == name) {
            name = format!("{name}, group {number}");
        }
        named.push((name, jobs));
    }
    named
}

/// The names of jobs, each once, in their order.
fn names<'a>(jobs: &[&'a Job]) -> Vec<&'a str> {
    let mut seen = BTreeSet::new();
    jobs.iter().map(|job| job.jobname.as_str()).filter(|name| seen.insert(*name)).collect()
}

/// The name of a workload of these jobs: all names, or the first ones and how many there are
/// beyond.
fn name(names: &[&str]) -> String {
    let (shown, more) = match names.len() {
        0..=NAMES_SHOWN => (names, 0),
        number => (names.get(..NAMES_SHOWN - 1).unwrap_or_default(), number - (NAMES_SHOWN - 1)),
    };
    let more = (more > 0).then(|| format!("{more} more jobs"));
    shown.iter().copied().map(str::to_owned).chain(more).collect::<Vec<_>>().join(" + ")
}

/// What the shape cannot say: what was measured, and all jobs where the name has not all of them.
fn note(jobs: &[&Job]) -> String {
    let names = names(jobs);
    let measured = "completion latencies, as measured by fio";
    if names.len() <= NAMES_SHOWN {
        return measured.to_owned();
    }
    let listed = names.get(..NAMES_LISTED.min(names.len())).unwrap_or_default().join(", ");
    match names.len().saturating_sub(NAMES_LISTED) {
        0 => format!("{} jobs: {listed}; {measured}", names.len()),
        more => format!("{} jobs: {listed} and {more} more; {measured}", names.len()),
    }
}

fn workload(name: &str, jobs: &[&Job], without_bins: &mut bool) -> Workload {
    let all = |of: fn(&Job) -> Option<&Direction>| -> Vec<&Direction> {
        jobs.iter().filter_map(|job| of(job)).filter(|direction| direction.total_ios > 0).collect()
    };
    let (reads, writes) = (all(|job| job.read.as_ref()), all(|job| job.write.as_ref()));
    let ops: u64 = reads.iter().chain(&writes).map(|direction| direction.total_ios).sum();
    let cpu_s: f64 =
        jobs.iter().map(|job| (job.usr_cpu + job.sys_cpu) / 100.0 * job.job_runtime as f64 / 1e3).sum();
    let mut cell = |directions: &[&Direction]| {
        (!directions.is_empty()).then(|| cell(directions, cpu_s * 1e6 / ops.max(1) as f64, without_bins))
    };
    Workload { name: name.to_owned(), read: cell(&reads), write: cell(&writes), ..Workload::default() }
}

/// The jobs of a group run at the same time, so their speeds add up.
fn cell(directions: &[&Direction], cpu_us_per_op: f64, without_bins: &mut bool) -> Cell {
    let mut latency = Latency::new();
    for direction in directions {
        latency.merge(&direction.clat_ns.latency());
    }
    let bytes_per_s: f64 = directions.iter().map(|it| it.bytes_per_s()).sum();
    let bytes = directions.iter().map(|it| it.io_bytes).sum();
    let repeat = Repeat {
        gbytes_per_s: bytes_per_s / 1e9,
        iops: directions.iter().map(|it| it.iops).sum(),
        seconds: directions.iter().map(|it| it.runtime).max().unwrap_or_default() as f64 / 1e3,
        bytes,
        ops: directions.iter().map(|it| it.total_ios).sum(),
        ..Repeat::default()
    };
    let mut cell = Cell::of(vec![repeat], &latency, 1);
    if latency.is_empty() {
        *without_bins = true;
        cell.latency_us = printed(directions);
    }
    cell.cpu_us_per_op.client = cpu_us_per_op;
    cell.binding = Binding::new(Stage::Unknown, "results of fio");
    cell
}

/// The percentiles that fio printed. Those of several jobs cannot be merged: the highest are shown.
fn printed(directions: &[&Direction]) -> LatencyUs {
    let highest = |of: &dyn Fn(&Times) -> Option<f64>| {
        directions.iter().filter_map(|it| of(&it.clat_ns)).reduce(f64::max).map(|ns| ns / 1e3)
    };
    let percentile = |name: &str| highest(&|times| times.percentile.get(name).copied());
    let ops: u64 = directions.iter().map(|it| it.total_ios).sum();
    let sum: f64 = directions.iter().map(|it| it.clat_ns.mean * it.total_ios as f64).sum();
    LatencyUs {
        p50: percentile("50.000000").unwrap_or_default(),
        p90: percentile("90.000000").unwrap_or_default(),
        p99: percentile("99.000000").unwrap_or_default(),
        p99_9: percentile("99.900000").unwrap_or_default(),
        p99_99: percentile("99.990000"),
        max: highest(&|times| Some(times.max)).unwrap_or_default(),
        mean: (ops > 0).then(|| sum / ops as f64 / 1e3),
    }
}

fn shape(name: &str, jobs: &[&Job], globals: &BTreeMap<String, String>) -> Shape {
    let first = jobs.first();
    let option = |job: &Job, names: &[&str]| {
        let own = names.iter().find_map(|name| job.options.get(*name));
        own.or_else(|| names.iter().find_map(|name| globals.get(*name))).cloned()
    };
    let text = |names: &[&str]| first.and_then(|job| option(job, names));
    let block =
        text(&["bs", "blocksize"]).and_then(|bs| units::size(bs.split(',').next()?, Base::Binary).ok());
    let clones = |job: &Job| {
        let number = option(job, &["numjobs"]).and_then(|number| number.parse().ok());
        // Without a group report, each clone has an entry of its own.
        if option(job, &["group_reporting"]).is_some() { number.unwrap_or(1) } else { 1_u32 }
    };
    let (mut readers, mut writers, mut mixed) = (0_u32, 0_u32, 0_u32);
    for job in jobs {
        let has = |direction: &Option<Direction>| direction.as_ref().is_some_and(|it| it.total_ios > 0);
        let count = match (has(&job.read), has(&job.write)) {
            (true, true) => &mut mixed,
            (false, true) => &mut writers,
            _ => &mut readers,
        };
        *count = count.saturating_add(clones(job));
    }
    let random = text(&["rw", "readwrite"]).is_some_and(|rw| rw.starts_with("rand"));
    Shape {
        name: name.to_owned(),
        pattern: if random { Pattern::Random } else { Pattern::Sequential },
        block_bytes: block.unwrap_or(4096),
        depth: text(&["iodepth"]).and_then(|depth| depth.parse().ok()).unwrap_or(1),
        readers,
        writers,
        mixed,
        note: Some(note(jobs)),
        ..Shape::default()
    }
}
