//! Runs system programs, and passes their error messages on unchanged.

use super::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where root's programs are, whatever PATH says.
const SEARCH_PATH: [&str; 4] = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"];

/// Runs `ip`.
pub(super) fn ip(arguments: &[&str]) -> Result<String, Error> {
    program("ip", arguments)
}

/// Runs `tc`.
pub(super) fn tc(arguments: &[&str]) -> Result<String, Error> {
    program("tc", arguments)
}

/// The command `ip netns exec NAMESPACE`, to which a program and its arguments are added.
pub(super) fn in_namespace(namespace: &str) -> Result<Command, Error> {
    let mut command = Command::new(find("ip")?);
    command.args(["netns", "exec", namespace]);
    Ok(command)
}

/// Checks for root, because the programs' own error messages do not mention it.
pub(super) fn require_root() -> Result<(), Error> {
    if rustix::process::geteuid().is_root() { Ok(()) } else { Err(Error::NotRoot) }
}

/// Checks for the programs before anything is created.
pub(super) fn require_programs() -> Result<(), Error> {
    find("ip").and(find("tc")).map(|_| ())
}

fn find(program: &'static str) -> Result<PathBuf, Error> {
    SEARCH_PATH
        .iter()
        .map(|directory| Path::new(directory).join(program))
        .find(|file| file.exists())
        .ok_or(Error::Missing { program, package: "iproute2" })
}

fn program(name: &'static str, arguments: &[&str]) -> Result<String, Error> {
    let line = || format!("{name} {}", arguments.join(" "));
    let ran = Command::new(find(name)?).args(arguments).stdin(Stdio::null()).output();
    let output = ran.map_err(Error::io(format!("run `{}`", line())))?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
        return Err(Error::Refused { command: line(), message });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
