//! Tests `ls`, `cat`, `stat` and `cp` on nfs-ganesha: the files that they leave there, and a server
//! that is killed during a copy.

use crate::fixtures::{TIMEOUT, assert_same, pattern};
use crate::ganesha::Ganesha;
use crate::summary::without_summary;
use crate::trees::{Seen, compare, plant, snapshot};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use testkit::{Deadline, Process, Stream, temp_dir};

const LARGE_BYTES: usize = 400 << 20;

fn trunkline(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trunkline"));
    command.args(arguments).env_remove("TRUNKLINE_LOG");
    command
}

#[track_caller]
fn prints(arguments: &[&str]) -> String {
    let mut process = Process::spawn(trunkline(arguments));
    let status = process.wait(TIMEOUT);
    let said = without_summary(&process.output(Stream::Err));
    assert_eq!((status.code(), said.as_str()), (Some(0), ""), "{arguments:?}");
    process.output(Stream::Out)
}

/// The URL of a path on the server without the port of MOUNT: the client asks rpcbind for the port.
fn url(ganesha: &Ganesha, path: &str) -> String {
    format!("nfs://127.0.0.1:{}{}{path}?nconnect=2", ganesha.port, ganesha.export_path())
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// nfs-ganesha reports success when it sets the times of a symbolic link, but does not set them.
fn without_times_of_links(tree: &Path) -> BTreeMap<PathBuf, Seen> {
    let mut seen = snapshot(tree);
    seen.values_mut().for_each(Seen::forget_time_of_link);
    seen
}

#[test]
fn a_copied_tree_is_equal_on_the_server_and_when_copied_back() {
    let ganesha = Ganesha::start();
    let place = temp_dir("commands");
    let tree = place.path().join("tree");
    plant(&tree);
    prints(&["cp", "-a", "--verify", text(&tree), &url(&ganesha, "/copy")]);
    compare(&without_times_of_links(&tree), &without_times_of_links(&ganesha.local("copy")));
    let sparse = fs::metadata(ganesha.local("copy/sparse")).unwrap();
    assert!(std::os::unix::fs::MetadataExt::blocks(&sparse) * 512 < 2 << 20, "the holes are preserved");
    prints(&["cp", "-a", "--verify", &url(&ganesha, "/copy"), text(&place.path().join("back"))]);
    compare(&without_times_of_links(&tree), &without_times_of_links(&place.path().join("back")));
    assert_eq!(prints(&["ls", &url(&ganesha, "/")]), "copy\n");
    assert!(prints(&["ls", "-lR", &url(&ganesha, "/copy/deep")]).contains("absolute -> /etc/passwd\n"));
    assert_eq!(prints(&["cat", &url(&ganesha, "/copy/third%20name")]), "contents\n");
    assert!(prints(&["stat", &url(&ganesha, "/copy/plain")]).contains("mode          4751 -rwsr-x--x\n"));
    assert!(prints(&["stat", "--fs", &url(&ganesha, "/")]).contains("names         up to "));
}

#[test]
fn a_copy_continues_when_the_server_is_killed_and_restarted() {
    let mut ganesha = Ganesha::start();
    let place = temp_dir("commands");
    let (source, data) = (place.path().join("large"), pattern(LARGE_BYTES, 3));
    fs::write(&source, &data).unwrap();
    let mut copy = Process::spawn(trunkline(&["cp", "--verify", text(&source), &url(&ganesha, "/")]));
    Deadline::wait_until("the beginning of the copy", TIMEOUT, || {
        let mut names = fs::read_dir(ganesha.local("")).unwrap().flatten();
        names.any(|name| name.metadata().is_ok_and(|of| of.len() > 20 << 20)).then_some(())
    });
    ganesha.kill();
    ganesha.start_again();
    assert!(copy.wait(TIMEOUT).success(), "{}", copy.all_output());
    assert_same("on the server", &fs::read(ganesha.local("large")).unwrap(), &data);
    assert_eq!(fs::read_dir(ganesha.local("")).unwrap().count(), 1, "nothing else is left");
}
