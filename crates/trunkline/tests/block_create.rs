//! Tests `trunkline block create` as a user runs it: from a plan to volumes that are served, and
//! that nothing which exists is overwritten.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use testkit::Process;

const TIMEOUT: Duration = Duration::from_secs(60);

fn trunkline(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trunkline"));
    command.args(arguments).env_remove("TRUNKLINE_LOG");
    command
}

/// Where direct I/O is possible.
fn directory() -> TempDir {
    TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory")
}

/// Runs `block create` in a directory.
fn create(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = trunkline(&["block", "create"]);
    command.args(arguments).current_dir(directory).stdin(Stdio::null());
    command.output().expect("the program runs")
}

fn created(directory: &Path, arguments: &[&str]) -> String {
    let output = create(directory, arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("it is text")
}

fn names(directory: &Path) -> Vec<String> {
    let names = directory.read_dir().expect("a directory").flatten();
    let mut names: Vec<_> = names.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Serves a configuration file with a state directory of its own; returns what it prints.
fn serve(directory: &Path, config: &str) -> String {
    let state = directory.join("state");
    let file = directory.join(config);
    let text = std::fs::read_to_string(&file).expect("the file was written");
    assert!(text.contains(&format!("state = \"{}\"", state.display())), "{text}");
    let server = Process::spawn(trunkline(&["block", "serve", "-c", &file.display().to_string()]));
    server.wait_for_line("ready", TIMEOUT);
    server.output(testkit::Stream::Out)
}

#[test]
fn a_plan_becomes_volumes_that_are_served_by_their_nodes() {
    let place = directory();
    let plan = ["plan", "layout", "--scheme", "raid6", "--drives", "20", "--drive-tb", "7.68", "--json"];
    let plan = trunkline(&plan).output().expect("the program runs");
    assert!(plan.status.success());
    std::fs::write(place.path().join("layout.json"), &plan.stdout).expect("there is room");
    let state = place.path().join("state").display().to_string();
    let said = created(
        place.path(),
        &[
            "layout.json",
            "--size",
            "64MiB",
            "--dir",
            ".",
            "-c",
            "block.toml",
            "--listen",
            "127.0.0.1:0",
            "--listen",
            "127.0.0.1:0",
            "--allow",
            "any",
            "--state",
            &state,
        ],
    );
    assert!(said.contains("ef600a01v2: made ") && said.contains("64.0 MiB, node B"), "{said}");
    assert!(said.contains("to serve them: trunkline block serve -c block.toml"), "{said}");
    let served = serve(place.path(), "block.toml");
    for (name, node) in [("ef600a01v1", "A"), ("ef600a01v2", "B"), ("ef600a02v1", "A"), ("ef600a02v2", "B")] {
        let line = served.lines().find(|line| line.contains(&format!("/{name}.img, ")));
        let line = line.unwrap_or_else(|| panic!("{name} is not served:\n{served}"));
        assert!(line.ends_with(&format!("node {node}")), "{line}");
    }
}

#[test]
fn volumes_have_the_sizes_that_were_asked_for_and_space_if_it_was() {
    let place = directory();
    let state = place.path().join("state").display().to_string();
    let said = created(
        place.path(),
        &[
            "--volume",
            "first=16MiB",
            "--volume",
            "db=1MiB",
            "--dir",
            ".",
            "--allocate",
            "-c",
            "a.toml",
            "--listen",
            "127.0.0.1:0",
            "--state",
            &state,
            "--json",
        ],
    );
    let told: serde_json::Value = serde_json::from_str(&said).expect("it is JSON");
    assert_eq!(told["volumes"][0]["bytes"], 16 << 20);
    assert_eq!(told["volumes"][1]["name"], "db");
    use std::os::unix::fs::MetadataExt;
    let facts = place.path().join("db.img").metadata().expect("it was made");
    assert_eq!((facts.len(), facts.blocks() * 512 >= 1 << 20), (1 << 20, true));
    assert_eq!(facts.mode() & 0o777, 0o600, "the network is not the only way to what a volume has");
    let served = serve(place.path(), "a.toml");
    assert!(served.contains("first.img, 16.0 MiB") && served.contains("no host may connect"), "{served}");
}

#[test]
fn nothing_is_overwritten_and_nothing_is_left_of_what_failed() {
    let place = directory();
    std::fs::write(place.path().join("b.img"), "mine").expect("there is room");
    let output = create(place.path(), &["--volume", "a=1MiB", "--volume", "b=1MiB", "--dir", ".", "-c", "c"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("b.img") && said.contains("nothing is overwritten"), "{said}");
    assert_eq!(names(place.path()), ["b.img"]);
    // The configuration file comes last, and takes all back as well.
    std::fs::write(place.path().join("mine.toml"), "mine").expect("there is room");
    let output = create(place.path(), &["--volume", "a=1MiB", "--dir", ".", "-c", "mine.toml"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(names(place.path()), ["b.img", "mine.toml"]);
    assert_eq!(std::fs::read_to_string(place.path().join("mine.toml")).expect("it is there"), "mine");
    assert_eq!(std::fs::read_to_string(place.path().join("b.img")).expect("it is there"), "mine");
}

#[test]
fn what_cannot_be_made_is_refused_with_its_cause() {
    let place = directory();
    let no_capacity = r#"{"groups":[{"volumes":[{"name":"a","owner":"A"},{"name":"b","owner":"B"}]}]}"#;
    std::fs::write(place.path().join("layout.json"), no_capacity).expect("there is room");
    std::fs::write(place.path().join("file"), "").expect("there is room");
    let two = ["layout.json", "--size", "1MiB", "--dir", "."].as_slice();
    for (arguments, cause) in [
        (["--volume", "a=1MiB"].as_slice(), "neither --dir nor a --device"),
        (&["--volume", "a=1MiB", "--dir", "absent"], "no directory"),
        (&["--volume", "a=1MiB", "--device", "b=/dev/null", "--dir", "."], "no volume is called so"),
        (&["--volume", "a=1MiB", "--device", "a=/dev/absent"], "No such file"),
        (&["--volume", "a=1MiB", "--device", "a=file"], "no block device"),
        (&["--volume", "a=1MiB", "--volume", "a=1MiB", "--dir", "."], "two volumes are called a"),
        (&["--volume", "../a=1MiB", "--dir", "."], "no name of a file"),
        (&["--volume", "a=1000B", "--dir", "."], "not whole blocks"),
        (&["--volume", "a=0MiB", "--dir", "."], "not whole blocks"),
        (&["layout.json", "--dir", "."], "no capacity"),
        (&["absent.json", "--dir", "."], "absent.json"),
        (&["file", "--dir", "."], "no layout"),
        (two, "node B owns volumes and has no address"),
    ] {
        let output = create(place.path(), &[arguments, &["-c", "block.toml"]].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
        assert!(said.contains(cause) && said.contains("try:"), "{arguments:?}: {said}");
        assert_eq!(names(place.path()), ["file", "layout.json"], "{arguments:?}");
    }
    for arguments in [["-c", "block.toml", "--dir", "."].as_slice(), &["--volume", "a", "-c", "block.toml"]] {
        assert_eq!(create(place.path(), arguments).status.code(), Some(2), "{arguments:?}");
    }
}
