//! The files of an experiment: created before it, compared as a whole afterwards, and removed at
//! the end.

use std::collections::VecDeque;

use client::{Answer, Buffer, FileRef, Mount, Op, Pending};
use fs::{CreateMode, FileHandle, SetAttributes};

use crate::error::{Error, Result};
use crate::experiment::WorkloadSpec;
use crate::stamps;
use crate::stop::Stop;
use crate::workload::{PlannedFile, PlannedWorkload};

/// Operations in flight while files are created and compared.
const IN_FLIGHT: usize = 16;

/// One file of a workload.
#[derive(Debug, Clone, Copy)]
pub struct PreparedFile {
    /// The file's handle.
    pub handle: FileHandle,
    /// The number of the file within the experiment.
    pub number: u32,
    /// The size of the file.
    pub bytes: u64,
}

/// All files of an experiment, in their own directory.
#[derive(Debug)]
pub struct Files {
    directory: FileHandle,
    name: Vec<u8>,
    names: Vec<Vec<u8>>,
    /// All files, in the order of `names`.
    prepared: Vec<PreparedFile>,
    /// The files of each workload.
    pub by_workload: Vec<Vec<PreparedFile>>,
}

impl Files {
    /// Creates a directory with the files of these workloads, filled with stamped blocks. `step`
    /// gets the bytes of each block that was written; if it fails, nothing more is created. After
    /// an error, everything that was created is removed.
    ///
    /// # Errors
    /// [`Error::Prepare`], or the error of `step`.
    pub fn prepare(
        mount: &Mount,
        workloads: &[WorkloadSpec],
        step: impl FnMut(u64) -> Result<()>,
    ) -> Result<Self> {
        let planned: Vec<PlannedWorkload> = workloads.iter().map(PlannedWorkload::from).collect();
        Self::prepare_planned(mount, 0, &planned, &|_| true, step)
    }

    /// Creates a directory with the files of all workloads, filled with stamped blocks. `number`
    /// tells apart several directories in one experiment; a workload that is not `wanted` has no
    /// files. Otherwise as [`Files::prepare`].
    ///
    /// # Errors
    /// [`Error::Prepare`], or the error of `step`.
    pub(crate) fn prepare_planned(
        mount: &Mount,
        number: usize,
        workloads: &[PlannedWorkload],
        wanted: &dyn Fn(usize) -> bool,
        mut step: impl FnMut(u64) -> Result<()>,
    ) -> Result<Self> {
        let name = Self::directory_name(number).into_bytes();
        let attributes = SetAttributes::mode(0o755);
        let (directory, _) = mount.make_directory(mount.root(), &name, attributes).map_err(Error::prepare)?;
        let mut files =
            Self { directory, name, names: Vec::new(), prepared: Vec::new(), by_workload: Vec::new() };
        match files.create_all(mount, workloads, wanted, &mut step) {
            Ok(()) => Ok(files),
            Err(error) => {
                let removed = files.remove(mount);
                Err(files.after_removal(error, removed))
            }
        }
    }

    /// The name of the directory of this number.
    pub(crate) fn directory_name(number: usize) -> String {
        let suffix = if number == 0 { String::new() } else { format!("-{number}") };
        format!("trunkline-bench-{}{suffix}", std::process::id())
    }

