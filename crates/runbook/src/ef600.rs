//! The EF600: SMcli scripts, the same as an Ansible playbook and as a list of REST requests, and
//! lines for /etc/hosts.
//!
//! After figures 5, 9, 11, 13, 16 and 17 of "Deploying NetApp EF600" (Lenovo Press, 2021).

mod expected;
mod rest;

use crate::Artifact;
use crate::model::{Array, Host, Model};
use crate::section::{Section, Step, program, render, text};
use askama::Template;
use plan::Scheme;
use plan::layout::Volume;
use std::net::Ipv4Addr;

/// The modules of the Ansible collection that the playbook uses.
const MODULES: [&str; 7] =
    ["global", "nvme_interface", "storagepool", "volume", "host", "hostgroup", "lun_mapping"];

/// What compares an array with plan.json.
const VERIFY: &str = include_str!("../templates/ef600/verify.py");

/// What sends the requests of rest-requests.json.
const REST: &str = include_str!("../templates/ef600/rest.sh");

/// One section for each array.
pub(crate) fn sections(model: &Model) -> Vec<Section> {
    model.arrays.iter().map(|array| section(array, &model.hosts)).collect()
}

fn section(array: &Array, hosts: &[Host]) -> Section {
    let folder = format!("array-{}", array.name);
    let place = |mut file: Artifact| {
        file.path = format!("{folder}/{}", file.path);
        file
    };
    Section {
        title: format!("Array {}", array.label),
        machine: "a management host".to_owned(),
        notes: notes(array),
        steps: steps(array, &folder),
        files: files(array, hosts).into_iter().map(place).collect(),
    }
}

fn notes(array: &Array) -> Vec<String> {
    let mut notes = vec![
        format!(
            "Files: the folder array-{}, on a machine that reaches the management ports {} and {} and has SMcli. The password \
             of `admin` is read from EF600_PASSWORD, or from the file that EF600_PASSWORD_FILE names.",
            array.name, array.management[0], array.management[1]
        ),
        "Before the first step, set the password and the management addresses with System Manager (the ports come with \
         169.254.128.101 and 169.254.128.102)."
            .to_owned(),
        "Instead of steps 2 to 7: `ansible-playbook playbook.yml` and `./run.sh 25-volume-settings.smcli`, undone by \
         `ansible-playbook undo-playbook.yml`; or `./rest.sh do`, which sends the requests of rest-requests.json by curl, and \
         `./run.sh 25-volume-settings.smcli`, undone by `./rest.sh undo`."
            .to_owned(),
        "Warning: `./rest.sh undo`, `undo-playbook.yml` and `undo-50-map.smcli` take the volumes away from every host at once. \
         Unmount and disconnect on all of them first. `run.sh`, `rest.sh` and the playbook want `HOSTS_DISCONNECTED=yes` \
         then, and `DELETE_DATA=yes` to delete volumes, and change nothing before."
            .to_owned(),
        "Hosts lose their paths through a host port whose address changes. `run.sh`, `rest.sh` and the playbook look first, and \
         change none while a volume is mapped, unless `CHANGE_PORT_ADDRESSES=yes` says that the hosts are disconnected."
            .to_owned(),
        "`./verify.py` compares the array with plan.json over the REST interface of the controllers, port 8443, and needs \
         python3 3.6 or later. `./run.sh show.smcli` shows what SMcli says."
            .to_owned(),
        "`autoLoadBalancingEnable=false` is essential: a parallel file system loads all volumes alike, and balancing would move \
         their ownership back and forth between the controllers."
            .to_owned(),
        "Two clusters must never reach the same volumes: the host group has the hosts of this site and no others.".to_owned(),
    ];
    if let Some(firmware) = &array.firmware {
        notes.push(format!("SANtricity {firmware}: the guide recommends 11.70.1 or later."));
    }
    notes.push(format!("Stripes: {}.", array.layout.stripe.why));
    notes.extend(array.layout.warnings.iter().map(|warning| format!("Warning: {warning}.")));
    notes
}

