//! Advice for a directory that cannot be mounted on, or unmounted.

use std::io;

/// The advice for an error.
pub fn advice(error: &mount::Error) -> Option<String> {
    use mount::Error;
    let advice = match error {
        Error::Client(error) => return super::client_advice(error),
        Error::Fuse { directory, source } => match source.kind() {
            io::ErrorKind::NotFound if !directory.exists() => {
                return Some(format!("mkdir {}", directory.display()));
            }
            io::ErrorKind::NotFound => {
                "modprobe fuse        as root; without root, fusermount3 (the package fuse3) is needed too"
            }
            io::ErrorKind::PermissionDenied if !may_open(DEVICE) => "chmod 666 /dev/fuse        as root",
            io::ErrorKind::PermissionDenied => "the same as root, or a directory of your own",
            io::ErrorKind::NotConnected => return Some(format!("trunkline umount {}", directory.display())),
            _ => "an empty directory of your own; without root, fusermount3 (the package fuse3) is needed",
        },
        Error::NoHelper { .. } => NO_FUSERMOUNT,
        Error::Refused { message, .. } => fusermount_advice(message),
        Error::Threads(_) => "a higher `ulimit -u`",
        Error::Unmount { directory, source } => match source.kind() {
            io::ErrorKind::ResourceBusy => {
                let directory = directory.display();
                return Some(format!(
                    "fuser -vm {directory}        to see who uses it, or trunkline umount --lazy {directory}"
                ));
            }
            io::ErrorKind::NotFound if !is_root() => NO_FUSERMOUNT,
            _ => "findmnt -t fuse.trunkline        to see what is mounted",
        },
    };
    Some(advice.to_owned())
}

const NO_FUSERMOUNT: &str = "apt-get install fuse3        as root, or dnf install fuse3; or the same as root";

/// The device that every mount opens first.
const DEVICE: &str = "/dev/fuse";

/// Whether this user may open a file; a missing file counts as allowed.
fn may_open(path: &str) -> bool {
    use rustix::fs::{Access, access};
    access(path, Access::READ_OK | Access::WRITE_OK) != Err(rustix::io::Errno::ACCESS)
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The advice for a message of fusermount3, which mounts for users other than root.
fn fusermount_advice(message: &str) -> &'static str {
    match () {
        () if message.contains("user_allow_other") => {
            "without allow_other; or, as root, echo user_allow_other >> /etc/fuse.conf"
        }
        () if message.contains("write access") || message.contains("mountpoint") => "a directory of your own",
        () if message.contains("mount_max") || message.contains("too many") => {
            "trunkline umount        for a mount that is no longer needed, or mount_max in /etc/fuse.conf"
        }
        () if message.contains("not permitted") => {
            "chmod u+s $(command -v fusermount3)        as root: it mounts for others only if it is set-uid root"
        }
        () if message.contains("/dev/fuse") || message.contains("modprobe") => "modprobe fuse        as root",
        () => "a directory of your own; or the same as root",
    }
}
