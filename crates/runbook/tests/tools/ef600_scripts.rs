//! The scripts of an array, with a stand-in for SMcli.

use crate::scripts::{folder, run, write};
use runbook::System;
use std::fs;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// Answers with what `running` and `volumes` have, and notes the password's file. `first`, if it is
/// there, is the first answer about what runs.
pub(crate) fn array() -> TempDir {
    let directory = folder(System::Ef600.site_file());
    let smcli = format!(
        "#!/bin/bash\nhere=$PWD\ncd {}\nwhile [ $# -gt 0 ]; do\n\
         if [ \"$1\" = -P ]; then cat \"$2\" >password; stat -c '%n %a' \"$2\" >handed; fi\n\
         if [ \"$1\" = -f ]; then query=$(cd \"$here\" && cat \"$2\"); fi\nshift; done\necho \"$query\" >>asked\n\
         case $query in\n'show allVolumes summary;') cat volumes ;;\n\
         'show storageArray longRunningOperations;') echo 'other-volume  Volume Initialize  10%'; cat running\n\
         [ ! -e later ] || mv later running ;;\n\
         'show storageArray lunMappings;') cat mappings ;;\n'save '*) echo 'the profile' ;;\n\
         *'set controller'*) echo \"$query\" >changed ;;\n*) exit 1 ;;\nesac\n\
         cat end 2>/dev/null || echo 'SMcli completed successfully.'\n",
        directory.path().display()
    );
    write(&directory.path().join("SMcli"), &smcli, 0o755);
    let volumes = "de0704a01v1 Optimal\nde0704a01v2 Optimal\nde0704a02v1 Optimal\nde0704a02v2 Optimal\n";
    write(&directory.path().join("volumes"), volumes, 0o644);
    write(&directory.path().join("running"), "", 0o644);
    directory
}

fn wait(directory: &TempDir) -> (bool, String) {
    let path = format!("{}:{}", directory.path().display(), std::env::var("PATH").expect("a path"));
    let mut command = Command::new(directory.path().join("array-de0704/30-wait-formatted.sh"));
    command.env("PATH", &path).env("EF600_PASSWORD", "s3cret").env("WAIT_S", "0").env("CONFIRM_S", "0");
    run(&mut command)
}

/// The wait ends when none of our volumes is being formatted.
#[test]
fn mapping_waits_until_the_volumes_are_formatted() {
    let array = array();
    let at = |name: &str| array.path().join(name);
    write(&at("running"), "de0704a01v1  Volume Initialize  42%\n", 0o644);
    let (worked, said) = wait(&array);
    assert!(!worked && said.contains("still being formatted: de0704a01v1"), "{said}");
    write(&at("running"), "de0704a01v11  Volume Initialize\nde0704a01v1-old  Volume Initialize\n", 0o644);
    let (worked, said) = wait(&array);
    assert!(worked && said.contains("all volumes are formatted"), "{said}");
    let read = |name: &str| fs::read_to_string(at(name)).expect("handed over");
    assert_eq!(read("password"), "s3cret\n");
    // In memory, for this user only, and gone by now.
    let handed = read("handed");
    let (file, mode) = handed.trim_end().split_once(' ').expect("a file and its mode");
    assert!(file.starts_with("/dev/shm/") && mode == "600" && !Path::new(file).exists(), "{handed}");
    // An array that does not answer says nothing about volumes.
    write(&at("end"), "SMcli failed.\n", 0o644);
    let (worked, said) = wait(&array);
    assert!(!worked && said.contains("SMcli failed") && !said.contains("are formatted"), "{said}");
    let names = fs::read_to_string(at("volumes")).expect("a file");
    let failing = format!("#!/bin/sh\necho '{names}SMcli completed successfully.'; exit 3\n");
    write(&at("SMcli"), &failing, 0o755);
    let (worked, said) = wait(&array);
    assert!(!worked && !said.contains("are formatted"), "{said}");
}

#[test]
fn volumes_that_are_not_there_are_not_taken_for_formatted() {
    let array = array();
    write(
        &array.path().join("volumes"),
        "de0704a01v1 Optimal\nde0704a01v2-old Optimal\nde0704a02v1\n",
        0o644,
    );
    let (worked, said) = wait(&array);
    assert!(!worked && said.contains("no volume de0704a01v2 de0704a02v2: create them first"), "{said}");
}

/// An array may answer before it has begun.
#[test]
fn one_answer_that_names_no_volume_is_not_enough() {
    let array = array();
    write(&array.path().join("later"), "de0704a02v2  Volume Initialize  1%\n", 0o644);
    let (worked, said) = wait(&array);
    assert!(!worked && said.contains("still being formatted: de0704a02v2"), "{said}");
    let asked = fs::read_to_string(array.path().join("asked")).expect("asked");
    assert_eq!(asked.matches("longRunningOperations").count(), 2, "{asked}");
}

