//! Mounting: root mounts with the kernel's own calls, any other user with fusermount3.
//!
//! The FUSE crate could mount too. But it unmounts by path when it is done, and so removes what
//! others have mounted there meanwhile; and it does not report which mount it made. See
//! `own_mount`.

use crate::fusermount;
use crate::mount_table::{FILE_SYSTEM, resolved_path};
use crate::own_mount::{DeadMount, MountId};
use crate::session::{Error, Request};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, UnmountFlags, fsconfig_create,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, move_mount,
};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// The FUSE device. Each open descriptor can serve one mount.
const DEVICE: &str = "/dev/fuse";
/// move_mount(2), since Linux 6.5.
const MOVE_MOUNT_BENEATH: u32 = 0x200;
/// The kernel accepts no longer value for one parameter. fsconfig(2)
const PARAMETER_BYTES_MAX: usize = 255;

/// A new mount, whose first request is not answered yet.
#[derive(Debug)]
pub(crate) struct Attached {
    pub device: OwnedFd,
    pub mount: MountId,
}

/// Returns the path of a directory as the system names it, if something may be mounted on it.
///
/// # Errors
/// Fails if the path does not exist, is no directory, or is the root directory.
pub fn resolve_mount_point(directory: &Path) -> io::Result<PathBuf> {
    // A directory that was removed, such as a shell's working directory, has no name any more.
    let absolute = std::path::absolute(directory)?;
    let kind = rustix::fs::openat(CWD, &absolute, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    // Ask only for the file type, which needs no request to the file system: what is mounted there
    // may have no server any more.
    let kind = rustix::fs::statx(&kind, "", AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE);
    let is_other =
        kind.is_ok_and(|kind| FileType::from_raw_mode(kind.stx_mode.into()) != FileType::Directory);
    let attach_to = resolved_path(&absolute);
    match attach_to.as_path() {
        _ if is_other => Err(Errno::NOTDIR.into()),
        root if root == Path::new("/") => {
            Err(io::Error::new(io::ErrorKind::InvalidInput, "it is the root directory"))
        }
        _ => Ok(attach_to),
    }
}

/// Mounts on a directory, and replaces a mount there whose server is gone.
///
/// # Errors
/// [`Error`].
pub(crate) fn attach(
    request: &Request,
    directory: &Path,
    dead: Option<DeadMount>,
) -> Result<Attached, Error> {
    let fuse = |source| Error::Fuse { directory: request.directory.clone(), source };
    let is_root = rustix::process::geteuid().is_root();
    if !is_root && fusermount::find().is_none() {
        return Err(Error::NoHelper { directory: directory.to_owned(), source: fusermount::missing() });
    }
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let device = rustix::fs::open(DEVICE, flags, Mode::empty()).map_err(|error| fuse(error.into()))?;
    let tree = if is_root { new_mount(request, &device) } else { Err(Errno::PERM) };
    match tree {
        Ok(tree) => {
            attach_to(&tree, directory, dead).map_err(fuse)?;
            // Ask by descriptor, so that the answer is certainly about this mount.
            let mount = MountId::of_mount(tree.as_fd()).inspect_err(|_| detach(&tree)).map_err(fuse)?;
            Ok(Attached { device, mount })
        }
        // Not root, or root without its capabilities, or a kernel before 5.2.
        Err(Errno::PERM | Errno::NOSYS) if fusermount::find().is_some() => {
            // fusermount3 can only mount on top.
            dead.map_or(Ok(()), DeadMount::unmount).map_err(fuse)?;
            let given = helper_options(request, is_root);
            let device =
                fusermount::mount(directory, &given).map_err(|source| match source.raw_os_error() {
                    // An error without a number holds fusermount3's message.
                    None => {
                        let message = source.to_string().trim().to_owned();
                        Error::Refused { directory: request.directory.clone(), message }
                    }
                    Some(_) => fuse(source),
                })?;
            let mount = MountId::of_device(device.as_fd(), directory).map_err(fuse)?;
            Ok(Attached { device, mount })
        }
        Err(error) => Err(fuse(error.into())),
    }
}

/// Makes a mount that is not attached anywhere yet. On a mount made by root other users may enter,
/// as on a kernel mount.
fn new_mount(request: &Request, device: &OwnedFd) -> Result<OwnedFd, Errno> {
    let system = fsopen("fuse", FsOpenFlags::FSOPEN_CLOEXEC)?;
    let set = |name: &str, value: &str| fsconfig_set_string(system.as_fd(), name, value);
    set("source", shortened(&request.source))?;
    set("subtype", FILE_SYSTEM.trim_start_matches("fuse."))?;
    set("fd", &device.as_raw_fd().to_string())?;
    // The root has the type of a directory.
    set("rootmode", "40000")?;
    set("user_id", &rustix::process::getuid().as_raw().to_string())?;
    set("group_id", &rustix::process::getgid().as_raw().to_string())?;
    fsconfig_set_flag(system.as_fd(), "default_permissions")?;
    fsconfig_set_flag(system.as_fd(), "allow_other")?;
    if request.options.read_only {
        fsconfig_set_flag(system.as_fd(), "ro")?;
    }
    fsconfig_create(system.as_fd())?;
    fsmount(system.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes(request))
}

/// Attaches a mount to a directory. A dead mount that is to be replaced is unmounted after the new
/// mount was placed beneath it, so that no program sees the underlying directory. Kernels before
/// 6.5 cannot do that.
fn attach_to(tree: &OwnedFd, directory: &Path, dead: Option<DeadMount>) -> io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    let move_to = |flags| move_mount(tree.as_fd(), "", CWD, directory, flags).map_err(io::Error::from);
    let Some(dead) = dead else { return move_to(flags) };
    let is_beneath = move_to(flags | MoveMountFlags::from_bits_retain(MOVE_MOUNT_BENEATH)).is_ok();
    if let Err(error) = dead.unmount() {
        if is_beneath {
            detach(tree);
        }
        return Err(error);
    }
    if is_beneath { Ok(()) } else { move_to(flags) }
}

