//! PowerScale over NFS and RDMA: the cluster's side, and its Linux clients with four routes by
//! Trunkline, by the kernel and by the vendor's driver.
//!
//! After "Setup RoCE on PowerScale" and a test of four routes by Dell's users; what they contradict
//! each other in is asked of the cluster. docs/DEVIATIONS.md lists it.

use crate::Artifact;
use crate::linux_host::Placing;
use crate::model::{Host, LocalPorts, Model, PowerScale};
use crate::section::{Section, Step, program, render, text};
use askama::Template;

/// The folder of the clients' files.
const CLIENTS: &str = "nas-clients";
/// The most connections of a mount by the kernel's client (nfs(5)).
const KERNEL_NCONNECT_MAX: u32 = 16;

/// Sections of the cluster and of its clients.
pub(crate) fn sections(model: &Model) -> Vec<Section> {
    let Some(nas) = &model.powerscale else { return Vec::new() };
    vec![cluster(nas, &model.hosts), clients(nas, &model.hosts)]
}

fn in_folder(folder: &str, files: Vec<Artifact>) -> Vec<Artifact> {
    let place = |file: Artifact| Artifact { path: format!("{folder}/{}", file.path), ..file };
    files.into_iter().map(place).collect()
}

fn cluster(nas: &PowerScale, hosts: &[Host]) -> Section {
    let folder = format!("nas-{}", nas.name);
    let machine = format!("a node of {}, in {folder}", nas.name);
    let clients = admitted(hosts);
    let mut steps = vec![
        Step::script("Give the administrator the privileges", &machine, "./10-privileges.sh"),
        Step::script("Enable NFS over RDMA", &machine, "./20-rdma.sh"),
        Step::script("Create subnet and pool", &machine, "./30-network.sh"),
        Step::script("Make and export the directory", &machine, "./40-export.sh"),
        Step::script("Set the access pattern", &machine, "./50-tuning.sh"),
    ];
    let mut files = vec![
        text("knows.sh", render(&Knows)),
        program("10-privileges.sh", render(&Privileges { nas })),
        program("20-rdma.sh", render(&Rdma)),
        program("30-network.sh", render(&Network { nas })),
        program("40-export.sh", render(&Export { nas, clients: &clients })),
        program("50-tuning.sh", render(&Tuning { nas })),
        program("watch.sh", render(&Watch)),
    ];
    if nas.has_nfsv4 {
        steps.push(Step::script("Enable NFSv4.1", &machine, "./60-nfsv4.sh"));
        files.push(program("60-nfsv4.sh", render(&Nfsv4)));
    }
    Section {
        title: format!("PowerScale {}", nas.name),
        machine: format!("a node of {}", nas.name),
        notes: vec![
            format!(
                "Files: the folder {folder}, on a node of the cluster. They ask for no password: log in as {}.",
                nas.administrator
            ),
            "Switch ports and interfaces need the same MTU, and RoCE needs flow control on the switch."
                .to_owned(),
            "`watch.sh` shows what each node serves: all of them with a multipath route, one without."
                .to_owned(),
        ],
        steps,
        files: in_folder(&folder, files),
    }
}

/// The addresses that the export admits: those that clients have, and those that they come from.
fn admitted(hosts: &[Host]) -> String {
    let mut all: Vec<String> = Vec::new();
    for host in hosts {
        let local = host.local.iter().flat_map(|local| &local.addresses);
        for address in std::iter::once(&host.address).chain(local).map(ToString::to_string) {
            if !all.contains(&address) {
                all.push(address);
            }
        }
    }
    all.join(",")
}

/// The lines of the drivers that know `localports`, for one client or for all that have none.
fn multipath_lines(nas: &PowerScale, folder: &str, local: Option<&LocalPorts>) -> [Artifact; 2] {
    let lines = Lines {
        source: format!("{}:{}", nas.first(), nas.export),
        at: format!("/mnt/{}", nas.name),
        several: format!(
            "{}remoteports={}",
            local.map_or_else(String::new, |local| format!("localports={},", local.text)),
            nas.ranges("~", true)
        ),
    };
    [
        text(format!("{folder}/fstab.trunkline"), render(&FstabTrunkline { nas, lines: &lines })),
        text(format!("{folder}/fstab.vendor"), render(&FstabVendor { nas, lines: &lines })),
    ]
}

