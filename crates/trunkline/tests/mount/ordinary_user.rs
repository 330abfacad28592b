//! Tests a mount by a user who is not root: with fusermount3, for that user only, and with helpful
//! errors where the user cannot mount.

use crate::fixture::{
    MOUNT_TIMEOUT, Mounted, Server, is_mounted, text, unmount_all_below, wait_until_nobody_serves,
};
use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use testkit::{Process, TempDir, copy_program, require_program, temp_dir};

/// `daemon`, a user that every Debian has: fusermount3 requires a name.
const USER: u32 = 1;

/// A server with a directory of the user, and a directory where the user can mount and finds the
/// program.
struct Fixture {
    server: Server,
    _by_root: Mounted,
    place: TempDir,
}

impl Fixture {
    fn new() -> Self {
        let _ = require_program("fusermount3");
        let server = Server::start(1);
        let by_root = server.mount("by-root", "");
        fs::create_dir(by_root.path("home")).unwrap();
        chown(by_root.path("home"), Some(USER), Some(USER)).unwrap();
        let place = temp_dir("ordinary-user");
        fs::set_permissions(place.path(), Permissions::from_mode(0o755)).unwrap();
        // The build directory may be closed to other users.
        copy_program(Path::new(env!("CARGO_BIN_EXE_trunkline")), &place.path().join("trunkline"));
        fs::create_dir(place.path().join("mnt")).unwrap();
        chown(place.path().join("mnt"), Some(USER), Some(USER)).unwrap();
        Self { server, _by_root: by_root, place }
    }

    fn directory(&self) -> PathBuf {
        self.place.path().join("mnt")
    }

    /// A shell script that the user runs; `$1` is the program, `$2` the directory, `$3` the mount
    /// options.
    fn script(&self, script: &str) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "1", "--regid", "1", "--clear-groups", "sh", "-euc", script, "sh"]);
        command.arg(self.place.path().join("trunkline")).arg(self.directory()).arg(self.server.options(""));
        command
    }

    fn run(&self, script: &str) -> Output {
        self.script(script).output().unwrap()
    }

    /// Like [`run`](Self::run), with this content of /etc/fuse.conf, which only this script sees.
    fn run_with_fuse_conf(&self, words: &str, script: &str) -> Output {
        let conf = self.place.path().join("fuse.conf");
        fs::write(&conf, words).unwrap();
        self.run_with_in_place_of("/etc/fuse.conf", &conf, script)
    }

    /// Like [`run`](Self::run), with a file at `path` that only root may open.
    fn run_as_if_nobody_may_open(&self, path: &str, script: &str) -> Output {
        let closed = self.place.path().join("closed");
        fs::write(&closed, "").unwrap();
        fs::set_permissions(&closed, Permissions::from_mode(0o600)).unwrap();
        self.run_with_in_place_of(path, &closed, script)
    }

    fn run_with_in_place_of(&self, path: &str, other: &Path, script: &str) -> Output {
        let user = self.script(script);
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-euc", "mount --bind \"$0\" \"$1\"; shift; exec \"$@\""]);
        command.arg(other).arg(path).arg(user.get_program()).args(user.get_args());
        command.output().unwrap()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        unmount_all_below(self.place.path());
    }
}

#[track_caller]
fn assert_refused(output: &Output, cause: &str, advice: &str) {
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.starts_with("error: cannot mount on ") && said.contains(cause), "{said}");
    assert!(said.lines().any(|line| line.starts_with("  try:   ") && line.contains(advice)), "{said}");
}

#[test]
fn a_user_who_is_not_root_mounts_uses_and_unmounts_a_directory() {
    let fixture = Fixture::new();
    let mounted = fixture
        .run("\"$1\" mount 127.0.0.1:/export \"$2\" -o \"$3\"; cd \"$2\"; echo mine > home/f; cat home/f");
    assert!(mounted.status.success() && text(&mounted.stdout) == "mine\n", "{}", text(&mounted.stderr));
    let directory = fixture.directory();
    let shown = fs::read_to_string("/proc/self/mounts").unwrap();
    let line = shown
        .lines()
        .find(|line| line.contains(directory.to_str().unwrap()))
        .expect("the directory is mounted");
    for word in [" fuse.trunkline ", "nosuid", "nodev", "user_id=1"] {
        assert!(line.contains(word), "{word}: {line}");
    }
    assert!(!line.contains("allow_other"), "{line}");
    // Not even root can enter.
    assert_eq!(fs::read_dir(&directory).unwrap_err().kind(), ErrorKind::PermissionDenied);
    let owner = fs::metadata(fixture._by_root.path("home/f")).unwrap();
    assert_eq!((owner.uid(), owner.gid()), (USER, USER));
    let unmounted = fixture.run("\"$1\" umount \"$2\"");
    assert!(unmounted.status.success() && !is_mounted(&directory), "{}", text(&unmounted.stderr));
    wait_until_nobody_serves(&directory);
}

