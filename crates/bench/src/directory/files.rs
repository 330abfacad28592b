//! The files of an experiment in a directory of this machine: made before it, compared as a whole
//! afterwards, and removed at the end.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, fadvise};

use super::DirectoryRoute;
use crate::error::{Error, Result};
use crate::experiment::Engine;
use crate::file_sets::Compared;
use crate::stamps;
use crate::stop::Stop;
use crate::workload::PlannedWorkload;

/// The bytes that are written and compared at a time.
const PIECE_BYTES: usize = 1 << 20;
const _: () = assert!(PIECE_BYTES.is_multiple_of(stamps::PAGE_BYTES));
/// Processes of several machines may have the same number, and the same directory.
const NAMES_MAX: u32 = 1000;

/// A file of a workload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LocalFile {
    pub(crate) path: PathBuf,
    /// The number of the file within the experiment, which is part of its stamps.
    pub(crate) number: u32,
    pub(crate) bytes: u64,
    /// Whether fio writes the file at some time, with other data than the stamps.
    is_overwritten: bool,
}

/// All files of a route, in a directory of their own.
#[derive(Debug)]
pub(crate) struct LocalFiles {
    route: String,
    directory: PathBuf,
    /// All files.
    files: Vec<LocalFile>,
    /// The files of each workload.
    by_workload: Vec<Vec<LocalFile>>,
}

impl LocalFiles {
    /// Creates a directory with the files of these workloads, filled with stamped blocks. `step`
    /// gets the bytes of each block that was written; if it fails, nothing more is created. After
    /// an error, everything that was created is removed.
    ///
    /// # Errors
    /// [`Error::Directory`], or the error of `step`.
    pub(crate) fn prepare(
        route: &DirectoryRoute,
        workloads: &[PlannedWorkload],
        wanted: &dyn Fn(usize) -> bool,
        mut step: impl FnMut(u64) -> Result<()>,
    ) -> Result<Self> {
        let directory = make_directory(&route.path)
            .map_err(|cause| Error::directory(&route.route, &route.path, "make files in", cause))?;
        let (files, by_workload) = plan(route, &directory, workloads, wanted);
        let made = Self { route: route.route.clone(), directory, files, by_workload };
        for file in &made.files {
            if let Err(error) = made.fill(file, &mut step) {
                let removed = made.remove();
                return Err(made.after_removal(error, removed));
            }
        }
        Ok(made)
    }

    /// The files of a workload.
    pub(crate) fn of_workload(&self, workload: usize) -> &[LocalFile] {
        self.by_workload.get(workload).map(Vec::as_slice).unwrap_or_default()
    }

    fn fill(&self, file: &LocalFile, step: &mut dyn FnMut(u64) -> Result<()>) -> Result<()> {
        let wrap = |cause| Error::directory(&self.route, &file.path, "write", cause);
        let made = OpenOptions::new().write(true).create_new(true).open(&file.path).map_err(wrap)?;
        let mut block = stamps::noise_in(vec![0; PIECE_BYTES].into());
        for offset in (0..file.bytes).step_by(PIECE_BYTES) {
            let len = usize::try_from(file.bytes - offset).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
            let part = block.get_mut(..len).unwrap_or_default();
            if len.is_multiple_of(stamps::PAGE_BYTES) {
                stamps::write_stamps(part, file.number, offset);
            } else {
                stamps::write_any(part, file.number, offset);
            }
            made.write_all_at(part, offset).map_err(wrap)?;
            step(len as u64)?;
        }
        made.sync_all().map_err(wrap)?;
        forget(&made).map_err(wrap)
    }

    /// Reads the files of a workload and compares every byte. Returns the number of bytes compared,
    /// `None` if no file keeps its stamps, and a description of the first wrong block, if any.
    ///
    /// # Errors
    /// [`Error::Directory`] if a file cannot be read, [`Error::Stopped`] after a stop.
    pub(crate) fn compare(&self, workload: usize, stop: &Stop) -> Result<Option<Compared>> {
        let mut compared = None;
        for file in self.of_workload(workload).iter().filter(|file| !file.is_overwritten) {
            let bytes = compared.get_or_insert(0);
            match self.compare_one(file, stop)? {
                None => *bytes += file.bytes,
                wrong => return Ok(Some((*bytes, wrong))),
            }
        }
        Ok(compared.map(|bytes| (bytes, None)))
    }

