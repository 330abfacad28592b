//! A device: from the right to its number to its removal.

use crate::control::Control;
use crate::error::Error;
use crate::queue::{Handle, Queue};
use crate::sys::write_back;
use crate::wire::{self, CONTROL, Info, Parameters, State};
use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Requests of the kernel under way at a time.
const DEPTH: u16 = 128;

/// The longest read or write. With the depth, it bounds the memory for data to 128 MiB.
const REQUEST_BYTES_MAX: u32 = 1 << 20;

/// The longest discard and the longest range of zeroes: a second of work where zeroes are written.
const RANGE_BYTES_MAX: u32 = 128 << 20;

/// The least physical block: smaller requests are possible where blocks are smaller, but not good.
const PHYSICAL_BYTES_MIN: u32 = 4096;

/// How long the kernel may take to notice that a server was killed.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(20);

/// What a device is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    /// Its size; what is behind the last block is not there.
    pub bytes: u64,
    /// Requests are multiples of this many bytes, a power of two.
    pub block_bytes: u32,
    /// The best size of requests.
    pub preferred_bytes: u32,
    /// It cannot be changed.
    pub read_only: bool,
    /// It can discard.
    pub discard: bool,
    /// It can write zeroes.
    pub write_zeroes: bool,
    /// What is written may be lost without a flush.
    pub volatile_cache: bool,
    /// What was under way when its server was killed may be given to the next one, instead of
    /// failing.
    pub reissue: bool,
    /// Says which disk it is: another server takes over only what has the same number.
    pub identity: u64,
}

impl Description {
    fn parameters(&self) -> Result<Parameters, Error> {
        let unfit = || Error::Unfit { bytes: self.bytes, block_bytes: self.block_bytes };
        let logical = self.block_bytes.max(512);
        if !logical.is_power_of_two() || logical as usize > rustix::param::page_size() {
            return Err(unfit());
        }
        let physical = logical.max(PHYSICAL_BYTES_MIN);
        let sectors = self.bytes / u64::from(logical) * u64::from(logical / 512);
        if sectors == 0 {
            return Err(unfit());
        }
        let mut attributes = 0;
        if self.read_only {
            attributes |= wire::ATTRIBUTE_READ_ONLY;
        }
        if self.volatile_cache {
            attributes |= wire::ATTRIBUTE_VOLATILE_CACHE | wire::ATTRIBUTE_FUA;
        }
        let shift = |bytes: u32| bytes.ilog2() as u8;
        let range = |can: bool| if can && !self.read_only { RANGE_BYTES_MAX / 512 } else { 0 };
        Ok(Parameters {
            attributes,
            logical_shift: shift(logical),
            physical_shift: shift(physical),
            preferred_shift: shift(self.preferred_bytes.clamp(physical, REQUEST_BYTES_MAX)),
            sectors,
            request_sectors_max: REQUEST_BYTES_MAX / 512,
            discard_sectors_max: range(self.discard),
            zero_sectors_max: range(self.write_zeroes),
        })
    }
}

/// The right to a device number, and the device once it is made.
#[derive(Debug)]
pub struct Device {
    control: Box<Control>,
    number: u32,
    /// What a server before this one has left.
    left: Option<Info>,
    /// What this process serves goes on from there.
    recovers: bool,
}

