//! Linux servers: the kernel's NFS server (over TCP and RDMA), the kernel's NVMe-oF target with ANA
//! groups, and Trunkline's own server with its unit.

use crate::Artifact;
use crate::linux_host::Placing;
use crate::model::{Host, Model, Nfs, Nvmet, Server, Trunkline};
use crate::section::{Section, Step, program, render, text};
use crate::site::Transport;
use askama::Template;

/// Trunkline's unit, the same as the package's.
const UNIT: &str = include_str!("../../../dist/systemd/trunkline.service");

/// One section for each server.
pub(crate) fn sections(model: &Model) -> Vec<Section> {
    model.servers.iter().map(|server| section(server, &model.hosts)).collect()
}

fn section(server: &Server, hosts: &[Host]) -> Section {
    let folder = format!("server-{}", server.name);
    let place = |mut file: Artifact| {
        file.path = format!("{folder}/{}", file.path);
        file
    };
    Section {
        title: format!("Server {}", server.name),
        machine: server.name.clone(),
        notes: notes(server, &folder),
        steps: steps(server, &folder),
        files: files(server, hosts).into_iter().map(place).collect(),
    }
}

fn notes(server: &Server, folder: &str) -> Vec<String> {
    let mut notes = vec![format!("Files: the folder {folder}, on {}, as root.", server.name)];
    if server.nfs.is_some() {
        notes.push("The kernel's NFS server admits clients by address: restrict the network too.".to_owned());
    }
    if let Some(nvmet) = &server.nvmet {
        notes.push(format!(
            "The target admits {}, by their NQNs. An NQN is a name and no secret: restrict the network too. The volumes must not \
             be in use on {}, and no two clusters may reach the same volume.",
            if nvmet.allows_any_host { "any host" } else { "the hosts of this site" },
            server.name
        ));
    }
    notes
}

fn steps(server: &Server, folder: &str) -> Vec<Step> {
    let machine = format!("{}, in {folder}", server.name);
    let mut steps = vec![Step::script("Install packages", &machine, "./10-packages.sh")];
    if server.nfs.is_some() {
        steps.push(Step::script("Set up the kernel's NFS server", &machine, "./20-nfs.sh"));
    }
    if server.nvmet.is_some() {
        steps.push(Step::script("Set up the NVMe-oF target", &machine, "./30-nvmet.sh"));
    }
    if server.trunkline.is_some() {
        steps.push(Step::script("Set up Trunkline's NFS server", &machine, "./40-trunkline.sh"));
    }
    steps
}

/// The modules of the target, by its transports.
fn nvmet_modules(nvmet: &Nvmet) -> Vec<&'static str> {
    let uses = |transport| nvmet.ports.iter().any(|port| port.portal.transport == transport);
    let rdma = uses(Transport::Rdma).then_some("nvmet-rdma");
    let tcp = uses(Transport::Tcp).then_some("nvmet-tcp");
    ["nvmet"].into_iter().chain(rdma).chain(tcp).collect()
}

fn files(server: &Server, hosts: &[Host]) -> Vec<Artifact> {
    let over_rdma = |nvmet: &Nvmet| nvmet.ports.iter().any(|port| port.portal.transport == Transport::Rdma);
    let packages = Packages {
        has_nfs: server.nfs.is_some(),
        has_nvmet: server.nvmet.is_some(),
        has_trunkline: server.trunkline.is_some(),
        has_rdma: server.nfs.as_ref().is_some_and(|nfs| nfs.is_over_rdma)
            || server.nvmet.as_ref().is_some_and(over_rdma)
            || server.trunkline.as_ref().is_some_and(|own| own.rdma_port.is_some()),
    };
    let mut files = vec![text("placing.sh", render(&Placing)), program("10-packages.sh", render(&packages))];
    if let Some(nfs) = &server.nfs {
        files.push(program("20-nfs.sh", render(&NfsStep { nfs })));
        files.push(text("files/exports", render(&Exports { nfs })));
        files.push(text("files/nfs.conf", render(&NfsConf { nfs })));
        if nfs.is_over_rdma {
            files.push(text("files/nfs-modules.conf", "rpcrdma\n".to_owned()));
        }
    }
    if let Some(nvmet) = &server.nvmet {
        let modules = nvmet_modules(nvmet);
        files.push(program(
            "30-nvmet.sh",
            render(&NvmetStep { nqn: &nvmet.nqn, modules: &modules.join(" ") }),
        ));
        files.push(program("files/trunkline-nvmet", render(&NvmetProgram { nvmet, hosts })));
        files.push(text("files/trunkline-nvmet.service", render(&NvmetUnit)));
        files.push(text("files/nvmet-modules.conf", modules.join("\n")));
    }
    if let Some(own) = &server.trunkline {
        files.push(program("40-trunkline.sh", render(&TrunklineStep { own })));
        files.push(text("files/serve.toml", render(&ServeToml { own })));
        files.push(text("files/trunkline.service", UNIT.to_owned()));
    }
    files
}

#[derive(Template)]
#[template(path = "linux-server/10-packages.sh", escape = "none")]
struct Packages {
    has_nfs: bool,
    has_nvmet: bool,
    has_trunkline: bool,
    has_rdma: bool,
}

#[derive(Template)]
#[template(path = "linux-server/20-nfs.sh", escape = "none")]
struct NfsStep<'a> {
    nfs: &'a Nfs,
}

#[derive(Template)]
#[template(path = "linux-server/exports", escape = "none")]
struct Exports<'a> {
    nfs: &'a Nfs,
}

#[derive(Template)]
#[template(path = "linux-server/nfs.conf", escape = "none")]
struct NfsConf<'a> {
    nfs: &'a Nfs,
}

#[derive(Template)]
#[template(path = "linux-server/30-nvmet.sh", escape = "none")]
struct NvmetStep<'a> {
    nqn: &'a str,
    modules: &'a str,
}

#[derive(Template)]
#[template(path = "linux-server/trunkline-nvmet", escape = "none")]
struct NvmetProgram<'a> {
    nvmet: &'a Nvmet,
    hosts: &'a [Host],
}

#[derive(Template)]
#[template(path = "linux-server/trunkline-nvmet.service", escape = "none")]
struct NvmetUnit;

#[derive(Template)]
#[template(path = "linux-server/40-trunkline.sh", escape = "none")]
struct TrunklineStep<'a> {
    own: &'a Trunkline,
}

#[derive(Template)]
#[template(path = "linux-server/serve.toml", escape = "none")]
struct ServeToml<'a> {
    own: &'a Trunkline,
}

#[cfg(test)]
mod tests;