fn clients(nas: &PowerScale, hosts: &[Host]) -> Section {
    let machine = format!("every client, in {CLIENTS}");
    let step = |title: &str, script: &str| Step::script(title, &machine, script);
    let source = format!("{}:{}", nas.first(), nas.export);
    let at = format!("/mnt/{}", nas.name);
    let kernel_nconnect = nas.nconnect.min(KERNEL_NCONNECT_MAX);
    let mut files = vec![
        text("placing.sh", render(&Placing)),
        text("hosts.list", render(&HostsList { nas, hosts })),
        program("10-packages.sh", render(&ClientPackages)),
        program("20-network.sh", render(&ClientNetwork { nas })),
        program("30-modules.sh", render(&ClientModules)),
        program("40-identity.sh", render(&ClientIdentity { nas })),
        program("50-mounts.sh", render(&ClientMounts { nas })),
        program("60-vendor-driver.sh", render(&ClientDriver)),
        program("70-baseline.sh", render(&ClientBaseline { nas })),
        text("baseline.fio", render(&BaselineJob)),
        text("vendor-driver.md", render(&DriverNotes)),
        text("files/modules.conf", "rpcrdma\nrdma_ucm\n".to_owned()),
        text("files/fstab.kernel", render(&FstabKernel { nas, source: &source, at: &at, kernel_nconnect })),
    ];
    files.extend(multipath_lines(nas, "files", None));
    for host in hosts.iter().filter(|host| host.local.is_some()) {
        files.extend(multipath_lines(nas, &format!("files/by-name/{}", host.name), host.local.as_ref()));
    }
    Section {
        title: format!("Clients of {}", nas.name),
        machine: "every client".to_owned(),
        notes: vec![
            format!(
                "Files: the folder {CLIENTS}, on each client, as root. A client finds its line of hosts.list by its short host name, or by HOST_NAME."
            ),
            "Before the first step: set the BIOS to performance mode, and create the VLANs that hosts.list names, if it has some.".to_owned(),
            "Routes: `tcp` and `rdma` to one node, `tcp-mp` and `rdma-mp` to all nodes.".to_owned(),
            format!(
                "DRIVER chooses who mounts: `trunkline` (default, no kernel module), `kernel` (no multipath) or `vendor` \
                 (vendor-driver.md says what that takes).{}",
                if nas.has_nfsv4 { " Routes that end with `-v4` are NFSv4.1." } else { "" }
            ),
        ],
        steps: vec![
            step("Install packages", "./10-packages.sh"),
            step("Set address and MTU", "./20-network.sh"),
            step("Load modules, for DRIVER=kernel and vendor", "./30-modules.sh"),
            step("Make the account with the cluster's UID", "./40-identity.sh"),
            step("Build the vendor's driver, for DRIVER=vendor only", "./60-vendor-driver.sh"),
            step("Mount", "./50-mounts.sh"),
            step("Measure a baseline beside the network card", "./70-baseline.sh"),
        ],
        files: in_folder(CLIENTS, files),
    }
}

#[derive(Template)]
#[template(path = "powerscale/knows.sh", escape = "none")]
struct Knows;

#[derive(Template)]
#[template(path = "powerscale/10-privileges.sh", escape = "none")]
struct Privileges<'a> {
    nas: &'a PowerScale,
}

#[derive(Template)]
#[template(path = "powerscale/20-rdma.sh", escape = "none")]
struct Rdma;

#[derive(Template)]
#[template(path = "powerscale/30-network.sh", escape = "none")]
struct Network<'a> {
    nas: &'a PowerScale,
}

#[derive(Template)]
#[template(path = "powerscale/40-export.sh", escape = "none")]
struct Export<'a> {
    nas: &'a PowerScale,
    clients: &'a str,
}

#[derive(Template)]
#[template(path = "powerscale/50-tuning.sh", escape = "none")]
struct Tuning<'a> {
    nas: &'a PowerScale,
}

#[derive(Template)]
#[template(path = "powerscale/60-nfsv4.sh", escape = "none")]
struct Nfsv4;

#[derive(Template)]
#[template(path = "powerscale/watch.sh", escape = "none")]
struct Watch;

#[derive(Template)]
#[template(path = "powerscale/hosts.list", escape = "none")]
struct HostsList<'a> {
    nas: &'a PowerScale,
    hosts: &'a [Host],
}

#[derive(Template)]
#[template(path = "powerscale/client-10-packages.sh", escape = "none")]
struct ClientPackages;

#[derive(Template)]
#[template(path = "powerscale/client-20-network.sh", escape = "none")]
struct ClientNetwork<'a> {
    nas: &'a PowerScale,
}

#[derive(Template)]
#[template(path = "powerscale/client-30-modules.sh", escape = "none")]
struct ClientModules;

#[derive(Template)]
#[template(path = "powerscale/client-40-identity.sh", escape = "none")]
struct ClientIdentity<'a> {
    nas: &'a PowerScale,
}

#[derive(Template)]
#[template(path = "powerscale/client-50-mounts.sh", escape = "none")]
struct ClientMounts<'a> {
    nas: &'a PowerScale,
}

#[derive(Template)]
#[template(path = "powerscale/client-60-vendor-driver.sh", escape = "none")]
struct ClientDriver;

#[derive(Template)]
#[template(path = "powerscale/client-70-baseline.sh", escape = "none")]
struct ClientBaseline<'a> {
    nas: &'a PowerScale,
}

#[derive(Template)]
#[template(path = "powerscale/baseline.fio", escape = "none")]
struct BaselineJob;

#[derive(Template)]
#[template(path = "powerscale/vendor-driver.md", escape = "none")]
struct DriverNotes;

/// What lines of fstab have in common.
struct Lines {
    source: String,
    at: String,
    /// The addresses of both sides.
    several: String,
}

#[derive(Template)]
#[template(path = "powerscale/fstab.trunkline", escape = "none")]
struct FstabTrunkline<'a> {
    nas: &'a PowerScale,
    lines: &'a Lines,
}

#[derive(Template)]
#[template(path = "powerscale/fstab.vendor", escape = "none")]
struct FstabVendor<'a> {
    nas: &'a PowerScale,
    lines: &'a Lines,
}

#[derive(Template)]
#[template(path = "powerscale/fstab.kernel", escape = "none")]
struct FstabKernel<'a> {
    nas: &'a PowerScale,
    source: &'a str,
    at: &'a str,
    kernel_nconnect: u32,
}

#[cfg(test)]
mod tests;