impl Device {
    /// Takes the right to a device number, which this process then has until it ends.
    ///
    /// # Errors
    /// [`Error`].
    pub fn claim(number: u32) -> Result<Self, Error> {
        let mut control = Box::new(Control::open(Path::new(CONTROL))?);
        if !control.lock(number).map_err(Error::of(format!("lock {CONTROL}")))? {
            return Err(Error::InUse(number));
        }
        let features = control.features()?;
        for (flag, name) in
            [(wire::USER_COPY, "UBLK_F_USER_COPY"), (wire::USER_RECOVERY, "UBLK_F_USER_RECOVERY")]
        {
            if features & flag == 0 {
                return Err(Error::TooOld(name));
            }
        }
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = control.info(number).map_err(Error::of(format!("ask for /dev/ublkb{number}")))?;
            match &left {
                Some(info) if info.state == State::Live => {
                    // A server that was killed is there until the kernel has noticed.
                    let is_there = Path::new(&format!("/proc/{}", info.pid)).exists();
                    if is_there || Instant::now() >= deadline {
                        return Err(Error::InUse(number));
                    }
                    std::thread::sleep(PAUSE);
                }
                _ => return Ok(Self { control, number, left, recovers: false }),
            }
        }
    }

    /// The path of the block device.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        path(self.number)
    }

    /// Whether a server that was killed has left the device, which then waits for this one.
    #[must_use]
    pub fn is_left(&self) -> bool {
        self.left.as_ref().is_some_and(|info| info.state == State::Left)
    }

    /// Makes the device, or takes over what a killed server has left of the same disk; opens its
    /// queue. Nothing is asked for before [`Queue::fetch`].
    ///
    /// # Errors
    /// [`Error`].
    pub fn open(&mut self, description: &Description) -> Result<(Queue, Handle), Error> {
        let number = self.number;
        let failed = |what: &str| Error::of(format!("{what} /dev/ublkb{number}"));
        let parameters = description.parameters()?;
        let depth = match self.left.take() {
            Some(info) if info.identity != description.identity || info.queues != 1 => {
                return Err(Error::Other(number));
            }
            Some(info) if info.state == State::Left => {
                self.recovers = true;
                self.recover().map_err(failed("take over"))?;
                info.depth
            }
            left => {
                if left.is_some() {
                    // Its server was killed before it was started.
                    self.control.tell(wire::DEL_DEV, number).map_err(failed("remove"))?;
                }
                self.add(description).map_err(failed("make"))?
            }
        };
        let character = PathBuf::from(format!("/dev/ublkc{number}"));
        let described = if self.recovers { Ok(()) } else { self.control.describe(number, &parameters) };
        let opened = described.and_then(|()| Queue::open(&character, depth));
        opened.map_err(|error| {
            self.remove();
            failed("open the queue of")(error)
        })
    }

    fn add(&mut self, description: &Description) -> io::Result<u16> {
        let reissue = if description.reissue { wire::USER_RECOVERY_REISSUE } else { 0 };
        let info = Info {
            queues: 1,
            depth: DEPTH,
            state: State::Dead,
            request_bytes_max: REQUEST_BYTES_MAX,
            number: self.number,
            pid: 0,
            flags: wire::USER_RECOVERY | reissue | wire::USER_COPY | wire::COMMANDS_ENCODED,
            identity: description.identity,
        };
        Ok(self.control.add(&info)?.depth)
    }

    fn recover(&mut self) -> io::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.control.tell(wire::START_USER_RECOVERY, self.number) {
                // The last files of the killed server are still being closed.
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) && Instant::now() < deadline => {
                    std::thread::sleep(PAUSE);
                }
                other => return other,
            }
        }
    }

    /// Starts the device, once another thread fetches its requests; it is there then. The kernel
    /// reads its partitions before this returns.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn start(&mut self) -> Result<(), Error> {
        let command = if self.recovers { wire::END_USER_RECOVERY } else { wire::START_DEV };
        let failed = Error::of(format!("start /dev/ublkb{}", self.number));
        self.control.tell(command, self.number).map_err(failed)
    }

    /// Stops the device, after all that the kernel has of it in memory was written. Needs the
    /// thread of its queue, and returns after the last request.
    pub fn stop(&mut self) {
        let written = File::open(self.path()).and_then(|device| write_back(device.as_fd()));
        if let Err(error) = written {
            tracing::warn!(%error, "cannot write what the kernel has of {}", self.path().display());
        }
        if let Err(error) = self.control.tell(wire::STOP_DEV, self.number) {
            tracing::warn!(%error, "cannot stop {}", self.path().display());
        }
    }

    /// Removes the device, once its queue and all handles are dropped. Waits for programs that have
    /// it open. What was taken over and could not be started stays as it was.
    pub fn remove(&mut self) {
        let state = self.control.info(self.number);
        if state.is_ok_and(|info| info.is_none_or(|info| info.state == State::Left)) {
            return;
        }
        if let Err(error) = self.control.tell(wire::DEL_DEV, self.number) {
            tracing::warn!(%error, "cannot remove {}", self.path().display());
        }
    }
}

fn path(number: u32) -> PathBuf {
    PathBuf::from(format!("/dev/ublkb{number}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn description() -> Description {
        Description {
            bytes: 10_000,
            block_bytes: 1,
            preferred_bytes: 4096,
            read_only: false,
            discard: true,
            write_zeroes: true,
            volatile_cache: false,
            reissue: true,
            identity: 1,
        }
    }

    #[test]
    fn a_file_becomes_whole_sectors_with_physical_blocks_of_four_kibibytes() {
        let parameters = description().parameters().expect("parameters");
        assert_eq!((parameters.sectors, parameters.logical_shift, parameters.physical_shift), (19, 9, 12));
        assert_eq!(parameters.attributes, 0);
    }

    #[test]
    fn a_volume_keeps_its_blocks_and_its_cache_and_a_protected_one_is_only_read() {
        let volume = Description {
            bytes: 1 << 20,
            block_bytes: 4096,
            preferred_bytes: 64 << 10,
            read_only: true,
            volatile_cache: true,
            ..description()
        };
        let parameters = volume.parameters().expect("parameters");
        assert_eq!(
            (parameters.sectors, parameters.logical_shift, parameters.preferred_shift),
            (2048, 12, 16)
        );
        let cached = wire::ATTRIBUTE_VOLATILE_CACHE | wire::ATTRIBUTE_FUA;
        assert_eq!(parameters.attributes, cached | wire::ATTRIBUTE_READ_ONLY);
        assert_eq!((parameters.discard_sectors_max, parameters.zero_sectors_max), (0, 0));
    }

    #[test]
    fn blocks_that_are_longer_than_a_page_and_a_disk_without_a_block_are_refused() {
        for unfit in [
            Description { block_bytes: 1 << 20, bytes: 1 << 30, ..description() },
            Description { bytes: 511, ..description() },
        ] {
            assert!(matches!(unfit.parameters(), Err(Error::Unfit { .. })), "{unfit:?}");
        }
    }
}
