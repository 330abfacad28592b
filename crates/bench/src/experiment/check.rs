//! What an experiment must be, beyond its syntax.

use crate::error::ExperimentError;

use crate::volume::{VolumeOptions, VolumeTarget};

use super::{Engine, Experiment, Links, RouteSpec, Steps, Target, WorkloadSpec};

/// Blocks are whole pages, because each page carries a stamp.
const BLOCK_BYTES_MULTIPLE: u64 = crate::stamps::PAGE_BYTES as u64;
/// The largest block, which is one READ or WRITE.
const BLOCK_BYTES_MAX: u64 = 1 << 20;
/// The maximum size of all blocks in flight together: each has a buffer.
pub(crate) const IN_FLIGHT_BYTES_MAX: u64 = 4 << 30;

/// The maximum number of operations that a job keeps in flight.
const DEPTH_MAX: u32 = 1024;
/// The maximum number of jobs of a client: its readers and writers.
const JOBS_MAX: u32 = 1024;
/// The highest rate of a workload in operations per second. No loop could submit more.
pub(crate) const RATE_MAX: f64 = 1e8;
/// The longest measured time of a repeat, in milliseconds: one hour.
const WINDOW_MS_MAX: u128 = 3_600_000;

/// The maximum number of clients.
const CLIENTS_MAX: usize = 1000;
/// The maximum number of threads that make the load on a directory.
pub(crate) const THREADS_MAX: u64 = 4096;
/// More steps than this are more than a curve needs.
const STEPS_MAX: usize = 64;

type Checked = std::result::Result<(), ExperimentError>;

fn refuse(reason: impl Into<String>) -> Checked {
    Err(ExperimentError::Value(reason.into()))
}

impl Experiment {
    pub(super) fn check(&self) -> Checked {
        if self.routes.is_empty() {
            return refuse("no [[route]]: give at least one, with a name and mount options");
        }
        if let Target::Embedded { nodes, addresses, .. } = &self.target {
            if !(1..=16).contains(nodes) {
                return refuse(format!("target.nodes = {nodes}: 1 to 16 fit here"));
            }
            if !addresses.is_empty() && addresses.len() != usize::from(*nodes) {
                let reason = format!("target.addresses: {} for {nodes} nodes", addresses.len());
                return refuse(format!("{reason}; give one for each, or leave out target.nodes"));
            }
        }
        let embedded = |route: &RouteSpec| {
            let target = route.target(self);
            matches!(target, Target::Embedded { .. } | Target::Volume(VolumeTarget::Embedded))
        };
        if !self.routes.iter().all(embedded) && self.pace_bits_per_s.is_some() {
            return refuse("pace: only an embedded group can be paced; its nodes pace what they send");
        }
        let on_loopback = self.embedded().is_some_and(|group| group.addresses.is_empty());
        if on_loopback && self.links != Links::default() {
            return refuse("limits: an embedded group has no links; what loopback carries is measured");
        }
        if let Some(fault) = self.links.fault() {
            return refuse(fault);
        }
        if !(1..=WINDOW_MS_MAX).contains(&self.window.as_millis()) {
            return refuse(format!("window_ms = {}: 1 to {WINDOW_MS_MAX}", self.window.as_millis()));
        }
        if !(1..=1000).contains(&self.repeats) {
            return refuse(format!("repeats = {}: 1 to 1000", self.repeats));
        }
        for (index, route) in self.routes.iter().enumerate() {
            if self.routes.iter().take(index).any(|other| other.name == route.name) {
                return refuse(format!("two routes are called {}", route.name));
            }
        }
        for (index, workload) in self.workloads.iter().enumerate() {
            if self.workloads.iter().take(index).any(|other| other.name == workload.name) {
                return refuse(format!("two workloads are called {}", workload.name));
            }
        }
        self.workloads.iter().try_for_each(WorkloadSpec::check)?;
        self.check_groups_agree()?;
        self.routes.iter().try_for_each(|route| self.check_volume(route))?;
        self.routes.iter().try_for_each(|route| self.check_directory(route))
    }

    /// What a route to a volume must be.
    fn check_volume(&self, route: &RouteSpec) -> Checked {
        let Target::Volume(target) = route.target(self) else { return Ok(()) };
        match VolumeOptions::parse(&route.options, target) {
            Ok(_) => Ok(()),
            Err(fault) => refuse(format!("route {}: {fault}", route.name)),
        }
    }