    fn compare_one(&self, file: &LocalFile, stop: &Stop) -> Result<Option<String>> {
        let wrap = |cause| Error::directory(&self.route, &file.path, "compare", cause);
        flush(file).map_err(wrap)?;
        let opened = File::open(&file.path).map_err(wrap)?;
        let mut block = vec![0; PIECE_BYTES];
        for offset in (0..file.bytes).step_by(PIECE_BYTES) {
            if stop.is_requested() {
                return Err(Error::Stopped);
            }
            let len = usize::try_from(file.bytes - offset).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
            let part = block.get_mut(..len).unwrap_or_default();
            match opened.read_exact_at(part, offset) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Ok(Some(format!("file {} ends early, after byte {offset}", file.number)));
                }
                Err(error) => return Err(wrap(error)),
            }
            if let Err(wrong) = stamps::check_parts(part, file.number, offset, true) {
                return Ok(Some(wrong.to_string()));
            }
        }
        Ok(None)
    }

    /// Removes the files and the directory.
    ///
    /// # Errors
    /// [`Error::Directory`].
    pub(crate) fn remove(&self) -> Result<()> {
        for file in &self.files {
            match std::fs::remove_file(&file.path) {
                // It was not created, because an earlier one failed.
                Err(error) if error.kind() == io::ErrorKind::NotFound && self.directory.is_dir() => {}
                removed => {
                    removed.map_err(|cause| Error::directory(&self.route, &file.path, "remove", cause))?;
                }
            }
        }
        std::fs::remove_dir(&self.directory)
            .map_err(|cause| Error::directory(&self.route, &self.directory, "remove", cause))
    }

    /// The error that ended the experiment, given how the removal of its files ended.
    pub(crate) fn after_removal(&self, error: Error, removed: Result<()>) -> Error {
        let Err(cause) = removed else { return error };
        let directory = self.directory.display().to_string();
        match error {
            Error::Stopped => Error::StoppedWithFiles { directory, cause: Box::new(cause) },
            error => {
                tracing::warn!(%directory, %cause, "the files of the experiment remain");
                error
            }
        }
    }
}

/// The files of all workloads, and those of each. Workloads that name the same file share it.
fn plan(
    route: &DirectoryRoute,
    directory: &Path,
    workloads: &[PlannedWorkload],
    wanted: &dyn Fn(usize) -> bool,
) -> (Vec<LocalFile>, Vec<Vec<LocalFile>>) {
    let mut files: Vec<LocalFile> = Vec::new();
    let mut indices: Vec<Vec<usize>> = Vec::new();
    for (index, workload) in workloads.iter().enumerate() {
        let mut of_workload = Vec::new();
        for planned in workload.files.iter().filter(|_| wanted(index)) {
            let path = directory.join(&planned.name);
            let known = files.iter().position(|file| file.path == path);
            of_workload.push(known.unwrap_or_else(|| {
                let number = u32::try_from(files.len()).unwrap_or(u32::MAX);
                files.push(LocalFile { path, number, bytes: planned.bytes, is_overwritten: false });
                files.len() - 1
            }));
        }
        if route.load.engine == Engine::Fio {
            let writers = workload.jobs.iter().filter(|job| job.has(record::Direction::Write));
            for file in writers.flat_map(|job| &job.files).filter_map(|file| of_workload.get(*file)) {
                if let Some(file) = files.get_mut(*file) {
                    file.is_overwritten = true;
                }
            }
        }
        indices.push(of_workload);
    }
    let of_workload =
        |indices: &Vec<usize>| indices.iter().filter_map(|it| files.get(*it)).cloned().collect();
    let by_workload = indices.iter().map(of_workload).collect();
    (files, by_workload)
}

