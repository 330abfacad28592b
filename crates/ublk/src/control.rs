//! Commands to the driver, one at a time.

#![allow(unsafe_code)]

use crate::error::Error;
use crate::sys::lock_byte;
use crate::wire::{self, COMMAND_BYTES, INFO_BYTES, Info, Parameters};
use io_uring::types::Fd;
use io_uring::{IoUring, cqueue, opcode, squeue};
use rustix::io::Errno;
use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::path::Path;

const _: () = assert!(COMMAND_BYTES <= 80, "a command is in a request of 128 bytes");

/// The device of the driver.
pub(crate) struct Control {
    file: File,
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
}

impl Control {
    /// Opens the device of the driver.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let file = File::options().read(true).write(true).open(path).map_err(|error| match error.kind() {
            ErrorKind::NotFound => Error::NoDriver,
            _ if matches!(error.raw_os_error(), Some(libc::ENODEV | libc::ENXIO)) => Error::NoDriver,
            ErrorKind::PermissionDenied => Error::Denied(error),
            _ => Error::System(format!("open {}", path.display()), error),
        })?;
        let ring = IoUring::builder().build(1).map_err(Error::of("make an io_uring"))?;
        Ok(Self { file, ring })
    }

    /// Takes the right to a device number, for as long as this is open. False if another process
    /// has it.
    pub(crate) fn lock(&self, number: u32) -> io::Result<bool> {
        lock_byte(self.file.as_fd(), number)
    }

    /// The flags that the driver knows.
    pub(crate) fn features(&mut self) -> Result<u64, Error> {
        let mut features = [0; 8];
        match self.command(wire::GET_FEATURES, u32::MAX, &mut features, 0) {
            Ok(()) => Ok(u64::from_ne_bytes(features)),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => Err(Error::Denied(error)),
            // Before Linux 6.5 there is no such command.
            Err(_) => Ok(0),
        }
    }

    /// What the driver knows of a device, if it is there.
    pub(crate) fn info(&mut self, number: u32) -> io::Result<Option<Info>> {
        let mut info = [0; INFO_BYTES];
        match self.command(wire::GET_DEV_INFO, number, &mut info, 0) {
            Ok(()) => Ok(Some(Info::decode(&info))),
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes a device; returns it as the driver has made it.
    pub(crate) fn add(&mut self, info: &Info) -> io::Result<Info> {
        let mut bytes = info.encode();
        self.command(wire::ADD_DEV, info.number, &mut bytes, 0)?;
        Ok(Info::decode(&bytes))
    }

    pub(crate) fn describe(&mut self, number: u32, parameters: &Parameters) -> io::Result<()> {
        self.command(wire::SET_PARAMS, number, &mut parameters.encode(), 0)
    }

    /// A command without data, such as [`wire::STOP_DEV`].
    pub(crate) fn tell(&mut self, command: u32, number: u32) -> io::Result<()> {
        self.command(command, number, &mut [], std::process::id().into())
    }

    /// Returns when the command has ended.
    fn command(&mut self, command: u32, number: u32, buffer: &mut [u8], data: u64) -> io::Result<()> {
        let bytes = u16::try_from(buffer.len()).map_err(|_| ErrorKind::InvalidInput)?;
        let address = if buffer.is_empty() { 0 } else { buffer.as_mut_ptr() as u64 };
        let entry = opcode::UringCmd80::new(Fd(self.file.as_raw_fd()), command)
            .cmd(wire::command(number, address, bytes, data))
            .build();
        // SAFETY: the buffer outlives the command, because this function returns only after its
        // completion, and nothing else uses the buffer meanwhile. The file is open as long as
        // `self`.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        debug_assert!(pushed.is_ok(), "one command at a time");
        loop {
            if let Some(ended) = self.ring.completion().next() {
                let result = ended.result();
                return if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(()) };
            }
            match self.ring.submit_and_wait(1) {
                Err(error) if !is_transient(&error) => {
                    // The command may still be executed: the buffer must not go.
                    tracing::error!(%error, "io_uring has failed");
                    std::process::abort();
                }
                _ => {}
            }
        }
    }
}

/// Whether it is to be tried again.
pub(crate) fn is_transient(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::INTR | Errno::AGAIN | Errno::BUSY))
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control").field("file", &self.file).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_without_the_driver_is_told_apart() {
        let directory = tempfile::tempdir().expect("a directory");
        let error = Control::open(&directory.path().join("ublk-control")).expect_err("no device");
        assert!(matches!(error, Error::NoDriver), "{error}");
    }

    #[test]
    fn a_driver_that_knows_no_features_has_none() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("ublk-control");
        std::fs::write(&path, "").expect("a file");
        // A file knows no commands of io_uring, like a driver that is too old.
        match Control::open(&path) {
            Ok(mut control) => assert_eq!(control.features().expect("none"), 0),
            // A container may have no io_uring.
            Err(error) => assert!(matches!(error, Error::System(..)), "{error}"),
        }
    }
}
