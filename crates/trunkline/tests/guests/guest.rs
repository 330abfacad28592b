//! A guest: its QEMU, and the serial port by which it is told what to do.

use crate::PATIENCE;
use crate::image::kept;
use crate::storage::Storage;
use lab::vm::BootFiles;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, channel};
use testkit::{Deadline, Process, require_program};

/// What the kernel needs to find its root. The checksums of ext4 have no module that names them.
const MODULES: [&str; 4] = ["virtio_pci", "virtio_blk", "crc32c_generic", "ext4"];

/// How QEMU reaches the disk.
#[derive(Debug, Clone, Copy)]
pub enum Drive {
    /// A URI. If the attachment ends, the guest sees errors.
    Uri,
    /// QEMU connects again for this many seconds, and the guest waits meanwhile.
    Reconnects(u32),
}

/// The options of QEMU for a disk.
fn drive(storage: &Storage, disk: usize, drive: Drive) -> Vec<String> {
    match drive {
        Drive::Uri => {
            let file = storage.uri(disk);
            vec!["-drive".into(), format!("file={file},format=raw,if=virtio,cache=none,discard=unmap")]
        }
        Drive::Reconnects(seconds) => {
            let server = format!("server.type=unix,server.path={}", storage.socket(disk));
            let more = format!("reconnect-delay={seconds},cache.direct=on,discard=unmap");
            vec![
                "-blockdev".into(),
                format!("driver=nbd,node-name=disk,{server},{more}"),
                "-device".into(),
                "virtio-blk-pci,drive=disk".into(),
            ]
        }
    }
}

/// A virtual machine with one disk; it ends when dropped.
#[derive(Debug)]
pub struct Guest {
    process: Process,
    control: UnixStream,
    lines: Receiver<String>,
}

/// What fio has done in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Done {
    pub kib: u64,
    pub kib_per_second: u64,
    pub iops: u64,
}

/// What fio has done.
#[derive(Debug, Clone, Copy)]
pub struct FioResult {
    pub error: u64,
    pub read: Done,
    pub written: Done,
}

impl FioResult {
    /// Finds the line of `run_fio` in what a guest has said.
    #[track_caller]
    pub fn of(text: &str) -> Self {
        let line = text.lines().find_map(|line| line.strip_prefix("fio "));
        let line = line.unwrap_or_else(|| panic!("{text}"));
        Self::of_words(&line.split(' ').collect::<Vec<_>>())
    }

    /// The same of fio's own line of a job, with semicolons (version 3 of `--minimal`).
    #[track_caller]
    pub fn of_terse(text: &str) -> Self {
        let fields: Vec<_> = text.trim().split(';').collect();
        assert!(fields.len() > 100, "{text}");
        Self::of_words(&[&fields[4..9], &fields[46..50]].concat())
    }

    #[track_caller]
    fn of_words(words: &[&str]) -> Self {
        let number = |word: &&str| word.parse().unwrap_or_else(|_| panic!("{words:?}"));
        let numbers: Vec<u64> = words.iter().map(number).collect();
        let [error, a, b, c, _, x, y, z, _] = numbers[..] else { panic!("{words:?}") };
        let read = Done { kib: a, kib_per_second: b, iops: c };
        Self { error, read, written: Done { kib: x, kib_per_second: y, iops: z } }
    }
}

