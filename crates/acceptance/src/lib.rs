//! The acceptance benchmark: our server and client, the limit of the machine, and other servers and
//! clients, measured interleaved in one run.
//!
//! In each repetition every contestant does every row, in alternating order. The contestants are
//! the calibrator ([`bench::limit`]) in its best mode, our client on our server, our client on each
//! peer, and libnfs on every server if its load was built. Each server is a process of its own. A
//! measurement during which other programs used more than a tenth of the processors stays in the
//! record and does not count. The run ends at its deadline, with as many repetitions as fitted.
#![forbid(unsafe_code)]

mod calls;
mod fairness;
mod load;
mod record;
mod rows;
mod scaling;
mod server;
mod table;

use std::ops::ControlFlow;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ::record::Direction;
use bench::limit::{self, Mode, Shape, Try, measure_once};
use bench::machine;

pub use self::record::{AcceptanceRecord, GANESHA, LIMIT, Line, Mark, OURS, Sample, Series};
pub use self::rows::{ROWS, Row, Work};
pub use self::server::Peer;
pub use self::table::render;

use self::load::Prepared;
use self::server::Running;

/// How often a measurement is tried at most while other programs disturb it.
const ATTEMPTS_MAX: u32 = 3;
/// In each repetition the limit is the better result of this many modes: the best of the first
/// pass.
const LIMIT_MODES: usize = 2;

/// The amount of work and the time for it.
#[derive(Debug, Clone, PartialEq)]
pub struct Scale {
    /// The warm-up before each measurement.
    pub warm: Duration,
    /// The measured time of each measurement.
    pub window: Duration,
    /// The measured time of each mode of the calibrator in the first pass.
    pub calibration_window: Duration,
    /// The number of repetitions.
    pub repeats: u32,
    /// The size of each file in bytes.
    pub file_bytes: u64,
    /// The number of names in the directory that is listed.
    pub names: u32,
    /// The time from the start to the deadline.
    pub budget: Duration,
    /// Whether the curves over connections and nodes, and the cost of idle connections, are
    /// measured too.
    pub scaling: bool,
}

impl Scale {
    /// All rows and curves, in about twenty minutes.
    #[must_use]
    pub const fn full() -> Self {
        Self {
            warm: Duration::from_millis(300),
            window: Duration::from_millis(1500),
            calibration_window: Duration::from_millis(250),
            repeats: 7,
            file_bytes: 256 << 20,
            names: 100_000,
            budget: Duration::from_secs(30 * 60),
            scaling: true,
        }
    }

    /// Only the table, within three minutes.
    #[must_use]
    pub const fn quick() -> Self {
        Self {
            warm: Duration::from_millis(100),
            window: Duration::from_millis(350),
            calibration_window: Duration::from_millis(80),
            repeats: 3,
            file_bytes: 128 << 20,
            names: 100_000,
            budget: Duration::from_secs(165),
            scaling: false,
        }
    }
}

/// What to measure.
#[derive(Debug, Clone)]
pub struct Options {
    /// The path of the program `trunkline`.
    pub program: PathBuf,
    /// The other servers.
    pub peers: Vec<Peer>,
    /// The load through libnfs, if it was built.
    pub libnfs: Option<PathBuf>,
    /// The names of the rows to measure; all rows if empty.
    pub rows: Vec<String>,
    /// The amount of work.
    pub scale: Scale,
    /// The command line, for the record.
    pub command: String,
    /// What the caller already knows to be left out, for the record.
    pub notes: Vec<String>,
}

/// Returns the error and its causes as one line.
fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// A pairing of a client and a server, or the limit.
struct Contestant {
    who: String,
    client: ClientKind,
}

enum ClientKind {
    Limit,
    /// Our client on a server, by its index in the list of servers.
    Client(usize),
    /// libnfs on a server, by its index.
    Libnfs(usize),
}

/// A running server and the files on it.
struct ReadyServer {
    running: Running,
    prepared: Prepared,
}

struct BenchmarkRun<'a> {
    options: &'a Options,
    servers: Vec<ReadyServer>,
    contestants: Vec<Contestant>,
    deadline: Instant,
    notes: Vec<String>,
}

