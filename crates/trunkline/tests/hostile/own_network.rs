//! Runs a test in a network namespace of its own, in a process of its own.

use crate::peer::SOON;
use std::process::Command;
use std::time::Duration;
use testkit::{Process, require_program};

/// Tells the process that the network is its own.
const VARIABLE: &str = "TRUNKLINE_TEST_IN_OWN_NETWORK";
/// The long rounds take minutes; see `long`.
const TIMEOUT: Duration = Duration::from_secs(3600);

/// Runs the test with this name in a process of its own, where it calls `body`.
pub fn run(test: &str, body: impl FnOnce()) {
    if std::env::var_os(VARIABLE).is_some() {
        return body();
    }
    let script = "ip link set lo up && exec \"$@\"";
    let mut command = Command::new(require_program("unshare"));
    command.args(["--net", "--", "sh", "-euc", script, "sh"]);
    command.arg(std::env::current_exe().expect("this program"));
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(VARIABLE, "1");
    let _ = require_program("ip");
    let mut process = Process::spawn(command);
    let status = process.wait(TIMEOUT);
    // Its threads have ended, and so has its output.
    let _ = process.line("the end of the output", |_| false, SOON);
    assert!(status.success(), "{}", process.all_output());
    print!("{}", process.all_output());
}
