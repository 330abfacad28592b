//! A QEMU process that always ends with its owner and leaves no file behind.
//!
//! - The kernel ends QEMU when the thread that started it ends (`setpriv --pdeathsig`), so a
//!   separate thread starts QEMU and waits for it.
//! - All files that QEMU reads and writes, other than sockets, are in memory (`memfd`) and opened
//!   through /proc.

use super::monitor::Monitor;
use super::{Accel, Error, programs};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

/// The size of the end of a console that is shown when a guest fails; a kernel panic fits.
const CONSOLE_BYTES: u64 = 4000;

/// The MTU of the links, which is enough for RDMA's 4096 with headers.
const LINK_MTU: u32 = 9000;

/// The properties of a QEMU machine.
#[derive(Debug)]
pub(super) struct Hardware<'a> {
    pub(super) accel: Accel,
    pub(super) memory_mib: u32,
    pub(super) cpus: u8,
    pub(super) kernel: &'a Path,
    pub(super) initramfs: &'a [u8],
    pub(super) writable: &'a [PathBuf],
    /// The host's end of each link, and the last byte of its hardware address.
    pub(super) links: Vec<(UnixStream, u8)>,
}

/// A running QEMU; killed when dropped.
#[derive(Debug)]
pub(super) struct Machine {
    pidfd: OwnedFd,
    /// Kept because QEMU opens the file at some time during its start.
    _initramfs: File,
    console: File,
    stderr: Arc<Mutex<String>>,
    waiter: Option<JoinHandle<()>>,
    monitor: Mutex<Monitor>,
}

impl Machine {
    /// Starts QEMU. The stream is the host's end of the agent's port.
    pub(super) fn start(hardware: Hardware<'_>) -> Result<(Self, UnixStream), Error> {
        let initramfs = memory_file("initramfs")?;
        (&initramfs)
            .write_all(hardware.initramfs)
            .map_err(Error::io("keep the guest's first files in memory"))?;
        let console = memory_file("console")?;
        let (ours, theirs) = UnixStream::pair().map_err(Error::io("make a pair of sockets"))?;
        let (monitor, its_end) = UnixStream::pair().map_err(Error::io("make a pair of sockets"))?;
        let mut command = wrapped_command()?;
        let files = [path_in_proc(&initramfs), path_in_proc(&console)];
        command.args(arguments(&hardware, &files, its_end.as_raw_fd()));
        command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(Stdio::piped());
        // This process handles an interrupt from the terminal.
        command.process_group(0);
        let links = hardware.links.into_iter().map(|(stream, _)| stream);
        let inherited = links.chain([its_end]).collect();
        let machine = Self::spawn(command, inherited, [initramfs, console], Monitor::new(monitor))?;
        Ok((machine, ours))
    }

    fn spawn(
        mut command: Command,
        inherited: Vec<UnixStream>,
        [initramfs, console]: [File; 2],
        monitor: Monitor,
    ) -> Result<Self, Error> {
        let (tell_started, started) = channel();
        let stderr = Arc::new(Mutex::new(String::new()));
        let kept = Arc::clone(&stderr);
        let waiter = thread::spawn(move || {
            // The child inherits its ends of the links and of the monitor. Other children should
            // not, so the descriptors are made close-on-exec again at once. A child that another
            // thread starts in between inherits them, which does no harm.
            let forward = |flags| inherited.iter().try_for_each(|stream| fcntl_setfd(stream, flags));
            let spawned =
                forward(FdFlags::empty()).map_err(std::io::Error::from).and_then(|()| command.spawn());
            drop(inherited);
            drop(command);
            let mut child = match spawned {
                Ok(child) => child,
                Err(error) => return drop(tell_started.send(Err(error))),
            };
            let pidfd = pidfd_open(Pid::from_child(&child), PidfdFlags::empty());
            let _ = tell_started.send(pidfd.map_err(std::io::Error::from));
            if let Some(mut stderr) = child.stderr.take() {
                let mut message = Vec::new();
                // Reads until QEMU has ended; there is little output.
                let _ = stderr.read_to_end(&mut message);
                let text = String::from_utf8_lossy(&message).trim().to_owned();
                *kept.lock().unwrap_or_else(PoisonError::into_inner) = text;
            }
            // An error would mean that something else has waited for the child, so it is gone too.
            let _ = child.wait();
        });
        let pidfd =
            started.recv().unwrap_or_else(|_| Err(std::io::Error::other("no answer from its thread")));
        let pidfd = pidfd.map_err(Error::io("start QEMU"))?;
        let monitor = Mutex::new(monitor);
        Ok(Self { pidfd, _initramfs: initramfs, console, stderr, waiter: Some(waiter), monitor })
    }

    /// Takes the carrier off an interface, by its number from 1, or restores it.
    pub(super) fn set_link(&self, number: u8, up: bool) -> Result<(), Error> {
        self.monitor().set_link(&format!("n{number}"), up)
    }