/// A password goes to no disk.
#[test]
fn without_a_file_system_in_memory_a_password_is_not_handed_over() {
    let array = array();
    let at = array.path().display();
    for shm in ["-o ro -t tmpfs none", "-t proc none"] {
        let script = format!(
            "exec 2>&1; set -eu; mount {shm} /dev/shm; cd {at}/array-de0704; export PATH={at}:$PATH TMPDIR={at}; \
             echo 'show allVolumes summary;' >query; ! EF600_PASSWORD=s3cret ./run.sh $PWD/query; [ ! -e {at}/handed ]; \
             echo filed >secret; EF600_PASSWORD_FILE=$PWD/secret ./run.sh $PWD/query; cat {at}/password; rm {at}/handed"
        );
        let (worked, said) = run(Command::new("unshare").args(["--mount", "sh", "-c", &script]));
        assert!(worked && said.ends_with("completed successfully.\nfiled\n"), "{shm}: {said}");
        assert!(
            said.contains("no file system in memory that takes files: set EF600_PASSWORD_FILE"),
            "{said}"
        );
    }
}

/// What an array had, as it might be saved: on lines of its own or several in one command.
const BEFORE: &str = "on error stop;\n// set storageArray userLabel=\"wrong\";\nshow \"Setting the label\";\n\
    set storageArray userLabel=\"old name\";\nset storageArray cacheBlockSize=16 cacheFlushStart=80\n  cacheFlushStop=80;\n\
    set storageArray mediaScanRate=15;\nset storageArray autoLoadBalancingEnable=TRUE;\n\
    set storageArray hostConnectivityReporting enable;\nset storageArray defaultHostType=1;\n";

/// Runs the script that makes files of commands of these saved ones.
fn undo_of(array: &TempDir, saved: &str, words: &[&str]) -> (bool, String) {
    let folder = array.path().join("array-de0704");
    write(&folder.join("before.smcli"), saved, 0o644);
    run(Command::new(folder.join("undo-10-basic.sh")).args(words))
}

/// The commands of a file that the script has made.
fn made(array: &TempDir, name: &str) -> Vec<String> {
    let text = fs::read_to_string(array.path().join("array-de0704").join(name)).expect("made");
    assert!(text.contains("\non error stop;\n"), "{text}");
    text.lines().filter(|line| line.starts_with("set ")).map(str::to_owned).collect()
}

/// What the commands of BEFORE are put back by.
const PUT_BACK: [&str; 7] = [
    "set storageArray userLabel=\"old name\";",
    "set storageArray cacheBlockSize=16;",
    "set storageArray cacheFlushStart=80;",
    "set storageArray mediaScanRate=15;",
    "set storageArray autoLoadBalancingEnable=TRUE;",
    "set storageArray defaultHostType=1;",
    "set storageArray hostConnectivityReporting enable;",
];

#[test]
fn the_undo_of_the_basic_settings_has_the_saved_values() {
    let array = array();
    let script = array.path().join("array-de0704/undo-10-basic.sh");
    let (worked, said) = run(&mut Command::new(&script));
    assert!(!worked && said.contains("there is no before.smcli"), "{said}");
    for saved in [
        BEFORE.to_owned(),
        // Windows' ends of lines, a mark of UTF-8, and what SMcli says to whoever reads it.
        format!("\u{feff}// Saved;\n{BEFORE}").replace('\n', "\r\n"),
        BEFORE
            .replace('=', " = ")
            .replace("set storageArray", "  set   storageArray")
            .replace(';', " ;  // set now\n"),
        format!("show \"Setting mediaScanRate; set storageArray mediaScanRate=9; // to 9\";\n{BEFORE}"),
        // Twice the same.
        format!("{BEFORE}{BEFORE}"),
    ] {
        assert_eq!(undo_of(&array, &saved, &[]), (true, "made undo-10-basic.smcli\n".to_owned()), "{saved}");
        assert_eq!(made(&array, "undo-10-basic.smcli"), PUT_BACK, "{saved}");
    }
    // Other casing: the keys are spelled as ours, the values stay.
    let keys = BEFORE.to_uppercase().replace("\"OLD NAME\"", "\"Old Name\"").replace("=TRUE", "=True");
    let (worked, said) = undo_of(&array, &keys, &[]);
    assert!(worked, "{said}");
    let wanted = PUT_BACK.map(|line| line.replace("old name", "Old Name").replace("TRUE", "True"));
    assert_eq!(made(&array, "undo-10-basic.smcli"), wanted);
    let (worked, said) = run(Command::new(&script).arg("all"));
    assert!(!worked && said.contains("usage: "), "{said}");
}

