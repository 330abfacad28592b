//! The files of an experiment on a volume: ranges of its blocks, one after the other from its
//! beginning. They are filled before the experiment and compared after it, unless what is on the
//! volume is to stay.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use initiator::{Completion, Operation, Volume};

use super::VolumeRoute;
use crate::error::{Error, Result};
use crate::file_sets::Compared;
use crate::stamps;
use crate::stop::Stop;
use crate::workload::PlannedWorkload;

/// The bytes that are written and compared at a time.
const PIECE_BYTES: u64 = 1 << 20;
/// Operations in flight while regions are filled and compared.
const IN_FLIGHT: u64 = 16;

/// A file of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct VolumeFile {
    /// Where it begins on the volume.
    pub(crate) start: u64,
    /// The number of the file within the experiment, which is part of its stamps.
    pub(crate) number: u32,
    pub(crate) bytes: u64,
}

/// All files of a volume.
#[derive(Debug)]
pub(crate) struct Regions<'a> {
    route: &'a VolumeRoute,
    by_workload: Vec<Vec<VolumeFile>>,
}

/// The place of each file of these workloads, and the bytes that all of them take. Workloads that
/// name the same file share it.
pub(super) fn plan(
    workloads: &[PlannedWorkload],
    wanted: &dyn Fn(usize) -> bool,
) -> (Vec<Vec<VolumeFile>>, u64) {
    let (mut known, mut end): (Vec<(&str, VolumeFile)>, u64) = (Vec::new(), 0);
    let mut by_workload = Vec::new();
    for (index, workload) in workloads.iter().enumerate() {
        let mut placed = Vec::new();
        for file in workload.files.iter().filter(|_| wanted(index)) {
            let before = known.iter().find(|(name, _)| *name == file.name).map(|(_, file)| *file);
            placed.push(before.unwrap_or_else(|| {
                let number = u32::try_from(known.len()).unwrap_or(u32::MAX);
                let new = VolumeFile { start: end, number, bytes: file.bytes };
                known.push((&file.name, new));
                // Each begins with a whole piece, whatever the sizes of files and blocks are.
                end = (end + file.bytes).next_multiple_of(PIECE_BYTES);
                new
            }));
        }
        by_workload.push(placed);
    }
    (by_workload, end)
}

impl<'a> Regions<'a> {
    /// Fills the files of these workloads with stamped blocks, if what is on the volume may be
    /// overwritten. `step` gets the bytes of each piece; if it fails, nothing more is written.
    ///
    /// # Errors
    /// [`Error::Volume`], or the error of `step`.
    pub(crate) fn prepare(
        route: &'a VolumeRoute,
        workloads: &[PlannedWorkload],
        wanted: &dyn Fn(usize) -> bool,
        step: impl FnMut(u64) -> Result<()>,
    ) -> Result<Self> {
        let (by_workload, _) = plan(workloads, wanted);
        let regions = Self { route, by_workload };
        if route.may_write() {
            regions.fill(step)?;
        }
        Ok(regions)
    }

    /// The files of a workload.
    pub(crate) fn of_workload(&self, workload: usize) -> &[VolumeFile] {
        self.by_workload.get(workload).map(Vec::as_slice).unwrap_or_default()
    }

    fn fill(&self, mut step: impl FnMut(u64) -> Result<()>) -> Result<()> {
        let mut files: Vec<VolumeFile> = self.by_workload.iter().flatten().copied().collect();
        files.sort_by_key(|file| file.number);
        files.dedup();
        let attached = self.route.attach()?;
        let volume = &attached.volume;
        let mut window = Window::new(volume);
        for file in &files {
            for (offset, bytes) in pieces(file) {
                let mut data = vec![0; bytes];
                stamps::fill_noise(&mut data);
                stamps::write_stamps(&mut data, file.number, offset);
                let operation =
                    Operation::Write { offset: file.start + offset, data: Arc::new(data), durable: false };
                window.submit(operation, |_| Ok(())).map_err(|cause| self.failed(cause))?;
                step(bytes as u64)?;
            }
        }
        window.finish(|_| Ok(())).map_err(|cause| self.failed(cause))?;
        volume.flush().map_err(|cause| self.failed(cause))
    }

