//! Debian packages: which are missing, and installing them.

use super::machine;
use std::collections::BTreeSet;
use std::process::{Command, Stdio};

/// Those of the packages that are not installed, each once. Where there is no dpkg none counts as
/// missing: the suites then say themselves which program they lack.
pub(super) fn missing(packages: impl Iterator<Item = &'static str>) -> Vec<&'static str> {
    let wanted: BTreeSet<_> = packages.collect();
    wanted.into_iter().filter(|package| is_installed(package) == Some(false)).collect()
}

/// What a person types to install them.
pub(super) fn command(packages: &[&str]) -> String {
    let sudo = if machine::is_root() { "" } else { "sudo " };
    format!("{sudo}apt-get install {}", packages.join(" "))
}

/// Installs them; what could not be installed shows afterwards as missing.
pub(super) fn install(packages: &[&str]) {
    if !machine::is_root() {
        println!("installing needs root; run: {}", command(packages));
        return;
    }
    // An old list names versions that the mirrors no longer have.
    apt(&["update"]);
    apt(&[&["install", "--yes", "--no-install-recommends"], packages].concat());
    provide_mtab();
}

/// The table of mounts, where Debian has it. A system that was only unpacked has none, and then
/// nfs-ganesha finds no file system to export.
fn provide_mtab() {
    let (table, target) = ("/etc/mtab", "../proc/self/mounts");
    if std::fs::symlink_metadata(table).is_err() {
        println!("ln -s {target} {table}");
        if let Err(error) = std::os::unix::fs::symlink(target, table) {
            println!("cannot make {table}: {error}");
        }
    }
}

fn apt(arguments: &[&str]) {
    println!("apt-get {}", arguments.join(" "));
    let mut apt = Command::new("apt-get");
    apt.arg("--quiet=2").args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
    // The packages' own chatter says nothing; complaints go to the error stream.
    match apt.stdin(Stdio::null()).stdout(Stdio::null()).status() {
        Ok(status) if status.success() => {}
        Ok(status) => println!("apt-get {} failed: {status}", arguments.join(" ")),
        Err(error) => println!("cannot run apt-get: {error}"),
    }
}

/// Unknown where there is no dpkg.
fn is_installed(package: &str) -> Option<bool> {
    let mut query = Command::new("dpkg-query");
    let output =
        query.args(["--show", "--showformat=${Status}", package]).stderr(Stdio::null()).output().ok()?;
    Some(output.stdout == b"install ok installed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_names_every_package() {
        assert!(command(&["one", "other"]).ends_with("apt-get install one other"));
    }
}
