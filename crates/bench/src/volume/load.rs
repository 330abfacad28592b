//! A repeat of a workload on a volume that is attached for it.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::{VolumeFile, VolumeRoute};
use crate::jobs::on_volume::VolumeLoad;
use crate::jobs::{Load, Window};
use crate::measure::{self, Meters, Sample};
use crate::rdma::Ports;
use crate::stop::Stop;
use crate::volume::route::Attached;
use crate::workload::PlannedWorkload;

/// A block is one operation, however large it is: the volume splits it. In whole pages, so that
/// buffers keep their noise.
const PIECE_BYTES: usize = 1 << 40;

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
        let (ports, began) = (Ports::now(), Instant::now());
        let counts = self.counts().map(|counts| counts.job(0));
        attached.volume.spawn(Box::new(VolumeLoad::new(load, began, self.may_write(), counts)));
        let meters = Meters {
            client_cpu: &|| measure::cpu(&[attached.attachment.thread()]),
            server_cpu,
            bytes_by_path: &|| attached.bytes_by_path(),
            loops: 1,
            ports,
        };
        measure::observe(began, &receiver, workload, window, stop, meters)
    }
}
