//! Tests mounts by mount(8) from lines of fstab, each in its own mount and process namespace, where
//! the program is linked as mount(8) expects. What a test leaves mounted, and the processes that
//! serve it, end with the namespace.

use crate::fixture::{Server, text};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// Mounts a tmpfs on /sbin, so that the machine's own /sbin is unchanged.
const PREAMBLE: &str =
    "mount -t tmpfs none /sbin && ln -s \"$TRUNKLINE\" /sbin/mount.trunkline && cd / || exit 99\n";

struct Fstab {
    server: Server,
    lines: String,
    file: PathBuf,
    directory: PathBuf,
}

impl Fstab {
    fn new() -> Self {
        let server = Server::start(1);
        let directory = server.mount_point("at");
        let file = server.mount_point("etc").join("fstab");
        Self { server, lines: String::new(), file, directory }
    }

    /// Adds a line and creates its directory.
    fn line(&mut self, export: &str, name: &str, options: &str) {
        let at = self.directory.join(name);
        fs::create_dir(&at).unwrap();
        let options = self.server.options(options);
        self.lines.push_str(&format!("127.0.0.1:{export} {} trunkline {options} 0 0\n", at.display()));
    }

    /// Runs a script among the directories of the lines; returns its output and its errors.
    fn run(&self, script: &str) -> (String, String) {
        fs::write(&self.file, &self.lines).unwrap();
        let mut command = Command::new(testkit::require_program("unshare"));
        command.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-uc"]);
        command.arg(format!("{PREAMBLE}at={}\n{script}", self.directory.display()));
        command.env("TRUNKLINE", env!("CARGO_BIN_EXE_trunkline")).env("LIBMOUNT_FSTAB", &self.file);
        let output = command.output().unwrap();
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{}\n{out}\n{err}", output.status);
        (out, err)
    }
}

#[test]
fn mount_8_mounts_the_lines_of_fstab_once_and_with_their_options() {
    let mut fstab = Fstab::new();
    fstab.line("/export", "one", "ro,nolock,nosuid,nodev,noexec,noatime,_netdev");
    fstab.line("/export", "two", "nolock,nofail,x-systemd.automount,comment=two");
    fstab.line("/export", "three", "noauto,user");
    let (out, err) = fstab.run(
        "mount $at/one; echo one $?
        mount -a; echo all $?
        mount -a; echo again $?
        echo kept > $at/two/f; cat $at/one/f
        sh -c \"echo changed > $at/one/f\" 2>/dev/null || echo read-only
        cp /bin/true $at/two/program; $at/two/program; echo runs $?
        $at/one/program 2>/dev/null; echo runs $?
        grep fuse.trunkline /proc/self/mountinfo | grep \" $at/\"
        umount $at/one; echo umount $?
        umount $at/two; echo umount $?
        grep fuse.trunkline /proc/self/mountinfo | grep -c \" $at/\"
        true",
    );
    assert_eq!(err, "", "{out}");
    let (mounts, said): (Vec<&str>, Vec<&str>) =
        out.lines().partition(|line| line.contains("fuse.trunkline"));
    let wanted = "one 0, all 0, again 0, kept, read-only, runs 0, runs 126, umount 0, umount 0, 0";
    assert_eq!(said.join(", "), wanted);
    assert_eq!(mounts.len(), 2, "{mounts:?}");
    let options = |name: &str| {
        let at = fstab.directory.join(name);
        let fields = mounts.iter().map(|line| line.split(' ').collect::<Vec<_>>());
        let entry = fields.into_iter().find(|fields| fields[4] == at.to_str().unwrap()).unwrap();
        assert!(entry.contains(&"127.0.0.1:/export"), "{entry:?}");
        entry[5].to_owned()
    };
    assert_eq!(options("one"), "ro,nosuid,nodev,noexec,noatime");
    assert_eq!(options("two"), "rw,relatime");
}

#[test]
fn mount_8_reports_what_is_wrong_with_a_line_and_exits_with_its_own_status() {
    let mut fstab = Fstab::new();
    fstab.line("/export", "unknown", "frobnicate");
    fstab.line("/other", "absent", "ro");
    fstab.line("/export", "good", "fsc,nofail");
    let (out, err) = fstab.run(
        "mount $at/unknown 2>&1; echo status $?
        mount $at/absent 2>&1; echo status $?
        mount -f $at/good; echo status $?
        /sbin/mount.trunkline onlyone 2>&1; echo status $?
        mount -a 2>/dev/null; echo status $?
        umount $at/good; echo status $?
        mount $at/good",
    );
    let steps: Vec<&str> = out.split_inclusive("status ").collect();
    let said = |step: usize, word: &str| assert!(steps[step].contains(word), "{word}: {}", steps[step]);
    said(0, "error: bad mount option");
    said(0, "unknown mount option \"frobnicate\"");
    said(1, "there is no such export");
    said(3, "Usage: trunkline mount");
    let statuses: Vec<&str> = out.lines().filter_map(|line| line.strip_prefix("status ")).collect();
    // mount(8): 32 is a mount failure, 1 is an invalid command line, 64 means that some were
    // mounted.
    assert_eq!(statuses, ["32", "32", "0", "1", "64", "0"], "{out}");
    assert!(err.contains("some mount options have no effect here") && err.contains("\"fsc\""), "{err}");
}

#[test]
fn mount_8_and_umount_8_recover_a_directory_whose_process_was_killed() {
    let mut fstab = Fstab::new();
    fstab.line("/export", "one", "nolock");
    let (out, err) = fstab.run(
        "killed() {
            for process in /proc/[0-9]*; do
                grep -qzx TRUNKLINE_MOUNT_ROLE=background $process/environ && kill -9 ${process#/proc/}
            done
            # The kernel answers for the process from its very end on.
            tries=0
            while stat -f $at/one >/dev/null 2>&1; do
                tries=$((tries + 1)); test $tries -lt 600 || exit 99; sleep 0.1
            done
            ls $at/one 2>&1 | grep -c 'not connected'
        } 2>/dev/null
        mount $at/one; echo kept > $at/one/f
        killed
        mount $at/one; echo again $?; cat $at/one/f
        grep -c \" $at/one \" /proc/self/mountinfo
        killed
        umount $at/one; echo umount $?; ls $at/one
        grep -c \" $at/one \" /proc/self/mountinfo
        true",
    );
    let said: Vec<&str> = out.lines().collect();
    assert_eq!(said.join(", "), "1, again 0, kept, 1, 1, umount 0, 0", "{err}");
}