    fn create_all(
        &mut self,
        mount: &Mount,
        workloads: &[PlannedWorkload],
        wanted: &dyn Fn(usize) -> bool,
        step: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<()> {
        for (index, workload) in workloads.iter().enumerate() {
            let mut prepared = Vec::new();
            for file in workload.files.iter().filter(|_| wanted(index)) {
                prepared.push(self.find_or_create(mount, file, step)?);
            }
            self.by_workload.push(prepared);
        }
        Ok(())
    }

    fn find_or_create(
        &mut self,
        mount: &Mount,
        file: &PlannedFile,
        step: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<PreparedFile> {
        let name = file.name.as_bytes();
        if let Some(at) = self.names.iter().position(|known| known == name)
            && let Some(known) = self.prepared.get(at)
        {
            return Ok(*known);
        }
        let mode = CreateMode::Unchecked(SetAttributes::mode(0o644));
        let (handle, _) = mount.create(self.directory, name, mode).map_err(Error::prepare)?;
        let number = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        let prepared = PreparedFile { handle, number, bytes: file.bytes };
        self.names.push(name.to_vec());
        self.prepared.push(prepared);
        fill(mount, &prepared, step)?;
        Ok(prepared)
    }

    /// Reads the files of a workload and compares every byte. Returns the number of bytes compared,
    /// and a description of the first wrong block, if any.
    ///
    /// # Errors
    /// [`Error::Prepare`] if a file cannot be read, [`Error::Stopped`] after a stop.
    pub fn compare(&self, mount: &Mount, workload: usize, stop: &Stop) -> Result<(u64, Option<String>)> {
        let mut compared = 0;
        for file in self.by_workload.get(workload).into_iter().flatten() {
            match compare(mount, file, stop)? {
                None => compared += file.bytes,
                wrong => return Ok((compared, wrong)),
            }
        }
        Ok((compared, None))
    }

    /// Removes the files and the directory.
    ///
    /// # Errors
    /// [`Error::Prepare`].
    pub fn remove(&self, mount: &Mount) -> Result<()> {
        for name in &self.names {
            mount.remove(self.directory, name).map_err(Error::prepare)?;
        }
        mount.remove_directory(mount.root(), &self.name).map_err(Error::prepare)
    }

    /// The error that ended the experiment, given how the removal of its files ended.
    pub(crate) fn after_removal(&self, error: Error, removed: Result<()>) -> Error {
        let Err(cause) = removed else { return error };
        let directory = String::from_utf8_lossy(&self.name).into_owned();
        match error {
            Error::Stopped => Error::StoppedWithFiles { directory, cause: Box::new(cause) },
            error => {
                tracing::warn!(%directory, %cause, "the files of the experiment remain on the server");
                error
            }
        }
    }
}

/// The pieces of a file, each as large as one operation may be.
fn pieces(file: &PreparedFile, piece: u32) -> impl Iterator<Item = (u64, usize)> + use<> {
    // A piece has whole pages, so that it begins with a stamp.
    let piece = u64::from(piece) / stamps::PAGE_BYTES as u64 * stamps::PAGE_BYTES as u64;
    let (piece, bytes) = (piece.max(stamps::PAGE_BYTES as u64), file.bytes);
    (0..bytes.div_ceil(piece)).map(move |index| {
        let offset = index * piece;
        (offset, usize::try_from(piece.min(bytes - offset)).unwrap_or(0))
    })
}

fn fill(mount: &Mount, file: &PreparedFile, step: &mut dyn FnMut(u64) -> Result<()>) -> Result<()> {
    let reference = mount.file_ref(file.handle);
    let outcome = fill_ref(mount, file, reference, step);
    mount.release(&reference);
    outcome
}

fn fill_ref(
    mount: &Mount,
    file: &PreparedFile,
    reference: FileRef,
    step: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<()> {
    let mut pending: VecDeque<Pending> = VecDeque::new();
    for (offset, len) in pieces(file, mount.transfer_sizes().1) {
        let mut buffer = match pending.len() >= IN_FLIGHT {
            true => match pending.pop_front() {
                Some(first) => {
                    let done = first.wait();
                    done.result.map_err(Error::prepare)?;
                    done.buffer
                }
                None => Buffer::default(),
            },
            false => Buffer::default(),
        };
        if buffer.len() != len {
            buffer = stamps::noise_in(mount.buffer(len));
        }
        if len.is_multiple_of(stamps::PAGE_BYTES) {
            stamps::write_stamps(&mut buffer, file.number, offset);
        } else {
            stamps::write_any(&mut buffer, file.number, offset);
        }
        pending.push_back(mount.submit(Op::Write { file: reference, offset, buffer }));
        step(len as u64)?;
    }
    pending.into_iter().try_for_each(|pending| pending.wait().result.map(drop).map_err(Error::prepare))
}

fn compare(mount: &Mount, file: &PreparedFile, stop: &Stop) -> Result<Option<String>> {
    let reference = mount.file_ref(file.handle);
    let mut pending: VecDeque<(u64, Pending)> = VecDeque::new();
    let mut wrong = None;
    let mut check = |(offset, pending): (u64, Pending)| -> Result<()> {
        if stop.is_requested() {
            return Err(Error::Stopped);
        }
        let done = pending.wait();
        let count = match done.result.map_err(Error::prepare)? {
            Answer::Read { count, .. } => count as usize,
            _ => 0,
        };
        if count != done.buffer.len() {
            wrong.get_or_insert(format!(
                "file {} ends early, at byte {}",
                file.number,
                offset + count as u64
            ));
        } else if let Err(found) = stamps::check_parts(&done.buffer, file.number, offset, true) {
            wrong.get_or_insert(found.to_string());
        }
        Ok(())
    };
    for (offset, len) in pieces(file, mount.transfer_sizes().0) {
        if pending.len() >= IN_FLIGHT
            && let Some(first) = pending.pop_front()
        {
            check(first)?;
        }
        let op = Op::Read { file: reference, offset, buffer: mount.buffer(len) };
        pending.push_back((offset, mount.submit(op)));
    }
    pending.into_iter().try_for_each(check)?;
    mount.release(&reference);
    Ok(wrong)
}
