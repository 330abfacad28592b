//! `trunkline lab vm`: a command in a virtual machine with Soft-RoCE.

use super::{command_of, passed_on};
use crate::error::Error;
use ::lab::vm::{self, Accel, Guests, Spec, Work};
use clap::Args;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Boot a stock Debian kernel with a Soft-RoCE device, run a command in it as root, and leave
/// nothing behind.
///
/// The guest sees this machine's files and may change them all: what it writes is gone with it, but
/// for --write. It is emulated where KVM does not work, so neither hardware nor root is needed,
/// only patience. The command finds the addresses in TRUNKLINE_LAB_NODES and TRUNKLINE_LAB_CLIENT,
/// as in `lab net`. Its exit status is passed on.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct VmArgs {
    /// 1: client and server share a guest and its one device; 2: a guest for each, joined by four
    /// links.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
    guests: u8,
    /// Run this shell command line in the server first, and wait until it prints `ready`; it finds
    /// --listen ADDR:2049 for each of its addresses in $TRUNKLINE_LAB_LISTEN.
    #[arg(long, value_name = "LINE")]
    serve: Option<String>,
    /// Memory of each guest; only what it touches is taken from this machine.
    #[arg(long, value_name = "SIZE", default_value = "4GiB", value_parser = mebibytes)]
    memory: u32,
    /// Processors of each guest.
    #[arg(long, value_name = "N", default_value_t = 2)]
    cpus: u8,
    /// The Debian package of the kernel [default: what linux-image-amd64 names, else the newest one
    /// fetched].
    #[arg(long, value_name = "PACKAGE")]
    kernel: Option<String>,
    /// What executes the guests' instructions: auto (KVM where it works), kvm, or tcg (emulation).
    #[arg(long, value_name = "HOW", default_value = "auto", value_parser = accel)]
    accel: Accel,
    /// Let the guests really write this directory; repeat for more.
    #[arg(long, value_name = "DIR")]
    write: Vec<PathBuf>,
    /// A shell on this terminal, for people.
    #[arg(long, conflicts_with = "command")]
    shell: bool,
    /// What to run in the client.
    #[arg(value_name = "COMMAND", last = true, required_unless_present = "shell")]
    command: Vec<OsString>,
}

const EXAMPLES: &str = "Examples:\n  \
    trunkline lab vm -- rdma link show\n  \
    trunkline lab vm --guests 2 \\\n    \
      --serve 'exec trunkline serve --mem 1GiB $TRUNKLINE_LAB_LISTEN' -- COMMAND\n  \
    trunkline lab vm --guests 2 --shell\n\n\
    Needs Debian's qemu-system-x86 busybox-static kmod iproute2, and once the network to fetch a kernel.";

fn accel(text: &str) -> Result<Accel, vm::Error> {
    text.parse()
}

/// Reads `4GiB`, `512M`.
fn mebibytes(text: &str) -> Result<u32, String> {
    let wrong = || "write a size like 4GiB or 512MiB".to_owned();
    let units = [("GiB", 1024), ("G", 1024), ("MiB", 1), ("M", 1)];
    let (number, unit) =
        units.iter().find_map(|(name, unit)| Some((text.strip_suffix(name)?, unit))).ok_or_else(wrong)?;
    number.trim_end().parse::<u32>().ok().and_then(|number| number.checked_mul(*unit)).ok_or_else(wrong)
}

/// Runs the command.
pub fn run(args: VmArgs) -> Result<ExitCode, Error> {
    let program =
        std::env::current_exe().map_err(|cause| Error::Read { file: "/proc/self/exe".into(), cause })?;
    let spec = Spec {
        guests: if args.guests == 2 { Guests::Two } else { Guests::One },
        memory_mib: args.memory,
        cpus: args.cpus,
        kernel: args.kernel,
        accel: args.accel,
        writable: args.write.iter().map(|path| whole(path)).collect(),
        ..Spec::new(program)
    };
    let work = if args.shell { Work::Shell } else { Work::Command(command_of(args.command)) };
    let status = vm::run(&spec, args.serve.as_deref(), &work)?;
    Ok(passed_on(status))
}

/// One that doesn't exist is refused by its name, as given.
fn whole(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_as_people_write_it() {
        assert_eq!(mebibytes("4GiB"), Ok(4096));
        assert_eq!(mebibytes("512 M"), Ok(512));
        for wrong in ["4", "GiB", "-1G", "99999999GiB", "4TB"] {
            assert!(mebibytes(wrong).is_err(), "{wrong}");
        }
    }
}
