//! Local objects that are neither regular files nor directories, and are read or written in order:
//! named pipes, devices, and the descriptors that this process was started with (`/dev/stdout`,
//! `/dev/fd/63`, `-`).
//!
//! A stream gets no temporary name, its length is unknown before its end, and it cannot be read
//! back. Waiting for the other end of a pipe ends when the copy is stopped.

mod ends;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{PidfdFlags, PidfdGetfdFlags};

use crate::entry::kind_of;
use crate::error::{Error, Result};
pub(crate) use ends::{Input, Output};
use fs::FileKind;

/// How often a wait checks whether the copy is stopped.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// A name with more symbolic links than this is treated as a loop; Linux has the same limit.
const SYMLINKS_MAX: usize = 40;
/// The type of sysfs, whose files all claim the size of a page. linux/magic.h SYSFS_MAGIC
const SYSFS: u64 = 0x6265_6572;
/// The descriptors of this process, by number.
const DESCRIPTORS: &str = "/proc/self/fd";

/// A local stream.
#[derive(Debug, Clone)]
pub struct Stream {
    kind: StreamKind,
    display_name: String,
}

#[derive(Debug, Clone)]
enum StreamKind {
    /// A descriptor of this process.
    Descriptor(i32),
    /// An object with a name.
    Named(PathBuf, FileKind),
}

impl Stream {
    /// Standard input.
    #[must_use]
    pub fn standard_input() -> Self {
        Self { kind: StreamKind::Descriptor(0), display_name: "standard input".to_owned() }
    }

    /// Standard output.
    #[must_use]
    pub fn standard_output() -> Self {
        Self { kind: StreamKind::Descriptor(1), display_name: "standard output".to_owned() }
    }

    /// The stream with this path, following links. `None` for a regular file, a directory or a
    /// missing name.
    #[must_use]
    pub fn named(path: &Path) -> Option<Self> {
        let kind = rustix::fs::stat(path).ok().map(|stat| kind_of(stat.st_mode));
        let kind = match (kind, descriptor(path)) {
            (Some(FileKind::Directory), _) => return None,
            (_, Some(number)) => StreamKind::Descriptor(number),
            (None | Some(FileKind::Regular), None) => return None,
            (Some(kind), None) => StreamKind::Named(path.to_owned(), kind),
        };
        Some(Self { kind, display_name: path.display().to_string() })
    }

    /// Like [`Stream::named`], for reading. Files that claim to be empty but are not, such as those
    /// of `/proc`, and the files of `/sys` are streams too.
    #[must_use]
    pub fn named_source(path: &Path) -> Option<Self> {
        Self::named(path).or_else(|| {
            let file = File::open(path).ok()?;
            let of = file.metadata().ok().filter(std::fs::Metadata::is_file)?;
            let is_longer = || of.len() == 0 && io::Read::read(&mut &file, &mut [0]).is_ok_and(|got| got > 0);
            let is_of_sysfs =
                || rustix::fs::fstatfs(&file).is_ok_and(|system| u64::try_from(system.f_type) == Ok(SYSFS));
            if !is_longer() && !is_of_sysfs() {
                return None;
            }
            let display_name = path.display().to_string();
            Some(Self { kind: StreamKind::Named(path.to_owned(), FileKind::Regular), display_name })
        })
    }

    /// The name of the stream in messages.
    #[must_use]
    pub fn display_name(&self) -> &str {
        &self.display_name
    }

    /// Whether the stream is standard output.
    #[must_use]
    pub const fn is_standard_output(&self) -> bool {
        matches!(self.kind, StreamKind::Descriptor(1))
    }

    /// Writes the whole text, and waits for the reader if necessary.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn write_all(&self, text: &[u8]) -> Result<()> {
        let mut output = Output::open(self, &|| false)?;
        output.write(text, &|| false)?;
        output.flush()
    }

    /// Opens the stream. Waits for a reader of a pipe, unless `stopped` says to give up.
    fn open(&self, flags: OFlags, stopped: &dyn Fn() -> bool) -> Result<File> {
        let what = "cannot open it";
        let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY;
        let (path, kind) = match &self.kind {
            StreamKind::Descriptor(number) => {
                return duplicate_inherited(*number, flags).map(File::from).map_err(Error::local(what));
            }
            StreamKind::Named(_, FileKind::Socket) => {
                return Err(Error::Conflict("it is a socket, which has no content to copy".to_owned()));
            }
            StreamKind::Named(path, kind) => (path, kind),
        };
        // Opening anything else does not block.
        let flags = if *kind == FileKind::Fifo { flags | OFlags::NONBLOCK } else { flags };
        loop {
            match rustix::fs::open(path, flags, Mode::empty()) {
                Ok(opened) => return Ok(opened.into()),
                Err(Errno::INTR) => {}
                // The pipe has no reader yet.
                Err(Errno::NXIO) if *kind == FileKind::Fifo => {
                    if stopped() {
                        return Err(Error::Interrupted);
                    }
                    std::thread::sleep(POLL_INTERVAL);
                }
                Err(error) => return Err(Error::local(what)(error.into())),
            }
        }
    }
}

