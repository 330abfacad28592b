//! The system programs that a lab of virtual machines needs, and their packages.

use super::Error;
use std::path::{Path, PathBuf};

/// Where programs are, whatever PATH says.
const SEARCH_PATH: [&str; 5] = ["/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"];

/// The path of a program.
pub(super) fn find(program: &'static str, package: &'static str) -> Result<PathBuf, Error> {
    let mut candidates = SEARCH_PATH.iter().map(|directory| Path::new(directory).join(program));
    candidates.find(|file| file.is_file()).ok_or(Error::Missing { program, package })
}

/// A statically linked busybox, because a guest has no libraries at first.
pub(super) fn busybox() -> Result<Vec<u8>, Error> {
    let missing = Error::Missing { program: "a static busybox", package: "busybox-static" };
    let Ok(path) = find("busybox", "busybox-static") else { return Err(missing) };
    let bytes = std::fs::read(&path).map_err(Error::io(format!("read {}", path.display())))?;
    // Every dynamically linked program contains the name of the dynamic linker.
    let linked = bytes.windows(10).any(|window| window == b"/ld-linux-" || window == b"/ld-musl-x");
    if linked { Err(missing) } else { Ok(bytes) }
}

/// Checks for all programs before anything is fetched or started.
pub(super) fn require_all() -> Result<(), Error> {
    if std::env::consts::ARCH != "x86_64" {
        return Err(Error::Unsupported(format!(
            "guests share this machine's programs, and only x86_64 is built here, not {}",
            std::env::consts::ARCH
        )));
    }
    let programs = [
        ("qemu-system-x86_64", "qemu-system-x86"),
        ("busybox", "busybox-static"),
        ("modprobe", "kmod"),
        ("ip", "iproute2"),
        ("setpriv", "util-linux"),
    ];
    programs.into_iter().try_for_each(|(program, package)| find(program, package).map(|_| ()))
}