fn steps(array: &Array, folder: &str) -> Vec<Step> {
    let machine = format!("a management host, in {folder}");
    let script = |title: &str, file: &str, verify: &str, undo: &str| {
        Step::new(title, &machine, &format!("`./run.sh {file}`"), verify, undo)
    };
    let port = array.ports.first().map_or("", |port| port.name.as_str());
    vec![
        script(
            "Save what the array has",
            "05-save.smcli",
            "`ls -l before.smcli`",
            "`rm before.smcli before.txt`",
        ),
        script(
            "Configure the array",
            "10-basic.smcli",
            "`./verify.py settings`, which then names nothing but addresses of host ports",
            "`./undo-10-basic.sh`, which makes undo-10-basic.smcli of before.smcli, then `./run.sh undo-10-basic.smcli`",
        ),
        script(
            "Set the addresses of the host ports, with no volume mapped",
            "15-ports.smcli",
            "`./verify.py settings`",
            "`./undo-10-basic.sh ports`, which makes undo-15-ports.smcli of before.smcli, then `./run.sh undo-15-ports.smcli`",
        ),
        script(
            "Create pools or groups, and volumes",
            "20-volumes.smcli",
            "`./verify.py volumes`",
            "`DELETE_DATA=yes ./run.sh undo-20-volumes.smcli`, which deletes the volumes with their data",
        ),
        script(
            "Create host group, hosts and initiators",
            "40-hosts.smcli",
            "`./verify.py hosts`",
            "`./run.sh undo-40-hosts.smcli`",
        ),
        Step::new(
            "Wait until all volumes are formatted offline",
            &machine,
            "`./30-wait-formatted.sh`",
            "it ends with `all volumes are formatted`",
            "nothing: waiting changes nothing",
        ),
        script(
            "Map the volumes",
            "50-map.smcli",
            "`./verify.py`, which compares all",
            "`HOSTS_DISCONNECTED=yes ./run.sh undo-50-map.smcli`, after every host has disconnected",
        ),
        Step::new(
            &format!("Name the ports of {} on every host", array.name),
            "every host",
            "`./25-names.sh do` in the folder hosts, or add the lines of hosts.txt to your DNS",
            &format!("`getent hosts {port}`"),
            "`./25-names.sh undo`",
        ),
    ]
}

fn files(array: &Array, hosts: &[Host]) -> Vec<Artifact> {
    let group = array.host_group();
    let volumes: Vec<_> = array.volumes().collect();
    let is_pool = array.layout.scheme == Scheme::Ddp;
    let [a, b] = array.management;
    let modules = MODULES;
    vec![
        program("run.sh", render(&Run { array, a, b })),
        text("05-save.smcli", render(&Save { array })),
        text("10-basic.smcli", render(&Basic { array })),
        text("15-ports.smcli", render(&Ports { array })),
        program("undo-10-basic.sh", render(&UndoBasic { array })),
        text("20-volumes.smcli", volumes_script(array)),
        text("25-volume-settings.smcli", render(&Settings { array })),
        program("30-wait-formatted.sh", render(&Wait { volumes: &volumes })),
        text("40-hosts.smcli", render(&Hosts { array, hosts, group: &group })),
        text("50-map.smcli", render(&Map { array, volumes: &volumes, group: &group })),
        text("show.smcli", render(&Show)),
        program("verify.py", VERIFY.to_owned()),
        text("plan.json", expected::expected(array, hosts)),
        text("undo-50-map.smcli", render(&Unmap { array, volumes: &volumes, group: &group })),
        text("undo-40-hosts.smcli", render(&RemoveHosts { array, hosts, group: &group })),
        text("undo-20-volumes.smcli", render(&RemoveVolumes { array, volumes: &volumes, is_pool })),
        text("hosts.txt", names(array)),
        text(
            "playbook.yml",
            render(&Playbook { array, hosts, group: &group, volumes: &volumes, is_pool, a, modules }),
        ),
        text(
            "undo-playbook.yml",
            render(&UndoPlaybook { array, hosts, group: &group, volumes: &volumes, a, modules }),
        ),
        text("rest-requests.json", rest::requests(array, hosts)),
        program("rest.sh", REST.to_owned()),
    ]
}

