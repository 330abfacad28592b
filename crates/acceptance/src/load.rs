//! One measurement: the work of a row done once on one server, by our client or by libnfs.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use bench::files::Files;
use bench::machine::{self, CpuMeter};
use bench::{Window, WorkloadSpec, measure};
use client::{FileRef, Mount};
use fs::{CreateMode, FileHandle, SetAttributes};
use record::Direction;

use super::Scale;
use super::calls;
use super::fairness;
use super::record::Sample;
use super::rows::{Row, Work};
use super::server::Running;

/// The files and directories that our client created on a server.
#[derive(Debug)]
pub struct Prepared {
    files: Files,
    metadata: Option<FileHandle>,
    listed: Option<FileHandle>,
}

/// Returns the work of a row as a workload of an experiment.
fn workload(row: &Row, scale: &Scale) -> Option<WorkloadSpec> {
    let Work::Data { pattern, direction, block } = row.work else { return None };
    let (readers, writers) = match direction {
        Direction::Read => (row.connections, 0),
        Direction::Write => (0, row.connections),
    };
    Some(WorkloadSpec {
        name: "figures".into(),
        pattern,
        block,
        depth: row.depth,
        readers,
        writers,
        file: scale.file_bytes,
        ..WorkloadSpec::default()
    })
}

/// Creates the files and directories that the rows need.
///
/// # Errors
/// The cause as text.
pub fn prepare(server: &Running, rows: &[Row], scale: &Scale) -> Result<Prepared, String> {
    let words = |error: client::Error| super::error_chain(&error);
    let mount = server.mount(4).map_err(words)?;
    let readers = rows.iter().map(Row::files).max();
    let spec = WorkloadSpec {
        name: "figures".into(),
        pattern: record::Pattern::Sequential,
        block: 1 << 20,
        depth: 1,
        readers: readers.unwrap_or(0),
        writers: 0,
        file: scale.file_bytes,
        ..WorkloadSpec::default()
    };
    let files = Files::prepare(&mount, &[spec], |_| Ok(())).map_err(|error| super::error_chain(&error))?;
    let directory = |name: &[u8]| {
        let mode = SetAttributes::mode(0o777);
        let made = mount.make_directory(mount.root(), name, mode).map_err(words);
        made.map(|(handle, _)| handle)
    };
    let mut prepared = Prepared { files, metadata: None, listed: None };
    if rows.iter().any(|row| matches!(row.work, Work::Lookup | Work::GetAttr | Work::CreateRemove)) {
        let metadata = directory(b"figures-metadata")?;
        mount
            .create(metadata, calls::LOOKUP_NAME, CreateMode::Unchecked(SetAttributes::default()))
            .map_err(words)?;
        prepared.metadata = Some(metadata);
    }
    if rows.iter().any(|row| row.work == Work::Listing) {
        let listed = directory(b"figures-listed")?;
        calls::fill(&mount, listed, scale.names)?;
        prepared.listed = Some(listed);
    }
    Ok(prepared)
}

/// Measures which processes use the processors during a measurement.
struct CpuWatch {
    busy: CpuMeter,
    own: Duration,
    server: Duration,
    began: Instant,
}

impl CpuWatch {
    fn start(server: &Running) -> Self {
        Self { busy: CpuMeter::start(), own: machine::own_cpu(), server: server.cpu(), began: Instant::now() }
    }

    /// Returns the share of processor time that other programs used. `children` is the processor
    /// time of a client in a process of its own.
    fn others(&self, server: &Running, children: Duration) -> f64 {
        let seen = self.busy.share();
        let ours =
            machine::own_cpu().saturating_sub(self.own) + server.cpu().saturating_sub(self.server) + children;
        let all = self.began.elapsed().as_secs_f64() * machine::cpus() as f64;
        (seen.busy + seen.stolen - ours.as_secs_f64() / all.max(1e-9)).max(0.0)
    }
}

/// Does the work of a row once with our client.
///
/// # Errors
/// The cause as text.
pub fn ours(server: &Running, prepared: &Prepared, row: &Row, scale: &Scale) -> Result<Sample, String> {
    let mount = server.mount(row.connections).map_err(|error| super::error_chain(&error))?;
    let cpu_watch = CpuWatch::start(server);
    let mut sample = match row.work {
        Work::Data { .. } => data(server, &mount, prepared, row, scale)?,
        Work::Fairness { flood } => fairness::ours(server, &mount, &prepared.files, flood, scale)?,
        Work::Listing => listing(server, &mount, prepared)?,
        Work::Lookup => metadata(server, &mount, prepared, row, scale, calls::Kind::Lookup)?,
        Work::GetAttr => metadata(server, &mount, prepared, row, scale, calls::Kind::GetAttr)?,
        Work::CreateRemove => metadata(server, &mount, prepared, row, scale, calls::Kind::CreateRemove)?,
    };
    sample.others = cpu_watch.others(server, Duration::ZERO);
    Ok(sample)
}

