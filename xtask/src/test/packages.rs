//! Debian packages: finds which are missing, and installs them.

use super::machine;
use std::collections::BTreeSet;
use std::process::{Command, Stdio};

/// The packages that are not installed, each once. Without dpkg no package counts as missing; the
/// suites themselves then report which program they lack.
pub(super) fn missing(packages: impl Iterator<Item = &'static str>) -> Vec<&'static str> {
    let wanted: BTreeSet<_> = packages.collect();
    wanted.into_iter().filter(|package| is_installed(package) == Some(false)).collect()
}

/// The command that installs the packages.
pub(super) fn command(packages: &[&str]) -> String {
    let sudo = if machine::is_root() { "" } else { "sudo " };
    format!("{sudo}apt-get install {}", packages.join(" "))
}

/// Installs the packages. Those that could not be installed are then reported as missing.
pub(super) fn install(packages: &[&str]) {
    if !machine::is_root() {
        println!("installing needs root; run: {}", command(packages));
        return;
    }
    // An outdated list names versions that the mirrors no longer have.
    apt(&["update"]);
    apt(&[&["install", "--yes", "--no-install-recommends"], packages].concat());
    provide_mtab();
}

/// Creates the table of mounts as Debian does. An unpacked system without this table gives
/// nfs-ganesha no file system to export.
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
    // Progress messages are discarded; errors go to standard error.
    match apt.stdin(Stdio::null()).stdout(Stdio::null()).status() {
        Ok(status) if status.success() => {}
        Ok(status) => println!("apt-get {} failed: {status}", arguments.join(" ")),
        Err(error) => println!("cannot run apt-get: {error}"),
    }
}

/// Whether a package is installed; unknown without dpkg.
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
