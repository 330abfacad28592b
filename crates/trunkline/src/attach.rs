//! `trunkline attach`: a file of an NFS server as a disk for programs of this host. The crate
//! `attach` serves it; this module converts the command line.

use crate::error::Error;
use crate::output;
use crate::remote::{LOCATION_HELP, Location, MountArgs};
use attach::{Device, Disk, Earlier, FileDisk, FileError, Server, Socket, UblkError, UblkServer};
use clap::{ArgGroup, Args};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag::register_conditional_shutdown;
use signal_hook::iterator::Signals;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Attach a file of an NFS server as a disk: NBD on a UNIX socket, for QEMU, fio and others, or a
/// block device of the kernel.
///
/// SIGTERM and SIGINT end it, after the requests that are under way; it removes its socket or
/// device then. A second one ends it at once.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, group = ArgGroup::new("presented").args(["socket", "ublk"]).required(true))]
pub struct AttachArgs {
    /// The file: nfs://HOST/EXPORT/PATH or HOST:/EXPORT/PATH.
    #[arg(value_name = "PLACE", long_help = LOCATION_HELP)]
    place: String,
    #[command(flatten)]
    place_of_disk: PlaceArgs,
    #[command(flatten)]
    mount: MountArgs,
}

const EXAMPLES: &str = "Examples:\n  \
    trunkline attach 'nfs://10.0.0.1/data/disk.img?nconnect=8' --socket /run/disk.sock\n  \
    qemu-system-x86_64 -drive file=nbd+unix:///?socket=/run/disk.sock,format=raw,if=virtio\n  \
    trunkline attach nfs://10.0.0.1/data/disk.img --ublk 0    # /dev/ublkb0";

/// How a disk is presented to programs of this host. Each command has a group `presented` of these.
#[derive(Debug, Args)]
#[group(skip)]
pub struct PlaceArgs {
    /// The UNIX socket on which the disk is served.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Present the disk as the block device /dev/ublkbN instead, by the kernel's driver ublk_drv.
    /// Needs root and Linux 6.5 or newer.
    #[arg(long, value_name = "N")]
    ublk: Option<u32>,
}

impl PlaceArgs {
    /// Takes the socket or the number of the device, if one was named.
    pub fn claim(&self) -> Result<Option<Place>, Error> {
        Ok(match (&self.socket, self.ublk) {
            (Some(path), _) => {
                Some(Place::Socket(Socket::bind(path).map_err(|e| refused(&e))?, path.clone()))
            }
            (None, Some(number)) => {
                // Before any thread is started.
                attach::serve_io();
                Some(Place::Ublk(Device::claim(number).map_err(|error| no_device(&error))?))
            }
            (None, None) => None,
        })
    }
}

/// Where a disk is presented. No other process has it.
#[derive(Debug)]
pub enum Place {
    /// A UNIX socket, at this path.
    Socket(Socket, PathBuf),
    /// A block device.
    Ublk(Device),
}

impl Place {
    /// The path by which the disk is known on this host.
    pub fn path(&self) -> PathBuf {
        match self {
            Self::Socket(_, path) => std::path::absolute(path).unwrap_or_else(|_| path.clone()),
            Self::Ublk(device) => device.path(),
        }
    }

    /// Whether the process that had it last was killed.
    pub fn was_killed(&self) -> bool {
        match self {
            Self::Socket(socket, _) => socket.earlier == Earlier::Killed,
            Self::Ublk(device) => device.is_left(),
        }
    }
}

/// Serves the file until a signal.
pub fn run(args: &AttachArgs) -> Result<ExitCode, Error> {
    let Some(at) = args.place_of_disk.claim()? else { return Ok(ExitCode::FAILURE) };
    let location = Location::open(&args.place, &args.mount.joined())?;
    let cannot = location.cannot("attach");
    let disk = FileDisk::open(&location.mount, &location.path, &args.place).map_err(|error| match error {
        FileError::Client(error) => cannot(error),
        FileError::Empty => cannot(client::Error::Misuse("it is empty: truncate -s SIZE first".to_owned())),
        FileError::Thread(error) => cannot(client::Error::Misuse(error.to_string())),
    })?;
    // Other options do not make it another file.
    let identity = args.place.split('?').next().unwrap_or_default();
    serve(at, disk, identity, "")
}