    /// Compares the files of a workload byte for byte: the number of bytes, and the first wrong
    /// block. `None` if what is on the volume is not ours.
    ///
    /// # Errors
    /// [`Error::Volume`], or [`Error::Stopped`].
    pub(crate) fn compare(&self, workload: usize, stop: &Stop) -> Result<Option<Compared>> {
        if !self.route.may_write() {
            return Ok(None);
        }
        let attached = self.route.attach()?;
        let (mut compared, mut wrong) = (0, None);
        for file in self.of_workload(workload) {
            let mut check = |(offset, data): (u64, Vec<u8>)| {
                let at = offset - file.start;
                if let Err(block) = stamps::check_parts(&data, file.number, at, true) {
                    wrong.get_or_insert_with(|| block.to_string());
                }
                Ok(())
            };
            let mut window = Window::new(&attached.volume);
            for (offset, bytes) in pieces(file) {
                if stop.is_requested() {
                    return Err(Error::Stopped);
                }
                let operation = Operation::Read { offset: file.start + offset, memory: vec![0; bytes] };
                window.submit(operation, &mut check).map_err(|cause| self.failed(cause))?;
            }
            window.finish(&mut check).map_err(|cause| self.failed(cause))?;
            if wrong.is_some() {
                break;
            }
            compared += file.bytes;
        }
        Ok(Some((compared, wrong)))
    }

    fn failed(&self, cause: initiator::Error) -> Error {
        Error::Volume { route: self.route.name().to_owned(), cause: Box::new(cause) }
    }
}

/// The pieces of a file: offset within it, and length.
fn pieces(file: &VolumeFile) -> impl Iterator<Item = (u64, usize)> + use<> {
    let bytes = file.bytes;
    (0..bytes.div_ceil(PIECE_BYTES)).map(move |index| {
        let offset = index * PIECE_BYTES;
        (offset, usize::try_from(PIECE_BYTES.min(bytes - offset)).unwrap_or(0))
    })
}

type Outcome = std::result::Result<(), initiator::Error>;

/// A bounded number of operations in flight.
struct Window<'a> {
    volume: &'a Volume,
    reply: Sender<Completion>,
    completions: Receiver<Completion>,
    in_flight: u64,
}

impl<'a> Window<'a> {
    fn new(volume: &'a Volume) -> Self {
        let (reply, completions) = channel();
        Self { volume, reply, completions, in_flight: 0 }
    }

    /// Submits an operation, and waits for another one if too many are in flight. `check` gets the
    /// offset on the volume of each that has ended, and the data of a read.
    fn submit(&mut self, operation: Operation, check: impl FnMut((u64, Vec<u8>)) -> Outcome) -> Outcome {
        if self.in_flight >= IN_FLIGHT {
            self.wait(check)?;
        }
        let offset = match &operation {
            Operation::Read { offset, .. } | Operation::Write { offset, .. } => *offset,
            _ => 0,
        };
        self.in_flight += 1;
        self.volume.submit(operation, offset, &self.reply);
        Ok(())
    }

    fn wait(&mut self, mut check: impl FnMut((u64, Vec<u8>)) -> Outcome) -> Outcome {
        let completion = self.completions.recv().map_err(|_| initiator::Error::Ended)?;
        self.in_flight -= 1;
        check((completion.cookie, completion.result?))
    }

    fn finish(&mut self, mut check: impl FnMut((u64, Vec<u8>)) -> Outcome) -> Outcome {
        while self.in_flight > 0 {
            self.wait(&mut check)?;
        }
        Ok(())
    }
}
