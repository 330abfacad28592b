//! The Linux Test Project: its file system tests, and its tests of those system calls that work on
//! files. `runtest/fs` and `runtest/syscalls` of an installed LTP list them; TMPDIR is the mount.

use crate::cases::{Ended, Place, Store, contained, run, suite};
use crate::mounts::Mounted;
use std::fs;
use std::path::Path;
use std::time::Duration;
use testkit::{ExpectedFailure, Outcome, Outcomes};

/// Prefixes of the cases of `runtest/fs` in which processes write, map and read the same files.
const RWTEST: &[&str] = &["rwtest", "iogen"];
/// Prefixes of the cases of `runtest/fs` that read the files of the kernel, mount a file system of
/// their own or change the machine, and so say nothing about the mount.
const NOT_ON_THE_MOUNT: &[&str] =
    &["proc", "read_all", "quota_remount", "isofs", "squashfs", "binfmt_misc", "fs_fill"];
/// The system calls that work on files. A case has the name of its call with a number: `rename03`.
const CALLS: &str = "access chdir chmod chown chroot close close_range copy_file_range creat dup \
    execve execveat faccessat fallocate fchdir fchmod fchmodat fchown fchownat fcntl fdatasync \
    fgetxattr file_attr flistxattr flock fpathconf fremovexattr fsetxattr fstat fstatat fstatfs \
    fsync ftruncate futimesat getcwd getdents getxattr inotify inotify_init io_getevents io_setup \
    io_submit ioctl_ficlone ioctl_ficlonerange ioctl_fiemap lchown lgetxattr link linkat listxattr \
    llistxattr llseek lremovexattr lseek lstat madvise mincore mkdir mkdirat mknod mknodat mmap \
    mremap msync munmap name_to_handle_at nftw open open_by_handle_at openat pathconf \
    posix_fadvise pread preadv pwrite pwritev read readahead readdir readlink readlinkat readv \
    realpath remap_file_pages removexattr rename renameat rmdir sendfile setxattr splice stat \
    statfs statvfs statx symlink symlinkat sync sync_file_range syncfs tee truncate umask unlink \
    unlinkat ustat utime utimensat utimes vmsplice write writev";

const HANDLES: &str = "the mount refuses handles of files, which could not be opened later";
const FALLOCATE: &str = "NFS version 3 has no fallocate";
const EXCHANGE: &str = "NFS version 3 has no RENAME_NOREPLACE and RENAME_EXCHANGE";
const PIPES: &str = "fails on local file systems too, where root lacks CAP_SYS_RESOURCE";
/// Cases of `runtest/syscalls` that may fail, each with the reason; docs/TESTING.md lists the same.
const SYSCALLS_EXPECTED_FAILURES: &[ExpectedFailure] = &[
    ("fallocate03", FALLOCATE),
    ("mremap06", FALLOCATE),
    ("fcntl35", PIPES),
    ("fcntl35_64", PIPES),
    ("name_to_handle_at01", HANDLES),
    ("name_to_handle_at02", HANDLES),
    ("open_by_handle_at01", HANDLES),
    ("open_by_handle_at02", HANDLES),
    ("renameat201", EXCHANGE),
    ("renameat202", EXCHANGE),
    ("statx07", "fails on local file systems too, with kernels without an NFS client"),
];
/// The cases that must run.
const RWTEST_RAN_MIN: usize = 6;
const FS_RAN_MIN: usize = 45;
const SYSCALLS_RAN_MIN: usize = 420;

/// The longest duration of a case. The longest that LTP plans is 150 seconds.
const CASE_TIMEOUT: Duration = Duration::from_secs(900);
/// What LTP multiplies its own time limits with, which are for idle machines.
const TIMEOUT_FACTOR: &str = "4";

