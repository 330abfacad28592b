//! Addresses of host ports are not changed under hosts that use volumes: by SMcli with a stand-in,
//! and by the playbook with the modules of the installed collection on a stand-in for the array.

use crate::ef600_rest::{ALL_CONSENTS, Site};
use crate::ef600_scripts::array;
use crate::ef600_verify::INTERFACES;
use crate::scripts::{run, write};
use serde_json::json;
use std::fs;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// What SMcli prints of an array whose access volume only is mapped.
const UNMAPPED: &str = "Performing syntax check...\n\nSyntax check complete.\n\nExecuting script...\n\n\
    MAPPINGS (Storage Partitioning - Enabled (1 of 256 used))-------------------\n\n\n   \
    Volume Name    LUN  Controller  Accessible by          Volume status  Volume Capacity  Type\n   \
    Access Volume  7    A,B         Host Group de0704_hg1  Optimal                         Access\n\n\
    Script execution complete.\n\n";

/// The line of a volume.
const MAPPED: &str =
    "   somebodys      1    A           Host Group other       Optimal        1.000 GB         Standard\n";

fn smcli(array: &TempDir, file: &str, consent: &str) -> (bool, String) {
    smcli_with(array, file, &[("CHANGE_PORT_ADDRESSES", consent)])
}

fn smcli_with(array: &TempDir, file: &str, consents: &[(&str, &str)]) -> (bool, String) {
    let path = format!("{}:{}", array.path().display(), std::env::var("PATH").expect("a path"));
    let mut command = Command::new("./run.sh");
    command.arg(file).current_dir(array.path().join("array-de0704")).env("PATH", &path);
    run(command.env("EF600_PASSWORD", "s3cret").envs(consents.iter().copied()))
}

/// As `rest.sh` asks for them.
#[test]
fn smcli_removes_no_mapping_and_no_volume_without_the_word_for_it() {
    let array = array();
    write(&array.path().join("mappings"), UNMAPPED, 0o644);
    let asked = || fs::read_to_string(array.path().join("asked")).unwrap_or_default();
    write(
        &array.path().join("array-de0704/all.smcli"),
        "on error stop; DELETE\r\n  allVolumes\r\n removeVolumeGroup=TRUE;\r\n",
        0o644,
    );
    for (file, word, command) in [
        ("undo-50-map.smcli", "HOSTS_DISCONNECTED", "remove volume"),
        ("undo-20-volumes.smcli", "DELETE_DATA", "delete volumeGroup"),
        ("all.smcli", "DELETE_DATA", "DELETE"),
    ] {
        for wrong in [("DELETE_DATA", "no"), ("HOSTS_DISCONNECTED", "true"), ("CHANGE_PORT_ADDRESSES", "yes")]
        {
            let (worked, said) = smcli_with(&array, file, &[wrong]);
            assert!(!worked && said.trim_end().ends_with(&format!("{word}=yes")), "{file}: {said}");
            assert_eq!(asked(), "", "{file}");
        }
        smcli_with(&array, file, &[(word, "yes")]);
        assert!(asked().contains(command), "{file}: {}", asked());
        fs::remove_file(array.path().join("asked")).expect("asked");
    }
    // What creates them needs none.
    for file in
        ["20-volumes.smcli", "40-hosts.smcli", "50-map.smcli", "10-basic.smcli", "undo-40-hosts.smcli"]
    {
        smcli_with(&array, file, &[]);
        assert!(asked().contains("on error stop"), "{file}: {}", asked());
        fs::remove_file(array.path().join("asked")).expect("asked");
    }
}

