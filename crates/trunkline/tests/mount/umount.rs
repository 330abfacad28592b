//! Tests `trunkline umount`: of our mounts, of no mount, and of other file systems.

use crate::fixture::{MOUNT_TIMEOUT, Mounted, Server, is_mounted, shell, text, wait_until_nobody_serves};
use rustix::process::Signal;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Output};
use testkit::Deadline;

fn umount(arguments: &[&str], directory: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trunkline"));
    command.arg("umount").args(arguments).arg(directory).output().unwrap()
}

/// Checks that the command failed with these words.
#[track_caller]
fn refused(output: &Output, words: &[&str]) {
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    for word in words {
        assert!(said.contains(word), "{word}: {said}");
    }
}

#[test]
fn umount_ends_only_our_mounts() {
    let server = Server::start(1);
    let other = server.mount_point("other");
    shell(&other, "mount -t tmpfs none .");
    for flags in [&[][..], &["--lazy"]] {
        refused(&umount(flags, &other), &["tmpfs is mounted there", "umount "]);
        assert!(is_mounted(&other));
    }
    shell(Path::new("/"), &format!("umount {}", other.display()));
    refused(&umount(&[], &other), &["it is not mounted", "trunkline status"]);
    refused(&umount(&["--lazy"], &other.join("absent")), &["it is not mounted"]);

    let ours = server.mount("a b", "nolock");
    // With a name such as people type.
    let roundabout = ours.directory.join("../other/../a b/");
    assert!(umount(&[], &roundabout).status.success() && !is_mounted(&ours.directory));

    let ours = server.mount("mnt", "nolock");
    let link = other.join("link");
    std::os::unix::fs::symlink(&ours.directory, &link).unwrap();
    assert!(umount(&[], &link).status.success() && !is_mounted(&ours.directory));
}

#[test]
fn a_busy_mount_is_only_unmounted_lazily() {
    let server = Server::start(1);
    let mut mount = server.mount("mnt", "nolock");
    fs::write(mount.path("f"), b"kept").unwrap();
    let open = File::open(mount.path("f")).unwrap();
    refused(&umount(&[], &mount.directory), &["--lazy"]);
    assert!(is_mounted(&mount.directory));
    assert!(umount(&["--lazy"], &mount.directory).status.success() && !is_mounted(&mount.directory));
    assert!(mount.process.is_running(), "a program uses the mount");
    assert_eq!(std::io::read_to_string(&open).unwrap(), "kept");
    drop(open);
    Deadline::wait_until("the mount to end", MOUNT_TIMEOUT, || (!mount.process.is_running()).then_some(()));
    assert!(mount.process.wait(MOUNT_TIMEOUT).success());
}

/// Writes a file with another program, because the files that this program has open are inherited
/// for a moment by every program that another test starts, and then the directory is busy.
fn write(path: &Path) {
    shell(Path::new("/"), &format!("printf kept > {}", path.display()));
}

/// Mounts a tmpfs on a directory, with a new file.
fn tmpfs(directory: &Path, name: &str) {
    shell(Path::new("/"), &format!("mount -t tmpfs none {0}; touch {0}/{name}", directory.display()));
}

fn umount_8(directory: &Path) {
    shell(Path::new("/"), &format!("umount {}", directory.display()));
}

#[track_caller]
fn wait_for_end(mount: &mut Mounted) {
    assert!(mount.process.wait(MOUNT_TIMEOUT).success(), "{}", mount.process.all_output());
}

#[test]
fn an_unmount_leaves_what_is_mounted_beneath() {
    let server = Server::start(1);
    let directory = server.mount_point("mnt");
    tmpfs(&directory, "beneath");
    let mut mount = Mounted::start("127.0.0.1:/export", directory.clone(), &server.options("nolock"));
    assert!(!directory.join("beneath").exists());
    umount_8(&directory);
    wait_for_end(&mut mount);
    assert!(is_mounted(&directory) && directory.join("beneath").exists());
    let mut mount = Mounted::start("127.0.0.1:/export", directory.clone(), &server.options("nolock"));
    mount.process.signal(Signal::TERM);
    wait_for_end(&mut mount);
    assert!(is_mounted(&directory) && directory.join("beneath").exists());
}

#[test]
fn a_new_mount_stays_when_the_process_of_an_earlier_mount_ends() {
    let server = Server::start(1);
    let directory = server.mount_point("mnt");
    let start = || Mounted::start("127.0.0.1:/export", directory.clone(), &server.options("nolock"));
    let mut earlier = start();
    fs::write(directory.join("f"), "kept").unwrap();
    for signal in [Signal::CONT, Signal::TERM] {
        earlier.process.signal(Signal::STOP);
        shell(Path::new("/"), &format!("umount --lazy {}", directory.display()));
        let fresh = start();
        // The earlier process learns only now that it was unmounted, and in the second round that
        // it should unmount.
        earlier.process.signal(signal);
        earlier.process.signal(Signal::CONT);
        wait_for_end(&mut earlier);
        assert!(is_mounted(&directory), "{signal:?}");
        assert_eq!(fs::read_to_string(directory.join("f")).unwrap(), "kept", "{signal:?}");
        let earlier_one = std::mem::replace(&mut earlier, fresh);
        // Dropping the earlier mount would unmount by path.
        std::mem::forget(earlier_one);
    }
}

