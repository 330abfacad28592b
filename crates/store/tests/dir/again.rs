//! Runs one test of this program again, in a child process with another user or with its own
//! mounts.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

const AGAIN: &str = "TRUNKLINE_TEST_AGAIN";
/// A user that owns no file here.
const SOMEBODY: u32 = 61_234;

fn is_again() -> bool {
    std::env::var_os(AGAIN).is_some()
}

fn need_root() {
    assert!(
        rustix::process::geteuid().is_root(),
        "these tests need root; `cargo test --test dir` has those that do not"
    );
}

fn run(command: &mut Command, test: &str, why: &str) {
    let command = command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(AGAIN, "1");
    let output = command.output().unwrap_or_else(|error| panic!("{test} {why}: {error}"));
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success() && said.contains("1 passed"), "{why}: {said}");
}

/// Runs a test as root, and as an ordinary user.
pub fn as_root_and_not(test: &str, body: impl FnOnce()) {
    if !is_again() {
        need_root();
        // Other users may not have access to the directory of the program.
        let place = tempfile::tempdir().unwrap();
        std::fs::set_permissions(place.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let program = place.path().join("program");
        testkit::copy_program(&std::env::current_exe().unwrap(), &program);
        // The standard library drops the supplementary groups too.
        run(Command::new(program).uid(SOMEBODY).gid(SOMEBODY), test, "as an ordinary user");
    }
    body();
}

/// Runs a test as root only.
pub fn as_root(body: impl FnOnce()) {
    need_root();
    body();
}

/// Runs a test in its own mount namespace, as root.
pub fn with_own_mounts(test: &str, body: impl FnOnce()) {
    if is_again() {
        return body();
    }
    need_root();
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation=private", "--"]).arg(std::env::current_exe().unwrap());
    run(&mut command, test, "with its own mounts");
}