/// Runs the benchmark and reports each step to `progress`.
///
/// # Errors
/// If our own server does not start or a row is unknown: the reason as text. The failure of another
/// contestant is noted in the record.
pub fn run(options: &Options, mut progress: impl FnMut(&str)) -> Result<AcceptanceRecord, String> {
    let began = Instant::now();
    let rows = select_rows(&options.rows)?;
    let directory = create_directory()?;
    let mut run = BenchmarkRun {
        options,
        servers: Vec::new(),
        contestants: Vec::new(),
        deadline: began + options.scale.budget,
        notes: options.notes.clone(),
    };
    let outcome = run.start(directory.path(), &rows, &mut progress);
    let lines = outcome.map(|()| run.measure(&rows, &mut progress))?;
    let mut figures = AcceptanceRecord {
        version: record::VERSION,
        made_at: ::record::rfc3339(
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs()),
        ),
        build: env!("CARGO_PKG_VERSION").into(),
        environment: machine::environment(),
        took_s: 0.0,
        repeats: options.scale.repeats,
        notes: Vec::new(),
        lines,
    };
    figures.environment.cmdline.clone_from(&options.command);
    drop(std::mem::take(&mut run.servers));
    if options.scale.scaling && options.rows.is_empty() {
        scaling::measure(options, directory.path(), run.deadline, &mut figures, &mut progress);
    }
    figures.notes.append(&mut run.notes);
    figures.took_s = began.elapsed().as_secs_f64();
    Ok(figures)
}

/// A directory that is removed when the value is dropped.
struct TemporaryDirectory(PathBuf);

