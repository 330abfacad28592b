//! How speed grows with connections and nodes, beside the limit's own curve, and what idle
//! connections cost.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use bench::files::Files;
use bench::limit::{self, Shape, measure_once};
use bench::{Window, WorkloadSpec, machine, measure};
use client::{FileRef, Mount, Settings};
use record::Pattern;

use super::record::{AcceptanceRecord, LIMIT, Line, Mark, OURS, Sample, Series};
use super::server::{Peer, Running};
use super::{LIMIT_MODES, Options, Scale, best_of, error_chain, our_server, sample_of};

/// The numbers of connections at depth 1.
const CONNECTIONS_AT_DEPTH_1: [u32; 8] = [1, 2, 4, 16, 64, 250, 500, 1000];
/// The numbers of connections at depth 32.
const CONNECTIONS_AT_DEPTH_32: [u32; 3] = [4, 8, 16];
/// The numbers of nodes, each with eight connections in all at depth 32.
const NODES: [u8; 4] = [1, 2, 4, 8];
/// The maximum number of connections of one mount.
const MOUNT_CONNECTIONS_MAX: u32 = client::options::CONNECTIONS_MAX as u32;
/// The minimum share of the limit at each point, relative to the first point of its curve.
const CURVE_SHARE_MIN: f64 = 0.85;
/// The number of repetitions of each point.
const REPEATS: u32 = 3;
/// The number of idle connections, and the maximum memory that they may cost.
const IDLE: u32 = 1000;
const IDLE_MIB_MAX: f64 = 100.0;
const IDLE_KIB_EACH_MAX: f64 = 64.0;
/// The size of the blocks in bytes.
const BLOCK: u64 = 4096;
/// A NULL call of NFS with its record marker. RFC 5531 s9, s11
const NULL_CALL: [u32; 11] = [0x8000_0028, 7, 0, 2, 100_003, 3, 0, 0, 0, 0, 0];
/// The length of the reply to a NULL call: a record marker and six words.
const NULL_REPLY_BYTES: usize = 28;
/// How long the reply to a NULL call is awaited.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// One point of a curve.
#[derive(Debug, Clone, Copy)]
struct Point {
    connections: u32,
    depth: u32,
    nodes: u8,
}

impl Point {
    fn title(self) -> String {
        let Self { connections, depth, nodes } = self;
        let plural = |count: u32| if count == 1 { "" } else { "s" };
        let over = match nodes {
            0 => String::new(),
            nodes => format!(", {nodes} node{}", plural(nodes.into())),
        };
        format!("READ 4 KiB, depth {depth}, {connections} conn{}{over}", plural(connections))
    }

    fn remotes(self) -> Vec<IpAddr> {
        (1..=self.nodes.max(1)).map(|node| Ipv4Addr::new(127, 0, 0, node).into()).collect()
    }

    fn shape(self) -> Shape {
        Shape {
            block_bytes: BLOCK as usize,
            depth: self.depth as usize,
            connections: self.connections as usize,
            direction: limit::Direction::Read,
            remotes: self.remotes(),
            traffic: limit::Traffic::Nfs,
        }
    }
}

/// Measures the curves and idle connections, and adds them to the record.
pub fn measure(
    options: &Options,
    directory: &Path,
    deadline: Instant,
    figures: &mut AcceptanceRecord,
    progress: &mut impl FnMut(&str),
) {
    transport::descriptors::raise_limit();
    match idle(options, directory) {
        Ok(line) => figures.lines.push(line),
        Err(reason) => figures.notes.push(format!("left out: idle connections: {reason}")),
    }
    let alone = CONNECTIONS_AT_DEPTH_1.map(|connections| Point { connections, depth: 1, nodes: 0 });
    let deep = CONNECTIONS_AT_DEPTH_32.map(|connections| Point { connections, depth: 32, nodes: 0 });
    let nodes = NODES.map(|nodes| Point { connections: 8, depth: 32, nodes });
    for points in [&alone[..], &deep[..], &nodes[..]] {
        match curve(options, directory, points, deadline, progress) {
            Ok((lines, note)) => {
                figures.lines.extend(lines);
                figures.notes.extend(note);
            }
            Err(reason) => figures.notes.push(format!("left out: a curve: {reason}")),
        }
    }
}

