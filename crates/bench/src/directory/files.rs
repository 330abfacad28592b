//! The files of an experiment in a directory of this machine: made before it, compared as a whole
//! afterwards, and removed at the end.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::fs::{Advice, OFlags, fadvise};

use super::DirectoryRoute;
use super::held::{HeldDirectory, HeldFile};
use crate::error::{Error, Result};
use crate::experiment::Engine;
use crate::file_sets::Compared;
use crate::remains::{Entry, Made, Remains};
use crate::stamps;
use crate::stop::Stop;
use crate::workload::PlannedWorkload;

/// The bytes that are written and compared at a time.
const PIECE_BYTES: usize = 1 << 20;
const _: () = assert!(PIECE_BYTES.is_multiple_of(stamps::PAGE_BYTES));

/// A file of a workload.
#[derive(Debug, Clone)]
pub(crate) struct LocalFile {
    /// Where it is, for messages.
    pub(crate) path: PathBuf,
    /// The number of the file within the experiment, which is part of its stamps.
    pub(crate) number: u32,
    pub(crate) bytes: u64,
    held: HeldFile,
    /// Whether fio writes the file at some time, with other data than the stamps.
    is_overwritten: bool,
}

impl LocalFile {
    /// Opens the file with these flags.
    ///
    /// # Errors
    /// If it cannot be opened, or something else is in its place.
    pub(super) fn open(&self, flags: OFlags) -> io::Result<File> {
        self.held.open(flags)
    }

    /// A name under which fio opens the file.
    ///
    /// # Errors
    /// If the file is removed.
    pub(super) fn name_for_fio(&self) -> io::Result<String> {
        self.held.name_for_others()
    }
}

/// A file that will be made.
struct PlannedLocal {
    name: String,
    bytes: u64,
    is_overwritten: bool,
}

/// All files of a route, in a directory of their own.
#[derive(Debug)]
pub(crate) struct LocalFiles {
    route: String,
    directory: Arc<HeldDirectory>,
    /// The files that are made, in the order of their numbers.
    files: Vec<LocalFile>,
    /// The files of each workload, by their numbers.
    by_workload: Vec<Vec<LocalFile>>,
    /// Says that they are there until they are removed.
    _entry: Entry,
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
        remains: &Remains,
        mut step: impl FnMut(u64) -> Result<()>,
    ) -> Result<Self> {
        let name = format!("trunkline-bench-{}", std::process::id());
        let directory = HeldDirectory::make(&route.held, &route.path, &name)
            .map_err(|cause| Error::directory(&route.route, &route.path, "make files in", cause))?;
        let entry = remains.add(Made::Directory(directory.path().to_owned()));
        let (planned, indices) = plan(route, workloads, wanted);
        let mut made = Self {
            route: route.route.clone(),
            directory: Arc::new(directory),
            files: Vec::new(),
            by_workload: Vec::new(),
            _entry: entry,
        };
        for file in &planned {
            if let Err(error) = made.create(file, &mut step) {
                let removed = made.remove();
                return Err(made.after_removal(error, removed));
            }
        }
        let of_workload =
            |indices: &Vec<usize>| indices.iter().filter_map(|it| made.files.get(*it)).cloned().collect();
        made.by_workload = indices.iter().map(of_workload).collect();
        Ok(made)
    }

    /// The file of a number.
    pub(crate) fn get(&self, number: u32) -> Option<&LocalFile> {
        self.files.get(number as usize)
    }

    /// The files of a workload.
    pub(crate) fn of_workload(&self, workload: usize) -> &[LocalFile] {
        self.by_workload.get(workload).map(Vec::as_slice).unwrap_or_default()
    }

    fn create(&mut self, file: &PlannedLocal, step: &mut dyn FnMut(u64) -> Result<()>) -> Result<()> {
        let path = self.directory.path().join(&file.name);
        let wrap = |cause| Error::directory(&self.route, &path, "write", cause);
        let (made, held) = self.directory.create(&file.name).map_err(wrap)?;
        let number = u32::try_from(self.files.len()).unwrap_or(u32::MAX);
        let local = LocalFile {
            path: path.clone(),
            number,
            bytes: file.bytes,
            held,
            is_overwritten: file.is_overwritten,
        };
        // Whatever fails from here on, there is a file to remove.
        self.files.push(local);
        fill(&made, number, file.bytes, &wrap, step)
    }

    /// Reads the files of a workload and compares every byte. Returns the number of bytes compared,
    /// `None` if no file keeps its stamps, and a description of the first wrong block, if any.
    ///
    /// # Errors
    /// [`Error::Directory`] if a file cannot be read, [`Error::Stopped`] after a stop.
    pub(crate) fn compare(&self, workload: usize, stop: &Stop) -> Result<Option<Compared>> {
        self.compare_files(self.of_workload(workload).iter(), stop)
    }

    /// Compares some of the files. Otherwise as [`LocalFiles::compare`].
    pub(crate) fn compare_files<'a>(
        &self,
        files: impl Iterator<Item = &'a LocalFile>,
        stop: &Stop,
    ) -> Result<Option<Compared>> {
        let mut compared = None;
        for file in files.filter(|file| !file.is_overwritten) {
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
        let opened = file.open(OFlags::RDONLY).map_err(wrap)?;
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
            match file.held.remove() {
                // Somebody has removed it; whether the directory is there shows next.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                removed => {
                    removed.map_err(|cause| Error::directory(&self.route, &file.path, "remove", cause))?;
                }
            }
        }
        self.directory
            .remove()
            .map_err(|cause| Error::directory(&self.route, self.directory.path(), "remove", cause))
    }

    /// The error that ended the experiment, given how the removal of its files ended.
    pub(crate) fn after_removal(&self, error: Error, removed: Result<()>) -> Error {
        let Err(cause) = removed else { return error };
        let directory = self.directory.path().display().to_string();
        match error {
            Error::Stopped => Error::StoppedWithFiles { directory, cause: Box::new(cause) },
            error => {
                tracing::warn!(%directory, %cause, "the files of the experiment remain");
                error
            }
        }
    }
}

