//! `trunkline lab vm`: runs a command in a virtual machine with Soft-RoCE.

use super::{command_of, exit_code_of};
use crate::error::Error;
use ::lab::vm::{self, Accel, Guests, LabCommand, Spec};
use clap::Args;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Boot a stock Debian kernel with a Soft-RoCE device, run a command in it as root, and remove
/// everything afterwards.
///
/// The guest sees this machine's files and may change all of them; its changes are lost at the end,
/// except under --write. Where KVM does not work, the guest is emulated and slow, so neither
/// hardware nor root is needed. The command gets the addresses in TRUNKLINE_LAB_NODES and
/// TRUNKLINE_LAB_CLIENT, as in `lab net`. The exit status is that of the command.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct VmArgs {
    /// 1: client and server share a guest and its only device; 2: a guest for each, joined by four
    /// links.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
    guests: u8,
    /// Run this shell command line in the server first, and wait until it prints `ready`;
    /// $TRUNKLINE_LAB_LISTEN contains --listen ADDR:2049 for each of its addresses.
    #[arg(long, value_name = "LINE")]
    serve: Option<String>,
    /// Memory of each guest; only memory that the guest touches is taken from this machine.
    #[arg(long, value_name = "SIZE", default_value = "4GiB", value_parser = mebibytes)]
    memory: u32,
    /// Number of processors of each guest.
    #[arg(long, value_name = "N", default_value_t = 2)]
    cpus: u8,
    /// Debian package of the kernel [default: the one that linux-image-amd64 depends on, or the
    /// newest one in the cache].
    #[arg(long, value_name = "PACKAGE")]
    kernel: Option<String>,
    /// Accelerator: auto (KVM if a guest boots on it), kvm, or tcg (emulation).
    #[arg(long, value_name = "HOW", default_value = "auto", value_parser = accel)]
    accel: Accel,
    /// Directory of this machine that the guests may write; may be repeated.
    #[arg(long, value_name = "DIR")]
    write: Vec<PathBuf>,
    /// Open a shell on this terminal instead of running a command.
    #[arg(long, conflicts_with = "command")]
    shell: bool,
    /// Command to run in the client.
    #[arg(value_name = "COMMAND", last = true, required_unless_present = "shell")]
    command: Vec<OsString>,
}

const EXAMPLES: &str = "Examples:\n  \
    trunkline lab vm -- rdma link show\n  \
    trunkline lab vm --guests 2 \\\n    \
      --serve 'exec trunkline serve --mem 1GiB $TRUNKLINE_LAB_LISTEN' -- COMMAND\n  \
    trunkline lab vm --guests 2 --shell\n\n\
    Needs Debian's qemu-system-x86, busybox-static, kmod and iproute2, and once a network to fetch a kernel.";

fn accel(text: &str) -> Result<Accel, vm::Error> {
    text.parse()
}

/// Parses a size such as `4GiB` or `512M`.
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
    let work = if args.shell { LabCommand::Shell } else { LabCommand::Command(command_of(args.command)) };
    let status = vm::run(&spec, args.serve.as_deref(), &work)?;
    Ok(exit_code_of(status))
}

/// Resolves a path. A path that does not exist is kept, so that the error names it as given.
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
