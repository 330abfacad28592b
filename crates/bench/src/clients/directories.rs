//! The directories of an agent's machine: which ones it lets be measured, and the files that it
//! makes there.
//!
//! The agent's owner says which. Without that, an agent opens, makes and writes no file. What it
//! makes is in a directory of its own, which it removes when it is asked to, and in any case when
//! the coordinator is gone.

use std::collections::BTreeMap;
use std::io;
use std::path::{Component, Path, PathBuf};

use super::message::{Files, Inspected};
use crate::directory::DirectoryRoute;
use crate::directory::files::{LocalFile, LocalFiles};
use crate::error::{Error, Result};
use crate::experiment::{DirectoryLoad, Engine};
use crate::file_sets::Compared;
use crate::remains::Remains;
use crate::room::FileSystem;
use crate::stop::Stop;
use crate::watch::Watch;
use crate::workload::PlannedWorkload;

/// The sets of files that an agent has at a time: one for each route to a directory.
const SETS_MAX: usize = 64;

/// The directories that an agent lets be measured, with all below them; none by default.
#[derive(Debug, Clone, Default)]
pub struct AllowedDirectories {
    directories: Vec<PathBuf>,
}

/// Why an agent does not do something in a directory.
#[derive(Debug)]
pub(super) enum Refusal {
    /// Its owner has not allowed it.
    NotAllowed,
    /// It cannot be done, and why.
    Failed(String),
    /// The experiment is to stop.
    Stopped,
}

impl AllowedDirectories {
    /// These directories, where they are without links.
    ///
    /// # Errors
    /// The first one that is no directory, and why.
    pub fn new(directories: &[PathBuf]) -> std::result::Result<Self, (PathBuf, io::Error)> {
        let real = |path: &PathBuf| {
            let found = std::fs::canonicalize(path).and_then(|real| match real.is_dir() {
                true => Ok(real),
                false => Err(io::ErrorKind::NotADirectory.into()),
            });
            found.map_err(|error| (path.clone(), error))
        };
        Ok(Self { directories: directories.iter().map(real).collect::<std::result::Result<_, _>>()? })
    }

    fn covers(&self, real: &Path) -> bool {
        self.directories.iter().any(|allowed| real.starts_with(allowed))
    }

    /// Opens a directory that is allowed.
    fn open(&self, path: &Path, direct: bool) -> std::result::Result<DirectoryRoute, Refusal> {
        let load = DirectoryLoad { engine: Engine::Ours, direct };
        let opened = DirectoryRoute::open("directory", path, load);
        match opened {
            // What was opened counts, wherever a link in its path leads by now.
            Ok(route) if route.real_path().is_ok_and(|real| self.covers(&real)) => Ok(route),
            // Whether anything is elsewhere is nobody's business.
            Err(error) if self.covers(path) && !path.components().any(|it| it == Component::ParentDir) => {
                Err(Refusal::Failed(cause(&error)))
            }
            Ok(_) | Err(_) => Err(Refusal::NotAllowed),
        }
    }
}

/// The cause of an error that names the route, which the coordinator knows better.
fn cause(error: &Error) -> String {
    match error {
        Error::Directory { path, doing, cause, .. } => format!("cannot {doing} {path}: {cause}"),
        error => error.to_string(),
    }
}

/// A set of files in a directory.
#[derive(Debug)]
struct Set {
    route: DirectoryRoute,
    files: LocalFiles,
}

/// The sets of files of one experiment, by the coordinator's numbers.
#[derive(Debug)]
pub(super) struct Sets<'a> {
    allowed: &'a AllowedDirectories,
    remains: &'a Remains,
    watch: &'a Watch,
    sets: BTreeMap<u32, Set>,
}

impl<'a> Sets<'a> {
    pub(super) const fn new(allowed: &'a AllowedDirectories, remains: &'a Remains, watch: &'a Watch) -> Self {
        Self { allowed, remains, watch, sets: BTreeMap::new() }
    }

    /// What a coordinator must know of a directory before files are made there.
    pub(super) fn inspect(&self, path: &Path, direct: bool) -> std::result::Result<Inspected, Refusal> {
        let route = self.allowed.open(path, direct)?;
        let FileSystem::Mounted { device, source, .. } = route.file_system() else {
            return Err(Refusal::Failed("it is on no file system".to_owned()));
        };
        Ok(Inspected { free_bytes: route.free_bytes(), device, source, access: route.describe() })
    }

