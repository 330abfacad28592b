//! Programs of the system that a lab of virtual machines needs, and the packages that have them.

use super::Error;
use std::path::{Path, PathBuf};

/// Where programs live, whatever PATH says.
const PLACES: [&str; 5] = ["/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"];

/// Where a program is.
pub(super) fn find(program: &'static str, package: &'static str) -> Result<PathBuf, Error> {
    let mut places = PLACES.iter().map(|place| Path::new(place).join(program));
    places.find(|file| file.is_file()).ok_or(Error::Missing { program, package })
}

/// busybox as it runs without any library: the first program of a guest has none.
pub(super) fn busybox() -> Result<Vec<u8>, Error> {
    let missing = Error::Missing { program: "a static busybox", package: "busybox-static" };
    let Ok(path) = find("busybox", "busybox-static") else { return Err(missing) };
    let bytes = std::fs::read(&path).map_err(Error::io(format!("read {}", path.display())))?;
    // The name of the dynamic linker stands in every program that needs one.
    let linked = bytes.windows(10).any(|window| window == b"/ld-linux-" || window == b"/ld-musl-x");
    if linked { Err(missing) } else { Ok(bytes) }
}

/// Complains about all that is missing before anything is fetched or started.
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