fn make_directory(parent: &Path) -> io::Result<PathBuf> {
    let name = format!("trunkline-bench-{}", std::process::id());
    let numbered = (2..NAMES_MAX).map(|number| format!("{name}-{number}"));
    let mut last = io::ErrorKind::AlreadyExists.into();
    for name in std::iter::once(name.clone()).chain(numbered) {
        let path = parent.join(name);
        match std::fs::create_dir(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

/// Has what was written reach the file system's device or server, and the page cache forget it.
pub(super) fn flush(file: &LocalFile) -> io::Result<()> {
    let opened = OpenOptions::new().write(true).open(&file.path)?;
    opened.sync_all()?;
    forget(&opened)
}

/// Has the page cache forget a file, so that the next read comes from below it.
pub(super) fn forget(file: &File) -> io::Result<()> {
    fadvise(file, 0, None, Advice::DontNeed).map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{DirectoryLoad, WorkloadSpec};

    fn workloads() -> Vec<PlannedWorkload> {
        let spec = |name: &str, readers, writers| WorkloadSpec {
            name: name.into(),
            block: 4096,
            depth: 1,
            readers,
            writers,
            file: 3 << 20,
            ..WorkloadSpec::default()
        };
        [spec("read", 2, 0), spec("write", 0, 1)].iter().map(PlannedWorkload::from).collect()
    }

    fn prepare(path: &Path, engine: Engine) -> Result<LocalFiles> {
        let load = DirectoryLoad { engine, direct: false };
        let route = DirectoryRoute::open("r", path, load)?;
        LocalFiles::prepare(&route, &workloads(), &|_| true, |_| Ok(()))
    }

    #[test]
    fn files_are_made_compared_and_removed() {
        let directory = tempfile::tempdir().unwrap();
        let files = prepare(directory.path(), Engine::Ours).unwrap();
        let other = prepare(directory.path(), Engine::Ours).unwrap();
        assert_ne!(files.directory, other.directory, "two experiments of one process");
        other.remove().unwrap();
        let stop = Stop::default();
        assert_eq!(files.compare(0, &stop).unwrap(), Some((6 << 20, None)));
        let read = &files.of_workload(0)[1];
        let opened = OpenOptions::new().write(true).open(&read.path).unwrap();
        opened.write_all_at(b"x", (2 << 20) + 100).unwrap();
        let (bytes, wrong) = files.compare(0, &stop).unwrap().unwrap();
        assert_eq!(bytes, 3 << 20);
        assert!(wrong.unwrap().contains(&format!("at byte {}", 2 << 20)));
        opened.set_len(1 << 20).unwrap();
        assert!(files.compare(0, &stop).unwrap().unwrap().1.unwrap().contains("ends early"));
        stop.request();
        assert!(matches!(files.compare(1, &stop), Err(Error::Stopped)));
        files.remove().unwrap();
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_fio_writes_is_not_compared() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        if crate::fio_program::check_version().is_err() {
            let load = DirectoryLoad { engine: Engine::Fio, direct: true };
            assert!(DirectoryRoute::open("r", path, load).is_err(), "without fio");
            return;
        }
        let files = prepare(path, Engine::Fio).unwrap();
        let stop = Stop::default();
        assert_eq!(files.compare(0, &stop).unwrap(), Some((6 << 20, None)));
        assert_eq!(files.compare(1, &stop).unwrap(), None);
    }

    #[test]
    fn an_error_while_files_are_made_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let load = DirectoryLoad::default();
        let route = DirectoryRoute::open("r", directory.path(), load).unwrap();
        let mut steps = 0;
        let step = |_| {
            steps += 1;
            if steps > 4 { Err(Error::Stopped) } else { Ok(()) }
        };
        let made = LocalFiles::prepare(&route, &workloads(), &|_| true, step);
        assert!(matches!(made, Err(Error::Stopped)));
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_directory_that_is_gone_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let files = prepare(directory.path(), Engine::Ours).unwrap();
        std::fs::remove_dir_all(&files.directory).unwrap();
        let error = files.remove().unwrap_err().to_string();
        assert!(error.contains("trunkline-bench-"), "{error}");
        let stopped = files.after_removal(Error::Stopped, files.remove());
        assert!(matches!(stopped, Error::StoppedWithFiles { .. }));
    }
}
