//! The fairness rows: READs of 4 KiB, one at a time, while another connection moves blocks of 1 MiB
//! as fast as it can. The latency of the small READs is compared with that of a bare ping-pong
//! beside the calibrator's flood.

use std::time::Duration;

use bench::files::Files;
use bench::limit::{Mode, Shape, measure_once, ping};
use bench::{Window, WorkloadSpec, measure};
use client::{FileRef, Mount};
use record::{Direction, Latency, Pattern};

use super::record::Sample;
use super::rows::{FLOOD, FLOOD_DEPTH, SMALL};
use super::server::Running;
use super::{Scale, error_chain};

fn sample(per_s: f64, latency: &Latency) -> Sample {
    let at = |fraction| Some(latency.percentile_us(fraction));
    Sample { per_s, median_us: at(0.5), p99_us: at(0.99), ..Sample::default() }
}

/// Measures the bare ping-pong beside the calibrator's flood.
///
/// # Errors
/// The cause as text.
pub fn limit(flood: &Shape, mode: Mode, congestion: &str, window: Duration) -> Result<Sample, String> {
    let address = *flood.remotes.first().ok_or("a flood to nowhere")?;
    let block = usize::try_from(SMALL).map_err(|error| error.to_string())?;
    // The warm-up of the flood takes a quarter of its time.
    let (pings, flooded) = ping::ping_during(address, congestion, block, window / 4, || {
        measure_once(flood, mode, congestion, window)
    })
    .map_err(|error| error_chain(&error))?;
    let flooded = flooded.map_err(|error| error_chain(&error))?;
    let others = if flooded.starved { 1.0 } else { 0.0 };
    Ok(Sample { others, ..sample(pings.per_s, &pings.latency) })
}

fn spec(block: u64, depth: u32, direction: Direction, scale: &Scale) -> WorkloadSpec {
    let reads = direction == Direction::Read;
    WorkloadSpec {
        name: "beside".into(),
        pattern: if block == SMALL { Pattern::Random } else { Pattern::Sequential },
        block,
        depth,
        readers: u32::from(reads),
        writers: u32::from(!reads),
        file: scale.file_bytes,
        ..WorkloadSpec::default()
    }
}

/// Measures two clients on one server: `mount` reads small blocks while the other client floods.
///
/// # Errors
/// The cause as text.
pub fn ours(
    server: &Running,
    mount: &Mount,
    files: &Files,
    flood: Direction,
    scale: &Scale,
) -> Result<Sample, String> {
    let flooding = server.mount(1).map_err(|error| error_chain(&error))?;
    let made = files.by_workload.first().map(Vec::as_slice).unwrap_or_default();
    let [small, large, ..] = made else { return Err("nothing was prepared".into()) };
    let window = Window { warm: scale.warm, end: scale.warm + scale.window };
    let run = |mount: &Mount, file: (FileRef, u32), spec: WorkloadSpec| {
        measure::run(mount, &|| None, &spec, &[file], window)
    };
    let small = (mount.file_ref(small.handle), small.number);
    let large = (flooding.file_ref(large.handle), large.number);
    let (seen, flooded) = std::thread::scope(|scope| {
        let flood = scope.spawn(|| run(&flooding, large, spec(FLOOD, FLOOD_DEPTH, flood, scale)));
        let seen = run(mount, small, spec(SMALL, 1, Direction::Read, scale));
        (seen, flood.join().unwrap_or_else(|_| Err("a load ended by a bug".to_owned())))
    });
    flooded?;
    let flow = seen?.read.ok_or("nothing was measured")?;
    Ok(sample(flow.iops, &flow.latency))
}
