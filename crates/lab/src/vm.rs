//! One or two virtual machines with a stock kernel, this machine's files, and Soft-RoCE devices.
//!
//! ```text
//!   guest `client`                                   guest `server`
//!     n1  10.77.1.1  fd77:1::1  rxe1 ============ n1  10.77.1.2  fd77:1::2  rxe1
//!     ...                                         ...
//!     n4  10.77.4.1  fd77:4::1  rxe4 ============ n4  10.77.4.2  fd77:4::2  rxe4
//! ```
//!
//! A guest sees the files of this machine read-only, with an overlay in memory on top: it may
//! change everything, but changes are lost at its end, except in directories that are named as
//! writable. Commands run as root in the guest. QEMU emulates the processor where KVM does not
//! work, so neither hardware nor root is needed.
//!
//! Nothing is left behind: QEMU ends when the lab is dropped and also when its owner is killed, and
//! all of its files are in memory. The kernel is a package of the distribution, kept in the user's
//! cache directory.
//!
//! A lab needs Debian's qemu-system-x86, busybox-static, kmod and iproute2, and apt to fetch a
//! kernel.

mod agent;
mod boot;
mod error;
mod frame;
mod guest;
mod initramfs;
mod kernel;
mod machine;
mod monitor;
mod network;
mod programs;
mod run;
mod spec;

pub use agent::serve as serve_as_guest;
pub use boot::BootFiles;
pub use error::Error;
pub use guest::{Event, Guest, Running};
pub use run::{LabCommand, run};
pub use spec::{Accel, Guests, LINKS, Spec};

use initramfs::{Archive, INIT, Inside};
use kernel::Kernel;
use machine::Hardware;
use network::{CLIENT_END, SERVER_END};
use std::ffi::OsString;
use std::os::unix::net::UnixStream;
use std::sync::atomic::AtomicBool;

/// The modules that a guest's kernel needs to reach this machine's files.
const FIRST_MODULES: [&str; 4] = ["virtio_pci", "9pnet_virtio", "9p", "overlay"];

/// Where root's programs are; the caller's PATH follows.
const ROOT_PATH: &str = "/usr/sbin:/sbin:/usr/bin:/bin";

/// A running lab. Its guests end when it is dropped.
#[derive(Debug)]
pub struct Vm {
    client: Guest,
    server: Option<Guest>,
}

impl Vm {
    /// Boots the guests and sets up their links: about 15 seconds for one guest, if everything is
    /// cached.
    ///
    /// # Errors
    /// If programs are missing, there is no kernel, or a guest does not start.
    pub fn start(spec: &Spec) -> Result<Self, Error> {
        Self::start_unless(spec, &AtomicBool::new(false))
    }

    /// Like [`Vm::start`], but gives up when `stop` becomes true.
    ///
    /// # Errors
    /// The same as [`Vm::start`], and [`Error::Interrupted`].
    pub fn start_unless(spec: &Spec, stop: &AtomicBool) -> Result<Self, Error> {
        spec.validate()?;
        programs::require_all()?;
        let kernel = Kernel::find(spec.kernel.as_deref())?;
        let first = FirstFiles::of(&kernel)?;
        let attempt = |accel| Self::boot(&Spec { accel, ..spec.clone() }, &kernel, &first, stop);
        match spec.accel {
            Accel::Auto if has_kvm() => match attempt(Accel::Kvm) {
                Err(error @ Error::Boot { .. }) => {
                    tracing::info!("no guest starts on this machine's KVM, so QEMU emulates: {error}");
                    attempt(Accel::Tcg)
                }
                outcome => outcome,
            },
            Accel::Auto => attempt(Accel::Tcg),
            accel => attempt(accel),
        }
    }

