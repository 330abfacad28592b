//! The index of a runbook: which step runs where and in which order, how it is verified and undone,
//! and which files there are.

use crate::model::Model;
use crate::section::{Section, render, text};
use crate::{Artifact, INDEX, MARK};
use askama::Template;

/// Makes the index.
pub(crate) fn index(model: &Model, sections: &[Section]) -> Artifact {
    let files: Vec<_> =
        sections.iter().flat_map(|section| section.files.iter().map(|file| row(section, file))).collect();
    text(INDEX, render(&Page { mark: MARK, name: &model.name, sections, files: &files }))
}

/// A file of the index.
struct Row<'a> {
    path: &'a str,
    machine: &'a str,
    is_run: bool,
}

/// Files below `by-name` are one host's, all others those of the section's machines.
fn row<'a>(section: &'a Section, file: &'a Artifact) -> Row<'a> {
    let host = file.path.split_once("/by-name/").and_then(|(_, rest)| rest.split('/').next());
    // This step of Spectrum Scale runs on every node.
    let is_on_every_node = file.path.ends_with("nsddevices") || file.path.ends_with("10-nsddevices.sh");
    let machine = host.unwrap_or(if is_on_every_node { "every node" } else { &section.machine });
    Row { path: &file.path, machine, is_run: file.mode == 0o755 }
}

#[derive(Template)]
#[template(path = "index", escape = "none")]
struct Page<'a> {
    mark: &'a str,
    name: &'a str,
    sections: &'a [Section],
    files: &'a [Row<'a>],
}

#[cfg(test)]
mod tests {
    use crate::{System, runbook};

    #[test]
    fn the_index_says_for_which_machine_each_file_is() {
        let index = |system: System| runbook(system.site_file()).expect("a valid site").remove(0).text;
        for (system, path, machine, verb) in [
            (System::Ef600, "array-de0704/run.sh", "a management host", "run"),
            (System::Ef600, "hosts/by-name/cmp07/hostnqn", "cmp07", "read"),
            (System::Ef600, "hosts/50-connect.sh", "every host", "run"),
            (System::LinuxServer, "server-stor1/files/serve.toml", "stor1", "read"),
            (System::PowerScale, "nas-f210/20-rdma.sh", "a node of f210", "run"),
            (System::PowerScale, "nas-clients/50-mounts.sh", "every client", "run"),
            (System::Scale, "scale/30-nsds.sh", "mgt01", "run"),
            (System::Scale, "scale/10-nsddevices.sh", "every node", "run"),
        ] {
            let row = format!("| [{path}]({path}) | {machine} | {verb} |\n");
            assert!(index(system).contains(&row), "{row}");
        }
    }
}
