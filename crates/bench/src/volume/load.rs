//! A repeat of a workload on a volume: attaches it, and runs the load on a thread of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::{VolumeFile, VolumeRoute};
use crate::jobs::on_volume::Driver;
use crate::jobs::{Load, TIMER_SLACK_NS, Window};
use crate::measure::{self, Meters, Sample};
use crate::rdma::Ports;
use crate::stop::Stop;
use crate::volume::route::Attached;
use crate::workload::PlannedWorkload;

/// A block is one operation, however large it is: the volume splits it. In whole pages, so that
/// buffers keep their noise.
const PIECE_BYTES: usize = 1 << 40;

/// The threads of the host: that of the attachment, and that of the load.
const THREADS: usize = 2;

impl VolumeRoute {
    /// Runs a workload once on an attached volume; `None` after a stop.
    ///
    /// # Errors
    /// The first error.
    pub(crate) fn run(
        &self,
        attached: &Attached,
        server_cpu: &dyn Fn() -> Option<Duration>,
        workload: &PlannedWorkload,
        files: &[VolumeFile],
        window: Window,
        stop: &Stop,
    ) -> Result<Option<Sample>, String> {
        let numbered: Vec<(u64, u32)> = files.iter().map(|file| (file.start, file.number)).collect();
        let planned = workload.jobs.iter().enumerate();
        let jobs = planned
            .map(|(index, planned)| measure::job(workload, index, planned, &numbered, [PIECE_BYTES; 2], 0, 1))
            .collect();
        let (outcomes, receiver) = mpsc::channel();
        let load = Load::new(jobs, window, workload.results, outcomes, &Arc::default());
        let (ends, thread) = (AtomicBool::new(false), AtomicU32::new(0));
        let (ports, began) = (Ports::now(), Instant::now());
        let counts = self.counts().map(|counts| counts.job(0));
        std::thread::scope(|scope| {
            let driver = Driver::new(load, &attached.volume, began, &ends, self.may_write(), counts);
            let spawned = std::thread::Builder::new().name("load".into()).spawn_scoped(scope, || {
                thread.store(transport::threads::own(), Ordering::Relaxed);
                // If this fails, scheduled operations start a little late.
                let _ = rustix::thread::set_current_timer_slack(Some(TIMER_SLACK_NS));
                driver.run();
            });
            spawned.map_err(|error| format!("cannot start a thread: {error}"))?;
            let meters = Meters {
                client_cpu: &|| measure::cpu(&[attached.attachment.thread(), thread.load(Ordering::Relaxed)]),
                server_cpu,
                bytes_by_path: &|| attached.bytes_by_path(),
                loops: THREADS,
                ports,
            };
            let sample = measure::observe(began, &receiver, workload, window, stop, meters);
            ends.store(true, Ordering::Relaxed);
            sample
        })
    }
}
