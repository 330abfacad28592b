//! Tests groups that are impossible: each is refused with a cause and with what to do.

use crate::fixtures::{Directories, Node, trunkline};
use crate::peer::SOON;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use testkit::{Process, Stream, free_port};

/// Expects status 1 and an error with this cause; returns the error.
fn fails(arguments: &[String], cause: &str) -> String {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut process = Process::spawn(trunkline(&arguments));
    let status = process.wait(SOON);
    let error = process.output(Stream::Err);
    assert_eq!(status.code(), Some(1), "{error}");
    assert!(error.contains(cause) && error.contains("\n  try:   "), "{error}");
    error
}

fn node(directories: &Directories) -> Vec<String> {
    directories.arguments(([127, 0, 0, 1], free_port()).into())
}

/// The arguments of a node with another value of an option.
fn with(mut arguments: Vec<String>, option: &str, value: &str) -> Vec<String> {
    let at = arguments.iter().position(|word| word == option).expect("the option is given");
    arguments[at + 1] = value.to_owned();
    arguments
}

fn chmod(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("its mode");
}

#[test]
fn a_group_directory_that_others_may_write_or_that_is_a_file_is_refused() {
    let directories = Directories::new("group-mode");
    std::fs::create_dir(directories.group()).expect("a directory");
    chmod(&directories.group(), 0o775);
    fails(&node(&directories), "may be changed by others");
    chmod(&directories.group(), 0o755);
    let at = Path::new(&directories.path("file")).to_owned();
    std::fs::write(&at, b"").expect("a file");
    fails(&with(node(&directories), "--group", &directories.path("file")), "file");
    std::os::unix::fs::symlink("/etc/passwd", directories.group().join("replies")).expect("a link");
    fails(&node(&directories), "replies");
    if rustix::process::geteuid().is_root() {
        std::fs::remove_file(directories.group().join("replies")).expect("the file existed");
        std::fs::write(directories.group().join("replies"), b"").expect("a file");
        std::os::unix::fs::chown(directories.group().join("replies"), Some(1), None).expect("another owner");
        fails(&node(&directories), "replies belongs to user 1");
        std::os::unix::fs::chown(directories.group(), Some(1), None).expect("another owner");
        fails(&node(&directories), "belongs to user 1");
    } else {
        fails(&with(node(&directories), "--group", "/proc/group"), "/proc/group");
    }
}

#[test]
fn a_group_within_its_own_export_or_of_memory_is_refused() {
    let directories = Directories::new("group-inside");
    fails(
        &with(node(&directories), "--group", &directories.path("served/group")),
        "within the exported directory",
    );
    let config = directories.path("group.toml");
    let text = format!(
        "group = \"{}\"\n[[node]]\nlisten = [\"127.0.0.1:0\"]\n[[export]]\npath = \"/e\"\nmem = \"1MiB\"\n",
        directories.path("group")
    );
    std::fs::write(&config, text).expect("a file");
    fails(&["serve", "-c", &config].map(str::to_owned), "is in memory");
}

#[test]
fn a_directory_of_another_group_is_refused() {
    let directories = Directories::new("group-mixed");
    let first = Node::start(&directories, 1);
    let other = directories.path("other");
    std::fs::create_dir(&other).expect("a directory");
    let error = fails(&with(node(&directories), "--dir", &other), "another export with fsid 1");
    assert!(error.contains("another directory for another group"), "{error}");
    fails(&with(node(&directories), "--state", &directories.path("other-state")), "--state elsewhere");
    drop(first);
    // When no process is left, the directory is free for another group.
    let arguments = with(node(&directories), "--dir", &other);
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    Process::spawn(trunkline(&words)).wait_for_line("ready", SOON);
}

#[test]
fn a_damaged_truncated_or_foreign_file_is_an_error_with_advice() {
    let directories = Directories::new("group-damaged");
    let path = directories.group().join("replies");
    let whole = || {
        let _ = std::fs::remove_file(&path);
        drop(Node::start(&directories, 1));
        std::fs::OpenOptions::new().write(true).open(&path).expect("the file")
    };
    whole().set_len(1 << 20).expect("cut");
    assert!(fails(&node(&directories), "is damaged").contains(&format!("rm {}", path.display())));
    whole().set_len(20).expect("cut");
    fails(&node(&directories), "is damaged");
    whole().write_all_at(&[0xff; 4], 9).expect("scribbled over");
    fails(&node(&directories), "is damaged");
    std::fs::write(&path, b"something else").expect("a file");
    fails(&node(&directories), "is not a reply cache of ours");
    // An empty file, as a process leaves it that was killed early, is initialized.
    std::fs::write(&path, b"").expect("a file");
    drop(Node::start(&directories, 1));
}
