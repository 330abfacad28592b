//! The mounts, directories, clients and groups of an experiment, for whoever watches it while it
//! runs.

use std::fmt::Debug;
use std::ops::Deref;
use std::sync::Arc;

use client::{Mount, Statistics};
use server::StatisticsReader;

use crate::clients::ClientLoad;
use crate::directory::counts::DirectoryCounts;
use crate::group::Group;

/// Learns of each mount, directory, client and embedded group of a running experiment.
pub trait Watcher: Debug + Send + Sync {
    /// A route was mounted. Whoever keeps the mount keeps its connections.
    fn mounted(&self, route: &str, mount: &Arc<Mount>);

    /// The mount ends, and has counted this.
    fn ended(&self, route: &str, mount: &Arc<Mount>, statistics: &Statistics);

    /// Where the operations on the directory of a route are counted. A route that was there before
    /// goes on with its counts.
    fn directory(&self, route: &str) -> Arc<DirectoryCounts>;

    /// A client on another machine has told what it did on a route since it told last.
    fn told(&self, route: &str, client: &str, load: &ClientLoad);

    /// An embedded group of so many nodes serves.
    fn group(&self, nodes: usize, served: StatisticsReader);

    /// It ends, and has counted this.
    fn group_ended(&self, served: &server::Statistics);

    /// No client makes a load any more, until one tells again.
    fn clients_rest(&self);
}

/// The watcher of an experiment, if there is one.
#[derive(Debug, Clone, Default)]
pub struct Watch(Option<Arc<dyn Watcher>>);

impl Watch {
    /// An experiment with this watcher.
    #[must_use]
    pub fn by(watcher: Arc<dyn Watcher>) -> Self {
        Self(Some(watcher))
    }

    /// Tells the watcher of an embedded group.
    pub(crate) fn group<'a>(&'a self, group: &'a Group) -> WatchedGroup<'a> {
        if let Self(Some(watcher)) = self {
            watcher.group(group.at.nodes.len(), group.server.statistics_reader());
        }
        WatchedGroup { group, watch: self }
    }

    /// See [`Watcher::told`].
    pub(crate) fn told(&self, route: &str, client: &str, load: &ClientLoad) {
        self.0.iter().for_each(|watcher| watcher.told(route, client, load));
    }

    /// See [`Watcher::clients_rest`].
    pub(crate) fn clients_rest(&self) {
        self.0.iter().for_each(|watcher| watcher.clients_rest());
    }

    /// Where the operations on the directory of a route are counted, if anybody watches.
    pub(crate) fn directory(&self, route: &str) -> Option<Arc<DirectoryCounts>> {
        self.0.as_ref().map(|watcher| watcher.directory(route))
    }
}

/// An embedded group, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct WatchedGroup<'a> {
    group: &'a Group,
    watch: &'a Watch,
}

impl Drop for WatchedGroup<'_> {
    fn drop(&mut self) {
        if let Watch(Some(watcher)) = self.watch {
            watcher.group_ended(&self.group.server.statistics());
        }
    }
}

/// A mount of a route.
#[derive(Debug)]
pub struct RouteMount {
    mount: Arc<Mount>,
    route: String,
    watch: Watch,
}

impl RouteMount {
    /// Tells the watcher of the mount.
    pub(crate) fn new(mount: Mount, route: &str, watch: &Watch) -> Self {
        let mount = Arc::new(mount);
        if let Watch(Some(watcher)) = watch {
            watcher.mounted(route, &mount);
        }
        Self { mount, route: route.to_owned(), watch: watch.clone() }
    }
}

impl Deref for RouteMount {
    type Target = Mount;

    fn deref(&self) -> &Mount {
        &self.mount
    }
}

impl Drop for RouteMount {
    fn drop(&mut self) {
        if let Watch(Some(watcher)) = &self.watch {
            watcher.ended(&self.route, &self.mount, &self.mount.statistics());
        }
    }
}
