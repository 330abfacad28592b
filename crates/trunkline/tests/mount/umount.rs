//! `trunkline umount`: of ours, of nothing, and of what others mounted.

use crate::rig::{PATIENCE, Server, is_mounted, shell, text};
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Output};
use testkit::Deadline;

fn umount(arguments: &[&str], directory: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trunkline"));
    command.arg("umount").args(arguments).arg(directory).output().unwrap()
}

/// It fails, with these words.
#[track_caller]
fn refused(output: &Output, words: &[&str]) {
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    for word in words {
        assert!(said.contains(word), "{word}: {said}");
    }
}

#[test]
fn umount_ends_mounts_of_ours_alone() {
    let server = Server::start(1);
    let other = server.mount_point("other");
    shell(&other, "mount -t tmpfs none .");
    for flags in [&[][..], &["--lazy"]] {
        refused(&umount(flags, &other), &["tmpfs is mounted there", "umount "]);
        assert!(is_mounted(&other));
    }
    shell(Path::new("/"), &format!("umount {}", other.display()));
    refused(&umount(&[], &other), &["it is not mounted", "findmnt"]);
    refused(&umount(&["--lazy"], &other.join("absent")), &["it is not mounted"]);

    let ours = server.mount("a b", "nolock");
    // As people write it.
    let roundabout = ours.directory.join("../other/../a b/");
    assert!(umount(&[], &roundabout).status.success() && !is_mounted(&ours.directory));
}

#[test]
fn a_mount_in_use_is_unmounted_lazily_alone() {
    let server = Server::start(1);
    let mut mount = server.mount("mnt", "nolock");
    fs::write(mount.path("f"), b"kept").unwrap();
    let open = File::open(mount.path("f")).unwrap();
    refused(&umount(&[], &mount.directory), &["--lazy"]);
    assert!(is_mounted(&mount.directory));
    assert!(umount(&["--lazy"], &mount.directory).status.success() && !is_mounted(&mount.directory));
    assert!(mount.process.is_running(), "somebody uses it");
    assert_eq!(std::io::read_to_string(&open).unwrap(), "kept");
    drop(open);
    Deadline::wait_until("the mount to end", PATIENCE, || (!mount.process.is_running()).then_some(()));
    assert!(mount.process.wait(PATIENCE).success());
}