    /// Makes the files of a set.
    pub(super) fn make(&mut self, files: &Files, stop: &Stop) -> std::result::Result<(), Refusal> {
        if let Some(fault) = files.fault() {
            return Err(Refusal::Failed(fault));
        }
        if self.sets.len() >= SETS_MAX || self.sets.contains_key(&files.set) {
            return Err(Refusal::Failed(format!("more than {SETS_MAX} sets of files, or one made twice")));
        }
        let mut route = self.allowed.open(&files.directory, files.direct)?;
        let needed: u64 = files.files.iter().map(|file| file.bytes).sum();
        if let Some(free) = route.free_bytes().filter(|free| *free < needed) {
            return Err(Refusal::Failed(format!("the files need {needed} bytes, and {free} are free")));
        }
        let workload = PlannedWorkload { files: files.planned(), ..PlannedWorkload::empty() };
        let step = |_| if stop.is_requested() { Err(Error::Stopped) } else { Ok(()) };
        let made = LocalFiles::prepare(&route, &[workload], &|_| true, self.remains, step);
        let files_made = made.map_err(|error| match error {
            Error::Stopped => Refusal::Stopped,
            error => Refusal::Failed(cause(&error)),
        })?;
        route.route = files.directory.display().to_string();
        let route = route.watched(self.watch);
        self.sets.insert(files.set, Set { route, files: files_made });
        Ok(())
    }

    /// The directory of a set, and some of its files by their numbers.
    pub(super) fn files(
        &self,
        set: u32,
        numbers: &[u32],
    ) -> std::result::Result<(&DirectoryRoute, Vec<LocalFile>), String> {
        let set = self.sets.get(&set).ok_or("no such set of files")?;
        let files: Option<Vec<LocalFile>> =
            numbers.iter().map(|number| set.files.get(*number).cloned()).collect();
        Ok((&set.route, files.ok_or("no such file")?))
    }

    /// Compares some files of a set, byte for byte.
    pub(super) fn compare(
        &self,
        set: u32,
        numbers: &[u32],
        stop: &Stop,
    ) -> std::result::Result<Compared, Refusal> {
        let (_, files) = self.files(set, numbers).map_err(Refusal::Failed)?;
        let Some(set) = self.sets.get(&set) else { return Err(Refusal::Failed("no such set".to_owned())) };
        match set.files.compare_files(files.iter(), stop) {
            Ok(compared) => Ok(compared.unwrap_or_default()),
            Err(Error::Stopped) => Err(Refusal::Stopped),
            Err(error) => Err(Refusal::Failed(cause(&error))),
        }
    }

    /// Removes the files of a set.
    pub(super) fn remove(&mut self, set: u32) -> std::result::Result<(), Refusal> {
        let Some(set) = self.sets.remove(&set) else { return Ok(()) };
        set.files.remove().map_err(|error| Refusal::Failed(cause(&error)))
    }