/// Writes stamped blocks to a new file, and has the page cache forget it.
fn fill(
    made: &File,
    number: u32,
    bytes: u64,
    wrap: &dyn Fn(io::Error) -> Error,
    step: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<()> {
    let mut block = stamps::noise_in(vec![0; PIECE_BYTES].into());
    for offset in (0..bytes).step_by(PIECE_BYTES) {
        let len = usize::try_from(bytes - offset).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
        let part = block.get_mut(..len).unwrap_or_default();
        if len.is_multiple_of(stamps::PAGE_BYTES) {
            stamps::write_stamps(part, number, offset);
        } else {
            stamps::write_any(part, number, offset);
        }
        made.write_all_at(part, offset).map_err(wrap)?;
        step(len as u64)?;
    }
    made.sync_all().map_err(wrap)?;
    forget(made).map_err(wrap)
}

/// The files of all workloads, and those of each, as indices. Workloads that name the same file
/// share it.
fn plan(
    route: &DirectoryRoute,
    workloads: &[PlannedWorkload],
    wanted: &dyn Fn(usize) -> bool,
) -> (Vec<PlannedLocal>, Vec<Vec<usize>>) {
    let mut files: Vec<PlannedLocal> = Vec::new();
    let mut indices = Vec::new();
    for (index, workload) in workloads.iter().enumerate() {
        let mut of_workload = Vec::new();
        for planned in workload.files.iter().filter(|_| wanted(index)) {
            let known = files.iter().position(|file| file.name == planned.name);
            of_workload.push(known.unwrap_or_else(|| {
                let name = planned.name.clone();
                files.push(PlannedLocal { name, bytes: planned.bytes, is_overwritten: false });
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
    (files, indices)
}

/// Has what was written reach the file system's device or server, and the page cache forget it.
pub(super) fn flush(file: &LocalFile) -> io::Result<()> {
    let opened = file.open(OFlags::WRONLY)?;
    opened.sync_all()?;
    forget(&opened)
}

/// Has the page cache forget a file, so that the next read comes from below it.
pub(super) fn forget(file: &File) -> io::Result<()> {
    fadvise(file, 0, None, Advice::DontNeed).map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

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
        LocalFiles::prepare(&route, &workloads(), &|_| true, &Remains::default(), |_| Ok(()))
    }

    #[test]
    fn files_are_made_compared_and_removed() {
        let directory = tempfile::tempdir().unwrap();
        let files = prepare(directory.path(), Engine::Ours).unwrap();
        let other = prepare(directory.path(), Engine::Ours).unwrap();
        assert_ne!(files.directory.path(), other.directory.path(), "two experiments of one process");
        other.remove().unwrap();
        let stop = Stop::default();
        assert_eq!(files.compare(0, &stop).unwrap(), Some((6 << 20, None)));
        let read = &files.of_workload(0)[1];
        let opened = std::fs::OpenOptions::new().write(true).open(&read.path).unwrap();
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
        let (mut steps, remains) = (0, Remains::default());
        let step = |_| {
            steps += 1;
            assert_eq!(remains.list().len(), 1);
            if steps > 4 { Err(Error::Stopped) } else { Ok(()) }
        };
        let made = LocalFiles::prepare(&route, &workloads(), &|_| true, &remains, step);
        assert!(matches!(made, Err(Error::Stopped)) && remains.list().is_empty());
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_directory_that_is_gone_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let files = prepare(directory.path(), Engine::Ours).unwrap();
        std::fs::remove_dir_all(files.directory.path()).unwrap();
        let error = files.remove().unwrap_err().to_string();
        assert!(error.contains("trunkline-bench-"), "{error}");
        let stopped = files.after_removal(Error::Stopped, files.remove());
        assert!(matches!(stopped, Error::StoppedWithFiles { .. }));
    }
}
