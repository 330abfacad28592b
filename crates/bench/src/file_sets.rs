//! The sets of files of an experiment: one for all routes to the same server, or one for each route
//! that has a server of its own.

use client::Mount;

use crate::error::{Error, Result};
use crate::files::{Files, PreparedFile};
use crate::progress::Progress;
use crate::routes::ReadyRoute;
use crate::stop::Stop;
use crate::watch::RouteMount;
use crate::workload::PlannedWorkload;

/// The files of all routes.
#[derive(Debug)]
pub struct FileSets<'a> {
    sets: Vec<FileSet<'a>>,
    /// The set of each route.
    of_route: Vec<usize>,
}

#[derive(Debug)]
struct FileSet<'a> {
    files: Files,
    /// The route over which the files are created, compared and removed.
    route: &'a ReadyRoute,
}

impl FileSet<'_> {
    fn remove(&self) -> Result<()> {
        self.route.mount().and_then(|mount| self.files.remove(&mount))
    }
}

impl<'a> FileSets<'a> {
    /// Creates the files of all workloads. After an error, everything that was created is removed.
    ///
    /// # Errors
    /// [`Error::Route`], [`Error::NoRoom`], [`Error::Prepare`] or [`Error::Stopped`].
    pub fn prepare(
        ready: &'a [ReadyRoute],
        workloads: &[PlannedWorkload],
        half: &str,
        progress: &Progress,
    ) -> Result<Self> {
        let mut makers: Vec<&ReadyRoute> = Vec::new();
        let mut of_route = Vec::new();
        for route in ready {
            if route.has_own_files || makers.is_empty() {
                makers.push(route);
            }
            of_route.push(makers.len() - 1);
        }
        if let ([shared], false) = (makers.as_mut_slice(), ready.iter().any(|route| route.has_own_files)) {
            // This machine may lack the RDMA devices of the clients.
            let over_tcp = |route: &ReadyRoute| route.clients.is_empty() || !route.is_rdma();
            *shared = ready.iter().max_by_key(|route| (over_tcp(route), route.nodes)).unwrap_or(shared);
        }
        // Nothing is created before all servers are known to have room.
        let mounts = makers.iter().map(|route| route.mount()).collect::<Result<Vec<RouteMount>>>()?;
        let needed: Vec<u64> = makers.iter().map(|route| bytes_of(route, workloads)).collect();
        for ((route, mount), bytes) in makers.iter().zip(&mounts).zip(&needed) {
            has_room(route, mount, *bytes)?;
        }
        progress.stage(&format!("{half}: making files"), needed.iter().sum());
        let mut all = Self { sets: Vec::new(), of_route };
        for (number, (route, mount)) in makers.into_iter().zip(&mounts).enumerate() {
            let wanted = |index: usize| route.has_workload(index);
            let step = |bytes| {
                progress.advance(bytes);
                progress.go_on()
            };
            match Files::prepare_planned(mount, number, workloads, &wanted, step) {
                Ok(files) => all.sets.push(FileSet { files, route }),
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

    /// The files of a workload on a route.
    #[must_use]
    pub fn prepared(&self, route: usize, workload: usize) -> &[PreparedFile] {
        let set = self.sets.get(self.set_of(route));
        set.and_then(|set| set.files.by_workload.get(workload)).map(Vec::as_slice).unwrap_or_default()
    }

    /// Compares the files of a workload in each set, byte for byte: the number of bytes, and the
    /// first wrong block.
    ///
    /// # Errors
    /// As [`Files::compare`].
    pub fn compare(&self, workload: usize, stop: &Stop) -> Result<Vec<(u64, Option<String>)>> {
        let compare = |set: &FileSet<'_>| {
            let mount = set.route.mount()?;
            set.files.compare(&mount, workload, stop)
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
                Err(error) => Err(set.files.after_removal(error, removed)),
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

/// Refuses a server that has less room than the files need.
fn has_room(route: &ReadyRoute, mount: &Mount, needed_bytes: u64) -> Result<()> {
    // A server that does not say what is free may still have room.
    let Ok(space) = mount.space() else { return Ok(()) };
    if space.available_bytes >= needed_bytes {
        return Ok(());
    }
    Err(Error::NoRoom { route: route.name.clone(), needed_bytes, free_bytes: space.available_bytes })
}
