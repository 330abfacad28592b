//! Linux hosts over NVMe-oF: packages, modules, identity, multipathing, and paths that are
//! connected at every start.
//!
//! After figures 18 to 21 and 28 of "Deploying NetApp EF600" (Lenovo Press, 2021), which runs
//! single commands; here they are steps that can be verified and undone.

use crate::model::{Connect, Host, Model, Namespace, NvmetPort, Portal};
use crate::section::{Section, Step, program, render, text};
use crate::site::Transport;
use crate::{Artifact, ef600};
use askama::Template;

/// What keeps DM-Multipath from local disks.
const FIND_MULTIPATHS: &str = include_str!("../templates/linux-host/find-multipaths.conf");

/// What modprobe reads before it loads the NVMe driver.
const NATIVE_MULTIPATH: &str =
    "# Native NVMe multipath: off by default on RHEL 8.\noptions nvme_core multipath=Y\n";

/// The folder of the files.
const FOLDER: &str = "hosts";
/// What connecting may take beside the random delay and the wait for paths.
const START_RESERVE_S: u32 = 60;
/// What each path adds: the settings of its volumes, and a path of an earlier plan that it
/// replaces.
const START_PATH_S: u32 = 2;

/// What every step sources.
#[derive(Template)]
#[template(path = "placing.sh", escape = "none")]
pub(crate) struct Placing;

/// The section of the hosts, if they connect to something.
pub(crate) fn sections(model: &Model) -> Vec<Section> {
    let Some(connect) = &model.connect else { return Vec::new() };
    let has_paths = |host: &&Host| !host.portals.is_empty();
    let hosts: Vec<_> = model.hosts.iter().filter(has_paths).collect();
    if hosts.is_empty() {
        return Vec::new();
    }
    let shared = Shared::new(model, connect, &hosts);
    let files = shared.files().into_iter().chain(hosts.iter().flat_map(|host| own(host, connect)));
    let place = |mut file: Artifact| {
        file.path = format!("{FOLDER}/{}", file.path);
        file
    };
    let names = render(&HostsFile { hosts: &model.hosts });
    let all: Vec<_> = [names.clone()].into_iter().chain(model.arrays.iter().map(ef600::names)).collect();
    let names = [
        text("hosts.txt", names),
        text("files/hosts", all.join("\n")),
        program("25-names.sh", render(&Names { site: &model.name })),
    ];
    vec![Section {
        title: "Hosts over NVMe-oF".to_owned(),
        machine: "every host".to_owned(),
        notes: notes(&shared, &hosts),
        steps: steps(&shared),
        files: files.chain(names).map(place).collect(),
    }]
}

fn notes(shared: &Shared<'_>, hosts: &[&Host]) -> Vec<String> {
    let paths = |host: &&Host| host.portals.len();
    let (least, most) = (hosts.iter().map(paths).min(), hosts.iter().map(paths).max());
    let count = if least == most { String::new() } else { format!("{} to ", least.unwrap_or_default()) };
    vec![
        format!(
            "Files: the folder {FOLDER}, on each of {} hosts, as root. A host finds its own files by its short host name, or by \
             HOST_NAME.",
            hosts.len()
        ),
        "hosts.txt has lines for DNS or /etc/hosts: the hosts' addresses on the storage network. `25-names.sh` adds them and the \
         names of arrays to /etc/hosts, between marks; leave it out where DNS has them."
            .to_owned(),
        format!("Each host connects {count}{} paths.", most.unwrap_or_default()),
        if shared.has_native_multipath {
            "Paths are joined by native NVMe multipath. Never add a host of RHEL 7 to this cluster."
                .to_owned()
        } else {
            "Paths are joined by DM-Multipath, as RHEL 7 has nothing else. Never add a host of a later system to this cluster."
                .to_owned()
        },
    ]
}

