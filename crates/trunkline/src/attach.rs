//! `trunkline attach`: a file of an NFS server as a disk for programs of this host. The crate
//! `attach` serves it; this module converts the command line.

use crate::error::Error;
use crate::output;
use crate::remote::{LOCATION_HELP, Location, MountArgs};
use attach::{Disk, FileDisk, FileError, Server, Socket};
use clap::Args;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag::register_conditional_shutdown;
use signal_hook::iterator::Signals;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Attach a file of an NFS server as a disk: NBD on a UNIX socket, for QEMU, fio and others.
///
/// SIGTERM and SIGINT end it, after the requests that are under way; it removes its socket then. A
/// second one ends it at once.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct AttachArgs {
    /// The file: nfs://HOST/EXPORT/PATH or HOST:/EXPORT/PATH.
    #[arg(value_name = "PLACE", long_help = LOCATION_HELP)]
    place: String,
    /// The UNIX socket on which the disk is served.
    #[arg(long, value_name = "PATH")]
    socket: PathBuf,
    #[command(flatten)]
    mount: MountArgs,
}

const EXAMPLES: &str = "Examples:\n  \
    trunkline attach 'nfs://10.0.0.1/data/disk.img?nconnect=8' --socket /run/disk.sock\n  \
    qemu-system-x86_64 -drive file=nbd+unix:///?socket=/run/disk.sock,format=raw,if=virtio";

/// Serves the file until a signal.
pub fn run(args: &AttachArgs) -> Result<ExitCode, Error> {
    let socket = bind(&args.socket)?;
    let location = Location::open(&args.place, &args.mount.joined())?;
    let cannot = location.cannot("attach");
    let disk = FileDisk::open(&location.mount, &location.path, &args.place).map_err(|error| match error {
        FileError::Client(error) => cannot(error),
        FileError::Empty => cannot(client::Error::Misuse("it is empty: truncate -s SIZE first".to_owned())),
        FileError::Thread(error) => cannot(client::Error::Misuse(error.to_string())),
    })?;
    serve(socket, &args.socket, disk, "")
}

/// Serves a disk until a signal, and then what is under way. That may take long, such as where no
/// path to the disk is left, so that another signal ends the process.
pub fn serve<D: Disk>(socket: Socket, path: &Path, disk: D, what: &str) -> Result<ExitCode, Error> {
    let ends_at_once = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        // The status is that of a shell for a signal.
        register_conditional_shutdown(signal, 128 + signal, Arc::clone(&ends_at_once))
            .map_err(Error::Signals)?;
    }
    let mut signals = Signals::new([SIGTERM, SIGINT]).map_err(Error::Signals)?;
    let server = Server::start(socket, disk).map_err(|error| refused(&error))?;
    output::print(&format!("{what}{}", usage(path)))?;
    signals.forever().next();
    ends_at_once.store(true, Ordering::SeqCst);
    drop(server);
    Ok(ExitCode::SUCCESS)
}

/// Binds the socket of a disk.
pub fn bind(path: &Path) -> Result<Socket, Error> {
    Socket::bind(path).map_err(|error| refused(&error))
}

/// Why there is no socket.
fn refused(error: &attach::Error) -> Error {
    let advice = match error {
        attach::Error::InUse(_) | attach::Error::NotASocket(_) => "another --socket",
        attach::Error::Listen(..) => "a --socket in a directory that is there and may be written",
    };
    let sentence = "cannot serve the disk".to_owned();
    Error::Refused { sentence, cause: error.to_string(), advice: advice.to_owned() }
}

/// How programs take the disk.
fn usage(socket: &Path) -> String {
    let socket = socket.display();
    format!(
        "disk at nbd+unix:///?socket={socket}\n  \
         qemu-system-x86_64 -drive file=nbd+unix:///?socket={socket},format=raw,if=virtio\n  \
         fio --ioengine=nbd --uri=nbd+unix:///?socket={socket}\nready\n"
    )
}