/// Detaches a mount that has not been reported to the caller.
fn detach(tree: &OwnedFd) {
    let itself = format!("/proc/self/fd/{}", tree.as_raw_fd());
    if let Err(error) = rustix::mount::unmount(itself, UnmountFlags::DETACH) {
        tracing::warn!(%error, "a failed mount could not be unmounted");
    }
}

fn attributes(request: &Request) -> MountAttrFlags {
    let given = |name: &str| request.options.noted.contains_key(name);
    let wanted = [
        (request.options.read_only, MountAttrFlags::MOUNT_ATTR_RDONLY),
        (given("nodev"), MountAttrFlags::MOUNT_ATTR_NODEV),
        (given("nosuid"), MountAttrFlags::MOUNT_ATTR_NOSUID),
        (given("noexec") && !given("exec"), MountAttrFlags::MOUNT_ATTR_NOEXEC),
        (given("noatime"), MountAttrFlags::MOUNT_ATTR_NOATIME),
    ];
    wanted
        .into_iter()
        .filter(|(wanted, _)| *wanted)
        .fold(MountAttrFlags::empty(), |all, (_, flag)| all | flag)
}

/// The same options for fusermount3, which takes one string. It refuses `allow_other` unless the
/// administrator has allowed it, and never lets users other than root have devices or set-uid
/// programs.
fn helper_options(request: &Request, is_root: bool) -> String {
    let given = |name: &str| request.options.noted.contains_key(name);
    // A comma would end the name.
    let source = request.source.replace(',', "\\,");
    let wanted = [
        (true, "subtype=trunkline"),
        (true, "default_permissions"),
        (request.options.read_only, "ro"),
        (is_root && !given("nodev"), "dev"),
        (is_root && !given("nosuid"), "suid"),
        (given("noexec") && !given("exec"), "noexec"),
        (given("noatime"), "noatime"),
        (is_root || given("allow_other"), "allow_other"),
    ];
    let wanted = wanted.into_iter().filter(|(wanted, _)| *wanted);
    wanted.fold(format!("fsname={source}"), |all, (_, option)| format!("{all},{option}"))
}

/// The part of a source's name that the kernel accepts. The name is only shown to people.
fn shortened(source: &str) -> &str {
    let mut end = source.len().min(PARAMETER_BYTES_MAX);
    while !source.is_char_boundary(end) {
        end -= 1;
    }
    source.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use client::options::MountOptions;

    #[test]
    fn fusermount3_is_given_what_root_would_have() {
        let mut options = MountOptions::default();
        let mut text = |name: &str, is_root: bool| {
            if !name.is_empty() {
                options.noted.insert(name.to_owned(), None);
            }
            let source = "nas:/a,b".to_owned();
            helper_options(&Request { source, options: options.clone(), directory: "/mnt".into() }, is_root)
        };
        let always = "fsname=nas:/a\\,b,subtype=trunkline,default_permissions";
        assert_eq!(text("", false), always);
        assert_eq!(text("", true), format!("{always},dev,suid,allow_other"));
        assert_eq!(text("nodev", true), format!("{always},suid,allow_other"));
        assert_eq!(text("noexec", false), format!("{always},noexec"));
        assert_eq!(text("allow_other", false), format!("{always},noexec,allow_other"));
    }

    #[test]
    fn a_source_is_shortened_between_letters() {
        assert_eq!(shortened("nas:/data"), "nas:/data");
        let long = "é".repeat(200);
        assert_eq!(shortened(&long).len(), 254);
    }
}