    /// All routes to an embedded group use the same one.
    fn check_groups_agree(&self) -> Checked {
        let mut nodes = self.routes.iter().filter_map(|route| match route.target(self) {
            Target::Embedded { nodes, .. } => Some(nodes),
            Target::Server(_) | Target::Directory(_) | Target::Kernel(_) | Target::Volume(_) => None,
        });
        match nodes.next().and_then(|first| Some((first, nodes.find(|other| *other != first)?))) {
            Some((one, other)) => refuse(format!(
                "groups of {one} and of {other} nodes: all routes to an embedded group use the same group"
            )),
            None => Ok(()),
        }
    }

    /// What a route to a directory must be, and what only such a route has.
    pub(crate) fn check_directory(&self, route: &RouteSpec) -> Checked {
        let name = &route.name;
        match (route.target(self), route.engine, route.direct) {
            (Target::Directory(_) | Target::Kernel(_), ..) => {}
            (_, None, None) => return Ok(()),
            _ => return refuse(format!("route {name}: engine and direct are for directories")),
        }
        if let Target::Directory(path) = route.target(self) {
            if !route.options.is_empty() {
                return refuse(format!("route {name}: a directory is mounted already, so it has no options"));
            }
            if !path.is_absolute() {
                return refuse(format!("route {name}: {}: the directory's path from / on", path.display()));
            }
        }
        for (index, workload) in self.planned().iter().enumerate() {
            if route.workloads.as_ref().is_some_and(|own| !own.contains(&index)) {
                continue;
            }
            // Each client has threads of its own.
            let of_client = |client: usize| {
                let own = workload.jobs.iter().filter(|job| job.client == client);
                own.map(|job| u64::from(job.depth)).sum::<u64>()
            };
            let threads = (0..workload.clients.max(1)).map(of_client).max().unwrap_or(0);
            match route.load(self).engine {
                Engine::Ours if threads > THREADS_MAX => {
                    return refuse(format!(
                        "route {name}, workload {}: {threads} operations in flight need as many threads, \
                         at most {THREADS_MAX}; lower depth, readers or writers, or engine = \"fio\"",
                        workload.name()
                    ));
                }
                Engine::Fio if workload.jobs.iter().any(|job| job.rate.is_some()) => {
                    return refuse(format!(
                        "route {name}, workload {}: fio counts the latency of a late operation from its \
                         start, not from when it was due; engine = \"ours\"",
                        workload.name()
                    ));
                }
                Engine::Ours | Engine::Fio => {}
            }
        }
        Ok(())
    }

    /// Checks the clients, and what needs them. They may be known later than the rest.
    pub(crate) fn check_clients(&self) -> Checked {
        let names = || self.clients.iter().map(|client| &client.name);
        if let Some(twice) =
            names().enumerate().find(|(index, name)| names().take(*index).any(|it| it == *name))
        {
            return refuse(format!("two clients are called {}; NAME=ADDRESS names them apart", twice.1));
        }
        if self.clients.len() > CLIENTS_MAX {
            return refuse(format!("{} clients: at most {CLIENTS_MAX}", self.clients.len()));
        }
        for (index, group) in self.groups.iter().enumerate() {
            if self.groups.iter().take(index).any(|other| other.name == group.name) {
                return refuse(format!("two client groups are called {}", group.name));
            }
            if group.clients.is_empty() {
                return refuse(format!("client group {}: it has no clients", group.name));
            }
            if let Some(unknown) = group.clients.iter().find(|client| names().all(|name| name != *client)) {
                return refuse(format!("client group {}: no client is called {unknown}", group.name));
            }
        }
        self.routes.iter().try_for_each(|route| self.check_group(route))?;
        self.routes.iter().try_for_each(|route| self.check_directory(route))?;
        self.workloads.iter().try_for_each(|workload| self.check_steps(workload))?;
        if self.clients.is_empty() {
            return Ok(());
        }
        if self.pace_bits_per_s.is_some() {
            return refuse("pace: each client would be paced by itself; use shaped links, or no clients");
        }
        self.routes.iter().try_for_each(|route| self.check_remote(route))?;
        if self.job_files.iter().any(|workload| workload.results > 0) {
            return refuse(
                "--fio-json: the results of single jobs stay with the clients; without --fio-json",
            );
        }
        match self.embedded() {
            Some(group) if group.addresses.is_empty() => refuse(
                "clients cannot reach an embedded group on loopback: `target.addresses` (--nodes-on) has \
                 addresses that they reach",
            ),
            _ => Ok(()),
        }
    }

