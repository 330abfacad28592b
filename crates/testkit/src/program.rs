//! System programs that a suite runs.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Where root's programs are; often missing in a user's PATH.
const ROOT_PLACES: [&str; 2] = ["/usr/sbin", "/sbin"];

/// The Debian package of each program that the suites use.
const PACKAGES: &[(&str, &str)] = &[
    ("busybox", "busybox-static"),
    ("cc", "gcc"),
    ("chromium", "chromium"),
    ("corosync", "corosync"),
    ("debootstrap", "debootstrap"),
    ("debugfs", "e2fsprogs"),
    ("debugfs.ocfs2", "ocfs2-tools"),
    ("depmod", "kmod"),
    ("dlm_controld", "dlm-controld"),
    ("e2fsck", "e2fsprogs"),
    ("exportfs", "nfs-kernel-server"),
    ("filefrag", "e2fsprogs"),
    ("fio", "fio"),
    ("flock", "util-linux"),
    ("fsck.gfs2", "gfs2-utils"),
    ("fsck.ocfs2", "ocfs2-tools"),
    ("gcc", "gcc"),
    ("ganesha.nfsd", "nfs-ganesha"),
    ("ibv_devinfo", "ibverbs-utils"),
    ("ip", "iproute2"),
    ("nfs-cat", "libnfs-utils"),
    ("nfs-cp", "libnfs-utils"),
    ("nfs-ls", "libnfs-utils"),
    ("mke2fs", "e2fsprogs"),
    ("mkfs.gfs2", "gfs2-utils"),
    ("mkfs.ocfs2", "ocfs2-tools"),
    ("mount.nfs", "nfs-common"),
    ("mpirun", "openmpi-bin"),
    ("nbdcopy", "libnbd-bin"),
    ("nft", "nftables"),
    ("nsenter", "util-linux"),
    ("nvme", "nvme-cli"),
    ("o2cb", "ocfs2-tools"),
    ("perl", "perl-base"),
    ("ping", "iputils-ping"),
    ("promtool", "prometheus"),
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("rpc.nfsd", "nfs-kernel-server"),
    ("rpc.statd", "nfs-common"),
    ("rpcbind", "rpcbind"),
    ("rpcinfo", "rpcbind"),
    ("setpriv", "util-linux"),
    ("strace", "strace"),
    ("tc", "iproute2"),
    ("tcpdump", "tcpdump"),
    ("tshark", "tshark"),
    ("unshare", "util-linux"),
];

/// The path of a program, if it is installed.
#[must_use]
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(ROOT_PLACES.iter().map(PathBuf::from))
        .map(|directory| directory.join(name))
        .find(|file| file.is_file())
}

/// The path of a program.
///
/// # Panics
/// If the program is not installed; the message names its package. A suite that lacks a program
/// must fail, never pass without having run.
#[must_use]
#[track_caller]
pub fn require_program(name: &str) -> PathBuf {
    find_program(name).unwrap_or_else(|| {
        let package = PACKAGES.iter().find(|known| known.0 == name).map_or(name, |known| known.1);
        panic!("{name} is not installed; try: apt-get install {package}")
    })
}

/// Copies a program to where it is to be run, with its mode except set-user-ID.
///
/// Another process writes the copy. If this process had a descriptor for writing, a child started
/// by another thread at that moment would inherit the descriptor until it executes its own program,
/// and a file that is open for writing cannot be executed (ETXTBSY).
///
/// # Panics
/// If the program cannot be copied.
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