/// The names of an array and its ports, as lines for /etc/hosts.
pub(crate) fn names(array: &Array) -> String {
    let [a, b] = array.management;
    render(&HostsFile { array, management: [('a', a), ('b', b)] })
}

/// The planner's script, whose head speaks of a password on the command line, with a head of ours.
fn volumes_script(array: &Array) -> String {
    let commands = array.script.split_once("on error stop;").map_or(array.script.as_str(), |(_, rest)| rest);
    format!(
        "// Pools or groups, and volumes, of {}. GB are GiB here: SMcli counts in powers of two.\n// The array then formats the \
         volumes: see 30-wait-formatted.sh.\n\non error stop;{commands}",
        array.label
    )
}

#[derive(Template)]
#[template(path = "ef600/run.sh", escape = "none")]
struct Run<'a> {
    array: &'a Array,
    a: Ipv4Addr,
    b: Ipv4Addr,
}

#[derive(Template)]
#[template(path = "ef600/05-save.smcli", escape = "none")]
struct Save<'a> {
    array: &'a Array,
}

#[derive(Template)]
#[template(path = "ef600/10-basic.smcli", escape = "none")]
struct Basic<'a> {
    array: &'a Array,
}

#[derive(Template)]
#[template(path = "ef600/15-ports.smcli", escape = "none")]
struct Ports<'a> {
    array: &'a Array,
}

#[derive(Template)]
#[template(path = "ef600/undo-10-basic.sh", escape = "none")]
struct UndoBasic<'a> {
    array: &'a Array,
}

#[derive(Template)]
#[template(path = "ef600/25-volume-settings.smcli", escape = "none")]
struct Settings<'a> {
    array: &'a Array,
}

#[derive(Template)]
#[template(path = "ef600/30-wait-formatted.sh", escape = "none")]
struct Wait<'a> {
    volumes: &'a [(usize, &'a Volume)],
}

#[derive(Template)]
#[template(path = "ef600/40-hosts.smcli", escape = "none")]
struct Hosts<'a> {
    array: &'a Array,
    hosts: &'a [Host],
    group: &'a str,
}

#[derive(Template)]
#[template(path = "ef600/50-map.smcli", escape = "none")]
struct Map<'a> {
    array: &'a Array,
    volumes: &'a [(usize, &'a Volume)],
    group: &'a str,
}

#[derive(Template)]
#[template(path = "ef600/show.smcli", escape = "none")]
struct Show;

#[derive(Template)]
#[template(path = "ef600/undo-50-map.smcli", escape = "none")]
struct Unmap<'a> {
    array: &'a Array,
    volumes: &'a [(usize, &'a Volume)],
    group: &'a str,
}

#[derive(Template)]
#[template(path = "ef600/undo-40-hosts.smcli", escape = "none")]
struct RemoveHosts<'a> {
    array: &'a Array,
    hosts: &'a [Host],
    group: &'a str,
}

#[derive(Template)]
#[template(path = "ef600/undo-20-volumes.smcli", escape = "none")]
struct RemoveVolumes<'a> {
    array: &'a Array,
    volumes: &'a [(usize, &'a Volume)],
    is_pool: bool,
}

#[derive(Template)]
#[template(path = "ef600/hosts.txt", escape = "none")]
struct HostsFile<'a> {
    array: &'a Array,
    management: [(char, Ipv4Addr); 2],
}

#[derive(Template)]
#[template(path = "ef600/playbook.yml", escape = "none")]
struct Playbook<'a> {
    array: &'a Array,
    hosts: &'a [Host],
    group: &'a str,
    volumes: &'a [(usize, &'a Volume)],
    is_pool: bool,
    a: Ipv4Addr,
    modules: [&'a str; 7],
}

#[derive(Template)]
#[template(path = "ef600/undo-playbook.yml", escape = "none")]
struct UndoPlaybook<'a> {
    array: &'a Array,
    hosts: &'a [Host],
    group: &'a str,
    volumes: &'a [(usize, &'a Volume)],
    a: Ipv4Addr,
    modules: [&'a str; 7],
}

#[cfg(test)]
mod tests;