fn steps(shared: &Shared<'_>) -> Vec<Step> {
    let every = format!("every host, in {FOLDER}");
    let mut steps = vec![Step::script("Install packages", &every, "./10-packages.sh")];
    if shared.has_native_multipath {
        let title = "Turn native multipath on; on RHEL 8 it may ask for a restart";
        steps.push(Step::script(title, &every, "./15-native-multipath.sh"));
    }
    steps.push(Step::script("Load modules", &every, "./20-modules.sh"));
    steps.push(Step::script(
        "Name hosts and arrays in /etc/hosts, where DNS does not",
        &every,
        "./25-names.sh",
    ));
    steps.push(Step::script("Name the host and its targets", &every, "./30-identity.sh"));
    if shared.has_multipath_conf {
        let title = if shared.has_native_multipath {
            "Let multipath-tools report the paths, which the NVMe driver joins"
        } else {
            "Set up DM-Multipath"
        };
        steps.push(Step::script(title, &every, "./40-multipath.sh"));
    }
    let title = "Connect and apply the settings, now and at every start";
    steps.push(Step::script(title, &every, "./50-connect.sh"));
    steps
}

/// What all hosts have in common, as the templates name it.
struct Shared<'a> {
    connect: &'a Connect,
    has_native_multipath: bool,
    has_rdma: bool,
    has_tcp: bool,
    has_multipath_conf: bool,
    states: Vec<State<'a>>,
    /// The paths of the host that has most.
    most_paths: u32,
}

/// The state of a volume on a path to a target of this plan.
struct State<'a> {
    portal: &'a Portal,
    nsid: u32,
    is_optimized: bool,
}

/// The states of all volumes on all paths.
fn states(model: &Model) -> Vec<State<'_>> {
    let targets = model.servers.iter().filter_map(|server| server.nvmet.as_ref());
    let ports = targets.flat_map(|nvmet| nvmet.ports.iter().map(move |port| (nvmet, port)));
    ports.flat_map(|(nvmet, port)| nvmet.namespaces.iter().map(move |volume| state(port, volume))).collect()
}

fn state<'a>(port: &'a NvmetPort, volume: &Namespace) -> State<'a> {
    let is_optimized = port.optimized.contains(&volume.group);
    State { portal: &port.portal, nsid: volume.nsid, is_optimized }
}

impl<'a> Shared<'a> {
    fn new(model: &'a Model, connect: &'a Connect, hosts: &[&Host]) -> Self {
        let uses = |transport| {
            hosts.iter().flat_map(|host| &host.portals).any(|portal| portal.transport == transport)
        };
        let has_native_multipath = connect.has_native_multipath;
        Self {
            connect,
            has_native_multipath,
            has_rdma: uses(Transport::Rdma),
            has_tcp: uses(Transport::Tcp),
            // The device section is the EF600's.
            has_multipath_conf: !model.arrays.is_empty() || !has_native_multipath,
            states: states(model),
            most_paths: hosts
                .iter()
                .map(|host| host.portals.len())
                .max()
                .and_then(|most| most.try_into().ok())
                .unwrap_or(u32::MAX),
        }
    }