fn data(
    server: &Running,
    mount: &Mount,
    prepared: &Prepared,
    row: &Row,
    scale: &Scale,
) -> Result<Sample, String> {
    let spec = workload(row, scale).ok_or("no data in this row")?;
    let made = prepared.files.by_workload.first().into_iter().flatten();
    let files: Vec<(FileRef, u32)> =
        made.take(row.connections as usize).map(|file| (mount.file_ref(file.handle), file.number)).collect();
    let window = Window { warm: scale.warm, end: scale.warm + scale.window };
    let seen = measure::run(mount, &|| Some(server.cpu()), &spec, &files, window)?;
    let flow = seen.read.or(seen.write).ok_or("nothing was measured")?;
    let per_op = |time: Duration| time.as_secs_f64() * 1e6 / flow.finished.max(1) as f64;
    Ok(Sample {
        per_s: flow.iops,
        median_us: Some(flow.latency.percentile_us(0.5)),
        p99_us: Some(flow.latency.percentile_us(0.99)),
        server_us: seen.server_cpu.map(per_op),
        client_us: Some(per_op(seen.client_cpu)),
        others: 0.0,
    })
}

fn metadata(
    server: &Running,
    mount: &Mount,
    prepared: &Prepared,
    row: &Row,
    scale: &Scale,
    kind: calls::Kind,
) -> Result<Sample, String> {
    let directory = prepared.metadata.ok_or("nothing was prepared")?;
    let (before, began) = (server.cpu(), Instant::now());
    let times = (scale.warm, scale.warm + scale.window);
    let depth = row.depth as usize * row.connections as usize;
    let outcome = calls::run(mount, directory, kind, depth, times)?;
    let (took, used) = (began.elapsed().as_secs_f64(), server.cpu().saturating_sub(before));
    let per_s = outcome.calls as f64 / scale.window.as_secs_f64();
    Ok(Sample {
        per_s,
        median_us: Some(outcome.latency.percentile_us(0.5)),
        p99_us: Some(outcome.latency.percentile_us(0.99)),
        server_us: Some(used.as_secs_f64() * 1e6 / (per_s * took).max(1.0)),
        client_us: None,
        others: 0.0,
    })
}

fn listing(server: &Running, mount: &Mount, prepared: &Prepared) -> Result<Sample, String> {
    let directory = prepared.listed.ok_or("nothing was prepared")?;
    let (before, began) = (server.cpu(), Instant::now());
    let mut names = 0_u64;
    for page in mount.pages(directory) {
        names += page.map_err(|error| super::error_chain(&error))?.len() as u64;
    }
    let took = began.elapsed().as_secs_f64();
    let used = server.cpu().saturating_sub(before).as_secs_f64();
    Ok(Sample {
        per_s: names as f64 / took,
        server_us: Some(used * 1e6 / names.max(1) as f64),
        ..Sample::default()
    })
}

/// Runs the load through libnfs: `load HOST PORT MOUNT_PORT EXPORT MODE BLOCK DEPTH CONNECTIONS
/// SECONDS MIB`.
///
/// # Errors
/// The error output of the load.
pub fn libnfs(program: &Path, server: &Running, row: Option<&Row>, scale: &Scale) -> Result<Sample, String> {
    let (mode, block, depth, connections) = match row {
        None => ("fill", 1 << 20, 16, 4),
        Some(row) => {
            let Work::Data { pattern, direction, block } = row.work else {
                return Err("no data in this row".into());
            };
            let mode = match (pattern, direction) {
                (record::Pattern::Sequential, Direction::Read) => "read",
                (record::Pattern::Sequential, Direction::Write) => "write",
                (record::Pattern::Random, Direction::Read) => "randread",
                (record::Pattern::Random, Direction::Write) => "randwrite",
            };
            (mode, block, row.depth, row.connections)
        }
    };
    let cpu_watch = CpuWatch::start(server);
    let (before, children) = (server.cpu(), children_cpu());
    let done = Command::new(program)
        .args(["127.0.0.1", &server.port.to_string(), &server.mount_port.to_string()])
        .arg(&server.export)
        .args([mode, &block.to_string(), &depth.to_string(), &connections.to_string()])
        .args([(scale.warm + scale.window).as_secs_f64().to_string(), (scale.file_bytes >> 20).to_string()])
        .output()
        .map_err(|error| format!("cannot run {}: {error}", program.display()))?;
    let children = children_cpu().saturating_sub(children);
    let text = String::from_utf8_lossy(&done.stdout);
    let word = |name: &str| {
        let value = text.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        value.and_then(|value| value.parse::<f64>().ok())
    };
    let (Some(per_s), Some(operations)) = (word("iops"), word("operations")) else {
        return Err(format!("{mode}: {}", String::from_utf8_lossy(&done.stderr).trim()));
    };
    let used = server.cpu().saturating_sub(before).as_secs_f64();
    Ok(Sample {
        per_s,
        server_us: Some(used * 1e6 / operations.max(1.0)),
        others: cpu_watch.others(server, children),
        ..Sample::default()
    })
}

/// Returns the processor time of the children that have ended and been waited for.
fn children_cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit_once(')').map(|(_, fields)| fields).unwrap_or_default();
    // cutime and cstime (proc_pid_stat(5)), counted from the field after the name.
    let ticks: u64 =
        fields.split_whitespace().skip(13).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
    Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second().max(1) as f64)
}
