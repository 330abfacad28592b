//! Tests a dead mount that is mounted again, and directories that have several names or none.

use crate::fixture::{MOUNT_TIMEOUT, Mounted, Server, is_mounted, shell, text, wait_until_nobody_serves};
use rustix::fs::stat;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

fn mount(server: &Server, directory: &Path) -> Mounted {
    Mounted::start("127.0.0.1:/export", directory.to_owned(), &server.options("nolock"))
}

/// The caller keeps the mount, which is unmounted when dropped.
#[must_use]
fn killed(mut mount: Mounted) -> Mounted {
    mount.process.kill();
    mount.process.wait_for_line("was killed", MOUNT_TIMEOUT);
    mount
}

fn trunkline(arguments: &[&str], directory: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_trunkline")).args(arguments).arg(directory).output().unwrap()
}

fn is_dead(directory: &Path) -> bool {
    fs::read_dir(directory)
        .is_err_and(|error| error.raw_os_error() == Some(rustix::io::Errno::NOTCONN.raw_os_error()))
}

/// Sets a flag when it is dropped.
struct EndsOnDrop<'a>(&'a AtomicBool);

impl Drop for EndsOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[test]
fn a_dead_mount_is_replaced_without_showing_the_directory_beneath() {
    let server = Server::start(1);
    let directory = server.mount_point("mnt");
    let local = stat(&directory).unwrap().st_dev;
    let (ended, seen) = (AtomicBool::new(false), AtomicU32::new(0));
    let mut all = vec![mount(&server, &directory)];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Acquire) {
                if stat(&directory).is_ok_and(|found| found.st_dev == local) {
                    seen.fetch_add(1, Ordering::AcqRel);
                }
            }
        });
        // Also after a panic, so that the test ends with it.
        let _end = EndsOnDrop(&ended);
        for _ in 0..10 {
            let dead = all.pop().map(killed);
            all.extend(dead);
            all.push(mount(&server, &directory));
        }
    });
    assert_eq!(seen.into_inner(), 0, "the local directory was seen");
    assert!(trunkline(&["umount"], &directory).status.success());
    assert!(!is_mounted(&directory), "one mount was left, and none beneath it");
}

#[test]
fn a_failed_attempt_to_replace_a_dead_mount_leaves_it_in_place() {
    let mut server = Server::start(1);
    let directory = server.mount_point("mnt");
    let _dead = killed(mount(&server, &directory));
    let options = server.options("nolock,retry=0");
    server.process.kill();
    let at = directory.to_str().unwrap();
    let tried = trunkline(&["mount", "-o", &options, "127.0.0.1:/export"], &directory);
    assert!(!tried.status.success() && is_dead(&directory), "{}", text(&tried.stderr));
    // The process is ended by a signal while it waits for the server.
    let command = format!(
        "timeout -s TERM 1 {} mount -f -o {options},retry=10 127.0.0.1:/export {at} || true",
        env!("CARGO_BIN_EXE_trunkline")
    );
    shell(Path::new("/"), &command);
    wait_until_nobody_serves(&directory);
    assert!(is_dead(&directory) && trunkline(&["umount"], &directory).status.success());
}

/// Several names of the same directory that the system resolves.
fn names(directory: &Path) -> Vec<PathBuf> {
    let link = directory.with_file_name("link");
    symlink(directory, &link).unwrap();
    let parent = directory.file_name().unwrap();
    vec![link.clone(), link.join(""), directory.join("..").join(parent), directory.to_owned()]
}

#[test]
fn a_directory_is_mounted_and_unmounted_under_any_of_its_names() {
    let server = Server::start(1);
    let directory = server.mount_point("mnt");
    for name in names(&directory) {
        let dead = killed(mount(&server, &name));
        assert!(is_dead(&directory), "{}", name.display());
        if name.components().any(|part| part == Component::ParentDir) {
            // No path leads through a dead mount.
            assert!(trunkline(&["umount"], &directory).status.success());
        }
        let again = mount(&server, &name);
        fs::write(name.join("f"), b"1").unwrap();
        let ended = trunkline(&["umount"], &name);
        assert!(ended.status.success(), "{}: {}", name.display(), text(&ended.stderr));
        assert!(!is_mounted(&directory), "{}", name.display());
        drop((dead, again));
    }
}

#[test]
fn a_mount_on_the_root_a_file_or_a_removed_directory_is_refused() {
    let server = Server::start(1);
    let options = server.options("nolock");
    let place = server.mount_point("place");
    let (file, gone) = (place.join("file"), place.join("gone"));
    fs::write(&file, b"").unwrap();
    fs::create_dir(&gone).unwrap();
    let program = env!("CARGO_BIN_EXE_trunkline");
    for (directory, cause) in
        [(file.to_str().unwrap(), "Not a directory"), ("/", "root directory"), (".", "")]
    {
        // The working directory of a shell that was removed has no name.
        let command = format!(
            "cd gone && {{ test {directory} != . || rmdir ../gone; }}; \
             {program} mount -o {options} 127.0.0.1:/export {directory} 2>&1 && exit 0; true"
        );
        let said = Command::new("sh").args(["-c", &command]).current_dir(&place).output().unwrap();
        let said = text(&said.stdout).to_owned();
        assert!(said.contains("cannot mount on") && said.contains(cause), "{directory}: {said}");
    }
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains(" / fuse.trunkline "), "{mounts}");
}
