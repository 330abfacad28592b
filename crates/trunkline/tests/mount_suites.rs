//! The test suites of others on a mount of our own server: pjdfstest (POSIX, operation by operation) and fsx (one file,
//! random operations, every byte checked). They are installed from the registry into the target directory first, so
//! this belongs to the full tier. Needs root and FUSE.

#[path = "mount/rig.rs"]
#[allow(dead_code)]
mod rig;

use rig::{mounted, text};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const PJDFSTEST: &str = "0.2.2";
const FSX: &str = "0.3.2";
/// `TRUNKLINE_FSX_OPERATIONS` asks for more: a million take an hour without optimisation.
const FSX_OPERATIONS: u32 = 100_000;

/// What may fail, with its reason; docs/SEMANTICS.md says the same.
const EXPECTED_FAILURES: &[&str] = &[
    // NFS version 3 tells times in 32 bits of seconds, without a sign.
    "utimensat::y2038",
];

/// Installs a program beside what cargo builds, once.
fn installed(name: &str, version: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("suites");
    let program = root.join("bin").join(name);
    let output = Command::new(env!("CARGO"))
        .args(["install", "--locked", "--debug", name, "--version", version, "--root"])
        .arg(&root)
        .output()
        .unwrap();
    assert!(output.status.success(), "cargo install {name}: {}", text(&output.stderr));
    program
}

#[test]
fn pjdfstest_passes_but_for_what_nfs_version_3_cannot_tell() {
    let program = installed("pjdfstest", PJDFSTEST);
    let (_server, mount) = mounted();
    fs::set_permissions(&mount.directory, fs::Permissions::from_mode(0o755)).unwrap();
    let local = tempfile::tempdir().unwrap();
    // The features left out: posix_fallocate (NFS version 3 has no such call), and those of other systems.
    let config = format!(
        "[features]\nutimensat = {{}}\nutime_now = {{}}\nrename_ctime = {{}}\n[settings]\nnaptime = 0.05\n\
         allow_remount = false\nexpected_failures = {EXPECTED_FAILURES:?}\n\
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

#[test]
fn fsx_finds_every_byte_after_many_operations() {
    let program = installed("fsx", FSX);
    let (_server, mount) = mounted();
    let local = tempfile::tempdir().unwrap();
    let config = local.path().join("fsx.toml");
    let operations = std::env::var("TRUNKLINE_FSX_OPERATIONS").unwrap_or_else(|_| FSX_OPERATIONS.to_string());
    // What NFS version 3 cannot do is left out: holes are not punched and space is not set aside.
    fs::write(&config, "flen = 1048576\n[weights]\npunch_hole = 0.0\nposix_fallocate = 0.0\n").unwrap();
    let output = Command::new(program)
        .args(["-N", &operations, "-f"])
        .arg(&config)
        .arg("-P")
        .arg(local.path())
        .arg(mount.path("fsx"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}