    /// Removes all files, because the experiment has ended, in whatever way.
    pub(super) fn remove_all(mut self) -> Result<()> {
        let mut outcome = Ok(());
        for set in std::mem::take(&mut self.sets).into_values() {
            outcome = outcome.and(set.files.remove());
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::clients::message::FileToMake;

    fn files(directory: &Path, bytes: u64) -> Files {
        let file = |name: &str| FileToMake { name: name.to_owned(), bytes };
        Files { set: 3, directory: directory.to_owned(), direct: false, files: vec![file("a"), file("b")] }
    }

    fn entries(directory: &Path) -> usize {
        std::fs::read_dir(directory).unwrap().count()
    }

    #[test]
    fn only_what_is_allowed_is_opened_and_links_lead_nowhere_else() {
        let directory = tempfile::tempdir().unwrap();
        let path = std::fs::canonicalize(directory.path()).unwrap();
        let [inside, outside] = ["inside", "outside"].map(|name| path.join(name));
        for made in [&inside, &outside, &inside.join("deeper")] {
            std::fs::create_dir(made).unwrap();
        }
        symlink(&outside, inside.join("link")).unwrap();
        symlink(&inside, path.join("alias")).unwrap();
        let (none, remains) = (AllowedDirectories::default(), Remains::default());
        let watch = Watch::default();
        let allowed = AllowedDirectories::new(&[path.join("alias")]).unwrap();
        let inspect = |allowed, path: &Path| Sets::new(allowed, &remains, &watch).inspect(path, true);
        assert!(matches!(inspect(&none, &inside), Err(Refusal::NotAllowed)), "closed by default");
        for good in [inside.clone(), inside.join("deeper"), path.join("alias"), inside.join("deeper/..")] {
            let found = inspect(&allowed, &good).unwrap();
            assert!(found.free_bytes.is_some() && found.access.starts_with("O_DIRECT on "), "{good:?}");
        }
        for bad in [
            &outside,
            &path,
            &inside.join("link"),
            &inside.join(".."),
            &path.join("absent"),
            &inside.join("../absent"),
        ] {
            assert!(matches!(inspect(&allowed, bad), Err(Refusal::NotAllowed)), "{bad:?}");
        }
        let absent = inspect(&allowed, &inside.join("absent"));
        assert!(matches!(&absent, Err(Refusal::Failed(why)) if why.contains("No such file")), "{absent:?}");
        let (named, error) = AllowedDirectories::new(&[path.join("absent")]).unwrap_err();
        assert_eq!((named, error.kind()), (path.join("absent"), io::ErrorKind::NotFound));
        std::fs::write(path.join("file"), "").unwrap();
        assert!(AllowedDirectories::new(&[path.join("file")]).is_err());
    }

    #[test]
    fn files_are_made_compared_and_removed_with_the_experiment() {
        let directory = tempfile::tempdir().unwrap();
        let allowed = AllowedDirectories::new(&[directory.path().to_owned()]).unwrap();
        let (remains, stop, watch) = (Remains::default(), Stop::default(), Watch::default());
        let mut sets = Sets::new(&allowed, &remains, &watch);
        sets.make(&files(directory.path(), 8192), &stop).unwrap();
        assert!(matches!(sets.make(&files(directory.path(), 8192), &stop), Err(Refusal::Failed(_))), "twice");
        assert_eq!((entries(directory.path()), remains.list().len()), (1, 1));
        assert_eq!(sets.compare(3, &[0, 1], &stop).unwrap(), (16384, None));
        assert_eq!(sets.compare(3, &[1], &stop).unwrap(), (8192, None));
        assert!(matches!(sets.compare(3, &[2], &stop), Err(Refusal::Failed(_))));
        assert!(matches!(sets.compare(4, &[0], &stop), Err(Refusal::Failed(_))));
        std::fs::write(&sets.files(3, &[1]).unwrap().1[0].path, [1; 8192]).unwrap();
        assert!(sets.compare(3, &[0, 1], &stop).unwrap().1.is_some(), "damage is found");
        sets.remove(3).unwrap();
        assert_eq!((entries(directory.path()), remains.list().len()), (0, 0));
        sets.remove(3).unwrap();
        sets.make(&files(directory.path(), 4096), &stop).unwrap();
        sets.remove_all().unwrap();
        assert_eq!(entries(directory.path()), 0, "whatever ended it");
    }

    #[test]
    fn what_is_more_than_fits_or_is_stopped_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let allowed = AllowedDirectories::new(&[directory.path().to_owned()]).unwrap();
        let (remains, stop, watch) = (Remains::default(), Stop::default(), Watch::default());
        let mut sets = Sets::new(&allowed, &remains, &watch);
        let refused = sets.make(&files(directory.path(), 1 << 49), &stop);
        assert!(matches!(&refused, Err(Refusal::Failed(why)) if why.contains("are free")), "{refused:?}");
        let wrong =
            Files { files: vec![FileToMake { name: "../x".into(), bytes: 1 }], ..files(directory.path(), 1) };
        assert!(matches!(sets.make(&wrong, &stop), Err(Refusal::Failed(_))));
        stop.request();
        assert!(matches!(sets.make(&files(directory.path(), 4096), &stop), Err(Refusal::Stopped)));
        assert_eq!((entries(directory.path()), remains.list().len()), (0, 0));
    }
}