    fn modules(&self) -> Vec<&'static str> {
        let rdma = self.has_rdma.then_some("nvme-rdma");
        rdma.into_iter().chain(self.has_tcp.then_some("nvme-tcp")).collect()
    }

    fn files(&self) -> Vec<Artifact> {
        let Self { has_native_multipath, has_rdma, has_multipath_conf, connect, .. } = *self;
        let modules = self.modules();
        // Waits are for paths, and then for their volumes where an earlier plan's paths are there.
        let waits_s = connect.delay_s.saturating_add(connect.wait_s.saturating_mul(2));
        let paths_s = self.most_paths.saturating_mul(START_PATH_S);
        let start_s = waits_s.saturating_add(paths_s).saturating_add(START_RESERVE_S);
        let mut files = vec![
            text("placing.sh", render(&Placing)),
            program("10-packages.sh", render(&Packages { has_rdma, has_multipath_conf })),
            program("20-modules.sh", render(&Modules { has_rdma, modules: &modules.join(" ") })),
            program("30-identity.sh", render(&Identity)),
            program("50-connect.sh", render(&Connecting)),
            text("files/modules.conf", modules.join("\n")),
            program(
                "files/trunkline-nvme",
                render(&Program {
                    delay_s: connect.delay_s,
                    wait_s: connect.wait_s,
                    has_native_multipath,
                    iopolicy: connect.iopolicy,
                    request_kib: connect.request_kib,
                    states: &self.states,
                }),
            ),
            text("files/trunkline-nvme.service", render(&Unit { has_multipath_conf, start_s })),
            text("files/71-trunkline-nvme.rules", render(&Rules { has_native_multipath })),
        ];
        if has_native_multipath {
            files.push(program("15-native-multipath.sh", render(&NativeMultipath)));
            files.push(text("files/modprobe.conf", NATIVE_MULTIPATH.to_owned()));
        }
        if has_multipath_conf {
            files.push(program("40-multipath.sh", render(&Multipath { has_native_multipath })));
            files.push(text("files/multipath.conf", render(&MultipathConf { has_native_multipath })));
            files.push(text("files/find-multipaths.conf", FIND_MULTIPATHS.to_owned()));
        }
        files
    }
}

/// The files that only one host has.
fn own(host: &Host, connect: &Connect) -> Vec<Artifact> {
    let folder = format!("by-name/{}", host.name);
    let discovery = Discovery {
        host: &host.name,
        nqn: &host.nqn,
        portals: &host.portals,
        queue_size: connect.queue_size,
        ctrl_loss_s: connect.ctrl_loss_s,
    };
    vec![
        text(format!("{folder}/hostnqn"), host.nqn.clone()),
        text(format!("{folder}/discovery.conf"), render(&discovery)),
    ]
}

#[derive(Template)]
#[template(path = "linux-host/10-packages.sh", escape = "none")]
struct Packages {
    has_rdma: bool,
    has_multipath_conf: bool,
}

#[derive(Template)]
#[template(path = "linux-host/15-native-multipath.sh", escape = "none")]
struct NativeMultipath;

#[derive(Template)]
#[template(path = "linux-host/20-modules.sh", escape = "none")]
struct Modules<'a> {
    has_rdma: bool,
    modules: &'a str,
}

#[derive(Template)]
#[template(path = "linux-host/25-names.sh", escape = "none")]
struct Names<'a> {
    site: &'a str,
}

#[derive(Template)]
#[template(path = "linux-host/30-identity.sh", escape = "none")]
struct Identity;

#[derive(Template)]
#[template(path = "linux-host/40-multipath.sh", escape = "none")]
struct Multipath {
    has_native_multipath: bool,
}

#[derive(Template)]
#[template(path = "linux-host/50-connect.sh", escape = "none")]
struct Connecting;

#[derive(Template)]
#[template(path = "linux-host/trunkline-nvme", escape = "none")]
struct Program<'a> {
    delay_s: u32,
    wait_s: u32,
    has_native_multipath: bool,
    iopolicy: &'static str,
    request_kib: Option<u32>,
    states: &'a [State<'a>],
}

#[derive(Template)]
#[template(path = "linux-host/trunkline-nvme.service", escape = "none")]
struct Unit {
    has_multipath_conf: bool,
    start_s: u32,
}

#[derive(Template)]
#[template(path = "linux-host/multipath.conf", escape = "none")]
struct MultipathConf {
    has_native_multipath: bool,
}

#[derive(Template)]
#[template(path = "linux-host/71-trunkline-nvme.rules", escape = "none")]
struct Rules {
    has_native_multipath: bool,
}

#[derive(Template)]
#[template(path = "linux-host/discovery.conf", escape = "none")]
struct Discovery<'a> {
    host: &'a str,
    nqn: &'a str,
    portals: &'a [Portal],
    queue_size: u32,
    ctrl_loss_s: u32,
}

#[derive(Template)]
#[template(path = "linux-host/hosts.txt", escape = "none")]
struct HostsFile<'a> {
    hosts: &'a [Host],
}

#[cfg(test)]
mod tests;
