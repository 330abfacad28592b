//! Runs one test of this program again, in a child with another user or with mounts of its own.

use std::os::unix::process::CommandExt;
use std::process::Command;

const AGAIN: &str = "TRUNKLINE_TEST_AGAIN";
/// A user that owns nothing here.
const SOMEBODY: u32 = 61_234;

fn is_again() -> bool {
    std::env::var_os(AGAIN).is_some()
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn run(mut command: Command, test: &str, why: &str) {
    let command = command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(AGAIN, "1");
    match command.env("TMPDIR", std::env::temp_dir()).output() {
        Ok(output) => {
            let said = [output.stdout, output.stderr].concat();
            let said = String::from_utf8_lossy(&said);
            assert!(output.status.success() && said.contains("1 passed"), "{why}: {said}");
        }
        Err(error) => eprintln!("skipped: {test}, {why}: {error}"),
    }
}

/// Runs a test as the user that runs the tests, and where that is root as an ordinary one too.
pub fn as_root_and_not(test: &str, body: impl FnOnce()) {
    body();
    if is_root() && !is_again() {
        let mut command = Command::new(std::env::current_exe().unwrap());
        // The standard library drops the groups, too.
        command.uid(SOMEBODY).gid(SOMEBODY);
        run(command, test, "as an ordinary user");
    }
}

/// Runs a test as root only.
pub fn as_root(test: &str, body: impl FnOnce()) {
    if is_root() { body() } else { eprintln!("skipped: {test} needs root") }
}

/// Runs a test in a mount namespace of its own, as root.
pub fn with_own_mounts(test: &str, body: impl FnOnce()) {
    if is_again() {
        body();
    } else if is_root() {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation=private", "--"]).arg(std::env::current_exe().unwrap());
        run(command, test, "with mounts of its own");
    } else {
        eprintln!("skipped: {test} needs root, to mount a file system");
    }
}
