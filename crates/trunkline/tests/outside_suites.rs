//! Runs published test suites, built by the tester, on mounts of our server: the rwtest group of
//! LTP, and the cases of xfstests in which many processes write, map and list the same files.
//! `cargo xtask test ltp xfstests --suite-dir DIR` runs them and sets `TRUNKLINE_SUITE_DIR` to
//! their directory. Needs root and FUSE.

#[path = "mount/fixture.rs"]
#[allow(dead_code)]
mod fixture;
#[path = "mount/mounts.rs"]
#[allow(dead_code)]
mod mounts;

use fixture::Server;
use mounts::text;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Prefixes of the cases that run from LTP's list `runtest/fs`.
const LTP_CASES: [&str; 2] = ["rwtest", "iogen"];
/// What LTP adds to the output of rwtest: a line with this word for each failed case.
const LTP_FAILED: &str = "FAIL";

/// Cases of xfstests: the range of "generic" from the first to the last of these numbers, and
/// others.
const XFSTESTS_FIRST: u16 = 74;
const XFSTESTS_LAST: u16 = 133;
const XFSTESTS_OTHERS: [u16; 2] = [451, 736];
/// Cases that must have run, so that a suite that skips all its cases does not pass.
const XFSTESTS_REQUIRED: [u16; 6] = [74, 75, 112, 127, 451, 736];
/// Cases that may fail, each with the reason.
const XFSTESTS_EXPECTED_FAILURES: &[(&str, &str)] =
    &[("generic/120", "noatime holds in the client; the server counts what it is read for as an access")];

/// The directory of the suite.
fn suite() -> PathBuf {
    let named = std::env::var_os("TRUNKLINE_SUITE_DIR");
    named.expect("TRUNKLINE_SUITE_DIR names the suite's directory; cargo xtask test --suite-dir DIR").into()
}

#[test]
fn ltp_rwtest_finds_every_byte_that_its_processes_wrote() {
    let root = suite();
    let server = Server::start(2);
    let mount = server.mount("mnt", "nolock");
    let list = fs::read_to_string(root.join("runtest/fs")).expect("LTP has runtest/fs");
    let cases = list.lines().filter_map(|line| line.split_once(char::is_whitespace));
    let cases: Vec<_> =
        cases.filter(|(name, _)| LTP_CASES.iter().any(|wanted| name.starts_with(wanted))).collect();
    assert!(cases.iter().any(|(name, _)| *name == "iogen01"), "{cases:?}");
    let mut failed = Vec::new();
    for (name, command) in cases {
        let programs = root.join("testcases/bin");
        let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap_or_default());
        let output = Command::new("sh")
            .args(["-c", command])
            .env("LTPROOT", &root)
            .env("TMPDIR", &mount.directory)
            .env("TMP", &mount.directory)
            .env("PATH", path)
            .current_dir(&mount.directory)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
        let passed = output.status.success() && !said.contains(LTP_FAILED);
        println!("{name} {}", if passed { "passed" } else { "FAILED" });
        if !passed {
            failed.push(format!("{name}: {}\n{said}", output.status));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn xfstests_pass_where_they_can_run() {
    let root = suite();
    let server = Server::start_with(2, testkit::free_port(), &["/test", "/scratch"]);
    let work = server.mount_point("xfstests");
    prepare(&work, &server);
    let mut cases: Vec<u16> = (XFSTESTS_FIRST..=XFSTESTS_LAST).collect();
    cases.extend(XFSTESTS_OTHERS);
    let names = cases.iter().map(|case| format!("generic/{case:03}")).collect::<Vec<_>>();
    let mut command = Command::new(testkit::require_program("unshare"));
    command.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-euc", SCRIPT, "sh"]);
    command.args(&names).current_dir(&root).env("WORK", &work).stdin(Stdio::null());
    let output = command.output().unwrap();
    let said = text(&output.stdout);
    println!("{said}");
    let complaint = || format!("{}\n{}{}", output.status, said, text(&output.stderr));
    let list = |head: &str| {
        let line = said.lines().find_map(|line| line.strip_prefix(head)).unwrap_or_default();
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let (ran, not_run, failures) = (list("Ran:"), list("Not run:"), list("Failures:"));
    for case in XFSTESTS_REQUIRED {
        let name = format!("generic/{case:03}");
        assert!(ran.contains(&name) && !not_run.contains(&name), "{name} did not run\n{}", complaint());
    }
    let expected = |name: &String| XFSTESTS_EXPECTED_FAILURES.iter().any(|(known, _)| known == name);
    let unexpected: Vec<_> = failures.iter().filter(|name| !expected(name)).collect();
    assert!(unexpected.is_empty(), "{unexpected:?}\n{}\n{}", details(&work, &unexpected), complaint());
}

/// The script that runs in the namespaces: the programs of [`prepare`] are added to the machine's
/// programs only there.
const SCRIPT: &str = "mount -t overlay -o lowerdir=\"$WORK/sbin:/usr/sbin\" overlay /usr/sbin\n\
    export HOST_OPTIONS=\"$WORK/local.config\" PATH=\"/usr/sbin:$PATH\"\n\
    ./check \"$@\" || true";

/// Writes the configuration of xfstests, and the programs with which it mounts and lists file
/// systems.
fn prepare(work: &Path, server: &Server) {
    let made = ["sbin", "test", "scratch"].map(|name| work.join(name));
    made.iter().for_each(|directory| fs::create_dir(directory).unwrap());
    let [sbin, test, scratch] = made;
    symlink(env!("CARGO_BIN_EXE_trunkline"), sbin.join("mount.fuse.trunkline")).unwrap();
    // xfstests knows FUSE, but not the subtypes of FUSE file systems.
    let df = sbin.join("df");
    fs::write(&df, "#!/bin/sh\n/usr/bin/df \"$@\" | sed 's/fuse\\.trunkline/fuse/'\n").unwrap();
    fs::set_permissions(&df, fs::Permissions::from_mode(0o755)).unwrap();
    let options = server.options("nolock");
    let config = [
        ("FSTYP", "fuse".to_owned()),
        ("FUSE_SUBTYP", ".trunkline".to_owned()),
        ("TEST_DEV", "127.0.0.1:/test".to_owned()),
        ("TEST_DIR", test.display().to_string()),
        ("SCRATCH_DEV", "127.0.0.1:/scratch".to_owned()),
        ("SCRATCH_MNT", scratch.display().to_string()),
        ("MOUNT_OPTIONS", format!("-o {options}")),
        ("TEST_FS_MOUNT_OPTS", format!("-o {options}")),
        ("RESULT_BASE", work.join("results").display().to_string()),
    ];
    let lines: Vec<_> = config.iter().map(|(name, value)| format!("export {name}=\"{value}\"\n")).collect();
    fs::write(work.join("local.config"), lines.concat()).unwrap();
}

/// The output of the failed cases.
fn details(work: &Path, failed: &[&String]) -> String {
    let read = |name: &&String| {
        let file = work.join("results").join(format!("{name}.out.bad"));
        format!("{name}:\n{}", fs::read_to_string(file).unwrap_or_default())
    };
    failed.iter().map(read).collect::<Vec<_>>().join("\n")
}