#[test]
fn a_mount_with_another_mount_on_it_or_in_it_stays_until_that_is_gone() {
    let server = Server::start(1);
    let mut mount = server.mount("mnt", "nolock");
    fs::create_dir(mount.path("sub")).unwrap();
    let mut lines = 0;
    for place in [mount.directory.clone(), mount.path("sub")] {
        tmpfs(&place, "above");
        mount.process.signal(Signal::TERM);
        lines += 1;
        Deadline::wait_until("the message", MOUNT_TIMEOUT, || {
            (mount.process.all_output().matches("it stays mounted").count() == lines).then_some(())
        });
        assert!(place.join("above").exists(), "{}", place.display());
        umount_8(&place);
        assert!(mount.path("sub").exists(), "the directory is served as before");
    }
    let mut upper = Mounted::start("127.0.0.1:/export", mount.directory.clone(), &server.options("nolock"));
    fs::write(upper.path("f"), "kept").unwrap();
    mount.process.signal(Signal::TERM);
    Deadline::wait_until("the message", MOUNT_TIMEOUT, || {
        (mount.process.all_output().matches("it stays mounted").count() == lines + 1).then_some(())
    });
    assert_eq!(fs::read_to_string(upper.path("f")).unwrap(), "kept");
    upper.process.signal(Signal::TERM);
    wait_for_end(&mut upper);
    assert!(is_mounted(&mount.directory));
    mount.process.signal(Signal::TERM);
    wait_for_end(&mut mount);
    assert!(!is_mounted(&mount.directory));
}

#[test]
fn a_mount_is_found_where_it_was_moved_to() {
    let server = Server::start(1);
    let parent = server.mount_point("parent");
    let directory = parent.join("mnt");
    fs::create_dir(&directory).unwrap();
    let mut mount = Mounted::start("127.0.0.1:/export", directory.clone(), &server.options("nolock"));
    let (renamed, now) = (parent.with_file_name("renamed"), parent.with_file_name("renamed").join("mnt"));
    fs::rename(&parent, &renamed).unwrap();
    fs::create_dir_all(&directory).unwrap();
    tmpfs(&directory, "other");
    assert!(is_mounted(&now));
    mount.process.signal(Signal::TERM);
    wait_for_end(&mut mount);
    assert!(!is_mounted(&now) && directory.join("other").exists());
    umount_8(&directory);
}

#[test]
fn a_bind_mount_is_served_until_the_process_of_the_mount_ends() {
    let server = Server::start(1);
    let mut mount = server.mount("mnt", "nolock");
    write(&mount.path("f"));
    let bound = server.mount_point("bound");
    shell(Path::new("/"), &format!("mount --bind {} {}", mount.directory.display(), bound.display()));
    umount_8(&mount.directory);
    assert_eq!(fs::read_to_string(bound.join("f")).unwrap(), "kept");
    tmpfs(&mount.directory, "other");
    mount.process.signal(Signal::TERM);
    wait_for_end(&mut mount);
    assert!(mount.path("other").exists() && is_mounted(&bound));
    let dead = fs::read_dir(&bound).unwrap_err();
    assert_eq!(dead.raw_os_error(), Some(rustix::io::Errno::NOTCONN.raw_os_error()));
    shell(Path::new("/"), &format!("umount --lazy {}", bound.display()));
}

#[test]
fn mounting_and_unmounting_in_quick_succession_never_shows_the_directory_beneath() {
    let server = Server::start(1);
    let directory = server.mount_point("mnt");
    let mount = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_trunkline"));
        command.args(["mount", "127.0.0.1:/export"]).arg(&directory).args(["-o", &server.options("nolock")]);
        assert!(command.status().unwrap().success());
    };
    mount();
    write(&directory.join("f"));
    for turn in 0..20 {
        assert!(umount(&[], &directory).status.success(), "{turn}");
        mount();
        write(&directory.join(format!("f{turn}")));
        assert!(is_mounted(&directory) && directory.join("f").exists(), "{turn}");
    }
    assert!(umount(&[], &directory).status.success() && !is_mounted(&directory));
    wait_until_nobody_serves(&directory);
    assert!(fs::read_dir(&directory).unwrap().next().is_none(), "nothing was written beneath");
}
