//! The sets of files of an experiment: one for all routes to the same server, or one for each route
//! that has a server or a directory of its own.

use std::cell::RefCell;

use crate::clients::{Fleet, RemoteDirectory, RemoteFiles};
use crate::directory::DirectoryRoute;
use crate::directory::files::{LocalFile, LocalFiles};
use crate::error::{Error, Result};
use crate::files::{Files, PreparedFile};
use crate::progress::Progress;
use crate::remains::{Entry, Made};
use crate::room::{self, FileSystem, Room};
use crate::routes::{Access, FilesOf, ReadyRoute};
use crate::stop::Stop;
use crate::volume::{Regions, VolumeFile, VolumeRoute};
use crate::watch::RouteMount;
use crate::workload::PlannedWorkload;

/// The number of bytes that were compared, and a description of the first wrong block.
pub(crate) type Compared = (u64, Option<String>);

/// The files of all routes.
#[derive(Debug)]
pub struct FileSets<'a> {
    sets: Vec<FileSet<'a>>,
    /// The set of each route.
    of_route: Vec<usize>,
}

#[derive(Debug)]
enum FileSet<'a> {
    /// On a server, with the route over which the files are created, compared and removed.
    Mounted { files: Files, route: &'a ReadyRoute, _entry: Option<Entry> },
    /// In a directory.
    Local(LocalFiles),
    /// In a directory of each client.
    Remote(RemoteFiles, &'a RefCell<Fleet>),
    /// On a volume, where nothing is to be removed.
    Volume(Regions<'a>),
}

impl FileSet<'_> {
    fn remove(&self) -> Result<()> {
        match self {
            Self::Mounted { files, route, .. } => route.mount().and_then(|mount| files.remove(&mount)),
            Self::Local(files) => files.remove(),
            Self::Remote(files, fleet) => fleet.borrow_mut().remove(files),
            Self::Volume(_) => Ok(()),
        }
    }

    fn after_removal(&self, error: Error, removed: Result<()>) -> Error {
        match self {
            Self::Mounted { files, .. } => files.after_removal(error, removed),
            Self::Local(files) => files.after_removal(error, removed),
            Self::Remote(..) | Self::Volume(_) => match (error, removed) {
                (Error::Stopped, Err(cause)) => cause,
                (error, Err(cause)) => {
                    tracing::warn!(%cause, "the files of the experiment remain");
                    error
                }
                (error, Ok(())) => error,
            },
        }
    }
}

/// Where the files of a set are made.
enum Place<'a> {
    Server(RouteMount),
    Directory(&'a DirectoryRoute),
    Volume(&'a VolumeRoute),
    Clients { directory: &'a RemoteDirectory, files: RemoteFiles, fleet: &'a RefCell<Fleet> },
}

impl<'a> Place<'a> {
    fn of(
        route: &'a ReadyRoute,
        set: usize,
        workloads: &[PlannedWorkload],
        fleet: Option<&'a RefCell<Fleet>>,
    ) -> Result<Self> {
        match (&route.access, fleet) {
            (Access::Mount(_), _) => route.mount().map(Self::Server),
            (Access::Directory(directory), _) => Ok(Self::Directory(directory)),
            (Access::Volume(volume), _) => Ok(Self::Volume(volume)),
            (Access::Remote(directory), Some(fleet)) => {
                let wanted = |index: usize| route.has_workload(index);
                let files = RemoteFiles::plan(&route.name, set, &route.clients, workloads, &wanted);
                Ok(Self::Clients { directory, files, fleet })
            }
            (Access::Remote(_), None) => {
                let sentence = format!("{}: a directory of clients", route.name);
                Err(Error::refused(sentence, "there are no clients", "--client HOST"))
            }
        }
    }

    /// The rooms that the files of a route need here.
    fn rooms(&self, route: &ReadyRoute, needed_bytes: u64) -> Vec<Room> {
        match self {
            Self::Clients { directory, files, fleet } => fleet.borrow().rooms(directory, files),
            here => vec![here.room(route, needed_bytes)],
        }
    }

    /// The room that the files of a route need here.
    fn room(&self, route: &ReadyRoute, needed_bytes: u64) -> Room {
        let (free_bytes, file_system) = match self {
            // A server that does not say what is free may still have room.
            Self::Server(mount) => {
                let space = mount.space().ok();
                let attributes = mount.attributes(mount.root()).ok();
                let export = || {
                    Some(FileSystem::Export {
                        host: route.host().to_owned(),
                        fsid: attributes?.fsid,
                        root: mount.root(),
                        total_bytes: space.as_ref()?.total_bytes,
                    })
                };
                let file_system = if route.is_embedded { Some(FileSystem::Group) } else { export() };
                (space.as_ref().map(|space| space.available_bytes), file_system)
            }
            Self::Directory(directory) => (directory.free_bytes(), Some(directory.file_system())),
            // Routes to one volume share their files.
            Self::Volume(volume) => (Some(volume.bytes()), None),
            Self::Clients { .. } => (None, None),
        };
        Room { route: route.name.clone(), needed_bytes, free_bytes, file_system }
    }
}

impl<'a> FileSets<'a> {
    /// Creates the files of all workloads. After an error, everything that was created is removed.
    ///
    /// # Errors
    /// [`Error::Route`], [`Error::NoRoom`], [`Error::Prepare`], [`Error::Directory`] or
    /// [`Error::Stopped`].
    pub fn prepare(
        ready: &'a [ReadyRoute],
        workloads: &[PlannedWorkload],
        half: &str,
        fleet: Option<&'a RefCell<Fleet>>,
        progress: &Progress,
    ) -> Result<Self> {
        let (makers, of_route) = makers(ready);
        // Nothing is created before all servers are known to have room.
        let places = makers.iter().enumerate().map(|(set, route)| Place::of(route, set, workloads, fleet));
        let places = places.collect::<Result<Vec<Place<'_>>>>()?;
        let bytes = |(route, place): (&&ReadyRoute, &Place<'_>)| match place {
            Place::Clients { files, .. } => files.bytes(),
            Place::Volume(_) => VolumeRoute::needed_bytes(workloads, &|index| route.has_workload(index)),
            _ => bytes_of(route, workloads),
        };
        let needed: Vec<u64> = makers.iter().zip(&places).map(bytes).collect();
        let of_sets = makers.iter().zip(&places).zip(&needed);
        let rooms: Vec<Room> =
            of_sets.flat_map(|((route, place), bytes)| place.rooms(route, *bytes)).collect();
        room::check(&rooms)?;
        progress.stage(&format!("{half}: making files"), needed.iter().sum());
        let mut all = Self { sets: Vec::new(), of_route };
        let remains = progress.stop().remains();
        for (number, (route, place)) in makers.into_iter().zip(places).enumerate() {
            let wanted = |index: usize| route.has_workload(index);
            let step = |bytes| {
                progress.advance(bytes);
                progress.go_on()
            };
            let made = match place {
                Place::Server(ref mount) => {
                    // The store of an embedded group ends with this process.
                    let outside = route.location().filter(|_| !route.is_embedded);
                    let name = Files::directory_name(number);
                    let entry = outside.map(|place| remains.add(Made::OnServer(format!("{place}/{name}"))));
                    Files::prepare_planned(mount, number, workloads, &wanted, step)
                        .map(|files| FileSet::Mounted { files, route, _entry: entry })
                }
                Place::Directory(directory) => {
                    LocalFiles::prepare(directory, workloads, &wanted, remains, step).map(FileSet::Local)
                }
                Place::Volume(volume) => {
                    Regions::prepare(volume, workloads, &wanted, step).map(FileSet::Volume)
                }
                Place::Clients { directory, files, fleet } => {
                    let made =
                        fleet.borrow_mut().make(&directory.path, directory.direct, &files, progress.stop());
                    progress.advance(files.bytes());
                    made.map(|()| FileSet::Remote(files, fleet))
                }
            };
            match made {
                Ok(set) => all.sets.push(set),
                Err(error) => return all.remove_after(Err(error)),
            }
        }
        Ok(all)
    }

    /// The number of the route's set.
    #[must_use]
    pub fn set_of(&self, route: usize) -> usize {
        self.of_route.get(route).copied().unwrap_or_default()
    }

    /// The files of a workload on a route to a server.
    #[must_use]
    pub fn prepared(&self, route: usize, workload: usize) -> &[PreparedFile] {
        match self.sets.get(self.set_of(route)) {
            Some(FileSet::Mounted { files, .. }) => {
                files.by_workload.get(workload).map(Vec::as_slice).unwrap_or_default()
            }
            _ => &[],
        }
    }

    /// The files of a workload on a route to a directory.
    #[must_use]
    pub fn local(&self, route: usize, workload: usize) -> &[LocalFile] {
        match self.sets.get(self.set_of(route)) {
            Some(FileSet::Local(files)) => files.of_workload(workload),
            _ => &[],
        }
    }

    /// The files of a workload on a route to a volume.
    pub(crate) fn on_volume(&self, route: usize, workload: usize) -> &[VolumeFile] {
        match self.sets.get(self.set_of(route)) {
            Some(FileSet::Volume(regions)) => regions.of_workload(workload),
            _ => &[],
        }
    }

    /// The files of a route in the directories of its clients.
    pub(crate) fn remote(&self, route: usize) -> Option<&RemoteFiles> {
        match self.sets.get(self.set_of(route)) {
            Some(FileSet::Remote(files, _)) => Some(files),
            _ => None,
        }
    }

    /// Compares the files of a workload in each set, byte for byte: the number of bytes, and the
    /// first wrong block. `None` for a set that has nothing to compare, because fio has written all
    /// of it.
    ///
    /// # Errors
    /// As [`Files::compare`] and [`LocalFiles::compare`].
    pub fn compare(&self, workload: usize, stop: &Stop) -> Result<Vec<Option<Compared>>> {
        let compare = |set: &FileSet<'_>| match set {
            FileSet::Mounted { files, route, .. } => {
                let mount = route.mount()?;
                files.compare(&mount, workload, stop).map(Some)
            }
            FileSet::Local(files) => files.compare(workload, stop),
            FileSet::Remote(files, fleet) => fleet.borrow_mut().compare(files, workload, stop),
            FileSet::Volume(regions) => regions.compare(workload, stop),
        };
        self.sets.iter().map(compare).collect()
    }

    /// Removes all files after the experiment, whose outcome is returned unless a removal fails.
    ///
    /// # Errors
    /// That of the experiment, or of the first removal that failed.
    pub fn remove_after<T>(&self, outcome: Result<T>) -> Result<T> {
        self.sets.iter().fold(outcome, |outcome, set| {
            let removed = set.remove();
            match outcome {
                Ok(outcome) => removed.map(|()| outcome),
                Err(error) => Err(set.after_removal(error, removed)),
            }
        })
    }
}

/// The bytes of a route's files. Workloads that name the same file share it.
fn bytes_of(route: &ReadyRoute, workloads: &[PlannedWorkload]) -> u64 {
    let workloads = workloads.iter().enumerate().filter(|(index, _)| route.has_workload(*index));
    let mut files: Vec<_> = workloads.flat_map(|(_, workload)| &workload.files).collect();
    files.sort_by(|one, other| one.name.cmp(&other.name));
    files.dedup_by(|one, other| one.name == other.name);
    files.iter().map(|file| file.bytes).sum()
}

/// The route over which each set of files is made, and the set of each route. Routes to the same
/// target or volume share a set.
fn makers(ready: &[ReadyRoute]) -> (Vec<&ReadyRoute>, Vec<usize>) {
    let mut makers: Vec<&ReadyRoute> = Vec::new();
    let mut of_route = Vec::new();
    for route in ready {
        let is_shared = |maker: &&ReadyRoute| route.files != FilesOf::Route && maker.files == route.files;
        let known = makers.iter().position(is_shared);
        of_route.push(known.unwrap_or(makers.len()));
        if known.is_none() {
            makers.push(route);
        }
    }
    for maker in makers.iter_mut().filter(|maker| maker.files == FilesOf::Experiment) {
        // This machine may lack the RDMA devices of the clients.
        let over_tcp = |route: &ReadyRoute| route.clients.is_empty() || !route.is_rdma();
        let sharing = ready.iter().filter(|route| route.files == FilesOf::Experiment);
        *maker = sharing.max_by_key(|route| (over_tcp(route), route.nodes)).unwrap_or(maker);
    }
    (makers, of_route)
}
