//! What tests do in the guests of a lab: run scripts, and run themselves again where the devices
//! are.

use lab::vm::Guest;
use std::path::Path;
use std::process::Command;

/// Runs a shell script in a guest; it must succeed. Gives its output.
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

/// What runs a test of this program, by its whole name. The test asks [`is_in_guest`] which end it
/// is.
pub fn again(test: &str) -> Command {
    let mut again = Command::new(std::env::current_exe().expect("it has a path"));
    again.args(["--exact", "--nocapture", test]);
    again
}

/// Runs a test of this program in a guest; it must pass there, too.
#[track_caller]
pub fn passes_in(guest: &Guest, test: &str) {
    let output = guest.output(&again(test)).expect("the guest is there");
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}\n{complained}");
    // For whoever asks for it: the figures.
    print!("{said}");
}