/// What serves a disk; it ends when it is dropped.
enum Serving {
    Socket { _server: Server },
    Ublk { _server: UblkServer },
}

/// Serves a disk until a signal, and then what is under way. That may take long, such as where no
/// path to the disk is left, so that another signal ends the process. `identity` names the disk.
pub fn serve<D: Disk>(at: Place, disk: D, identity: &str, what: &str) -> Result<ExitCode, Error> {
    let ends_at_once = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        // The status is that of a shell for a signal.
        register_conditional_shutdown(signal, 128 + signal, Arc::clone(&ends_at_once))
            .map_err(Error::Signals)?;
    }
    let mut signals = Signals::new([SIGTERM, SIGINT]).map_err(Error::Signals)?;
    let (server, usage) = match at {
        Place::Socket(socket, path) => {
            let server = Server::start(socket, disk).map_err(|error| refused(&error))?;
            (Serving::Socket { _server: server }, usage(&path))
        }
        Place::Ublk(device) => {
            let path = device.path();
            let server = UblkServer::start(device, identity, disk).map_err(|error| no_device(&error))?;
            (Serving::Ublk { _server: server }, format!("disk at {}\nready\n", path.display()))
        }
    };
    output::print(&format!("{what}{usage}"))?;
    signals.forever().next();
    ends_at_once.store(true, Ordering::SeqCst);
    drop(server);
    Ok(ExitCode::SUCCESS)
}

/// Why there is no socket.
fn refused(error: &attach::Error) -> Error {
    let advice = match error {
        attach::Error::InUse(_) | attach::Error::NotASocket(_) => "another --socket",
        attach::Error::Listen(..) => "a --socket in a directory that is there and may be written",
    };
    cannot_serve(error.to_string(), advice)
}

/// Why there is no block device.
fn no_device(error: &UblkError) -> Error {
    let advice = match error {
        UblkError::NoDriver => {
            "modprobe ublk_drv, on Linux 6.5 or newer; or --socket PATH, for programs that speak NBD"
        }
        UblkError::TooOld(_) => "Linux 6.5 or newer; or --socket PATH, for programs that speak NBD",
        UblkError::Denied(_) => "run it as root; or --socket PATH, for programs that speak NBD",
        UblkError::InUse(_) => "another --ublk",
        UblkError::Other(_) => {
            "another --ublk; or, if nobody uses the device, remove it: `ublk del -n N` of ublksrv"
        }
        UblkError::Unfit { .. } => "--socket PATH, for programs that speak NBD",
        UblkError::System(..) => {
            "the log of the kernel (dmesg); or --socket PATH, for programs that speak NBD"
        }
    };
    cannot_serve(error.to_string(), advice)
}

fn cannot_serve(cause: String, advice: &str) -> Error {
    Error::Refused { sentence: "cannot serve the disk".to_owned(), cause, advice: advice.to_owned() }
}

/// How programs take the disk. What is special in an address, to a shell, or to the options of QEMU
/// is written as %XX, which all of them decode.
fn usage(socket: &Path) -> String {
    const SPECIAL: &AsciiSet =
        &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'.').remove(b'_').remove(b'~');
    let socket = percent_encode(socket.as_os_str().as_bytes(), SPECIAL);
    format!(
        "disk at nbd+unix:///?socket={socket}\n  \
         qemu-system-x86_64 -drive file=nbd+unix:///?socket={socket},format=raw,if=virtio\n  \
         fio --ioengine=nbd --uri=nbd+unix:///?socket={socket}\nready\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_is_printed_goes_through_a_shell_and_qemu_unchanged() {
        assert!(usage(Path::new("/run/vm-1.sock")).contains("socket=/run/vm-1.sock,format"));
        let odd = usage(Path::new("/run/a b,c'&#.sock"));
        assert_eq!(odd.matches("socket=/run/a%20b%2Cc%27%26%23.sock").count(), 3, "{odd}");
    }
}
