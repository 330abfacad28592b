//! Programs from the system's packages that a suite runs.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Where root's programs live; often missing from a user's PATH.
const ROOT_PLACES: [&str; 2] = ["/usr/sbin", "/sbin"];

/// The Debian package of each program that our suites use.
const PACKAGES: &[(&str, &str)] = &[
    ("busybox", "busybox-static"),
    ("cc", "gcc"),
    ("depmod", "kmod"),
    ("exportfs", "nfs-kernel-server"),
    ("fio", "fio"),
    ("gcc", "gcc"),
    ("ganesha.nfsd", "nfs-ganesha"),
    ("ip", "iproute2"),
    ("nfs-cat", "libnfs-utils"),
    ("nfs-cp", "libnfs-utils"),
    ("nfs-ls", "libnfs-utils"),
    ("mount.nfs", "nfs-common"),
    ("nft", "nftables"),
    ("ping", "iputils-ping"),
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("rpc.nfsd", "nfs-kernel-server"),
    ("rpcbind", "rpcbind"),
    ("rpcinfo", "rpcbind"),
    ("setpriv", "util-linux"),
    ("strace", "strace"),
    ("tc", "iproute2"),
    ("tcpdump", "tcpdump"),
    ("tshark", "tshark"),
    ("unshare", "util-linux"),
];

/// Where a program is, if it is installed.
#[must_use]
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(ROOT_PLACES.iter().map(PathBuf::from))
        .map(|place| place.join(name))
        .find(|file| file.is_file())
}

/// Where a program is.
///
/// # Panics
/// When it is not installed; the message says which package has it. A suite that lacks its programs
/// must fail, never pass without having run.
#[must_use]
#[track_caller]
pub fn require_program(name: &str) -> PathBuf {
    find_program(name).unwrap_or_else(|| {
        let package = PACKAGES.iter().find(|known| known.0 == name).map_or(name, |known| known.1);
        panic!("{name} is not installed; try: apt-get install {package}")
    })
}

/// Copies a program to where it is to be run from, its mode but for set-user-id with it.
///
/// It is another process that writes the copy. Had this one a descriptor to write it, a child that
/// another thread starts right then would have it too until it runs its own program, and nobody can
/// run a file that somebody may write to (ETXTBSY).
///
/// # Panics
/// When it cannot be copied.
pub fn copy_program(from: &Path, to: &Path) {
    let done = Command::new("cp").arg(from).arg(to).status();
    assert!(done.is_ok_and(|status| status.success()), "cannot copy {} to {}", from.display(), to.display());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_of_every_system_is_found() {
        assert!(require_program("sh").is_absolute());
    }

    #[test]
    #[should_panic(expected = "apt-get install no-such-program")]
    fn a_missing_program_names_its_package() {
        let _ = require_program("no-such-program");
    }
}