    /// What agents do not do for a route.
    fn check_remote(&self, route: &RouteSpec) -> Checked {
        let name = &route.name;
        match route.target(self) {
            Target::Kernel(_) => refuse(format!(
                "route {name}: an agent mounts nothing by the kernel's client; mount it on each client, name \
                 the directory, and have the agents allow it (--allow-dir)"
            )),
            Target::Directory(_) if route.load(self).engine == Engine::Fio => refuse(format!(
                "route {name}: an agent runs no programs; engine = \"ours\", or a job file on fio:HOST"
            )),
            Target::Directory(_) => match self.workloads.iter().find(|workload| workload.shared) {
                Some(workload) => refuse(format!(
                    "route {name}, workload {}: each client has files of its own in a directory; without \
                     shared = true",
                    workload.name
                )),
                None => Ok(()),
            },
            Target::Volume(VolumeTarget::At { .. }) => refuse(format!(
                "route {name}: an agent attaches no volumes; run bench on each client, or mount what is on the \
                 volume there, and name the directory"
            )),
            // It is left out, with the reason.
            Target::Volume(VolumeTarget::Embedded) | Target::Server(_) | Target::Embedded { .. } => Ok(()),
        }
    }

    fn check_group(&self, route: &RouteSpec) -> Checked {
        match &route.clients {
            Some(group) if self.groups.iter().all(|known| known.name != *group) => {
                refuse(format!("route {}: no [[client_group]] is called {group}", route.name))
            }
            _ => Ok(()),
        }
    }

    /// Whether there are enough clients for the steps of a workload.
    fn check_steps(&self, workload: &WorkloadSpec) -> Checked {
        let wanted = workload.steps.iter().flat_map(|steps| steps.clients.iter().copied()).max();
        let most = self.routes.iter().map(|route| self.clients_of(route).len()).max().unwrap_or(0);
        match wanted {
            Some(wanted) if wanted as usize > most => refuse(format!(
                "workload {}: a step needs {wanted} clients, there are {most}; --client names them",
                workload.name
            )),
            _ => Ok(()),
        }
    }
}

impl Steps {
    /// The reason why these are no steps, if there is one.
    fn fault(&self) -> Option<String> {
        let steps = match (self.clients.as_slice(), self.depth.as_slice()) {
            ([], []) => return Some("steps: it needs `clients` or `depth`".into()),
            (clients, []) => clients,
            ([], depth) => depth,
            _ => return Some("steps: either `clients` or `depth`; the other stays the same".into()),
        };
        let ascending = steps.iter().zip(steps.iter().skip(1)).all(|(one, next)| one < next);
        if !ascending || steps.first() == Some(&0) {
            return Some(format!("steps = {steps:?}: numbers from 1 up, each greater than the last"));
        }
        (steps.len() > STEPS_MAX).then(|| format!("{} steps: at most {STEPS_MAX}", steps.len()))
    }
}

impl WorkloadSpec {
    fn check(&self) -> Checked {
        let depths = self.steps.iter().flat_map(|steps| steps.depth.iter().copied());
        let depth = depths.chain([self.depth]).max().unwrap_or(self.depth);
        let reason = if self.block == 0
            || !self.block.is_multiple_of(BLOCK_BYTES_MULTIPLE)
            || self.block > BLOCK_BYTES_MAX
        {
            format!("block = {} bytes: a multiple of 4 KiB, at most 1 MiB", self.block)
        } else if self.file < self.block {
            format!("file = {} bytes: at least one block", self.file)
        } else if !(1..=DEPTH_MAX).contains(&depth) || self.depth == 0 {
            format!("depth = {depth}: 1 to 1024")
        } else if !(1..=JOBS_MAX).contains(&self.readers.saturating_add(self.writers)) {
            format!("{} readers and {} writers: 1 to 1024 together", self.readers, self.writers)
        } else if u64::from(self.readers + self.writers) * u64::from(depth) * self.block > IN_FLIGHT_BYTES_MAX
        {
            "more than 4 GiB in flight: lower depth, readers or writers".into()
        } else if let Some(rate) =
            self.rate.filter(|rate| !(rate.is_finite() && *rate > 0.0 && *rate <= RATE_MAX))
        {
            format!("rate = {rate}: operations per second, above 0 and at most {RATE_MAX:e}")
        } else if let Some(fault) = self.steps.as_ref().and_then(Steps::fault) {
            fault
        } else if self.shared && self.writers > 0 {
            "shared = true: clients would overwrite each other's blocks, so it has readers only".into()
        } else if self.io.is_some_and(|io| io < self.block) {
            "io: at least one block".into()
        } else {
            return Ok(());
        };
        Err(ExperimentError::Value(format!("workload {}: {reason}", self.name)))
    }
}