#[test]
fn smcli_sets_no_address_of_a_port_while_a_volume_is_mapped() {
    let array = array();
    let at = |name: &str| array.path().join(name);
    let changed = || {
        let text = fs::read_to_string(at("changed")).unwrap_or_default();
        let _ = fs::remove_file(at("changed"));
        text
    };
    let mapped = UNMAPPED.replace("\n\nScript", &format!("\n{MAPPED}\nScript"));
    // What is not known is taken for a mapping.
    let unknown = UNMAPPED.replace("\n\nScript", "\n   something else\n\nScript");
    for (mappings, seen) in [(mapped.as_str(), "somebodys"), (&unknown, "something else")] {
        write(&at("mappings"), &mappings.replace('\n', "\r\n"), 0o644);
        for consent in ["", "no", "true"] {
            let (worked, said) = smcli(&array, "15-ports.smcli", consent);
            assert!(!worked && said.contains("say so: CHANGE_PORT_ADDRESSES=yes"), "{said}");
            assert!(said.contains(seen) && !said.contains("Access Volume"), "{said}");
            assert_eq!(changed(), "", "{mappings}");
        }
        let (worked, said) = smcli(&array, "15-ports.smcli", "yes");
        assert!(worked && changed().matches("IPV4Address").count() == 8, "{said}");
    }
    write(&at("mappings"), UNMAPPED, 0o644);
    let (worked, said) = smcli(&array, "15-ports.smcli", "");
    assert!(worked && changed().matches("IPV4Address").count() == 8, "{said}");
    // What undo makes is looked at as well, however it is written and however long it is.
    write(&at("mappings"), &mapped, 0o644);
    let long =
        format!("SET CONTROLLER [A] HOSTPORT [\"1a\"] IPV4Address=10.0.0.1;\n{}", "// more\n".repeat(20_000));
    write(&at("array-de0704/undo-15-ports.smcli"), &long, 0o644);
    let (worked, said) = smcli(&array, "undo-15-ports.smcli", "");
    assert!(!worked && said.contains("CHANGE_PORT_ADDRESSES=yes"), "{said}");
    // An array that does not answer says nothing about mappings.
    write(&at("mappings"), UNMAPPED, 0o644);
    write(&at("end"), "SMcli failed.\n", 0o644);
    let (worked, said) = smcli(&array, "15-ports.smcli", "");
    assert!(!worked && said.contains("is not known: nothing is changed"), "{said}");
    assert_eq!(changed(), "");
    // A comment sets nothing, and no other file is held up.
    write(&at("array-de0704/other.smcli"), "// hostPort\nshow allVolumes summary;", 0o644);
    fs::remove_file(at("asked")).expect("asked");
    smcli(&array, "other.smcli", "");
    let asked = fs::read_to_string(at("asked")).expect("asked");
    assert!(!asked.contains("lunMappings"), "{asked}");
    // Neither the password nor a question is left behind.
    let handed = fs::read_to_string(at("handed")).expect("handed over");
    assert!(!Path::new(handed.split(' ').next().expect("a file")).exists(), "{handed}");
}

/// The profile that is shown before the first step is kept: it has what saved commands may lack.
#[test]
fn what_is_shown_before_the_first_step_is_kept() {
    let array = array();
    write(&array.path().join("array-de0704/05-save.smcli"), "save storageArray;", 0o644);
    let (worked, said) = smcli(&array, "05-save.smcli", "");
    assert!(worked && said.starts_with("the profile\n"), "{said}");
    let kept = fs::read_to_string(array.path().join("array-de0704/before.txt")).expect("kept");
    assert_eq!(kept, said);
    let (worked, said) = smcli(&array, "none.smcli", "");
    assert!(!worked && said.contains("there is no file none.smcli"), "{said}");
}

/// Runs the tasks of the playbook that are about ports.
fn play(site: &Site, consent: &str) -> (bool, String) {
    let file = site.folder.path().join("array-de0704/playbook.yml");
    let text = fs::read_to_string(&file).expect("a playbook");
    let here = text.replace("https://10.0.25.107:8443", &format!("http://{}", site.address));
    write(&file, &here, 0o644);
    let mut command = Command::new("ansible-playbook");
    command.args(["--inventory", "localhost,", "--tags", "ports"]).arg(&file).env("HOME", site.folder.path());
    command
        .env("EF600_PASSWORD", "s3cret")
        .env("CHANGE_PORT_ADDRESSES", consent)
        .env("no_proxy", "127.0.0.1");
    run(&mut command)
}

#[test]
fn the_playbook_sets_no_address_of_a_port_while_a_volume_is_mapped() {
    let site = Site::new();
    let mapped = json!([{ "id": "v9", "name": "v9", "volumeGroupRef": "p9",
        "listOfMappings": [{ "lunMappingRef": "m9", "mapRef": "h9", "lun": 1 }] }]);
    *site.array().object("/volumes") = mapped;
    let (worked, said) = play(&site, "");
    assert!(!worked && said.contains("say so: CHANGE_PORT_ADDRESSES=yes"), "{said}");
    assert!(site.changes().is_empty(), "{said}");
    let (worked, said) = play(&site, "yes");
    assert!(worked && site.changes().len() == 8, "{said}");
    assert_eq!(
        site.array().list(INTERFACES)[0]["commandProtocolPropertiesList"]["commandProtocolProperties"][0]["nvmeProperties"]
            ["nvmeofProperties"]["ibProperties"]["ipAddressData"]["ipv4Data"]["ipv4Address"],
        "172.30.57.107"
    );
    // As planned: nothing would change, so nothing is refused.
    let (worked, said) = play(&site, "");
    assert!(worked && site.changes().is_empty(), "{said}");
    // Without mappings nothing is asked for.
    let (worked, said) = site.rest_with("undo settings", "s3cret", &ALL_CONSENTS);
    assert!(worked, "{said}");
    let fresh = Site::new();
    let (worked, said) = play(&fresh, "");
    assert!(worked && fresh.changes().len() == 8, "{said}");
}