/// How SMcli writes its commands differs between releases: what cannot be read is done by hand.
#[test]
fn saved_commands_that_lack_a_setting_make_no_file() {
    let array = array();
    let made = array.path().join("array-de0704/undo-10-basic.smcli");
    for (from, to, missing) in [
        ("mediaScanRate", "other", "mediaScanRate"),
        ("=15", "=often", "mediaScanRate"),
        ("set storageArray userLabel", "set subsystem userLabel", "userLabel"),
        ("\"old name\"", "\"\"", "userLabel"),
        ("=TRUE", "=", "autoLoadBalancingEnable"),
        ("set storageArray mediaScanRate=15", "// set storageArray mediaScanRate=15", "mediaScanRate"),
        ("defaultHostType=1", "defaultHostType=1;\nset storageArray defaultHostType=2", "defaultHostType"),
        ("hostConnectivityReporting enable", "hostConnectivityReporting", "hostConnectivityReporting"),
        ("cacheBlockSize=16 ", "", "cacheBlockSize"),
    ] {
        // One of an earlier run does not stay.
        assert!(undo_of(&array, BEFORE, &[]).0 && made.exists());
        let saved = BEFORE.replace(from, to);
        assert_ne!(saved, BEFORE);
        let (worked, said) = undo_of(&array, &saved, &[]);
        assert!(!worked && said.contains(&format!("what these were: {missing};\n")), "{to}: {said}");
        assert!(said.contains("By hand: look them up in before.txt"), "{said}");
        assert!(said.contains(&format!("set storageArray {missing}")), "{said}");
        // What can be read is not lost.
        assert_eq!(said.contains("=\"old name\";"), missing != "userLabel", "{said}");
        assert!(!made.exists(), "{to}");
    }
    // None at all, or no text.
    for saved in ["on error stop;\n", "\0\u{1}\u{2}", "\"", "set storageArray"] {
        let (worked, said) = undo_of(&array, saved, &[]);
        assert!(
            !worked && said.contains("these were: userLabel; cacheBlockSize; cacheFlushStart; media"),
            "{said}"
        );
        assert!(said.contains("autoLoadBalancingEnable=VALUE;\n") && !made.exists(), "{said}");
    }
}

#[test]
fn the_undo_of_ports_has_the_saved_addresses() {
    let array = array();
    let (worked, said) = undo_of(&array, BEFORE, &["ports"]);
    assert!(!worked && said.contains("the address of port 1a of a; the address of port 1b of a;"), "{said}");
    assert!(said.contains("set controller [b] hostPort [\"2b\"] IPV4Address=ADDRESS;\n"), "{said}");
    let set = fs::read_to_string(array.path().join("array-de0704/15-ports.smcli")).expect("read");
    let set = set.lines().filter(|line| line.starts_with("set controller"));
    let ports: Vec<_> = set.map(|line| line.replace("172.30.57.", "10.0.0.")).collect();
    assert_eq!(ports.len(), 8);
    let saved = format!("{BEFORE}{}\n", ports.join("\n"));
    let made_it = (true, "made undo-15-ports.smcli\n".to_owned());
    assert_eq!(undo_of(&array, &saved, &["ports"]), made_it);
    assert_eq!(made(&array, "undo-15-ports.smcli"), ports);
    assert_eq!(
        undo_of(&array, &saved.replace('\n', "\r\n").replace("hostPort [", "HOSTPORT["), &["ports"]),
        made_it
    );
    assert_eq!(made(&array, "undo-15-ports.smcli").len(), 8);
    for (from, to) in [("10.0.0.110", "none"), ("[a] hostPort [\"2b\"]", "[a] hostPort [\"3b\"]")] {
        let (worked, said) = undo_of(&array, &saved.replace(from, to), &["ports"]);
        assert!(!worked && said.contains("what these were: the address of port 2b of a;\n"), "{said}");
        assert!(!array.path().join("array-de0704/undo-15-ports.smcli").exists());
    }
    // The settings do not need them.
    assert_eq!(undo_of(&array, BEFORE, &[]), (true, "made undo-10-basic.smcli\n".to_owned()));
}

/// The first task ends the playbook before anything is asked of the array.
#[test]
fn the_undo_playbook_changes_nothing_while_hosts_may_use_the_volumes() {
    let array = array();
    let mut command = Command::new("ansible-playbook");
    command.args(["--inventory", "localhost,"]).arg(array.path().join("array-de0704/undo-playbook.yml"));
    command.env("HOME", array.path()).env("EF600_PASSWORD", "s3cret").env("DELETE_DATA", "yes");
    let (worked, said) = run(command.env_remove("HOSTS_DISCONNECTED"));
    assert!(!worked && said.contains("say so: HOSTS_DISCONNECTED=yes"), "{said}");
    assert_eq!(said.matches("TASK [").count(), 1, "{said}");
}
