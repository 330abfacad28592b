//! Runs test suites of other projects on mounts of our own server and of nfs-ganesha: pjdfstest
//! (POSIX, operation by operation) and fsx (random operations on one file, with every byte
//! checked); and the programs of the suite `mount` on nfs-ganesha. The suites are first installed
//! from the registry into the target directory, so these tests belong to the full tier. Needs root
//! and FUSE.

#[path = "peers/fixture.rs"]
mod fixture;
#[path = "peers/fixtures.rs"]
#[allow(dead_code)]
mod fixtures;
#[path = "peers/ganesha.rs"]
#[allow(dead_code)]
mod ganesha;
#[path = "peers/libnfs.rs"]
#[allow(dead_code)]
mod libnfs;
#[path = "mount/mounts.rs"]
#[allow(dead_code)]
mod mounts;
#[path = "mount/fixture.rs"]
#[allow(dead_code)]
mod own;
#[path = "mount/programs.rs"]
mod programs;

use mounts::{Mounted, text};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const PJDFSTEST: &str = "0.2.2";
const FSX: &str = "0.3.2";
/// `TRUNKLINE_FSX_OPERATIONS` sets another number.
const FSX_OPERATIONS: u32 = 1_000_000;
/// The operations of one process. A process keeps each mapping that it has read through, so each
/// truncation is slower than the last.
const FSX_OPERATIONS_AT_ONCE: u32 = 25_000;
/// The number of files in the archive, as many as a source tree has.
const ARCHIVE_FILES: u32 = 50_000;

/// Tests that fail by NFS version 3, with the reasons; docs/SEMANTICS.md says the same.
const EXPECTED_FAILURES_OF_VERSION_3: &[&str] = &[
    // It stores times in 32 bits of seconds, unsigned.
    "utimensat::y2038",
];

/// Tests that fail on nfs-ganesha.
const EXPECTED_FAILURES_OF_GANESHA: &[&str] = &[
    // Its VFS backend answers that the times of a symbolic link were set, but leaves them
    // unchanged.
    "utimensat::follow_symlink",
];

/// Installs a program in the target directory, once.
fn installed(name: &str, version: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("suites");
    let program = root.join("bin").join(name);
    let output = Command::new(env!("CARGO"))
        .args(["install", "--locked", name, "--version", version, "--root"])
        .arg(&root)
        .output()
        .unwrap();
    assert!(output.status.success(), "cargo install {name}: {}", text(&output.stderr));
    program
}

#[test]
fn pjdfstest_passes_except_for_limits_of_nfs_version_3() {
    let (_server, mount) = own::mounted();
    pjdfstest(&mount, &[]);
}

#[test]
fn pjdfstest_passes_on_nfs_ganesha_except_for_known_failures() {
    let (_server, mount) = fixture::mounted();
    pjdfstest(&mount, EXPECTED_FAILURES_OF_GANESHA);
}

#[test]
fn fsx_finds_every_byte_after_many_operations() {
    let (_server, mount) = own::mounted();
    fsx(&mount);
}

#[test]
fn fsx_finds_every_byte_after_many_operations_on_nfs_ganesha() {
    let (_server, mount) = fixture::mounted();
    fsx(&mount);
}

#[test]
fn tar_unpacks_fifty_thousand_files_unchanged() {
    let (_server, mount) = own::mounted();
    programs::tar_unpacks(&mount, ARCHIVE_FILES);
}

#[test]
fn tar_unpacks_fifty_thousand_files_unchanged_on_nfs_ganesha() {
    let (_server, mount) = fixture::mounted();
    programs::tar_unpacks(&mount, ARCHIVE_FILES);
}

/// Runs all of pjdfstest.
fn pjdfstest(mount: &Mounted, of_the_server: &[&str]) {
    let of_the_version = if mounts::is_version_3() { EXPECTED_FAILURES_OF_VERSION_3 } else { &[] };
    let expected_failures = [of_the_version, of_the_server].concat();
    let program = installed("pjdfstest", PJDFSTEST);
    fs::set_permissions(&mount.directory, fs::Permissions::from_mode(0o755)).unwrap();
    let local = tempfile::tempdir().unwrap();
    // The features left out are posix_fallocate, which NFS version 3 lacks, and those of other
    // systems.
    let config = format!(
        "[features]\nutimensat = {{}}\nutime_now = {{}}\nrename_ctime = {{}}\n[settings]\nnaptime = 0.05\n\
         allow_remount = false\nexpected_failures = {expected_failures:?}\n\
         [dummy_auth]\nentries = [[\"nobody\", \"nogroup\"], [\"daemon\", \"daemon\"]]\n"
    );
    let file = local.path().join("pjdfstest.toml");
    fs::write(&file, config).unwrap();
    let output = Command::new(program).arg("-c").arg(file).arg("-p").arg(&mount.directory).output().unwrap();
    let said = text(&output.stdout);
    let failed: Vec<&str> = said.lines().filter(|line| line.ends_with("FAILED")).collect();
    let summary = said.lines().find(|line| line.starts_with("Summary:")).unwrap_or_default();
    println!("{summary}");
    assert!(output.status.success() && failed.is_empty(), "{summary}\n{}", failed.join("\n"));
}

/// Runs the random operations of fsx, each process on its own file.
fn fsx(mount: &Mounted) {
    let program = installed("fsx", FSX);
    let local = tempfile::tempdir().unwrap();
    let config = local.path().join("fsx.toml");
    let asked = std::env::var("TRUNKLINE_FSX_OPERATIONS").ok();
    let mut left = asked.map_or(FSX_OPERATIONS, |asked| asked.parse().expect("a number of operations"));
    // Operations that NFS version 3 lacks are left out: punching holes and allocating space.
    fs::write(&config, "flen = 1048576\n[weights]\npunch_hole = 0.0\nposix_fallocate = 0.0\n").unwrap();
    while left > 0 {
        let operations = left.min(FSX_OPERATIONS_AT_ONCE);
        let output = Command::new(&program)
            .args(["-N", &operations.to_string(), "-f"])
            .arg(&config)
            .arg("-P")
            .arg(local.path())
            .arg(mount.path(&format!("fsx-{left}")))
            .output()
            .unwrap();
        assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
        left -= operations;
    }
}