/// The number of the descriptor that a path such as `/dev/stdout` or `/dev/fd/63` stands for.
fn descriptor(path: &Path) -> Option<i32> {
    let descriptors = Path::new(DESCRIPTORS).canonicalize().ok()?;
    let mut at = std::path::absolute(path).ok()?;
    for _ in 0..SYMLINKS_MAX {
        let above = at.parent()?.canonicalize().ok()?;
        if above == descriptors {
            return at.file_name()?.to_str()?.parse().ok();
        }
        at = above.join(std::fs::read_link(&at).ok()?);
    }
    None
}

/// Duplicates a descriptor that was open when this process started. Such a descriptor is not closed
/// on exec, unlike all that this process opened itself. A pipe is reopened if possible:
/// non-blocking mode, which lets a wait be stopped, then does not affect other processes that share
/// the pipe.
fn duplicate_inherited(number: i32, flags: OFlags) -> io::Result<OwnedFd> {
    let closed = || io::Error::from(Errno::BADF);
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{number}")).map_err(|_| closed())?;
    let of_it =
        info.lines().find_map(|line| u32::from_str_radix(line.strip_prefix("flags:")?.trim(), 8).ok());
    if of_it.is_none_or(|of_it| of_it & OFlags::CLOEXEC.bits() != 0) {
        return Err(closed());
    }
    let same = match number {
        0 => io::stdin().as_fd().try_clone_to_owned()?,
        1 => io::stdout().as_fd().try_clone_to_owned()?,
        _ => {
            let this = rustix::process::pidfd_open(rustix::process::getpid(), PidfdFlags::empty())?;
            rustix::process::pidfd_getfd(&this, number, PidfdGetfdFlags::empty())?
        }
    };
    if FileType::from_raw_mode(rustix::fs::fstat(&same)?.st_mode) == FileType::Fifo {
        let path = format!("{DESCRIPTORS}/{number}");
        if let Ok(opened) = rustix::fs::open(path, flags | OFlags::NONBLOCK, Mode::empty()) {
            return Ok(opened);
        }
    }
    Ok(same)
}

/// Waits until a descriptor is readable or writable, or has an error.
fn wait(on: &File, ready: PollFlags, stopped: &dyn Fn() -> bool) -> Result<()> {
    let step = Timespec { tv_sec: 0, tv_nsec: i64::try_from(POLL_INTERVAL.as_nanos()).unwrap_or_default() };
    loop {
        if stopped() {
            return Err(Error::Interrupted);
        }
        match poll(&mut [PollFd::new(on, ready)], Some(&step)) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(error) => return Err(Error::local("cannot wait for it")(error.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_told_from_regular_files() {
        let display_name = testkit::temp_dir("stream");
        let at = |name: &str| display_name.path().join(name);
        std::fs::write(at("file"), b"x").unwrap();
        std::fs::write(at("empty"), b"").unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, at("pipe"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        std::os::unix::fs::symlink("pipe", at("link")).unwrap();
        std::os::unix::fs::symlink("/dev/stdout", at("out")).unwrap();
        for name in ["file", "empty", "nothing", "."] {
            assert!(Stream::named_source(&at(name)).is_none(), "{name}");
        }
        for name in ["pipe", "link", "/dev/null", "/dev/fd/0"] {
            assert!(Stream::named(&at(name)).is_some(), "{name}");
        }
        let out = Stream::named(&at("out")).unwrap();
        assert!(out.is_standard_output());
        assert!(Stream::named(Path::new("/proc/self/status")).is_none());
        assert!(Stream::named_source(Path::new("/proc/self/status")).is_some());
    }

    #[test]
    fn a_descriptor_that_this_process_opened_cannot_be_named_by_the_user() {
        use std::os::fd::AsRawFd;
        let ours = File::open("/dev/null").unwrap();
        let named = PathBuf::from(format!("/dev/fd/{}", ours.as_raw_fd()));
        let error = Stream::named(&named).unwrap().open(OFlags::RDONLY, &|| false).unwrap_err();
        assert!(error.to_string().contains("Bad file descriptor"), "{error}");
    }

    #[test]
    fn a_wait_for_the_other_end_of_a_pipe_can_be_stopped() {
        let display_name = testkit::temp_dir("stream");
        let path = display_name.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let pipe = Stream::named(&path).unwrap();
        assert!(matches!(Output::open(&pipe, &|| true), Err(Error::Interrupted)));
        let mut input = Input::open(&pipe, 4096, &|| false).unwrap();
        assert!(matches!(input.fill(&|| true), Err(Error::Interrupted)));
    }
}
