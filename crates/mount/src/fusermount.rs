//! fusermount3, which mounts and unmounts for users other than root. Only fusermount3 needs
//! privileges: this program is never set-uid.

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use std::ffi::OsString;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The current name, and the name in FUSE before 2018.
const NAMES: [&str; 2] = ["fusermount3", "fusermount"];
/// Directories to search besides PATH.
const DIRECTORIES: [&str; 2] = ["/bin", "/sbin"];
/// Environment variable that names another helper.
const PATH_VARIABLE: &str = "FUSERMOUNT_PATH";
/// Environment variable with the descriptor on which the helper sends the device of a new mount.
const SOCKET_VARIABLE: &str = "_FUSE_COMMFD";

/// The helper, if an executable one exists.
pub(crate) fn find() -> Option<PathBuf> {
    if let Some(own) = std::env::var_os(PATH_VARIABLE) {
        return Some(PathBuf::from(own)).filter(|path| can_run(path));
    }
    let path: OsString = std::env::var_os("PATH").unwrap_or_default();
    let directories: Vec<PathBuf> =
        std::env::split_paths(&path).chain(DIRECTORIES.map(PathBuf::from)).collect();
    let all = NAMES.iter().flat_map(|name| directories.iter().map(move |directory| directory.join(name)));
    all.into_iter().find(|path| can_run(path))
}

fn can_run(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|seen| seen.is_file() && seen.permissions().mode() & 0o111 != 0)
}

/// The error to report when the helper is missing.
pub(crate) fn missing() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, "this needs root or fusermount3, which was not found")
}

/// Mounts, and returns the device.
///
/// # Errors
/// The system's errors; an error without a number holds the helper's message.
pub(crate) fn mount(directory: &Path, options: &str) -> io::Result<OwnedFd> {
    let (ours, theirs) = UnixStream::pair()?;
    let helper = {
        let mut command = Command::new(find().ok_or_else(missing)?);
        command.arg("-o").arg(options).arg("--").arg(directory);
        // Pass the socket as standard input, so that no other program that is started meanwhile
        // inherits it.
        command.env(SOCKET_VARIABLE, "0").stdin(OwnedFd::from(theirs));
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?
    };
    let received = receive(&ours);
    let output = helper.wait_with_output()?;
    match received? {
        Some(device) => Ok(device),
        None => Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned())),
    }
}

/// Receives a descriptor; `None` if the peer hangs up without sending one.
fn receive(socket: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let mut byte = [0];
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut room);
    let read = || recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC);
    rustix::io::retry_on_intr(read)?;
    let descriptors = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    Ok(descriptors)
}

/// Unmounts a mount that the same user has made.
pub(crate) fn unmount(directory: &Path, lazily: bool) -> io::Result<()> {
    let mut helper = Command::new(find().ok_or_else(missing)?);
    helper.arg("-u").args(lazily.then_some("-z")).arg("--").arg(directory);
    let output = helper.output()?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if text.contains("busy") {
        Err(io::Error::from_raw_os_error(libc::EBUSY))
    } else {
        Err(io::Error::other(text))
    }
}