/// The bits of an LTP program's exit status. A status without them is one of a shell.
const FAILED: i32 = 1;
const BROKEN: i32 = 2;
const WARNED: i32 = 4;
const SKIPPED: i32 = 32;
const KNOWN: i32 = FAILED | BROKEN | WARNED | SKIPPED;
/// The status of a shell that has not found the program.
const NOT_FOUND: i32 = 127;
/// What programs without an exit status of this kind (rwtest) print when they fail.
const FAIL: &str = "FAIL";

#[test]
fn ltp_rwtest_passes() {
    let chosen = |name: &str| RWTEST.iter().any(|prefix| name.starts_with(prefix));
    on(Store::Mem, "fs", chosen, &[], RWTEST_RAN_MIN);
}

#[test]
fn ltp_fs_passes() {
    let left_out = [RWTEST, NOT_ON_THE_MOUNT].concat();
    let chosen = |name: &str| !left_out.iter().any(|prefix| name.starts_with(prefix));
    on(Store::Mem, "fs", chosen, &[], FS_RAN_MIN);
}

#[test]
fn ltp_syscalls_pass_on_memory() {
    on(Store::Mem, "syscalls", works_on_files, SYSCALLS_EXPECTED_FAILURES, SYSCALLS_RAN_MIN);
}

#[test]
fn ltp_syscalls_pass_on_a_directory() {
    on(Store::Dir, "syscalls", works_on_files, SYSCALLS_EXPECTED_FAILURES, SYSCALLS_RAN_MIN);
}

fn works_on_files(case: &str) -> bool {
    let call = case.split(|letter: char| letter.is_ascii_digit()).next();
    CALLS.split_whitespace().any(|known| Some(known) == call)
}

/// Runs the chosen cases of a list.
fn on(store: Store, list: &str, chosen: impl Fn(&str) -> bool, expected: &[ExpectedFailure], ran_min: usize) {
    let root = suite();
    let place = Place::on(store);
    let list = fs::read_to_string(root.join("runtest").join(list)).expect("LTP has its lists");
    let lines = list.lines().filter(|line| !line.starts_with('#'));
    let cases = lines.filter_map(|line| line.trim().split_once(char::is_whitespace));
    let mut outcomes = Outcomes::of("ltp");
    for (name, command) in cases.filter(|(name, _)| chosen(name)) {
        outcomes.record(name, outcome(&run_case(&root, &place.mount, command)));
    }
    outcomes.conclude(expected, ran_min);
}

fn run_case(root: &Path, mount: &Mounted, case: &str) -> Ended {
    // Without loop devices. A case that makes one tests the file system on it and not the mount.
    let script = format!("mount --bind /dev/null /dev/loop-control 2>/dev/null\n{case}");
    let mut command = contained(&script);
    let programs = root.join("testcases/bin");
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap_or_default());
    command
        .env("LTPROOT", root)
        .env("LTP_COLORIZE_OUTPUT", "n")
        .env("LTP_TIMEOUT_MUL", TIMEOUT_FACTOR)
        .env("TMPDIR", &mount.directory)
        .env("TMP", &mount.directory)
        .env("PATH", path)
        .current_dir(&mount.directory);
    run(command, CASE_TIMEOUT)
}

/// The outcome of a case by the exit status and the output of its program.
fn outcome(ended: &Ended) -> Outcome {
    let Some(status) = ended.status else { return Outcome::Hung(CASE_TIMEOUT, ended.tail()) };
    let line = |with: &str| ended.output.lines().find(|line| line.contains(with)).map(str::to_owned);
    match status.code() {
        Some(0) if line(FAIL).is_none() => Outcome::Passed,
        Some(NOT_FOUND) => Outcome::Skipped("is not installed".to_owned()),
        Some(BROKEN) if line("Failed to acquire device").is_some() => {
            Outcome::Skipped("needs a block device".to_owned())
        }
        Some(code) if code & KNOWN == SKIPPED => {
            Outcome::Skipped(line("TCONF").unwrap_or_else(|| "for no stated reason".to_owned()))
        }
        _ => Outcome::Failed(ended.tail()),
    }
}