/// Starts our server with the nodes that a curve needs.
fn serve(options: &Options, directory: &Path, name: &str, nodes: u8, mem: &str) -> Result<Running, String> {
    let mut peer: Peer = our_server(&options.program);
    for node in 2..=nodes {
        peer.command.push_str(&format!(" --listen 127.0.0.{node}:$PORT"));
    }
    peer.command = peer.command.replace("--mem 6GiB", &format!("--mem {mem}"));
    let directory = directory.join(name);
    std::fs::create_dir_all(&directory).map_err(|error| error.to_string())?;
    Running::start(&peer, &directory, true)
}

/// Measures the points of a curve. Also returns a note if the deadline came before the end.
fn curve(
    options: &Options,
    directory: &Path,
    points: &[Point],
    deadline: Instant,
    progress: &mut impl FnMut(&str),
) -> Result<(Vec<Line>, Option<String>), String> {
    let scale = &options.scale;
    let nodes = points.iter().map(|point| point.nodes).max().unwrap_or(0);
    let server = serve(options, directory, &format!("curve-{nodes}-{}", points.len()), nodes, "1GiB")?;
    let mount = server.mount(4).map_err(|error| error_chain(&error))?;
    let files = Files::prepare(&mount, &[spec(1, scale)], |_| Ok(())).map_err(|error| error_chain(&error))?;
    let file =
        files.by_workload.first().and_then(|files| files.first()).copied().ok_or("no file was made")?;
    drop(mount);
    let modes: Vec<_> =
        points.iter().map(|point| best_of(&point.shape(), scale.calibration_window)).collect();
    let mut lines: Vec<Line> = points
        .iter()
        .map(|point| Line {
            id: "curve".into(),
            title: point.title(),
            block: Some(BLOCK),
            series: vec![Series::new(LIMIT), Series::new(OURS)],
            marks: Vec::new(),
        })
        .collect();
    let mut note = None;
    'all: for repeat in 1..=REPEATS {
        for ((point, modes), line) in points.iter().zip(&modes).zip(&mut lines) {
            if Instant::now() >= deadline {
                note = Some(format!("the time was over in repetition {repeat} at {}", line.title));
                break 'all;
            }
            progress(&line.title);
            let [limit, ours] = line.series.as_mut_slice() else { continue };
            let tries = modes.iter().take(LIMIT_MODES).filter_map(|(mode, congestion)| {
                measure_once(&point.shape(), *mode, congestion, scale.window).ok()
            });
            let best = tries.max_by(|one, other| one.iops.total_cmp(&other.iops));
            limit.samples.push(best.as_ref().map(sample_of));
            // A failed repetition keeps its place, because ratios are taken within a repetition.
            let sample = sample(&server, *point, file.handle, file.number, scale);
            ours.samples.push(sample.map_err(|reason| ours.failed = Some(reason)).ok());
        }
    }
    judge(&mut lines);
    Ok((lines, note))
}

/// Compares each point's share of the limit with that of the first point.
fn judge(lines: &mut [Line]) {
    let Some((first, others)) = lines.split_first_mut() else { return };
    let ends = |line: &Line| Some((line.series(OURS)?.clone(), line.series(LIMIT)?.clone()));
    let share = |(ours, limit): &(Series, Series)| ours.ratio(limit, |sample| Some(sample.per_s));
    let Some(first) = ends(first) else { return };
    for line in others {
        let Some(here) = ends(line) else { continue };
        let found = share(&here).zip(share(&first)).map(|(share, first)| share / first);
        let what = "of the first point's share of the limit";
        let mark = Mark::new(what, CURVE_SHARE_MIN, false, found);
        let rests_on = [&here.0, &here.1, &first.0, &first.1].map(Some);
        line.marks = vec![mark.with_doubt_if_disturbed(&rests_on)];
    }
}

fn spec(depth: u32, scale: &Scale) -> WorkloadSpec {
    WorkloadSpec {
        name: "curve".into(),
        pattern: Pattern::Random,
        block: BLOCK,
        depth,
        readers: 1,
        writers: 0,
        file: scale.file_bytes,
        ..WorkloadSpec::default()
    }
}