impl Guest {
    /// Starts a guest whose root is this disk; [`Guest::wait_until_up`] waits for it.
    #[track_caller]
    pub fn start(storage: &Storage, disk: usize, how: Drive) -> Self {
        let port = storage.sockets().join(format!("port-{disk}.sock"));
        let listener = UnixListener::bind(&port).expect("a socket");
        listener.set_nonblocking(true).expect("a socket");
        let (kernel, initramfs) = boot_files();
        let mut command = Command::new(require_program("qemu-system-x86_64"));
        command.args(["-accel", "tcg", "-cpu", "max", "-smp", "1", "-m", "256M", "-nic", "none"]);
        command.args(["-display", "none", "-no-reboot"]);
        command.arg("-kernel").arg(kernel).arg("-initrd").arg(initramfs);
        command.args(["-append", "console=ttyS0 quiet panic=-1 no_timer_check"]);
        command.args(["-serial", "stdio", "-serial", &format!("unix:{}", port.display())]);
        command.args(drive(storage, disk, how));
        let mut process = Process::spawn(command);
        let control = Deadline::wait_until("QEMU", PATIENCE, || {
            assert!(process.is_running(), "{}", process.all_output());
            listener.accept().ok()
        });
        let control = control.0;
        control.set_nonblocking(false).expect("a socket");
        let from = BufReader::new(control.try_clone().expect("a socket"));
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            // The test may have ended before the guest.
            from.lines().map_while(std::io::Result::ok).try_for_each(|line| sender.send(line))
        });
        Self { process, control, lines }
    }

    /// Starts a guest, and waits until it has booted.
    #[track_caller]
    pub fn boot(storage: &Storage, disk: usize, drive: Drive) -> Self {
        let guest = Self::start(storage, disk, drive);
        guest.wait_until_up();
        guest
    }

    #[track_caller]
    pub fn wait_until_up(&self) {
        self.wait_for("@ up");
    }

    /// Has the guest execute a line, and does not wait.
    #[track_caller]
    pub fn begin(&self, script: &str) {
        writeln!(&self.control, "{script}").unwrap_or_else(|error| self.fail(&error.to_string()));
    }

    /// Waits for a line that begins so; returns all lines until it, and that line.
    #[track_caller]
    pub fn wait_for(&self, start: &str) -> (String, String) {
        let deadline = Deadline::after(PATIENCE);
        let mut before = String::new();
        loop {
            match self.lines.recv_timeout(deadline.left().unwrap_or_default()) {
                Ok(line) if line.starts_with(start) => return (before, line),
                Ok(line) => before += &format!("{line}\n"),
                Err(error) => self.fail(&format!("no {start:?} ({error}) after\n{before}")),
            }
        }
    }

    /// Waits for the end of what was begun, which must succeed; returns what it printed.
    #[track_caller]
    pub fn end(&self) -> String {
        let (text, last) = self.wait_for("@ done");
        assert_eq!(last, "@ done 0", "{text}\n{}", self.process.all_output());
        text
    }

    #[track_caller]
    pub fn sh(&self, script: &str) -> String {
        self.begin(script);
        self.end()
    }

    /// Whether the guest has said nothing that was not waited for.
    pub fn is_silent(&self) -> bool {
        self.lines.try_recv().is_err()
    }

    /// Waits for the end of a verification that was begun.
    #[track_caller]
    pub fn end_verification(&self, kib: u64) {
        let result = FioResult::of(&self.end());
        assert_eq!(
            (result.error, result.written.kib, result.read.kib),
            (0, kib, kib),
            "written and verified"
        );
    }

    /// Checks that the guest has seen no error, and switches it off with its file system clean.
    #[track_caller]
    pub fn power_off(mut self) {
        let complaints = self.sh("complaints || true");
        assert!(complaints.is_empty(), "{complaints}");
        self.sh("sync && mount -o remount,ro /");
        self.begin("poweroff -f");
        let status = self.process.wait(PATIENCE);
        assert!(status.success(), "{status}: {}", self.process.all_output());
    }

    #[track_caller]
    fn fail(&self, why: &str) -> ! {
        panic!("{why}\n{}", self.process.all_output())
    }
}

/// The kernel, and a file with the initramfs.
fn boot_files() -> (&'static PathBuf, &'static PathBuf) {
    static FILES: OnceLock<(PathBuf, PathBuf)> = OnceLock::new();
    let (kernel, initramfs) = FILES.get_or_init(|| {
        let files = BootFiles::find(&MODULES, include_str!("initramfs.sh"));
        let files = files.unwrap_or_else(|error| panic!("{error}"));
        let initramfs = kept("initramfs");
        std::fs::write(&initramfs, files.initramfs).expect("a file");
        (files.kernel, initramfs)
    });
    (kernel, initramfs)
}
