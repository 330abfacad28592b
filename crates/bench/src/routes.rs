//! The routes of an experiment: mounted, or skipped with the reason.

use client::{Mount, Settings};
use record::{PathCounters, Route};

use crate::error::{Error, Result};
use crate::experiment::{Experiment, RouteSpec, Target};
use crate::group::Group;

/// A route that is mounted.
#[derive(Debug)]
pub struct Mounted {
    /// Its name.
    pub name: String,
    /// The mount.
    pub mount: Mount,
    /// Nodes that it uses.
    pub nodes: usize,
    /// Nodes of the target.
    pub all_nodes: usize,
    /// The node that each of its paths leads to, among all nodes of the target.
    pub node_of_path: Vec<usize>,
}

impl Mounted {
    /// What its paths have counted.
    #[must_use]
    pub fn counters(&self) -> Vec<PathCounters> {
        let paths = self.mount.statistics().paths.into_iter();
        paths
            .map(|path| PathCounters {
                path: path.name,
                state: path
                    .status
                    .first()
                    .map_or_else(String::new, |status| format!("{:?}", status.state).to_lowercase()),
                calls: path.counters.read.calls + path.counters.write.calls + path.counters.metadata.calls,
                bytes: path.counters.payload_bytes(),
                failovers: path.status.iter().map(|status| status.failovers).sum(),
                ..PathCounters::default()
            })
            .collect()
    }
}

/// Whether the options ask for RDMA.
#[must_use]
pub fn is_rdma(options: &str) -> bool {
    options.split(',').any(|option| option == "rdma" || option.starts_with("proto=rdma"))
}

/// Why a route cannot run here.
fn skipped(options: &str) -> Option<String> {
    if !is_rdma(options) {
        return None;
    }
    let devices = std::fs::read_dir("/sys/class/infiniband").map_or(0, Iterator::count);
    Some(if devices == 0 {
        "no RDMA device here, and this version speaks TCP only".into()
    } else {
        format!("this version speaks TCP only; {devices} RDMA device(s) here are not used")
    })
}

/// The route as the record shows it, before anything is measured.
#[must_use]
pub fn describe(spec: &RouteSpec, experiment: &Experiment) -> Route {
    if let Some(reason) = skipped(&spec.options) {
        return Route { options: spec.options.clone(), ..Route::skipped(&spec.name, reason) };
    }
    let nodes = match &experiment.target {
        Target::Embedded { nodes, .. } => (1..=*nodes).map(|node| format!("node{node}")).collect(),
        Target::Server(_) => Vec::new(),
    };
    Route { name: spec.name.clone(), options: spec.options.clone(), nodes, ..Route::default() }
}

/// Mounts all routes that can run here.
///
/// # Errors
/// [`Error::Route`] with the first that cannot be mounted.
pub fn mount_all(
    experiment: &Experiment,
    group: Option<&Group>,
    pace_bytes_per_s: Option<u64>,
    congestion: Option<&str>,
) -> Result<Vec<Mounted>> {
    let runnable = experiment.routes.iter().filter(|spec| !is_rdma(&spec.options));
    runnable
        .map(|spec| {
            let wrap = |cause| Error::Route { route: spec.name.clone(), cause };
            let mut settings = settings(spec, experiment, group).map_err(wrap)?;
            settings.pace_bytes_per_s = pace_bytes_per_s;
            if settings.congestion.is_none() {
                settings.congestion = congestion.map(str::to_owned);
            }
            let all = group.map_or_else(|| settings.remotes.clone(), |group| group.addresses.clone());
            let remotes = settings.remotes.clone();
            let mount = Mount::with_settings(settings).map_err(wrap)?;
            let node_of_path = mount
                .statistics()
                .paths
                .iter()
                .map(|path| {
                    let remote = remotes.get(usize::from(path.node));
                    all.iter().position(|address| Some(address) == remote).unwrap_or(0)
                })
                .collect();
            Ok(Mounted {
                name: spec.name.clone(),
                mount,
                nodes: remotes.len(),
                all_nodes: all.len(),
                node_of_path,
            })
        })
        .collect()
}

/// The settings of a route: its mount options, and the target.
fn settings(spec: &RouteSpec, experiment: &Experiment, group: Option<&Group>) -> client::Result<Settings> {
    let target = match (&experiment.target, group) {
        (Target::Server(server), _) => server.clone(),
        (Target::Embedded { .. }, Some(group)) => {
            let first = group.addresses.first().map_or_else(|| "127.0.0.1".into(), ToString::to_string);
            format!("{first}:/bench")
        }
        (Target::Embedded { .. }, None) => "127.0.0.1:/bench".into(),
    };
    let options = match group {
        Some(group) => format!("port={0},mountport={0},{1}", group.port, spec.options),
        None => spec.options.clone(),
    };
    provisional(&target, &options)
}

fn provisional(target: &str, options: &str) -> client::Result<Settings> {
    let (host, export) = target.split_once(':').unwrap();
    let mut s = Settings::new(host.parse().unwrap(), 2049, export);
    for o in options.split(',') {
        match o.split_once('=') {
            Some(("port", v)) => s.port = v.parse().unwrap(),
            Some(("mountport", v)) => s.mount_port = v.parse().unwrap(),
            Some(("nconnect", v)) => s.nconnect = v.parse().unwrap(),
            Some(("remoteports", _)) => s.remotes = (1..=4).map(|n| std::net::IpAddr::from([127, 0, 0, n])).collect(),
            _ => {}
        }
    }
    Ok(s)
}