    /// Stops the processors and clocks.
    pub(super) fn pause(&self) -> Result<(), Error> {
        self.monitor().pause()
    }

    /// Lets the processors and clocks go on.
    pub(super) fn resume(&self) -> Result<(), Error> {
        self.monitor().resume()
    }

    fn monitor(&self) -> MutexGuard<'_, Monitor> {
        self.monitor.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether QEMU has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.waiter.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// The last output: QEMU's error messages and the end of the guest's console.
    pub(super) fn last_output(&self) -> String {
        let stderr = self.stderr.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let length = self.console.metadata().map_or(0, |metadata| metadata.len());
        let mut end = vec![0; usize::try_from(length.min(CONSOLE_BYTES)).unwrap_or(0)];
        // A console that cannot be read is left out.
        let read = self.console.read_at(&mut end, length.saturating_sub(CONSOLE_BYTES)).unwrap_or(0);
        end.truncate(read);
        let console = String::from_utf8_lossy(&end).replace('\r', "");
        let words: Vec<_> =
            [stderr.trim(), console.trim()].into_iter().filter(|text| !text.is_empty()).collect();
        if words.is_empty() { "without a word".to_owned() } else { words.join("\n") }
    }

    /// Kills QEMU and waits until it is gone.
    pub(super) fn kill(&mut self) {
        // An error means that QEMU is gone already.
        let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
        if let Some(waiter) = self.waiter.take() {
            let _ = waiter.join();
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The command before QEMU's own arguments: no core file if QEMU aborts, and an end together with
/// this process.
fn wrapped_command() -> Result<Command, Error> {
    let qemu = programs::find("qemu-system-x86_64", "qemu-system-x86")?;
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "ulimit -c 0; exec \"$@\"", "sh"]);
    command.arg(programs::find("setpriv", "util-linux")?).args(["--pdeathsig", "KILL"]).arg(qemu);
    Ok(command)
}

fn arguments(hardware: &Hardware<'_>, [initramfs, console]: &[String; 2], monitor: RawFd) -> Vec<String> {
    let accel = match hardware.accel {
        Accel::Kvm | Accel::Auto => ["-accel", "kvm", "-cpu", "host"],
        Accel::Tcg => ["-accel", "tcg,thread=multi", "-cpu", "max"],
    };
    let mut words: Vec<String> = accel.map(str::to_owned).to_vec();
    let mut add = |option: &str, value: String| words.extend([format!("-{option}"), value]);
    add("smp", hardware.cpus.to_string());
    add("m", format!("{}M", hardware.memory_mib));
    add("display", "none".to_owned());
    add("chardev", format!("socket,id=monitor,fd={monitor}"));
    add("mon", "chardev=monitor,mode=control".to_owned());
    add("chardev", format!("file,id=console,path={console},append=on"));
    add("serial", "chardev:console".to_owned());
    add("chardev", "socket,id=agent,fd=0".to_owned());
    add("device", "virtio-serial-pci".to_owned());
    add("device", "virtserialport,chardev=agent,name=trunkline".to_owned());
    add("nic", "none".to_owned());
    for (number, (link, last)) in (1..).zip(&hardware.links) {
        add("netdev", format!("socket,id=n{number},fd={}", link.as_raw_fd()));
        let mac = format!("52:54:00:77:{number:02x}:{last:02x}");
        add("device", format!("virtio-net-pci,netdev=n{number},mac={mac},host_mtu={LINK_MTU}"));
    }
    let share = "security_model=none,multidevs=remap";
    add("virtfs", format!("local,path=/,mount_tag=root,readonly=on,{share}"));
    for (number, directory) in hardware.writable.iter().enumerate() {
        add("virtfs", format!("local,path={},mount_tag=write{number},{share}", directory.display()));
    }
    add("kernel", hardware.kernel.display().to_string());
    add("initrd", initramfs.clone());
    // Where this machine is busy, an emulated timer may be too late for the kernel's check of it,
    // and the kernel gives up.
    // Pages that the kernel's NVMe/TCP host sends uncopied are received by a target in the same
    // kernel. Its check of copies to user space takes adjacent ones for an overrun, and kills the
    // target's thread within its read.
    let kernel = "console=ttyS0 quiet panic=-1 no_timer_check hardened_usercopy=off rdinit=/init";
    add("append", kernel.to_owned());
    words.push("-no-reboot".to_owned());
    words
}

/// A file in memory.
fn memory_file(name: &str) -> Result<File, Error> {
    let file = memfd_create(name, MemfdFlags::CLOEXEC).map_err(std::io::Error::from);
    file.map(File::from).map_err(Error::io("make a file in memory"))
}

/// The path by which another process of this user can open the file while it is open here.
fn path_in_proc(file: &File) -> String {
    format!("/proc/{}/fd/{}", std::process::id(), file.as_fd().as_raw_fd())
}
