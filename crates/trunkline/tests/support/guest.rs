//! What tests do in the guests of a lab: run scripts, and run the test program again on the machine
//! with the devices.

use lab::vm::Guest;
use std::path::Path;
use std::process::Command;

/// Runs a shell script in a guest, which must succeed; returns its output.
#[track_caller]
pub fn sh(guest: &Guest, script: &str) -> String {
    let output = match guest.sh(script) {
        Ok(output) => output,
        Err(error) => panic!("{script}\n{error}"),
    };
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{script}\n{}\n{out}\n{err}", output.status);
    out.into_owned()
}

/// Whether this program runs in a guest.
pub fn is_in_guest() -> bool {
    Path::new("/run/enter").exists()
}

/// The command that runs a test of this program, by its full name. The test uses [`is_in_guest`] to
/// know where it runs.
pub fn again(test: &str) -> Command {
    let mut again = Command::new(std::env::current_exe().expect("the program has a path"));
    again.args(["--exact", "--nocapture", test]);
    again
}

/// Runs a test of this program in a guest; the test must pass there too.
#[track_caller]
pub fn passes_in(guest: &Guest, test: &str) {
    let output = guest.output(&again(test)).expect("the guest runs");
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}\n{complained}");
    // Prints the figures for a run with --nocapture.
    print!("{said}");
}
