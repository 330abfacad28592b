//! The mounts and directories of an experiment, for whoever watches it while it runs.

use std::fmt::Debug;
use std::ops::Deref;
use std::sync::Arc;

use client::{Mount, Statistics};

use crate::directory::counts::DirectoryCounts;

/// Learns of each mount and each directory of a running experiment.
pub trait Watcher: Debug + Send + Sync {
    /// A route was mounted. Whoever keeps the mount keeps its connections.
    fn mounted(&self, route: &str, mount: &Arc<Mount>);

    /// The mount ends, and has counted this.
    fn ended(&self, route: &str, mount: &Arc<Mount>, statistics: &Statistics);

    /// Where the operations on the directory of a route are counted. A route that was there before
    /// goes on with its counts.
    fn directory(&self, route: &str) -> Arc<DirectoryCounts>;
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

    /// Where the operations on the directory of a route are counted, if anybody watches.
    pub(crate) fn directory(&self, route: &str) -> Option<Arc<DirectoryCounts>> {
        self.0.as_ref().map(|watcher| watcher.directory(route))
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