/// Makes one measurement, with as many mounts as the connections need.
fn sample(
    server: &Running,
    point: Point,
    handle: fs::FileHandle,
    number: u32,
    scale: &Scale,
) -> Result<Sample, String> {
    let target = format!("127.0.0.1:{}", server.export.display());
    let remotes: Vec<String> = point.remotes().iter().map(ToString::to_string).collect();
    let mut mounts: Vec<(Mount, u32)> = Vec::new();
    let mut left = point.connections;
    let needed = left.div_ceil(MOUNT_CONNECTIONS_MAX) as usize;
    while left > 0 {
        let connections = left.min(MOUNT_CONNECTIONS_MAX);
        left -= connections;
        let port = server.port;
        let mut text = format!("noresvport,port={port},mountport={port},nconnect={connections}");
        if point.nodes > 1 {
            text.push_str(&format!(",remoteports={}", remotes.join("~")));
        }
        let mut settings = Settings::from_options(&target, &text).map_err(|error| error_chain(&error))?;
        // The mounts are one client: together they have no more threads than one mount would have.
        settings.loops = (settings.loops / needed).max(1);
        mounts.push((Mount::with_settings(settings).map_err(|error| error_chain(&error))?, connections));
    }
    let window = Window { warm: scale.warm, end: scale.warm + scale.window };
    let (busy, own, before) = (machine::CpuMeter::start(), machine::own_cpu(), server.cpu());
    let began = Instant::now();
    let outcomes: Vec<Result<measure::Sample, String>> = std::thread::scope(|scope| {
        let threads: Vec<_> = mounts
            .iter()
            .map(|(mount, connections)| {
                scope.spawn(move || {
                    let file: (FileRef, u32) = (mount.spread_file_ref(handle), number);
                    measure::run(mount, &|| None, &spec(connections * point.depth, scale), &[file], window)
                })
            })
            .collect();
        let ended = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|_| Err("a load ended by a bug".to_owned()))
        };
        threads.into_iter().map(ended).collect()
    });
    let seen = busy.share();
    let ours = machine::own_cpu().saturating_sub(own) + server.cpu().saturating_sub(before);
    let all = began.elapsed().as_secs_f64() * machine::cpus() as f64;
    let mut per_s = 0.0;
    for outcome in outcomes {
        per_s += outcome?.read.ok_or("nothing was measured")?.iops;
    }
    let others = (seen.busy + seen.stolen - ours.as_secs_f64() / all.max(1e-9)).max(0.0);
    Ok(Sample { per_s, others, ..Sample::default() })
}

/// Measures the resident memory of a server without files that has a thousand connections, each of
/// which has made one call.
fn idle(options: &Options, directory: &Path) -> Result<Line, String> {
    let server = serve(options, directory, "idle", 1, "64MiB")?;
    let before = server.resident_bytes();
    let streams = (0..IDLE).map(|_| call_null(server.port)).collect::<std::io::Result<Vec<_>>>();
    let streams = streams.map_err(|error| format!("of {IDLE} connections not all were served: {error}"))?;
    let after = server.resident_bytes();
    drop(streams);
    let each = after.saturating_sub(before) as f64 / f64::from(IDLE) / 1024.0;
    let mark = |what: &str, asked, found| Mark::new(what, asked, true, Some(found));
    Ok(Line {
        id: "idle".into(),
        title: format!("server with {IDLE} idle conns"),
        marks: vec![
            mark("MiB resident", IDLE_MIB_MAX, after as f64 / (1 << 20) as f64),
            mark("KiB for each connection", IDLE_KIB_EACH_MAX, each),
        ],
        ..Line::default()
    })
}

/// Connects to the server and makes one call.
fn call_null(port: u16) -> std::io::Result<TcpStream> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
    stream.write_all(&NULL_CALL.map(u32::to_be_bytes).concat())?;
    stream.read_exact(&mut [0; NULL_REPLY_BYTES])?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_is_held_against_its_first_point() {
        let line = |limit: f64, ours: f64| {
            let series = |who: &str, per_s| Series {
                samples: vec![Some(Sample { per_s, ..Sample::default() })],
                ..Series::new(who)
            };
            Line { series: vec![series(LIMIT, limit), series(OURS, ours)], ..Line::default() }
        };
        let mut lines = [line(100.0, 50.0), line(200.0, 100.0), line(400.0, 100.0)];
        judge(&mut lines);
        assert!(lines[0].marks.is_empty());
        assert_eq!(lines[1].marks[0].reached(), Some(true));
        assert_eq!(lines[2].marks[0].found, Some(0.5));
        assert_eq!(lines[2].marks[0].reached(), Some(false));
        // If others were busy at the first point, no point has a verdict.
        if let Some(sample) = lines[0].series[1].samples[0].as_mut() {
            sample.others = 0.5;
        }
        judge(&mut lines);
        assert_eq!((lines[1].marks[0].found, lines[1].marks[0].reached()), (Some(1.0), None));
    }
}