/// Mounts in the foreground with these additional options, and kills the process.
fn killed(fixture: &Fixture, more: &str) -> Process {
    let script = format!("exec \"$1\" mount -f 127.0.0.1:/export \"$2\" -o \"$3{more}\"");
    let mut process = Process::spawn(fixture.script(&script));
    process.wait_for_line("mounted", MOUNT_TIMEOUT);
    assert!(is_mounted(&fixture.directory()));
    process.kill();
    process.wait_for_line("was killed", MOUNT_TIMEOUT);
    process
}

#[test]
fn a_killed_mount_of_an_ordinary_user_answers_enotconn_until_it_is_mounted_again_or_unmounted() {
    let fixture = Fixture::new();
    let process = killed(&fixture, "");
    assert!(process.all_output().contains("answers ENOTCONN"), "{}", process.all_output());
    let looked = fixture.run("ls \"$2\"");
    assert!(text(&looked.stderr).contains("Transport endpoint is not connected"), "{looked:?}");
    let again =
        fixture.run("\"$1\" mount 127.0.0.1:/export \"$2\" -o \"$3\"; ls \"$2\"; \"$1\" umount \"$2\"");
    assert!(again.status.success() && text(&again.stdout) == "home\n", "{again:?}");
    assert!(!is_mounted(&fixture.directory()), "the dead mount is gone too");
    let _ = killed(&fixture, "");
    let unmounted = fixture.run("\"$1\" umount \"$2\"");
    assert!(unmounted.status.success() && !is_mounted(&fixture.directory()), "{unmounted:?}");
}

#[test]
fn with_auto_unmount_a_killed_mount_of_an_ordinary_user_is_unmounted() {
    let fixture = Fixture::new();
    let process = killed(&fixture, ",auto_unmount");
    assert!(process.all_output().contains("was unmounted"), "{}", process.all_output());
    assert!(!is_mounted(&fixture.directory()));
}

#[test]
fn other_users_may_enter_if_the_administrator_permits_it_and_the_error_says_how() {
    let fixture = Fixture::new();
    let mount = "\"$1\" mount 127.0.0.1:/export \"$2\" -o \"$3,allow_other\"";
    let refused = fixture.run_with_fuse_conf("", mount);
    assert_refused(&refused, "user_allow_other", "echo user_allow_other >> /etc/fuse.conf");
    // The mount exists only in the namespace of the script, so the script looks at it.
    let look = format!("{mount}; grep \" $2 \" /proc/self/mounts; \"$1\" umount \"$2\"");
    let allowed = fixture.run_with_fuse_conf("user_allow_other\n", &look);
    let said = text(&allowed.stdout);
    assert!(allowed.status.success() && said.contains("allow_other"), "{said}{}", text(&allowed.stderr));
    wait_until_nobody_serves(&fixture.directory());
}

#[test]
fn an_error_says_what_prevents_an_ordinary_user_from_mounting_and_what_to_do() {
    let fixture = Fixture::new();
    let mount = "\"$1\" mount 127.0.0.1:/export \"$2\" -o \"$3\"";
    let without = fixture.run(&format!("export FUSERMOUNT_PATH=/nonexistent; {mount}"));
    assert_refused(&without, "fusermount3, which was not found", "apt-get install fuse3");
    let copy = fixture.place.path().join("fusermount3");
    copy_program(&require_program("fusermount3"), &copy);
    fs::set_permissions(&copy, Permissions::from_mode(0o755)).unwrap();
    let powerless = fixture.run(&format!("export FUSERMOUNT_PATH={}; {mount}", copy.display()));
    assert_refused(&powerless, "not permitted", "chmod u+s");
    let device = fixture.run_as_if_nobody_may_open("/dev/fuse", mount);
    assert_refused(&device, "denied", "chmod 666 /dev/fuse");
    chown(fixture.directory(), Some(0), Some(0)).unwrap();
    assert_refused(&fixture.run(mount), "write access", "a directory of your own");
    assert!(!is_mounted(&fixture.directory()) && Path::new("/dev/fuse").exists());
}
