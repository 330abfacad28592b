//! Opens files and devices, and refuses what is not ours to write to.
//!
//! The order matters: nothing is changed before the lock is held, and a device is asked for
//! signatures through the descriptor that is locked, not by its name.

use super::{Disk, content};
use crate::drive::{Info, Kind};
use crate::error::{Error, Result};
use crate::{signature, sys, sysfs};
use rustix::fs::{AtFlags, FallocateFlags, FileType, OFlags, StatxFlags, fallocate, fstat, statx};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;

/// Where the kernel shows its devices and its state.
const SYS: &str = "/sys";
const PROC: &str = "/proc";
/// The alignment that every file system with direct I/O accepts; used where the kernel does not say
/// which it needs (before Linux 6.1).
const SAFE_ALIGN: u32 = 4096;
/// The block of a file, unless its owner says otherwise: the unit of file systems and of memory.
const FILE_BLOCK: u32 = 4096;

/// On which grounds a file or device is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// Its owner has recorded it as a drive. What guests keep on it, such as file systems, is
    /// theirs; nothing is checked but that nobody else uses it.
    Known,
    /// A file or device that was no drive before. It is refused if anything is recognized on it, or
    /// if it has data.
    Adopt {
        /// Take it whatever is on it.
        force: bool,
    },
    /// A new file. Its storage is reserved unless it is sparse.
    Create {
        /// Its size.
        bytes: u64,
        /// Reserve no storage: a write may fail because the file system is full.
        sparse: bool,
    },
}

/// Removes a file that was made and could not be finished.
struct Unfinished<'a>(Option<&'a Path>);

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if let Some(path) = self.0 {
            let _ = fs::remove_file(path);
        }
    }
}

/// Opens a file or device.
pub(crate) fn open(path: &Path, how: How) -> Result<(Disk, Info)> {
    if let How::Create { bytes, sparse } = how {
        return create(path, bytes, sparse);
    }
    let (file, is_device) = open_existing(path)?;
    lock(path, &file)?;
    let opened = describe(path, file, is_device)?;
    if how == (How::Adopt { force: false }) {
        let mut found = signature::probe(path, opened.0.file.as_fd())?;
        if found.is_empty() {
            found.extend(content::probe(path, &opened.0, opened.1.bytes)?);
        }
        if !found.is_empty() {
            return Err(Error::Foreign { path: path.to_owned(), found });
        }
    }
    Ok(opened)
}

fn create(path: &Path, bytes: u64, sparse: bool) -> Result<(Disk, Info)> {
    let flags = (OFlags::DIRECT | OFlags::NOFOLLOW).bits().cast_signed();
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(0o600).custom_flags(flags);
    let there = fs::symlink_metadata(path).is_ok();
    let file = options.open(path).map_err(|source| match Errno::from_io_error(&source) {
        Some(Errno::EXIST) => Error::Exists { path: path.to_owned() },
        Some(Errno::INVAL) => {
            // The file was made before direct I/O was refused.
            if !there {
                let _ = fs::remove_file(path);
            }
            Error::NotDirect { path: path.to_owned() }
        }
        _ => Error::system("create", path)(source),
    })?;
    let mut unfinished = Unfinished(Some(path));
    lock(path, &file)?;
    if sparse {
        file.set_len(bytes).map_err(Error::system("set the size of", path))?;
    } else if bytes > 0 {
        fallocate(&file, FallocateFlags::empty(), 0, bytes)
            .map_err(Error::system("reserve storage for", path))?;
    }
    let opened = describe(path, file, false)?;
    opened.0.file.sync_all().map_err(Error::system("make durable", path))?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let synced = File::open(parent).and_then(|parent| parent.sync_all());
    synced.map_err(Error::system("make durable the directory of", path))?;
    unfinished.0 = None;
    Ok(opened)
}