    fn boot(spec: &Spec, kernel: &Kernel, first: &FirstFiles, stop: &AtomicBool) -> Result<Self, Error> {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        if spec.guests == Guests::Two {
            for _ in 0..LINKS {
                let (one, other) = UnixStream::pair().map_err(Error::io("make a pair of sockets"))?;
                ours.push((one, CLIENT_END));
                theirs.push((other, SERVER_END));
            }
        }
        let boot = |name, links| {
            let inside = Inside {
                name,
                version: &kernel.version,
                modules: &kernel.modules,
                program: &spec.program,
                writable: &spec.writable,
            };
            let hardware = Hardware {
                accel: spec.accel,
                memory_mib: spec.memory_mib,
                cpus: spec.cpus,
                kernel: &kernel.image,
                initramfs: &first.archive(&inside),
                writable: &spec.writable,
                links,
            };
            Guest::start(name, hardware, environment(spec))
        };
        match spec.guests {
            Guests::One => {
                let (guest, up) = boot("guest", ours)?;
                guest.wait_until_up(&up, spec.accel, stop)?;
                set_up(&guest, &network::alone(spec.rdma))?;
                Ok(Self { client: guest, server: None })
            }
            Guests::Two => {
                let ((server, server_up), (client, client_up)) =
                    (boot("server", theirs)?, boot("client", ours)?);
                server.wait_until_up(&server_up, spec.accel, stop)?;
                set_up(&server, &network::joined(SERVER_END, spec.rdma))?;
                client.wait_until_up(&client_up, spec.accel, stop)?;
                set_up(&client, &network::joined(CLIENT_END, spec.rdma))?;
                Ok(Self { client, server: Some(server) })
            }
        }
    }

    /// The guest in which commands run: the client, or the only guest.
    #[must_use]
    pub fn client(&self) -> &Guest {
        &self.client
    }

    /// The guest in which servers run: the server, or the only guest.
    #[must_use]
    pub fn server(&self) -> &Guest {
        self.server.as_ref().unwrap_or(&self.client)
    }
}

/// Whether KVM is worth trying. A device on a processor without virtualization is provided by
/// another hypervisor, where guests were seen to hang.
fn has_kvm() -> bool {
    let processor = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = processor.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    let virtualizes = flags.split_whitespace().any(|flag| matches!(flag, "vmx" | "svm"));
    virtualizes && std::fs::OpenOptions::new().read(true).write(true).open("/dev/kvm").is_ok()
}

fn set_up(guest: &Guest, script: &str) -> Result<(), Error> {
    let output = guest.sh(script)?;
    if output.status.success() {
        return Ok(());
    }
    let message = format!("its links: {}", String::from_utf8_lossy(&output.stderr).trim());
    Err(Error::Boot { guest: guest.name(), message })
}

/// The environment of every command in a guest.
fn environment(spec: &Spec) -> Vec<(OsString, OsString)> {
    let mut path = OsString::from(ROOT_PATH);
    // `trunkline` can be started by its name too, wherever the program is.
    let ours = spec.program.parent().map(OsString::from);
    for more in std::env::var_os("PATH").into_iter().chain(ours) {
        path.push(":");
        path.push(more);
    }
    let mut pairs = vec![("PATH".into(), path), ("HOME".into(), "/root".into())];
    pairs.extend(network::variables(spec.guests));
    pairs
}

/// The files in the initramfs of all guests of a lab.
struct FirstFiles {
    busybox: Vec<u8>,
    modules: Vec<(String, Vec<u8>)>,
}

impl FirstFiles {
    fn of(kernel: &Kernel) -> Result<Self, Error> {
        Ok(Self { busybox: programs::busybox()?, modules: kernel.modules_for(&FIRST_MODULES)? })
    }

    fn archive(&self, inside: &Inside<'_>) -> Vec<u8> {
        let mut archive = Archive::default();
        for directory in ["bin", "modules", "proc", "sys", "dev", "low", "top", "new"] {
            archive.directory(directory);
        }
        archive.file("bin/busybox", &self.busybox);
        archive.modules(&self.modules);
        archive.file("init", INIT.as_bytes());
        archive.file("enter", inside.enter().as_bytes());
        archive.finish()
    }
}
