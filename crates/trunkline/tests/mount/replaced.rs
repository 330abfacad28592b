//! Tests open files that are replaced by rename(2) on a server that does not permit every step: a
//! directory with root squashing.

use crate::fixture::{MOUNT_TIMEOUT, Mounted, names_in, unmount_all_below};
use crate::refusals::Refusals;
use nfs3::Procedure;
use rustix::process::Signal;
use std::fs::{self, File, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, mpsc};
use testkit::{Deadline, Process, TempDir};

/// The user as whom a client's root acts.
const NOBODY: u32 = 65534;
/// Another user. By default Linux permits nobody to make links to files that they neither own nor
/// may write (fs.protected_hardlinks), so a file of this user is moved where one of nobody's is
/// linked.
const OTHER: u32 = 1234;

/// A served directory with `src/a`, which a test renames over `dst/b`.
struct ServedDirectory {
    directory: TempDir,
    port: u16,
    _server: testkit::ServerProcess,
}

impl ServedDirectory {
    /// `owner` owns `b`; `src` has this mode and belongs to root.
    fn start(owner: u32, src_mode: u32) -> Self {
        let directory = testkit::temp_dir("replaced");
        let at = |name: &str| directory.path().join(name);
        for (name, mode) in
            [("served", 0o755), ("served/src", src_mode), ("served/dst", 0o777), ("mnt", 0o755)]
        {
            fs::create_dir(at(name)).unwrap();
            fs::set_permissions(at(name), Permissions::from_mode(mode)).unwrap();
        }
        for (name, data) in [("served/src/a", "new"), ("served/dst/b", "old")] {
            fs::write(at(name), data).unwrap();
            fs::set_permissions(at(name), Permissions::from_mode(0o644)).unwrap();
        }
        chown(at("served/dst/b"), Some(owner), Some(owner)).unwrap();
        let [served, state] = ["served", "state"].map(|name| at(name).display().to_string());
        let program = || Command::new(env!("CARGO_BIN_EXE_trunkline"));
        let arguments = |port| {
            let listen = format!("127.0.0.1:{port}");
            ["--nfs-versions", "3,4.2", "--listen", &listen, "--dir", &served, "--state", &state]
                .map(str::to_owned)
                .to_vec()
        };
        let server = testkit::ServerProcess::start_on_free_port(program, arguments);
        Self { port: server.port(), directory, _server: server }
    }

    /// Mounts with these options.
    fn mount(&self, options: &str) -> Mounted {
        let options = format!("{options},nconnect=1,nolock");
        Mounted::start("127.0.0.1:/export", self.directory.path().join("mnt"), &options)
    }

    /// Read beneath the server, so that the mount is not involved.
    fn dst(&self) -> PathBuf {
        self.directory.path().join("served/dst")
    }

    fn content(&self) -> Option<String> {
        fs::read_to_string(self.dst().join("b")).ok()
    }

    /// Waits until `b` is the only name.
    #[track_caller]
    fn wait_until_it_is_alone(&self) {
        Deadline::wait_until("the other name to go", MOUNT_TIMEOUT, || {
            (names_in(&self.dst()) == ["b"]).then_some(())
        });
    }
}

impl Drop for ServedDirectory {
    fn drop(&mut self) {
        unmount_all_below(self.directory.path());
    }
}

#[test]
fn an_open_file_keeps_its_name_when_a_rename_over_it_fails() {
    for owner in [NOBODY, OTHER] {
        let served = ServedDirectory::start(owner, 0o755);
        let mut mount = served.mount(&format!("port={}", served.port));
        let open = File::open(mount.path("dst/b")).unwrap();
        let failed = fs::rename(mount.path("src/a"), mount.path("dst/b")).unwrap_err();
        assert_eq!(failed.kind(), ErrorKind::PermissionDenied, "{failed}");
        assert_eq!(names_in(&served.dst()), ["b"], "of {owner}");
        assert_eq!(std::io::read_to_string(&open).unwrap(), "old");
        drop(open);
        assert_eq!(fs::read_to_string(mount.path("dst/b")).unwrap(), "old");
        // The termination waits for what the last close does.
        assert!(mount.process.terminate(MOUNT_TIMEOUT).success(), "{}", mount.process.all_output());
        assert_eq!((names_in(&served.dst()), served.content().as_deref()), (vec!["b".into()], Some("old")));
    }
}

#[test]
fn a_rename_over_an_open_file_is_completed_when_its_process_is_killed() {
    // The call that keeps the file, which is held until the process has ended, and the content
    // after the rename.
    for (owner, src_mode, kept_by, expected) in [
        (NOBODY, 0o777, Procedure::Link, "new"),
        (OTHER, 0o777, Procedure::Rename, "new"),
        (OTHER, 0o755, Procedure::Rename, "old"),
    ] {
        let served = ServedDirectory::start(owner, src_mode);
        let proxy = Refusals::before(served.port);
        let mount = served.mount(&format!("vers=3,port={}", proxy.port));
        let open = File::open(mount.path("dst/b")).unwrap();
        let (hold, held) = mpsc::channel::<()>();
        let held = Mutex::new(held);
        proxy.replace(kept_by, move |record| {
            // Returns when the other end is dropped.
            let _ = held.lock().unwrap().recv();
            record
        });
        let mut command = Command::new("mv");
        command.arg("-f").arg(mount.path("src/a")).arg(mount.path("dst/b"));
        let mut renaming = Process::spawn(command);
        Deadline::wait_until("the file to be kept", MOUNT_TIMEOUT, || (proxy.refused() > 0).then_some(()));
        renaming.signal(Signal::KILL);
        assert!(!renaming.wait(MOUNT_TIMEOUT).success());
        drop(hold);
        Deadline::wait_until("the rename to end", MOUNT_TIMEOUT, || {
            (served.content().as_deref() == Some(expected)).then_some(())
        });
        assert_eq!(std::io::read_to_string(&open).unwrap(), "old", "{kept_by:?} {expected}");
        drop(open);
        served.wait_until_it_is_alone();
        assert_eq!(served.content().as_deref(), Some(expected));
    }
}
