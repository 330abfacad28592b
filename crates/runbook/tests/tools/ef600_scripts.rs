//! The scripts of an array, with a stand-in for SMcli.

use crate::scripts::{folder, run, write};
use runbook::System;
use std::fs;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// Answers with what `running` and `volumes` have, and notes the password's file. `first`, if it is
/// there, is the first answer about what runs.
fn array() -> TempDir {
    let directory = folder(System::Ef600.site_file());
    let smcli = format!(
        "#!/bin/bash\ncd {}\nwhile [ $# -gt 0 ]; do\n\
         if [ \"$1\" = -P ]; then cat \"$2\" >password; stat -c '%n %a' \"$2\" >handed; fi\n\
         if [ \"$1\" = -f ]; then query=$(cat \"$2\"); fi\nshift; done\necho \"$query\" >>asked\n\
         case $query in\n'show allVolumes summary;') cat volumes ;;\n\
         'show storageArray longRunningOperations;') echo 'other-volume  Volume Initialize  10%'; cat running\n\
         [ ! -e later ] || mv later running ;;\n*) exit 1 ;;\nesac\n\
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