/// The open file, and whether it is a block device.
fn open_existing(path: &Path) -> Result<(File, bool)> {
    // Before it is opened, because opening other kinds of files can wait or have effects.
    let kind = fs::metadata(path).map_err(Error::system("find", path))?.file_type();
    let is_device = kind.is_block_device();
    if !is_device && !kind.is_file() {
        return Err(Error::NotADrive { path: path.to_owned() });
    }
    // Exclusive for a device: it is not mounted, nor part of another device, and stays so.
    let flags = if is_device { OFlags::DIRECT | OFlags::EXCL } else { OFlags::DIRECT };
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(flags.bits().cast_signed());
    let file = options.open(path).map_err(|source| match Errno::from_io_error(&source) {
        Some(Errno::BUSY) => Error::InUse { path: path.to_owned(), by: users(path) },
        Some(Errno::INVAL) => Error::NotDirect { path: path.to_owned() },
        _ => Error::system("open", path)(source),
    })?;
    let opened = fstat(&file).map_err(Error::system("find", path))?;
    match (FileType::from_raw_mode(opened.st_mode), is_device) {
        (FileType::BlockDevice, true) | (FileType::RegularFile, false) => Ok((file, is_device)),
        _ => Err(Error::NotADrive { path: path.to_owned() }),
    }
}

fn users(path: &Path) -> Vec<String> {
    let device = rustix::fs::stat(path).map(|stat| stat.st_rdev);
    device.map_or_else(|_| Vec::new(), |device| sysfs::users(Path::new(SYS), Path::new(PROC), device))
}

fn lock(path: &Path, file: &File) -> Result<()> {
    match sys::lock_whole(file.as_fd()) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Error::Locked { path: path.to_owned() }),
        Err(source) => Err(Error::system("lock", path)(source)),
    }
}

/// What direct I/O needs: the alignment of memory, and that of offsets and lengths.
fn alignment(path: &Path, file: &File, device_block: Option<u32>) -> Result<(u32, u32)> {
    let asked = statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
    if let Ok(told) = asked
        && told.stx_mask & StatxFlags::DIOALIGN.bits() != 0
    {
        let (memory, offset) = (told.stx_dio_mem_align, told.stx_dio_offset_align);
        if memory == 0 || offset == 0 {
            return Err(Error::NotDirect { path: path.to_owned() });
        }
        return Ok((memory.max(1), offset.max(device_block.unwrap_or(1)).max(512)));
    }
    Ok(device_block.map_or((SAFE_ALIGN, SAFE_ALIGN), |block| (block, block)))
}

/// Finds out what an open file or device is and promises.
fn describe(path: &Path, file: File, is_device: bool) -> Result<(Disk, Info)> {
    let stat = fstat(&file).map_err(Error::system("find", path))?;
    let facts = sysfs::facts(Path::new(SYS), if is_device { stat.st_rdev } else { stat.st_dev });
    let (bytes, device_block) = if is_device {
        let bytes = sys::device_bytes(file.as_fd()).map_err(Error::system("find the size of", path))?;
        let block = rustix::fs::ioctl_blksszget(&file).map_err(Error::system("find the block of", path))?;
        (bytes, Some(block))
    } else {
        (stat.st_size.cast_unsigned(), None)
    };
    let (memory_align, block_bytes) = alignment(path, &file, device_block)?;
    if bytes == 0 || !bytes.is_multiple_of(u64::from(block_bytes)) {
        return Err(Error::Size { path: path.to_owned(), bytes, block: block_bytes });
    }
    // Beyond the end of the file, where there is nothing to change.
    let holes = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let punches = || fallocate(&file, holes, bytes, u64::from(SAFE_ALIGN)).is_ok();
    let discards = if is_device { facts.discards } else { punches() };
    let info = Info {
        kind: if is_device { Kind::Device } else { Kind::File },
        path: Some(PathBuf::from(path)),
        bytes,
        block_bytes,
        preferred_block_bytes: device_block.unwrap_or(FILE_BLOCK).max(block_bytes),
        physical_block_bytes: facts.physical_block_bytes.unwrap_or(block_bytes).max(block_bytes),
        optimal_bytes: facts.optimal_bytes,
        // What a file system has noted of a file, such as storage that is reserved and not written
        // yet, becomes durable by a flush only, whatever the device does.
        volatile_cache: !is_device || facts.write_back,
        persistent: true,
        discards,
        discard_zeroes: discards && !is_device,
        warnings: facts.warnings,
    };
    let disk = Disk {
        file,
        is_device,
        memory_align: memory_align as usize,
        block_bytes,
        bounced_bytes: AtomicU64::new(0),
    };
    Ok((disk, info))
}
