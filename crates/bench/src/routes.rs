//! The routes of an experiment: mounted, or skipped with the reason.

use client::options::Proto;
use client::{Mount, Settings};
use plan::link::Transport;
use record::{PathCounters, Route};

use crate::error::{Error, Result};
use crate::experiment::{Experiment, RouteSpec, Target};
use crate::group::Group;

/// A route that can be mounted.
///
/// It is mounted for each repeat anew: a node paces what it sends over all its connections, so those of a route
/// that does not run must not be there.
#[derive(Debug)]
pub struct Ready {
    /// Its name.
    pub name: String,
    settings: Settings,
    /// Nodes that it uses.
    pub nodes: usize,
    /// The addresses of all nodes of the target.
    pub node_names: Vec<String>,
    /// The node that each of its paths leads to, among all nodes of the target.
    pub node_of_path: Vec<usize>,
}

impl Ready {
    /// Whether it goes over RDMA.
    #[must_use]
    pub fn is_rdma(&self) -> bool {
        self.settings.proto == Proto::Rdma
    }

    /// How its payload travels, for what headers leave of a link.
    #[must_use]
    pub fn transport(&self) -> Transport {
        if self.is_rdma() {
            return if speaks_ethernet() { Transport::RoceV2 } else { Transport::InfiniBand };
        }
        let is_ipv6 = self.settings.remotes.iter().all(|remote| remote.is_ipv6());
        if is_ipv6 { Transport::TcpIpv6 } else { Transport::Tcp }
    }

    /// Mounts it.
    ///
    /// # Errors
    /// [`Error::Route`].
    pub fn mount(&self) -> Result<Mount> {
        let wrap = |cause| Error::Route { route: self.name.clone(), cause: Box::new(cause) };
        Mount::with_settings(self.settings.clone()).map_err(wrap)
    }
}

/// Adds what a mount's paths have counted. The port of an embedded group, another one in each half, is left out of
/// their names.
pub fn add_counters(sum: &mut Vec<PathCounters>, mount: &Mount, group: Option<&Group>) {
    let port = group.map(|group| format!(":{}", group.port)).unwrap_or_default();
    let paths = mount.statistics().paths;
    sum.resize_with(paths.len().max(sum.len()), PathCounters::default);
    for (sum, path) in sum.iter_mut().zip(paths) {
        let counters = &path.counters;
        sum.path = path.name.strip_suffix(&port).unwrap_or(&path.name).to_owned();
        sum.state = path
            .status
            .first()
            .map_or_else(String::new, |status| format!("{:?}", status.state).to_lowercase());
        sum.calls += counters.read.calls + counters.write.calls + counters.metadata.calls;
        sum.bytes += counters.payload_bytes();
        sum.retransmissions += counters.retransmissions;
        sum.failovers += path.status.iter().map(|status| status.moved_calls).sum::<u64>();
    }
}

/// Whether the options ask for RDMA.
#[must_use]
pub fn is_rdma(options: &str) -> bool {
    options.split(',').any(|option| option == "rdma" || option.starts_with("proto=rdma"))
}

/// Whether the RDMA devices of this machine are on Ethernet. With both kinds, the less favourable one is reckoned with.
fn speaks_ethernet() -> bool {
    let devices = verbs::devices().unwrap_or_default();
    devices.iter().flat_map(|device| &device.ports).any(|port| port.active && port.ethernet)
}

/// Why a route cannot run here.
fn skipped(options: &str, target: &Target) -> Option<String> {
    if !is_rdma(options) {
        return None;
    }
    match (verbs::devices(), target) {
        (Err(error @ verbs::Error::Missing { .. }), _) => Some(error.to_string()),
        (Ok(devices), Target::Server(_)) if !devices.is_empty() => None,
        (Ok(devices), Target::Embedded { .. }) if !devices.is_empty() => Some(
            "the embedded group speaks TCP only; a server of its own can be named in an experiment".into(),
        ),
        _ => Some("no RDMA device here; `trunkline lab vm` has Soft-RoCE".into()),
    }
}

/// The route as the record shows it, before anything is measured.
#[must_use]
pub fn describe(spec: &RouteSpec, target: &Target) -> Route {
    if let Some(reason) = skipped(&spec.options, target) {
        return Route { options: spec.options.clone(), ..Route::skipped(&spec.name, reason) };
    }
    Route { name: spec.name.clone(), options: spec.options.clone(), ..Route::default() }
}

/// All routes that can run here.
///
/// # Errors
/// [`Error::Route`] with the first that cannot be mounted.
pub fn ready(
    experiment: &Experiment,
    group: Option<&Group>,
    pace_bytes_per_s: Option<u64>,
    congestion: Option<&str>,
) -> Result<Vec<Ready>> {
    let runnable =
        experiment.routes.iter().filter(|spec| skipped(&spec.options, &experiment.target).is_none());
    runnable
        .map(|spec| {
            let wrap = |cause| Error::Route { route: spec.name.clone(), cause: Box::new(cause) };
            let mut settings = settings(spec, experiment, group).map_err(wrap)?;
            settings.pace_bytes_per_s = pace_bytes_per_s;
            if let Some(congestion) = congestion {
                settings.congestion = Some(congestion.to_owned());
            }
            let all = group.map_or_else(|| settings.remotes.clone(), |group| group.addresses.clone());
            let node_of = |remote| all.iter().position(|address| address == remote).unwrap_or(0);
            let of_remotes: Vec<usize> = settings.remotes.iter().map(node_of).collect();
            // The paths of a mount: each local address to each remote one.
            let node_of_path = of_remotes.repeat(settings.locals.len().max(1));
            // Connection i goes to remote i mod R: with fewer connections than remotes some are left out.
            let nodes = settings.remotes.len().min(usize::from(settings.nconnect)).max(1);
            let node_names = all.iter().map(ToString::to_string).collect();
            Ok(Ready { name: spec.name.clone(), settings, nodes, node_names, node_of_path })
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
        Some(group) => format!("noresvport,port={0},mountport={0},{1}", group.port, spec.options),
        None => spec.options.clone(),
    };
    Settings::from_options(&target, options.trim_end_matches(','))
}