impl TemporaryDirectory {
    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TemporaryDirectory {
    fn drop(&mut self) {
        // What a server still uses there stays in the directory for temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Creates a directory with an unpredictable name. In a directory that existed already, another
/// user could have placed symbolic links where the servers write, which may run as root.
fn create_directory() -> Result<TemporaryDirectory, String> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(|error| format!("no random numbers: {error}"))?;
    let name = format!("trunkline-figures-{:016x}", u64::from_ne_bytes(random));
    let path = std::env::temp_dir().join(name);
    std::fs::DirBuilder::new()
        .mode(0o755)
        .create(&path)
        .map_err(|error| format!("cannot make {}: {error}", path.display()))?;
    Ok(TemporaryDirectory(path))
}

fn select_rows(ids: &[String]) -> Result<Vec<Row>, String> {
    if let Some(unknown) = ids.iter().find(|id| ROWS.iter().all(|row| row.id != **id)) {
        let known: Vec<&str> = ROWS.iter().map(|row| row.id).collect();
        return Err(format!("there is no row {unknown}; there are {}", known.join(", ")));
    }
    Ok(ROWS.into_iter().filter(|row| ids.is_empty() || ids.iter().any(|id| id == row.id)).collect())
}

/// Returns the command that starts our own server.
fn our_server(program: &Path) -> Peer {
    let program = program.display().to_string().replace('\'', "'\\''");
    let command = format!("exec '{program}' serve --mem 6GiB --listen 127.0.0.1:$PORT --export \"$EXPORT\"");
    Peer { name: OURS.into(), command }
}

impl BenchmarkRun<'_> {
    /// Starts all servers and creates their files. A peer that fails is left out with a note.
    fn start(
        &mut self,
        directory: &Path,
        rows: &[Row],
        progress: &mut impl FnMut(&str),
    ) -> Result<(), String> {
        let options = self.options;
        self.contestants.push(Contestant { who: LIMIT.into(), client: ClientKind::Limit });
        let ours = our_server(&options.program);
        for (index, peer) in std::iter::once(&ours).chain(&options.peers).enumerate() {
            progress(&format!("starting {}", peer.name));
            let directory = directory.join(format!("server-{index}"));
            let started = std::fs::create_dir_all(&directory)
                .map_err(|error| error.to_string())
                .and_then(|()| Running::start(peer, &directory, index == 0))
                .and_then(|running| {
                    let prepared = load::prepare(&running, rows, &options.scale)?;
                    Ok(ReadyServer { running, prepared })
                });
            match started {
                Ok(ready) => self.add_server(ready, index == 0),
                Err(reason) if index == 0 => return Err(reason),
                Err(reason) => self.notes.push(format!("left out: {reason}")),
            }
        }
        Ok(())
    }

    /// Adds the contestants of a server.
    fn add_server(&mut self, ready: ReadyServer, ours: bool) {
        let at = self.servers.len();
        let name = &ready.running.name;
        let who = if ours { OURS.into() } else { format!("{name} + our client") };
        self.contestants.push(Contestant { who, client: ClientKind::Client(at) });
        if let Some(program) = &self.options.libnfs {
            match load::libnfs(program, &ready.running, None, &self.options.scale) {
                Ok(_) => {
                    self.contestants
                        .push(Contestant { who: format!("{name} + libnfs"), client: ClientKind::Libnfs(at) });
                }
                Err(reason) => self.notes.push(format!("left out: {name} + libnfs: {reason}")),
            }
        }
        self.servers.push(ready);
    }

    /// Measures all rows in each repetition until the deadline.
    fn measure(&mut self, rows: &[Row], progress: &mut impl FnMut(&str)) -> Vec<Line> {
        let scale = &self.options.scale;
        let modes: Vec<Vec<(Mode, String)>> = rows
            .iter()
            .map(|row| {
                progress(&format!("limit of {}", row.id));
                best_modes(row, scale.calibration_window)
            })
            .collect();
        let mut lines: Vec<Line> = rows.iter().map(|row| self.line(row)).collect();
        for repeat in 0..scale.repeats {
            for ((row, modes), line) in rows.iter().zip(&modes).zip(&mut lines) {
                let mut order: Vec<usize> = (0..line.series.len()).collect();
                if repeat % 2 == 1 {
                    order.reverse();
                }
                for at in order {
                    if Instant::now() >= self.deadline {
                        self.notes.push(format!(
                            "the time was over in repetition {} at {}",
                            repeat + 1,
                            row.id
                        ));
                        self.judge(rows, &mut lines);
                        return lines;
                    }
                    let Some(series) = line.series.get_mut(at) else { continue };
                    progress(&format!("{} of {}, {}: {}", repeat + 1, scale.repeats, row.id, series.who));
                    self.sample(row, modes, repeat, series);
                }
            }
        }
        self.judge(rows, &mut lines);
        lines
    }

    /// Creates a line with an empty series for every contestant that can do the row's work.
    fn line(&self, row: &Row) -> Line {
        let able = |contestant: &&Contestant| match contestant.client {
            ClientKind::Limit => row.block().is_some(),
            ClientKind::Libnfs(_) => matches!(row.work, Work::Data { .. }),
            ClientKind::Client(_) => true,
        };
        let series = self.contestants.iter().filter(able).map(|contestant| Series::new(&contestant.who));
        Line { series: series.collect(), ..Line::of(row, self.options.scale.names) }
    }

    fn judge(&self, rows: &[Row], lines: &mut [Line]) {
        let (client, libnfs) = (format!("{GANESHA} + our client"), format!("{GANESHA} + libnfs"));
        let others = self.servers.iter().skip(1).map(|ready| ready.running.name.as_str());
        let others: Vec<&str> = others.filter(|name| *name != GANESHA).collect();
        for (row, line) in rows.iter().zip(lines) {
            let rival = if line.series(&libnfs).is_some() { &libnfs } else { &client };
            line.judge(row, Some(rival), Some(&client));
            others.iter().for_each(|name| line.judge_against_peer(name));
        }
    }

    /// Measures one contestant in one repetition, and repeats a disturbed measurement.
    fn sample(&self, row: &Row, modes: &[(Mode, String)], repeat: u32, series: &mut Series) {
        series.samples.resize(repeat as usize + 1, None);
        let Some(contestant) = self.contestants.iter().find(|contestant| contestant.who == series.who) else {
            return;
        };
        for _ in 0..ATTEMPTS_MAX {
            if series.failed.is_some() || Instant::now() >= self.deadline {
                return;
            }
            let sample = match contestant.client {
                ClientKind::Limit => self.limit(row, modes).map(|(sample, mode)| {
                    series.mode = Some(mode);
                    sample
                }),
                ClientKind::Client(at) => self
                    .server(at)
                    .and_then(|ready| load::ours(&ready.running, &ready.prepared, row, &self.options.scale)),
                ClientKind::Libnfs(at) => self.server(at).and_then(|ready| {
                    let program = self.options.libnfs.as_ref().ok_or("no load through libnfs")?;
                    load::libnfs(program, &ready.running, Some(row), &self.options.scale)
                }),
            };
            match sample {
                Ok(sample) => {
                    let is_undisturbed = sample.is_undisturbed();
                    if let Some(directory) = series.samples.last_mut() {
                        *directory = Some(sample);
                    }
                    if is_undisturbed {
                        return;
                    }
                }
                Err(reason) => series.failed = Some(reason),
            }
        }
    }

    fn server(&self, at: usize) -> Result<&ReadyServer, String> {
        self.servers.get(at).ok_or_else(|| "its server is gone".to_owned())
    }

    fn limit(&self, row: &Row, modes: &[(Mode, String)]) -> Result<(Sample, String), String> {
        let window = self.options.scale.window;
        let shape = shape(row).ok_or("no data in this row")?;
        if let Work::Fairness { .. } = row.work {
            let (mode, congestion) = modes.first().ok_or("no mode could be measured")?;
            let sample = fairness::limit(&shape, *mode, congestion, window)?;
            return Ok((sample, format!("flood: {}, {congestion}", mode.name())));
        }
        let mut best: Option<Try> = None;
        for (mode, congestion) in modes {
            let tried =
                measure_once(&shape, *mode, congestion, window).map_err(|error| error_chain(&error))?;
            if best.as_ref().is_none_or(|best| tried.iops > best.iops) {
                best = Some(tried);
            }
        }
        best.map(|best| (sample_of(&best), format!("{}, {}", best.mode.name(), best.congestion)))
            .ok_or_else(|| "no mode could be measured".to_owned())
    }
}

/// Converts the best try of the calibrator to a sample.
fn sample_of(best: &Try) -> Sample {
    Sample {
        per_s: best.iops,
        server_us: best.server_us_per_block,
        client_us: best.server_us_per_block.map(|server_part| best.cpu_us_per_block - server_part),
        others: if best.starved { 1.0 } else { 0.0 },
        ..Sample::default()
    }
}

/// Returns the traffic of a row for the calibrator; for a fairness row, the traffic of the flood.
fn shape(row: &Row) -> Option<Shape> {
    let (direction, block, depth) = match row.work {
        Work::Data { direction, block, .. } => (direction, block, row.depth),
        Work::Fairness { flood } => (flood, rows::FLOOD, rows::FLOOD_DEPTH),
        _ => return None,
    };
    Some(Shape {
        block_bytes: usize::try_from(block).ok()?,
        depth: depth as usize,
        connections: row.connections as usize,
        direction: match direction {
            Direction::Read => limit::Direction::Read,
            Direction::Write => limit::Direction::Write,
        },
        remotes: vec![std::net::Ipv4Addr::LOCALHOST.into()],
        traffic: limit::Traffic::Nfs,
    })
}

/// Returns the modes and congestion controls that carry most of a row's traffic, best first.
fn best_modes(row: &Row, calibration_window: Duration) -> Vec<(Mode, String)> {
    let Some(shape) = shape(row) else { return Vec::new() };
    best_of(&shape, calibration_window)
}

fn best_of(shape: &Shape, calibration_window: Duration) -> Vec<(Mode, String)> {
    let mut tries =
        limit::calibrate(shape, calibration_window, || ControlFlow::Continue(())).unwrap_or_default();
    // A server and its client are two processes, so a mode in which both ends share a thread is not
    // their limit.
    tries.retain(|tried| tried.mode != Mode::BothEnds);
    tries.sort_by(|one, other| other.iops.total_cmp(&one.iops));
    tries.into_iter().take(LIMIT_MODES).map(|tried| (tried.mode, tried.congestion)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_does_not_exist_is_refused_with_those_that_do() {
        let error = select_rows(&["read-1m-3".into()]).unwrap_err();
        assert!(error.contains("read-1m-3") && error.contains("read-1m-2"), "{error}");
        assert_eq!(select_rows(&[]).unwrap().len(), ROWS.len());
        assert_eq!(select_rows(&["listing".into()]).unwrap().len(), 1);
    }
}
